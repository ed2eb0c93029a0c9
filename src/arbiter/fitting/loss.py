"""What a miss costs: a gentle pull inside the spread, a wall at its edges, linear far out."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from arbiter.compiled import compiled
from arbiter.conventions import Array

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
    so that one bad quote pulls no harder than a bounded force.

    Attributes:
        inside: Pull towards the mid.
        wall: Stiffness at the edges of the spread, 0 for none.
        edge: Where the wall begins, in half-spreads.
        far: Where the loss turns linear, in half-spreads.
    """

    inside: float = 1.0
    wall: float = 20.0
    edge: float = 0.8
    far: float = 1.2

    def __post_init__(self) -> None:
        if not (self.inside > 0.0 and self.wall >= 0.0 and 0.0 < self.edge < self.far):
            raise ValueError(
                f"{self}: inside must be positive, wall not negative, and 0 < edge < far"
            )

    def __call__(self, r: Array) -> Cost:
        """Cost of residuals ``r`` ``(m,)``."""
        cost = Cost(*np.empty((3, r.size)))
        _fill_cost(r, (self.inside, self.wall, self.edge, self.far), cost)
        return cost


def hinge(r: Array, wall: float, far: float) -> Cost:
    """A wall on one side: nothing below zero, ``½ wall r²`` above, and linear from ``far`` on.

    Args:
        r: ``(m,)`` distances past the place where the wall begins.
        wall: Its stiffness.
        far: Where the loss turns linear.
    """
    past = np.clip(r, 0.0, far)
    force = wall * past
    weight = np.where(r > far, force / np.maximum(r, far), np.where(r > 0.0, wall, 0.0))
    return Cost(0.5 * force * past + force * (np.maximum(r, 0.0) - past), force, weight)


@compiled
def _fill_cost(r: Array, shape: tuple[float, float, float, float], cost: Cost) -> None:
    inside, wall, edge, far = shape
    for i in range(r.size):
        size = abs(r[i])
        near = min(size, far)
        past = max(near - edge, 0.0)
        force = inside * near + wall * past
        value = 0.5 * (inside * near * near + wall * past * past)
        cost.value[i] = value + force * (size - near)
        cost.slope[i] = math.copysign(force, r[i])
        if size < far:
            cost.weight[i] = inside + (wall if past > 0.0 else 0.0)
        else:  # reweighting: weight · r is the force
            cost.weight[i] = force / max(size, far)
