"""The route of the operator: errors of the proposal's prices, and what it lacks to be a surface.

    L(θ, λ) = fit + ⟨λ_mart, martingale⟩ + ⟨λ_NA, no-arbitrage⟩

*fit*: error of volatility at targets, quoted or not, from prices, in units of what the quotes
allow: the standard error of the prior there. *martingale*: mean square of ``(E X − 1)/(σ√T)`` over
the square of a tolerance, less one, one number per band of total volatility. *no-arbitrage*: mean
fall of log-slopes from a maturity to the next over its tolerance, less one, per band and knot.
Inequalities with a tolerance have an interior, and so multipliers that need not run to the end of
their box.

Shapes: B chains, L maturities, P targets, n knots.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor

from arbiter.operators.law.config import LawConfig
from arbiter.operators.slope_head import KNOTS
from arbiter_lab.differentiable.operators.law.network import (
    TASK_SIZE,
    LawNetwork,
    LawTask,
    make_task,
)
from arbiter_lab.differentiable.operators.law.proposal import (
    Law,
    decode,
    knots,
    martingale_defect,
    order_defect,
    price_law,
)
from arbiter_lab.differentiable.operators.prior.gaussian_process import at_heads, known
from arbiter_lab.differentiable.operators.prior.reference_volatility import scaled
from arbiter_lab.differentiable.operators.quote_tensors import Ragged
from arbiter_lab.differentiable.pricing import black
from arbiter_lab.differentiable.pricing.knots import Knots
from arbiter_lab.training.batch_stream import Lesson
from arbiter_lab.training.batches import Batch
from arbiter_lab.training.duals import Box
from arbiter_lab.training.law_pool import Laws
from arbiter_lab.training.objective import BAND_COUNT, average_by_band, robust_loss
from arbiter_lab.training.routes import FitAndDefects

MARTINGALE_TOLERANCE, ORDER_TOLERANCE = 1e-3, 1e-4  # of σ√T, and of log-slopes
# fixed multipliers; with a saddle the boxes end at a multiple of these
MARTINGALE_PRICE, ORDER_PRICE, PRICE_RANGE = 5e-4, 1.5e-4, 10.0
_ERROR_FLOOR, _MAX_RELATIVE = 1e-3, 4.0  # errors that nobody minds; of volatility over reference
_MIN_PRICE = 1e-30


class LawLesson(NamedTuple):
    """A chain with its prior, and what its law is worth at targets.

    Attributes:
        task: What the network is given.
        k: ``(B, L, P)`` log-strikes of the targets.
        log_price: Logarithms of their exact out-of-the-money prices.
        scale: What turns a difference of log-prices into one of volatility over reference.
        weight: One over the error that quotes allow, zero off the targets.
    """

    task: LawTask
    k: Tensor
    log_price: Tensor
    scale: Tensor
    weight: Tensor

    def to_tensors(self) -> Lesson:
        """All tensors as one tuple."""
        return (*self.task.to_tensors(), *self[1:])

    @classmethod
    def from_tensors(cls, tensors: Sequence[Tensor]) -> LawLesson:
        """Undo :meth:`to_tensors`."""
        return cls(LawTask.from_tensors(tensors[:TASK_SIZE]), *tensors[TASK_SIZE:])


def make_law_lesson(batch: Batch, config: LawConfig) -> LawLesson:
    """The lesson of a batch; its prior is computed once, in double precision."""
    chain = scaled(Ragged(batch.T, batch.k, batch.iv, batch.half, batch.quoted))
    said, root = known(chain), torch.sqrt(batch.T)[..., None].double()
    prior = at_heads(said, chain, torch.from_numpy(config.places()).to(batch.T.device))
    mid = black.otm(batch.k.double(), batch.iv.double() * root)
    task = make_task(chain, batch.k, mid, prior, config.largest_misfit)
    k, total = batch.target_k.double(), batch.target_iv.double() * root
    price = black.otm(k, total).clamp(min=1e-300)
    elasticity = (total * black.vega(k, total) / price).clamp(min=0.2)
    _, doubt = said.at(torch.asinh(k * torch.exp(-chain.total.double())[..., None]))
    scale = (batch.target_iv / chain.sigma[..., None]).clamp(max=_MAX_RELATIVE) / elasticity
    weight = batch.target / torch.sqrt(_ERROR_FLOOR**2 + doubt**2)
    return LawLesson(task.float(), *(x.float() for x in (k, torch.log(price), scale, weight)))


class LawRoute:
    """Lessons and objective of the law network.

    Args:
        config: Of the network.
        knee: Error, in units of what quotes allow, from which on the loss grows by its logarithm.
        duals: ``"saddle"``, ``"fixed"`` multipliers, or ``"none"``.
        priced: What the fit prices: the proposal, the decoded surface, or both.
        device: Of the training.
    """

    def __init__(
        self, config: LawConfig, knee: float, duals: str, priced: str, device: torch.device
    ) -> None:
        self.config, self.knee, self.priced = config, knee, priced
        self.boxes: dict[str, Box] = {}
        if duals != "none":
            sizes = {
                "martingale": (BAND_COUNT, MARTINGALE_PRICE),
                "no_arbitrage": (BAND_COUNT * len(KNOTS), ORDER_PRICE),
            }
            ends = (0.0, PRICE_RANGE) if duals == "saddle" else (1.0, 1.0)
            self.boxes = {
                name: Box(size, ends[0] * price, ends[1] * price, rate=price)
                for name, (size, price) in sizes.items()
            }
        self.price = _pricer(device)

    def make_lesson(self, batch: Batch, _: Laws) -> Lesson:
        """Return the tensors of a lesson."""
        return make_law_lesson(batch, self.config).to_tensors()

    def evaluate(self, network: LawNetwork, lesson: Lesson) -> FitAndDefects:
        """Return the fit and the defects of a network on a lesson."""
        given = LawLesson.from_tensors(lesson)
        return self.compute_terms(network(given.task).law, given)

    def compute_terms(self, law: Law, lesson: LawLesson) -> FitAndDefects:
        """Return the fit and the defects of laws."""
        task, fits = lesson.task, []
        flat = (law.log_ratio, law.shift, task.total, lesson.k)
        price, log_mean = self.price(*(part.flatten(0, 1) for part in flat))
        if self.priced != "surface":
            fits.append(self._fit(price, lesson))
        if self.priced != "proposal":
            slopes = decode(law, task.total, task.seen)
            ratio = (torch.log(slopes) - task.total.double()[..., None]).to(law.shift.dtype)
            flat = (ratio, torch.zeros_like(law.shift), task.total, lesson.k)
            found, mean = self.price(*(part.flatten(0, 1) for part in flat))
            fits.append(self._fit(found * torch.exp(-mean[:, None]), lesson))
        terms = {}
        if self.boxes:
            log_mean = log_mean.view_as(task.total)
            defect = martingale_defect(log_mean, task.total).square() / MARTINGALE_TOLERANCE**2
            terms["martingale"] = average_by_band(defect, task.total, task.seen) - 1.0
            both = task.seen[:, 1:] & task.seen[:, :-1]
            fall = order_defect(law, task.total) / ORDER_TOLERANCE
            terms["no_arbitrage"] = average_by_band(fall, task.total[:, :-1], both).flatten() - 1.0
        return FitAndDefects(torch.stack(fits).mean(), terms)

    def _fit(self, price: Tensor, lesson: LawLesson) -> Tensor:
        error = torch.log(price.view_as(lesson.k).clamp(min=_MIN_PRICE)) - lesson.log_price
        off = robust_loss(error * lesson.scale * lesson.weight, self.knee)
        return off.sum() / (lesson.weight > 0.0).sum().clamp(min=1)


_Pricer = Callable[[Tensor, Tensor, Tensor, Tensor], tuple[Tensor, Tensor]]


@lru_cache(maxsize=2)
def _pricer(device: torch.device) -> _Pricer:
    """Prices ``(M, P)`` and log-means ``(M,)`` of M slices; on a GPU compiled.

    As recorded kernels this is half of all that a step launches.
    """
    grid = Knots.from_tensor(knots(), torch.zeros(1, device=device))

    def price(ratio: Tensor, shift: Tensor, total: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        found = price_law(Law(ratio, shift), total, k, grid)
        return found.price, found.log_mean

    return torch.compile(price, dynamic=True) if device.type == "cuda" else price
