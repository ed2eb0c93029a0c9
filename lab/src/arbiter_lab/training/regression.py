"""How a baseline is trained: the operator's batches and robust error of volatility, and no more."""

from __future__ import annotations

import torch

from arbiter.operators.prior.gaussian_process import Kriged
from arbiter_lab.baselines.readout import Readout
from arbiter_lab.training.batch_stream import Lesson
from arbiter_lab.training.batches import Batch
from arbiter_lab.training.duals import Box
from arbiter_lab.training.law_pool import Laws
from arbiter_lab.training.learner import Learner
from arbiter_lab.training.objective import robust, strikes, task
from arbiter_lab.training.routes import Found, chain_of, heads
from arbiter_lab.training.settings import Settings


class Regression:
    """Volatility over reference at the targets, weighed as the operator's error is.

    Args:
        settings: Model and configuration.
    """

    def __init__(self, settings: Settings) -> None:
        self.boxes: dict[str, Box] = {}
        self.knee = settings.knee
        self.place = heads(settings.config) if settings.model == "ssm" else None

    def lesson(self, batch: Batch, laws: Laws) -> Lesson:
        """The chain, strikes, exact volatilities over reference, and weights."""
        given = task(batch, laws, self.place)
        chain = given.chain
        wanted = batch.target_iv / chain.sigma[..., None]
        zeta = strikes(chain, batch.target_k)
        return (*chain, zeta, wanted, given.weight, *(given.guess or ()))

    def evaluate(self, network: Readout, lesson: Lesson) -> Found:
        """The fit alone."""
        chain = chain_of(lesson)
        zeta, wanted, weight, *rest = lesson[len(chain) :]
        u = network(chain, zeta, Kriged(*rest) if rest else None)
        error = torch.where(weight > 0.0, torch.exp(u) - wanted, 0.0)
        fit = robust(error * weight, self.knee).sum() / (weight > 0.0).sum().clamp(min=1)
        return Found(fit, {})


class Regressor(Learner[Readout]):
    """Takes steps of a baseline.

    Args:
        settings: What to train and how; its model is a baseline.
        laws: The pool; the device of training is where it is.
    """

    def __init__(self, settings: Settings, laws: Laws) -> None:
        design = settings.design
        if design is None:
            raise ValueError(f"model = {settings.model!r} is no baseline: see trainer.Trainer")
        super().__init__(settings, laws, design.build, Regression(settings))
