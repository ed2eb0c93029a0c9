"""Medians and sums of series of different lengths, each in a row of a table with blanks behind it.

``kept`` says which entries of a row count. A row with a NaN among them has NaN as its median.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from arbiter.conventions import Array

Mask = NDArray[np.bool_]
Indices = NDArray[np.int64]


def mask_rows(count: Indices, width: int) -> Mask:
    """``(L, width)`` which entries belong to a row that has ``count`` of them, from the left."""
    return np.arange(width) < count[:, None]


def find_row_medians(values: Array, kept: Mask) -> Array:
    """``(L,)`` the median of each row."""
    count = np.count_nonzero(kept, axis=1)
    ordered = np.where(kept, values, np.inf)
    ordered.sort(axis=1)
    row = np.arange(count.size)
    upper, lower = ordered[row, count // 2], ordered[row, (count - 1) // 2]
    middle = np.where(count % 2 == 1, upper, 0.5 * (lower + upper))
    return np.where(np.isnan(ordered[:, -1]), np.nan, middle)  # sorted behind everything else


def find_row_quantiles(values: Array, kept: Mask, share: float) -> Array:
    """``(L,)`` the entry that exceeds a ``share`` of its row, linear between neighbours."""
    count = np.count_nonzero(kept, axis=1)
    ordered = np.sort(np.where(kept, values, np.inf), axis=1)
    place = (count - 1) * share
    row, before = np.arange(count.size), np.floor(place).astype(np.int64)
    low, high = ordered[row, before], ordered[row, np.minimum(before + 1, count - 1)]
    part, rise = place - before, high - low
    return np.where(part >= 0.5, high - rise * (1.0 - part), low + rise * part)


def find_row_weighted_medians(values: Array, weights: Array, kept: Mask) -> Array:
    """``(L,)`` the entry of each row at which half of the row's weight is reached."""
    order = np.argsort(np.where(kept, values, np.inf), axis=1)
    total = np.cumsum(np.take_along_axis(np.where(kept, weights, 0.0), order, axis=1), axis=1)
    place = np.count_nonzero(total < 0.5 * total[:, -1:], axis=1)
    row = np.arange(place.size)
    place = np.minimum(place, np.count_nonzero(kept, axis=1) - 1)
    found: Array = values[row, order[row, place]]
    return found


def pack_rows(values: Array, kept: Mask) -> Array:
    """The entries that are kept, moved to the left in their order, and zeros behind them."""
    packed = np.zeros_like(values)
    row, _ = np.nonzero(kept)
    packed[row, (np.cumsum(kept, axis=1) - 1)[kept]] = values[kept]
    return packed
