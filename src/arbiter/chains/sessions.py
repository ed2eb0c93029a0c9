"""The exchange's clock: sessions, half days, settlement times, and what a time stamp means.

All times are New York's, without a zone.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import NamedTuple

import numpy as np

from arbiter.chains import nyse

QUOTES_AFTER_CLOSE = np.timedelta64(15, "m")  # index options are quoted a quarter of an hour longer
FIRST_YEAR, LAST_YEAR = 1990, 2099


class ExchangeCalendar(NamedTuple):
    """When an exchange is open.

    Attributes:
        open_time: Time of day at which a session opens, after midnight.
        close_time: Time of day at which it closes, but for half days.
        week: Which weekdays have sessions from Monday on, as in ``numpy.busday_offset``.
        list_holidays: The days of a year that have none all the same.
        list_early_closes: The half days of a year with the time at which they close.
    """

    open_time: np.timedelta64
    close_time: np.timedelta64
    week: str
    list_holidays: Callable[[int], Sequence[dt.date]]
    list_early_closes: Callable[[int], Mapping[dt.date, dt.time]]


NYSE = ExchangeCalendar(
    open_time=np.timedelta64(9 * 60 + 30, "m"),
    close_time=np.timedelta64(16 * 60, "m"),
    week="1111100",
    list_holidays=nyse.list_holidays,
    list_early_closes=nyse.list_early_closes,
)


class _YearSessions(NamedTuple):
    sessions: np.busdaycalendar
    early_closes: Mapping[dt.date, dt.time]


@cache
def _load_year(calendar: ExchangeCalendar, year: int) -> _YearSessions:
    """The sessions of a year and of the one before, so that each day has one behind."""
    holidays = [*calendar.list_holidays(year - 1), *calendar.list_holidays(year)]
    sessions = np.busdaycalendar(calendar.week, np.array(holidays, dtype="datetime64[D]"))
    return _YearSessions(sessions, calendar.list_early_closes(year))


def last_session(day: np.datetime64, calendar: ExchangeCalendar = NYSE) -> np.datetime64:
    """The last session on or before ``day``."""
    day = day.astype("datetime64[D]")
    year = day.astype("datetime64[Y]").astype(int) + 1970
    if not FIRST_YEAR <= year <= LAST_YEAR:
        raise ValueError(f"{day} is outside the years {FIRST_YEAR} to {LAST_YEAR}")
    sessions = _load_year(calendar, year).sessions
    found: np.datetime64 = np.busday_offset(day, 0, roll="backward", busdaycal=sessions)
    return found


def session_close(session: np.datetime64, calendar: ExchangeCalendar = NYSE) -> np.datetime64:
    """When the ``session`` closes, in minutes."""
    day = session.astype("datetime64[D]").astype(dt.date)
    early = _load_year(calendar, day.year).early_closes.get(day)
    moment: np.datetime64 = session.astype("datetime64[m]") + (
        calendar.close_time
        if early is None
        else np.timedelta64(60 * early.hour + early.minute, "m")
    )
    return moment


def settlement_time(expiry: dt.date, settlement: str) -> dt.datetime:
    """When an option settles: at the open (``"AM"``) or the close (``"PM"``) of its last session.

    An expiry that is no session (a Saturday before 2015, a holiday) settles on the one before.

    Example:
        >>> settlement_time(dt.date(2023, 11, 24), "PM")  # the day after Thanksgiving
        datetime.datetime(2023, 11, 24, 13, 0)
    """
    session = last_session(np.datetime64(expiry, "D"))
    moment = (
        session.astype("datetime64[m]") + NYSE.open_time
        if settlement == "AM"
        else session_close(session)
    )
    return dt.datetime.fromisoformat(str(moment))


def moment_of(stamp: np.datetime64, *, timed: bool = True) -> tuple[np.datetime64, str | None]:
    """The moment of the quotes that a ``stamp`` means, and a sentence if it is another one.

    A file written after the close, at a weekend or on a holiday holds the last quotes of the
    session before, and so does one that is stamped with a day alone (not ``timed``). Stamps from
    midnight to the open stay: they are the overnight session's.
    """
    stamp = stamp.astype("datetime64[m]")
    day = stamp.astype("datetime64[D]")
    session = last_session(day)
    last = session_close(session) + QUOTES_AFTER_CLOSE
    if session == day and stamp <= last and timed:
        return stamp.astype("datetime64[s]"), None
    if not timed:
        why = f"{day} has no time of day"
    else:
        why = f"the stamp {stamp} is {'after the close' if session == day else 'not in a session'}"
    return last.astype("datetime64[s]"), f"{why}: taken as {last}"
