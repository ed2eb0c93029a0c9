"""What a caller may give as a maturity, and the year fraction that it means (docs/surface.md).

Moments are New York time; what has a time zone is converted. A date alone is its settlement.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from arbiter.conventions import DAYS_PER_YEAR, MINUTES_PER_YEAR, Array
from arbiter.timing.expiries import HALVES, Expiry, find_on_date
from arbiter.timing.sessions import convert_to_new_york, find_last_quotes, settlement_time
from arbiter.values import shorten_repr

_Dated: TypeAlias = dt.date | dt.timedelta | Expiry
MaturityLike: TypeAlias = ArrayLike | _Dated | Sequence[_Dated]
DateLike: TypeAlias = str | dt.date | np.datetime64  # ISO text, a date or a moment

MIN_YEARS = 1e-9  # years: a thirtieth of a second, below which nothing is meant
_ACCEPTED = (
    "give a year fraction, a date '2023-10-20', a moment '2023-10-20T09:30', a tenor (90min, 6h, "
    "30d, 2w, 3M, 1y), a timedelta, or the label of a listed expiry"
)
_TENOR_PATTERN = re.compile(r"(\d+(?:\.\d+)?) ?([a-zA-Z]+)", re.ASCII)
# Count of the first over the second is in years; capitals are accepted, but for min and M.
_UNITS = {
    "min": (1.0, MINUTES_PER_YEAR),
    "h": (60.0, MINUTES_PER_YEAR),
    "d": (1.0, DAYS_PER_YEAR),
    "w": (7.0, DAYS_PER_YEAR),
    "M": (1.0, 12.0),
    "y": (1.0, 1.0),
}
_MINUTE = dt.timedelta(minutes=1)
_MAX_NAMED = 6  # labels that an error names


def to_year_fractions(
    T: MaturityLike,
    as_of: np.datetime64 | None,
    expiries: Sequence[Expiry] = (),
    *,
    zero: bool = False,
    settlement: str = "PM",
    whole_days: bool = False,
) -> Array:
    """Year fractions of maturities in any accepted form; arrays and lists of them too.

    Args:
        T: The maturities.
        as_of: The moment of the quotes, from which dates count in minutes.
        expiries: Those listed, by which labels and dates alone are found.
        zero: Let T = 0 pass, for quantities that have a meaning there.
        settlement: Of a date alone on which nothing is listed, ``"AM"`` or ``"PM"``.
        whole_days: Whether such a date counts whole days instead, from an ``as_of`` at midnight.

    Raises:
        ValueError: If a date is given and there is no ``as_of``, a form is not known, or a
            maturity is not a positive finite number.

    Example:
        >>> to_year_fractions(["73d", "3M"], None).tolist()
        [0.2, 0.25]
    """
    raw = np.asarray(T)
    if raw.dtype.kind in "mMU" and isinstance(T, list | tuple) and raw.ndim == 1:
        raw = np.fromiter(T, dtype=object, count=len(T))  # each entry keeps its own kind
    if raw.dtype.kind == "m":
        raw = np.asarray(raw / np.timedelta64(1, "m") / MINUTES_PER_YEAR)
    elif raw.dtype.kind in "MUO":
        plain = _list_moments(raw) if raw.dtype.kind == "M" else raw
        raw = _map_distinct(_Meaning(as_of, expiries, settlement, whole_days).years, plain)
    t = np.asarray(raw, dtype=np.float64)
    good = (t >= MIN_YEARS) & (t < np.inf)  # a NaN is not
    if zero:
        good |= t == 0.0
    if not good.all():
        where = int(np.flatnonzero(~good.ravel())[0])
        raise ValueError(
            f"T[{where}] = {float(t.ravel()[where])!r}: a maturity must be a positive, finite "
            f"year fraction (minutes / {MINUTES_PER_YEAR:,}), at least {MIN_YEARS:g}; leave out "
            "expired options"
        )
    return t


def to_tenor(tenor: MaturityLike) -> Array:
    """Years of a length of time: a number, ``"30d"`` or a timedelta, but no date and no label.

    Example:
        >>> float(to_tenor("73d"))
        0.2
    """
    try:
        return to_year_fractions(tenor, None)
    except ValueError as error:
        raise ValueError(
            f"tenor = {shorten_repr(tenor)} is no length of time: give positive years, a tenor "
            "(90min, 6h, 30d, 2w, 3M, 1y) or a timedelta"
        ) from error


def is_dated(T: MaturityLike) -> bool:
    """Whether maturities are given in another form than numbers."""
    return np.asarray(T).dtype.kind in "mMUO"


def as_datetime(value: DateLike | None) -> np.datetime64 | None:
    """``as_of`` in whole seconds, New York time; None stays None.

    A date alone means the last quotes of its session, as it does for a chain.
    """
    if value is None:
        return None
    moment: Any = value
    if isinstance(value, str):
        moment = _parse_iso(value)
        if moment is None:
            raise ValueError(f"as_of {value!r} is not an ISO date, YYYY-MM-DDThh:mm")
    if isinstance(moment, np.datetime64):
        moment = _list_moments(np.asarray(moment)).item()
        if moment is None:
            raise ValueError("as_of is not a time (NaT): give the moment of the quotes")
    if isinstance(moment, dt.datetime):
        return np.datetime64(convert_to_new_york(moment), "s")
    if not isinstance(moment, dt.date):
        raise ValueError(f"as_of must be a date, got {value!r}")
    last: np.datetime64 = find_last_quotes(np.datetime64(moment, "D")).astype("datetime64[s]")
    return last


def _parse_iso(text: str) -> dt.date | None:
    """The date or the moment that ISO text says, None where it is neither."""
    for read in (dt.date.fromisoformat, dt.datetime.fromisoformat):
        try:
            return read(text)
        except ValueError:
            continue
    return None


def _list_moments(moments: NDArray[np.datetime64]) -> NDArray[np.object_]:
    """Dates and moments as Python has them, None where there is none."""
    unit = np.datetime_data(moments.dtype)[0]
    if unit in ("W", "M", "Y"):
        raise ValueError(f"{shorten_repr(moments)} names no day: {_ACCEPTED}")
    return moments.astype("datetime64[D]" if unit == "D" else "datetime64[us]").astype(object)


def _map_distinct(meaning: Callable[[Any], float], values: NDArray[Any]) -> Array:
    """``meaning`` of each entry, worked out once for equal ones."""
    known: dict[tuple[type, Any], float] = {}
    found = np.empty(values.shape)
    for place, value in enumerate(values.flat):
        try:
            key = type(value), value
            if key not in known:
                known[key] = meaning(value)
        except TypeError as error:
            raise ValueError(f"T = {shorten_repr(value)} is no maturity: {_ACCEPTED}") from error
        found.flat[place] = known[key]
    return found


@dataclass(frozen=True)
class _Meaning:
    """What one maturity means where ``as_of`` and the listed expiries are known."""

    as_of: np.datetime64 | None
    expiries: Sequence[Expiry]
    settlement: str
    whole_days: bool

    def years(self, value: Any) -> float:
        if isinstance(value, np.datetime64):
            value = _list_moments(np.asarray(value)).item()
        readers: tuple[tuple[type, Callable[[Any], float]], ...] = (
            (str, self._of_text),
            (Expiry, lambda expiry: expiry.T),
            (dt.timedelta, lambda length: length / _MINUTE / MINUTES_PER_YEAR),
            (np.timedelta64, lambda length: length / np.timedelta64(1, "m") / MINUTES_PER_YEAR),
            (dt.datetime, self._of_moment),
            (dt.date, self._of_date),
        )
        for kind, read in readers:
            if isinstance(value, kind):
                return float(read(value))
        return float(value)  # a number among other kinds; what is none is a TypeError

    def _of_text(self, text: str) -> float:
        text = text.strip()
        for one in self.expiries:
            if one.label == text:
                return one.T
        tenor = _TENOR_PATTERN.fullmatch(text)
        if tenor is not None:
            return _read_tenor(text, float(tenor[1]), tenor[2])
        found = _parse_iso(text)
        if found is not None:
            return (
                self._of_moment(found) if isinstance(found, dt.datetime) else self._of_date(found)
            )
        return self._of_label(text)

    def _of_label(self, text: str) -> float:
        """Of a date and AM or PM; a ``ValueError`` for any other text."""
        day, _, half = text.partition(" ")
        try:
            date = dt.date.fromisoformat(day)
        except ValueError:
            raise ValueError(f"T = {shorten_repr(text)} is no maturity: {_ACCEPTED}") from None
        if half in HALVES:
            return self._of_date(date, half)
        listed = [one.label for one in self.expiries]
        near = [label for label in listed if label.startswith(day)] or listed[:_MAX_NAMED]
        told = f"there are {', '.join(near)}" if near else "this surface knows no labels"
        raise ValueError(f"T = {shorten_repr(text)} is no listed expiry ({told}): {_ACCEPTED}")

    def _of_date(self, date: dt.date, half: str | None = None) -> float:
        """Of the listed expiry of that date that settles last, or of its settlement."""
        listed = find_on_date(self.expiries, date, half)
        if listed is not None:
            return listed.T
        self._require_as_of(date)
        if self.whole_days and half is None:
            return self._of_moment(dt.datetime.combine(date, dt.time()))
        return self._of_moment(settlement_time(date, half or self.settlement), f"{date} settles")

    def _of_moment(self, moment: dt.datetime, what: str = "T is") -> float:
        if moment != moment:  # noqa: PLR0124 - what pandas has in the place of a missing time
            return float("nan")
        as_of = self._require_as_of(moment)
        at = np.datetime64(convert_to_new_york(moment), "s")
        if at < as_of:
            raise ValueError(
                f"{what} {at.astype('datetime64[m]')}, which is before as_of, "
                f"{as_of.astype('datetime64[m]')} (New York): leave out expired options"
            )
        return float((at - as_of) / np.timedelta64(1, "m") / MINUTES_PER_YEAR)

    def _require_as_of(self, date: dt.date) -> np.datetime64:
        if self.as_of is None:
            raise ValueError(
                f"{date} was given as maturity, but this surface has no as_of; pass year "
                "fractions or tenors ('30d'), or build the surface with as_of"
            )
        return self.as_of


def _read_tenor(text: str, count: float, unit: str) -> float:
    """Year fraction of a tenor."""
    found = _UNITS.get(unit if "m" in unit.lower() else unit.lower())
    if found is None:
        raise ValueError(
            f"T = {shorten_repr(text)}: the unit {unit!r} is not known; M is a month, min a "
            "minute, and there are h, d, w and y"
        )
    return count * found[0] / found[1]
