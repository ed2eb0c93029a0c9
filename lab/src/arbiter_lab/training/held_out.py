"""Measures networks on held-out laws: errors of volatility, laws, scan bounds, martingale test."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from arbiter.operators.slope_head import KNOTS
from arbiter_lab.baselines.readout import Readout
from arbiter_lab.differentiable.operators.network.convex_decoder import ICNNDecoder
from arbiter_lab.differentiable.operators.network.network import Network, Output
from arbiter_lab.differentiable.operators.network.representer import coverage
from arbiter_lab.differentiable.operators.prior.gaussian_process import kriged
from arbiter_lab.differentiable.operators.prior.reference_volatility import Scaled
from arbiter_lab.differentiable.pricing import black
from arbiter_lab.differentiable.pricing.transport import Transport
from arbiter_lab.stability.scan_bounds import nearest
from arbiter_lab.training import convex_decoder_prices
from arbiter_lab.training.batch_stream import HELD_OUT_STREAM, Lesson, make_generator
from arbiter_lab.training.batches import Batch, draw_batch
from arbiter_lab.training.flow_matching import (
    OracleSlopes,
    VelocityTargets,
    compute_velocity_targets,
    measure_alignment,
    oracle_slopes,
    velocity_mse,
)
from arbiter_lab.training.law_pool import Laws
from arbiter_lab.training.martingale_test import MartingaleTest, martingale_test
from arbiter_lab.training.objective import make_task, scale_strikes
from arbiter_lab.training.settings import Settings

_BATCH_SIZE_DIVISOR = 4  # surfaces of a held-out batch: a quarter of a training batch's
_MIN_SURFACES = 64  # but some
_GREEN_KERNEL_SURFACES = (
    1  # surfaces of each whose Green kernels are written out: L² matrices for every scan
)

log = logging.getLogger(__name__)


class Exams(Protocol):
    """Held-out batches, and what networks of one kind are measured by on them."""

    kind: int
    lesson: Lesson

    def measure(self, network: Any, /) -> dict[str, float]:
        """Return all measures by name."""
        ...

    def run_martingale_test(self, network: Any, seed: int) -> MartingaleTest:
        """Run the randomised martingale test."""
        ...


class HeldOutDraws:
    """One held-out batch of each kind, the same at every measurement, and a lesson.

    Args:
        settings: Kinds of batches and seed.
        laws: Held-out laws.
        prepare: Maps a batch to the lesson of a route.
        divisor: Of a training batch's surfaces, for those of a held-out one.

    Attributes:
        batches: One of each kind.
        kind: That comes most often.
        lesson: A whole batch of it, on which the duality gap is measured.
    """

    def __init__(
        self,
        settings: Settings,
        laws: Laws,
        prepare: Callable[[Batch, Laws], Lesson],
        divisor: int,
    ) -> None:
        def draw(number: int, kind: int, least: int) -> Batch:
            layout, size = settings.layout(kind)
            count = min(size, max(least, size // divisor))
            key = (settings.held_out_seed, HELD_OUT_STREAM, number)
            return draw_batch(laws, layout, make_generator(laws.iv.device, *key), count)

        kinds = range(len(settings.layouts))
        self.batches = [draw(kind, kind, _MIN_SURFACES) for kind in kinds]
        self.kind = max(range(len(settings.mix)), key=lambda i: settings.mix[i])
        whole = settings.layout(self.kind)[1]
        self.lesson = prepare(draw(len(kinds), self.kind, whole), laws)


class HeldOutBatch(NamedTuple):
    """One held-out batch with its oracle slopes and velocity targets."""

    batch: Batch
    chain: Scaled
    slopes: OracleSlopes
    velocity: VelocityTargets


class HeldOut(HeldOutDraws):
    """One held-out batch of each kind, with what the first design is measured by.

    Args:
        settings: Kinds of batches and seed.
        laws: Held-out laws.
        prepare: Maps a batch to the lesson of a route.
    """

    def __init__(
        self, settings: Settings, laws: Laws, prepare: Callable[[Batch, Laws], Lesson]
    ) -> None:
        super().__init__(settings, laws, prepare, _BATCH_SIZE_DIVISOR)
        self.settings = settings
        self.exams = []
        for batch in self.batches:
            chain, slopes = make_task(batch, laws).chain, oracle_slopes(laws, batch)
            velocity = compute_velocity_targets(slopes, chain)
            self.exams.append(HeldOutBatch(batch, chain, slopes, velocity))

    @torch.no_grad()
    def measure(self, network: Network | Readout) -> dict[str, float]:
        """Return all held-out measures of a network by name.

        ``heldout_rmse_bp`` is the root mean square over all targets of all kinds of the error of
        volatility, in basis points; ``heldout_median_bp`` the median size, and
        ``heldout_inside_bp`` the root mean square between the outermost quotes of a slice alone:
        beyond them a few surfaces with wide spreads make most of the whole.
        """
        errors: list[Tensor] = []
        inside: list[Tensor] = []
        found: dict[str, list[Tensor]] = {}
        for number, exam in enumerate(self.exams):
            answers, laws = _evaluate_targets(network, exam)
            error = (answers - exam.batch.target_iv.double())[exam.batch.target]
            errors.append(error)
            inside.append(error[_mark_inside_quotes(exam.batch)[exam.batch.target]])
            for name, value in laws.items():
                found.setdefault(name, []).append(value)
            found[f"heldout_rmse_bp_{number}"] = [_rmse_bp(error)]
        everything = torch.cat(errors)
        numbers = {name: torch.stack(values).double().mean() for name, values in found.items()}
        numbers["heldout_rmse_bp"] = _rmse_bp(everything)
        numbers["heldout_inside_bp"] = _rmse_bp(torch.cat(inside))
        numbers["heldout_median_bp"] = 1e4 * everything.abs().median()
        told = zip(numbers, torch.stack(list(numbers.values())).tolist(), strict=True)
        return dict(told)

    def measure_scan_bounds(self, network: Network) -> dict[str, float]:
        """Return the Green sum and the state nearest to their bounds, with the bounds.

        They are measured on the first surface of each kind. The bounds are proved for any weights:
        a value above its bound is a defect of the code, and is logged as a warning.
        """
        some = (
            Scaled(*(part[:_GREEN_KERNEL_SURFACES] for part in exam.chain)) for exam in self.exams
        )
        found = nearest(network, some)
        if not found.holds:
            log.warning("a scan exceeds its proved bound: %s", found)
        return found._asdict()

    @torch.no_grad()
    def run_martingale_test(self, network: Network, seed: int) -> MartingaleTest:
        """Run the randomised martingale test on the network's measure."""
        exam = self.exams[self.kind]
        output = network.decode(exam.chain)
        mass = output.sight.measure * output.sight.width
        return martingale_test(mass, output.chain.moneyness, output.chain.quoted, seed=seed)


