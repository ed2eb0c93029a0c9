"""Products of matrices in one order of sums, compiled.

A linear algebra library may split a sum over its threads, so that the last bits of a product depend
on how many there are. Here they do not.
"""

from __future__ import annotations

import numpy as np

from arbiter.compiled import compiled
from arbiter.conventions import Array
from arbiter.models.exact_prices import Complex

_SERIES_TERMS = 16  # of an exponential: 0.5¹⁷/17! is below rounding


def multiply(left: Array, right: Array) -> Array:
    """The product of real matrices ``(a, b)`` and ``(b, m)``."""
    out = np.zeros((left.shape[0], right.shape[1]))
    # one layout, so that one version is compiled
    a, b = (np.require(one, requirements=["C", "W"]) for one in (left, right))
    add_product(a, b, out)
    return out


def exponentiate(matrix: Array) -> Array:
    """The exponential of a small square matrix, by its series after halvings, then squared."""
    halvings = max(int(np.ceil(np.log2(max(np.abs(matrix).sum(axis=1).max(), 1e-300)))) + 1, 0)
    scaled, identity = matrix / 2.0**halvings, np.eye(len(matrix))  # of norm one half at most
    found = identity
    for order in range(_SERIES_TERMS, 0, -1):
        found = identity + multiply(scaled, found) / order
    for _ in range(halvings):
        found = multiply(found, found)
    return found


def multiply_real_part(left: Complex, right: Complex) -> Array:
    """The real part of the product of complex matrices."""
    planes = np.concatenate([left.real, left.imag], axis=1)
    return multiply(planes, np.concatenate([right.real, -right.imag]))


@compiled
def add_product(left: Array, right: Array, out: Array) -> None:
    """Add ``left @ right`` to ``out``: four terms of a sum at a time."""
    rows, terms = left.shape
    whole = terms - terms % 4
    for i in range(rows):
        sums = out[i]
        for m in range(0, whole, 4):
            a, b, c, d = left[i, m], left[i, m + 1], left[i, m + 2], left[i, m + 3]
            A, B, C, D = right[m], right[m + 1], right[m + 2], right[m + 3]
            for j in range(sums.size):
                sums[j] += (a * A[j] + b * B[j]) + (c * C[j] + d * D[j])
        for m in range(whole, terms):
            a, A = left[i, m], right[m]
            for j in range(sums.size):
                sums[j] += a * A[j]
