"""How rough the slopes may be, chosen by the data.

The residuals have an unknown variance φ, the log-slopes a Gaussian prior with precision λ/φ for
each penalty. Both weights follow the marginal likelihood by the fixed point of Wood and Fasiolo
(2017, "A generalized Fellner-Schall method for smoothing parameter optimization"),

    λ ← φ · (tr(S_λ⁻ S) − tr(H⁻¹ S)) / uᵀ S u,

interleaved with the steps of the fit. Traces need the diagonal blocks of two inverses only, and
those cost one more pass over the expiries.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import product
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from arbiter.fitting.interior import Interior, Status
from arbiter.fitting.model import Model
from arbiter.fitting.options import Roughness

Array = NDArray[np.float64]

_ROUNDS = 12
_SETTLED = 0.15  # change of both logarithms at which the weights count as chosen
_LOOSE = 1e-2  # tolerance of the fit between two rounds
_RANGE = (1e-6, 1e6)
# What is believed before the quotes speak, worth a few of them: mids uniform within the spread,
# and log-slopes as smooth as those of an index on an ordinary day (precisions, λ/φ).
_QUOTES, _DISPERSION = 8.0, 1.0 / 3.0
_TERMS, _PRECISION = 1.0, (5.0, 20.0)
_CENTRE = 1e-3  # share of the objective left to the constraints, so that iterates stay central


@dataclass(frozen=True)
class Spread:
    """What the residuals leave: effective parameters, variance and cross-validation score."""

    freedom: float
    dispersion: float  # φ, in squared half-spreads
    gcv: float


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
    previous = np.zeros(2)
    for _ in range(_ROUNDS):
        centre = _CENTRE * max(interior.local.value, interior.scale) / interior.y.size
        status = interior.run(_LOOSE, limit - interior.iterations, centre)
        if status is not Status.CONVERGED:
            return status
        dispersion, *terms = _traces(model, interior)
        old = np.log([model.roughness.strike, model.roughness.maturity])
        new = np.log([_update(dispersion, *pair) for pair in zip(terms, _PRECISION, strict=True)])
        step = np.clip(new - old, -3.0, 3.0)
        # the map has a negative slope near its fixed point: it overshoots, and halves are safe
        step = np.where(step * previous < 0.0, 0.5 * step, step)
        previous = step
        strike, maturity = np.exp(np.clip(old + step, *np.log(_RANGE)))
        model.roughness = Roughness(float(strike), float(maturity))
        interior.refresh()
        if np.abs(step).max() < _SETTLED:
            break
    return status


def _update(dispersion: float, term: Trace, precision: float) -> float:
    seen = max(term.prior - term.posterior, 0.0) + _TERMS
    value = dispersion * seen / (term.energy + _TERMS / precision)
    return float(np.clip(value, *_RANGE))


def _by_gcv(model: Model, interior: Interior, limit: int) -> Status:
    """Coordinate search of the generalised cross-validation score on a grid of decades."""
    best = (np.inf, model.roughness)
    seen: set[tuple[float, float]] = set()
    step = 10.0
    for _ in range(3):
        centre = best[1]
        for along, across in product((1.0 / step, 1.0, step), repeat=2):
            trial = replace(centre, strike=centre.strike * along, maturity=centre.maturity * across)
            key = (round(np.log(trial.strike), 3), round(np.log(trial.maturity), 3))
            if key in seen:
                continue
            seen.add(key)
            model.roughness = trial
            interior.refresh()
            floor = _CENTRE * max(interior.local.value, interior.scale) / interior.y.size
            status = interior.run(_LOOSE, limit - interior.iterations, floor)
            if status is not Status.CONVERGED:
                return status
            score = spread(model, interior).gcv
            best = min(best, (score, trial), key=lambda pair: pair[0])
        if best[1] == centre:
            step = np.sqrt(step)
    model.roughness = best[1]
    interior.refresh()
    return Status.CONVERGED


def spread(model: Model, interior: Interior) -> Spread:
    """Residual variance at the present iterate."""
    return _spread(model, inverse_blocks(*_blocks(model, interior.matrix()))[0])


def _spread(model: Model, inner: Array) -> Spread:
    freedom = float(np.sum(inner * model.data))
    cost = model.options.loss(model.residuals)
    count = float(np.count_nonzero(model.weights))
    # of a robust loss: the variance of the force over its mean stiffness (Huber 1973)
    squares = float(np.sum(model.weights * cost.slope**2))
    squares *= count / float(np.sum(model.weights * cost.weight))
    left = max(count - freedom, 0.0)
    dispersion = (squares + _QUOTES * _DISPERSION) / (left + _QUOTES)
    return Spread(freedom, dispersion, count * squares / max(left, 0.02 * count) ** 2)


def _traces(model: Model, interior: Interior) -> tuple[float, Trace, Trace]:
    """The dispersion, and the traces of strike and maturity roughness."""
    after = inverse_blocks(*_blocks(model, interior.matrix()))
    blocks, link, _, _ = model.prior()
    at = np.arange(model.block)
    blocks[:, at, at] += 1e-8  # constants cost nothing, and P cannot be inverted there
    before = inverse_blocks(blocks, link)
    logs, _ = model.unpack(interior.z)
    energy = np.sum([model.penalty.terms(part) for part in logs], axis=0)
    prior, posterior = _rough(model, *before), _rough(model, *after)
    strike, maturity = (Trace(*parts) for parts in zip(prior, posterior, energy, strict=True))
    return _spread(model, after[0]).dispersion, strike, maturity


def _rough(model: Model, inner: Array, beside: Array) -> tuple[float, float]:
    """``tr(V S)`` for both penalties and a covariance V given by its blocks."""
    strike = maturity = 0.0
    for j in range(model.components):
        part = slice(j * model.n, (j + 1) * model.n)
        own = inner[:, part, part]
        variance = np.diagonal(own, axis1=1, axis2=2)
        along = np.diagonal(beside[:, part, part], axis1=1, axis2=2)
        strike += float(np.sum(own * model.penalty.bend))
        step = variance[1:] + variance[:-1] - 2.0 * along
        maturity += float(np.sum(model.penalty.link * step))
    return strike, maturity


def _blocks(model: Model, band: Array) -> tuple[Array, Array]:
    """Diagonal blocks and the diagonals beside them, from lower banded form."""
    size = model.block
    table = band.reshape(size + 1, model.L, size)
    row, column = np.tril_indices(size)
    blocks = np.zeros((model.L, size, size))
    blocks[:, row, column] = table[row - column, :, column].T
    blocks[:, column, row] = blocks[:, row, column]
    return blocks, table[size, :-1]


def inverse_blocks(blocks: Array, link: Array) -> tuple[Array, Array]:
    """Blocks of the inverse of a block-tridiagonal matrix: the diagonal ones and those above.

    Args:
        blocks: ``(L, B, B)``.
        link: ``(L-1, B)`` diagonals of the blocks beside them.
    """
    count = blocks.shape[0]
    left = np.empty_like(blocks)
    left[0] = np.linalg.inv(blocks[0])
    for i in range(1, count):
        edge = link[i - 1]
        left[i] = np.linalg.inv(blocks[i] - edge[:, None] * left[i - 1] * edge)
    inner, beside = left.copy(), np.empty((count - 1, *blocks.shape[1:]))
    for i in range(count - 2, -1, -1):
        carried = left[i] * link[i]
        beside[i] = -carried @ inner[i + 1]
        inner[i] -= beside[i] @ carried.T
    return inner, beside
