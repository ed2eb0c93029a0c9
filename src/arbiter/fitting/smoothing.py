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
from numpy.typing import NDArray
from scipy.linalg import solveh_banded

from arbiter.fitting.interior_point import RIDGE, Interior, Status
from arbiter.fitting.objective import Model, beside
from arbiter.fitting.options import Roughness

Array = NDArray[np.float64]

_ROUNDS = 12
SETTLED = 0.15  # change of the logarithms at which the weights count as chosen
_LOOSE = 1e-2  # tolerance of the fit between two rounds
_SETTLED_NEAR, _LOOSE_NEAR = 0.3, 0.1  # the same near a prior, where less is at stake
_RANGE = (1e-6, 1e6)
# What is believed before the quotes speak, worth a few of them: mids uniform within the spread,
# and log-slopes as smooth as those of an index on an ordinary day (precisions, λ/φ).
QUOTES, DISPERSION = 8.0, 1.0 / 3.0
_TERMS, PRECISION = 1.0, (5.0, 20.0, 20.0)
_CLOSE = (500.0, 2000.0, 2000.0, 2000.0)  # and of a prior: that it is right to about 2 %
_FAITH = 1.0  # precision of the trust in a prior's shape, around all of it
PROPER = 1e-8  # without a prior constants cost nothing, and P cannot be inverted there
_CENTRE = 1e-3  # share of the objective left to the constraints, so that iterates stay central


@dataclass(frozen=True)
class Spread:
    """What the residuals leave: effective parameters, variance and cross-validation score."""

    freedom: float
    dispersion: float  # φ, in squared half-spreads
    uneven: float  # how much less the quotes say than their number, since stiffness differs
    gcv: float


class Stiffness(Protocol):
    """Where a fit stands: what :func:`spread` and :func:`traces` need of it."""

    @property
    def z(self) -> Array:
        """The unknowns."""

    def matrix(self) -> Array:
        """The Gauss-Newton matrix with the constraints' stiffness, lower banded."""


class Trace(NamedTuple):
    """What one weight is chosen from."""

    prior: float  # tr(S_λ⁻ S)
    posterior: float  # tr(H⁻¹ S)
    energy: float  # uᵀ S u


def choose(model: Model, interior: Interior, limit: int) -> Status:
    """Alternate between fitting and re-weighting, until neither changes much."""
    if model.options.roughness == "gcv":
        return _by_gcv(model, interior, limit)
    status = Status.CONVERGED
    settled, loose = (_SETTLED_NEAR, _LOOSE_NEAR) if model.prior else (SETTLED, _LOOSE)
    previous = np.zeros(_count(model))
    for _ in range(_ROUNDS):
        status = _loosely(interior, limit, loose)
        if status is not Status.CONVERGED:
            return status
        dispersion, terms = traces(model, interior)
        step = change_of(model, dispersion, terms)
        # the map has a negative slope near its fixed point: it overshoots, and halves are safe
        step = np.where(step * previous < 0.0, 0.5 * step, step)
        previous = step
        moved = _trust(model, interior, dispersion) if model.prior else 0.0
        reweigh(model, weights_of(model) * np.exp(step))
        interior.refresh()
        if max(np.abs(step).max(), moved) < settled:
            break
    return status


def _count(model: Model) -> int:
    """How many weights are chosen: that of the level only where there is a prior."""
    return 4 if model.prior else 3


def weights_of(model: Model) -> Array:
    """The weights that are chosen."""
    return np.array(astuple(model.roughness)[: _count(model)])


def change_of(model: Model, dispersion: float, terms: list[Trace]) -> Array:
    """Change of the weights' logarithms."""
    old = weights_of(model)
    believed = _CLOSE if model.prior else PRECISION
    parts = zip(old, terms[: old.size], believed, strict=True)
    new = np.array([_update(dispersion, *part) for part in parts])
    return np.asarray(np.clip(np.log(new / old), -3.0, 3.0))


def _trust(model: Model, interior: Interior, dispersion: float) -> float:
    """Newton's step of the marginal likelihood in the trust; by how much it changed.

    The likelihood is quadratic in the centre ``flat + trust · g``: its slope is gᵀP(z − centre)
    and its curvature gᵀ(P − P H⁻¹ P)g, what the quotes see of the prior's shape.
    """
    if not model.shape_of_prior.any():
        return 0.0
    pull = model.stiffness(model.shape_of_prior)
    matrix = interior.matrix()
    matrix[0] += RIDGE * matrix[0].max()
    solved = solveh_banded(matrix, pull, lower=True)
    faith = dispersion * _FAITH
    slope = pull @ (interior.z - model.centre) + faith * (1.0 - model.trust)
    curvature = max(model.shape_of_prior @ pull - pull @ solved, 0.0) + faith
    before = model.trust
    model.trust = float(np.clip(before + slope / curvature, 0.0, 1.0))
    return abs(model.trust - before)


