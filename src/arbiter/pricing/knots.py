"""Knots of the transport slopes and their quadrature constants."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from arbiter.compiled import compiled
from arbiter.conventions import Array, Indices
from arbiter.pricing import normal

# Gaussian coordinates on which the slopes of a fit live unless a caller brings others: thirds, and
# sixths and ninths in the left wing. There the puts of a few days that are bid at a tick or two lie
# within one third, dozens of them, and their slopes rise by a factor of a hundred.
DEFAULT_KNOTS = (
    -14 / 3,
    -4.0,
    *(n / 9 for n in range(-33, -26)),
    *(n / 6 for n in range(-17, -13)),
    *(n / 3 for n in range(-6, 12)),
)
# Slopes are total volatilities. Up to here the decoder's accuracy is tested.
MAX_SLOPE = 20.0
# A segment wider than this is cut (exactly: slopes are linear on it), so that the quadrature
# below stays at rounding up to the steepest slope, whatever knots a caller brings.
MAX_SEGMENT_WIDTH = 0.35
QUADRATURE_NODES = 12


class Knots(NamedTuple):
    """A knot vector, cut at zero and into short segments, with its quadrature constants."""

    x: Array  # (N,) cut knots, zero among them
    width: Array  # (N-1,)
    zero: int  # position of zero
    source: Indices  # (N,) index of the given knot to the left
    blend: Array  # (N,) weight of the given knot to the right
    node: Array  # (q,) Gauss-Legendre abscissae on [0, 1]
    weight: Array  # (q,)
    upper: Array  # (q, N-1) width · weight · Φ(−x) at the nodes
    lower: Array  # (q, N-1) width · weight · Φ(x)
    gauss: Array  # (q, N-1) width · weight · φ(x)
    mean: Array  # (N,) weights that turn slopes into E s(Z)

    @staticmethod
    def from_array(knots: ArrayLike, nodes: int = QUADRATURE_NODES) -> Knots:
        """Constants of ``knots``, computed once for each set of knots.

        Args:
            knots: ``(n,)`` strictly increasing Gaussian coordinates.
            nodes: Quadrature nodes per segment; fewer serve numbers of fewer digits.

        Raises:
            ValueError: If the knots are not finite and strictly increasing.
        """
        return _build_knots(tuple(np.asarray(knots, dtype=np.float64).tolist()), nodes)

    def cut_matrix(self, count: int) -> Array:
        """``(N, n)`` slopes at the cut knots from slopes at the ``count`` given ones."""
        matrix, at = np.zeros((self.x.size, count)), np.arange(self.x.size)
        matrix[at, self.source] = 1.0 - self.blend
        matrix[at, np.minimum(self.source + 1, count - 1)] += self.blend
        return matrix


@compiled
def find_segment(ends: Array, at: float) -> int:
    """Position of the last of increasing ``ends`` that is not above ``at``; −1 if all are."""
    low, high = 0, ends.size
    while low < high:
        middle = (low + high) >> 1
        if ends[middle] <= at:
            low = middle + 1
        else:
            high = middle
    return low - 1


@lru_cache(maxsize=64)
def _build_knots(key: tuple[float, ...], nodes: int) -> Knots:
    given = np.asarray(key)
    if given.size < 1 or not np.all(np.isfinite(given)) or np.any(np.diff(given) <= 0):
        raise ValueError(f"knots must be finite and strictly increasing, got {given.tolist()}")
    ends = np.union1d(given, [0.0])
    pieces = [
        np.linspace(a, b, int(np.ceil((b - a) / MAX_SEGMENT_WIDTH)) + 1)[:-1]
        for a, b in itertools.pairwise(ends)
    ]
    x = np.concatenate([*pieces, ends[-1:]])
    if x.size == 1:  # a single knot at zero: one slope for the whole line
        x = np.array([0.0, MAX_SEGMENT_WIDTH])
    source = np.clip(np.searchsorted(given, x, side="right") - 1, 0, max(given.size - 2, 0))
    if given.size > 1:
        blend = np.clip((x - given[source]) / (given[source + 1] - given[source]), 0.0, 1.0)
    else:
        blend = np.zeros_like(x)
    raw_node, raw_weight = np.polynomial.legendre.leggauss(nodes)
    node, weight = 0.5 * (raw_node + 1.0), 0.5 * raw_weight
    width = np.diff(x)
    at = x[:-1] + width * node[:, None]  # (q, N-1)
    measure = width * weight[:, None]
    upper, lower = measure * normal.cdf_of(-at), measure * normal.cdf_of(at)
    gauss = measure * normal.INV_ROOT_2PI * np.exp(-0.5 * at * at)

    # E s(Z) = ∫_0^∞ b Φ(−x) dx − ∫_{−∞}^0 b Φ(x) dx, and b is a sum of hats on the cut knots.
    zero = int(np.searchsorted(x, 0.0))
    signed = np.concatenate([-lower[:, :zero], upper[:, zero:]], axis=1)
    mean = np.zeros_like(x)
    mean[:-1] += (1.0 - node) @ signed
    mean[1:] += node @ signed
    first, last = x[0], x[-1]
    mean[0] -= _density(first) + first * float(normal.cdf_of(first))
    mean[-1] += _density(last) - last * float(normal.cdf_of(-last))
    found = Knots(x, width, zero, source, blend, node, weight, upper, lower, gauss, mean)
    lock_arrays(found)
    return found


def lock_arrays(parts: Iterable[object]) -> None:
    """Make the arrays among ``parts`` read-only: constants that later calls share."""
    for part in parts:
        if isinstance(part, np.ndarray):
            part.setflags(write=False)


def _density(x: float) -> float:
    return normal.INV_ROOT_2PI * float(np.exp(-0.5 * x * x))
