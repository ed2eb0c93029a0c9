"""Gradient and Gauss-Newton matrix of residuals that depend on one expiry each, compiled."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from arbiter.compiled import compiled
from arbiter.conventions import Array
from arbiter.fitting.banded import LANES

_ROWS_TOGETHER = 4  # rows whose products are added in one pass over a block


@compiled
def add_normal_equations(
    rows: Array,
    force: Array,
    starts: NDArray[np.int64],
    factor: Array,
    gradient: Array,
    band: Array,
) -> None:
    """``gradient += Jᵀ force`` and ``band += JᵀJ``, ``J`` the rows with their columns scaled.

    Args:
        rows: ``(m, B)`` derivatives by the unknowns of their expiry.
        force: ``(m,)``.
        starts: ``(L+1,)`` the first row of each expiry.
        factor: ``(L, B)`` factors of the columns.
        gradient: ``(L·B,)``.
        band: ``(L·B, w)``, as in :mod:`arbiter.fitting.banded`.
    """
    count, size = factor.shape
    width = (size + LANES - 1) // LANES * LANES  # zeros fill the last vector
    block, own = np.empty((size, width)), np.empty((_ROWS_TOGETHER, width))
    one, two, three, four = own[0], own[1], own[2], own[3]
    own[:, :] = 0.0
    for at in range(count):
        block[:, :] = 0.0
        push, scale = gradient[at * size : (at + 1) * size], factor[at]
        for first in range(starts[at], starts[at + 1], _ROWS_TOGETHER):
            for r in range(_ROWS_TOGETHER):
                here = own[r]
                if first + r < starts[at + 1]:
                    row, pull = rows[first + r], force[first + r]
                    for j in range(size):
                        here[j] = row[j]
                        push[j] += pull * row[j] * scale[j]
                else:
                    for j in range(size):
                        here[j] = 0.0
            for i in range(size):
                # slices begin at the vector of the diagonal: a loop whose first index is computed
                # is not taken in vectors
                begin = i // LANES * LANES
                a, b, c, d = one[i], two[i], three[i], four[i]
                line, first_row, second_row = block[i, begin:], one[begin:], two[begin:]
                third_row, fourth_row = three[begin:], four[begin:]
                for j in range(width - begin):
                    early, late = a * first_row[j] + b * second_row[j], c * third_row[j]
                    line[j] += early + (late + d * fourth_row[j])
        for i in range(size):
            column, line, after, share = band[at * size + i], block[i, i:], scale[i:], scale[i]
            for j in range(size - i):
                column[j] += line[j] * share * after[j]
