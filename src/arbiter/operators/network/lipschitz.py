"""The operator's Lipschitz constant, from the norms of its maps.

For given strikes, maturities, relative spreads and reference volatilities: if every quoted
``u = log(iv/σ)`` moves by at most ε, every proposed log-slope moves by at most L·ε, and so does
every log-slope of the surface (the running maximum adds nothing). Both sides are in sup norm; u is
what :func:`arbiter.operators.prior.reference_volatility.scaled` gives, within ±2.5. How σ itself
follows the quotes is not part of it, and where there is kriging neither is how the reference does
(the kriged smile, its standard errors, the slopes that the network starts from and what they miss):
the constant is that of all that is trained.

:func:`constant` holds for every such geometry. It composes (docs/operator-architecture.md,
theorem 8, has the proofs)

* the gate: a head's value moves by at most √2, its slope by 1, a mean under the measure by one more
  ``MAX_MEASURE_PULL·(largest value)``; gains are at most 1; pooling along maturities multiplies by
  √2; what a reference leaves is amplified by ``RESIDUAL_GAIN``;
* aligned maps: their norms. Activations have slopes in [−0.091, 1], so that ``y ↦ D a(Uy)`` moves
  by at most ``m‖DU‖ + r‖D‖‖U‖`` with m, r the middle and the half-width of that range, and
  ``v + D a(Uv)`` by ``‖I + mDU‖ + r‖D‖‖U‖``;
* scans: the Green sum, at most the norm of the input map
  (:mod:`arbiter.operators.network.green_scan`);
* the path straight to the head: sums of absolute weights;
* the read-back smile: hats between nodes, at most the largest row of the reading map.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from arbiter.conventions import Array
from arbiter.operators.network.config import Config
from arbiter.operators.network.geometry_stream import RESIDUAL_GAIN
from arbiter.operators.network.maturity_pooling import POOLED_ROWS
from arbiter.operators.network.measure_gate import (
    MAX_MEASURE_PULL,
    MAX_MEASURE_VALUE,
    SLOPE_ROWS,
    VALUE_ROWS,
)
from arbiter.operators.network.network import SILU
from arbiter.operators.network.weights import Weights, select_weights
from arbiter.operators.prior.reference_volatility import MAX_LOG_VOLATILITY_RATIO

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
    """

    value: float
    by_look: tuple[float, ...]


def constant(weights: Weights, config: Config) -> Constant:
    """Upper bound of the Lipschitz constant from log-volatilities to log-slopes, in sup norm.

    Holds for every chain, however many maturities and strikes it has.
    """
    exact = {name: weight.astype(np.float64) for name, weight in weights.items()}
    state, by_look = 0.0, []
    for i in range(config.looks):
        state = bound_through_look(select_weights(exact, f"looks.{i}"), config, state)
        by_look.append(state)
    rest, largest = at_first(config.kriging)
    leaning = rest + MAX_MEASURE_PULL * largest
    lines = [VALUE_ROWS * rest] * config.heads + [SLOPE_ROWS * rest] * config.heads
    around = [POOLED_ROWS * each for each in lines] * len(config.spans)
    straight = np.abs(exact["direct.weight"]) @ np.array([*lines, *around, leaning, leaning])
    value = float((state * _rows(exact["last.weight"]) + straight).max()) * ROUNDING
    return Constant(value, tuple(by_look))


def at_first(kriging: bool) -> tuple[float, float]:
    """How far what the first look sees moves when quotes move by one, and how large it counts."""
    return (RESIDUAL_GAIN, MAX_MEASURE_VALUE) if kriging else (1.0, MAX_LOG_VOLATILITY_RATIO)


def norm(W: Array) -> float:
    """``‖W‖₂``, rounded upwards."""
    return float(np.linalg.norm(W, 2)) * ROUNDING


def _rows(W: Array) -> Array:
    """Norms of rows."""
    return np.asarray(np.linalg.norm(W, axis=1))


def _between(outer: Array, inner: Array) -> float:
    """How far ``outer · a(inner · y)`` moves when y moves by one."""
    return MIDDLE_SLOPE * norm(outer @ inner) + HALF_SLOPE_RANGE * norm(outer) * norm(inner)


def bound_through_look(weights: Weights, config: Config, before: float) -> float:
    """How far the state moves in a look, from how far it moved before (0: there was none)."""
    rest, largest = at_first(config.kriging)
    if "read.weight" in weights:
        read = float(_rows(weights["read.weight"]).max())
        rest, largest = rest + read * before, MAX_MEASURE_VALUE
    # under the measure: the values move, and so does the measure, by its covariance with them
    under = rest + MAX_MEASURE_PULL * largest
    pooled = 1.0 + POOLED_ROWS**2 * len(config.spans)
    lines = config.heads * (VALUE_ROWS**2 + SLOPE_ROWS**2) * pooled
    view = math.sqrt(lines * rest**2 + 2.0 * under**2)
    enter = weights["enter.weight"]
    moved = _between(weights["across.weight"], enter)
    for way in ("forth", "back") if config.adjoint else ("forth",):
        scan = _between(weights[f"{way}.enter.weight"], enter)
        moved += norm(weights[f"from_{way}.weight"]) * scan
    return (before + moved * view) * _mixing(weights["down.weight"], weights["up.weight"])


def _mixing(down: Array, up: Array) -> float:
    """How far ``v + down · a(up · v)`` moves when v moves by one."""
    straight = norm(np.eye(len(down)) + MIDDLE_SLOPE * down @ up)
    return straight + HALF_SLOPE_RANGE * norm(down) * norm(up)
