"""The weights of the roughness, chosen by marginal likelihood or cross-validation.

The residuals have an unknown variance φ, the log-slopes a Gaussian prior with precision λ/φ for
each penalty. The weights follow the marginal likelihood by the fixed point of Wood and Fasiolo
(2017, "A generalized Fellner-Schall method for smoothing parameter optimization"),

    λ ← λ φ · (tr(S_λ⁻ S) − tr(H⁻¹ S)) / uᵀ S u,

interleaved with the steps of the fit. Traces need the entries of two inverses within the band only,
and those cost one more pass over the expiries.

With a prior surface ``u`` is the distance from it. The same likelihood then chooses the weight of
that distance itself, and the share of the prior's shape that is kept.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from arbiter.conventions import Array
from arbiter.fitting import banded
from arbiter.fitting.interior_point import InteriorPoint, Status, add_ridge
from arbiter.fitting.misfit import MisfitPoint
from arbiter.fitting.objective import FitObjective, FitPoint
from arbiter.fitting.options import Roughness

_MAX_WEIGHT_ROUNDS = 12
SETTLED_LOG_CHANGE = 0.15  # change of the logarithms at which the weights count as chosen
_LOOSE_TOLERANCE = 1e-2  # tolerance of the fit between two rounds
# The same two near a prior, where the weights matter less.
_SETTLED_LOG_CHANGE_NEAR_PRIOR, _LOOSE_TOLERANCE_NEAR_PRIOR = 0.3, 0.1
_WEIGHT_RANGE = (1e-6, 1e6)
# Prior assumptions, worth a few quotes: mids uniform within the spread, and log-slopes as smooth
# as those of an index on an ordinary day (precisions, λ/φ).
PRIOR_QUOTE_COUNT, PRIOR_DISPERSION = 8.0, 1.0 / 3.0
_PRIOR_TERM_COUNT, USUAL_PRECISIONS = 1.0, (5.0, 20.0, 20.0)
_NEAR_PRIOR_PRECISIONS = (500.0, 2000.0, 2000.0, 2000.0)  # with a prior surface: right to 2 %
_TRUST_PRECISION = 1.0  # precision of the trust in a prior's shape, around all of it
RIDGE_PRECISION = 1e-8  # without a prior constants cost nothing, and P cannot be inverted there
_CENTRAL_PATH_SHARE = 1e-3  # share of the objective left to the constraints, for central iterates


@dataclass(frozen=True)
class ResidualVariance:
    """The variance of the residuals, and what it is estimated from.

    Attributes:
        freedom: Effective number of parameters.
        dispersion: φ, in squared half-spreads.
        uneven: Huber's correction of the information: stiffness differs between quotes.
        gcv: Score of the generalised cross-validation.
    """

    freedom: float
    dispersion: float
    uneven: float
    gcv: float


class PenaltyTrace(NamedTuple):
    """The terms from which one weight is chosen."""

    prior: float  # tr(S_λ⁻ S)
    posterior: float  # tr(H⁻¹ S)
    energy: float  # uᵀ S u


def choose_roughness(
    interior: InteriorPoint[FitPoint], limit: int
) -> tuple[InteriorPoint[FitPoint], Status]:
    """Alternate between fitting and re-weighting, until neither changes much.

    Args:
        interior: Where to start.
        limit: Most steps of the fit, with those that ``interior`` has behind it.

    Returns:
        The iterate with the chosen weights in its objective, and how the fit ended.
    """
    first = interior.point.objective
    if first.options.roughness == "gcv":
        return _choose_by_gcv(interior, limit)
    status, has_prior = Status.CONVERGED, first.mean.is_prior
    settled, loose = (
        (_SETTLED_LOG_CHANGE_NEAR_PRIOR, _LOOSE_TOLERANCE_NEAR_PRIOR)
        if has_prior
        else (SETTLED_LOG_CHANGE, _LOOSE_TOLERANCE)
    )
    previous = np.zeros(_count_weights(first))
    for _ in range(_MAX_WEIGHT_ROUNDS):
        interior, status = _fit_loosely(interior, limit, loose)
        if status is not Status.CONVERGED:
            return interior, status
        model = interior.point.objective
        dispersion, terms = compute_traces(interior.point, interior.matrix())
        step = compute_weight_changes(model, dispersion, terms)
        # the map has a negative slope near its fixed point: it overshoots, and halves are safe
        step = np.where(step * previous < 0.0, 0.5 * step, step)
        previous = step
        trust = update_trust(interior, dispersion) if has_prior else model.trust
        roughness = bound_roughness(get_roughness_weights(model) * np.exp(step))
        interior = reweigh_iterate(interior, model.with_trust(roughness, trust))
        if max(np.abs(step).max(), abs(trust - model.trust)) < settled:
            break
    return interior, status


def reweigh_iterate(
    interior: InteriorPoint[FitPoint], model: FitObjective
) -> InteriorPoint[FitPoint]:
    """The same iterate for ``model``, whose quotes are those of the iterate's own objective."""
    return interior.with_objective(model, model.add_roughness(interior.point.misfit))


