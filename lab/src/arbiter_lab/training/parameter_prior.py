"""The prior over markets that the operator is trained on: wider than the one it is judged on.

One to twenty factors, rough to smooth, calm to crash, with jumps and without, and the
neighbourhoods of the presets. Half of the one-factor sets lie in a box somewhat wider than that of
the Heston benchmark, the others in a much wider one. A share has what listed indices have and
diffusions lack: skew near the money that is mild for days and steep for years, and rare crashes
that hold up puts twenty deviations down. Another has hardly any skew, or the other way round.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from arbiter.models.exact_prices import draw_log_uniform
from arbiter.models.parameters import PRESETS, Jumps, Parameters

FACTOR_COUNTS = (1, 3, 8, 20)
_FACTOR_SHARES = (0.45, 0.1, 0.2, 0.25)
_NEAR_PRESET_SHARE, _LISTED_SHARE = 0.12, 0.18
_LISTED_FACTOR_SHARES = (0.1, 0.3, 0.4, 0.2)
_FLAT_SKEW_SHARE, _FLAT_SKEW_RHO = 0.07, (-0.3, 0.2)
_JUMP_SHARE = 0.35
_MAX_JUMP_STRENGTH = (
    15.0  # intensity·(mean/deviation)²: beyond, the Fourier integral needs more nodes
)
Rng = np.random.Generator


def draw_sets(count: int, rng: Rng) -> list[Parameters]:
    """Independent parameter sets of the training prior."""
    return [_draw_set(rng) for _ in range(count)]


def draw_heston_sets(count: int, rng: Rng) -> list[Parameters]:
    """Independent sets of Heston's model: one factor, no jumps."""
    return [_draw_heston_set(rng, None) for _ in range(count)]


def _draw_set(rng: Rng) -> Parameters:
    kind = rng.random()
    if kind < _NEAR_PRESET_SHARE:
        return _draw_near_preset(rng)
    found = (
        _draw_listed_set(rng)
        if kind < _NEAR_PRESET_SHARE + _LISTED_SHARE
        else _draw_general_set(rng)
    )
    return (
        replace(found, rho=float(rng.uniform(*_FLAT_SKEW_RHO)))
        if rng.random() < _FLAT_SKEW_SHARE
        else found
    )


def _draw_general_set(rng: Rng) -> Parameters:
    factors = int(rng.choice(FACTOR_COUNTS, p=_FACTOR_SHARES))
    jumps = draw_jumps(rng) if rng.random() < _JUMP_SHARE else None
    if factors == 1:
        return _draw_heston_set(rng, jumps)
    return Parameters(
        v0=draw_log_uniform(rng, 0.004, 0.4),
        reversion=draw_log_uniform(rng, 0.1, 5.0),
        theta=draw_log_uniform(rng, 0.006, 0.25),
        nu=draw_log_uniform(rng, 0.1, 1.1),
        rho=float(rng.uniform(-0.95, -0.2)),
        hurst=float(rng.uniform(0.03, 0.45)),
        factors=factors,
        jumps=jumps,
    )


def _draw_listed_set(rng: Rng) -> Parameters:
    return Parameters(
        v0=draw_log_uniform(rng, 0.002, 0.08),
        reversion=draw_log_uniform(rng, 0.05, 2.5),
        theta=draw_log_uniform(rng, 0.006, 0.15),
        nu=draw_log_uniform(rng, 0.12, 1.0),
        rho=float(rng.uniform(-0.95, -0.4)),
        hurst=float(rng.uniform(0.03, 0.45)),
        factors=int(rng.choice(FACTOR_COUNTS, p=_LISTED_FACTOR_SHARES)),
        jumps=_draw_crash_jumps(rng),
    )


def _draw_crash_jumps(rng: Rng) -> Jumps:
    """Rare and wide: their deviation is about their size, so that calls are held up as well."""
    while True:
        mean = -float(rng.uniform(0.02, 0.35))
        deviation = max(float(rng.uniform(0.03, 0.3)), 0.2 * abs(mean))
        found = Jumps(draw_log_uniform(rng, 0.01, 1.0), mean, deviation)
        if found.strength < _MAX_JUMP_STRENGTH and abs(found.intensity * np.expm1(mean)) < 0.5:
            return found


def _draw_heston_set(rng: Rng, jumps: Jumps | None) -> Parameters:
    if rng.random() < 0.5:
        return Parameters(
            v0=draw_log_uniform(rng, 0.008, 0.18),
            reversion=float(rng.uniform(0.5, 5.0)),
            theta=draw_log_uniform(rng, 0.013, 0.15),
            nu=float(rng.uniform(0.2, 1.3)),
            rho=float(rng.uniform(-0.93, -0.35)),
            factors=1,
            jumps=jumps,
        )
    return Parameters(
        v0=draw_log_uniform(rng, 0.004, 0.4),
        reversion=draw_log_uniform(rng, 0.3, 6.0),
        theta=draw_log_uniform(rng, 0.004, 0.4),
        nu=draw_log_uniform(rng, 0.2, 1.5),
        rho=float(rng.uniform(-0.95, -0.2)),
        factors=1,
        jumps=jumps,
    )


def draw_jumps(rng: Rng) -> Jumps:
    """Jumps from frequent and small to rare and large; one in eight sets jumps upward."""
    while True:
        upward = rng.random() < 0.125
        mean = rng.uniform(0.0, 0.12) if upward else -draw_log_uniform(rng, 0.01, 0.4)
        deviation = max(draw_log_uniform(rng, 0.015, 0.2), 0.15 * abs(mean))
        intensity = draw_log_uniform(rng, 0.03, 4.0)
        found = intensity * (mean / deviation) ** 2 < _MAX_JUMP_STRENGTH
        if found and abs(intensity * np.expm1(mean)) < 0.5:
            return Jumps(intensity, float(mean), float(deviation))


def _draw_near_preset(rng: Rng) -> Parameters:
    names: Sequence[str] = tuple(PRESETS)
    p = PRESETS[names[int(rng.integers(len(names)))]]
    jumps = p.jumps
    if jumps is not None:
        mean = jumps.mean * _draw_lognormal_factor(rng, 0.3)
        jumps = Jumps(
            intensity=jumps.intensity * _draw_lognormal_factor(rng, 0.4),
            mean=mean,
            deviation=max(jumps.deviation * _draw_lognormal_factor(rng, 0.3), 0.3 * abs(mean)),
        )
    return replace(
        p,
        v0=p.v0 * _draw_lognormal_factor(rng, 0.4),
        theta=p.theta * _draw_lognormal_factor(rng, 0.3),
        nu=p.nu * _draw_lognormal_factor(rng, 0.25),
        reversion=p.reversion * _draw_lognormal_factor(rng, 0.3),
        rho=float(np.clip(p.rho + 0.07 * rng.standard_normal(), -0.95, -0.2)),
        hurst=float(np.clip(p.hurst * _draw_lognormal_factor(rng, 0.25), 0.03, 0.45)),
        jumps=jumps,
    )


def _draw_lognormal_factor(rng: Rng, deviation: float) -> float:
    """Lognormal about one, cut at 2.5 deviations so that no draw is absurd."""
    return float(np.exp(deviation * np.clip(rng.standard_normal(), -2.5, 2.5)))
