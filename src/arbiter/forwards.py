"""Forward and discount curves of a surface, and the conversion of dates to year fractions."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from arbiter.conventions import MINUTES_PER_YEAR, Array

MaturityLike: TypeAlias = ArrayLike | dt.date | dt.timedelta  # year fractions, dates, durations
DateLike: TypeAlias = str | dt.date | np.datetime64  # ISO text or a date, without a time zone

_MAX_ABS_LOG = 708.0  # of a forward or a discount factor: e^708 and e^-708 are ordinary float64
MIN_YEARS = 1e-9  # years: a thirtieth of a second, below which nothing is meant


@dataclass(frozen=True, eq=False)
class ForwardCurve:
    """Forwards and discount factors at the listed maturities, log-linear in T between them.

    Before the first and after the last maturity the forward goes on at the nearest rate; the
    discount factor is 1 at T = 0. With one maturity the forward is flat.

    Attributes:
        maturities: ``(L,)`` year fractions, increasing.
        forwards: ``(L,)`` forwards in currency.
        discounts: ``(L,)`` discount factors.
    """

    maturities: Array
    forwards: Array
    discounts: Array

    def forward(self, T: ArrayLike) -> Array:
        """Forward for maturities ``T``.

        Raises:
            ValueError: Where it would be zero or infinite in float64. So does :meth:`discount`.
        """
        at = _as_floats(T)
        _require_range("forward", at, self._forward_range)
        return np.exp(_interpolate_linear(*self._forward_nodes, at))

    def discount(self, T: ArrayLike) -> Array:
        """Discount factor for maturities ``T``."""
        at = _as_floats(T)
        _require_range("discount factor", at, self._discount_range)
        return np.exp(_interpolate_linear(*self._discount_nodes, at))

    @cached_property
    def _forward_range(self) -> tuple[float, float]:
        return _find_finite_range(*self._forward_nodes)

    @cached_property
    def _discount_range(self) -> tuple[float, float]:
        return _find_finite_range(*self._discount_nodes)

    @cached_property
    def _forward_nodes(self) -> tuple[Array, Array]:
        return self.maturities, np.log(self.forwards)

    @cached_property
    def _discount_nodes(self) -> tuple[Array, Array]:
        logs = np.concatenate([[0.0], np.log(self.discounts)])
        return np.concatenate([[0.0], self.maturities]), logs


def to_year_fractions(T: MaturityLike, as_of: np.datetime64 | None, *, zero: bool = False) -> Array:
    """Year fractions, from numbers, from dates or from durations.

    Dates (ISO text too) count in minutes from ``as_of`` and are, like it, without a time zone.
    ``zero`` lets T = 0 pass, for quantities that have a meaning there.

    Raises:
        ValueError: If a date is given and there is no ``as_of``, a date has a time zone, or a
            maturity is not a positive finite number.
    """
    t = _as_floats(_years_from_dates(np.asarray(T), as_of))
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


def as_datetime(value: DateLike | None) -> np.datetime64 | None:
    """``as_of`` in whole seconds, from ISO text or a date without a time zone; None stays None."""
    if value is None:
        return None
    if isinstance(value, str):
        try:
            value = dt.datetime.fromisoformat(value)
        except ValueError as error:
            raise ValueError(f"as_of {value!r} is not an ISO date, YYYY-MM-DDThh:mm") from error
    if not isinstance(value, dt.date | np.datetime64):
        raise ValueError(f"as_of must be a date, got {value!r}")
    moment = _parse_dates(np.asarray(value))
    if np.isnat(moment):
        raise ValueError("as_of is not a time (NaT): give the moment of the quotes")
    return np.datetime64(moment.item(), "s")


def _years_from_dates(raw: NDArray[Any], as_of: np.datetime64 | None) -> NDArray[Any]:
    """Year fractions of dates and durations; numbers are returned unchanged."""
    first = raw.flat[0] if raw.dtype == object and raw.size else None
    if isinstance(first, dt.timedelta):
        raw = raw.astype("timedelta64[s]")
    if raw.dtype.kind == "m":
        return np.asarray(raw / np.timedelta64(1, "m") / MINUTES_PER_YEAR)
    if not (isinstance(first, dt.date) or raw.dtype.kind in "UM"):
        return raw
    moments = _parse_dates(raw)
    if as_of is None:
        raise ValueError(
            "a date was given as maturity, but this surface has no as_of; "
            "pass year fractions, or build the surface with as_of"
        )
    return np.asarray((moments - as_of) / np.timedelta64(1, "m") / MINUTES_PER_YEAR)


def _parse_dates(raw: NDArray[Any]) -> NDArray[np.datetime64]:
    """Dates in seconds; a date with a time zone is a ``ValueError``, since ``as_of`` has none."""
    if raw.dtype == object and any(getattr(moment, "tzinfo", None) for moment in raw.flat):
        raise ValueError(
            "a date with a time zone was given; dates are in the clock of as_of, without a zone: "
            "convert it and drop the zone"
        )
    try:
        return raw.astype("datetime64[s]")
    except (ValueError, TypeError) as error:
        raise ValueError(f"not a year fraction nor an ISO date: {error}") from error


def _as_floats(a: ArrayLike) -> Array:
    return np.asarray(a, dtype=np.float64)


def _find_finite_range(at: Array, logs: Array) -> tuple[float, float]:
    """Maturities between which the exponential of a line carried on is a float64 above zero."""
    if at.size == 1:
        return 0.0, np.inf
    with np.errstate(divide="ignore", over="ignore"):
        room = _MAX_ABS_LOG - np.abs(logs[[0, -1]])  # before the first and past the last node
        reach = room / np.abs((logs[[1, -1]] - logs[[0, -2]]) / (at[[1, -1]] - at[[0, -2]]))
    return float(at[0] - reach[0]), float(at[-1] + reach[1])


def _require_range(name: str, T: Array, ends: tuple[float, float]) -> None:
    """A ``ValueError`` where a maturity lies outside of ``ends``."""
    # most questions have one maturity, for which reductions of arrays would take longer
    low, high = (float(T),) * 2 if T.ndim == 0 else (T.min(initial=np.inf), T.max(initial=0.0))
    if low < ends[0] or high > ends[1]:
        raise ValueError(
            f"T = {high if high > ends[1] else low:g}: the {name} there, at the rate of the "
            "nearest listed maturities, is not a float64 above zero; ask from T = "
            f"{max(ends[0], 0.0):.6g} to {ends[1]:.6g}"
        )


def _interpolate_linear(at: Array, logs: Array, T: Array) -> Array:
    if at.size == 1:
        return np.full(T.shape, logs[0])
    i = np.searchsorted(at[1:-1], T, side="right")
    left, right = logs[i], logs[i + 1]
    share = (T - at[i]) / (at[i + 1] - at[i])
    # written from the nearer node, so that a listed maturity gives its own number back
    rise = right - left
    return np.where(share < 0.5, left + share * rise, right - (1.0 - share) * rise)
