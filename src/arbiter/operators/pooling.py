"""Pooling: what neighbouring maturities say of the same strikes.

In units of the reference volatility smiles change slowly with maturity. So each head's value and
slope are also read off a local line along log-maturity, through the same head of all slices, each
weighed by its nearness ``e^{−|Δ log T|/span}`` and by its precision: the inverse variance of the
head's mean, from the half-spreads, and less where the head is far from any quote. A slice with few
or noisy quotes so borrows from the others, as much as the quotes' places and spreads call for and
never for what they say: for given strikes pooling is linear, with rows of absolute sum √2 at most
(docs/operator-architecture.md).
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from arbiter.operators.gate import Sight
from arbiter.operators.reference import Scaled

POOLED_ROWS = 2.0**0.5  # how far a pooled number moves when all that it pools move by one
_RIDGE = 0.25  # of the squared span: where maturities are no further apart, the line is flat
_SUREST = -6.0  # log standard error: heads that claim to know more count alike
_LEAST = 1e-12


def precision(sight: Sight) -> Tensor:
    """``(B, L, H)`` weights of the heads of each slice: inverse variances, less off the quotes."""
    known = -2.0 * sight.doubt.clamp(min=_SUREST)
    present = 2.0 * (sight.mass - sight.mass.amax(-1, keepdim=True))
    return torch.exp(known + present.clamp(min=-12.0))


def pool(
    lines: Tensor, weight: Tensor, chain: Scaled, spans: Sequence[float], causal: bool = False
) -> Tensor:
    """Local lines along log-maturity, one per span.

    Args:
        lines: ``(B, L, 2H)`` values and slopes of the heads.
        weight: ``(B, L, H)`` from :func:`precision`.
        chain: Whose maturities these are; slices without quotes are given, and give nothing.
        spans: Of log-maturity.
        causal: Whether longer maturities are left out.

    Returns:
        ``(B, L, K·2H)``, K the number of spans.
    """
    p = (weight * chain.quoted.any(-1)[..., None]).repeat(1, 1, 2)  # (B, L, 2H)
    log_T = 2.0 * (chain.total - torch.log(chain.sigma))
    apart = log_T[:, None, :] - log_T[:, :, None]  # (B, L, L): from here to there
    both, count = torch.cat([p * lines, p], -1), p.shape[-1]
    found = []
    for span in spans:
        near = torch.exp(-apart.abs() / span)
        near = near.tril() if causal else near
        value, mass = (near @ both).split(count, -1)
        cross, first = ((near * apart) @ both).split(count, -1)
        second = (near * apart * apart) @ p
        mass = mass + _LEAST
        mean, centre = value / mass, first / mass
        lean = (cross / mass - mean * centre) / (
            (second / mass - centre * centre).clamp(min=0.0) + _RIDGE * span * span
        )
        found.append(mean - centre.clamp(-span, span) * lean)
    return torch.cat(found, -1)
