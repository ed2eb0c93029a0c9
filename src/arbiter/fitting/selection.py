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
_CENTRE = 1e-3  # share of the objective left to the constraints, so that iterates stay central


@dataclass(frozen=True)
class Traces:
    """What the weights are chosen from."""

    freedom: float  # effective number of parameters
    dispersion: float  # φ, variance of the residuals in half-spreads
    gcv: float
    strike: tuple[float, float, float]  # tr(S_λ⁻ S), tr(H⁻¹ S), uᵀ S u
    maturity: tuple[float, float, float]


def choose(model: Model, interior: Interior, limit: int) -> Status:
    """Alternate between fitting and re-weighting, until neither changes much."""
    if model.options.roughness == "gcv":
        return _by_gcv(model, interior, limit)
    status = Status.CONVERGED
    previous = np.zeros(2)
    for _ in range(_ROUNDS):
        centre = _CENTRE * interior.local.value / interior.y.size
        status = interior.run(_LOOSE, limit - interior.iterations, centre)
        if status is not Status.CONVERGED:
            return status
        now = traces(model, interior)
        old = np.log([model.roughness.strike, model.roughness.maturity])
        new = np.log([_update(now.dispersion, *now.strike), _update(now.dispersion, *now.maturity)])
        step = np.clip(new - old, -3.0, 3.0)
        # the map has a negative slope near its fixed point: it overshoots, and halves are safe
        step = np.where(step * previous < 0.0, 0.5 * step, step)
        previous = step
        model.roughness = Roughness(*np.exp(np.clip(old + step, *np.log(_RANGE))))
        interior.refresh()
        if np.abs(step).max() < _SETTLED:
            break
    return status


def _update(dispersion: float, prior: float, posterior: float, energy: float) -> float:
    least, most = _RANGE
    value = dispersion * max(prior - posterior, 1e-12) / max(energy, 1e-300)
    return float(np.clip(value, least, most))


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
            floor = _CENTRE * interior.local.value / interior.y.size
            status = interior.run(_LOOSE, limit - interior.iterations, floor)
            if status is not Status.CONVERGED:
                return status
            score = traces(model, interior).gcv
            best = min(best, (score, trial), key=lambda pair: pair[0])
        if best[1] == centre:
            step = np.sqrt(step)
    model.roughness = best[1]
    interior.refresh()
    return Status.CONVERGED


def traces(model: Model, interior: Interior) -> Traces:
    """Traces at the present iterate."""
    inner, beside = inverse_blocks(*_blocks(model, interior.matrix()))
    blocks, link, _, _ = model.prior()
    blocks[:, np.arange(model.block), np.arange(model.block)] += 1e-8  # P has a null space
    prior, prior_beside = inverse_blocks(blocks, link)
    freedom = float(np.sum(inner * model.data))
    cost = model.options.loss(model.residuals)
    squares = float(np.sum(model.weights * cost.weight * model.residuals**2))
    count = float(np.count_nonzero(model.weights))
    left = max(count - freedom, 0.02 * count, 0.5)
    strike, maturity = np.zeros(3), np.zeros(3)
    logs, _ = model.unpack(interior.z)
    for j in range(model.components):
        part = slice(j * model.n, (j + 1) * model.n)
        energy = model.penalty.terms(logs[j])
        for place, (near, far) in enumerate([(prior, prior_beside), (inner, beside)]):
            own = near[:, part, part]
            variance = np.diagonal(own, axis1=1, axis2=2)
            along = np.diagonal(far[:, part, part], axis1=1, axis2=2)
            strike[place] += float(np.sum(own * model.penalty.bend))
            step = variance[1:] + variance[:-1] - 2.0 * along
            maturity[place] += float(np.sum(model.penalty.link * step))
        strike[2] += energy[0]
        maturity[2] += energy[1]
    return Traces(
        freedom=freedom,
        dispersion=squares / left,
        gcv=count * squares / left**2,
        strike=(strike[0], strike[1], strike[2]),
        maturity=(maturity[0], maturity[1], maturity[2]),
    )


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
