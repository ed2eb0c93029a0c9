"""How rough the slopes may be, chosen by the data.

The residuals have an unknown variance φ, the log-slopes a Gaussian prior with precision λ/φ for
each penalty. The weights follow the marginal likelihood by the fixed point of Wood and Fasiolo
(2017, "A generalized Fellner-Schall method for smoothing parameter optimization"),

    λ ← λ φ · (tr(S_λ⁻ S) − tr(H⁻¹ S)) / uᵀ S u,

interleaved with the steps of the fit. Traces need the diagonal blocks of two inverses only, and
those cost one more pass over the expiries.

With a prior surface ``u`` is the distance from it, and two more things are chosen by the same
likelihood: the weight of that distance itself, and how much of the prior's shape is kept.
"""

from __future__ import annotations

from dataclasses import astuple, dataclass
from typing import NamedTuple, Protocol

import numpy as np
from scipy.linalg import solveh_banded

from arbiter.conventions import Array
from arbiter.fitting.interior_point import RELATIVE_RIDGE, InteriorPointSolver, Status
from arbiter.fitting.objective import FitObjective, iterate_link_diagonals
from arbiter.fitting.options import Roughness

_MAX_WEIGHT_ROUNDS = 12
SETTLED_LOG_CHANGE = 0.15  # change of the logarithms at which the weights count as chosen
_LOOSE_TOLERANCE = 1e-2  # tolerance of the fit between two rounds
_SETTLED_LOG_CHANGE_NEAR_PRIOR, _LOOSE_TOLERANCE_NEAR_PRIOR = (
    0.3,
    0.1,
)  # the same near a prior, where less is at stake
_WEIGHT_RANGE = (1e-6, 1e6)
# What is believed before the quotes speak, worth a few of them: mids uniform within the spread,
# and log-slopes as smooth as those of an index on an ordinary day (precisions, λ/φ).
PRIOR_QUOTE_COUNT, PRIOR_DISPERSION = 8.0, 1.0 / 3.0
_PRIOR_TERM_COUNT, USUAL_PRECISIONS = 1.0, (5.0, 20.0, 20.0)
_NEAR_PRIOR_PRECISIONS = (
    500.0,
    2000.0,
    2000.0,
    2000.0,
)  # and of a prior: that it is right to about 2 %
_TRUST_PRECISION = 1.0  # precision of the trust in a prior's shape, around all of it
RIDGE_PRECISION = 1e-8  # without a prior constants cost nothing, and P cannot be inverted there
_CENTRAL_PATH_SHARE = (
    1e-3  # share of the objective left to the constraints, so that iterates stay central
)


@dataclass(frozen=True)
class ResidualVariance:
    """What the residuals leave: effective parameters, variance and cross-validation score."""

    freedom: float
    dispersion: float  # φ, in squared half-spreads
    uneven: float  # how much less the quotes say than their number, since stiffness differs
    gcv: float


class FitIterate(Protocol):
    """Where a fit stands: what :func:`spread` and :func:`traces` need of it."""

    @property
    def z(self) -> Array:
        """The unknowns."""

    def matrix(self) -> Array:
        """The Gauss-Newton matrix with the constraints' stiffness, lower banded."""


class PenaltyTrace(NamedTuple):
    """What one weight is chosen from."""

    prior: float  # tr(S_λ⁻ S)
    posterior: float  # tr(H⁻¹ S)
    energy: float  # uᵀ S u


def choose_roughness(model: FitObjective, interior: InteriorPointSolver, limit: int) -> Status:
    """Alternate between fitting and re-weighting, until neither changes much."""
    if model.options.roughness == "gcv":
        return _choose_by_gcv(model, interior, limit)
    status = Status.CONVERGED
    settled, loose = (
        (_SETTLED_LOG_CHANGE_NEAR_PRIOR, _LOOSE_TOLERANCE_NEAR_PRIOR)
        if model.prior
        else (SETTLED_LOG_CHANGE, _LOOSE_TOLERANCE)
    )
    previous = np.zeros(_count_weights(model))
    for _ in range(_MAX_WEIGHT_ROUNDS):
        status = _fit_loosely(interior, limit, loose)
        if status is not Status.CONVERGED:
            return status
        dispersion, terms = compute_traces(model, interior)
        step = compute_weight_changes(model, dispersion, terms)
        # the map has a negative slope near its fixed point: it overshoots, and halves are safe
        step = np.where(step * previous < 0.0, 0.5 * step, step)
        previous = step
        moved = _update_trust(model, interior, dispersion) if model.prior else 0.0
        set_roughness_weights(model, get_roughness_weights(model) * np.exp(step))
        interior.refresh()
        if max(np.abs(step).max(), moved) < settled:
            break
    return status


