"""Training routes of the operator: the saddle problem and martingale flow matching.

``saddle``: prices at targets, with dual variables for the calendar order of the gate's measure,
its martingale property and the replication of variance. ``mfm``: martingale flow matching, the
velocity of transport slopes in √T against the oracle's, without dual variables.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol, TypeVar

from torch import Tensor, nn

from arbiter_lab.differentiable.operators.network.config import Config
from arbiter_lab.differentiable.operators.network.measure_gate import places
from arbiter_lab.differentiable.operators.network.network import Network
from arbiter_lab.differentiable.operators.prior.gaussian_process import Kriged
from arbiter_lab.differentiable.operators.prior.reference_volatility import Scaled
from arbiter_lab.training.batch_stream import Lesson
from arbiter_lab.training.batches import Batch
from arbiter_lab.training.duals import Box
from arbiter_lab.training.flow_matching import (
    VelocityTargets,
    compute_velocity_targets,
    oracle_slopes,
    velocity_mse,
)
from arbiter_lab.training.law_pool import Laws
from arbiter_lab.training.objective import BAND_COUNT, TrainingTask, compute_terms, make_task
from arbiter_lab.training.settings import Settings

N = TypeVar("N", bound=nn.Module)
Taken_contra = TypeVar("Taken_contra", bound=nn.Module, contravariant=True)


class FitAndDefects(NamedTuple):
    """The objective's parts on a batch: the fit, and the defects of each dual block."""

    fit: Tensor
    defects: dict[str, Tensor]


class Route(Protocol[Taken_contra]):
    """A training route: the lessons of its steps and its objective."""

    boxes: dict[str, Box]

    def make_lesson(self, batch: Batch, laws: Laws) -> Lesson:
        """Return the tensors of a step; the scaled chain comes first."""
        ...

    def evaluate(self, network: Taken_contra, lesson: Lesson) -> FitAndDefects:
        """Return the fit and the defects of a network on a lesson."""
        ...


def lesson_chain(lesson: Lesson) -> Scaled:
    """Return the scaled chain of a lesson."""
    return Scaled(*lesson[: len(Scaled._fields)])


def kriging_places(config: Config) -> Tensor | None:
    """Return coordinates ζ ``(H,)`` at which kriging is evaluated; None without kriging."""
    return places(config.heads, config.reach) if config.kriging else None


class SaddleRoute:
    """The saddle problem: errors of prices, with multipliers on the defects."""

    def __init__(self, settings: Settings) -> None:
        bound = settings.dual_bound
        self.place, self.knee = kriging_places(settings.config), settings.knee
        self.boxes = {
            "no_arbitrage": Box.inequality(BAND_COUNT, bound),
            "martingale": Box.signed(BAND_COUNT, bound),
        }
        if settings.vix_term:
            self.boxes["replication"] = Box.inequality(BAND_COUNT, bound)

    def make_lesson(self, batch: Batch, laws: Laws) -> Lesson:
        """Return the tensors of a :class:`TrainingTask`."""
        return make_task(batch, laws, self.place).to_tensors()

    def evaluate(self, network: Network, lesson: Lesson) -> FitAndDefects:
        """Return the fit and the defects of the blocks that have multipliers."""
        given = TrainingTask.from_tensors(lesson)
        found = compute_terms(
            network.decode(given.chain, given.guess), given, network.icnn, self.knee
        )
        return FitAndDefects(found.fit, {name: found.defects[name] for name in self.boxes})


class FlowMatchingRoute:
    """Martingale flow matching: errors of the velocity of slopes, without multipliers."""

    def __init__(self, settings: Settings) -> None:
        self.boxes: dict[str, Box] = {}
        self.place = kriging_places(settings.config)

    def make_lesson(self, batch: Batch, laws: Laws) -> Lesson:
        """Return the chain, the oracle's velocities and their weights."""
        given = make_task(batch, laws, self.place)
        wanted = compute_velocity_targets(oracle_slopes(laws, batch), given.chain)[:2]
        return (*given.chain, *wanted, *(given.guess or ()))

    def evaluate(self, network: Network, lesson: Lesson) -> FitAndDefects:
        """Return the mean squared error of velocity; there are no defects."""
        chain = lesson_chain(lesson)
        target, weight, *rest = lesson[len(chain) :]
        wanted = VelocityTargets(target, weight, weight.new_zeros(()).bool())
        guess = Kriged(*rest) if rest else None
        return FitAndDefects(velocity_mse(network.decode(chain, guess).slopes, chain, wanted), {})


def make_route(settings: Settings) -> Route[Network]:
    """Return the route of the settings."""
    return SaddleRoute(settings) if settings.route == "saddle" else FlowMatchingRoute(settings)
