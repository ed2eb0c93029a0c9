"""Prices and shape defects of the paper's ICNN decoder in training.

Training uses each maturity's potential before the running maximum along maturities and before the
floor at intrinsic value: both would hide a violation from the gradient.
"""

from __future__ import annotations

import torch
from torch import Tensor

from arbiter_lab.differentiable.operators.network.convex_decoder import ICNNDecoder
from arbiter_lab.differentiable.operators.network.network import Output
from arbiter_lab.differentiable.pricing.black import call_parity

_SHAPE_REACH_DEVIATIONS, _SHAPE_STRIKES = (
    4.0,
    25,
)  # deviations and strikes at which shapes are looked at
_STRIP_DEVIATIONS = (
    -8.0,
    6.0,
    57,
)  # deviations over which variance is replicated, the forward among them
_MAX_LOG_STRIKE = 14.0  # log-strike


def price_calls(icnn: ICNNDecoder, output: Output, k: Tensor) -> Tensor:
    """The potentials' calls ``(B, L, P)`` at log-strikes ``(B, L, P)`` of each maturity's own."""
    unit = torch.exp(output.chain.total)[..., None]
    return unit * icnn.potential(output.features, torch.expm1(k) / unit)


def otm(icnn: ICNNDecoder, output: Output, k: Tensor) -> Tensor:
    """The potentials' prices out of the money; negative where they are below intrinsic value."""
    return price_calls(icnn, output, k) - call_parity(k)


def price_monotone_otm(icnn: ICNNDecoder, output: Output, k: Tensor) -> Tensor:
    """Out-of-the-money prices as the decoder gives them: the largest so far, from intrinsic up.

    The decoder asks for strikes shared by all maturities; here each has its own, which takes a
    pass over the later maturities for each one.
    """
    best = torch.zeros_like(k)
    unit = torch.exp(output.chain.total)
    for early in range(k.shape[1]):
        h = output.features[:, early : early + 1].expand(-1, k.shape[1] - early, -1)
        own = unit[:, early, None, None]
        later = k[:, early:]
        price = own * icnn.potential(h, torch.expm1(later) / own) - call_parity(later)
        best[:, early:] = torch.maximum(best[:, early:], price)
    return best


def measure_shape_defects(icnn: ICNNDecoder, output: Output) -> Tensor:
    """Return ``(B, L)`` sizes of the potentials' violations, in units of ``σ√T``.

    Falls of calls from one maturity to the next at equal strikes, slopes in strike outside
    [−1, 0], and prices below intrinsic value; each a mean over strikes.
    """
    unit = torch.exp(output.chain.total)[..., None]
    deviations = torch.linspace(
        -_SHAPE_REACH_DEVIATIONS,
        _SHAPE_REACH_DEVIATIONS,
        _SHAPE_STRIKES,
        dtype=unit.dtype,
        device=unit.device,
    )
    k = deviations * unit
    here = price_calls(icnn, output, k)
    kappa = torch.exp(k)
    intrinsic = (1.0 - kappa).clamp(min=0.0)
    below = (intrinsic - here).clamp(min=0.0).mean(-1)
    slope = torch.diff(here) / torch.diff(kappa)
    steep = (slope.clamp(min=0.0) + (-1.0 - slope).clamp(min=0.0)).mean(-1) * unit[..., 0]
    strikes, before = k[:, :-1], here[:, :-1]
    after = unit[:, 1:] * icnn.potential(output.features[:, 1:], torch.expm1(strikes) / unit[:, 1:])
    seen = output.chain.quoted.any(-1)
    both = seen[:, 1:] & seen[:, :-1]
    fall = torch.where(both, (before - after).clamp(min=0.0).mean(-1), 0.0)
    total = below + steep + torch.nn.functional.pad(fall, (0, 1))
    return total / unit[..., 0]


def log_variance(icnn: ICNNDecoder, output: Output) -> Tensor:
    """``(B, L)`` ``2 ∫ otm e^{−k} dk``, the replication of the log contract's variance."""
    unit = torch.exp(output.chain.total)
    low, high, count = _STRIP_DEVIATIONS
    deviations = torch.linspace(low, high, count, dtype=unit.dtype, device=unit.device)
    # far strikes of long maturities are cut before e^{−k} overflows
    k = (deviations * unit[..., None]).clamp(-_MAX_LOG_STRIKE, _MAX_LOG_STRIKE)
    strip = torch.trapezoid(otm(icnn, output, k) * torch.exp(-k), k, dim=-1)
    # at the forward calls become puts, whose slope is larger by one: Euler and Maclaurin's term
    step = (high - low) / (count - 1) * unit
    return 2.0 * (strip - step**2 / 12.0)
