"""Knots, and slopes of an ordinary index smile on them."""

from __future__ import annotations

import torch
from torch import Tensor

KNOTS = {n: torch.linspace(-5.5, 4.5, n, dtype=torch.float64) for n in (5, 31, 41)}


def skewed(n: int = 31) -> Tensor:
    """Slopes of an ordinary index smile, total volatility near 20 %."""
    return 0.2 * torch.exp(-0.1 * KNOTS[n]) + 0.01 * torch.sin(3.0 * KNOTS[n])
