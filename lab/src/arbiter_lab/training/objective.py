"""The training objective: error of volatility, and the defects with multipliers.

    L(θ, λ) = fit + ⟨λ_NA, calendar⟩ + ⟨λ_mart, martingale⟩ + ⟨λ_VIX, replication⟩

*fit*: error of volatility at targets, quoted or not, from prices (price error over vega), in units
of what the quotes allow: the standard error of kriging there. *calendar*: calls under the gate's
measure that fall from one maturity to the next. *martingale*: the measure's mean less one, signed.
*replication*: squared relative error of log-contract variance, which is what the VIX replicates.
Each block has one number per band of total volatility, so that short and long maturities are priced
apart.

With the paper's own decoder prices are its potential's, and what that leaves open (prices that fall
with maturity, slopes outside [−1, 0], values below intrinsic) is added to the calendar block
(:mod:`.convex_decoder_prices`).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from arbiter.operators.slope_head import KNOTS
from arbiter_lab.differentiable.operators.network.convex_decoder import ICNNDecoder
from arbiter_lab.differentiable.operators.network.network import Output
from arbiter_lab.differentiable.operators.prior.gaussian_process import Kriged, at_heads, known
from arbiter_lab.differentiable.operators.prior.reference_volatility import Scaled, scaled
from arbiter_lab.differentiable.operators.quote_tensors import Ragged
from arbiter_lab.differentiable.pricing import black
from arbiter_lab.differentiable.pricing.transport import Transport
from arbiter_lab.training import convex_decoder_prices
from arbiter_lab.training.batches import Batch

BAND_COUNT = 6
_BAND_EDGES = (-3.6, -3.0, -2.4, -1.8, -1.2)  # of log(σ√T): about 3, 5, 9, 17 and 30 %
_ERROR_FLOOR = 1e-3  # error of volatility over reference that nobody minds
_MIN_LOG_PRICE = -50.0  # of a price that errors are divided by: targets are worth 1e-8 or more
_MAX_RELATIVE_PRICE_ERROR = (
    30.0  # of a relative error of price: beyond, the potential only has to come back
)
_CALENDAR_DEVIATIONS = (
    -1.5,
    -0.75,
    0.0,
    0.5,
    1.0,
)  # deviations at which calls under the measure are compared


class ReferenceVolatilities(Protocol):
    """Laws whose log-contract volatility is known: a pool, or exact values."""

    def reference_at(self, rows: Tensor, T: Tensor, /) -> Tensor:
        """``(B, L)`` log-contract volatility of laws ``(B,)`` at maturities ``(B, L)``."""
        ...


class TrainingTask(NamedTuple):
    """The quantities of a batch that do not depend on the parameters.

    Attributes:
        chain: Quotes in their own units: the operator's input.
        k: ``(B, L, P)`` log-strikes of the targets.
        log_price: ``(B, L, P)`` logarithm of their exact out-of-the-money prices.
        scale: ``(B, L, P)`` what turns a difference of log-prices into one of volatility over
            reference, to first order: ``σ*/σ`` over the elasticity of the price.
        weight: ``(B, L, P)`` one over the error that the quotes allow, zero off the targets.
        log_variance: ``(B, L)`` exact log-contract variance W(T).
        guess: Kriging of the chain; None for a network without it.
    """

    chain: Scaled
    k: Tensor
    log_price: Tensor
    scale: Tensor
    weight: Tensor
    log_variance: Tensor
    guess: Kriged | None = None

    def select_surfaces(self, rows: slice) -> TrainingTask:
        """Return the task of some of the surfaces."""
        return TrainingTask.from_tensors(tuple(x[rows] for x in self.to_tensors()))

    def to_tensors(self) -> tuple[Tensor, ...]:
        """Return all tensors as one tuple, the input of recorded functions."""
        return (*self.chain, *self[1:6], *(self.guess or ()))

    @classmethod
    def from_tensors(cls, tensors: Sequence[Tensor]) -> TrainingTask:
        """Build a task from the tuple of :meth:`to_tensors`."""
        count = len(Scaled._fields)
        chain, own, guess = tensors[:count], tensors[count : count + 5], tensors[count + 5 :]
        k, log_price, scale, weight, log_variance = own
        known = Kriged(*guess) if guess else None
        return cls(Scaled(*chain), k, log_price, scale, weight, log_variance, known)


class ObjectiveTerms(NamedTuple):
    """Terms of the objective on a batch.

    Attributes:
        fit: Robust error of volatility, a scalar.
        defects: One vector ``(BAND_COUNT,)`` per dual block.
        error: ``(B, L, P)`` error of volatility over reference at the targets.
    """

    fit: Tensor
    defects: dict[str, Tensor]
    error: Tensor


def make_task(
    batch: Batch, laws: ReferenceVolatilities, place: Tensor | None = None
) -> TrainingTask:
    """Return the training task of a batch.

    Args:
        batch: Quotes and targets.
        laws: The laws of the batch, for the exact log-contract variance.
        place: ``(H,)`` coordinates ζ of the heads at which kriging is evaluated; none if left out.
    """
    chain = scaled(Ragged(batch.T, batch.k, batch.iv, batch.half, batch.quoted))
    k, total = batch.target_k.double(), (batch.target_iv * torch.sqrt(batch.T)[..., None]).double()
    price = black.otm(k, total).clamp(min=1e-300)
    elasticity = (total * black.vega(k, total) / price).clamp(min=0.2)
    said = known(chain)
    _, doubt = said.at(scale_strikes(chain, batch.target_k))
    allowed = torch.sqrt(_ERROR_FLOOR**2 + doubt.to(batch.T.dtype) ** 2)
    dtype = batch.T.dtype
    return TrainingTask(
        chain,
        batch.target_k,
        torch.log(price).to(dtype),
        ((batch.target_iv / chain.sigma[..., None]).clamp(max=4.0) / elasticity).to(dtype),
        batch.target / allowed,
        laws.reference_at(batch.rows, batch.clock) ** 2 * batch.clock,
        None if place is None else at_heads(said, chain, place),
    )


def scale_strikes(chain: Scaled, k: Tensor) -> Tensor:
    """Log-strikes ``(B, L, P)`` in a chain's own units, ζ."""
    return torch.asinh(k * torch.exp(-chain.total)[..., None])


