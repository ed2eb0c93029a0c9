"""The first weights of a fit that starts at its prior.

Such a fit is nearly done at once, unless wrong weights first lead it away. So the weights are
settled on the quadratic model of the loss at the prior, where a round costs two factorisations and
no price. Near the shape of a bad prior the marginal likelihood may have a maximum of its own. So it
is compared with the likelihood without the shape, before the first step and again when the weights
are chosen.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from arbiter.conventions import Array
from arbiter.fitting import banded
from arbiter.fitting.fit_end import MAX_INNER_STEPS
from arbiter.fitting.interior_point import InteriorPoint, add_ridge
from arbiter.fitting.loss import Loss
from arbiter.fitting.misfit import Linearisation, MisfitPoint
from arbiter.fitting.objective import FitObjective, FitPoint
from arbiter.fitting.options import Roughness
from arbiter.fitting.smoothing import (
    PRIOR_DISPERSION,
    PRIOR_QUOTE_COUNT,
    RIDGE_PRECISION,
    SETTLED_LOG_CHANGE,
    USUAL_PRECISIONS,
    bound_roughness,
    compute_weight_changes,
    get_roughness_weights,
    invert_matrix,
    reweigh_iterate,
    traces_from_covariance,
)

_MAX_WEIGHT_ROUNDS = 4
_MIN_LOG_LIKELIHOOD_GAIN = 50.0  # a prior with less in its favour is compared with none
INITIAL_COMPLEMENTARITY_SHARE = 0.01  # complementarity at the start, of the loss that is expected


def choose_initial_weights(interior: InteriorPoint[FitPoint]) -> InteriorPoint[FitPoint]:
    """The same iterate, which is at the prior, with weights and trust for its first steps."""
    misfit, model = interior.point.misfit, interior.point.objective
    soft = model.options.loss.soften()
    local = LocalQuadratic.at_point(misfit, soft)
    found = local.settle_weights(model)
    found = _solve_without_prior(local, found) or found
    ready = reweigh_iterate(interior, found.objective).with_inner_steps(MAX_INNER_STEPS)
    return ready.with_expected_value(found.loss, INITIAL_COMPLEMENTARITY_SHARE)


def drop_unlikely_prior(interior: InteriorPoint[FitPoint]) -> InteriorPoint[FitPoint] | None:
    """The same iterate without the prior's shape, or None where the shape is likelier than none."""
    model = interior.point.objective
    if not model.trust > 0.0:
        return None
    local = LocalQuadratic.at_point(interior.point.misfit, model.misfit.loss)
    better = _solve_without_prior(local, local.solve(model))
    if better is None:
        return None
    return reweigh_iterate(interior, better.objective.without_prior_shape())


def _solve_without_prior(local: LocalQuadratic, found: LocalSolution) -> LocalSolution | None:
    """The solution without the prior's shape where that is likelier than ``found``."""
    model = found.objective
    if not model.mean.shape.any():
        return None
    usual = Roughness(*(PRIOR_DISPERSION * x for x in (*USUAL_PRECISIONS, 1.0)))
    without = model.with_trust(usual, 0.0)
    if local.solve(without).evidence > found.evidence - _MIN_LOG_LIKELIHOOD_GAIN:
        other = local.settle_weights(without)
        if other.evidence > found.evidence:
            return other
    return None


class LocalSolution(NamedTuple):
    """The minimum of a quadratic model under the weights of one objective."""

    objective: FitObjective
    z: Array
    loss: float
    evidence: float  # log marginal likelihood of the weights, the dispersion profiled out


@dataclass(frozen=True, eq=False)
class LocalQuadratic:
    """The quadratic model of a loss at one point, solved for any weights.

    Attributes:
        z: ``(p,)`` the point.
        loss: The loss there.
        linearisation: Its gradient and Gauss-Newton matrix.
        count: Quotes with a weight.
    """

    z: Array
    loss: float
    linearisation: Linearisation
    count: int

    @classmethod
    def at_point(cls, point: MisfitPoint, loss: Loss) -> LocalQuadratic:
        """The quadratic model of ``loss`` where the misfit was evaluated."""
        cost, weights = loss(point.residuals), point.misfit.weights
        value, count = float(weights @ cost.value), int(np.count_nonzero(weights))
        return cls(point.z, value, point.linearise(cost), count)

    def solve(self, model: FitObjective) -> LocalSolution:
        """The minimum with the roughness of ``model``, and how likely its weights are."""
        quadratic, local = model.quadratic, self.linearisation
        after, half = _factor(local.band + quadratic.band)
        _, whole = _factor(quadratic.band)
        force = local.gradient
        push = force + quadratic.multiply(self.z - quadratic.centre)
        change = banded.solve(after, -push)
        curvature = float(change @ banded.multiply(local.band, change))
        loss = max(self.loss + float(force @ change) + 0.5 * curvature, 0.0)
        away = self.z + change - quadratic.centre
        cost = loss + 0.5 * float(away @ quadratic.multiply(away))
        fit = 0.5 * self.count * np.log(max(cost / self.count, 1e-6))
        return LocalSolution(model, self.z + change, loss, float(whole - half - fit))

    def settle_weights(self, model: FitObjective) -> LocalSolution:
        """The solution after re-weighting ``model`` until its weights change little."""
        for _ in range(_MAX_WEIGHT_ROUNDS):
            change = self.weight_changes(self.solve(model))
            weights = get_roughness_weights(model) * np.exp(change)
            model = model.with_roughness(bound_roughness(weights))
            if np.abs(change).max() < SETTLED_LOG_CHANGE:
                break
        return self.solve(model)

    def weight_changes(self, found: LocalSolution) -> Array:
        """Changes of the logarithms of the weights after the solution ``found``."""
        model, band = found.objective, self.linearisation.band
        after = invert_matrix(model.quadratic.band + band)
        left = max(self.count - banded.inner_product(after, band), 0.0)
        dispersion = (2.0 * found.loss + PRIOR_QUOTE_COUNT * PRIOR_DISPERSION) / (
            left + PRIOR_QUOTE_COUNT
        )
        return compute_weight_changes(
            model, dispersion, traces_from_covariance(model, after, found.z)
        )


def _factor(band: Array) -> tuple[Array, float]:
    """Cholesky factor of a banded matrix, and half the logarithm of its determinant."""
    factor = banded.factorise(add_ridge(band, RIDGE_PRECISION))
    return factor, banded.half_log_determinant(factor)
