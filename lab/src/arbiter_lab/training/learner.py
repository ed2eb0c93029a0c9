"""Base class of the trainers: optimiser, parameter average and stream of batches."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping
from typing import Any, Generic, NamedTuple

import torch
from torch import Tensor

from arbiter_lab.differentiable.operators.network.representer import coverage
from arbiter_lab.training.averaging import ParameterAverage
from arbiter_lab.training.batch_stream import BatchStream, Lesson
from arbiter_lab.training.duality import DualityGap, estimate_dual_gap
from arbiter_lab.training.duals import Duals
from arbiter_lab.training.graph_capture import RecordedFunction
from arbiter_lab.training.law_pool import Laws
from arbiter_lab.training.routes import N, Route, lesson_chain
from arbiter_lab.training.saddle import Evaluation, ExtraGradient, Lagrangian, Rates, Step
from arbiter_lab.training.settings import Settings

# steps between looks for numbers that are not finite: each waits for the device
_FINITE_CHECK_STEPS = 200
_MAX_BROKEN_SHARE = 0.1  # of batches without a finite gradient: more are a divergence

log = logging.getLogger(__name__)


class LearnerStep(NamedTuple):
    """Measurements of one step, as tensors on the device."""

    step: Step
    fit: Tensor
    guards: Tensor
    """Hits, distance and largest ``ρΔ`` of Spec-Guard over all scans."""
    lesson: Lesson


class Learner(Generic[N]):
    """Trains a network step by step; its state is in :meth:`tensors` and :meth:`counts`.

    Args:
        settings: Settings of the training.
        laws: The pool; training runs on its device.
        make: Makes the network; its initial weights follow the seed.
        route: Lessons and objective of a step.
        project: Projects the parameters onto their feasible set, in place.

    Attributes:
        lipschitz: Constants before and after the last projection; NaN where there is none.
    """

    def __init__(
        self,
        settings: Settings,
        laws: Laws,
        make: Callable[[], N],
        route: Route[N],
        project: Callable[[], object] | None = None,
    ) -> None:
        self.settings = settings
        self.device = laws.iv.device
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(settings.seed)
            self.network = make()
            self.averaged = make().to(self.device)
        self.network.to(self.device)
        self.params: list[Tensor] = list(self.network.parameters())
        self.route = route
        self.duals = Duals(self.route.boxes, device=self.device)
        self.average = ParameterAverage(self.params, settings.average)
        self.draws = BatchStream(settings, laws, self.route.make_lesson)
        self.project = project
        self.optimiser = ExtraGradient(self.params, self.duals, _make_rates(settings), project)
        self._looks: dict[int, RecordedFunction] = {}
        self.broken = torch.zeros((), dtype=torch.int64, device=self.device)
        self._broken_before = 0
        self.lipschitz: tuple[float, float] = (math.nan, math.nan)

    @property
    def steps(self) -> int:
        """Number of steps done."""
        return self.optimiser.steps

    def step(self, *, measure: bool = False) -> LearnerStep:
        """Take one step; ``measure`` allows expensive measurements on the way."""
        kind, lesson = self.draws.next_lesson(self.steps)
        self.optimiser.lr = self.settings.learning_rate(self.steps)
        self.optimiser.dual_lr = self.settings.dual_lr
        first: list[Tensor] = []

        def lagrangian(_: Duals) -> Evaluation:
            seen, fit, guards = self._evaluate_recorded(kind, lesson)
            if not first:
                first.extend([fit.clone(), guards.clone()])
            return seen

        try:
            seen = self.optimiser.step(lagrangian)
        except BaseException:
            self.draws.taken[kind] -= 1
            raise
        self.average.update(self.steps)
        if self.steps % _FINITE_CHECK_STEPS == 0:
            self.require_few_broken()
        return LearnerStep(seen, first[0], first[1], lesson)

    def require_few_broken(self) -> None:
        """A batch without a finite gradient is left out; many of them are a divergence."""
        count = int(self.broken)
        lately, self._broken_before = count - self._broken_before, count
        if lately:
            log.warning(
                "step %d: %d of %d batches had no finite gradient and were left out",
                self.steps, lately, _FINITE_CHECK_STEPS,
            )  # fmt: skip
        if lately > _MAX_BROKEN_SHARE * _FINITE_CHECK_STEPS:
            raise FloatingPointError(
                f"step {self.steps}: {lately} of {_FINITE_CHECK_STEPS} batches had no finite "
                "gradient; lower lr, set clip, or go on from the last checkpoint"
            )

    def journal_row(self, seen: LearnerStep) -> dict[str, float | Tensor | None]:
        """Return the journal's columns of a step, tensors among them."""
        defects = {name: defect.abs().amax() for name, defect in seen.step.defects.items()}
        return {
            "loss": seen.step.value,
            "fit": seen.fit,
            **defects,
            "dual_residual": seen.step.dual_residual,
            "gradient_norm": seen.step.gradient_norm,
            "lr": self.optimiser.lr,
            "dual_lr": self.optimiser.ramped_dual_lr,
            **self._describe_lesson(seen.lesson),
        }

    def _describe_lesson(self, lesson: Lesson) -> dict[str, Tensor]:
        """Return the journal's columns of the quotes of a lesson."""
        chain = lesson_chain(lesson)
        listed, share = chain.quoted.any(-1), coverage(chain)
        return {
            "coverage_min": torch.where(listed, share, 1.0).amin(),
            "coverage_mean": (share * listed).sum() / listed.sum().clamp(min=1),
        }

    def measure_dual_gap(self, kind: int, lesson: Lesson) -> tuple[DualityGap, float]:
        """DualGap and dual residual on a held-out lesson of the given kind."""
        lagrangian: Lagrangian = lambda _: self._evaluate_recorded(kind, lesson)[0]  # noqa: E731
        found = estimate_dual_gap(
            lagrangian,
            self.params,
            self.duals,
            steps=self.settings.look_ahead,
            lr=self.settings.lr,
            project=self.project,
        )
        defects = Evaluation(*lagrangian(self.duals)).defects
        return found, float(self.duals.residual(defects))

    def lipschitz_constant(self) -> float:
        """The network's Lipschitz constant; NaN where nothing is known of it."""
        return math.nan

    def is_finite(self) -> bool:
        """Whether every number that a checkpoint would hold is finite; waits for the device."""
        here = [t for t in self.tensors().values() if t.device == self.device]
        norms = torch._foreach_norm([t for t in here if t.is_floating_point()])
        return bool(torch.isfinite(torch.stack([norm.float() for norm in norms])).all())

    def averaged_network(self) -> N:
        """Return the network with averaged parameters."""
        self.average.copy_to(self.averaged.parameters())
        return self.averaged

    def parameter_names(self) -> list[str]:
        """Return the names of the parameters, in order."""
        return [name for name, _ in self.network.named_parameters()]

    def tensors(self) -> dict[str, Tensor]:
        """Return the parameters and the optimiser's state by name."""
        found = {
            f"param.{n}": p.detach()
            for n, p in zip(self.parameter_names(), self.params, strict=True)
        }
        return found | {f"optimiser.{n}": t for n, t in self.optimiser.state_dict().items()}

    def weights(self) -> dict[str, Tensor]:
        """Averaged parameters under the network's own names: what is shipped."""
        return dict(zip(self.parameter_names(), self.average.mean, strict=True))

    def counts(self) -> dict[str, Any]:
        """Return the number of batches taken of each kind, as plain values."""
        return {"taken": list(self.draws.taken)}

    @torch.no_grad()
    def load(
        self,
        tensors: Mapping[str, Tensor],
        weights: Mapping[str, Tensor],
        counts: Mapping[str, Any],
    ) -> None:
        """Restore the values of :meth:`tensors`, :meth:`weights` and :meth:`counts`."""
        names = self.parameter_names()
        torch._foreach_copy_(self.params, [tensors[f"param.{n}"].to(self.device) for n in names])
        self.average.load([weights[name] for name in names])
        mark = "optimiser."
        state = {n.removeprefix(mark): t for n, t in tensors.items() if n.startswith(mark)}
        self.optimiser.load_state_dict(state)
        self.draws.go_to(counts["taken"])

    @torch.no_grad()
    def start_from_weights(self, weights: Mapping[str, Tensor]) -> None:
        """Set trained weights before the first step; nothing else of their training is used."""
        torch._foreach_copy_(
            self.params, [weights[n].to(self.device) for n in self.parameter_names()]
        )

    def _evaluate_recorded(self, kind: int, lesson: Lesson) -> tuple[Evaluation, Tensor, Tensor]:
        """Value, defects and gradients on a lesson, from the recording of its kind."""
        if kind not in self._looks:
            self._looks[kind] = RecordedFunction(self.differentiate_lesson, lesson)
        value, fit, guards, *rest = self._looks[kind](*lesson)
        count = len(self.route.boxes)
        defects = dict(zip(self.route.boxes, rest[:count], strict=True))
        return Evaluation(value, defects, rest[count:]), fit, guards

    def differentiate_lesson(self, *lesson: Tensor) -> list[Tensor]:
        """Loss, gradients and defects of one lesson, in the order that a recording replays.

        Gradients and defects are zero where one of them is not finite.
        """
        with torch.enable_grad():
            found = self.route.evaluate(self.network, lesson)
            value = found.fit + self.duals.inner_product(found.defects)
            gradients = torch.autograd.grad(
                value, self.params, allow_unused=True, materialize_grads=True
            )
        defects = [found.defects[name].detach() for name in self.route.boxes]
        norm = torch.stack(torch._foreach_norm(gradients)).sum()
        whole = torch.isfinite(norm + value.detach())
        self.broken += ~whole
        steps = [torch.where(whole, each, 0.0) for each in (*defects, *gradients)]
        return [value.detach(), found.fit.detach(), self._guard_statistics(), *steps]

    def _guard_statistics(self) -> Tensor:
        """Return ``(3,)`` hits, distance and largest ``ρΔ`` of Spec-Guard."""
        return torch.zeros(3, device=self.device)


def _make_rates(settings: Settings) -> Rates:
    return Rates(
        lr=settings.lr,
        dual_lr=settings.dual_lr,
        betas=settings.betas,
        ramp_steps=settings.ramp,
        mode=settings.mode,  # type: ignore[arg-type]
        clip=settings.clip,
        project_half=False,
        check_every=_FINITE_CHECK_STEPS,
    )
