"""Mixtures of two laws: with a small probability the market follows a more volatile law.

Prices of a mixture are the mixture of prices, with the same weights at every maturity. It is
therefore free of arbitrage like its components, and so is its log contract a mixture. A single law
has one source of skew. With a rare second law, puts far out of the money stay expensive while the
smile near the money stays mild, at all maturities, as on listed indices.

Shapes as in :mod:`arbiter_lab.training.law_pool`: N laws, M maturities, Z strikes.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from arbiter_lab.differentiable.pricing import black
from arbiter_lab.training.resolved_strikes import mask_near_money, mask_resolved_outwards

if TYPE_CHECKING:  # pools are made with mixtures
    from arbiter_lab.training.law_pool import Laws

WILD_LAW_PROBABILITIES = (0.004, 0.3)  # of the wilder law
MIN_RESOLVED_PRICE = 1e-8  # of the forward: what laws do not resolve is a hundredth of it
_NEGLIGIBLE_PRICE = 1e-9  # below it at its last strike a law is extended with flat volatility
_LAWS_PER_CHUNK = 256


def draw_mixtures(
    laws: Laws, share: float, rng: np.random.Generator, deepest: float, first: int = 0
) -> Laws:
    """Return the pool with a share of its laws replaced by mixtures with other laws of it.

    Args:
        laws: The pool.
        share: Share of the laws to replace.
        rng: Random number generator.
        deepest: Least volatility over reference near the money; a mixture below it, or one that is
            not resolved there, is discarded.
        first: Number of leading laws that are neither replaced nor mixed.
    """
    others_too = len(laws) - first
    count = min(int(share * len(laws)), others_too) if others_too > 1 else 0
    if count == 0:
        return laws
    device = laws.iv.device
    chosen = rng.permutation(others_too)[:count]
    partners = first + (chosen + rng.integers(1, others_too, count)) % others_too
    chosen = first + chosen
    low, high = np.log(WILD_LAW_PROBABILITIES)
    chance = torch.as_tensor(np.exp(rng.uniform(low, high, count)), device=device)
    rows = torch.as_tensor(chosen, device=device)
    others = torch.as_tensor(partners, device=device)
    # ordered by the reference volatility some months ahead
    middle_reference = laws.reference[:, laws.T.numel() // 2]
    swapped = middle_reference[rows] > middle_reference[others]
    calm, wild = torch.where(swapped, others, rows), torch.where(swapped, rows, others)
    reference, iv = laws.reference.clone(), laws.iv.clone()
    middle = mask_near_money(laws.z)
    for start in range(0, count, _LAWS_PER_CHUNK):
        part = slice(start, start + _LAWS_PER_CHUNK)
        found = mix(laws, calm[part], wild[part], chance[part])
        near = found.iv[..., middle] / found.reference[..., None]
        good = (near > deepest).flatten(1).all(1)  # false for NaN too
        reference[rows[part]] = torch.where(
            good[:, None], found.reference, laws.reference[rows[part]]
        )
        iv[rows[part]] = torch.where(good[:, None, None], found.iv, laws.iv[rows[part]])
    return replace(laws, reference=reference, iv=iv)


def mix(laws: Laws, calm: Tensor, wild: Tensor, chance: Tensor) -> Laws:
    """Return ``(n,)`` mixtures of laws ``calm`` with laws ``wild`` of probability ``chance``."""
    T, root = laws.T.double(), torch.sqrt(laws.T.double())
    weights = torch.stack([1.0 - chance, chance]).double()  # (2, n)
    parts = torch.stack([calm, wild])
    reference = torch.sqrt((weights[..., None] * laws.reference[parts].double() ** 2).sum(0))
    k = laws.z.double() * (reference * root)[..., None]  # (n, M, Z)
    price = torch.zeros_like(k)
    for rows, weight in zip(parts, weights, strict=True):
        price += weight[:, None, None] * _price_laws(laws, rows, k)
    known = mask_resolved_outwards(price > MIN_RESOLVED_PRICE, laws.z)  # false for NaN too
    price = torch.where(known, price, torch.nan)
    v = black.implied_total_volatility(price, k).volatility
    return replace(laws, reference=reference.float(), iv=(v / torch.sqrt(T)[:, None]).float())


def _price_laws(laws: Laws, rows: Tensor, k: Tensor) -> Tensor:
    """``(n, M, Z)`` out-of-the-money prices of laws at log-strikes, at the pool's maturities."""
    n, M, Z = len(rows), laws.T.numel(), laws.z.numel()
    iv = laws.iv[rows]
    place = torch.arange(Z, device=iv.device)
    known = torch.isfinite(iv)
    first = torch.where(known, place, Z).amin(-1, keepdim=True)
    last = torch.where(known, place, -1).amax(-1, keepdim=True)
    # where a law is not resolved it is worth all but nothing: its last volatility will do
    whole = iv.gather(-1, torch.minimum(torch.maximum(place.expand(iv.shape), first), last))
    filled = replace(laws, reference=laws.reference[rows], iv=whole)
    T = laws.T.expand(n, M)
    scale = (laws.reference[rows] * torch.sqrt(laws.T)).double()[..., None]
    z = k / scale
    low, high = float(laws.z[0]), float(laws.z[-1])
    inside = z.clamp(low, high)
    found = filled.volatility_at(
        torch.arange(n, device=iv.device), T, (inside * scale).float()
    ).double()
    total = found * torch.sqrt(laws.T.double())[:, None]
    price = black.otm(k, total)
    ends = laws.z[[0, -1]].double() * scale
    edge = black.otm(ends, whole[..., [0, -1]].double() * torch.sqrt(laws.T.double())[:, None])
    unknown = ((z < low) & (edge[..., :1] > _NEGLIGIBLE_PRICE)) | (
        (z > high) & (edge[..., 1:] > _NEGLIGIBLE_PRICE)
    )
    return torch.where(unknown, torch.nan, price)
