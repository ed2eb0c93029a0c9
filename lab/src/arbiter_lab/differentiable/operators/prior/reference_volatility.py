"""The reference volatility: level and clock of a chain, by which everything is divided.

The torch version of :mod:`arbiter.operators.prior.reference_volatility`,
which has the reasons and the glossary.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from arbiter.operators.prior.reference_volatility import (
    AT_MONEY_WIDTH_SD,
    DIVISION_FLOOR,
    FAR_WEIGHT,
    LOG_MATURITY_BANDWIDTH,
    MATURITY_RIDGE,
    MAX_LOG_VOLATILITY_RATIO,
    MAX_RELATIVE_HALF_SPREAD,
    MIN_ATM_LOG_IV_ERROR,
    MIN_RELATIVE_HALF_SPREAD,
    MIN_SLICE_WEIGHT,
    OFF_MONEY_ERROR,
    STRIKE_RIDGE,
    WEIGHT_HALF_SPREAD_FLOOR,
)
from arbiter_lab.differentiable.operators.quote_tensors import Ragged, trapezoid


class Scaled(NamedTuple):
    """A chain in units of its reference volatility.

    Attributes:
        sigma: ``(B, L)`` the reference volatility σ.
        total: ``(B, L)`` ``log(σ√T)``.
        zeta: ``(B, L, S)`` ``asinh z`` of the strikes, z in deviations.
        u: ``(B, L, S)`` ``log(iv/σ)``, zero where nothing is quoted.
        noise: ``(B, L, S)`` log of the half-spread over the volatility.
        moneyness: ``(B, L, S)`` ``K/F``.
        spacing: ``(B, L, S)`` quadrature weights over ζ, zero where nothing is quoted.
        width: ``(B, L, S)`` quadrature weights over moneyness.
        quoted: ``(B, L, S)``.
        gap: ``(B, L)`` log-maturity since the maturity before; 1 if none before has quotes.
        ahead: ``(B, L)`` log-maturity to the next one; 1 if none beyond has quotes.
    """

    sigma: Tensor
    total: Tensor
    zeta: Tensor
    u: Tensor
    noise: Tensor
    moneyness: Tensor
    spacing: Tensor
    width: Tensor
    quoted: Tensor
    gap: Tensor
    ahead: Tensor


def scaled(quotes: Ragged) -> Scaled:
    """Divide chains by their own levels.

    Args:
        quotes: Maturities and strikes in increasing order; each chain with at least one quote.
    """
    root = torch.sqrt(quotes.T)
    relative = torch.clamp(
        quotes.half / quotes.iv, MIN_RELATIVE_HALF_SPREAD, MAX_RELATIVE_HALF_SPREAD
    )
    weight = quotes.quoted / (relative**2 + WEIGHT_HALF_SPREAD_FLOOR**2)
    log_iv = torch.log(quotes.iv)
    level, doubt = _levels(quotes, log_iv, weight, root)
    log_T = torch.log(quotes.T)
    log_sigma = _smoothed(level, doubt, log_T, quotes.listed)
    sigma = torch.exp(log_sigma)
    z = quotes.k / (sigma * root)[..., None]
    u = torch.clamp(
        log_iv - log_sigma[..., None], -MAX_LOG_VOLATILITY_RATIO, MAX_LOG_VOLATILITY_RATIO
    )
    between, listed = torch.diff(log_T), quotes.listed.long()
    begun, left = listed.cumsum(1)[:, :-1] > 0, listed.flip(1).cumsum(1).flip(1)[:, 1:] > 0
    one = torch.ones_like(log_T[:, :1])
    zeta, moneyness = torch.asinh(z), torch.exp(quotes.k)
    spacing, width = trapezoid(torch.stack([zeta, moneyness]), quotes.quoted)
    return Scaled(
        sigma=sigma,
        total=torch.log(sigma * root),
        zeta=zeta,
        u=torch.where(quotes.quoted, u, 0.0),
        noise=torch.log(relative),
        moneyness=moneyness,
        spacing=spacing,
        width=width,
        quoted=quotes.quoted,
        gap=torch.cat([one, torch.where(begun, between, 1.0)], 1),
        ahead=torch.cat([torch.where(left, between, 1.0), one], 1),
    )


def _levels(quotes: Ragged, log_iv: Tensor, weight: Tensor, root: Tensor) -> tuple[Tensor, Tensor]:
    """``(B, L)`` log-volatility at the money of each slice by a local line, and its variance."""
    far = torch.where(quotes.quoted, quotes.k.abs(), torch.inf)
    nearest = far.argmin(-1, keepdim=True)
    level = log_iv.gather(-1, nearest)[..., 0]
    for _ in range(2):
        z = quotes.k / (torch.exp(level) * root)[..., None]
        # a slice quoted in its wings alone still has a level
        near = weight * (
            torch.exp(-0.5 * (z / AT_MONEY_WIDTH_SD) ** 2) + FAR_WEIGHT / (1.0 + z * z)
        )
        mass = near.sum(-1) + DIVISION_FLOOR
        share = near / mass[..., None]
        centre = (share * z).sum(-1)
        mean = (share * log_iv).sum(-1)
        spread = (share * (z - centre[..., None]) ** 2).sum(-1)
        lean = (share * (z - centre[..., None]) * log_iv).sum(-1) / (spread + STRIKE_RIDGE)
        level = mean - torch.clamp(centre, -1.0, 1.0) * lean
    away = (share * z * z).sum(-1)
    return level, 1.0 / mass.clamp(min=MIN_SLICE_WEIGHT) + (OFF_MONEY_ERROR * away) ** 2


def _smoothed(level: Tensor, doubt: Tensor, log_T: Tensor, listed: Tensor) -> Tensor:
    """Levels along maturity, by a local line in log-maturity; a slice without quotes follows."""
    apart = log_T[:, None, :] - log_T[:, :, None]  # (B, L, L): from here to there
    # a slice quoted far from the money alone is doubted, and still all that a chain may have
    trust = torch.where(listed, 1.0 / (doubt + MIN_ATM_LOG_IV_ERROR**2), 0.0)[:, None, :]
    near = trust * (
        torch.exp(-0.5 * (apart / LOG_MATURITY_BANDWIDTH) ** 2) + FAR_WEIGHT / (1.0 + apart * apart)
    )
    share = near / near.sum(-1, keepdim=True)
    there = torch.where(trust > 0.0, level[:, None, :], 0.0)
    centre, mean = (share * apart).sum(-1), (share * there).sum(-1)
    off = apart - centre[..., None]
    lean = (share * off * there).sum(-1) / ((share * off**2).sum(-1) + MATURITY_RIDGE)
    return mean - torch.clamp(centre, -1.0, 1.0) * lean
