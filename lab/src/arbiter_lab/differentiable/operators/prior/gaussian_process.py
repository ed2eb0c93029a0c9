"""Kriging: the best guess of a whole surface, from what surfaces of the universe are like.

Gaussian-process regression in a fixed basis. In the chain's own units a surface is a function
``u(ζ, w)`` of ``ζ = asinh z`` and ``w = log(σ√T)``, here a product spline with coefficients
``F a``: the factor F holds the covariance of such functions over the training universe
(:mod:`arbiter_lab.training.prior_covariance`), so that a has unit variances. Every slice has a
level of its own beside it (:mod:`arbiter.operators.prior.slice_offsets`). Quotes are intervals, and
what they say of all that is :mod:`arbiter.operators.prior.bid_ask_likelihood`.

The smile that it guesses is the network's reference, and the slopes of a transport that prices it
(:mod:`arbiter.operators.prior.smile_to_slopes`,
:mod:`arbiter.operators.prior.star_order_projection`) are where the network starts. No weight has a
part in it.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor

from arbiter.operators.prior.gaussian_process import CLOCK, CLOCKS, MIN_VARIANCE, STRIKES, ZETA
from arbiter.operators.prior.gaussian_process import factor as shipped_factor
from arbiter.operators.prior.reference_volatility import MAX_LOG_VOLATILITY_RATIO
from arbiter_lab.differentiable.operators.prior import star_order_projection
from arbiter_lab.differentiable.operators.prior.bid_ask_likelihood import Posterior, posterior
from arbiter_lab.differentiable.operators.prior.reference_volatility import Scaled
from arbiter_lab.differentiable.operators.prior.slice_offsets import Rows, at_splines, moments
from arbiter_lab.differentiable.operators.prior.transport_prices import Smile


class Kriged(NamedTuple):
    """The reference of B chains, which a Lipschitz constant holds fixed as it does σ.

    Attributes:
        smile: ``(B, L, H)`` the guess of ``log(iv/σ)`` at each head.
        doubt: ``(B, L, H)`` logarithm of its standard error.
        start: ``(B, L, n)`` logarithm of slope over ``σ√T`` of a transport that prices it.
        miss: ``(B, L, H)`` by how much the log-volatility of that transport is short of the smile.
    """

    smile: Tensor
    doubt: Tensor
    start: Tensor
    miss: Tensor


@lru_cache(maxsize=8)
def factor(device: torch.device) -> Tensor:
    """``(NZ, NW, d)`` F of the training universe, that the package ships."""
    with torch.inference_mode(False):  # whoever asks first, others may differentiate through it
        return torch.from_numpy(shipped_factor().copy()).to(device)


def splines(x: Tensor, ends: tuple[float, float], count: int) -> Tensor:
    """``(…, count)`` cubic B-splines on even knots at x, which is cut at the ends."""
    low, high = ends
    t = (x.clamp(low, high) - low) * ((count - 3) / (high - low))
    away = (t[..., None] + 1.0 - torch.arange(count, dtype=x.dtype, device=x.device)).abs()
    inner, outer = (1.0 - away).clamp(min=0.0), (2.0 - away).clamp(min=0.0)
    return (outer**3 - 4.0 * inner**3) / 6.0


def along_clock(total: Tensor) -> Tensor:
    """``(B, L, NZ, d)`` what coefficients make of the splines along strikes, at ``log(σ√T)``."""
    F = factor(total.device)
    clock = splines(total.double(), CLOCK, CLOCKS)
    found: Tensor = (clock @ F.transpose(0, 1).flatten(1)).unflatten(-1, (F.shape[0], F.shape[2]))
    return found


class Known(NamedTuple):
    """What quotes say of coefficients and levels, and what these make of every slice.

    Attributes:
        law: Of coefficients and levels.
        slices: ``(B, L, NZ, d)`` from coefficients to the splines along strikes.
    """

    law: Posterior
    slices: Tensor

    def at(self, zeta: Tensor) -> tuple[Tensor, Tensor]:
        """``(B, L, P)`` u at strikes ``(B, L, P)`` of ζ, and its standard error."""
        rows = splines(zeta.double(), ZETA, STRIKES) @ self.slices
        mean, variance = moments(rows, self.law.belief)
        return mean, torch.sqrt(variance.clamp(min=MIN_VARIANCE))


@torch.no_grad()
def kriged(chain: Scaled, place: Tensor) -> Kriged:
    """The reference of chains at heads ``(H,)`` of ζ."""
    return at_heads(known(chain), chain, place)


@torch.no_grad()
def known(chain: Scaled) -> Known:
    """What the quotes of chains say."""
    slices = along_clock(chain.total)
    rows = splines(chain.zeta.double(), ZETA, STRIKES) @ slices  # (B, L, S, d)
    said = (chain.u.double(), torch.exp(chain.noise.double()), chain.quoted)
    return Known(posterior(Rows(rows), *(part.flatten(1) for part in said)), slices)


@torch.no_grad()
def at_heads(found: Known, chain: Scaled, place: Tensor) -> Kriged:
    """The reference of chains at heads ``(H,)`` of ζ, from what their quotes say."""
    place = place.to(found.slices)
    read = splines(place, ZETA, STRIKES)  # (H, NZ)
    nodes, covariance = at_splines(found.slices, found.law.belief)
    variance = ((read @ covariance) * read).sum(-1).clamp(min=MIN_VARIANCE)
    smile, doubt = (
        (nodes @ read.T).clamp(-MAX_LOG_VOLATILITY_RATIO, MAX_LOG_VOLATILITY_RATIO),
        0.5 * torch.log(variance),
    )
    seen = chain.quoted.any(-1)
    begun = star_order_projection.transport(Smile(smile, doubt, place, chain.total.double(), seen))
    return Kriged(*(part.to(chain.u.dtype) for part in (smile, doubt, *begun)))
