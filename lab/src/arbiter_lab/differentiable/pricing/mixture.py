"""Nested mixtures of transport slices: laws with a separate crash mode, free of arbitrage.

Component j is a mean-one transport that dominates component j−1, its slopes at least as large
everywhere; ``P(J ≥ j)`` does not fall with maturity (docs/theory.md, section 6). Prices,
probabilities, delta, density and log variance add up with the weights; quantiles, and with
them the Lorenz curve and the CVaR, need one scalar root. One component costs nothing extra.
"""

from __future__ import annotations

import torch
from torch import Tensor

from arbiter_lab.differentiable.pricing import normal
from arbiter_lab.differentiable.pricing.black import call_parity, put_parity
from arbiter_lab.differentiable.pricing.transport import Transport

# Bisections, then Newton steps: the bracket shrinks by 2^-30 before quadratic convergence.
_BISECTION_STEPS = 30
_NEWTON_STEPS = 4


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

    def gamma(self, k: Tensor) -> Tensor:
        """``κ² f(κ)``, the gamma of a unit of forward."""
        return self._weighted_sum(self.parts.gamma(self._add_component_axis(k)))

    def delta(self, k: Tensor) -> Tensor:
        """Forward call delta at sticky moneyness, ``E[X; X > κ]``."""
        return self._weighted_sum(self.parts.delta(self._add_component_axis(k)))

    def log_variance(self) -> Tensor:
        """Total log-contract variance ``W``, shape ``(…, L)``."""
        return self._weighted_sum(self.parts.log_variance()[..., None])[..., 0]

    def z(self, k: Tensor) -> Tensor:
        """Z-coordinate of a strike, computed from whichever tail is smaller.

        With several components it is infinite where that tail underflows, past about 38.
        """
        if self.single:
            return self.parts.z(self._add_component_axis(k))[..., 0, :, :]
        coordinate = self.parts.z(self._add_component_axis(k))
        below, above = (
            self._weighted_sum(normal.cdf(coordinate)),
            self._weighted_sum(normal.cdf(-coordinate)),
        )
        left = below <= above
        tail = normal.quantile(torch.where(left, below, above))
        return torch.where(left, tail, -tail)

    def log_strike(self, z: Tensor) -> Tensor:
        """Log-strike at a Z-coordinate, the inverse of :meth:`z`."""
        by_part = self.parts.log_strike(self._add_component_axis(z))  # the root lies between these
        if self.single:
            return by_part[..., 0, :, :]
        with torch.no_grad():
            low, high = by_part.amin(-3), by_part.amax(-3)
            for _ in range(_BISECTION_STEPS):
                middle = 0.5 * (low + high)
                under = self.z(middle) < z
                low, high = torch.where(under, middle, low), torch.where(under, high, middle)
            k = 0.5 * (low + high)
            for _ in range(_NEWTON_STEPS - 1):
                k = torch.clamp(self._newton_step(k, z), low, high)
        return self._newton_step(k.detach(), z)  # carries the first derivative

    def _newton_step(self, k: Tensor, z: Tensor) -> Tensor:
        """One step towards ``P(X ≤ e^k) = Φ(z)``, on the side of the smaller tail."""
        coordinate = self.parts.z(self._add_component_axis(k))
        miss = torch.where(
            z < 0.0,
            self._weighted_sum(normal.cdf(coordinate)) - normal.cdf(z),
            normal.cdf(-z) - self._weighted_sum(normal.cdf(-coordinate)),
        )
        rate = self.density(k) * torch.exp(k)
        return k - miss / torch.clamp(rate, min=torch.finfo(rate.dtype).tiny)

    def quantile(self, u: Tensor) -> Tensor:
        """The κ below which X lies with probability ``u``."""
        return torch.exp(self.log_strike(normal.quantile(u)))

    def dual(self, q: Tensor) -> Tensor:
        """Dual potential ``G(q)``, the upper Lorenz curve."""
        k = self.log_strike(-normal.quantile(q))
        # G = c + κ q at q's own strike; a first-order error in k cancels (envelope)
        return self.call(k) + torch.exp(k) * q

    def cvar(self, q: Tensor, tail: str = "upper") -> Tensor:
        """Mean of X in its upper (``G(q)/q``) or lower tail of probability ``q``."""
        if tail == "upper":
            return self.dual(q) / q
        if tail == "lower":
            k = self.log_strike(normal.quantile(q))
            return torch.exp(k) - self.put(k) / q
        raise ValueError(f"tail must be 'upper' or 'lower', got {tail!r}")
