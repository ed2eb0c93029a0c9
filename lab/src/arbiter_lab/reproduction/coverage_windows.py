"""The regression of section 7.2: the representer's error on the duality gap, by window.

The paper computes it "from controlled coverage-ablation windows" and defines neither the windows
nor the two numbers. Here a window is some days of a block out of sample with a share of their
quotes, so that some slices have too few quotes and the network uses the kernel solution. The error
is that of volatility over all listed strikes of those slices, against the oracle. The gap is
measured on the same days, with the parameters and multipliers at the end of training.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from arbiter.operators.monitors import MIN_COVERAGE
from arbiter.quotes import Quotes
from arbiter_lab.differentiable.operators.network.representer import coverage
from arbiter_lab.differentiable.operators.quote_tensors import pad_chains
from arbiter_lab.protocol.monitors import gap_regression
from arbiter_lab.reproduction.scored_days import Days
from arbiter_lab.reproduction.stages import Facts
from arbiter_lab.training import run_folder
from arbiter_lab.training.batch_stream import Lesson
from arbiter_lab.training.batches import Batch
from arbiter_lab.training.duality import estimate_dual_gap
from arbiter_lab.training.duals import Duals
from arbiter_lab.training.held_out import decode_volatilities
from arbiter_lab.training.law_pool import Laws
from arbiter_lab.training.objective import TrainingTask, make_task
from arbiter_lab.training.routes import kriging_places
from arbiter_lab.training.saddle import Evaluation
from arbiter_lab.training.trainer import Trainer

QUOTE_SHARES_KEPT = (0.7, 0.6, 0.5, 0.4, 0.3)
"""Shares of the quotes that are kept."""
DAYS_PER_WINDOW = 4
"""Number of days measured in a window, evenly spaced."""
MIN_REGRESSION_POINTS = 4
"""Fewest points of a regression."""
_THINNING_SEED = 72
_MIN_QUOTES_KEPT = 3  # smallest number of quotes of a thinned day


class CoverageWindow(NamedTuple):
    """Days with few quotes, in the form of a training batch.

    Attributes:
        batch: Quotes, and targets at every listed strike.
        lesson: Tensors of the training task.
        quoted: Share of the listed strikes that are quoted.
    """

    batch: Batch
    lesson: Lesson
    quoted: float


class _ExactReference:
    """Known volatilities of the log contract, in the place of a pool of laws."""

    def __init__(self, reference: Tensor) -> None:
        self.reference = reference

    def reference_at(self, _rows: Tensor, _clock: Tensor) -> Tensor:
        return self.reference


def regress_error_on_gap(
    place: Path, laws: Laws, days: Days, blocks: Sequence[NDArray[np.int64]], windows: int
) -> Facts:
    """Measure error and gap of each window, and regress the error on the gap.

    Args:
        place: Run folder of a network with the representer.
        laws: Any laws; the trainer needs a pool, and nothing is drawn from it.
        days: Days of the timeline.
        blocks: Numbers of the days out of sample by block; dependence is within blocks only.
        windows: Number of windows per block.

    Returns:
        Columns of the points and the coefficients, or a reason in their place.
    """
    leg, state, weights = run_folder.load(place)
    trainer = Trainer(leg.settings, laws)
    trainer.load(state, weights, leg.progress)
    trainer.average.copy_to(trainer.params)  # what is shipped, and not the last iterate
    points: list[dict[str, Any]] = []
    for number, block in enumerate(blocks):
        for part in np.array_split(block, min(windows, block.size)):
            rows = part[
                np.unique(np.linspace(0, part.size - 1, DAYS_PER_WINDOW).round().astype(int))
            ]
            for kept in QUOTE_SHARES_KEPT:
                point = _measure_window(trainer, make_coverage_window(trainer, days, rows, kept))
                if point is not None:
                    points.append({"block": number, "kept": kept, **point})
    columns = ("block", "kept", "coverage", "gap", "error")
    found: Facts = {name: [point[name] for point in points] for name in columns}
    if len(points) < MIN_REGRESSION_POINTS:
        return found | {"reason": f"{len(points)} windows: {MIN_REGRESSION_POINTS} are needed"}
    try:
        fitted = gap_regression(found["gap"], found["error"], found["block"])
    except ValueError as error:
        return found | {"reason": str(error)}
    return found | asdict(fitted)


def thin_quotes(quotes: Quotes, kept: float, seed: int) -> Quotes:
    """Return a random share of the quotes; a smaller share is a subset of a larger one."""
    chance = np.random.default_rng((_THINNING_SEED, seed)).uniform(size=len(quotes))
    return quotes.select(chance <= max(kept, float(np.sort(chance)[_MIN_QUOTES_KEPT - 1])))


def make_coverage_window(
    trainer: Trainer, days: Days, rows: NDArray[np.int64], kept: float
) -> CoverageWindow:
    """Return the days ``rows`` with a share of their quotes, and every listed strike as target."""
    chains = [thin_quotes(days.quotes[day], kept, day) for day in rows.tolist()]
    # float32, as training has it
    seen = pad_chains(chains, torch.float32)
    shape = (*seen.T.shape, _count_max_strikes(days, rows, chains))
    k, iv = np.zeros(shape), np.full(shape, 0.2)
    target = np.zeros(shape, dtype=np.bool_)
    reference = np.full(seen.T.shape, 0.2)
    listed = 0
    for place, (day, quotes) in enumerate(zip(rows.tolist(), chains, strict=True)):
        listed += int(days.listed[day].sum())
        total = days.market.log_variance(quotes.maturities, days.states[day])
        reference[place, : quotes.maturities.size] = np.sqrt(total / quotes.maturities)
        for row, here in enumerate(_mask_listed_strikes(days, day, quotes)):
            size = int(here.sum())
            k[place, row, :size], iv[place, row, :size] = days.k[day, here], days.iv[day, here]
            target[place, row, :size] = True
    at, truth, exact = (torch.from_numpy(a).float() for a in (k, iv, reference))
    batch = Batch(
        seen.T, seen.listed, seen.k, seen.iv, seen.half, seen.quoted, seen.iv, at, truth,
        torch.from_numpy(target), torch.arange(len(chains)), seen.T,
    )  # fmt: skip
    heads = kriging_places(trainer.settings.config)
    lesson = make_task(batch, _ExactReference(exact), heads).to_tensors()
    return CoverageWindow(batch, lesson, sum(map(len, chains)) / listed)


def _measure_window(trainer: Trainer, given: CoverageWindow) -> dict[str, float] | None:
    """Return gap and error of a window; None if no slice uses the kernel solution."""
    batch, chain = given.batch, TrainingTask.from_tensors(given.lesson).chain
    few = (coverage(chain) < MIN_COVERAGE) & batch.listed
    if not few.any():
        return None
    with torch.no_grad():
        output = trainer.network.decode(chain, TrainingTask.from_tensors(given.lesson).guess)
        found = decode_volatilities(output, batch.target_k, batch.T)
    error = (found - batch.target_iv.double())[batch.target & few[..., None]]
    gap = estimate_dual_gap(
        lambda duals: _evaluate_lagrangian(trainer, given.lesson, duals),
        trainer.params,
        trainer.duals,
        steps=trainer.settings.look_ahead,
        lr=trainer.settings.lr,
        project=trainer.project,
    )
    return {
        "coverage": given.quoted,
        "gap": gap.gap,
        "error": float(error.square().mean().sqrt()),
    }


def _evaluate_lagrangian(trainer: Trainer, lesson: Lesson, duals: Duals) -> Evaluation:
    with torch.enable_grad():
        found = trainer.route.evaluate(trainer.network, lesson)
        value = found.fit + duals.inner_product(found.defects)
        gradients = torch.autograd.grad(
            value, trainer.params, allow_unused=True, materialize_grads=True
        )
    defects = {name: defect.detach() for name, defect in found.defects.items()}
    return Evaluation(value.detach(), defects, gradients)


def _mask_listed_strikes(days: Days, day: int, quotes: Quotes) -> list[NDArray[np.bool_]]:
    """Return a mask of the listed strikes with a known volatility, for each quoted maturity."""
    known = np.isfinite(days.iv[day])
    return [known & (np.abs(days.T[day] - t) < 1e-9) for t in quotes.maturities.tolist()]


def _count_max_strikes(days: Days, rows: NDArray[np.int64], chains: Sequence[Quotes]) -> int:
    pairs = zip(rows.tolist(), chains, strict=True)
    return max(
        int(here.sum()) for day, quotes in pairs for here in _mask_listed_strikes(days, day, quotes)
    )
