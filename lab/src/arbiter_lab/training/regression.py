"""Training of the baselines: regression of volatility on the operator's batches."""

from __future__ import annotations

import torch

from arbiter_lab.baselines.readout import Readout
from arbiter_lab.differentiable.operators.prior.gaussian_process import Kriged
from arbiter_lab.training.batch_stream import Lesson
from arbiter_lab.training.batches import Batch
from arbiter_lab.training.duals import Box
from arbiter_lab.training.law_pool import Laws
from arbiter_lab.training.learner import Learner
from arbiter_lab.training.objective import make_task, robust_loss, scale_strikes
from arbiter_lab.training.routes import FitAndDefects, kriging_places, lesson_chain
from arbiter_lab.training.settings import Settings


class RegressionRoute:
    """Regression of volatility over reference at the targets, with the operator's weights.

    Args:
        settings: Model and configuration.
    """

    def __init__(self, settings: Settings) -> None:
        self.boxes: dict[str, Box] = {}
        self.knee = settings.knee
        self.place = kriging_places(settings.config) if settings.model == "ssm" else None

    def make_lesson(self, batch: Batch, laws: Laws) -> Lesson:
        """Return the chain, strikes, exact volatilities over reference, and weights."""
        given = make_task(batch, laws, self.place)
        chain = given.chain
        wanted = batch.target_iv / chain.sigma[..., None]
        zeta = scale_strikes(chain, batch.target_k)
        return (*chain, zeta, wanted, given.weight, *(given.guess or ()))

    def evaluate(self, network: Readout, lesson: Lesson) -> FitAndDefects:
        """Return the robust error of volatility; there are no defects."""
        chain = lesson_chain(lesson)
        zeta, wanted, weight, *rest = lesson[len(chain) :]
        u = network(chain, zeta, Kriged(*rest) if rest else None)
        error = torch.where(weight > 0.0, torch.exp(u) - wanted, 0.0)
        fit = robust_loss(error * weight, self.knee).sum() / (weight > 0.0).sum().clamp(min=1)
        return FitAndDefects(fit, {})


class BaselineTrainer(Learner[Readout]):
    """Trains a baseline step by step.

    Args:
        settings: Settings of the training; the model is a baseline.
        laws: The pool; training runs on its device.
    """

    def __init__(self, settings: Settings, laws: Laws) -> None:
        design = settings.design
        if design is None:
            raise ValueError(f"model = {settings.model!r} is no baseline: see trainer.Trainer")
        super().__init__(settings, laws, design.build, RegressionRoute(settings))
