"""A chain's options as arrays: the series of each, and the option of the other side."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from arbiter.conventions import Array, Indices

Mask = NDArray[np.bool_]


class OptionTable(NamedTuple):
    """One entry per option, in the order of the chain's frame.

    Attributes:
        series: Number of its series, in order of settlement.
        labels: Names of the series.
        T: Years to settlement.
        strike: In currency.
        call: Whether it is a call.
        bid: As it is quoted, NaN where it is not.
        ask: As it is quoted, NaN where it is not.
        order: The options by series and strike, the call before the put, as first listed.
        first: Whether the option was not listed before.
        other: Where the option of the other side of this strike is first listed, or −1.
    """

    series: Indices
    labels: list[str]
    T: Array
    strike: Array
    call: Mask
    bid: Array
    ask: Array
    order: Indices
    first: Mask
    other: Indices


class SeriesEstimates(NamedTuple):
    """One value per series of an option table, NaN where parity tells none.

    Attributes:
        forward: Forwards.
        discount: Discount factors.
        forward_error: Standard errors of the forwards.
        discount_error: Standard errors of the discount factors.
    """

    forward: Array
    discount: Array
    forward_error: Array
    discount_error: Array


def number_values(text: pl.Series) -> tuple[pl.Series, pl.Series]:
    """The different values of a column as they appear, and the number of every entry's.

    Equal entries mostly follow one another: the first of each run is compared with all.
    """
    run = text.rle_id().to_numpy()
    words = text[np.flatnonzero(np.diff(run, prepend=run[:1] + 1))]
    values = words.drop_nulls().unique(maintain_order=True)
    return values, words.cast(pl.Enum(values)).to_physical()[run]


def tabulate_options(frame: pl.DataFrame) -> OptionTable:
    """The options of a chain's frame."""
    names, number_of_name = number_values(frame["label"])
    listed = number_of_name.to_numpy()
    heads = np.flatnonzero(np.diff(np.maximum.accumulate(listed.astype(np.int64)), prepend=-1))
    by_time = np.argsort(frame["settles"].to_physical().to_numpy()[heads], kind="stable")
    number = np.empty_like(by_time)
    number[by_time] = np.arange(by_time.size)
    series = number[listed]
    labels = names[by_time].to_list()
    T, K, bid, ask = (frame[name].to_numpy() for name in ("T", "strike", "bid", "ask"))
    call = (frame["side"] == "call").to_numpy()
    order = np.lexsort((~call, K, series))
    new_strike = np.ones(order.size, dtype=bool)
    new_strike[1:] = (np.diff(series[order]) != 0) | (np.diff(K[order]) != 0.0)
    new = new_strike.copy()
    new[1:] |= np.diff(call[order])
    first = np.zeros(order.size, dtype=bool)
    first[order[new]] = True
    return OptionTable(
        series,
        labels,
        T,
        K,
        call,
        bid,
        ask,
        order,
        first,
        _find_other_sides(order, new_strike, new),
    )


def _find_other_sides(order: Indices, new_strike: Mask, new: Mask) -> Indices:
    """Where the first listing of each option's other side is, −1 if it is not listed."""
    of_strike = np.cumsum(new_strike) - 1
    heads = np.flatnonzero(new)  # one or two per strike
    head_strike = of_strike[heads]
    beside = np.full(heads.size, -1)
    paired = np.flatnonzero(np.diff(head_strike) == 0)
    beside[paired], beside[paired + 1] = order[heads[paired + 1]], order[heads[paired]]
    other = np.empty_like(order)
    other[order] = beside[np.cumsum(new) - 1]
    return other
