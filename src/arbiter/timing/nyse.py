"""Holidays and half days of the New York Stock Exchange, by its rules since 1985.

What no rule gives, days of mourning, storms and attacks, is a list. A test compares every session
and every close from 1990 to 2099 with ``exchange_calendars``.
"""

from __future__ import annotations

import datetime as dt

_MONDAY, _THURSDAY, _FRIDAY = 0, 3, 4
_DAY = dt.timedelta(days=1)
_EARLY, _EARLY_UNTIL_1992 = dt.time(13), dt.time(14)

_UNSCHEDULED_HOLIDAYS = (
    "1985-09-27",  # Hurricane Gloria
    "1994-04-27",  # Nixon
    *("2001-09-11", "2001-09-12", "2001-09-13", "2001-09-14"),  # attacks on New York
    "2004-06-11",  # Reagan
    "2007-01-02",  # Ford
    *("2012-10-29", "2012-10-30"),  # Hurricane Sandy
    "2018-12-05",  # George H. W. Bush
    "2025-01-09",  # Carter
)
_UNSCHEDULED_HALF_DAYS = ("1997-12-26", "1999-12-31", "2003-12-26")


def list_holidays(year: int) -> list[dt.date]:
    """The weekdays of a year without a session."""
    days = [
        find_new_year(year),
        _find_weekday(year, 2, _MONDAY, 3),
        find_good_friday(year),
        _find_weekday(year, 6, _MONDAY, 1) - 7 * _DAY,  # the last Monday of May
        _shift_to_weekday(dt.date(year, 7, 4)),
        _find_weekday(year, 9, _MONDAY, 1),
        _find_weekday(year, 11, _THURSDAY, 4),
        find_christmas(year),
        *(dt.date.fromisoformat(day) for day in _UNSCHEDULED_HOLIDAYS),
    ]
    if year >= 1998:
        days.append(_find_weekday(year, 1, _MONDAY, 3))  # Martin Luther King
    if year >= 2022:
        days.append(_shift_to_weekday(dt.date(year, 6, 19)))
    return sorted(day for day in days if day.year == year and day.weekday() <= _FRIDAY)


def list_early_closes(year: int) -> dict[dt.date, dt.time]:
    """The half days of a year with the time at which they close."""
    days = [dt.date.fromisoformat(day) for day in _UNSCHEDULED_HALF_DAYS]
    christmas_eve, third_of_july = dt.date(year, 12, 24), dt.date(year, 7, 3)
    if christmas_eve.weekday() <= _THURSDAY:
        days.append(christmas_eve)
    if year >= 1992:
        days.append(_find_weekday(year, 11, _THURSDAY, 4) + _DAY)
    if year >= 1995 and third_of_july.weekday() <= _THURSDAY:
        # a holiday on a Thursday was followed by the half day, and is preceded by it since 2013
        follows = year < 2013 and third_of_july.weekday() == _THURSDAY - 1
        days.append(third_of_july + 2 * _DAY if follows else third_of_july)
    at = _EARLY if year > 1992 else _EARLY_UNTIL_1992
    return {day: at for day in sorted(days) if day.year == year}


def find_new_year(year: int) -> dt.date:
    """New Year's Day as it is kept: on Monday for a Sunday; a Saturday gives no day."""
    day = dt.date(year, 1, 1)
    return day + _DAY if day.isoweekday() == 7 else day


def find_good_friday(year: int) -> dt.date:
    """Two days before Easter."""
    return _find_easter(year) - 2 * _DAY


def find_christmas(year: int) -> dt.date:
    """Christmas Day as it is kept: on Friday for a Saturday, on Monday for a Sunday."""
    return _shift_to_weekday(dt.date(year, 12, 25))


def _find_weekday(year: int, month: int, weekday: int, nth: int) -> dt.date:
    """The ``nth`` weekday, counted from Monday = 0, of a month."""
    first = dt.date(year, month, 1)
    return first + ((weekday - first.weekday()) % 7 + 7 * (nth - 1)) * _DAY


def _shift_to_weekday(day: dt.date) -> dt.date:
    """The Friday before a Saturday, the Monday after a Sunday, any other day itself."""
    return day + {5: -1, 6: 1}.get(day.weekday(), 0) * _DAY


def _find_easter(year: int) -> dt.date:
    """Easter Sunday of the Gregorian calendar (Meeus, Astronomical Algorithms, chapter 8)."""
    century, place = divmod(year, 100)
    golden = year % 19
    correction = (8 * century + 13) // 25
    epact = (19 * golden + century - century // 4 - correction + 15) % 30
    weekday = (32 + 2 * (century % 4) + 2 * (place // 4) - epact - place % 4) % 7
    late = (golden + 11 * epact + 22 * weekday) // 451
    month, day = divmod(epact + weekday - 7 * late + 114, 31)
    return dt.date(year, month, day + 1)