def compute_terms(
    output: Output, task: TrainingTask, icnn: ICNNDecoder | None = None, knee: float = 6.0
) -> ObjectiveTerms:
    """Compute the terms of the objective for one batch.

    Args:
        output: Output of the network for ``task.chain``.
        task: The training task of the batch.
        icnn: The ICNN decoder of the network; None for the decoder of transports.
        knee: Error, in units of the expected one, above which the loss grows logarithmically.
    """
    calendars = calendar_defects(output)
    if icnn is None:
        transport = Transport(torch.tensor(KNOTS, dtype=torch.float64), output.slopes)
        price = transport.otm(task.k).clamp(min=1e-30)
        # by logarithms: a wing that is too cheap is as wrong as one that is too dear
        error = (torch.log(price) - task.log_price) * task.scale
        variance = transport.log_variance()
    else:
        price = convex_decoder_prices.otm(icnn, output, task.k)  # may be negative
        # places that are no targets may be worth so little that one over it overflows, and infinity
        # times the clamp's zero is no gradient
        exact = task.log_price.clamp(min=_MIN_LOG_PRICE)
        error = (price * torch.exp(-exact) - 1.0).clamp(
            -_MAX_RELATIVE_PRICE_ERROR, _MAX_RELATIVE_PRICE_ERROR
        ) * task.scale
        variance = convex_decoder_prices.log_variance(icnn, output)
        calendars = calendars + _average_by_band(
            convex_decoder_prices.measure_shape_defects(icnn, output), output
        )
    fit = robust_loss(error * task.weight, knee).sum() / (task.weight > 0.0).sum().clamp(min=1)
    return ObjectiveTerms(
        fit,
        {
            "no_arbitrage": calendars,
            "martingale": martingale_defects(output),
            "replication": replication_defects(variance, output, task.log_variance),
        },
        error,
    )


def martingale_defects(output: Output) -> Tensor:
    """``(BAND_COUNT,)`` mean of the measure less one, over the slice's total volatility."""
    sight, chain = output.sight, output.chain
    mean = (sight.measure * sight.width * chain.moneyness).sum(-1)
    return _average_by_band((mean - 1.0) * torch.exp(-chain.total), output)


def calendar_defects(output: Output) -> Tensor:
    """``(BAND_COUNT,)`` by how much calls under the measure fall from one slice to the next."""
    sight, chain = output.sight, output.chain
    deviations = _cached_tensor(_CALENDAR_DEVIATIONS, chain.u.dtype, chain.u.device)
    strike = torch.exp(deviations * torch.exp(chain.total)[..., None])  # (B, L, G)
    mass = sight.measure * sight.width

    def calls(mass: Tensor, moneyness: Tensor, at: Tensor) -> Tensor:
        paid = (moneyness[..., None, :] - at[..., None]).clamp(min=0.0)
        return (mass[..., None, :] * paid).sum(-1)

    here = calls(mass[:, :-1], chain.moneyness[:, :-1], strike[:, :-1])
    later = calls(mass[:, 1:], chain.moneyness[:, 1:], strike[:, :-1])
    seen = chain.quoted.any(-1)
    both = (seen[:, 1:] & seen[:, :-1])[..., None]
    fall = torch.where(both, (here - later).clamp(min=0.0), 0.0).sum(-1) / len(_CALENDAR_DEVIATIONS)
    fall = fall * torch.exp(-chain.total[:, :-1])
    return _average_by_band(torch.nn.functional.pad(fall, (0, 1)), output)


def replication_defects(variance: Tensor, output: Output, exact: Tensor) -> Tensor:
    """``(BAND_COUNT,)`` squared relative error of log-contract variance ``(B, L)``, in percent."""
    off = torch.log(variance.clamp(min=1e-12) / exact).clamp(-1.0, 1.0)
    return _average_by_band(1e2 * off * off, output)


def _average_by_band(values: Tensor, output: Output) -> Tensor:
    """Means ``(BAND_COUNT,)`` of values ``(B, L)`` of listed slices by total volatility."""
    return average_by_band(values, output.chain.total, output.chain.quoted.any(-1))


def average_by_band(values: Tensor, total: Tensor, seen: Tensor) -> Tensor:
    """Means ``(BAND_COUNT, …)`` of values ``(B, L, …)`` of seen slices by total volatility."""
    total = total.detach().contiguous()
    band = torch.bucketize(total, _cached_tensor(_BAND_EDGES, total.dtype, total.device))
    bands = torch.arange(BAND_COUNT, device=total.device)
    member = ((band[..., None] == bands) & seen[..., None]).to(values.dtype).flatten(0, 1)
    sums = member.T @ values.reshape(len(member), -1)  # (bands, …)
    mean = sums / member.sum(0).clamp(min=1.0)[:, None]
    return mean.view(BAND_COUNT, *values.shape[2:])


def robust_loss(x: Tensor, knee: float = 6.0) -> Tensor:
    """Return a loss that is quadratic for small x and logarithmic beyond the knee."""
    return 0.5 * knee**2 * torch.log1p((x / knee) ** 2)


@lru_cache(maxsize=16)
def _cached_tensor(values: tuple[float, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
    return torch.tensor(values, dtype=dtype, device=device)