def _evaluate_targets(
    network: Network | Readout, exam: HeldOutBatch
) -> tuple[Tensor, dict[str, Tensor]]:
    """Return volatilities at the targets, and further measures of a network that has laws."""
    batch, chain = exam.batch, exam.chain
    if isinstance(network, Readout):
        guess = None if network.kriging_heads is None else kriged(chain, network.kriging_heads)
        u = network(chain, scale_strikes(chain, batch.target_k), guess)
        return torch.exp(u.double()) * chain.sigma.double()[..., None], {}
    output = network.decode(chain)
    told = decode_volatilities(output, batch.target_k, batch.T, network.icnn)
    return told, _measure_laws(network, output, exam)


def decode_volatilities(
    output: Output, k: Tensor, T: Tensor, icnn: ICNNDecoder | None = None
) -> Tensor:
    """``(B, L, P)`` volatilities, float64; zero where a price is not above intrinsic value."""
    if icnn is None:
        price = Transport(torch.tensor(KNOTS, dtype=torch.float64), output.slopes.double()).otm(
            k.double()
        )
    else:
        price = convex_decoder_prices.price_monotone_otm(icnn, output, k).double()
    total = black.implied_total_volatility(price, k.double()).volatility
    return torch.nan_to_num(total) / torch.sqrt(T.double())[..., None]


def _measure_laws(network: Network, output: Output, exam: HeldOutBatch) -> dict[str, Tensor]:
    sight, chain = output.sight, output.chain
    seen = chain.quoted.any(-1)
    mean = (sight.measure * sight.width * chain.moneyness).sum(-1)
    found = {
        "martingale_residual": (mean - 1.0)[seen].square().mean().sqrt(),
        "heldout_coverage": coverage(chain)[seen].mean(),
    }
    if network.icnn is None:
        alike = measure_alignment(output.slopes, exam.slopes, chain)
        found["mfm_mse"] = velocity_mse(output.slopes, chain, exam.velocity)
        found["relative_entropy"], found["cvar_alignment"] = alike
        known = exam.velocity.weight > 0.0
        found["mfm_cut"] = exam.velocity.cut.sum() / known.sum().clamp(min=1)
    return found


def _mark_inside_quotes(batch: Batch) -> Tensor:
    """``(B, L, P)`` targets between the outermost quotes of their slice."""
    low = torch.where(batch.quoted, batch.k, torch.inf).amin(-1, keepdim=True)
    high = torch.where(batch.quoted, batch.k, -torch.inf).amax(-1, keepdim=True)
    return (batch.target_k >= low) & (batch.target_k <= high)


def _rmse_bp(error: Tensor) -> Tensor:
    return 1e4 * error.square().mean().sqrt()
