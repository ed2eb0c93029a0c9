"""A law per slice as the operator proposes it: ``X = e^{a + s(Z)}``, not yet of mean one.

``s`` has the slopes ``σ√T e^g`` at the knots and is zero at ``x = 0``; ``a`` is the shift. The law
is a positive density w over moneyness, and its prices are ``∫ φ w dκ`` for any payoff φ. What it
lacks to be a surface are its defects: a mean that is not one, and slopes that fall with maturity.

Shapes: B chains, L maturities, n knots, P strikes.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor

from arbiter.operators.law.config import ORDER_WIDTH
from arbiter.operators.slope_head import KNOTS, MAX_LOG_RATIO, MAX_SLOPE, MIN_LOG_RATIO, MIN_SLOPE
from arbiter_lab.differentiable.operators.prior.star_order_projection import min_max
from arbiter_lab.differentiable.pricing import normal
from arbiter_lab.differentiable.pricing.knots import Knots
from arbiter_lab.differentiable.pricing.transport import Transport

UNQUOTED_WEIGHT = 1e-6  # of a maturity without quotes in the decoder: it follows the others


class Law(NamedTuple):
    """Laws of B chains.

    Attributes:
        log_ratio: ``(B, L, n)`` g, the logarithm of slope over ``σ√T``.
        shift: ``(B, L)`` a.
    """

    log_ratio: Tensor
    shift: Tensor

    def slopes(self, total: Tensor) -> Tensor:
        """``(B, L, n)`` slopes, from ``log(σ√T)`` ``(B, L)``."""
        ratio = self.log_ratio.clamp(MIN_LOG_RATIO, MAX_LOG_RATIO)
        return torch.exp(ratio + total[..., None]).clamp(MIN_SLOPE, MAX_SLOPE)


class LawPrices(NamedTuple):
    """Prices of a law at strikes.

    Attributes:
        price: ``(B, L, P)`` out-of-the-money prices.
        x: ``(B, L, P)`` Gaussian percentile of each strike.
        log_mean: ``(B, L)`` ``log E X``.
    """

    price: Tensor
    x: Tensor
    log_mean: Tensor


def knots() -> Tensor:
    """``(n,)`` the knots, on the CPU: the transport keeps them on the device of its slopes."""
    return torch.tensor(KNOTS, dtype=torch.float64)


def prior_law(start: Tensor, total: Tensor) -> Law:
    """The law of mean one with log-ratios ``start`` ``(B, L, n)``, where a look begins."""
    law = Law(start, torch.zeros_like(total))
    return Law(start, -Transport(knots(), law.slopes(total)).log_mean)


def price_law(law: Law, total: Tensor, k: Tensor, grid: Knots | None = None) -> LawPrices:
    """Prices of laws at log-strikes ``(B, L, P)``, by the integrals of the decoder.

    ``E(X − κ)+ = E X · E(X/E X − κ/E X)+``: the normalised law at strikes moved by its mean.

    Args:
        law: The laws.
        total: ``(B, L)`` ``log(σ√T)``.
        k: Log-strikes.
        grid: The knots, prepared; what is compiled needs that.
    """
    transport = Transport(knots() if grid is None else grid, law.slopes(total))
    log_mean = law.shift + transport.log_mean
    point = transport.at_strike(k - log_mean[..., None])
    price = transport.price_at(point, k >= 0.0) * torch.exp(log_mean)[..., None]
    return LawPrices(price, point.x, log_mean)


def law_density(law: Law, total: Tensor, k: Tensor) -> Tensor:
    """``(B, L, P)`` the density w per unit of κ: ``φ(x) / (κ b(x))``."""
    transport = Transport(knots(), law.slopes(total))
    log_mean = law.shift + transport.log_mean
    point = transport.at_strike(k - log_mean[..., None])
    return normal.scaled_pdf(-k, point.x) / point.b


def martingale_defect(log_mean: Tensor, total: Tensor) -> Tensor:
    """``(B, L)`` ``(E X − 1)/(σ√T)``."""
    return torch.expm1(log_mean) * torch.exp(-total)


def order_defect(law: Law, total: Tensor) -> Tensor:
    """``(B, L−1, n)`` falls of log-slopes to the next maturity, weighed by a wide Gaussian.

    The mean of the weights is one.
    """
    fall = (-torch.diff(law.log_ratio + total[..., None], dim=1)).clamp(min=0.0)
    return fall * knot_weights(fall.device).to(fall.dtype)


def decode(law: Law, total: Tensor, seen: Tensor) -> Tensor:
    """``(B, L, n)`` slopes of the surface, float64: the nearest that do not fall with maturity.

    Isotonic regression of log-slopes at each knot, of which no distance grows in sup norm. The
    decoder of prices has mean one by itself, and leaves the shift out.

    Args:
        law: The proposal.
        total: ``(B, L)`` ``log(σ√T)``.
        seen: ``(B, L)`` maturities with quotes.
    """
    log_slopes = (law.log_ratio.double() + total.double()[..., None]).mT  # (B, n, L)
    weight = (seen.double() + UNQUOTED_WEIGHT)[:, None].expand_as(log_slopes)
    ordered = min_max(log_slopes.flatten(0, 1), weight.flatten(0, 1)).view_as(log_slopes)
    return torch.exp(ordered.mT).clamp(MIN_SLOPE, MAX_SLOPE)


@lru_cache(maxsize=4)
def knot_weights(device: torch.device) -> Tensor:
    """``(n,)`` how much falling slopes count at each knot, of mean one."""
    with torch.inference_mode(False):
        weight = torch.exp(-0.5 * (knots() / ORDER_WIDTH) ** 2)
        return (weight / weight.mean()).to(device)