def _count_weights(model: FitObjective) -> int:
    """How many weights are chosen: that of the level only where there is a prior."""
    return 4 if model.prior else 3


def get_roughness_weights(model: FitObjective) -> Array:
    """The weights that are chosen."""
    return np.array(astuple(model.roughness)[: _count_weights(model)])


def compute_weight_changes(
    model: FitObjective, dispersion: float, terms: list[PenaltyTrace]
) -> Array:
    """Change of the weights' logarithms."""
    old = get_roughness_weights(model)
    believed = _NEAR_PRIOR_PRECISIONS if model.prior else USUAL_PRECISIONS
    parts = zip(old, terms[: old.size], believed, strict=True)
    new = np.array([_update_weight(dispersion, *part) for part in parts])
    return np.asarray(np.clip(np.log(new / old), -3.0, 3.0))


def _update_trust(model: FitObjective, interior: InteriorPointSolver, dispersion: float) -> float:
    """Newton's step of the marginal likelihood in the trust; by how much it changed.

    The likelihood is quadratic in the centre ``flat + trust · g``: its slope is gᵀP(z − centre)
    and its curvature gᵀ(P − P H⁻¹ P)g, what the quotes see of the prior's shape.
    """
    if not model.shape_of_prior.any():
        return 0.0
    pull = model.apply_precision(model.shape_of_prior)
    matrix = interior.matrix()
    matrix[0] += RELATIVE_RIDGE * matrix[0].max()
    solved = solveh_banded(matrix, pull, lower=True)
    faith = dispersion * _TRUST_PRECISION
    slope = pull @ (interior.z - model.centre) + faith * (1.0 - model.trust)
    curvature = max(model.shape_of_prior @ pull - pull @ solved, 0.0) + faith
    before = model.trust
    model.trust = float(np.clip(before + slope / curvature, 0.0, 1.0))
    return abs(model.trust - before)


def _fit_loosely(
    interior: InteriorPointSolver, limit: int, tolerance: float = _LOOSE_TOLERANCE
) -> Status:
    """Fit with the present weights, no further than the next choice of weights needs."""
    value = max(min(interior.local.value, interior.expected), interior.scale)
    centre = _CENTRAL_PATH_SHARE * value / interior.y.size
    return interior.run(tolerance, limit - interior.iterations, centre)


def set_roughness_weights(model: FitObjective, weights: Array) -> None:
    """Set the weights that are chosen, kept within bounds."""
    model.roughness = Roughness(*np.clip(weights, *_WEIGHT_RANGE).tolist())


def _update_weight(dispersion: float, weight: float, term: PenaltyTrace, precision: float) -> float:
    seen = weight * max(term.prior - term.posterior, 0.0) + _PRIOR_TERM_COUNT
    value = dispersion * seen / (term.energy + _PRIOR_TERM_COUNT / precision)
    return float(np.clip(value, *_WEIGHT_RANGE))


def _choose_by_gcv(model: FitObjective, interior: InteriorPointSolver, limit: int) -> Status:
    """Coordinate search of the generalised cross-validation score on a grid of decades."""
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
            set_roughness_weights(model, 10.0**trial)
            interior.refresh()
            status = _fit_loosely(interior, limit)
            if status is not Status.CONVERGED:
                return status
            score = estimate_residual_variance(model, interior).gcv
            if score < best:
                best, centre = score, trial
        if centre is middle:
            step *= 0.5
    set_roughness_weights(model, 10.0**centre)
    interior.refresh()
    return Status.CONVERGED


def estimate_residual_variance(model: FitObjective, interior: FitIterate) -> ResidualVariance:
    """Residual variance at the present iterate."""
    return _variance_from_inverse(
        model, inverse_blocks(*_blocks_from_banded(model, interior.matrix()))[0]
    )


def count_effective_parameters(model: FitObjective, band: Array) -> float:
    """Effective parameters of a fit whose Gauss-Newton matrix is ``band``."""
    return float(np.sum(inverse_blocks(*_blocks_from_banded(model, band))[0] * model.data))


