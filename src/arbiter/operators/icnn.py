"""The paper's decoder to the letter (section 3.3): an input-convex potential per maturity.

In units of its own volatility a slice is ``c = σ√T · Φ(ξ)``, ``ξ = (κ − 1)/σ√T``. The potential Φ is an
input-convex network (Amos, Xu and Kolter 2017): every layer sees ξ through a skip connection, what
it takes from the layer below has nonnegative weights, and activations are convex and rising,

    z₁ = a(u₁ξ + b₁),   z_{i+1} = a(W_i z_i + u_{i+1}ξ + b_{i+1}),   W_i ≥ 0,

with u and b read off the features of the maturity. The activation is Bachelier's call price,
``a(x) = x N(x) + φ(x)``, so that one unit is a Gaussian law and wings are not exponential. Slope in
T is positive: each maturity adds ``(Φ_ℓ − c_{ℓ−1})+`` to the one before.

What holds whatever the weights are: prices are convex in strike, do not fall in maturity and are not
below ``(1 − κ)+``. What does not: ``c(0) = 1``, slopes within [−1, 0] and ``c(∞) = 0``. Convex
potentials that share these values at every maturity cannot differ by convex increments
(docs/errata.md), so the letter leaves them to training, and to
:func:`arbiter.operators.projection.project`.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

_ROOT_TWO_PI = math.sqrt(2.0 * math.pi)
_STEEPEST = 3.0  # logarithm of a unit's scale against that of the slice


def bachelier(x: Tensor) -> Tensor:
    """``x N(x) + φ(x)``: convex, rising, and positive."""
    # by erfc of the far side, so that a small value is not a difference of larger ones
    tail = 0.5 * torch.special.erfc(x.abs() / math.sqrt(2.0))
    density = torch.exp(-0.5 * x * x) / _ROOT_TWO_PI
    return torch.clamp(density - x.abs() * tail, min=0.0) + torch.clamp(x, min=0.0)


class ICNNDecoder(nn.Module):
    """Features of maturities and strikes in, call prices out.

    Args:
        features: d, the width of the features.
        width: Of the hidden layers.
        layers: Hidden layers, one or more.
    """

    def __init__(self, features: int, width: int = 64, layers: int = 2) -> None:
        super().__init__()
        for name, value in (("features", features), ("width", width), ("layers", layers)):
            if value < 1:
                raise ValueError(f"{name} = {value!r} must be at least one")
        self.width, self.layers = width, layers
        # the law that training starts at, one unit: log-scale of the slice's own volatility
        self.sharpness = nn.Linear(features, 1)
        self.skips = nn.Linear(features, 2 * width * layers)  # u and b of every layer
        self.rest = nn.Linear(features, 2)  # of the potential: its own skip connection
        self.inner = nn.ParameterList(
            nn.Parameter(torch.randn(width, width) - math.log(width)) for _ in range(layers - 1)
        )
        self.outer = nn.Parameter(torch.randn(width) - math.log(width) - 4.0)
        for layer in (self.sharpness, self.rest):
            nn.init.zeros_(layer.weight)
            nn.init.zeros_(layer.bias)
        with torch.no_grad():
            start = self.skips.bias.view(layers, 2, width)
            start[:, 0] = -1.0  # laws of different centres, not all the same
            start[:, 1] = torch.linspace(-3.0, 3.0, width)

    def forward(self, h: Tensor, kappa: Tensor, total: Tensor) -> Tensor:
        """Calls ``(B, L, P)`` in forward units.

        Args:
            h: ``(B, L, d)`` features, maturities in increasing order.
            kappa: ``(B, L, P)`` strikes over forward. Prices rise from maturity to maturity at
                equal strikes, so that the strikes must be the same for every maturity.
            total: ``(B, L)`` logarithm of a slice's own ``σ√T``.
        """
        if kappa.shape[:2] != h.shape[:2] or total.shape != h.shape[:2]:
            raise ValueError(
                f"h {tuple(h.shape)}, kappa {tuple(kappa.shape)} and total {tuple(total.shape)} "
                "must be (B, L, d), (B, L, P) and (B, L)"
            )
        if kappa.shape[1] > 1 and not torch.equal(kappa[:, 1:], kappa[:, :-1]):
            raise ValueError("kappa must be the same for every maturity: calendars compare them")
        unit = torch.exp(total)[..., None]  # (B, L, 1)
        proposed = unit * self.potential(h, (kappa - 1.0) / unit)
        first = torch.maximum(proposed, torch.clamp(1.0 - kappa, min=0.0))
        return torch.cummax(first, 1).values  # c_ℓ = c_{ℓ−1} + (Φ_ℓ − c_{ℓ−1})+

    def potential(self, h: Tensor, xi: Tensor) -> Tensor:
        """Φ, convex in ``xi`` ``(B, L, P)``."""
        sharp = torch.exp(self.sharpness(h).clamp(-_STEEPEST, _STEEPEST))  # (B, L, 1)
        found = bachelier(-sharp * xi) / sharp
        skips = self.skips(h).unflatten(-1, (self.layers, 2, 1, self.width))  # (B, L, i, 2, 1, H)
        z = bachelier(skips[:, :, 0, 0] * xi[..., None] + skips[:, :, 0, 1])  # (B, L, P, H)
        for i, raw in enumerate(self.inner, start=1):
            through = z @ nn.functional.softplus(raw).T
            z = bachelier(through + skips[:, :, i, 0] * xi[..., None] + skips[:, :, i, 1])
        rest = self.rest(h)[..., None]  # (B, L, 2, 1)
        return found + z @ nn.functional.softplus(self.outer) + rest[:, :, 0] * xi + rest[:, :, 1]
