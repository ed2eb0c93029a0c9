"""Cubics between listed maturities that never fall, in floating point either.

On an interval with ``t`` from 0 to 1 and ``s = 1 − t`` a cubic through ``left`` and ``right`` has
three rises that add up to ``right − left``: ``first`` and ``third`` from its tangents, ``second``
between them. Its derivative is ``3 (first s² + 2 second s t + third t²)``. The value is ``left``
plus nonnegative numbers times functions of ``t`` that do not fall under rounding, and sums,
products and minima of such functions do not fall either (docs/theory.md, section 5).
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from arbiter.compiled import compiled, inlined
from arbiter.conventions import Array
from arbiter.pricing.knots import find_segment
from arbiter.pricing.normal import to_row

Numbers = NDArray[Any]  # real ones, or complex steps
_SPLITTER = 2.0**27 + 1.0  # cuts a float64 into two halves, whose products are exact


class Hermite(NamedTuple):
    """Cubics in ``u = √T`` through the same nodes."""

    u: Array  # (M,) nodes
    values: Array  # (J, M, n)
    tangent: Array  # (J, M, n)

    def at(self, T: Array) -> Array:
        """Values ``(J, U, n)`` at maturities ``(U,)``.

        Of values that do not fall along M or J, with tangents limited accordingly. Neither do the
        results, not by one unit in the last place.
        """
        return self._evaluate(T, True)

    def changes_at(self, T: Array) -> Array:
        """The same of any values and tangents, in which the result is linear."""
        return self._evaluate(T, False)

    def _evaluate(self, T: Array, ordered: bool) -> Array:
        out = np.empty((self.values.shape[0], T.size, self.values.shape[2]))
        evaluate_hermite(self, to_row(T), ordered, out)
        return out

    def rates_at(self, T: Array) -> Array:
        """Derivatives ``(J, U, n)`` by T at maturities ``(U,)``."""
        out = np.empty((self.values.shape[0], T.size, self.values.shape[2]))
        differentiate_hermite(self, to_row(T), out)
        return out


@inlined
def multiply_exactly(a: float, b: float) -> tuple[float, float]:
    """The product of two numbers and what its rounding lost (Dekker, 1971)."""
    product = a * b
    high, top = _SPLITTER * a, _SPLITTER * b
    a_high, b_high = high - (high - a), top - (top - b)
    a_low, b_low = a - a_high, b - b_high
    lost = a_low * b_low - (((product - a_high * b_high) - a_low * b_high) - a_high * b_low)
    return product, lost


@inlined
def rise_early(t: float) -> float:
    """``1 − (1 − t)³`` for ``t ≥ 0``: the share of the first rise, which does not fall in ``t``.

    Up to one half it is the nearest number to a sum of two, of which the second carries what
    rounding lost: neighbouring ``t`` are further apart than its error.
    """
    if t > 0.5:
        s = 1.0 - t
        return 1.0 - s * s * s
    inner = 3.0 - t
    product, lost = multiply_exactly(t, inner)
    lost += t * ((3.0 - inner) - t)
    outer = 3.0 - product
    value, more = multiply_exactly(t, outer)
    return value + (more + t * (((3.0 - outer) - product) - lost))


@inlined
def rise_midway(t: float) -> float:
    """``t² (3 − 2t)`` for ``t`` in [0, 1]: the share of the second rise; it does not fall."""
    near = t if t <= 0.5 else 1.0 - t
    square, lost = multiply_exactly(near, near)
    outer = 3.0 - 2.0 * near
    value, more = multiply_exactly(square, outer)
    value += more + (lost * outer + square * ((3.0 - outer) - 2.0 * near))
    return value if t <= 0.5 else 1.0 - value


@compiled
def evaluate_hermite(cubic: Hermite, T: Array, ordered: bool, out: Array) -> None:
    """The cubics ``(J, U, n)`` at maturities ``(U,)``, straight lines past the last node.

    ``ordered`` says that values and tangents obey the order, which the results then keep exactly.
    """
    u, last = cubic.u, cubic.u.size - 1
    for at in range(T.size):
        root = math.sqrt(T[at])
        i = min(max(find_segment(u, root), 0), last - 1)
        width, beyond = u[i + 1] - u[i], max(root - u[last], 0.0)
        t = min((root - u[i]) / width, 1.0)
        one, two, three = rise_early(t), rise_midway(t), t * t * t
        for j in range(out.shape[0]):
            left, right, found = cubic.values[j, i], cubic.values[j, i + 1], out[j, at]
            start, stop, end = cubic.tangent[j, i], cubic.tangent[j, i + 1], cubic.tangent[j, last]
            for x in range(found.size):
                first, third = start[x] * width / 3.0, stop[x] * width / 3.0
                second = ((right[x] - left[x]) - first) - third
                if root >= u[last]:
                    value = right[x] + end[x] * beyond
                elif not ordered:
                    value = left[x] + (first * one + second * two + third * three)
                else:
                    if second < 0.0 < first + second:
                        # first s² + 2 second s t + third t² is a square and a multiple of s t
                        ratio = 1.0 + math.sqrt(third / first)
                        rest = max(second + math.sqrt(first * third), 0.0)
                        rise = first / ratio * rise_early(t * ratio) + rest * two
                    else:  # a sum of rounded numbers may fall short of zero by their rounding
                        rise = first * one + max(second, 0.0) * two + third * three
                    value = min(left[x] + rise, right[x])
                found[x] = value if j == 0 or not ordered else max(value, out[j - 1, at, x])


@compiled
def differentiate_hermite(cubic: Hermite, T: Array, out: Array) -> None:
    """Derivatives ``(J, U, n)`` by T at maturities ``(U,)``."""
    u, last = cubic.u, cubic.u.size - 1
    for at in range(T.size):
        root = math.sqrt(T[at])
        i = min(max(find_segment(u, root), 0), last - 1)
        width, per = u[i + 1] - u[i], 0.5 / root
        t = (min(root, u[last]) - u[i]) / width
        s = 1.0 - t
        for j in range(out.shape[0]):
            left, right, found = cubic.values[j, i], cubic.values[j, i + 1], out[j, at]
            one, two, end = cubic.tangent[j, i], cubic.tangent[j, i + 1], cubic.tangent[j, last]
            for x in range(found.size):
                secant = (right[x] - left[x]) / width
                middle = 3.0 * secant - one[x] - two[x]
                inner = s * s * one[x] + 2.0 * s * t * middle + t * t * two[x]
                found[x] = per * (end[x] if root >= u[last] else inner)
