"""Tables of quotes in forward units: what is read, what is refused, and what is set aside."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from arbiter import inputs
from arbiter.conventions import DAYS_PER_YEAR, MINUTES_PER_YEAR, Array
from arbiter.exclusions import EXCLUSION_SCHEMA, Exclusion

MIN_DEAR_ASKS, MAX_DEAR_SHARE = 3, 0.2  # asks of one forward or more, and their share: currency
MAX_YEARS = 50.0  # years: nothing listed reaches a fifth as far
_MAX_LISTED_YEARS = 10.0
MAX_LOG_MONEYNESS = 50.0  # |log-moneyness|: beyond it a strike is in other units than its forward


class QuoteTable(NamedTuple):
    """A table of quotes as it was read."""

    T: Array  # (r,) year fractions
    k: Array  # (r,) log-moneyness
    bid: Array  # (r,) forward units
    ask: Array  # (r,)
    labels: list[str]  # of the expiry of each row
    columns: dict[str, NDArray[Any]]  # all that were read
    good: NDArray[np.int64]  # (m,) rows that are used, by maturity and strike
    exclusions: pl.DataFrame  # the others


def read_quote_table(frame: Any, percent: bool | None) -> QuoteTable:
    """The quotes of a table, and which of them are used.

    Raises:
        ValueError: For a table that cannot be read: names row, column, value and remedy.
    """
    columns = _read_columns(frame)
    T, k = columns["T"], columns["k"]
    _refuse_rows("T", T, ~(np.isfinite(T) & (T > 0.0)), "maturities are positive year fractions")
    _refuse_rows("T", T, T > MAX_YEARS, "maturities are in years: divide days by 365")
    far = ~(np.abs(k) <= MAX_LOG_MONEYNESS)
    _refuse_rows("k", k, far, "k is log(strike/forward); a strike goes in as log(K/F)")
    bid, ask = _read_prices(columns, percent)
    reason = _find_exclusion_reasons(T, k, bid, ask)
    order = np.lexsort((k, T))
    named = columns.get("expiry")
    labels = [f"T={t:.4g}" for t in T] if named is None else [str(label) for label in named]
    bad = np.flatnonzero(reason != "")
    exclusions = pl.DataFrame(
        {
            "row": bad + 1,
            "expiry": [labels[i] for i in bad],
            "T": T[bad],
            "strike": np.exp(k[bad]),
            "side": np.where(k[bad] >= 0.0, "call", "put").tolist(),
            "bid": bid[bad],
            "ask": ask[bad],
            "reason": reason[bad].tolist(),
        },
        schema=EXCLUSION_SCHEMA,
        nan_to_null=True,
    )
    return QuoteTable(T, k, bid, ask, labels, columns, order[reason[order] == ""], exclusions)


def _read_columns(frame: Any) -> dict[str, NDArray[Any]]:
    """The known columns as arrays of one length."""
    frame = inputs.require_table(frame)
    names = [str(name) for name in (frame.columns if hasattr(frame, "columns") else frame)]
    by_iv, by_price = {"iv_bid", "iv_ask"} <= set(names), {"bid", "ask"} <= set(names)
    if not ({"T", "k"} <= set(names) and (by_iv or by_price)):
        raise ValueError(
            f"columns {sorted(names)} are not enough: give T, k and either iv_bid, iv_ask or "
            "bid, ask (forward units)"
        )
    wanted = ["T", "k", *(("bid", "ask") if by_price else ("iv_bid", "iv_ask"))]
    wanted += [name for name in ("forward", "discount") if name in names]
    columns: dict[str, NDArray[Any]] = {}
    for name in wanted:
        values = frame[name]
        try:
            values = values.to_numpy() if hasattr(values, "to_numpy") else values
            columns[name] = np.array(values, dtype=np.float64).reshape(-1)
        except (TypeError, ValueError) as error:
            remedy = "" if name != "T" else f"; give minutes to settlement / {MINUTES_PER_YEAR:,}"
            raise ValueError(f"column {name} is not numeric: {error}{remedy}") from error
    if "expiry" in names:
        columns["expiry"] = np.asarray(frame["expiry"], dtype=object).reshape(-1)
    for name, values in columns.items():
        if values.size != columns["T"].size:
            raise ValueError(
                f"column {name} has {values.size} rows and T has {columns['T'].size}: give one "
                "value per quote"
            )
    if columns["T"].size == 0:
        raise ValueError("the table has no rows: give at least one quote")
    return columns


def _read_prices(columns: Mapping[str, NDArray[Any]], percent: bool | None) -> tuple[Array, Array]:
    """Bid and ask in forward units; NaN stays NaN."""
    if "bid" in columns:
        _refuse_currency(columns["ask"])
        return columns["bid"], columns["ask"]
    from arbiter.pricing import black

    root = np.sqrt(columns["T"])
    names = ("iv_bid", "iv_ask")
    low, high = (inputs.convert_volatilities(name, columns[name], percent, 1) for name in names)
    # a volatility that is absent or negative stays absent; it is excluded with its reason
    price = [
        np.where(iv >= 0.0, black.otm(columns["k"], np.where(iv >= 0.0, iv, 0.0) * root), np.nan)
        for iv in (low, high)
    ]
    return price[0], price[1]


def _refuse_currency(ask: Array) -> None:
    """Refuse prices in currency: the small ones among them would pass for forward units."""
    dear = np.flatnonzero(np.isfinite(ask) & (ask >= 1.0))
    if dear.size >= MIN_DEAR_ASKS and dear.size > MAX_DEAR_SHARE * np.isfinite(ask).sum():
        raise ValueError(
            f"row {dear[0] + 1}: ask = {float(ask[dear[0]])!r}, and {dear.size} of {ask.size} asks "
            "are 1 or more: prices are in forward units, so divide them by discount times forward"
        )


def _find_exclusion_reasons(T: Array, k: Array, bid: Array, ask: Array) -> NDArray[np.str_]:
    """The reason for which each quote cannot be used, empty where it can."""
    most = np.exp(np.minimum(k, 0.0))
    rules = {
        Exclusion.MISSING: ~np.isfinite(ask) | (ask < 0.0) | (bid < 0.0) | np.isinf(bid),
        Exclusion.ZERO_BID: ~(bid > 0.0),  # an absent bid too: nobody bids
        Exclusion.NO_ASK: ask == 0.0,
        Exclusion.CROSSED: bid > ask,
        Exclusion.BOUNDS: ask >= most,
        Exclusion.DUPLICATE: _find_duplicates(T, k),
    }
    codes = [reason.value for reason in rules]
    return np.select(list(rules.values()), codes, default="")


def _find_duplicates(T: Array, k: Array) -> NDArray[np.bool_]:
    order = np.lexsort((np.arange(T.size), k, T))
    again = np.zeros(T.size, dtype=bool)
    again[order[1:]] = (np.diff(T[order]) == 0.0) & (np.diff(k[order]) == 0.0)
    return again


def describe_long_maturities(T: Array) -> tuple[str, ...]:
    """A sentence if a maturity is longer than any that is listed: days may have been meant."""
    longest = float(T.max())
    if longest <= _MAX_LISTED_YEARS:
        return ()
    return (f"a maturity is {longest:g} years: if it is in days, divide all by {DAYS_PER_YEAR:g}",)


def read_per_expiry(
    name: str,
    columns: Mapping[str, NDArray[Any]],
    good: NDArray[np.int64],
    first: NDArray[np.int64],
    expiry: NDArray[np.int64],
) -> Array:
    """One positive number per expiry; ones if the column is absent."""
    if name not in columns:
        return inputs.freeze_array(np.ones(first.size))
    given = columns[name][good]
    bad = ~(np.isfinite(given) & (given > 0.0))
    _refuse_rows(name, given, bad, "must be positive", good)
    value = given[first]
    off = np.abs(given - value[expiry]) > 1e-9 * value[expiry]
    _refuse_rows(name, given, off, "differs within one maturity: give one value per maturity", good)
    return inputs.freeze_array(value)


def _refuse_rows(
    name: str,
    values: NDArray[Any],
    bad: NDArray[np.bool_],
    remedy: str,
    rows: NDArray[np.int64] | None = None,
) -> None:
    where = np.flatnonzero(bad)
    if where.size:
        row = where[0] if rows is None else rows[where[0]]
        raise ValueError(f"row {row + 1}: {name} = {float(values[where[0]])!r}; {remedy}")