def _count_weights(model: FitObjective) -> int:
    """The number of weights that are chosen; the fourth is the weight of a prior."""
    return 4 if model.mean.is_prior else 3


def get_roughness_weights(model: FitObjective) -> Array:
    """The weights of ``model`` that are chosen, ``(3,)`` or with a prior ``(4,)``."""
    return np.array(model.roughness.weights[: _count_weights(model)])


def bound_roughness(weights: Array) -> Roughness:
    """The roughness of weights ``(3,)`` or ``(4,)``, each clipped to the range of weights."""
    return Roughness(*np.clip(weights, *_WEIGHT_RANGE).tolist())


def compute_weight_changes(
    model: FitObjective, dispersion: float, terms: list[PenaltyTrace]
) -> Array:
    """Changes of the weights' logarithms, by one step of the fixed point."""
    old = get_roughness_weights(model)
    believed = _NEAR_PRIOR_PRECISIONS if model.mean.is_prior else USUAL_PRECISIONS
    parts = zip(old, terms[: old.size], believed, strict=True)
    new = np.array([_update_weight(dispersion, *part) for part in parts])
    return np.asarray(np.clip(np.log(new / old), -3.0, 3.0))


def update_trust(interior: InteriorPoint[FitPoint], dispersion: float) -> float:
    """The trust in the prior after Newton's step of the marginal likelihood.

    The likelihood is quadratic in the centre ``flat + trust · g``. Its slope is gᵀP(z − centre),
    and its curvature gᵀ(P − P H⁻¹ P)g is the information of the quotes about the prior's shape.
    """
    model = interior.point.objective
    shape, quadratic = model.mean.shape, model.quadratic
    if not shape.any():
        return model.trust
    pull = quadratic.multiply(shape)
    solved = banded.solve(banded.factorise(add_ridge(interior.matrix())), pull)
    faith = dispersion * _TRUST_PRECISION
    slope = pull @ (interior.z - quadratic.centre) + faith * (1.0 - model.trust)
    curvature = max(float(shape @ pull - pull @ solved), 0.0) + faith
    return float(np.clip(model.trust + slope / curvature, 0.0, 1.0))


def _fit_loosely(
    interior: InteriorPoint[FitPoint], limit: int, tolerance: float = _LOOSE_TOLERANCE
) -> tuple[InteriorPoint[FitPoint], Status]:
    """Fit with the present weights, no further than the next choice of weights needs."""
    value = max(min(interior.point.value, interior.expected), interior.scale)
    centre = _CENTRAL_PATH_SHARE * value / interior.slacks.size
    return interior.run(tolerance, limit - interior.iterations, centre)


def _update_weight(dispersion: float, weight: float, term: PenaltyTrace, precision: float) -> float:
    seen = weight * max(term.prior - term.posterior, 0.0) + _PRIOR_TERM_COUNT
    value = dispersion * seen / (term.energy + _PRIOR_TERM_COUNT / precision)
    return float(np.clip(value, *_WEIGHT_RANGE))


