"""The network's Lipschitz constant at a fixed prior, from the norms of its maps.

For given strikes, maturities, relative spreads and prior: if every misfit (what a mid is off in
log-volatility under the prior's law) moves by at most ε, every proposed log-slope moves by at most
L·ε, and so does every log-slope of the surface, since isotonic regression adds nothing. Both sides
are in sup norm. Two things are not part of it: how the prior itself follows the quotes, and how the
share of the change that is made follows the misfits where it lies between one and none
(:mod:`arbiter.operators.law.answer`).

:func:`constant` holds for every such geometry. It composes

* a reading: a weighted mean times at most one, amplified by ``RESIDUAL_GAIN``; gains at most 1;
* aligned maps: their norms. Activations have slopes in [−0.091, 1], so that ``y ↦ D a(Uy)`` moves
  by at most ``m‖DU‖ + r‖D‖‖U‖`` with m, r the middle and the half-width of that range, and
  ``v + D a(Uv)`` by ``‖I + mDU‖ + r‖D‖‖U‖``;
* scans: the Green sum, at most the norm of the input map (:mod:`arbiter.operators.law.green_scan`);
* the path straight to the head: sums of absolute weights.

A second look reads prices of what the first one wrote, of which no such bound is known.
"""

from __future__ import annotations

import math

import numpy as np

from arbiter.conventions import Array
from arbiter.operators.law.config import DIRECTIONS, RESIDUAL_GAIN, SILU, LawConfig
from arbiter.operators.law.weights import Weights, select_weights

# slopes of the activation, rounded outwards
MAX_ACTIVATION_SLOPE, MIN_ACTIVATION_SLOPE = 1.09984 / SILU, -0.09984 / SILU
MIDDLE_SLOPE = 0.5 * (MAX_ACTIVATION_SLOPE + MIN_ACTIVATION_SLOPE)
HALF_SLOPE_RANGE = 0.5 * (MAX_ACTIVATION_SLOPE - MIN_ACTIVATION_SLOPE)
ROUNDING = 1.0 + 1e-9


def constant(weights: Weights, config: LawConfig) -> float | None:
    """Upper bound of the Lipschitz constant from misfits to log-slopes, in sup norm.

    Holds for every chain, however many maturities and strikes it has; None with several looks.
    """
    if config.looks != 1:
        return None
    exact = {name: weight.astype(np.float64) for name, weight in weights.items()}
    look = select_weights(exact, "looks.0")
    enter = look["enter.weight"][:, : config.heads]  # what is read: the rest is the prior's
    moved = _between(look["across.weight"], enter)
    for i in range(DIRECTIONS):
        scan = _between(look[f"scans.{i}.enter.weight"], enter)
        moved += norm(look[f"from_scans.{i}.weight"]) * scan
    state = moved * RESIDUAL_GAIN * math.sqrt(config.heads)
    state *= _mixing(look["down.weight"], look["up.weight"])
    straight = RESIDUAL_GAIN * np.abs(look["direct.weight"][:, : config.heads]).sum(1)
    rows = np.linalg.norm(look["last.weight"], axis=1)
    return float((state * rows + straight).max()) * ROUNDING


def norm(W: Array) -> float:
    """``‖W‖₂``, rounded upwards."""
    return float(np.linalg.norm(W, 2)) * ROUNDING


def _between(outer: Array, inner: Array) -> float:
    """How far ``outer · a(inner · y)`` moves when y moves by one."""
    return MIDDLE_SLOPE * norm(outer @ inner) + HALF_SLOPE_RANGE * norm(outer) * norm(inner)


def _mixing(down: Array, up: Array) -> float:
    """How far ``v + down · a(up · v)`` moves when v moves by one."""
    straight = norm(np.eye(len(down)) + MIDDLE_SLOPE * down @ up)
    return straight + HALF_SLOPE_RANGE * norm(down) * norm(up)
