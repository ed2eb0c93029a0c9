"""Closures and early closes of stock index futures and their options on CME Globex.

Globex closes for New Year, Good Friday and Christmas alone. On other holidays of the New York Stock
Exchange it halts early, and on a Good Friday with the monthly employment report shortly before the
stock market would open. Times are New York's; Chicago's are an hour less.
"""

from __future__ import annotations

import datetime as dt

from arbiter.timing import nyse

_DAY = dt.timedelta(days=1)
_HALF_DAY_CLOSE = dt.time(13, 15)
_HOLIDAY_HALT, _HOLIDAY_HALT_BEFORE = dt.time(13), dt.time(11, 30)
_LATER_HALTS_FROM = dt.date(2014, 5, 1)
_REPORT_HALT = dt.time(9, 15)

# What no rule gives: attacks, and days of mourning for Nixon and Ford.
_UNSCHEDULED_HOLIDAYS = (
    "1994-04-27",
    *("2001-09-11", "2001-09-12", "2001-09-13", "2001-09-14"),
    "2007-01-02",
)
# Days on which the night traded and the New York Stock Exchange stayed closed.
_UNSCHEDULED_HALTS = {
    "2004-06-11": dt.time(9, 15),  # Reagan
    **dict.fromkeys(("2012-10-29", "2012-10-30"), dt.time(9, 15)),  # Hurricane Sandy
    **dict.fromkeys(("2018-12-05", "2025-01-09"), dt.time(9, 30)),  # George H. W. Bush, Carter
}


def list_holidays(year: int) -> list[dt.date]:
    """The weekdays of a year without a session."""
    days = [nyse.find_new_year(year), nyse.find_christmas(year)]
    good_friday = nyse.find_good_friday(year)
    if good_friday != _find_employment_report(year):
        days.append(good_friday)
    days += (dt.date.fromisoformat(day) for day in _UNSCHEDULED_HOLIDAYS)
    return sorted(day for day in days if day.year == year and day.weekday() < 5)


def list_early_closes(year: int) -> dict[dt.date, dt.time]:
    """The days of a year on which trade stops early, with the time."""
    closed = list_holidays(year)
    found = dict.fromkeys(nyse.list_early_closes(year), _HALF_DAY_CLOSE)
    for day in nyse.list_holidays(year):
        if day not in closed:
            halt = _HOLIDAY_HALT if day >= _LATER_HALTS_FROM else _HOLIDAY_HALT_BEFORE
            if day == nyse.find_good_friday(year):
                halt = _REPORT_HALT
            found[day] = _UNSCHEDULED_HALTS.get(day.isoformat(), halt)
    return dict(sorted(found.items()))


def _find_employment_report(year: int) -> dt.date:
    """The day of the report on March: the third Friday after the week that has its 12th day."""
    twelfth = dt.date(year, 3, 12)
    saturday = twelfth + (5 - twelfth.weekday()) % 7 * _DAY
    return saturday + 20 * _DAY
