"""Parity across the series of a chain: what one cannot tell, its neighbours do, and it is said."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from arbiter.chains import parity
from arbiter.chains.errors import ChainError
from arbiter.chains.option_table import OptionTable
from arbiter.chains.padded_rows import mask_rows
from arbiter.chains.parity import CallPutPairs
from arbiter.conventions import MINUTES_PER_YEAR, Array

SERIES_COLUMNS = ["label", "root", "expiry", "settlement", "settles"]
_MIN_PAIRS = 2
_MAX_UNDISCOUNTED_YEARS = 0.5  # years for which a discount factor of one is better than nothing
_SMOOTHING_NEIGHBOURS = 6  # nearest series that smoothing averages


class ParityEstimates(NamedTuple):
    """Forwards and discount factors, one row per series, and what had to be assumed."""

    frame: pl.DataFrame
    notes: list[str]


@dataclass
class _SeriesColumns:
    """One value per series."""

    T: Array
    forward: Array
    discount: Array
    forward_error: Array
    discount_error: Array
    pairs: NDArray[np.int64]


def estimate_parity(
    frame: pl.DataFrame, options: OptionTable, *, smooth: bool = False
) -> ParityEstimates:
    """Forward and discount factor of every series that is alive, NaN where nothing tells them.

    Args:
        frame: A chain's frame.
        options: The same as arrays.
        smooth: Lean each estimate on its neighbours', by their standard errors.

    Raises:
        ChainError: If prices and strikes are in different units, or calls are puts.
    """
    listed = options.order[(options.first & (options.T > 0.0))[options.order]]
    first = listed[np.diff(options.series[listed], prepend=-1) != 0]
    heads = {name: frame[name][first] for name in SERIES_COLUMNS}
    expired = len(options.labels) - first.size  # the first to settle
    with np.errstate(all="ignore"):  # prices may be anything; what is not finite is not used
        pairs = _match_pairs(frame["expiry"], options, expired)
        T = np.rint(options.T[first] * MINUTES_PER_YEAR) / MINUTES_PER_YEAR
        columns = _estimate_discounts(pairs, T)
        _check_units(columns)
        notes = _fill_from_neighbours(columns, pairs, heads["label"].to_list())
        if smooth:
            _smooth_estimates(columns)
            notes.append("forwards and discount factors were smoothed across expiries")
    return ParityEstimates(pl.DataFrame({**heads, **vars(columns)}), notes)


def _match_pairs(expiry: pl.Series, options: OptionTable, expired: int) -> CallPutPairs:
    """The two-sided pairs of all series but the first that have ``expired``."""
    alive = options.first & options.call & (options.other >= 0) & (options.series >= expired)
    call = options.order[alive[options.order]]
    put, days = options.other[call], expiry.to_physical().to_numpy()
    call_bid, call_ask = options.bid[call], options.ask[call]
    put_bid, put_ask = options.bid[put], options.ask[put]
    used = (call_bid > 0.0) & (call_ask > call_bid) & (put_bid > 0.0) & (put_ask > put_bid)
    used &= np.isfinite(call_ask) & np.isfinite(put_ask) & (days[call] == days[put])
    series = options.series[call[used]] - expired
    count = np.bincount(series, minlength=len(options.labels) - expired)
    inside = mask_rows(count, max(int(count.max(initial=0)), 1))

    def pad(values: Array, blank: float) -> Array:
        padded = np.full(inside.shape, blank)
        padded[inside] = values[used]
        return padded

    call_mid, put_mid = 0.5 * (call_bid + call_ask), 0.5 * (put_bid + put_ask)
    return CallPutPairs(
        pad(options.strike[call], 1.0),
        pad(call_mid - put_mid, 0.0),
        pad(0.5 * np.hypot(call_ask - call_bid, put_ask - put_bid), np.inf),
        pad(call_mid + put_mid, 0.0),
        count,
    )


def _estimate_discounts(pairs: CallPutPairs, T: Array) -> _SeriesColumns:
    """Discount factors from each series alone."""
    nothing = np.full(T.size, np.nan)
    discount, error = parity.estimate_discounts(pairs)
    return _SeriesColumns(T, nothing.copy(), discount, nothing.copy(), error, pairs.count)


def _check_units(columns: _SeriesColumns) -> None:
    """Refuse slopes that no discount factor can have.

    Where they are told well: to a tenth of themselves, or to a tenth of a discount factor, since
    the slope of volatilities in the place of prices is known to be nothing.
    """
    size = np.maximum(np.abs(columns.discount), 1.0)
    D = columns.discount[columns.discount_error < 0.1 * size]
    if D.size == 0:
        return
    typical = float(np.median(D))
    if typical < 0.0:
        raise ChainError(
            "call minus put rises with the strike: calls and puts are exchanged, or the strikes "
            "have the wrong sign"
        )
    if not 0.2 < typical < 2.0:
        raise ChainError(
            f"call minus put falls by {typical:.4g} per unit of strike where a discount factor "
            "near 1 is expected: prices and strikes are in different units (prices in percent, "
            "strikes times 1000, or volatilities in the place of prices)"
        )


def _fill_from_neighbours(
    columns: _SeriesColumns, pairs: CallPutPairs, labels: list[str]
) -> list[str]:
    """Fill in discounts that a series does not tell, then all forwards; say what was done."""
    T, D = columns.T, columns.discount
    known = np.array(
        [parity.is_discount_known(*row) for row in zip(D, columns.discount_error, T, strict=True)],
        dtype=bool,
    )
    logs = np.log(np.where(known, D, 1.0))
    filled = {}
    for i in np.flatnonzero(~known).tolist():
        D[i], filled[i] = _interpolate_discount(T[i], T[known], logs[known])
        columns.discount_error[i] = np.nan
    told = np.flatnonzero((columns.pairs >= _MIN_PAIRS) & (D > 0.0))
    f, error = parity.estimate_forwards(pairs.select(told), D[told])
    K_first, K_last = pairs.K[told, 0], pairs.K[told, pairs.count[told] - 1]
    inside = np.isfinite(f) & (0.5 * K_first < f) & (f < 2.0 * K_last)
    columns.forward[told[inside]], columns.forward_error[told[inside]] = f[inside], error[inside]
    D[np.isnan(columns.forward)] = np.nan
    notes: list[str] = []
    asked = set(told)
    for i, label in enumerate(labels):
        if i not in asked:
            notes.append(f"{label}: {columns.pairs[i]} pairs do not imply a forward; not used")
            continue
        if i in filled:
            notes.append(f"{label}: {columns.pairs[i]} pairs do not tell the discount; {filled[i]}")
        if np.isnan(D[i]):
            notes.append(f"{label}: parity implies no forward among the strikes; not used")
    return notes


def _interpolate_discount(T: float, others: Array, logs: Array) -> tuple[float, str]:
    """A discount factor for ``T`` from those of other maturities, and a sentence about it."""
    if others.size:
        at, values = np.concatenate([[0.0], others]), np.concatenate([[0.0], logs])
        log = np.interp(T, at, values) if at[-1] >= T else values[-1] * T / at[-1]
        return float(np.exp(log)), "taken from the neighbouring expiries"
    if T <= _MAX_UNDISCOUNTED_YEARS:
        return 1.0, "no other expiry does either: taken as 1"
    return np.nan, "no other expiry does either"


def _smooth_estimates(columns: _SeriesColumns) -> None:
    """Replace log D and log F by their precision-weighted mean with what neighbours predict."""
    F, D = columns.forward, columns.discount
    errors = (columns.forward_error / F, columns.discount_error / D)
    for values, error in zip((F, D), errors, strict=True):
        use = np.flatnonzero(np.isfinite(values) & np.isfinite(error) & (error > 0.0))
        if use.size < 4:
            continue
        predicted, doubt = _predict_from_neighbours(columns.T[use], np.log(values[use]), error[use])
        weight = doubt**2 / (doubt**2 + error[use] ** 2)
        values[use] = np.exp(weight * np.log(values[use]) + (1.0 - weight) * predicted)
    columns.forward_error = np.abs(F) * errors[0]
    columns.discount_error = np.abs(D) * errors[1]


def _predict_from_neighbours(T: Array, x: Array, error: Array) -> tuple[Array, Array]:
    """Each point from a line through its neighbours, and the standard error of that."""
    predicted, doubt = np.empty_like(x), np.empty_like(x)
    for i in range(T.size):
        near = np.argsort(np.abs(T - T[i]), kind="stable")[1 : _SMOOTHING_NEIGHBOURS + 1]
        w = 1.0 / error[near] ** 2
        t = T[near] - T[i]
        design = np.stack([np.ones_like(t), t], axis=1)
        normal = np.linalg.pinv(design.T @ (w[:, None] * design))
        line = normal @ (design.T @ (w * x[near]))
        misfit = np.sum(w * (x[near] - design @ line) ** 2) / max(near.size - 2, 1)
        predicted[i] = line[0]
        doubt[i] = np.sqrt(max(normal[0, 0], 0.0) * max(misfit, 1.0))
    return predicted, doubt
