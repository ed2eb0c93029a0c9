"""Masks of a pool's strikes: near the money, and resolved from the money outwards.

Shapes: N laws, M maturities, Z strikes.
"""

from __future__ import annotations

import torch
from torch import Tensor

_NEAR_MONEY_DEVIATIONS = (-2.0, 1.5)  # every smile must be resolved between them


def mask_near_money(z: Tensor) -> Tensor:
    """Return which strikes ``(Z,)``, in deviations, lie near the money."""
    return (z > _NEAR_MONEY_DEVIATIONS[0]) & (z < _NEAR_MONEY_DEVIATIONS[1])


def mask_resolved_outwards(resolved: Tensor, z: Tensor) -> Tensor:
    """Return which strikes are resolved together with all strikes between them and the money.

    Args:
        resolved: ``(N, M, Z)`` whether the price at each strike is resolved.
        z: ``(Z,)`` strikes in deviations, increasing.
    """
    below = int((z < 0.0).sum())
    inner = torch.cat(
        [
            torch.cumprod(resolved[..., :below].flip(-1).to(torch.int8), -1).flip(-1),
            torch.cumprod(resolved[..., below:].to(torch.int8), -1),
        ],
        -1,
    )
    return inner > 0
