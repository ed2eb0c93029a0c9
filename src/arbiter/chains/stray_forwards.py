"""Forwards that contradict those of neighbouring expiries.

Log-forwards are nearly linear in T between neighbours: what bends them is the change of carry, a
dividend, and error. Each is compared with the lines through pairs of neighbours, and told where the
median line misses it by more than these three explain. How much carry changes is what the chain
itself shows, robustly, and at least ``MIN_CARRY_CHANGE``.
"""

from __future__ import annotations

from itertools import combinations, product

import numpy as np

from arbiter.chains.padded_rows import Mask, find_row_medians
from arbiter.conventions import Array, Indices

MIN_EXPIRIES = 4  # of fewer, nobody can say which one strays
MIN_CARRY_CHANGE = 0.02  # a year: of rates and dividend yields from one expiry to the next
MAX_LUMP = 0.002  # of the forward: one dividend of an index, or a few minutes between quotes
MAX_DEVIATIONS = 6.0  # standard errors, and typical changes of carry
_AHEAD = tuple(combinations((1, 2, 3, 4), 2))
# Places of the two neighbours that a line goes through: one on either side, or both on one, so that
# one stray neighbour is never in most of the lines, not even beside an end.
_LINES = (*product((-3, -2, -1), (1, 2, 3)), *_AHEAD, *((-a, -b) for a, b in _AHEAD))


def find_stray_forwards(T: Array, forward: Array, error: Array) -> list[tuple[int, float]]:
    """Places of forwards that stray, the worst first, and the forward that their neighbours imply.

    Args:
        T: ``(L,)`` maturities, increasing.
        forward: ``(L,)``; NaN where there is none.
        error: ``(L,)`` standard errors.
    """
    found: list[tuple[int, float]] = []
    left = np.flatnonzero(np.isfinite(forward) & np.isfinite(error) & (forward > 0.0))
    while left.size >= MIN_EXPIRIES:
        log, doubt = np.log(forward[left]), error[left] / forward[left]
        with np.errstate(all="ignore"):  # of lines that there are not
            excess, off = _measure_misses(T[left], log, doubt)
        worst = int(np.nanargmax(excess))
        if not excess[worst] > 1.0:
            break
        found.append((int(left[worst]), float(np.exp(log[worst] - off[worst]))))
        left = np.delete(left, worst)
    return found


def _measure_misses(T: Array, log: Array, doubt: Array) -> tuple[Array, Array]:
    """``(L,)`` by how much the median line misses each log-forward, over how much it may.

    And by how much the line that says most misses it.
    """
    at, near, far = _list_neighbours(T.size)
    share = (T[at] - T[near]) / (T[far] - T[near])  # (p, L) weight of the far neighbour
    off = log[at] - (1.0 - share) * log[near] - share * log[far]
    reach = np.abs((T[at] - T[near]) * (T[at] - T[far]) / (T[far] - T[near]))
    error = np.sqrt(doubt[at] ** 2 + ((1.0 - share) * doubt[near]) ** 2 + (share * doubt[far]) ** 2)
    lump = 0.5 * MAX_LUMP * (1.0 + np.abs(1.0 - share) + np.abs(share))
    unexplained = np.maximum(np.abs(off) - 2.0 * error - lump, 0.0) / reach
    missing = near == far
    typical = float(np.median(_find_medians(unexplained, missing)))
    carry = max(MIN_CARRY_CHANGE, MAX_DEVIATIONS * typical)
    allowed = MAX_DEVIATIONS * error + lump + carry * reach
    nearest = np.argmin(np.where(missing, np.inf, allowed), axis=0)
    closest = np.take_along_axis(off, nearest[None], axis=0)[0]
    return np.abs(_find_medians(off / allowed, missing)), closest


def _list_neighbours(count: int) -> tuple[Indices, Indices, Indices]:
    """``(p, L)`` places of expiries and of the two neighbours of each line, equal where none."""
    at = np.broadcast_to(np.arange(count), (len(_LINES), count))
    near, far = (at + np.array(places)[:, None] for places in zip(*_LINES, strict=True))
    outside = (np.minimum(near, far) < 0) | (np.maximum(near, far) >= count)
    return at, np.where(outside, 0, near), np.where(outside, 0, far)


def _find_medians(values: Array, missing: Mask) -> Array:
    return find_row_medians(values.T, ~missing.T)
