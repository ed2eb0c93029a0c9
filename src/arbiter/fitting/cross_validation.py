"""The weight of the pull to a guide, chosen by cross-validation.

The roughness weights of a fit are chosen in :mod:`arbiter.fitting.smoothing`.

A guide that was made from the quotes agrees with them by more than chance, so that their likelihood
overstates it. So the quotes are dealt into folds. Each fold is predicted from all others: by the
guide made from those, and a fit to those that is pulled to it. The pull is the one that predicts
best. Predictions use the quadratic model of the loss at one point, where each costs one
factorisation and no price.

The guides of the folds also measure how much of the quotes' noise is in the guide itself (the
jackknife). That noise enters the standard errors of a fit with a guide.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from arbiter.conventions import Array
from arbiter.fitting import banded
from arbiter.fitting.guided_objective import GuidedObjective, Pull, read_log_slopes
from arbiter.fitting.interior_point import add_ridge
from arbiter.fitting.loss import EXACT_LOSS_PER_QUOTE, Loss
from arbiter.fitting.misfit import MisfitPoint
from arbiter.fitting.normal_equations import add_normal_equations
from arbiter.fitting.smoothing import count_effective_parameters
from arbiter.quotes import Quotes
from arbiter.surface import Surface

Mask = NDArray[np.bool_]

FOLD_COUNT = 4
DEFAULT_PULL = Pull(1.0, 1.0)  # where there are too few quotes to judge by
_TRIAL_DECADES = np.arange(-4.0, 5.5, 1.5)  # of the pulls that are tried
_MAX_DECADES_APART = 1.5  # decades between the two weights of a pull
# Prior of the pull, in decades and worth a few quotes: both weights near ten thousand.
_USUAL_PULL_DECADE, _PULL_DECADE_DEVIATION, _BEND_DECADE_DEVIATION = 4.0, 1.0, 1.0
_BISECTION_COUNT, _MIN_PULL_SHARE = 6, 1e-6  # of the search for a fainter pull


class QuoteFold(NamedTuple):
    """Quotes that were held out, and the guide made from all others."""

    out: Mask  # (m,)
    guide: Surface


def folds(quotes: Quotes) -> list[Mask]:
    """Quotes dealt like cards, strike after strike; the next expiry begins with the next fold."""
    first = np.searchsorted(quotes.expiry, np.arange(quotes.maturities.size))
    rank = np.arange(len(quotes)) - first[quotes.expiry]
    dealt = (rank + quotes.expiry) % FOLD_COUNT
    return [dealt == fold for fold in range(FOLD_COUNT)]


class HeldOutFolds(NamedTuple):
    """The folds, with their guides as log-slopes."""

    outs: Sequence[Mask]  # K of (m,)
    guides: Array  # (K, p) log-slopes at the knots and maturities of the fit

    @classmethod
    def from_folds(cls, model: GuidedObjective, held: Sequence[QuoteFold]) -> HeldOutFolds:
        """The folds, their guides at the knots and maturities of ``model``."""
        guides = np.array([read_log_slopes(model, fold.guide) for fold in held])
        return cls([fold.out for fold in held], guides.reshape(len(held), model.layout.size))


def choose_pull(
    model: GuidedObjective, here: MisfitPoint, loss: Loss, unseen: HeldOutFolds
) -> Pull:
    """The pull that predicts best, given the roughness of ``model``.

    Args:
        model: The objective without a pull.
        here: Its misfit at a point near the fit.
        loss: Of the quadratic model and of the predictions.
        unseen: The folds.
    """
    parts = linearise_folds(model, here, loss, unseen)
    trials = [
        (a, b) for a in _TRIAL_DECADES for b in _TRIAL_DECADES if abs(a - b) <= _MAX_DECADES_APART
    ]
    residuals = np.empty(len(model.quotes))
    scores = []
    for a, b in trials:
        pull = Pull(10.0**a, 10.0**b)
        stiffness = model.unit_pulls.weigh(pull)
        for part in parts:
            force = part.force + part.pulls @ (pull.level, pull.bend, pull.beyond_quotes)
            change = banded.solve(banded.factorise(part.matrix + stiffness), -force)
            moved = change.reshape(model.layout.shape)[part.expiry]
            residuals[part.out] = part.residuals + np.sum(part.rows * moved, axis=1)
        scores.append(float(loss(residuals).value.sum()))
    return _average_pulls(np.array(trials), np.array(scores), len(model.quotes))


def _average_pulls(trials: Array, scores: Array, count: int) -> Pull:
    """The geometric mean of the trial pulls, weighted by the likelihoods of their predictions."""
    value, bend = trials.T
    likelihood = -0.5 * count * scores / max(scores.min(), EXACT_LOSS_PER_QUOTE * count)
    belief = ((value - _USUAL_PULL_DECADE) / _PULL_DECADE_DEVIATION) ** 2 + (
        (bend - value) / _BEND_DECADE_DEVIATION
    ) ** 2
    logs = likelihood - 0.5 * belief
    weight = np.exp(logs - logs.max())
    return Pull(*(10.0 ** (weight @ trials / weight.sum())).tolist())


class FoldModel(NamedTuple):
    """The quadratic model of all quotes but a fold, and the derivatives that predict the fold."""

    matrix: Array  # (p, w) data and roughness
    force: Array  # (p,) of both, at the point
    pulls: Array  # (p, 3) of the pull's parts at weight one
    out: Mask
    residuals: Array  # of the held-out quotes, at the point
    rows: Array  # and their derivatives
    expiry: NDArray[np.int64]


def linearise_folds(
    model: GuidedObjective, here: MisfitPoint, loss: Loss, unseen: HeldOutFolds
) -> list[FoldModel]:
    """For each fold, the quadratic model of all other quotes at one point, without the pull.

    Args:
        model: The objective without a pull.
        here: Its misfit at the point.
        loss: Of the quadratic model.
        unseen: The folds.
    """
    layout, starts, z = model.layout, model.misfit.smiles.starts, here.z
    ones = np.ones(layout.shape)
    cost, rows = loss(here.residuals), here.residual_jacobian()
    rough = model.quadratic.multiply(z - model.quadratic.centre)
    found = []
    for out, guide in zip(*unseen, strict=True):
        scaled = rows * np.sqrt(np.where(out, 0.0, cost.weight))[:, None]
        push = np.where(out, 0.0, cost.slope / np.sqrt(cost.weight))
        force, data = np.zeros(layout.size), np.zeros(layout.band_shape)
        add_normal_equations(scaled, push, starts, ones, force, data)
        matrix = add_ridge(data + model.quadratic.band)
        pulls = [banded.multiply(part, z - guide) for part in model.unit_pulls]
        found.append(
            FoldModel(
                matrix,
                force + rough,
                np.stack(pulls, axis=1),
                out,
                here.residuals[out],
                rows[out],
                model.quotes.expiry[out],
            )
        )
    return found


def find_overstated_precision(
    model: GuidedObjective, here: MisfitPoint, matrix: Array, dispersion: float, guides: Array
) -> tuple[Array, float]:
    """The precision that the pull adds beyond that of the guide, and the trust in the guide.

    The Gauss-Newton matrix treats the guide as exact. Its noise is the deviation of the folds'
    guides, carried through the fit. The noise is added to the variance that the matrix stands
    for, on average over the quotes, and the weaker pull is found that has the same variance.
    Without folds no pull is left.

    Args:
        model: The objective with its pull.
        here: Its misfit at the end of the fit.
        matrix: Its Gauss-Newton matrix with the constraints' stiffness, banded.
        dispersion: φ.
        guides: ``(K, p)`` of the folds.

    Returns:
        The part of the matrix to be taken away, banded, and the share of the fit's freedom
        that the guide takes.
    """
    band = model.pull_band()

    def freedom(share: float) -> float:
        return count_effective_parameters(here, matrix - (1.0 - share) * band)

    alone, now = freedom(_MIN_PULL_SHARE), freedom(1.0)
    trust = float(np.clip(1.0 - now / alone, 0.0, 1.0))
    if not len(guides):
        return (1.0 - _MIN_PULL_SHARE) * band, trust
    factor, data = banded.factorise(add_ridge(matrix)), here.linearisation.band
    squares = 0.0
    for away in guides - guides.mean(axis=0):
        moved = banded.solve(factor, banded.multiply(band, away))
        squares += float(moved @ banded.multiply(data, moved))
    noise = (1.0 - 1.0 / len(guides)) * squares / dispersion
    low, high = np.log(_MIN_PULL_SHARE), 0.0
    for _ in range(_BISECTION_COUNT):
        middle = 0.5 * (low + high)
        enough = freedom(float(np.exp(middle))) > now + noise
        low, high = (middle, high) if enough else (low, middle)
    return (1.0 - float(np.exp(low))) * band, trust
