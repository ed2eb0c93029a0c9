"""The trainer of the law network, and what it is measured by on held-out laws."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from arbiter_lab.differentiable.operators.law.green_scan import GreenScan
from arbiter_lab.differentiable.operators.law.network import LawNetwork
from arbiter_lab.differentiable.operators.law.proposal import (
    Law,
    decode,
    knots,
    martingale_defect,
    price_law,
    prior_law,
)
from arbiter_lab.differentiable.pricing import black, normal
from arbiter_lab.differentiable.pricing.transport import Transport
from arbiter_lab.training.batch_stream import Lesson
from arbiter_lab.training.batches import Batch
from arbiter_lab.training.graph_capture import RecordedFunction
from arbiter_lab.training.held_out import HeldOutDraws
from arbiter_lab.training.law_pool import Laws
from arbiter_lab.training.law_route import LawLesson, LawRoute, make_law_lesson
from arbiter_lab.training.learner import Learner, LearnerStep
from arbiter_lab.training.martingale_test import MartingaleTest, martingale_test
from arbiter_lab.training.settings import Settings

_BATCH_SIZE_DIVISOR = 2  # a held-out batch is half a training batch
_TEST_POINTS, _TEST_REACH = 801, 8.0  # of a law, for the martingale test


class LawTrainer(Learner[LawNetwork]):
    """Trains the law network step by step.

    Args:
        settings: Settings of the training.
        laws: The pool; training runs on its device.
    """

    def __init__(self, settings: Settings, laws: Laws) -> None:
        device = torch.device(laws.iv.device)
        route = LawRoute(settings.law, settings.knee, settings.duals, settings.priced, device)
        super().__init__(
            settings,
            laws,
            lambda: LawNetwork(settings.law, settings.variant),
            route,
            self._project if settings.variant.align else None,
        )
        self._scans = [m for m in self.network.modules() if isinstance(m, GreenScan)]
        self._align = RecordedFunction(lambda: [self.network.align()], device=self.device)

    def journal_row(self, seen: LearnerStep) -> dict[str, float | Tensor | None]:
        """Return the journal's columns of a step, tensors among them."""
        # signed: below zero where a tolerance is kept to
        row = super().journal_row(seen)
        row |= {name: defect.amax() for name, defect in seen.step.defects.items()}
        guards = ("spec_guard_hits", "projection_distance", "max_rho_dt")
        return row | dict(zip(guards, seen.guards.unbind(), strict=True))

    def _describe_lesson(self, _: Lesson) -> dict[str, Tensor]:
        return {}

    def _guard_statistics(self) -> Tensor:
        last = [scan.last for scan in self._scans if scan.last is not None]
        if not last:
            return torch.zeros(3, device=self.device)
        hits, distance, largest = (torch.stack(part) for part in zip(*last, strict=True))
        return torch.stack([hits.mean(), distance.mean(), largest.amax()])

    def _project(self) -> None:
        self._align()


class LawExam(NamedTuple):
    """A held-out batch: quotes, targets and the lesson of them."""

    batch: Batch
    lesson: LawLesson


class LawHeldOut(HeldOutDraws):
    """One held-out batch of each kind, with what the law network is measured by.

    Args:
        settings: Kinds of batches and seed.
        laws: Held-out laws.
        prepare: Maps a batch to the lesson of the route.
    """

    def __init__(
        self, settings: Settings, laws: Laws, prepare: Callable[[Batch, Laws], Lesson]
    ) -> None:
        super().__init__(settings, laws, prepare, _BATCH_SIZE_DIVISOR)
        self.exams = [
            LawExam(batch, make_law_lesson(batch, settings.law)) for batch in self.batches
        ]

    @torch.no_grad()
    def measure(self, network: LawNetwork | None) -> dict[str, float]:
        """Return all held-out measures of a network by name; of the prior alone without one.

        ``heldout_rmse_bp`` is the root mean square over surfaces and targets of the error of the
        decoded surface's volatility in basis points; ``heldout_median_bp`` the median over surfaces
        of theirs. ``martingale_residual`` is the RMS martingale defect of the proposal in units of
        σ√T, and ``decoder_distance_bp`` the median distance of the surface from the proposal.
        """
        squares, apart, defects, found = [], [], [], {}
        for number, (batch, lesson) in enumerate(self.exams):
            task = lesson.task
            law = prior_law(task.prior.start, task.total) if network is None else network(task).law
            answers = decoded_volatilities(law, lesson, batch.T)
            off = torch.where(batch.target, answers - batch.target_iv.double(), 0.0)
            count = batch.target.sum((1, 2)).clamp(min=1)
            square = off.square().sum((1, 2)) / count
            squares.append(square)
            found[f"heldout_rmse_bp_{number}"] = 1e4 * square.mean().sqrt()
            priced = price_law(law, task.total, lesson.k)
            told = black.implied_total_volatility(priced.price.double(), lesson.k.double())
            said = torch.nan_to_num(told.volatility) / torch.sqrt(batch.T.double())[..., None]
            far = torch.where(batch.target, (said - answers).abs(), torch.nan)
            apart.append(torch.nanmedian(far.flatten(1), 1).values)
            defects.append(martingale_defect(priced.log_mean, task.total)[task.seen])
        every = torch.cat(squares)
        found |= {
            "heldout_rmse_bp": 1e4 * every.mean().sqrt(),
            "heldout_median_bp": 1e4 * every.sqrt().median(),
            "martingale_residual": torch.cat(defects).square().mean().sqrt(),
            "decoder_distance_bp": 1e4 * torch.cat(apart).median(),
        }
        values = torch.stack([value.double() for value in found.values()]).tolist()
        return dict(zip(found, values, strict=True))

    @torch.no_grad()
    def run_martingale_test(self, network: LawNetwork, seed: int) -> MartingaleTest:
        """Run the randomised martingale test on the network's laws."""
        task = self.exams[self.kind].lesson.task
        return martingale_test(*discretised(network(task).law, task.total), task.seen, seed=seed)


def decoded_volatilities(law: Law, lesson: LawLesson, T: Tensor) -> Tensor:
    """``(B, L, P)`` volatilities of the decoded surface, float64; zero where there is none."""
    task, k = lesson.task, lesson.k.double()
    price = Transport(knots(), decode(law, task.total, task.seen)).otm(k)
    total = black.implied_total_volatility(price, k).volatility
    return torch.nan_to_num(total) / torch.sqrt(T.double())[..., None]


def discretised(law: Law, total: Tensor) -> tuple[Tensor, Tensor]:
    """``(B, L, S)`` masses of a law in equal steps of its percentile, and their moneyness."""
    x = torch.linspace(-_TEST_REACH, _TEST_REACH, _TEST_POINTS, dtype=torch.float64)
    mass = normal.pdf(x) * (x[1] - x[0])
    transport = Transport(knots(), law.slopes(total).double())
    at = x.to(transport.b.device).expand(*total.shape, -1)
    k = transport.at_coordinate(at).k + (law.shift + transport.log_mean)[..., None]
    return (mass / mass.sum()).to(k).expand_as(k), torch.exp(k)
