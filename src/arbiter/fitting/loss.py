"""What a miss costs: a gentle pull inside the spread, a wall at its edges, linear far out.

The last steps of a fit add a rim at the edge of the spread, fifty times as stiff as the wall.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import NamedTuple, Self

import numpy as np

from arbiter.compiled import compiled
from arbiter.conventions import Array

# In half-spreads: where the rim begins, where it is strongest, and where it ends.
_RIM_START, _RIM_TOP, _RIM_END = 0.95, 1.0, 2.0
_EARLIER_WALL = 0.2  # half-spreads by which the wall before a lone ask begins earlier
_SOFT_LOSS_FAR = 3.0  # half-spreads: where the loss of a quadratic model is linear
EXACT_LOSS_PER_QUOTE = 1e-3  # a loss per quote below this is exact: a thirtieth of a half-spread


class Cost(NamedTuple):
    """The loss of each residual, its derivative, and the weight of the Gauss-Newton step."""

    value: Array
    slope: Array
    weight: Array


@dataclass(frozen=True)
class Loss:
    """Loss of a residual ``r``, the distance from the mid in half-spreads.

    ``½ inside r²``, plus ``½ wall (|r| − edge)²`` beyond ``edge``, and linear from ``far`` on,
    so that one bad quote pulls no harder than a bounded force. The last steps of a fit add a rim,
    so that smoothness alone moves no price out of its spread. Its force rises from nothing at
    ``|r| = 0.95`` to ``rim/20`` at 1, and is back to nothing at 2: a quote that a smooth surface
    misses by another half-spread is wrong, and drags no others out.

    Attributes:
        inside: Pull towards the mid.
        wall: Stiffness at the edges of the spread, 0 for none.
        edge: Where the wall begins, in half-spreads.
        far: Where the loss turns linear, in half-spreads.
        rim: Stiffness within a twentieth of the edge of the spread. It has no part in the choice
            of roughness and in standard errors: mids near the edge are no less noisy.
    """

    inside: float = 1.0
    wall: float = 20.0
    edge: float = 0.8
    far: float = 1.2
    rim: float = 1000.0

    def __post_init__(self) -> None:
        stiff = self.inside > 0.0 and self.wall >= 0.0 and self.rim >= 0.0
        if not (stiff and 0.0 < self.edge < self.far):
            raise ValueError(
                f"{self}: inside must be positive, wall and rim not negative, and 0 < edge < far"
            )

    def without_rim(self) -> Self:
        """The loss by which roughness is chosen and standard errors are estimated."""
        return replace(self, rim=0.0)

    def soften(self) -> Self:
        """The loss of a quadratic model: without a wall, and linear far from the mid."""
        return replace(self, wall=0.0, rim=0.0, far=_SOFT_LOSS_FAR)

    def __call__(self, r: Array) -> Cost:
        """Cost of residuals ``r`` ``(m,)``."""
        cost = Cost(*np.empty((3, r.size)))
        _fill_cost(r, (self.inside, self.wall, self.edge, self.far, self.rim), cost)
        return cost

    def above(self, r: Array) -> Cost:
        """Cost of residuals on one side: no pull, and a wall from ``edge − 0.2`` on, or 0."""
        cost = Cost(*np.empty((3, r.size)))
        edge = max(self.edge - _EARLIER_WALL, 0.0)
        _fill_cost(np.maximum(r, 0.0), (0.0, self.wall, edge, self.far, self.rim), cost)
        return cost


@compiled
def _fill_cost(r: Array, shape: tuple[float, float, float, float, float], cost: Cost) -> None:
    inside, wall, edge, far, rim = shape
    for i in range(r.size):
        size = abs(r[i])
        near = min(size, far)
        past = max(near - edge, 0.0)
        force = inside * near + wall * past
        value = 0.5 * (inside * near * near + wall * past * past) + force * (size - near)
        stiffness = inside + (wall if past > 0.0 else 0.0)
        weight = stiffness if size < far else force / size  # reweighting: weight · r is the force
        if rim > 0.0 and size > _RIM_START:
            over, top = min(size, _RIM_TOP) - _RIM_START, rim * (_RIM_TOP - _RIM_START)
            beyond = min(size, _RIM_END) - _RIM_TOP
            fall = top / (_RIM_END - _RIM_TOP)
            value += 0.5 * rim * over * over
            if beyond < 0.0:
                force += rim * over
                weight += rim
            else:
                value += beyond * (top - 0.5 * fall * beyond)
                force += top - fall * beyond
                weight += (top - fall * beyond) / size
        cost.value[i], cost.weight[i] = value, weight
        cost.slope[i] = math.copysign(force, r[i])
