"""The listed expiries of a surface: what each is called, when it settles, and its year fraction."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from arbiter.conventions import MINUTES_PER_YEAR
from arbiter.timing.sessions import FIRST_YEAR, LAST_YEAR, settlement_time

_DATE_LENGTH = 10  # of an ISO date, with which the label of a listed expiry begins
_SECONDS_PER_YEAR = 60 * MINUTES_PER_YEAR
HALVES = ("AM", "PM")


@dataclass(frozen=True)
class Expiry:
    """A listed expiry.

    Attributes:
        label: What it is called, ``"2023-03-17 SPX"`` for instance.
        T: Year fraction.
        date: Its date, None where the label has none.
        settlement: ``"AM"`` if it settles at the open of its date, ``"PM"`` at the close; None if
            at neither.
        moment: When it settles, New York time; None where the moment of the quotes is not known.
    """

    label: str
    T: float
    date: dt.date | None = None
    settlement: str | None = None
    moment: np.datetime64 | None = None


def list_expiries(
    labels: Iterable[object], maturities: Iterable[float], as_of: np.datetime64 | None
) -> tuple[Expiry, ...]:
    """The expiries of labels and year fractions, counted from ``as_of``.

    Example:
        >>> (one,) = list_expiries(
        ...     ["2023-03-17 SPX"], [0.5 / 365], np.datetime64("2023-03-16T21:30")
        ... )
        >>> one.date, one.settlement, str(one.moment)
        (datetime.date(2023, 3, 17), 'AM', '2023-03-17T09:30:00')
    """
    found = []
    for label, T in zip(map(str, labels), maturities, strict=True):
        moment = None
        if as_of is not None:
            seconds = np.timedelta64(round(T * _SECONDS_PER_YEAR), "s")
            moment = as_of.astype("datetime64[s]") + seconds
        date = _read_date(label)
        half = None if date is None or moment is None else _find_half(date, moment)
        found.append(Expiry(label, float(T), date, half, moment))
    return tuple(found)


def count_whole_days(expiries: Sequence[Expiry]) -> bool:
    """Whether all expiries are at midnight: their source knows days and no times of day."""
    moments = [one.moment for one in expiries if one.moment is not None]
    return len(moments) > 0 and all(at == at.astype("datetime64[D]") for at in moments)


def find_on_date(
    expiries: Sequence[Expiry], date: dt.date, settlement: str | None = None
) -> Expiry | None:
    """The last to settle of those listed on a date, of one ``settlement`` if that is given."""
    there = [one for one in expiries if one.date == date and settlement in (None, one.settlement)]
    return max(there, key=lambda one: one.T, default=None)


def _read_date(label: str) -> dt.date | None:
    """The date that a label begins with."""
    try:
        return dt.date.fromisoformat(label[:_DATE_LENGTH])
    except ValueError:
        return None


def _find_half(date: dt.date, moment: np.datetime64) -> str | None:
    if not FIRST_YEAR <= date.year <= LAST_YEAR:
        return None
    return next(
        (half for half in HALVES if np.datetime64(settlement_time(date, half), "s") == moment), None
    )
