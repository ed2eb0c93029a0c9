"""A fit that starts at its prior is nearly done, unless wrong weights first lead it away.

So the weights are settled on the quadratic model of the loss at the prior, where a round costs
two factorisations and no price. Near the shape of a bad prior the marginal likelihood may have a
maximum of its own: so it is compared with that of no prior, before the first step and again when
the weights are chosen.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np
from scipy.linalg import cho_solve_banded, cholesky_banded

from arbiter.conventions import Array
from arbiter.fitting.interior_point import RELATIVE_RIDGE, InteriorPointSolver
from arbiter.fitting.loss import Loss
from arbiter.fitting.objective import FitObjective
from arbiter.fitting.options import Roughness
from arbiter.fitting.smoothing import (
    PRIOR_DISPERSION,
    PRIOR_QUOTE_COUNT,
    RIDGE_PRECISION,
    SETTLED_LOG_CHANGE,
    USUAL_PRECISIONS,
    compute_weight_changes,
    get_roughness_weights,
    inverse_blocks,
    set_roughness_weights,
    traces_from_covariance,
)

_MAX_WEIGHT_ROUNDS = 4
LINEAR_LOSS_HALF_SPREADS = (
    3.0  # half-spreads: where the loss of the quadratic model, which has no wall, turns linear
)
_MIN_LOG_LIKELIHOOD_GAIN = (
    50.0  # of log-likelihood: a prior with less in its favour is compared with none
)
_MAX_INNER_STEPS = (
    3  # near the end constraints are what blocks a step, and they are cheap to walk along
)
INITIAL_COMPLEMENTARITY_SHARE = 0.01  # complementarity at the start, of the loss that is expected


def choose_initial_weights(model: FitObjective, interior: InteriorPointSolver) -> None:
    """Choose weights and trust for the first steps of ``interior``, which starts at the prior."""
    local = LocalQuadratic(
        model, interior.z, replace(model.options.loss, wall=0.0, far=LINEAR_LOSS_HALF_SPREADS)
    )
    found = local.settle_weights()
    found = _solve_without_prior(model, local, found) or found
    interior.refresh()
    interior.inner = _MAX_INNER_STEPS
    interior.set_expected_value(found.loss, INITIAL_COMPLEMENTARITY_SHARE)


def drop_unlikely_prior(model: FitObjective, interior: InteriorPointSolver) -> bool:
    """Forget the prior's shape if the quotes, with what was chosen, like it less than none."""
    if not model.trust > 0.0:
        return False
    local = LocalQuadratic(model, interior.z, model.options.loss)
    better = _solve_without_prior(model, local, local.solve())
    if better:
        model.shape_of_prior = np.zeros_like(model.shape_of_prior)
    interior.refresh()
    return better is not None


def _solve_without_prior(
    model: FitObjective, local: LocalQuadratic, found: _Solution
) -> _Solution | None:
    """The solution without the prior's shape where that is likelier; else all is left as it is."""
    if not model.shape_of_prior.any():
        return None
    kept = model.trust, model.roughness
    model.trust = 0.0
    model.roughness = Roughness(*(PRIOR_DISPERSION * x for x in (*USUAL_PRECISIONS, 1.0)))
    if local.solve().evidence > found.evidence - _MIN_LOG_LIKELIHOOD_GAIN:
        other = local.settle_weights()
        if other.evidence > found.evidence:
            return other
    model.trust, model.roughness = kept
    return None


class _Solution(NamedTuple):
    z: Array
    loss: float
    evidence: float  # log marginal likelihood of the weights, the dispersion profiled out


class LocalQuadratic:
    """The quadratic model of the loss at one point, solved for any weights."""

    def __init__(self, model: FitObjective, z: Array, loss: Loss) -> None:
        cost = loss(model.residuals)
        self.model, self.z, self.force = model, z, model.linearise(z, cost)
        self.loss = float(model.weights @ cost.value)
        self.data, self.band = model.data.copy(), model.information()
        self.count = np.count_nonzero(model.weights)

    def solve(self) -> _Solution:
        """The minimum under the present weights, and how likely they are."""
        model = self.model
        after, half = _factor(self.band + model.band)
        _, whole = _factor(model.band)
        push = self.force + model.apply_precision(self.z - model.centre)
        change = cho_solve_banded((after, True), -push)
        table = change.reshape(model.shape)
        quadratic = float(np.einsum("li,lij,lj->", table, self.data, table))
        loss = max(self.loss + float(self.force @ change) + 0.5 * quadratic, 0.0)
        away = self.z + change - model.centre
        cost = loss + 0.5 * float(away @ model.apply_precision(away))
        fit = 0.5 * self.count * np.log(max(cost / self.count, 1e-6))
        return _Solution(self.z + change, loss, float(whole - half - fit))

    def settle_weights(self) -> _Solution:
        """Re-weight until the weights change little, or a few times."""
        for _ in range(_MAX_WEIGHT_ROUNDS):
            change = self.weight_changes(self.solve())
            set_roughness_weights(self.model, get_roughness_weights(self.model) * np.exp(change))
            if np.abs(change).max() < SETTLED_LOG_CHANGE:
                break
        return self.solve()

    def weight_changes(self, found: _Solution) -> Array:
        """By how much the logarithms of the weights are to change."""
        model = self.model
        blocks, link = model.precision()
        after = inverse_blocks(blocks + self.data, link)
        left = max(self.count - float(np.sum(after[0] * self.data)), 0.0)
        dispersion = (2.0 * found.loss + PRIOR_QUOTE_COUNT * PRIOR_DISPERSION) / (
            left + PRIOR_QUOTE_COUNT
        )
        return compute_weight_changes(
            model, dispersion, traces_from_covariance(model, after, found.z)
        )


def _factor(band: Array) -> tuple[Array, float]:
    """Cholesky factor of a lower banded matrix, and half the logarithm of its determinant."""
    band = band.copy()
    band[0] += RIDGE_PRECISION + RELATIVE_RIDGE * band[0].max()
    factor = cholesky_banded(band, lower=True)
    return factor, float(np.log(factor[0]).sum())
