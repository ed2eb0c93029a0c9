"""Medians of series of different lengths, each in a row of a table with blanks behind it."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from arbiter.conventions import Array, Indices

Mask = NDArray[np.bool_]

_ROWS_TOGETHER = 28  # rows of a table whose columns stay in the processor's cache


def group_rows(count: Indices) -> list[Indices]:
    """Rows of similar lengths together: tables of them are small and have few blanks."""
    rows = np.argsort(count, kind="stable")
    return np.array_split(rows, -(-rows.size // _ROWS_TOGETHER)) if rows.size else []


def mask_rows(count: Indices, width: int) -> Mask:
    """``(L, width)`` which entries belong to a row that has ``count`` of them, from the left."""
    return np.arange(width) < count[:, None]


def sort_rows(values: Array, kept: Mask) -> Array:
    """Each row's entries that are kept, in order, and infinities behind them."""
    ordered = np.where(kept, values, np.inf)
    ordered.sort(axis=1)
    return ordered


def find_row_medians(values: Array, kept: Mask) -> Array:
    """``(L,)`` the median of each row's entries that are kept."""
    ordered, count, row = sort_rows(values, kept), kept.sum(axis=1), np.arange(kept.shape[0])
    upper, lower = ordered[row, count // 2], ordered[row, (count - 1) // 2]
    return np.asarray(np.where(count % 2 == 1, upper, 0.5 * (lower + upper)))


def make_margins(count: Indices, width: int) -> Array:
    """``(L, width)`` zeros, and infinities behind each row, so many of each sign that they balance.

    Added to rows they put every median into the same column.
    """
    column, below = np.arange(width), (count + width // 2 - count // 2)[:, None]
    margins = np.where(column < below, -np.inf, np.inf)
    margins[mask_rows(count, width)] = 0.0
    return margins


def find_balanced_medians(values: Array, count: Indices) -> Array:
    """``(L,)`` medians of rows with the margins of :func:`make_margins`."""
    middle = values.shape[1] // 2
    parted = np.partition(values, (max(middle - 1, 0), middle), axis=1)
    upper, lower = parted[:, middle], parted[:, middle - 1]
    return np.asarray(np.where(count % 2 == 1, upper, 0.5 * (lower + upper)))


def find_row_quantiles(ordered: Array, count: Indices, share: float) -> Array:
    """``(L,)`` the entry that exceeds a ``share`` of its sorted row, linear between neighbours."""
    place, row = (count - 1) * share, np.arange(count.size)
    before = np.floor(place).astype(np.int64)
    low, high = ordered[row, before], ordered[row, np.minimum(before + 1, count - 1)]
    part, rise = place - before, high - low
    return np.asarray(np.where(part >= 0.5, high - rise * (1.0 - part), low + rise * part))


def find_weighted_medians(ordered: Array, weights: Array, count: Indices) -> Array:
    """``(L,)`` the entry of each sorted row at which half of the row's weight is reached."""
    total = np.cumsum(weights, axis=1)
    place = np.minimum((total < 0.5 * total[:, -1:]).sum(axis=1), count - 1)
    found: Array = ordered[np.arange(count.size), place]
    return found


def select_least(values: Array, ordered: Array, size: Indices) -> Indices:
    """``(L, max size)`` places of the least entries of each row in their order; 0 behind the last.

    Of equal entries the first are taken. ``ordered`` are the sorted rows.
    """
    limit = ordered[np.arange(size.size), size - 1][:, None]
    below, equal = values < limit, values == limit
    spare = size - below.sum(axis=1)
    taken = below | (equal & (np.cumsum(equal, axis=1) <= spare[:, None]))
    kept = mask_rows(size, int(size.max()))
    places = np.zeros(kept.shape, dtype=np.int64)
    places[kept] = np.nonzero(taken)[1]
    return places


def pack_rows(values: Array, kept: Mask) -> Array:
    """The entries that are kept, moved to the left in their order, and zeros behind them."""
    packed = np.zeros_like(values)
    packed[mask_rows(kept.sum(axis=1), values.shape[1])] = values[kept]
    return packed
