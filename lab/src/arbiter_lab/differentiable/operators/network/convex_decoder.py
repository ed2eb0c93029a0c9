"""The paper's decoder to the letter (section 3.3): an input-convex potential per maturity.

In units of its own volatility a slice is ``c = σ√T · Φ(ξ)``, ``ξ = (κ − 1)/σ√T``. The potential Φ
is an input-convex network (Amos, Xu and Kolter 2017): every layer sees ξ through a skip
connection, what it takes from the layer below has nonnegative weights, and activations are convex
and rising,

    z₁ = a(u₁ξ + b₁),   z_{i+1} = a(W_i z_i + u_{i+1}ξ + b_{i+1}),   Φ = Σ w_i·z_i + uξ + b,

``W_i ≥ 0`` and ``w_i ≥ 0`` by softplus; u, b and w are read off the features of the maturity, W are
shared. The activation is Bachelier's call price,
``a(x) = x N(x) + φ(x)``, so that one unit is a Gaussian law and wings are not exponential. Slope in
T is positive: each maturity adds ``(Φ_ℓ − c_{ℓ−1})+`` to the one before.

What holds whatever the weights are: prices are convex in strike, do not fall in maturity and are
not below ``(1 − κ)+``. What does not: ``c(0) = 1``, slopes within [−1, 0] and ``c(∞) = 0``. Convex
potentials that share these values at every maturity cannot differ by convex increments
(docs/errata.md), so the letter leaves them to training, and to
:func:`arbiter_lab.baselines.grid_projection.project`.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

_ROOT_TWO_PI = math.sqrt(2.0 * math.pi)
_MAX_LOG_SCALE = 3.0  # logarithm of a unit's scale against that of the slice


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
        self.skips = nn.Linear(features, 2 * width * layers)  # log-scales and centres of units
        self.shares = nn.Linear(features, width * layers)
        self.rest = nn.Linear(features, 2)  # the potential's own skip connection
        self.inner = nn.ParameterList(
            nn.Parameter(torch.randn(width, width) - math.log(width)) for _ in range(layers - 1)
        )
        nn.init.zeros_(self.rest.weight)
        nn.init.zeros_(self.rest.bias)
        with torch.no_grad():
            # training starts near one Gaussian: centres and scales whose variances add up to one
            for layer in (self.skips, self.shares):
                layer.weight.mul_(0.3)
            place = self.skips.bias.view(layers, 2, width)
            place[:, 0], place[:, 1] = math.log(0.7), torch.linspace(-1.25, 1.25, width)
            share = self.shares.bias.view(layers, width)
            share[0], share[1:] = _inverse(1.0 / width), _inverse(1e-3 / width)

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
        skips = self.skips(h).unflatten(-1, (self.layers, 2, 1, self.width))  # (B, L, i, 2, 1, H)
        scale = torch.exp(
            skips[:, :, :, 0].clamp(-_MAX_LOG_SCALE, _MAX_LOG_SCALE)
        )  # (B, L, i, 1, H)
        reach = (skips[:, :, :, 1] - xi[:, :, None, :, None]) / scale  # (B, L, i, P, H)
        shares = scale * nn.functional.softplus(self.shares(h).unflatten(-1, (self.layers, 1, -1)))
        z = bachelier(reach[:, :, 0])  # (B, L, P, H)
        found = (shares[:, :, 0] * z).sum(-1)
        for i, raw in enumerate(self.inner, start=1):
            z = bachelier(z @ nn.functional.softplus(raw).T + reach[:, :, i])
            found = found + (shares[:, :, i] * z).sum(-1)
        rest: Tensor = self.rest(h)[..., None]  # (B, L, 2, 1)
        return found + rest[:, :, 0] * xi + rest[:, :, 1]


def _inverse(share: float) -> float:
    """Where softplus is ``share``."""
    return math.log(math.expm1(share))
