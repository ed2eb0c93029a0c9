"""The exchange's clock: sessions, half days, settlement times, and what a time stamp means.

All times are New York's, without a zone.
"""

from __future__ import annotations

import datetime as dt
import warnings
from functools import cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

OPEN_TIME = np.timedelta64(9 * 60 + 30, "m")
CLOSE_TIME = np.timedelta64(16 * 60, "m")
HALF_DAY_CLOSE_TIME = np.timedelta64(13 * 60, "m")
QUOTES_AFTER_CLOSE = np.timedelta64(15, "m")  # index options are quoted a quarter of an hour longer
FIRST_YEAR, LAST_YEAR = 1990, 2099


class _DecadeSessions(NamedTuple):
    sessions: NDArray[np.datetime64]  # (n,) days
    half_days: NDArray[np.datetime64]


@cache
def _load_decade(start: int) -> _DecadeSessions:
    """The sessions of ten years and of the month before them, so that each day has one behind."""
    import exchange_calendars

    with warnings.catch_warnings():  # its own calls into pandas, of no concern to our callers
        warnings.simplefilter("ignore")
        calendar = exchange_calendars.get_calendar(
            "XNYS", start=f"{start - 1}-12-01", end=f"{start + 9}-12-31"
        )
    return _DecadeSessions(
        calendar.sessions.to_numpy().astype("datetime64[D]"),
        calendar.early_closes.to_numpy().astype("datetime64[D]"),
    )


def last_session(day: np.datetime64) -> np.datetime64:
    """The last session on or before ``day``."""
    year = day.astype("datetime64[Y]").astype(int) + 1970
    if not FIRST_YEAR <= year <= LAST_YEAR:
        raise ValueError(f"{day} is outside the years {FIRST_YEAR} to {LAST_YEAR}")
    sessions = _load_decade(year - year % 10).sessions
    found: np.datetime64 = sessions[np.searchsorted(sessions, day, side="right") - 1]
    return found


def session_close(session: np.datetime64) -> np.datetime64:
    """When the ``session`` closes, in minutes."""
    year = session.astype("datetime64[Y]").astype(int) + 1970
    early = session in _load_decade(year - year % 10).half_days
    moment: np.datetime64 = session.astype("datetime64[m]") + (
        HALF_DAY_CLOSE_TIME if early else CLOSE_TIME
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
        session.astype("datetime64[m]") + OPEN_TIME
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
