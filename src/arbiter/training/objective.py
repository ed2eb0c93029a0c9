"""What training minimises, and what the dual variables price.

    L(θ, λ) = fit + ⟨λ_NA, calendar⟩ + ⟨λ_mart, martingale⟩ + ⟨λ_VIX, replication⟩

*fit*: error of volatility at targets, quoted or not, from prices (price error over vega), in units
of what the spreads allow. *calendar*: calls under the gate's measure that fall from one maturity to
the next. *martingale*: the measure's mean less one, signed. *replication*: squared relative error
of log-contract variance, which is what the VIX replicates. Each block has one number per band of
total volatility, so that short and long maturities are priced apart.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from arbiter import black
from arbiter.operators.network import Output
from arbiter.operators.ragged import Ragged
from arbiter.training.batches import Batch
from arbiter.transport import Transport

BANDS = 6
_EDGES = (-3.6, -3.0, -2.4, -1.8, -1.2)  # of log(σ√T): about 3, 5, 9, 17 and 30 %
_FLOOR, _SHARE = 1e-3, 0.3  # the error that a surface with half-spreads ν is expected to have
_KNEE = 3.0  # of the Huber loss, in expected errors
_LEVELS = (-1.5, -0.75, 0.0, 0.5, 1.0)  # deviations at which calls under the measure are compared


class Terms(NamedTuple):
    """Parts of the objective.

    Attributes:
        fit: Scalar.
        defects: One vector of BANDS per dual block.
        error: ``(B, L, P)`` error of volatility over reference at the targets, 0 off them.
    """

    fit: Tensor
    defects: dict[str, Tensor]
    error: Tensor


def quotes_of(batch: Batch) -> Ragged:
    """The operator's input."""
    return Ragged(batch.T, batch.k, batch.iv, batch.half, batch.quoted)


def terms(output: Output, batch: Batch, variance: Tensor) -> Terms:
    """Parts of the objective for one batch, whose log-contract variances ``W/T`` are ``(B, L)``."""
    chain = output.chain
    transport = Transport(_knots(output), output.slopes)
    error = relative_error(transport, batch.target_k, batch.target_iv, batch.T)
    error = torch.where(batch.target, error, 0.0)
    relative = error * (batch.target_iv / chain.sigma[..., None]).clamp(max=4.0)
    near = chain.quoted & (chain.zeta.abs() < 1.5)
    noise = (torch.exp(chain.noise) * near).sum((1, 2)) / near.sum((1, 2)).clamp(min=1)
    unit = (_FLOOR + _SHARE * noise)[:, None, None]
    fit = _huber(relative / unit)[batch.target].mean()
    return Terms(
        fit,
        {
            "no_arbitrage": calendar(output),
            "martingale": martingale(output),
            "replication": replication(transport, output, variance * batch.T),
        },
        relative,
    )


def relative_error(transport: Transport, k: Tensor, iv: Tensor, T: Tensor) -> Tensor:
    """``δσ/σ`` to first order, from the ratio of prices: ``log(c/c*)·c*/(σ*·vega)``."""
    total = iv * torch.sqrt(T)[..., None]
    wide_k, wide_v = k.double(), total.double()
    price = black.otm(wide_k, wide_v).clamp(min=1e-300)
    elasticity = wide_v * black.vega(wide_k, wide_v) / price
    model = transport.otm(k)
    ratio = torch.log(model.clamp(min=1e-30)) - torch.log(price).to(k.dtype)
    return ratio / elasticity.to(k.dtype).clamp(min=0.2)


def martingale(output: Output) -> Tensor:
    """``(BANDS,)`` mean of the measure less one, over the slice's total volatility."""
    sight, chain = output.sight, output.chain
    mean = (sight.measure * sight.width * chain.moneyness).sum(-1)
    return _banded((mean - 1.0) * torch.exp(-chain.total), output)


def calendar(output: Output) -> Tensor:
    """``(BANDS,)`` by how much calls under the measure fall from one slice to the next."""
    sight, chain = output.sight, output.chain
    levels = torch.tensor(_LEVELS, dtype=chain.u.dtype, device=chain.u.device)
    strike = torch.exp(levels * torch.exp(chain.total)[..., None])  # (B, L, G)
    mass = sight.measure * sight.width

    def calls(mass: Tensor, moneyness: Tensor, at: Tensor) -> Tensor:
        paid = (moneyness[..., None, :] - at[..., None]).clamp(min=0.0)
        return (mass[..., None, :] * paid).sum(-1)

    here = calls(mass[:, :-1], chain.moneyness[:, :-1], strike[:, :-1])
    later = calls(mass[:, 1:], chain.moneyness[:, 1:], strike[:, :-1])
    seen = chain.quoted.any(-1)
    both = (seen[:, 1:] & seen[:, :-1])[..., None]
    fall = torch.where(both, (here - later).clamp(min=0.0), 0.0).sum(-1) / len(_LEVELS)
    fall = fall * torch.exp(-chain.total[:, :-1])
    return _banded(torch.nn.functional.pad(fall, (0, 1)), output)


def replication(transport: Transport, output: Output, exact: Tensor) -> Tensor:
    """``(BANDS,)`` squared relative error of log-contract variance, in percent."""
    off = torch.log(transport.log_variance() / exact).clamp(-1.0, 1.0)
    return _banded(1e2 * off * off, output)


def _banded(values: Tensor, output: Output) -> Tensor:
    """Means ``(BANDS,)`` of values ``(B, L)`` of listed slices by total volatility."""
    total = output.chain.total.detach()
    band = torch.bucketize(total, torch.tensor(_EDGES, dtype=total.dtype, device=total.device))
    seen = output.chain.quoted.any(-1)
    member = torch.nn.functional.one_hot(band, BANDS).to(values.dtype) * seen[..., None]
    return (member * values[..., None]).sum((0, 1)) / member.sum((0, 1)).clamp(min=1.0)


def _huber(x: Tensor) -> Tensor:
    size = x.abs()
    return torch.where(size < _KNEE, 0.5 * x * x, _KNEE * (size - 0.5 * _KNEE))


def _knots(output: Output) -> Tensor:
    from arbiter.operators.head import KNOTS

    return torch.tensor(KNOTS, dtype=torch.float64)
