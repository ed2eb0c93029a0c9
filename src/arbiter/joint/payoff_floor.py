"""Lower bound of a position's payoff over a whole box of states: the proof that it never loses.

In a cell ``[x_a, x_b] × [v_a, v_b]`` between strikes, with the hedge of one facet held throughout,
the floor separates into a linear function plus a logarithm of x and a quadratic in v; each has its
least value at an end or at one stationary point. So the least payoff over a cell is known exactly
for a given hedge, and the best of the hedges at its corners is a floor that no point of the cell
undercuts. Cells where that is not enough are cut in four.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from arbiter.conventions import Array
from arbiter.joint.envelope import Envelope, Places
from arbiter.joint.instruments import Position
from arbiter.joint.strike_mesh import StateMesh

_MAX_CUTS = 12  # times that a cell is cut
_MAX_CELLS = 60_000  # cells at once; with more left over the floor is what it is by then


class PayoffFloor(NamedTuple):
    """A lower bound of the payoff over the box, and states at which the position loses."""

    least: float
    x: Array
    v: Array
    loss: Array


class StateCells(NamedTuple):
    """Rectangles of states, ``(m,)`` each."""

    x_low: Array
    x_high: Array
    v_low: Array
    v_high: Array

    @staticmethod
    def from_mesh(mesh: StateMesh) -> StateCells:
        """The cells between the nodes of a mesh."""
        x_low, v_low = np.meshgrid(mesh.x[:-1], mesh.v[:-1], indexing="ij")
        x_high, v_high = np.meshgrid(mesh.x[1:], mesh.v[1:], indexing="ij")
        return StateCells(x_low.ravel(), x_high.ravel(), v_low.ravel(), v_high.ravel())

    def corners(self) -> tuple[Array, Array]:
        """``(4, m)`` states at the corners of the cells."""
        x = np.stack([self.x_low, self.x_high, self.x_low, self.x_high])
        return x, np.stack([self.v_low, self.v_low, self.v_high, self.v_high])

    def cut_in_four(self, which: NDArray[np.bool_]) -> StateCells:
        """The cells that a mask picks, each cut in four."""
        x_low, x_high, v_low, v_high = (part[which] for part in self)
        x, v = 0.5 * (x_low + x_high), 0.5 * (v_low + v_high)
        return StateCells(
            np.concatenate([x_low, x, x_low, x]),
            np.concatenate([x, x_high, x, x_high]),
            np.concatenate([v_low, v_low, v, v]),
            np.concatenate([v, v, v_high, v_high]),
        )


def hedged_payoffs(
    position: Position, hedges: Envelope, x: Array, v: Array
) -> tuple[Array, Places]:
    """Payoff of position and best hedge at the worst later level, and the hedge, by state."""
    value, facet = hedges.floor(x, v)
    logs = position.near_log + position.far_log
    value = value + position.near(x) + logs * position.log_contract(x)
    return value + position.volatility(v) + (position.square + position.far_log) * v * v, facet


def find_payoff_floor(
    position: Position, hedges: Envelope, mesh: StateMesh, tolerance: float
) -> PayoffFloor:
    """The least payoff over the box of a mesh, refined where it seems below ``−tolerance``.

    ``hedges`` must be lowered, else the bound holds at the nodes of the later index only. A cell
    with a corner that loses more than the tolerance is not cut further: the corner is returned.
    """
    cells, least = StateCells.from_mesh(mesh), np.inf
    lost: list[tuple[Array, Array, Array]] = []
    for depth in range(_MAX_CUTS + 1):
        x, v = cells.corners()
        value, facet = hedged_payoffs(position, hedges, x.ravel(), v.ravel())
        value, facet = value.reshape(x.shape), facet.reshape(x.shape)
        bound = np.full(x.shape[1], -np.inf)
        for plane in hedges.planes[facet]:
            bound = np.maximum(
                bound,
                _minimise_over_x(position, plane, cells) + _minimise_over_v(position, plane, cells),
            )
        worst = value.argmin(0)[None]
        loses = np.take_along_axis(value, worst, 0)[0] < -tolerance
        lost.append(tuple(np.take_along_axis(part, worst, 0)[0, loses] for part in (x, v, -value)))
        unsure = (bound < -tolerance) & ~loses
        least = min(least, float(bound[~unsure].min(initial=np.inf)))
        if depth == _MAX_CUTS or 4 * unsure.sum() > _MAX_CELLS or not unsure.any():
            least = min(least, float(bound.min(initial=np.inf)))
            break
        cells = cells.cut_in_four(unsure)
    x_lost, v_lost, loss = (np.concatenate(parts) for parts in zip(*lost, strict=True))
    return PayoffFloor(least, x_lost, v_lost, loss)


def _minimise_over_x(position: Position, plane: Array, cells: StateCells) -> Array:
    """Least value over each cell of ``near(x) + logs·ℓ(x) + α + βx + γ log x``."""
    low, high = cells.x_low, cells.x_high
    intercept, slope = position.near.linear_piece(0.5 * (low + high))
    b = slope + plane[:, 1]
    c = plane[:, 2] - 2.0 / position.tenor * (position.near_log + position.far_log)
    with np.errstate(divide="ignore", invalid="ignore"):
        still = np.where((c < 0.0) & (b > 0.0), -c / b, low)
    still = np.clip(still, low, high)
    least = np.minimum.reduce([b * z + c * np.log(z) for z in (low, still, high)])
    return np.asarray(intercept + plane[:, 0] + least)


def _minimise_over_v(position: Position, plane: Array, cells: StateCells) -> Array:
    """Least value over each cell of ``volatility(v) + (square + far_log − γΔ/2) v²``."""
    low, high = cells.v_low, cells.v_high
    intercept, b = position.volatility.linear_piece(0.5 * (low + high))
    c = position.square + position.far_log - 0.5 * position.tenor * plane[:, 2]
    with np.errstate(divide="ignore", invalid="ignore"):
        still = np.where(c > 0.0, -0.5 * b / c, low)
    still = np.clip(still, low, high)
    return np.asarray(
        intercept + np.minimum.reduce([b * z + c * z * z for z in (low, still, high)])
    )
