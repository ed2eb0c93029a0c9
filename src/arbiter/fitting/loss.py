"""What a miss costs: a gentle pull inside the spread, a wall at its edges, linear far out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

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
        """Cost of residuals ``r``."""
        size = np.abs(r)
        near = np.minimum(size, self.far)
        past = np.maximum(near - self.edge, 0.0)
        force = self.inside * near + self.wall * past
        value = 0.5 * (self.inside * near * near + self.wall * past * past)
        value += force * (size - near)
        weight = np.where(
            size < self.far,
            self.inside + self.wall * (past > 0.0),
            force / np.maximum(size, self.far),  # reweighting: weight · r is the force
        )
        return Cost(value, np.copysign(force, r), weight)
