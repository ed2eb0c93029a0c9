"""The exchange's clock: sessions, half days, settlement times, and what a time stamp means.

All times are New York's, without a zone.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import NamedTuple
from zoneinfo import ZoneInfo

import numpy as np

from arbiter.timing import cme, nyse

NEW_YORK = ZoneInfo("America/New_York")
QUOTES_AFTER_CLOSE = np.timedelta64(15, "m")  # index options are quoted a quarter of an hour longer
FIRST_YEAR, LAST_YEAR = 1990, 2099


class ExchangeCalendar(NamedTuple):
    """When an exchange is open.

    Attributes:
        name: What a caller calls it.
        open_time: Time of day at which a session opens: on the evening before if it is not before
            the close, and never closed if it is the same.
        close_time: Time of day at which it closes, but for half days.
        weekdays: Days of the week that have sessions, 0 for Monday.
        list_holidays: The days of a year that have none all the same.
        list_early_closes: The half days of a year with the time at which they close.
    """

    name: str
    open_time: dt.time
    close_time: dt.time
    weekdays: frozenset[int]
    list_holidays: Callable[[int], Sequence[dt.date]]
    list_early_closes: Callable[[int], Mapping[dt.date, dt.time]]


NYSE = ExchangeCalendar(
    name="NYSE",
    open_time=dt.time(9, 30),
    close_time=dt.time(16),
    weekdays=frozenset(range(5)),
    list_holidays=nyse.list_holidays,
    list_early_closes=nyse.list_early_closes,
)
# Futures on stock indices trade electronically but for an hour a day.
CME = ExchangeCalendar(
    name="CME",
    open_time=dt.time(18),
    close_time=dt.time(17),
    weekdays=NYSE.weekdays,
    list_holidays=cme.list_holidays,
    list_early_closes=cme.list_early_closes,
)
ALWAYS = ExchangeCalendar(
    name="24/7",
    open_time=dt.time(),
    close_time=dt.time(),
    weekdays=frozenset(range(7)),
    list_holidays=lambda year: (),
    list_early_closes=lambda year: {},
)
CALENDARS = {calendar.name: calendar for calendar in (NYSE, CME, ALWAYS)}


@cache
def _load_holidays(calendar: ExchangeCalendar, year: int) -> frozenset[dt.date]:
    return frozenset(calendar.list_holidays(year))


@cache
def _load_early_closes(calendar: ExchangeCalendar, year: int) -> Mapping[dt.date, dt.time]:
    return calendar.list_early_closes(year)


def _find_session(day: dt.date, calendar: ExchangeCalendar) -> dt.date:
    """The last session on or before ``day``."""
    if not FIRST_YEAR <= day.year <= LAST_YEAR:
        raise ValueError(f"{day} is outside the years {FIRST_YEAR} to {LAST_YEAR}")
    while day.weekday() not in calendar.weekdays or day in _load_holidays(calendar, day.year):
        day -= dt.timedelta(days=1)
    return day


def _find_close(session: dt.date, calendar: ExchangeCalendar) -> dt.datetime:
    early_closes = _load_early_closes(calendar, session.year)
    return dt.datetime.combine(session, early_closes.get(session, calendar.close_time))


def last_session(day: np.datetime64, calendar: ExchangeCalendar = NYSE) -> np.datetime64:
    """The last session on or before ``day``."""
    return np.datetime64(_find_session(day.astype("datetime64[D]").item(), calendar), "D")


def session_close(session: np.datetime64, calendar: ExchangeCalendar = NYSE) -> np.datetime64:
    """When the ``session`` closes, in minutes."""
    return np.datetime64(_find_close(session.astype("datetime64[D]").item(), calendar), "m")


def find_sessions(
    start: np.datetime64, end: np.datetime64, calendar: ExchangeCalendar = NYSE
) -> list[tuple[np.datetime64, np.datetime64]]:
    """When the sessions between two days open and close, in seconds."""
    day, last = (moment.astype("datetime64[D]").item() for moment in (start, end))
    found: list[tuple[np.datetime64, np.datetime64]] = []
    while day <= last:
        if _find_session(day, calendar) == day:
            both = dt.datetime.combine(day, calendar.open_time), _find_close(day, calendar)
            found.append((np.datetime64(both[0], "s"), np.datetime64(both[1], "s")))
        day += dt.timedelta(days=1)
    return found


def convert_to_new_york(moment: dt.datetime) -> dt.datetime:
    """A moment without a zone, in New York time, which one without a zone is taken to have."""
    return moment.astimezone(NEW_YORK).replace(tzinfo=None) if moment.tzinfo else moment


def settlement_time(expiry: dt.date, settlement: str) -> dt.datetime:
    """When an option settles: at the open (``"AM"``) or the close (``"PM"``) of its last session.

    An expiry that is no session (a Saturday before 2015, a holiday) settles on the one before.

    Example:
        >>> settlement_time(dt.date(2023, 11, 24), "PM")  # the day after Thanksgiving
        datetime.datetime(2023, 11, 24, 13, 0)
    """
    session = _find_session(expiry, NYSE)
    if settlement == "AM":
        return dt.datetime.combine(session, NYSE.open_time)
    return _find_close(session, NYSE)


def find_last_quotes(day: np.datetime64, calendar: ExchangeCalendar = NYSE) -> np.datetime64:
    """When the last quotes are made of the last session on or before ``day``, in minutes."""
    later = QUOTES_AFTER_CLOSE if calendar == NYSE else np.timedelta64(0, "m")
    return session_close(last_session(day, calendar), calendar) + later


def is_quoted(moment: np.datetime64, calendar: ExchangeCalendar = NYSE) -> bool:
    """Whether there are quotes at a moment; from midnight to the open those of the night."""
    if calendar.open_time == calendar.close_time:
        return True
    day = moment.astype("datetime64[D]")
    evening = (moment - day) / np.timedelta64(1, "h") >= calendar.open_time.hour
    if evening and calendar.open_time > calendar.close_time:  # the session is tomorrow's
        day += np.timedelta64(1, "D")
    return bool(last_session(day, calendar) == day and moment <= find_last_quotes(day, calendar))


def moment_of(
    stamp: np.datetime64, *, timed: bool = True, calendar: ExchangeCalendar = NYSE
) -> tuple[np.datetime64, str | None]:
    """The moment of the quotes that the ``stamp`` of a file means; a sentence if it is another one.

    A file written after the close, at a weekend or on a holiday holds the last quotes of the
    session before, and so does one that is stamped with a day alone (not ``timed``). Stamps from
    midnight to the open stay: they are the overnight session's.
    """
    stamp = stamp.astype("datetime64[m]")
    if timed and is_quoted(stamp, calendar):
        return stamp.astype("datetime64[s]"), None
    day = stamp.astype("datetime64[D]")
    last = find_last_quotes(day, calendar)
    if not timed:
        why = f"{day} has no time of day"
    else:
        after = last_session(day, calendar) == day
        why = f"the stamp {stamp} is {'after the close' if after else 'not in a session'}"
    return last.astype("datetime64[s]"), f"{why}: taken as {last}"