def _variance_from_inverse(model: FitObjective, inner: Array) -> ResidualVariance:
    freedom = float(np.sum(inner * model.data))
    cost = model.options.loss(model.residuals)
    count = float(np.count_nonzero(model.weights))
    # of a robust loss: the variance of the force over its mean stiffness (Huber 1973). The few
    # quotes that miss by more than their spread say nothing about the noise of the others.
    edge = float(model.options.loss(np.ones(1)).slope[0])
    squares = float(np.sum(model.weights * np.minimum(np.abs(cost.slope), edge) ** 2))
    squares *= count / float(np.sum(model.weights * cost.weight))
    left = max(count - freedom, 0.0)
    dispersion = (squares + PRIOR_QUOTE_COUNT * PRIOR_DISPERSION) / (left + PRIOR_QUOTE_COUNT)
    # stiffness differs from quote to quote: the fit leans on few of them (Huber 1981, § 7.6)
    mean = float(np.sum(model.weights * cost.weight)) / count
    square = float(np.sum(model.weights * cost.weight**2)) / count
    uneven = 1.0 + freedom / count * max(square / mean**2 - 1.0, 0.0)
    gcv = count * squares / max(left, 0.02 * count) ** 2
    return ResidualVariance(freedom, dispersion, uneven, gcv)


def compute_traces(model: FitObjective, interior: FitIterate) -> tuple[float, list[PenaltyTrace]]:
    """The dispersion, and the traces of the roughnesses."""
    after = inverse_blocks(*_blocks_from_banded(model, interior.matrix()))
    return _variance_from_inverse(model, after[0]).dispersion, traces_from_covariance(
        model, after, interior.z
    )


def traces_from_covariance(
    model: FitObjective, after: tuple[Array, Array], z: Array
) -> list[PenaltyTrace]:
    """What the weights are chosen from, given blocks of the posterior covariance."""
    blocks, link = model.precision()
    at = np.arange(model.block)
    blocks[:, at, at] += RIDGE_PRECISION
    before = inverse_blocks(blocks, link)
    away, _ = model.unpack(z - model.centre)
    energy = np.sum([model.penalty.terms(part) for part in away], axis=0)
    prior, posterior = _roughness_traces(model, *before), _roughness_traces(model, *after)
    return [PenaltyTrace(*parts) for parts in zip(prior, posterior, energy, strict=True)]


def _roughness_traces(model: FitObjective, inner: Array, beside: Array) -> Array:
    """``tr(V S)`` of the roughnesses, for a covariance V given by its blocks."""
    parts = [slice(j * model.n, (j + 1) * model.n) for j in range(model.components)]
    traces = [model.penalty.traces(inner[:, p, p], beside[:, p, p]) for p in parts]
    return np.asarray(np.sum(traces, axis=0))


def _blocks_from_banded(model: FitObjective, band: Array) -> tuple[Array, Array]:
    """Diagonal blocks and those beside them, from lower banded form."""
    size = model.block
    table = band.reshape(-1, model.L, size)
    row, column = np.tril_indices(size)
    blocks = np.zeros((model.L, size, size))
    blocks[:, row, column] = table[row - column, :, column].T
    blocks[:, column, row] = blocks[:, row, column]
    link = np.zeros((model.L - 1, size, size))
    for shift, at in iterate_link_diagonals(size):
        link[:, at + shift, at] = table[size + shift, :-1, at].T
    return blocks, link


def inverse_blocks(blocks: Array, link: Array) -> tuple[Array, Array]:
    """Blocks of the inverse of a block-tridiagonal matrix: the diagonal ones and those above.

    Args:
        blocks: ``(L, B, B)``.
        link: ``(L-1, B, B)`` symmetric blocks beside them.
    """
    count = blocks.shape[0]
    left = np.empty_like(blocks)
    left[0] = np.linalg.inv(blocks[0])
    for i in range(1, count):
        edge = link[i - 1]
        left[i] = np.linalg.inv(blocks[i] - edge @ left[i - 1] @ edge)
    inner, beside = left.copy(), np.empty((count - 1, *blocks.shape[1:]))
    for i in range(count - 2, -1, -1):
        carried = left[i] @ link[i]
        beside[i] = -carried @ inner[i + 1]
        inner[i] -= beside[i] @ carried.T
    return inner, beside
