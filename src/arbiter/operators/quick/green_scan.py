"""Scans along maturities in eigenvectors of generators, compiled: :mod:`..network.green_scan`.

There a scan is one multiplication per maturity and state. Ways back are walked turned round.

Shapes: B chains of L slices, D directions, m states.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from arbiter.compiled import compiled
from arbiter.operators.network import green_scan as scans
from arbiter.operators.quick.elementary import exp, tanh

Rough = NDArray[np.floating]  # in the precision of the maps
Flags = NDArray[np.bool_]


class Steps(NamedTuple):
    """What steps are made of.

    Attributes:
        rates: ``(D, m)`` eigenvalues of the generators.
        limit: ``(D,)`` the longest steps that a guard allows.
        guarded: Whether it does.
        resolvent: Whether a step is a resolvent's, and not an exponential.
    """

    rates: Rough
    limit: Rough
    guarded: bool
    resolvent: bool


@compiled
def entered(
    steps: Steps, gaps: Rough, seen: Flags, choice: Rough, given: Rough, drive: Rough, fade: Rough
) -> None:
    """What enters the states at each slice, and how much of them a step keeps.

    Args:
        steps: Their parts.
        gaps: ``(D, B, L)`` log-maturities to the slice before, and to the one after.
        seen: ``(B, L)`` where anything is quoted.
        choice: ``(B, L, D·(1 + m))`` what the geometry selects.
        given: ``(B, L, D·m)`` inputs.
        drive: ``(D, B, L, m)`` is filled, in the order of walking.
        fade: The same.
    """
    (D, B, L), m = gaps.shape, steps.rates.shape[1]
    for way in range(D):
        longest, rates = steps.limit[way], steps.rates[way]
        for i in range(B):
            for each in range(L):
                at = L - 1 - each if way == 1 else each
                chosen = choice[i, each, way * (1 + m) : (way + 1) * (1 + m)]
                step = gaps[way, i, each] * exp(scans.MAX_LOG_STRETCH * tanh(chosen[0]))
                step = max(step, scans.MIN_STEP)
                if steps.guarded:
                    step = min(step, longest)
                most = longest if steps.guarded else step
                strength = scans.MU * step / (1.0 + scans.MU * most) * seen[i, each]
                gates, says = chosen[1:], given[i, each, way * m : (way + 1) * m]
                driven, kept = drive[way, i, at], fade[way, i, at]
                for j in range(m):
                    driven[j] = strength * tanh(gates[j]) * says[j]
                if steps.resolvent:
                    for j in range(m):
                        kept[j] = 1.0 / (1.0 - step * rates[j])
                else:
                    for j in range(m):
                        kept[j] = exp(step * rates[j])


@compiled
def walked(drive: Rough, fade: Rough, states: Rough) -> None:
    """States ``(B, L, D·m)`` of what enters ``(D, B, L, m)``; that itself is used up."""
    D, B, L, m = drive.shape
    for way in range(D):
        for i in range(B):
            for each in range(L):
                at = L - 1 - each if way == 1 else each
                now, out = drive[way, i, each], states[i, at, way * m : (way + 1) * m]
                if each > 0:
                    before, kept = drive[way, i, each - 1], fade[way, i, each]
                    for j in range(m):
                        now[j] += kept[j] * before[j]
                for j in range(m):
                    out[j] = now[j]
