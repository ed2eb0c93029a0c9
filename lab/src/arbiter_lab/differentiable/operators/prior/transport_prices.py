"""Prices of smiles and of transports at the places where smiles are given.

Shapes: M slices, B chains of L, H places of ``asinh z``, n knots, G points of a quadrature.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor

from arbiter.operators.prior.smile_to_slopes import MAX_WING_LOG_RATIO
from arbiter.operators.prior.transport_prices import (
    DERIVATIVE_STRIDE,
    FULL_WEIGHT_PRICE,
    MIN_ELASTICITY,
    MIN_INFORMATIVE_PRICE,
    MIN_RELATIVE_IV_ERROR,
    POSITIVE_FLOOR,
    QUADRATURE_STEP,
)
from arbiter.operators.prior.transport_prices import build_quadrature as build_nodes
from arbiter_lab.differentiable.pricing import black, normal


class Smile(NamedTuple):
    """Smiles to be priced.

    Attributes:
        u: ``(B, L, H)`` ``log(iv/σ)`` at the places.
        doubt: ``(B, L, H)`` logarithm of its standard error.
        place: ``(H,)`` of ``asinh z``, increasing.
        total: ``(B, L)`` ``log(σ√T)``.
        seen: ``(B, L)`` where anything is quoted: the others have to follow.
    """

    u: Tensor
    doubt: Tensor
    place: Tensor
    total: Tensor
    seen: Tensor

    @property
    def level(self) -> Tensor:
        """``(M, 1)`` ``σ√T``."""
        return torch.exp(self.total).flatten()[:, None]

    def of(self, chains: Tensor) -> Smile:
        """Some of the chains."""
        return Smile(
            self.u[chains], self.doubt[chains], self.place, self.total[chains], self.seen[chains]
        )


class PricedSmile(NamedTuple):
    """Smiles as prices, slice by slice.

    Attributes:
        log_price: ``(M, H)`` of the smile.
        elasticity: ``(M, H)`` of that price to volatility.
        says: ``(M, H)`` how far a price says anything, from 0 to 1.
        trust: ``(M, H)`` weights of squared misses: that, times what the smile knows.
    """

    log_price: Tensor
    elasticity: Tensor
    says: Tensor
    trust: Tensor

    def miss(self, price: Tensor) -> Tensor:
        """``(M, H)`` by how much the log-volatility of prices is short of the smile's."""
        return ((self.log_price - torch.log(price)) / self.elasticity).clamp(-1.0, 1.0)


def price_smile(smile: Smile) -> PricedSmile:
    """Prices of a smile at its places, with their weights and elasticities."""
    level = smile.level
    v = level * torch.exp(smile.u.flatten(0, 1).clamp(-MAX_WING_LOG_RATIO, MAX_WING_LOG_RATIO))
    k = torch.sinh(smile.place) * level
    price = black.otm(k, v).clamp(min=POSITIVE_FLOOR)
    elasticity = (v * black.vega(k, v) / price).clamp(min=MIN_ELASTICITY)
    known = torch.exp(2.0 * smile.doubt.flatten(0, 1)) + MIN_RELATIVE_IV_ERROR**2
    says = ((price - MIN_INFORMATIVE_PRICE) / (FULL_WEIGHT_PRICE - MIN_INFORMATIVE_PRICE)).clamp(
        0.0, 1.0
    )
    says = says * smile.seen.flatten()[:, None]
    return PricedSmile(torch.log(price), elasticity, says, says / known)


