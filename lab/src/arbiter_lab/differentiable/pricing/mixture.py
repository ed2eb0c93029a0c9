"""The nested mixtures of :class:`arbiter.pricing.mixture.Mixture` on tensors, with gradients.

Only what adds up with the weights: quantiles need a root that is the library's.
"""

from __future__ import annotations

import torch
from torch import Tensor

from arbiter_lab.differentiable.pricing.black import call_parity, put_parity
from arbiter_lab.differentiable.pricing.transport import Transport


class Mixture:
    """Slices of a nested mixture.

    Args:
        knots: ``(n,)`` Gaussian coordinates.
        slopes: ``(…, J, L, n)`` positive slopes per component and maturity.
        weights: ``(…, J, L)`` component weights; None when J = 1.
    """

    def __init__(self, knots: Tensor, slopes: Tensor, weights: Tensor | None = None) -> None:
        if weights is None and slopes.shape[-3] != 1:
            raise ValueError(f"{slopes.shape[-3]} components need weights of shape (…, J, L)")
        self.parts = Transport(knots, slopes)
        self.weights = (
            torch.ones(slopes.shape[:-1], dtype=slopes.dtype, device=slopes.device)
            if weights is None
            else weights
        )
        self.single = slopes.shape[-3] == 1

    def _weighted_sum(self, parts: Tensor) -> Tensor:
        """Weighted sum over components of ``(…, J, L, m)``."""
        return parts[..., 0, :, :] if self.single else (self.weights[..., None] * parts).sum(-3)

    def _add_component_axis(self, points: Tensor) -> Tensor:
        """Points ``(…, L, m)`` (or ``(m,)``) for every component."""
        return points.unsqueeze(-3) if points.dim() > 1 else points

    def otm(self, k: Tensor) -> Tensor:
        """Out-of-the-money prices ``(…, L, m)``: calls for ``k ≥ 0``, puts below."""
        return self._weighted_sum(self.parts.otm(self._add_component_axis(k)))

    def call(self, k: Tensor) -> Tensor:
        """Call prices, the in-the-money side by parity."""
        return self.otm(k) + call_parity(k)

    def put(self, k: Tensor) -> Tensor:
        """Put prices, the in-the-money side by parity."""
        return self.otm(k) + put_parity(k)

    def cdf(self, k: Tensor) -> Tensor:
        """``P(X ≤ κ)``."""
        return self._weighted_sum(self.parts.cdf(self._add_component_axis(k)))

    def digital(self, k: Tensor) -> Tensor:
        """``P(X > κ)``."""
        return self._weighted_sum(self.parts.digital(self._add_component_axis(k)))

    def density(self, k: Tensor) -> Tensor:
        """Density of X per unit of κ."""
        return self._weighted_sum(self.parts.density(self._add_component_axis(k)))

    def log_variance(self) -> Tensor:
        """Total log-contract variance ``W``, shape ``(…, L)``."""
        return self._weighted_sum(self.parts.log_variance()[..., None])[..., 0]
