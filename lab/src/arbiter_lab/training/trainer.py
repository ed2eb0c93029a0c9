"""The operator's trainer: network, Q-Align, Spec-Guard and Lipschitz constants."""

from __future__ import annotations

import math
from collections.abc import Mapping
from os import PathLike
from typing import Any

import torch
from torch import Tensor

from arbiter.operators.monitors import MIN_COVERAGE
from arbiter_lab.differentiable.operators import checkpoint
from arbiter_lab.differentiable.operators.law.network import LawNetwork
from arbiter_lab.differentiable.operators.network.green_scan import GreenScan
from arbiter_lab.differentiable.operators.network.lipschitz import constant
from arbiter_lab.differentiable.operators.network.network import Network
from arbiter_lab.training.graph_capture import RecordedFunction
from arbiter_lab.training.law_pool import Laws
from arbiter_lab.training.learner import Learner, LearnerStep
from arbiter_lab.training.routes import make_route
from arbiter_lab.training.settings import Settings


def known_weights(path: str | PathLike[str], settings: Settings) -> dict[str, Tensor]:
    """Read initial weights for the network of the settings.

    Raises:
        FileNotFoundError: If there is no such file.
        CheckpointError: If it is not a checkpoint, or one of another configuration.
        ValueError: If the settings are a baseline's.
    """
    if settings.model not in ("operator", "law"):
        raise ValueError(f"{path}: model is {settings.model!r}, and only an operator begins so")
    with torch.random.fork_rng(devices=[]):
        first = settings.model == "operator"
        made = Network(settings.config) if first else LawNetwork(settings.law)
        like = made.state_dict()
    return checkpoint.load(path, like=like)[0]


class Trainer(Learner[Network]):
    """Trains the operator step by step.

    Args:
        settings: Settings of the training.
        laws: The pool; training runs on its device.
    """

    def __init__(self, settings: Settings, laws: Laws) -> None:
        super().__init__(
            settings,
            laws,
            lambda: Network(settings.config),
            make_route(settings),
            self._project_and_measure if settings.config.align else None,
        )
        self._scans = [m for m in self.network.modules() if isinstance(m, GreenScan)]
        self._align = RecordedFunction(lambda: [self.network.align()], device=self.device)
        self._measuring = False
        self.representer: tuple[int, float] | None = None

    def step(self, *, measure: bool = False) -> LearnerStep:
        """Take one step; ``measure`` computes the Lipschitz constant before and after Q-Align."""
        self._measuring = measure
        try:
            seen = super().step()
        finally:
            self._measuring = False
        if measure and not self.settings.config.align:
            self.lipschitz = (self.lipschitz_constant(),) * 2
        return seen

    def journal_row(self, seen: LearnerStep) -> dict[str, float | Tensor | None]:
        """Return the journal's columns of a step, tensors among them."""
        row = super().journal_row(seen)
        guards = ("spec_guard_hits", "projection_distance", "max_rho_dt")
        row |= dict(zip(guards, seen.guards.unbind(), strict=True))
        if self.settings.route == "mfm":
            row["mfm_mse"] = seen.fit
        if self.settings.config.representer and self.representer is None:
            covered = row["coverage_min"]
            assert covered is not None
            if float(covered) < MIN_COVERAGE:
                self.representer = (self.steps, float(covered))
        if self.representer is not None:
            row["enter_representer_at_step"], row["coverage_at_trigger"] = self.representer
        return row

    def lipschitz_constant(self) -> float:
        """Return the certified Lipschitz constant of the network.

        Raises:
            FloatingPointError: If a parameter is not finite.
        """
        network = self.network
        if self.device.type != "cpu":  # singular values of small maps one by one: no work for a GPU
            with torch.random.fork_rng(devices=[]):
                network = Network(self.settings.config)
            network.load_state_dict({n: t.cpu() for n, t in self.network.state_dict().items()})
        try:
            return constant(network).value
        except RuntimeError as error:  # of the singular values of what is not finite
            raise FloatingPointError(f"step {self.steps}: parameters are not finite") from error

    def counts(self) -> dict[str, Any]:
        """Return the counts of batches, and step and coverage when the representer entered."""
        return {**super().counts(), "representer": self.representer}

    def load(
        self,
        tensors: Mapping[str, Tensor],
        weights: Mapping[str, Tensor],
        counts: Mapping[str, Any],
    ) -> None:
        """Restore the values of :meth:`tensors`, :meth:`weights` and :meth:`counts`."""
        super().load(tensors, weights, counts)
        entered = counts["representer"]
        self.representer = None if entered is None else (int(entered[0]), float(entered[1]))

    def _guard_statistics(self) -> Tensor:
        last = [scan.last for scan in self._scans if scan.last is not None]
        hits = torch.stack([one.hits for one in last]).sum().float()
        distance = torch.stack([one.distance for one in last]).sum()
        return torch.stack([hits, distance, torch.stack([one.largest for one in last]).amax()])

    def _project_and_measure(self) -> None:
        before = self.lipschitz_constant() if self._measuring else math.nan
        self._align()
        if self._measuring:
            self.lipschitz = (before, self.lipschitz_constant())
