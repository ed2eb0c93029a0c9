"""Multipliers in their boxes (design, section 7; errata 26).

The training objective is L(θ, λ) = fit(θ) + Σ ⟨λ_b, defect_b(θ)⟩ over named blocks b. It is linear
in λ, so ∇_λ L is the defect itself, and over a box its supremum has a closed form. An unbounded
λ ≥ 0, as the paper has it, makes that supremum infinite at the first positive defect.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Box:
    """Bounds and relative step size of the multipliers of one block.

    Attributes:
        size: Number of multipliers.
        low: Smallest value of each.
        high: Largest value of each.
        rate: Factor on the dual learning rate: blocks whose defects are of different sizes (a
            squared replication error beside a martingale defect) need different rates.
    """

    size: int
    low: float
    high: float
    rate: float = 1.0

    def __post_init__(self) -> None:
        if self.size < 1:
            raise ValueError(f"size must be at least 1, got {self.size}: leave the block out")
        if not (math.isfinite(self.low) and math.isfinite(self.high) and self.low <= self.high):
            raise ValueError(
                f"a box needs finite low <= high, got [{self.low}, {self.high}]: without bounds "
                "the supremum over the multipliers is infinite"
            )
        if not (math.isfinite(self.rate) and self.rate > 0.0):
            raise ValueError(f"rate must be positive, got {self.rate}")

    @classmethod
    def inequality(cls, size: int, bound: float, rate: float = 1.0) -> Box:
        """Multipliers in [0, bound]: of inequalities (defect ≤ 0) and of squares."""
        return cls(size, 0.0, bound, rate)

    @classmethod
    def signed(cls, size: int, bound: float, rate: float = 1.0) -> Box:
        """Multipliers in [−bound, bound]: of defects with a sign, as the martingale's."""
        return cls(size, -bound, bound, rate)


class Duals:
    """Named blocks of multipliers; all of them in one vector, so that a step is one kernel.

    >>> duals = Duals({"martingale": Box.signed(2, 10.0), "replication": Box.inequality(1, 5.0)})
    >>> defects = {"martingale": torch.tensor([0.5, -1.0]), "replication": torch.tensor([0.2])}
    >>> float(duals.inner_product(defects)), float(duals.box_supremum(defects))
    (0.0, 16.0)
    """

    def __init__(
        self,
        boxes: Mapping[str, Box],
        *,
        device: torch.device | str | None = None,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        """Start at the point of each box nearest to zero.

        Args:
            boxes: Name and box of each block, for example ``no_arbitrage``, ``martingale`` and
                ``replication``. No block at all is allowed: the problem is then a minimum.
            device: Device of the vector of multipliers.
            dtype: Floating-point type of the vector.
        """
        self.boxes = dict(boxes)
        sizes = [box.size for box in self.boxes.values()]

        def repeat_by_block(field: str) -> Tensor:
            values = [getattr(box, field) for box in self.boxes.values()]
            repeated = [value for value, n in zip(values, sizes, strict=True) for _ in range(n)]
            return torch.tensor(repeated, dtype=dtype, device=device)

        self.low, self.high = repeat_by_block("low"), repeat_by_block("high")
        self.rate = repeat_by_block("rate")
        self.vector = torch.zeros_like(self.low).clamp_(self.low, self.high)
        self._views: dict[str, Tensor] = dict(
            zip(self.boxes, self.vector.split(sizes), strict=True)
        )

    def __getitem__(self, block: str) -> Tensor:
        """The multipliers of one block: a view, which moves with the optimiser's steps."""
        return self._views[block]

    def __contains__(self, block: object) -> bool:
        return block in self._views

    def gradient(self, defects: Mapping[str, Tensor]) -> Tensor:
        """∇_λ L: the defects in the order of the blocks, without their graph."""
        return self._concatenate_defects(defects).detach().to(self.vector.dtype)

    def inner_product(self, defects: Mapping[str, Tensor]) -> Tensor:
        """Σ ⟨λ, defect⟩, what the multipliers add to the fit."""
        return (self.vector * self._concatenate_defects(defects)).sum()

    def box_supremum(self, defects: Mapping[str, Tensor]) -> Tensor:
        """Supremum over the boxes of Σ ⟨λ, defect⟩, in closed form."""
        flat = self._concatenate_defects(defects)
        return torch.maximum(self.low * flat, self.high * flat).sum()

    def residual(self, defects: Mapping[str, Tensor]) -> Tensor:
        """Natural residual ‖λ − Π(λ + ∇_λ L)‖: zero iff λ maximises L(θ, ·) over its box.

        The norm of the gradient would not do: at the maximiser of a box it need not vanish
        (errata 27). A residual bounds no distance (errata 30).
        """
        moved = (self.vector + self.gradient(defects)).clamp_(self.low, self.high)
        residual: Tensor = torch.linalg.vector_norm(self.vector - moved)
        return residual

    @torch.no_grad()
    def take_projected_step(self, start: Tensor, gradient: Tensor, step: float) -> None:
        """Set λ to Π(start + step · rate · gradient)."""
        self.vector.copy_((start + step * self.rate * gradient).clamp_(self.low, self.high))

    @torch.no_grad()
    def assign(self, vector: Tensor) -> None:
        """Set all multipliers; values outside a box, or not finite, are refused."""
        if vector.shape != self.vector.shape:
            raise ValueError(
                f"there are {self.vector.numel()} multipliers, got the shape {tuple(vector.shape)}"
            )
        vector = vector.to(self.vector)
        if not bool(((vector >= self.low) & (vector <= self.high)).all()):
            raise ValueError(
                "multipliers outside their box: the boxes are not those they were trained in"
            )
        self.vector.copy_(vector)

    def _concatenate_defects(self, defects: Mapping[str, Tensor]) -> Tensor:
        if defects.keys() != self.boxes.keys():
            raise ValueError(
                f"defects for {sorted(defects)}, multipliers for {sorted(self.boxes)}: each block "
                "needs both"
            )
        if not self.boxes:
            return self.vector
        for name, box in self.boxes.items():
            if defects[name].shape != (box.size,):
                raise ValueError(
                    f"defect {name!r} has the shape {tuple(defects[name].shape)}, its block has "
                    f"{box.size} multipliers: reduce it to the shape ({box.size},)"
                )
        return torch.cat([defects[name] for name in self.boxes])
