"""The exponential moving average of the parameters: what is evaluated and shipped."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor


class ParameterAverage:
    """``mean ← mean + (1 − decay)(θ − mean)``, with a shorter memory while steps are few.

    Args:
        params: What is averaged; the average starts as a copy.
        decay: Between 0, which follows at once, and 1. After n steps at most ``1 − 1/(n + 1)``
            counts, so that the start is forgotten.
    """

    @torch.no_grad()
    def __init__(self, params: Iterable[Tensor], decay: float) -> None:
        if not 0.0 <= decay < 1.0:
            raise ValueError(f"decay must lie in [0, 1), got {decay}")
        self.params, self.decay = list(params), decay
        self.mean = [p.detach().clone() for p in self.params]

    # Without no_grad the parameters, which require gradients, would tie every step's autograd
    # graph to the average: memory grows, and a recording cannot be made.
    @torch.no_grad()
    def update(self, steps: int) -> None:
        """Update the average with the parameters after step ``steps``."""
        torch._foreach_lerp_(self.mean, self.params, 1.0 - min(self.decay, 1.0 - 1.0 / steps))

    @torch.no_grad()
    def copy_to(self, params: Iterable[Tensor]) -> None:
        """Write the average into other parameters of the same shapes."""
        torch._foreach_copy_(list(params), self.mean)

    @torch.no_grad()
    def load(self, mean: Sequence[Tensor]) -> None:
        """Set the average."""
        torch._foreach_copy_(self.mean, [m.to(own) for m, own in zip(mean, self.mean, strict=True)])
