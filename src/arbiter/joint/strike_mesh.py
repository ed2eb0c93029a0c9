"""Strikes and state nodes of the joint program in its three coordinates.

The box holds all but 1e-7 of each law with room around it, since a relaxed law may be wider. The
later index has nodes wherever the earlier one has, so that a volatility of zero is representable,
and reaches far enough out for the largest volatility at both ends of the box.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from arbiter.conventions import Array
from arbiter.joint.marginals import Marginal

Mask = NDArray[np.bool_]
Strikes = tuple[Array, Array, Array]

TAIL_PROBABILITY = 1e-7  # probability beyond the box, on each side of each law
_MARGIN_FACTOR = 1.15  # beyond the quantile of TAIL
_NODES_PER_AXIS = (48, 28, 96)  # of x, v and y, for each of the two spacings
_MAX_HALF_VARIANCE = 1.0  # half variance over the window: beyond it, a VIX near 500, nodes stop
_MIN_RELATIVE_WIDTH = 0.1  # of its mean: laws narrower than this are given room
_OUTER_STRIKE_QUANTILE = 1e-4  # quantile of the first and of the last strike


@dataclass(frozen=True, eq=False)
class StateMesh:
    """Nodes without the strikes: ``x`` and ``y`` of the index, ``v`` of volatility, from zero."""

    x: Array
    v: Array
    y: Array

    @staticmethod
    def from_laws(
        laws: tuple[Marginal, Marginal, Marginal],
        tenor: float,
        nodes: tuple[int, int, int] = _NODES_PER_AXIS,
    ) -> StateMesh:
        """A mesh for three laws with ``nodes`` numbers of nodes per spacing for x, v and y."""
        near, volatility, far = laws
        ends = np.array([TAIL_PROBABILITY, 1.0 - TAIL_PROBABILITY])
        index = np.concatenate([near.quantile(ends), far.quantile(ends)])
        low, high = index.min() / _MARGIN_FACTOR, index.max() * _MARGIN_FACTOR
        top = float(volatility.quantile(ends)[1]) * _MARGIN_FACTOR**2
        top = min(top, float(np.sqrt(2.0 * _MAX_HALF_VARIANCE / tenor)))
        reach = _find_reach_factor(low, high, 0.5 * tenor * top**2)
        states, volatilities, later = nodes
        x = np.concatenate([_quantile_nodes(near, states), np.geomspace(low, high, states)])
        v = np.concatenate(
            [_quantile_nodes(volatility, volatilities), top * np.linspace(0, 1, volatilities) ** 2]
        )
        outer = np.geomspace(low / reach, high * reach, 2 * later // 3)
        y = np.concatenate([_quantile_nodes(far, later), outer])
        x = _drop_close_nodes(x[(x >= low) & (x <= high)])
        return StateMesh(
            x, _drop_close_nodes(v[v <= top]), _drop_close_nodes(np.concatenate([x, y]))
        )

    def refine_marked(self, marked: Mask) -> StateMesh:
        """The mesh with a node added in every interval of ``y`` that has a marked end."""
        middle = 0.5 * (self.y[1:] + self.y[:-1])
        return StateMesh(self.x, self.v, np.union1d(self.y, middle[marked[1:] | marked[:-1]]))

    def with_strikes(self, strikes: Strikes) -> StateMesh:
        """The mesh with the strikes added to its nodes, since payoffs bend there."""
        x, v, y = (
            np.union1d(z, K[(z[0] < K) & (z[-1] > K)])
            for z, K in zip(self.axes, strikes, strict=True)
        )
        return StateMesh(x, v, np.union1d(x, y))

    @property
    def axes(self) -> Strikes:
        """Nodes in the order of the laws: x, v, y."""
        return self.x, self.v, self.y


def place_first_strikes(laws: tuple[Marginal, Marginal, Marginal], count: int) -> Strikes:
    """About ``count`` strikes a law, half of them even in probability and half even in level."""
    found = []
    for law in laws:
        u = np.linspace(0.0, 1.0, count // 2 + 2)[1:-1]
        low, high = law.quantile(np.array([_OUTER_STRIKE_QUANTILE, 1.0 - _OUTER_STRIKE_QUANTILE]))
        # a law of few atoms is given strikes around them: a relaxed law may spread
        pad = max(_MIN_RELATIVE_WIDTH * law.mean - (high - low), 0.0)
        even = np.linspace(max(low - pad, 0.5 * low), high + pad, count - count // 2)
        strikes = np.sort(np.concatenate([law.quantile(u), even]))
        apart = np.diff(strikes) > 0.1 * (even[1] - even[0])
        found.append(strikes[np.append(apart, True)])
    near, volatility, far = found
    return near, volatility, far


def _quantile_nodes(law: Marginal, count: int) -> Array:
    u = np.linspace(0.0, 1.0, count + 2)[1:-1]
    return np.asarray(law.quantile(u), dtype=np.float64)


def _drop_close_nodes(nodes: Array) -> Array:
    """Sorted nodes without those closer to each other than a facet can resolve."""
    nodes = np.unique(nodes)
    width = 1e-4 * (nodes[-1] - nodes[0])
    return np.asarray(nodes[np.append(np.diff(nodes) > width, True)])


def _find_reach_factor(low: float, high: float, variance: float) -> float:
    """Factor by which nodes of ``y`` exceed those of ``x``, so that the widest law fits."""
    reach = _MARGIN_FACTOR
    while True:
        first, last = low / reach, high * reach
        share = (np.array([low, high]) - first) / (last - first)
        chord = np.log(first) + share * np.log(last / first)
        if (np.log([low, high]) - chord > 1.05 * variance).all():
            return reach
        reach *= 1.1
