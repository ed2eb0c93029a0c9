"""The head: proposed volatilities at the knots become slopes in the star order."""

from __future__ import annotations

import torch
from torch import Tensor

from arbiter.operators.slope_head import (
    KNOTS,
    MAX_LOG_RATIO,
    MAX_PROPOSED_LOG_RATIO,
    MAX_SLOPE,
    MIN_LOG_RATIO,
    MIN_SLOPE,
)

__all__ = ["KNOTS", "MAX_LOG_RATIO", "MIN_LOG_RATIO", "bounded", "slopes"]


def bounded(g: Tensor, start: Tensor | None) -> Tensor:
    """Proposals within what is usual, or where a start is beyond that, within the start."""
    if start is None:
        return g.clamp(-MAX_PROPOSED_LOG_RATIO, MAX_PROPOSED_LOG_RATIO)
    return torch.clamp(
        g, start.clamp(max=-MAX_PROPOSED_LOG_RATIO), start.clamp(min=MAX_PROPOSED_LOG_RATIO)
    )


def slopes(g: Tensor, total: Tensor) -> Tensor:
    """Slopes ``(B, L, n)``, nondecreasing along L, from proposals and ``log(σ√T)`` ``(B, L)``."""
    proposed = torch.exp(g.clamp(MIN_LOG_RATIO, MAX_LOG_RATIO) + total[..., None])
    return torch.cummax(proposed, 1).values.clamp(MIN_SLOPE, MAX_SLOPE)
