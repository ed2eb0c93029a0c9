"""Checks of a caller's arrays, tables and info: errors name the place, the value and the remedy."""

from __future__ import annotations

import copyreg
import json
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any, Protocol, cast

import numpy as np
import polars as pl
from numpy.typing import ArrayLike, NDArray

from arbiter.conventions import Array

_FARTHEST_FROM_ONE = 1e150


def freeze_array(values: ArrayLike) -> Array:
    """A read-only float64 copy of ``values``."""
    array = np.array(values, dtype=np.float64)
    array.setflags(write=False)
    return array.view()  # a view of a locked array cannot be unlocked


def require_per_maturity(name: str, values: ArrayLike | None, count: int) -> Array:
    """``(count,)`` positive numbers, one per maturity; ones where ``values`` is None."""
    array = freeze_array(np.ones(count) if values is None else values)
    if array.shape != (count,):
        raise ValueError(f"{name} must have one value per maturity ({count}), got {array.shape}")
    # a strike is a multiple of it, and has to keep its digits
    good = (array >= 1.0 / _FARTHEST_FROM_ONE) & (array <= _FARTHEST_FROM_ONE)
    return _require_all(name, array, good, "must be positive and finite, from 1e-150 to 1e150")


def require_strikes(values: ArrayLike) -> Array:
    """Strikes in currency as a float64 array; a ``ValueError`` where one is not positive."""
    array = np.asarray(values, dtype=np.float64)
    remedy = "strikes are positive and in currency (for log-moneyness use the methods that take k)"
    return _require_all("K", array, np.isfinite(array) & (array > 0.0), remedy)


def require_finite(name: str, values: ArrayLike) -> Array:
    """``values`` as a float64 array; a ``ValueError`` where one is not finite."""
    array = np.asarray(values, dtype=np.float64)
    return _require_all(name, array, np.isfinite(array), "is not finite: drop it before asking")


def require_probabilities(name: str, values: ArrayLike) -> Array:
    """``values`` as a float64 array; a ``ValueError`` where one is not between 0 and 1."""
    array = np.asarray(values, dtype=np.float64)
    return _require_all(
        name, array, (array > 0.0) & (array < 1.0), "must lie strictly between 0 and 1"
    )


# Decimals: more than three times the highest close of VIX, 82.69 on 2020-03-16. In the last hours
# of a crash far options may be above it, but not all those near the forward as well. In percent
# nothing that is traded is below.
MAX_LOW_VOLATILITY = 3.0
_LOW_SHARE = 0.1  # of a table's volatilities, so that a few odd rows do not hide its unit


def convert_volatilities(
    name: str, values: Array, percent: bool | None, first_row: int = 0
) -> Array:
    """Volatilities as decimals: given as such, or in percent.

    Args:
        name: Of the column.
        values: Annualised; NaN where there is none.
        percent: Whether they are in percent; None to refuse what looks like it.
        first_row: Number of the first row in messages.

    Raises:
        ValueError: If ``percent`` is None and nine tenths of the positive values are above
            ``MAX_LOW_VOLATILITY``. Names the row of the lowest of these.

    Example:
        >>> convert_volatilities("iv", np.array([20.0, 50.0, 20.0]), True)
        array([0.2, 0.5, 0.2])
    """
    if percent:
        return values / 100.0
    given = np.flatnonzero(values > 0.0)
    if percent is None and given.size:
        low = float(np.quantile(values[given], _LOW_SHARE))
        if low > MAX_LOW_VOLATILITY:
            row = int(given[np.argmin(np.abs(values[given] - low))])
            raise ValueError(
                f"row {row + first_row}, column {name}: {values[row]:.6g} would be "
                f"{values[row]:.0%}, and nine tenths of the volatilities are as high: give "
                "decimals, 0.2 and not 20. Divide percentages by 100 or say percent=True; "
                "percent=False takes them as they are"
            )
    return values


class Table(Protocol):
    """A polars or pandas frame, or a mapping of column names to columns."""

    def __getitem__(self, name: str, /) -> Any:
        """The column of that name."""

    def __iter__(self) -> Iterator[Any]:
        """The columns, or their names."""


def require_table(frame: object) -> Table:
    """Return ``frame``; a polars ``LazyFrame`` is collected first.

    Raises:
        ValueError: If it is neither a frame nor a mapping of columns.
    """
    if isinstance(frame, pl.LazyFrame):
        return frame.collect()
    if not (hasattr(frame, "columns") or isinstance(frame, Mapping)):
        raise ValueError(
            f"{type(frame).__name__} is not a table: give a polars or pandas frame, or a mapping "
            "of columns"
        )
    return cast(Table, frame)


def freeze_info(info: Mapping[str, Any] | None) -> Mapping[str, Any]:
    """A read-only copy of ``info``; a ``ValueError`` if it does not hold plain JSON values."""
    try:
        copy = json.loads(json.dumps(dict(info or {}), allow_nan=False))
    except (TypeError, ValueError) as error:
        raise ValueError(f"info must hold plain JSON values under text keys: {error}") from error
    return MappingProxyType(copy)


def _rebuild_mapping(plain: dict[str, Any]) -> MappingProxyType[str, Any]:
    return MappingProxyType(plain)


def _reduce_mapping(frozen: MappingProxyType[str, Any]) -> tuple[Any, ...]:
    return _rebuild_mapping, (dict(frozen),)


# What is read-only can be copied and sent to other processes all the same.
copyreg.pickle(MappingProxyType, _reduce_mapping)


def _require_all(name: str, array: Array, good: NDArray[np.bool_], remedy: str) -> Array:
    if not good.all():
        bad = np.flatnonzero(~np.ravel(good))
        raise ValueError(f"{name}[{bad[0]}] = {float(np.ravel(array)[bad[0]])!r}: {remedy}")
    return array