def _loosely(interior: Interior, limit: int, tolerance: float = _LOOSE) -> Status:
    """Fit with the present weights, no further than the next choice of weights needs."""
    value = max(min(interior.local.value, interior.expected), interior.scale)
    centre = _CENTRE * value / interior.y.size
    return interior.run(tolerance, limit - interior.iterations, centre)


def reweigh(model: Model, weights: Array) -> None:
    """Set the weights that are chosen, kept within bounds."""
    model.roughness = Roughness(*np.clip(weights, *_RANGE).tolist())


def _update(dispersion: float, weight: float, term: Trace, precision: float) -> float:
    seen = weight * max(term.prior - term.posterior, 0.0) + _TERMS
    value = dispersion * seen / (term.energy + _TERMS / precision)
    return float(np.clip(value, *_RANGE))


def _by_gcv(model: Model, interior: Interior, limit: int) -> Status:
    """Coordinate search of the generalised cross-validation score on a grid of decades."""
    best, centre = np.inf, np.log10(weights_of(model))
    sides = np.eye(_count(model))
    seen: set[tuple[float, ...]] = set()
    step = 1.0
    for _ in range(4):
        middle = centre
        for trial in [middle, *(middle + step * side for side in (*sides, *-sides))]:
            key = tuple(np.round(trial, 3))
            if key in seen:
                continue
            seen.add(key)
            reweigh(model, 10.0**trial)
            interior.refresh()
            status = _loosely(interior, limit)
            if status is not Status.CONVERGED:
                return status
            score = spread(model, interior).gcv
            if score < best:
                best, centre = score, trial
        if centre is middle:
            step *= 0.5
    reweigh(model, 10.0**centre)
    interior.refresh()
    return Status.CONVERGED


def spread(model: Model, interior: Stiffness) -> Spread:
    """Residual variance at the present iterate."""
    return _spread(model, inverse_blocks(*_blocks(model, interior.matrix()))[0])


def freedom_of(model: Model, band: Array) -> float:
    """Effective parameters of a fit whose Gauss-Newton matrix is ``band``."""
    return float(np.sum(inverse_blocks(*_blocks(model, band))[0] * model.data))


def _spread(model: Model, inner: Array) -> Spread:
    freedom = float(np.sum(inner * model.data))
    cost = model.options.loss(model.residuals)
    count = float(np.count_nonzero(model.weights))
    # of a robust loss: the variance of the force over its mean stiffness (Huber 1973). The few
    # quotes that miss by more than their spread say nothing about the noise of the others.
    edge = float(model.options.loss(np.ones(1)).slope[0])
    squares = float(np.sum(model.weights * np.minimum(np.abs(cost.slope), edge) ** 2))
    squares *= count / float(np.sum(model.weights * cost.weight))
    left = max(count - freedom, 0.0)
    dispersion = (squares + QUOTES * DISPERSION) / (left + QUOTES)
    # stiffness differs from quote to quote: the fit leans on few of them (Huber 1981, § 7.6)
    mean = float(np.sum(model.weights * cost.weight)) / count
    square = float(np.sum(model.weights * cost.weight**2)) / count
    uneven = 1.0 + freedom / count * max(square / mean**2 - 1.0, 0.0)
    gcv = count * squares / max(left, 0.02 * count) ** 2
    return Spread(freedom, dispersion, uneven, gcv)


def traces(model: Model, interior: Stiffness) -> tuple[float, list[Trace]]:
    """The dispersion, and the traces of the roughnesses."""
    after = inverse_blocks(*_blocks(model, interior.matrix()))
    return _spread(model, after[0]).dispersion, terms_of(model, after, interior.z)


def terms_of(model: Model, after: tuple[Array, Array], z: Array) -> list[Trace]:
    """What the weights are chosen from, given blocks of the posterior covariance."""
    blocks, link = model.precision()
    at = np.arange(model.block)
    blocks[:, at, at] += PROPER
    before = inverse_blocks(blocks, link)
    away, _ = model.unpack(z - model.centre)
    energy = np.sum([model.penalty.terms(part) for part in away], axis=0)
    prior, posterior = _rough(model, *before), _rough(model, *after)
    return [Trace(*parts) for parts in zip(prior, posterior, energy, strict=True)]


def _rough(model: Model, inner: Array, beside: Array) -> Array:
    """``tr(V S)`` of the roughnesses, for a covariance V given by its blocks."""
    parts = [slice(j * model.n, (j + 1) * model.n) for j in range(model.components)]
    traces = [model.penalty.traces(inner[:, p, p], beside[:, p, p]) for p in parts]
    return np.asarray(np.sum(traces, axis=0))


def _blocks(model: Model, band: Array) -> tuple[Array, Array]:
    """Diagonal blocks and those beside them, from lower banded form."""
    size = model.block
    table = band.reshape(-1, model.L, size)
    row, column = np.tril_indices(size)
    blocks = np.zeros((model.L, size, size))
    blocks[:, row, column] = table[row - column, :, column].T
    blocks[:, column, row] = blocks[:, row, column]
    link = np.zeros((model.L - 1, size, size))
    for shift, at in beside(size):
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
