"""Pooling: what neighbouring maturities say of the same strikes.

In units of the reference volatility smiles change slowly with maturity. So each head's value and
slope are also read off a local line along log-maturity, through the same head of all slices, each
weighed by its nearness ``e^{−|Δ log T|/span}`` and by its precision: the inverse variance of the
head's mean, from the half-spreads, and less where the head is far from any quote. A slice with few
or noisy quotes so borrows from the others, as much as the quotes' places and spreads call for and
never for what they say: for given strikes pooling is linear, with rows of absolute sum √2 at most
(docs/notebook/first-design.md).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor

from arbiter_lab.differentiable.operators.prior.reference_volatility import Scaled

POOLED_ROWS = 2.0**0.5  # how far a pooled number moves when all that it pools move by one
RIDGE = 0.25  # of the squared span: where maturities are no further apart, the line is flat
MIN_LOG_ERROR = -6.0  # log standard error: heads that claim to know more count alike
MIN_LOG_PRESENCE = -12.0  # log-mass against the best head's, doubled: less counts alike
MIN_WEIGHT_SUM = 1e-12


class Sure(Protocol):
    """What heads see of each slice: log-masses and log standard errors."""

    @property
    def mass(self) -> Tensor:
        """``(…, H)``."""

    @property
    def doubt(self) -> Tensor:
        """``(…, H)``."""


def precision(sight: Sure) -> Tensor:
    """``(…, H)`` weights of the heads of each slice: inverse variances, less off the quotes."""
    known = -2.0 * sight.doubt.clamp(min=MIN_LOG_ERROR)
    present = 2.0 * (sight.mass - sight.mass.amax(-1, keepdim=True))
    return torch.exp(known + present.clamp(min=MIN_LOG_PRESENCE))


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
    given = weight * chain.quoted.any(-1)[..., None]
    return pooled(lines, given, nearness(chain, spans, causal))


def nearness(chain: Scaled, spans: Sequence[float], causal: bool = False) -> Tensor:
    """``(B, K, 3, L, L)`` weights of each slice for each: times 1, the distance and its square.

    Distances are in units of the span.
    """
    log_T = 2.0 * (chain.total - torch.log(chain.sigma))
    apart = log_T[:, None, :] - log_T[:, :, None]  # (B, L, L): from here to there
    scaled = torch.stack([apart / span for span in spans], 1)  # (B, K, L, L)
    near = torch.exp(-scaled.abs())
    near = near.tril() if causal else near
    first = near * scaled
    return torch.stack([near, first, first * scaled], 2)


def pooled(lines: Tensor, weight: Tensor, near: Tensor) -> Tensor:
    """As :func:`pool`, with weights that are zero where nothing is quoted.

    Args:
        lines: ``(B, L, 2H)`` values and slopes of the heads.
        weight: ``(B, L, H)``.
        near: From :func:`nearness`.
    """
    B, K, _, L, _ = near.shape
    H = weight.shape[-1]
    both = lines.unflatten(-1, (2, H)) * weight[:, :, None]
    given = torch.cat([both, weight[:, :, None]], 2).flatten(2)  # (B, L, 3H)
    sums = (near.view(B, 3 * K * L, L) @ given).view(B, K, 3, L, 3, H)
    sums = sums / (sums[:, :, :1, :, 2:] + MIN_WEIGHT_SUM)
    mean, cross = sums[:, :, :2, :, :2].unbind(2)  # (B, K, L, 2, H)
    centre, second = sums[:, :, 1:, :, 2:].unbind(2)  # (B, K, L, 1, H)
    spread = (second - centre * centre).clamp(min=0.0) + RIDGE
    found = mean - centre.clamp(-1.0, 1.0) * ((cross - mean * centre) / spread)
    return found.transpose(1, 2).flatten(2)
