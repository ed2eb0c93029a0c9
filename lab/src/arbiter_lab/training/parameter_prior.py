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

from arbiter.models.parameters import PRESETS, Jumps, Parameters

FACTORS = (1, 3, 8, 20)
_SHARES = (0.45, 0.1, 0.2, 0.25)
_NEAR_PRESETS, _LISTED = 0.12, 0.18
_SHARES_LISTED = (0.1, 0.3, 0.4, 0.2)
_FLAT, _FLAT_RHO = 0.07, (-0.3, 0.2)
_WITH_JUMPS = 0.35
_STRONGEST = 15.0  # intensity·(mean/deviation)²: beyond, the Fourier integral needs more nodes
Rng = np.random.Generator


def draw_sets(count: int, rng: Rng) -> list[Parameters]:
    """Independent parameter sets of the training prior."""
    return [_draw(rng) for _ in range(count)]


def draw_classic(count: int, rng: Rng) -> list[Parameters]:
    """Independent sets of Heston's model: one factor, no jumps."""
    return [_heston(rng, None) for _ in range(count)]


def _draw(rng: Rng) -> Parameters:
    kind = rng.random()
    if kind < _NEAR_PRESETS:
        return _near_preset(rng)
    found = _listed(rng) if kind < _NEAR_PRESETS + _LISTED else _anything(rng)
    return replace(found, rho=float(rng.uniform(*_FLAT_RHO))) if rng.random() < _FLAT else found


def _anything(rng: Rng) -> Parameters:
    factors = int(rng.choice(FACTORS, p=_SHARES))
    jumps = draw_jumps(rng) if rng.random() < _WITH_JUMPS else None
    if factors == 1:
        return _heston(rng, jumps)
    return Parameters(
        v0=_log_uniform(rng, 0.004, 0.4),
        reversion=_log_uniform(rng, 0.1, 5.0),
        theta=_log_uniform(rng, 0.006, 0.25),
        nu=_log_uniform(rng, 0.1, 1.1),
        rho=float(rng.uniform(-0.95, -0.2)),
        hurst=float(rng.uniform(0.03, 0.45)),
        factors=factors,
        jumps=jumps,
    )


def _listed(rng: Rng) -> Parameters:
    return Parameters(
        v0=_log_uniform(rng, 0.002, 0.08),
        reversion=_log_uniform(rng, 0.05, 2.5),
        theta=_log_uniform(rng, 0.006, 0.15),
        nu=_log_uniform(rng, 0.12, 1.0),
        rho=float(rng.uniform(-0.95, -0.4)),
        hurst=float(rng.uniform(0.03, 0.45)),
        factors=int(rng.choice(FACTORS, p=_SHARES_LISTED)),
        jumps=_crashes(rng),
    )


def _crashes(rng: Rng) -> Jumps:
    """Rare and wide: their deviation is about their size, so that calls are held up as well."""
    while True:
        mean = -float(rng.uniform(0.02, 0.35))
        deviation = max(float(rng.uniform(0.03, 0.3)), 0.2 * abs(mean))
        found = Jumps(_log_uniform(rng, 0.01, 1.0), mean, deviation)
        if found.strength < _STRONGEST and abs(found.intensity * np.expm1(mean)) < 0.5:
            return found


def _heston(rng: Rng, jumps: Jumps | None) -> Parameters:
    if rng.random() < 0.5:
        return Parameters(
            v0=_log_uniform(rng, 0.008, 0.18),
            reversion=float(rng.uniform(0.5, 5.0)),
            theta=_log_uniform(rng, 0.013, 0.15),
            nu=float(rng.uniform(0.2, 1.3)),
            rho=float(rng.uniform(-0.93, -0.35)),
            factors=1,
            jumps=jumps,
        )
    return Parameters(
        v0=_log_uniform(rng, 0.004, 0.4),
        reversion=_log_uniform(rng, 0.3, 6.0),
        theta=_log_uniform(rng, 0.004, 0.4),
        nu=_log_uniform(rng, 0.2, 1.5),
        rho=float(rng.uniform(-0.95, -0.2)),
        factors=1,
        jumps=jumps,
    )


def draw_jumps(rng: Rng) -> Jumps:
    """Jumps from frequent and small to rare and large; one in eight sets jumps upward."""
    while True:
        upward = rng.random() < 0.125
        mean = rng.uniform(0.0, 0.12) if upward else -_log_uniform(rng, 0.01, 0.4)
        deviation = max(_log_uniform(rng, 0.015, 0.2), 0.15 * abs(mean))
        intensity = _log_uniform(rng, 0.03, 4.0)
        found = intensity * (mean / deviation) ** 2 < _STRONGEST
        if found and abs(intensity * np.expm1(mean)) < 0.5:
            return Jumps(intensity, float(mean), float(deviation))


def _near_preset(rng: Rng) -> Parameters:
    names: Sequence[str] = tuple(PRESETS)
    p = PRESETS[names[int(rng.integers(len(names)))]]
    jumps = p.jumps
    if jumps is not None:
        mean = jumps.mean * _factor(rng, 0.3)
        jumps = Jumps(
            intensity=jumps.intensity * _factor(rng, 0.4),
            mean=mean,
            deviation=max(jumps.deviation * _factor(rng, 0.3), 0.3 * abs(mean)),
        )
    return replace(
        p,
        v0=p.v0 * _factor(rng, 0.4),
        theta=p.theta * _factor(rng, 0.3),
        nu=p.nu * _factor(rng, 0.25),
        reversion=p.reversion * _factor(rng, 0.3),
        rho=float(np.clip(p.rho + 0.07 * rng.standard_normal(), -0.95, -0.2)),
        hurst=float(np.clip(p.hurst * _factor(rng, 0.25), 0.03, 0.45)),
        jumps=jumps,
    )


def _factor(rng: Rng, deviation: float) -> float:
    """Lognormal about one, cut at 2.5 deviations so that no draw is absurd."""
    return float(np.exp(deviation * np.clip(rng.standard_normal(), -2.5, 2.5)))


def _log_uniform(rng: Rng, low: float, high: float) -> float:
    return float(np.exp(rng.uniform(np.log(low), np.log(high))))
