"""The operator's Lipschitz constant, from the norms of its maps.

For given strikes, maturities, relative spreads and reference volatilities: if every quoted
``u = log(iv/σ)`` moves by at most ε, every proposed log-slope moves by at most L·ε, and so does
every log-slope of the surface (the running maximum adds nothing). Both sides are in sup norm; u is
what :func:`arbiter.operators.prior.reference_volatility.scaled` gives, within ±2.5. How σ itself
follows the quotes is not part of it, and where there is kriging neither is how the reference does
(the kriged smile, its standard errors, the slopes that the network starts from and what they miss):
the constant is that of all that is trained.

:func:`constant` holds for every such geometry. It composes (docs/notebook/first-design.md,
theorem 8, has the proofs)

* the gate: a head's value moves by at most √2, its slope by 1, a mean under the measure by one more
  ``MAX_MEASURE_PULL·(largest value)``; gains are at most 1; pooling along maturities multiplies by
  √2; what a reference leaves is amplified by ``RESIDUAL_GAIN``;
* aligned maps: their norms. Activations have slopes in [−0.091, 1], so that ``y ↦ D a(Uy)`` moves
  by at most ``m‖DU‖ + r‖D‖‖U‖`` with m, r the middle and the half-width of that range, and
  ``v + D a(Uv)`` by ``‖I + mDU‖ + r‖D‖‖U‖``;
* scans: the Green sum, at most the norm of the input map
  (:mod:`arbiter_lab.differentiable.operators.network.green_scan`);
* the path straight to the head: sums of absolute weights;
* the read-back smile: hats between nodes, at most the largest row of the reading map.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from arbiter.operators.prior.reference_volatility import MAX_LOG_VOLATILITY_RATIO
from arbiter_lab.differentiable.operators.law.spectral_projection import Aligned
from arbiter_lab.differentiable.operators.network.config import Config
from arbiter_lab.differentiable.operators.network.geometry_stream import RESIDUAL_GAIN
from arbiter_lab.differentiable.operators.network.maturity_pooling import POOLED_ROWS
from arbiter_lab.differentiable.operators.network.measure_gate import (
    MAX_MEASURE_PULL,
    MAX_MEASURE_VALUE,
    SLOPE_ROWS,
    VALUE_ROWS,
)
from arbiter_lab.differentiable.operators.network.network import SILU, Look, Network

# slopes of the activation, rounded outwards
MAX_ACTIVATION_SLOPE, MIN_ACTIVATION_SLOPE = 1.09984 / SILU, -0.09984 / SILU
MIDDLE_SLOPE = 0.5 * (MAX_ACTIVATION_SLOPE + MIN_ACTIVATION_SLOPE)
HALF_SLOPE_RANGE = 0.5 * (MAX_ACTIVATION_SLOPE - MIN_ACTIVATION_SLOPE)
ROUNDING = 1.0 + 1e-9


class Constant(NamedTuple):
    """An upper bound and where it comes from.

    Attributes:
        value: The bound.
        by_look: How far the state may move after each look.
        norms: Of each aligned map, by its name: spectral, or the largest row's.
    """

    value: float
    by_look: tuple[float, ...]
    norms: dict[str, float]


def at_first(kriging: bool) -> tuple[float, float]:
    """How far what the first look sees moves when quotes move by one, and how large it counts."""
    return (RESIDUAL_GAIN, MAX_MEASURE_VALUE) if kriging else (1.0, MAX_LOG_VOLATILITY_RATIO)


@torch.no_grad()
def constant(network: Network) -> Constant:
    """Upper bound of the Lipschitz constant from log-volatilities to log-slopes, in sup norm.

    Holds for every chain, however many maturities and strikes it has.
    """
    norms = {
        name: float(_rows(part).max() if part.rows else norm(_weight(part)))
        for name, part in network.named_modules()
        if isinstance(part, Aligned)
    }
    heads = network.config.heads
    state, by_look = 0.0, []
    for look in network.stages():
        state = bound_through_look(look, network.config, state)
        by_look.append(state)
    rest, largest = at_first(network.config.kriging)
    leaning = rest + MAX_MEASURE_PULL * largest
    lines = [VALUE_ROWS * rest] * heads + [SLOPE_ROWS * rest] * heads
    around = [POOLED_ROWS * each for each in lines] * len(network.config.spans)
    moves = [*lines, *around, leaning, leaning]
    weight = _weight(network.direct)
    straight = weight.abs() @ torch.tensor(moves, dtype=weight.dtype, device=weight.device)
    value = float((state * _rows(network.last) + straight).max()) * ROUNDING
    return Constant(value, tuple(by_look), norms)


def norm(W: Tensor) -> Tensor:
    """``‖W‖₂`` for ``(…, a, b)``, rounded upwards."""
    found: Tensor = torch.linalg.matrix_norm(W, 2)
    return found * ROUNDING


def _weight(part: Aligned) -> Tensor:
    return part.weight.double()


def _rows(part: Aligned) -> Tensor:
    found: Tensor = torch.linalg.vector_norm(_weight(part), dim=1)
    return found


def _between(outer: Tensor, inner: Tensor) -> float:
    """How far ``outer · a(inner · y)`` moves when y moves by one."""
    return float(MIDDLE_SLOPE * norm(outer @ inner) + HALF_SLOPE_RANGE * norm(outer) * norm(inner))


def bound_through_look(look: Look, config: Config, before: float) -> float:
    """How far the state moves in a look, from how far it moved before (0: there was none)."""
    rest, largest = at_first(config.kriging)
    if look.read is not None:
        rest, largest = rest + float(_rows(look.read).max()) * before, MAX_MEASURE_VALUE
    # under the measure: the values move, and so does the measure, by its covariance with them
    under = rest + MAX_MEASURE_PULL * largest
    lines = (
        config.heads * (VALUE_ROWS**2 + SLOPE_ROWS**2) * (1.0 + POOLED_ROWS**2 * len(look.spans))
    )
    view = math.sqrt(lines * rest**2 + 2.0 * under**2)
    enter = _weight(look.enter)
    moved = _between(_weight(look.across), enter)
    moved += float(norm(_weight(look.from_forth))) * _between(_weight(look.forth.enter), enter)
    if look.back is not None and look.from_back is not None:
        moved += float(norm(_weight(look.from_back))) * _between(_weight(look.back.enter), enter)
    return (before + moved * view) * _mixing(look)


def _mixing(look: Look) -> float:
    """How far ``v + down · a(up · v)`` moves when v moves by one."""
    down, up = _weight(look.down), _weight(look.up)
    one = torch.eye(down.shape[0], dtype=down.dtype, device=down.device)
    return float(norm(one + MIDDLE_SLOPE * down @ up) + HALF_SLOPE_RANGE * norm(down) * norm(up))