class LaidTransports(NamedTuple):
    """Transports along a quadrature, to be priced at given places.

    A put is worth ``∫ Φ(x) dX(x)`` up to its strike and a call ``∫ Φ(−x) dX(x)`` from there: sums
    of positive terms, good to a thousandth in the far tails too.

    Attributes:
        share: ``(M, G)`` Gaussian weight times X, of mean one.
        put: ``(M, G)`` integrands.
        call: ``(M, G)``
        at: ``(M, H)`` the point of the quadrature above each place.
        between: ``(M, H)`` where it lies between that and the point below.
        level: ``(M, 1)`` ``σ√T``.
        above: ``(H,)`` whether a place is above the money.
    """

    share: Tensor
    put: Tensor
    call: Tensor
    at: Tensor
    between: Tensor
    level: Tensor
    above: Tensor

    def prices(self) -> Tensor:
        """``(M, H)`` out-of-the-money prices over the forward."""
        t, half = self.between, 0.5 * QUADRATURE_STEP
        puts, calls = _trapezoid(self.put), _trapezoid(self.call.flip(1)).flip(1)

        def part(integrand: Tensor, whole: Tensor, near: Tensor, far: Tensor, t: Tensor) -> Tensor:
            first = integrand.gather(1, near)
            here = torch.lerp(first, integrand.gather(1, far), t)
            return whole.gather(1, near) + half * t * (first + here)

        below, above = self.at - 1, self.at
        put = part(self.put, puts, below, above, t)
        call = part(self.call, calls, above, below, 1.0 - t)
        return torch.where(self.above, call, put).clamp(min=POSITIVE_FLOOR)

    def derivatives(self, b: Tensor) -> Tensor:
        """``(M, H, n)`` of the prices to log-slopes, which for a step may be coarser."""
        hats = build_quadrature(b.device).risen[::DERIVATIVE_STRIDE]  # (G/2, n)
        share = self.share[:, ::DERIVATIVE_STRIDE] * DERIVATIVE_STRIDE
        moved = share[..., None] * (hats - (share @ hats)[:, None])
        below = moved.cumsum(1) - 0.5 * moved
        place = (self.at - 1 + self.between) / DERIVATIVE_STRIDE
        first = place.long().clamp(max=len(hats) - 2)
        wide = first[..., None].expand(-1, -1, b.shape[-1])
        inside = (place - first)[..., None]
        part = torch.lerp(below.gather(1, wide), below.gather(1, wide + 1), inside)
        return -self.level[..., None] * part * b[:, None]


def lay_transports(b: Tensor, z: Tensor, level: Tensor) -> LaidTransports:
    """Transports with slopes ``(M, n)`` over ``σ√T``, and where places ``(H,)`` of z lie."""
    known = build_quadrature(b.device)
    along = b @ known.risen.T  # (M, G) log-moneyness over level, but for a constant
    along = along - along[:, along.shape[1] // 2, None]
    share = torch.exp(level * along) * known.weight
    mass = share.sum(-1, keepdim=True)
    share, along = share / mass, along - torch.log(mass) / level
    at = torch.searchsorted(along, z.expand(len(b), -1).contiguous()).clamp(1, along.shape[1] - 1)
    low, high = along.gather(-1, at - 1), along.gather(-1, at)
    between = ((z - low) / (high - low)).clamp(0.0, 1.0)
    rising = level * torch.exp(level * along) * (b @ known.hats.T)
    return LaidTransports(
        share, rising * known.below, rising * known.above, at, between, level, z >= 0.0
    )


def _trapezoid(integrand: Tensor) -> Tensor:
    """``(M, G)`` integrals up to each point."""
    sums = integrand.cumsum(1)
    return QUADRATURE_STEP * (sums - 0.5 * (integrand + integrand[:, :1]))


class _Quadrature(NamedTuple):
    """Points of a Gaussian coordinate.

    Attributes:
        weight: ``(G,)`` Gaussian weights.
        below: ``(G,)`` Φ(x).
        above: ``(G,)`` Φ(−x).
        hats: ``(G, n)`` the hats at the knots, the outermost flat beyond.
        risen: ``(G, n)`` their integrals.
    """

    weight: Tensor
    below: Tensor
    above: Tensor
    hats: Tensor
    risen: Tensor


@lru_cache(maxsize=8)
def build_quadrature(device: torch.device) -> _Quadrature:
    """Gaussian quadrature nodes with the hats of the knots and their integrals."""
    with torch.inference_mode(False):
        x, hats, risen = (torch.from_numpy(part).to(device) for part in build_nodes())
        weight = normal.pdf(x) * QUADRATURE_STEP
        return _Quadrature(weight, normal.cdf(x), normal.cdf(-x), hats, risen)
