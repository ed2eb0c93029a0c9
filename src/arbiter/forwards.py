"""Forward and discount curves of a surface, and the clock that turns dates into years."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]
MaturityLike: TypeAlias = ArrayLike | dt.date  # year fractions or dates (a datetime is a date)

MINUTES_PER_YEAR = 525_600


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
        """Forward for maturities ``T``."""
        return np.exp(_log_linear(self.maturities, np.log(self.forwards), _floats(T)))

    def discount(self, T: ArrayLike) -> Array:
        """Discount factor for maturities ``T``."""
        at = np.concatenate([[0.0], self.maturities])
        logs = np.concatenate([[0.0], np.log(self.discounts)])
        return np.exp(_log_linear(at, logs, _floats(T)))


def years(T: MaturityLike, as_of: np.datetime64 | None, *, zero: bool = False) -> Array:
    """Year fractions, from numbers or from dates (ISO text too) in minutes since ``as_of``.

    ``zero`` lets T = 0 pass, for quantities that have a meaning there.

    Raises:
        ValueError: If a date is given and there is no ``as_of``, or a maturity is not a
            positive finite number.
    """
    raw = np.asarray(T)
    dated = raw.dtype == object and raw.size and isinstance(raw.flat[0], dt.date)
    if dated or raw.dtype.kind == "U":
        raw = raw.astype("datetime64[s]")
    if raw.dtype.kind == "M":
        if as_of is None:
            raise ValueError(
                "a date was given as maturity, but this surface has no as_of; "
                "pass year fractions, or build the surface with as_of"
            )
        raw = (raw - as_of) / np.timedelta64(1, "m") / MINUTES_PER_YEAR
    t = _floats(raw)
    bad = ~(np.isfinite(t) & ((t >= 0.0) if zero else (t > 0.0)))
    if np.any(bad):
        where = int(np.flatnonzero(bad.ravel())[0])
        raise ValueError(
            f"T[{where}] = {t.ravel()[where]!r}: a maturity must be a positive, finite year "
            f"fraction (minutes / {MINUTES_PER_YEAR:,}); leave out expired options"
        )
    return t


def as_datetime(value: Any) -> np.datetime64 | None:
    """``as_of`` in whole seconds, from anything NumPy reads as a date; None stays None."""
    return None if value is None else np.datetime64(value, "s")


def _floats(a: ArrayLike) -> Array:
    return np.asarray(a, dtype=np.float64)


def _log_linear(at: Array, logs: Array, T: Array) -> Array:
    if at.size == 1:
        return np.full(T.shape, logs[0])
    i = np.clip(np.searchsorted(at, T, side="right") - 1, 0, at.size - 2)
    share = (T - at[i]) / (at[i + 1] - at[i])
    # written from the nearer node, so that a listed maturity gives its own number back
    near_left = share < 0.5
    rise = logs[i + 1] - logs[i]
    return np.where(near_left, logs[i] + share * rise, logs[i + 1] - (1.0 - share) * rise)
