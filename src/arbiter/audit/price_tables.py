"""Reader for a table of option prices or implied volatilities: it returns a price grid.

The grid (:mod:`.grid`) holds out-of-the-money prices in forward units with their rounding errors.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import polars as pl

from arbiter import forked, inputs
from arbiter.audit.grid import EPS, Grid, Mask, Places, assemble_grid
from arbiter.conventions import Array
from arbiter.pricing import black
from arbiter.quotes import MAX_YEARS

_PRICE_COLUMNS = ("iv", "call", "put")
_COLUMN_REMEDIES = {
    "T": "maturities are positive year fractions; drop expired rows",
    "k": "k is log(strike/forward), a finite number",
    "strike": "strikes are positive, in the currency of the forward",
    "forward": "forwards are positive, in the currency of the strikes",
    "discount": "discount factors are positive",
    "iv": "volatilities are annualised decimals, not negative; drop the row or leave it null",
    "call": "prices are finite numbers; drop the row or leave it null",
    "put": "prices are finite numbers; drop the row or leave it null",
}
_MAX_ABS_LOG_STRIKE = 700.0  # e^700 still is a float64


@dataclass(frozen=True)
class _Column:
    """A column in float64, NaN where nothing was given.

    ``eps`` is the relative rounding of the type in which the column was given.
    """

    name: str
    value: Array
    eps: float

    @property
    def is_given(self) -> Mask:
        return ~np.isnan(self.value)


def read(frame: object, percent: bool | None = None) -> Grid:
    """Read a polars or pandas frame, or a mapping of columns.

    Args:
        frame: Columns ``T`` and ``k``, with prices in forward units; or ``T``, ``strike`` and
            ``forward``, with prices in currency, undiscounted unless a column ``discount``
            holds the discount factors. At least one of ``iv``, ``call``, ``put``; a null says
            that this one is not known there, and a price goes before a volatility. Any order
            of rows; other columns are ignored.
        percent: Whether volatilities are in percent; None for decimals, and to refuse what looks
            like percent.

    Returns:
        The grid, sorted; rows of the same option are merged.

    Raises:
        ValueError: For a frame that cannot be read. Names the row (counted from 0), the
            column, the value and the remedy.
    """
    if hasattr(frame, "certificate"):
        raise ValueError("a surface was given: call its certificate(), which also proves it")
    forked.require_polars()
    table = inputs.require_table(frame)
    names = {str(name) for name in (table.columns if hasattr(table, "columns") else table)}
    currency = {"strike", "forward"} <= names
    if "T" not in names or not ("k" in names or currency) or names.isdisjoint(_PRICE_COLUMNS):
        raise ValueError(
            f"columns {sorted(names)} are not enough: give T and k, or T, strike and forward, "
            "and at least one of iv, call, put"
        )
    T = _read_column(table, "T")
    rows = T.value.size
    if rows == 0:
        raise ValueError("the frame has no rows: give at least one price")
    iv, call, put = (
        _read_column(table, name, rows)
        if name in names
        else _Column(name, np.full(T.value.shape, np.nan), 0)
        for name in _PRICE_COLUMNS
    )
    iv = replace(iv, value=inputs.convert_volatilities("iv", iv.value, percent))
    empty = ~(iv.is_given | call.is_given | put.is_given)
    if empty.any():
        row = int(np.argmax(empty))
        raise ValueError(f"row {row} has no price: give one of iv, call and put, or drop the row")
    if currency:
        strike, forward = (_read_column(table, name, rows) for name in ("strike", "forward"))
        distance = np.log(strike.value) - np.log(forward.value)
        _reject_rows(
            "strike", strike.value, np.abs(distance) > _MAX_ABS_LOG_STRIKE, "is out of range"
        )
        kappa = strike.value / forward.value
        strike_error = kappa * (strike.eps + forward.eps)
        unit, rounding = forward.value, forward.eps
        if "discount" in names:
            discount = _read_column(table, "discount", rows)
            unit, rounding = unit * discount.value, rounding + discount.eps
        call = _Column("call", call.value / unit, call.eps + rounding)
        put = _Column("put", put.value / unit, put.eps + rounding)
        if "k" in names:
            k = _read_column(table, "k", rows)
            _check_log_strikes(k, np.log(kappa))
            strike_error += kappa * k.eps * np.abs(k.value)
    else:
        k = _read_column(table, "k", rows)
        kappa = np.exp(k.value)
        strike_error = kappa * (EPS + k.eps * np.abs(k.value))
    order = np.lexsort((kappa, T.value))
    new = np.append(True, (np.diff(T.value[order]) != 0.0) | (np.diff(kappa[order]) != 0.0))
    keep = order[new]
    iv, call, put = (_merge_duplicates(column, order, new) for column in (iv, call, put))
    return _choose_prices(T.value[keep], kappa[keep], strike_error[keep], iv, call, put)


def _read_column(table: inputs.Table, name: str, rows: int | None = None) -> _Column:
    """One column as float64, checked: ``rows`` values if given, nulls among prices only."""
    series = table[name]
    remedy = _COLUMN_REMEDIES[name]
    dtype = str(getattr(series, "dtype", "")).lower()
    if dtype.startswith(("date", "time", "duration", "bool", "complex")):
        raise ValueError(f"column {name} holds {dtype}, not numbers: {remedy}")
    eps = EPS
    for kind in (np.float32, np.float16):
        if dtype == kind.__name__:
            eps = float(np.finfo(kind).eps)
    try:
        if isinstance(series, pl.Series):
            missing = series.is_null().to_numpy()
            value = series.cast(pl.Float64).to_numpy()
        elif hasattr(series, "to_numpy"):
            value = series.to_numpy(dtype=np.float64, na_value=np.nan)
            missing = np.isnan(value)
        else:
            value = np.asarray(series, dtype=np.float64)
            missing = np.zeros(value.shape, dtype=np.bool_)
    except (TypeError, ValueError, pl.exceptions.PolarsError) as error:
        raise ValueError(f"column {name} holds {dtype or 'text'}, not numbers: {remedy}") from error
    if value.ndim != 1:
        raise ValueError(f"column {name} has shape {value.shape}: give one value per row")
    if rows is not None and value.size != rows:
        raise ValueError(
            f"column {name} has {value.size} rows and T has {rows}: give one value per row"
        )
    if name not in _PRICE_COLUMNS:
        _reject_rows(name, value, missing, "is missing")
    _reject_rows(name, value, ~missing & ~np.isfinite(value), "is not finite")
    _check_range(name, value)
    return _Column(name, np.where(missing, np.nan, value), eps)


def _check_range(name: str, value: Array) -> None:
    """Raise a ``ValueError`` where a value lies outside the range of its column."""
    if name in ("T", "strike", "forward", "discount"):
        _reject_rows(name, value, value <= 0.0, "is not positive")
    if name == "T":
        _reject_rows(name, value, value > MAX_YEARS, "is in days, it seems: divide by 365")
    if name == "iv":
        _reject_rows(name, value, value < 0.0, "is negative")
    if name == "k":
        _reject_rows(name, value, np.abs(value) > _MAX_ABS_LOG_STRIKE, "is out of range")


def _reject_rows(name: str, value: Array, bad: Mask, fault: str) -> None:
    if bad.any():
        row = int(np.argmax(bad))
        raise ValueError(
            f"row {row}, column {name}: {value[row]} {fault}; {_COLUMN_REMEDIES[name]}"
        )


def _check_log_strikes(k: _Column, expected: Array) -> None:
    off = np.abs(k.value - expected) > 1e-9 + 4.0 * k.eps * (1.0 + np.abs(expected))
    if off.any():
        row = int(np.argmax(off))
        raise ValueError(
            f"row {row}, column k: {k.value[row]} is not log(strike/forward) = {expected[row]}; "
            "drop the column k, or strike and forward"
        )


def _merge_duplicates(column: _Column, order: Places, new: Mask) -> _Column:
    """One value per option; a ``ValueError`` where two rows of one option contradict each other."""
    group = np.cumsum(new) - 1
    value = column.value[order]
    low = np.full(group[-1] + 1, np.inf)
    high = np.full(group[-1] + 1, -np.inf)
    given = ~np.isnan(value)
    np.minimum.at(low, group[given], value[given])
    np.maximum.at(high, group[given], value[given])
    clash = low < high
    if clash.any():
        at = int(np.argmax(clash))
        rows = np.sort(order[group == at])
        raise ValueError(
            f"rows {rows[0]} and {rows[-1]}, column {column.name}: {low[at]} and {high[at]} for "
            "the same option; keep one of them"
        )
    return _Column(column.name, np.where(np.isfinite(low), low, np.nan), column.eps)


def _choose_prices(
    T: Array, kappa: Array, strike_error: Array, iv: _Column, call: _Column, put: _Column
) -> Grid:
    """Take the number that was given most directly: this side, the other side, the volatility.

    To each price one rounding of the forward, or of the strike above it, is added: whoever made
    the table may have used parity, or a formula that subtracts, and then a small price is
    rounded like a large one.
    """
    below = kappa < 1.0
    unit = EPS * np.maximum(1.0, kappa)
    call_error = unit + call.eps * np.abs(call.value)
    put_error = unit + put.eps * np.abs(put.value)
    near = np.where(below, put.value, call.value)
    near_error = np.where(below, put_error, call_error)
    far = np.where(below, call.value - (1.0 - kappa), put.value - (kappa - 1.0))
    far_error = np.where(below, call_error, put_error) + strike_error
    k, v = np.log(kappa), np.nan_to_num(iv.value) * np.sqrt(T)
    price = np.where(np.isnan(near), far, near)
    error = np.where(np.isnan(near), far_error, near_error)
    none = np.isnan(price)
    otm = black.otm(k, v)
    return assemble_grid(
        T,
        kappa,
        np.where(none, otm, price),
        np.where(none, EPS + EPS * otm + (iv.eps + EPS) * v * black.vega(k, v), error),
        strike_error,
        iv=iv.value,
        parity=(call.value - put.value - (1.0 - kappa), call_error + put_error + strike_error),
    )
