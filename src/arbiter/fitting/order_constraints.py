"""Linear constraints between pairs of unknowns, ``z[high] − z[low] + offset ≥ 0``, compiled."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from arbiter.compiled import compiled
from arbiter.conventions import Array, Indices


class OrderConstraints(NamedTuple):
    """Constraints ``z[high] − z[low] + offset ≥ 0``; an index of −1 stands for zero."""

    high: Indices  # (c,)
    low: Indices  # (c,)
    offset: Array  # (c,)

    @property
    def bandwidth(self) -> int:
        """The diagonals, the main one included, that the constraints need in a matrix."""
        both = (self.high >= 0) & (self.low >= 0)
        return 1 + int(np.abs(self.high - self.low)[both].max(initial=0))


class ConstraintOperator:
    """The matrix A and the offset of the constraints ``A z + offset ≥ 0``, applied sparsely."""

    def __init__(self, order: OrderConstraints, size: int) -> None:
        self.order, self.size = order, size

    def evaluate_slacks(self, z: Array) -> Array:
        """``A z + offset``."""
        return self.apply_matrix(z) + self.order.offset

    def apply_matrix(self, z: Array) -> Array:
        """``A z``."""
        out = np.empty(self.order.offset.size)
        _fill_differences(self.order, z, out)
        return out

    def apply_transpose(self, weight: Array) -> Array:
        """``Aᵀ weight``."""
        out = np.zeros(self.size)
        _add_transposed(self.order, weight, out)
        return out

    def add_weighted_gram(self, matrix: Array, weight: Array) -> None:
        """``matrix += Aᵀ diag(weight) A`` for a banded matrix."""
        _add_gram(self.order, weight, matrix)


@compiled
def _fill_differences(order: OrderConstraints, z: Array, out: Array) -> None:
    for i in range(out.size):
        high, low = order.high[i], order.low[i]
        out[i] = (z[high] if high >= 0 else 0.0) - (z[low] if low >= 0 else 0.0)


@compiled
def _add_transposed(order: OrderConstraints, weight: Array, out: Array) -> None:
    for i in range(weight.size):
        if order.high[i] >= 0:
            out[order.high[i]] += weight[i]
        if order.low[i] >= 0:
            out[order.low[i]] -= weight[i]


@compiled
def _add_gram(order: OrderConstraints, weight: Array, matrix: Array) -> None:
    for i in range(weight.size):
        high, low = order.high[i], order.low[i]
        if high >= 0:
            matrix[high, 0] += weight[i]
        if low >= 0:
            matrix[low, 0] += weight[i]
        if high >= 0 and low >= 0:
            matrix[min(high, low), abs(high - low)] -= weight[i]


@compiled
def largest_feasible_step(y: Array, dy: Array) -> float:
    """The largest step up to 1 that keeps ``y + step · dy`` from turning negative."""
    steepest = 0.0
    for i in range(y.size):
        steepest = max(steepest, -dy[i] / y[i])
    return 1.0 if steepest <= 1.0 else 1.0 / steepest
