"""Where the program looks: strikes, and nodes in the three coordinates, finer where asked.

The box holds all but 1e-7 of each law with room around it, since a relaxed law may be wider. The
later index has nodes wherever the earlier one has, so that a volatility of zero is representable,
and reaches far enough out for the largest volatility at both ends of the box.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from arbiter.joint.marginals import Marginal

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]
Strikes = tuple[Array, Array, Array]

TAIL = 1e-7  # probability beyond the box, on each side of each law
_ROOM = 1.15  # beyond the quantile of TAIL
_NODES = (48, 28, 96)  # at level zero, of each of the two spacings
_HIGHEST = 1.0  # half variance over the window: beyond it, a VIX near 500, nodes stop
_NARROWEST = 0.1  # of its mean: laws narrower than this are given room
_OUTER = 1e-4  # quantile of the first and of the last strike


@dataclass(frozen=True, eq=False)
class Mesh:
    """Nodes without the strikes: ``x`` and ``y`` of the index, ``v`` of volatility, from zero."""

    x: Array
    v: Array
    y: Array

    @staticmethod
    def of(
        laws: tuple[Marginal, Marginal, Marginal],
        tenor: float,
        nodes: tuple[int, int, int] = _NODES,
    ) -> Mesh:
        """A mesh for three laws; ``nodes`` sets how many each of the two spacings has."""
        near, volatility, far = laws
        ends = np.array([TAIL, 1.0 - TAIL])
        index = np.concatenate([near.quantile(ends), far.quantile(ends)])
        low, high = index.min() / _ROOM, index.max() * _ROOM
        top = float(volatility.quantile(ends)[1]) * _ROOM**2
        top = min(top, float(np.sqrt(2.0 * _HIGHEST / tenor)))
        reach = _reach(low, high, 0.5 * tenor * top**2)
        states, levels, later = nodes
        x = np.concatenate([_spaced(near, states), np.geomspace(low, high, states)])
        v = np.concatenate([_spaced(volatility, levels), top * np.linspace(0, 1, levels) ** 2])
        outer = np.geomspace(low / reach, high * reach, 2 * later // 3)
        y = np.concatenate([_spaced(far, later), outer])
        x = _distinct(x[(x >= low) & (x <= high)])
        return Mesh(x, _distinct(v[v <= top]), _distinct(np.concatenate([x, y])))

    def sharpened(self, marked: Mask) -> Mesh:
        """With a later level in the middle of every two of which one is marked."""
        middle = 0.5 * (self.y[1:] + self.y[:-1])
        return Mesh(self.x, self.v, np.union1d(self.y, middle[marked[1:] | marked[:-1]]))

    def with_strikes(self, strikes: Strikes) -> Mesh:
        """With the strikes among the nodes: payoffs bend there."""
        x, v, y = (
            np.union1d(z, K[(z[0] < K) & (z[-1] > K)])
            for z, K in zip(self.axes, strikes, strict=True)
        )
        return Mesh(x, v, np.union1d(x, y))

    @property
    def axes(self) -> Strikes:
        """Nodes in the order of the laws: x, v, y."""
        return self.x, self.v, self.y


def first_strikes(laws: tuple[Marginal, Marginal, Marginal], count: int) -> Strikes:
    """About ``count`` strikes a law, half of them even in probability and half even in level."""
    found = []
    for law in laws:
        u = np.linspace(0.0, 1.0, count // 2 + 2)[1:-1]
        low, high = law.quantile(np.array([_OUTER, 1.0 - _OUTER]))
        # a law of few atoms is given strikes around them: a relaxed law may spread
        pad = max(_NARROWEST * law.mean - (high - low), 0.0)
        even = np.linspace(max(low - pad, 0.5 * low), high + pad, count - count // 2)
        strikes = np.sort(np.concatenate([law.quantile(u), even]))
        apart = np.diff(strikes) > 0.1 * (even[1] - even[0])
        found.append(strikes[np.append(apart, True)])
    near, volatility, far = found
    return near, volatility, far


def _spaced(law: Marginal, count: int) -> Array:
    u = np.linspace(0.0, 1.0, count + 2)[1:-1]
    return np.asarray(law.quantile(u), dtype=np.float64)


def _distinct(nodes: Array) -> Array:
    """Sorted, and no nearer to each other than a facet can be told apart."""
    nodes = np.unique(nodes)
    width = 1e-4 * (nodes[-1] - nodes[0])
    return np.asarray(nodes[np.append(np.diff(nodes) > width, True)])


def _reach(low: float, high: float, variance: float) -> float:
    """How far out the later level must go: a law with this half variance fits at both ends."""
    reach = _ROOM
    while True:
        first, last = low / reach, high * reach
        share = (np.array([low, high]) - first) / (last - first)
        chord = np.log(first) + share * np.log(last / first)
        if (np.log([low, high]) - chord > 1.05 * variance).all():
            return reach
        reach *= 1.1