def _choose_by_gcv(
    interior: InteriorPoint[FitPoint], limit: int
) -> tuple[InteriorPoint[FitPoint], Status]:
    """Coordinate search of the generalised cross-validation score on a grid of decades."""
    model = interior.point.objective
    best, centre = np.inf, np.log10(get_roughness_weights(model))
    sides = np.eye(_count_weights(model))
    seen: set[tuple[float, ...]] = set()
    step = 1.0
    for _ in range(4):
        middle = centre
        for trial in [middle, *(middle + step * side for side in (*sides, *-sides))]:
            key = tuple(np.round(trial, 3))
            if key in seen:
                continue
            seen.add(key)
            tried = model.with_roughness(bound_roughness(10.0**trial))
            interior, status = _fit_loosely(reweigh_iterate(interior, tried), limit)
            if status is not Status.CONVERGED:
                return interior, status
            score = estimate_residual_variance(interior.point, interior.matrix()).gcv
            if score < best:
                best, centre = score, trial
        if centre is middle:
            step *= 0.5
    chosen = model.with_roughness(bound_roughness(10.0**centre))
    return reweigh_iterate(interior, chosen), Status.CONVERGED


def estimate_residual_variance(point: FitPoint, matrix: Array) -> ResidualVariance:
    """The variance of the residuals at a point.

    Args:
        point: The objective there.
        matrix: Its Gauss-Newton matrix with the constraints' stiffness, banded.
    """
    return _variance_from_inverse(point.misfit, invert_matrix(matrix))


def count_effective_parameters(point: MisfitPoint, band: Array) -> float:
    """Effective parameters of a fit whose Gauss-Newton matrix is ``band``."""
    return banded.inner_product(invert_matrix(band), point.of_quotes.band)


def invert_matrix(matrix: Array) -> Array:
    """The inverse of a Gauss-Newton matrix within its band."""
    return banded.invert_within_band(banded.factorise(add_ridge(matrix)))


def _variance_from_inverse(point: MisfitPoint, inverse: Array) -> ResidualVariance:
    freedom = banded.inner_product(inverse, point.of_quotes.band)
    cost, weights = point.cost, point.misfit.weights
    count = float(np.count_nonzero(weights))
    # of a robust loss: the variance of the force over its mean stiffness (Huber 1973). The few
    # quotes that miss by more than their spread do not inform about the noise of the others.
    edge = float(point.misfit.loss(np.ones(1)).slope[0])
    squares = float(np.sum(weights * np.minimum(np.abs(cost.slope), edge) ** 2))
    squares *= count / float(np.sum(weights * cost.weight))
    left = max(count - freedom, 0.0)
    dispersion = (squares + PRIOR_QUOTE_COUNT * PRIOR_DISPERSION) / (left + PRIOR_QUOTE_COUNT)
    uneven = compute_unevenness(freedom, weights, cost.weight)
    gcv = count * squares / max(left, 0.02 * count) ** 2
    return ResidualVariance(freedom, dispersion, uneven, gcv)


def compute_unevenness(freedom: float, weights: Array, stiffness: Array) -> float:
    """Huber's correction of the information (1981, § 7.6).

    Stiffness differs from quote to quote, so that few of them determine the fit.
    """
    count = float(np.count_nonzero(weights))
    mean, square = float(weights @ stiffness) / count, float(weights @ stiffness**2) / count
    return 1.0 + freedom / count * max(square / mean**2 - 1.0, 0.0)


def compute_traces(point: FitPoint, matrix: Array) -> tuple[float, list[PenaltyTrace]]:
    """The dispersion, and the terms from which the weights are chosen.

    Args:
        point: The objective at a point.
        matrix: Its Gauss-Newton matrix with the constraints' stiffness, banded.
    """
    after = invert_matrix(matrix)
    dispersion = _variance_from_inverse(point.misfit, after).dispersion
    return dispersion, traces_from_covariance(point.objective, after, point.misfit.z)


def traces_from_covariance(model: FitObjective, after: Array, z: Array) -> list[PenaltyTrace]:
    """The terms from which the weights are chosen, given the posterior covariance in its band."""
    quadratic, penalty = model.quadratic, model.penalty
    before = banded.invert_within_band(banded.factorise(add_ridge(quadratic.band, RIDGE_PRECISION)))
    count = _count_weights(model)
    prior, posterior = (penalty.average_terms(part, count) for part in (before, after))
    energy = penalty.evaluate_terms(z - quadratic.centre, count)
    return [PenaltyTrace(*parts) for parts in zip(prior, posterior, energy, strict=True)]
