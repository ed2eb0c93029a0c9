"""What the network's maps take of a chain, and what their outputs do to the mean of a law.

Loops over small arrays, compiled: one by one they take less time than their calls.

Shapes: B chains of L slices, M = B·L, H heads, P places of the prior, n knots.
"""

from __future__ import annotations

import math

import numpy as np

from arbiter.compiled import compiled
from arbiter.conventions import Array, Indices
from arbiter.operators.law.config import MAX_SIZE, RESIDUAL_GAIN, SHIFT_GAIN
from arbiter.operators.law.reading import Reading
from arbiter.operators.matrix_products import Rough
from arbiter.pricing.elementary import exp


@compiled
def fill_geometry(
    reading: Reading,
    slices: tuple[Indices, Array, Array],
    prior: tuple[Array, Array],
    known: Rough,
) -> None:
    """What the geometry stream is told of each slice, ``(M, 2H + 2P + 4)``.

    Args:
        reading: Whose masses and errors are told.
        slices: Where their quotes begin, ``log(σ√T)`` and log-maturity since the one before.
        prior: ``(B, L, P)`` its doubt and its smile.
        known: Takes it.
    """
    (ends, total, gap), (doubt, smile) = slices, prior
    (_, L, P), H = doubt.shape, reading.mass.shape[1]
    for each in range(len(known)):
        i, at, row = each // L, each % L, known[each]
        for h in range(H):
            row[h] = 2.0 * reading.mass[each, h] - 1.0
            row[H + h] = 0.4 * math.log(reading.noise[each, h]) + 2.0
        for p in range(P):
            row[2 * H + p] = 0.5 * (doubt[i, at, p] + 6.0)
            row[2 * H + P + p] = min(max(smile[i, at, p], -MAX_SIZE), MAX_SIZE)
        count, last = ends[each + 1] - ends[each], 2 * (H + P)
        row[last], row[last + 1] = 0.5 * (total[i, at] + 2.5), gap[i, at]
        row[last + 2], row[last + 3] = 0.4 * math.log(count + 1.0) - 1.0, 1.0 if count > 0 else 0.0


@compiled
def fill_views(said: Rough, log_ratio: Array, start: Array, gains: Rough, views: Rough) -> None:
    """What is said of each slice times the gains of two maps, ``(2, B, L, H + 2n)``.

    Args:
        said: ``(M, H)`` by the heads.
        log_ratio: ``(B, L, n)`` of the law.
        start: ``(B, L, n)`` of the prior's.
        gains: ``(B, L, …)`` those of the first map, then of the second, then others.
        views: Takes them.
    """
    (B, L, n), H, wide = start.shape, said.shape[1], views.shape[3]
    for i in range(B):
        for at in range(L):
            entering, direct, own = views[0, i, at], views[1, i, at], said[i * L + at]
            for h in range(H):
                entering[h] = RESIDUAL_GAIN * own[h]
            for j in range(n):
                entering[H + j] = RESIDUAL_GAIN * (log_ratio[i, at, j] - start[i, at, j])
                entering[H + n + j] = min(max(start[i, at, j], -MAX_SIZE), MAX_SIZE)
            for j in range(wide):
                direct[j] = entering[j] * gains[i, at, wide + j]
                entering[j] *= gains[i, at, j]


@compiled
def fill_shifts(
    laws: tuple[Array, Array, Array, Array, Array],
    share: Array,
    change: Rough,
    leaning: Rough,
    tilts: tuple[Array, Array],
    shift: Array,
) -> None:
    """Shifts ``(B, L)`` after a change: what it does to the mean, as far as that was learned.

    Args:
        laws: Log-ratios and shifts before, log-ratios of the prior and after, ``log(σ√T)``.
        share: ``(B, L, n)`` of a change that is made.
        change: ``(B, L, n + 1)`` the last of which moves the shift alone.
        leaning: ``(B, L, n)`` by how much tilts are larger here.
        tilts: ``(n,)`` of every slice, and ``(n, n)`` by the log-ratios of the prior.
        shift: Takes them.
    """
    (before, old, start, after, total), (tilt, of_prior) = laws, tilts
    B, L, n = before.shape
    lean = np.empty(n)
    for i in range(B):
        for at in range(L):
            level, lost, made = math.exp(total[i, at]), 0.0, 0.0
            for j in range(n):
                lean[j] = 0.0
            for m in range(n):
                part, row = min(max(start[i, at, m], -MAX_SIZE), MAX_SIZE) * level, of_prior[m]
                for j in range(n):
                    lean[j] += part * row[j]
            for j in range(n):
                lean[j] += tilt[j] * (1.0 + 0.5 * leaning[i, at, j])
                lean[j] *= exp(after[i, at, j]) - exp(before[i, at, j])
            for j in range(n):
                lost += lean[j]
                made += share[i, at, j]
            free = SHIFT_GAIN * change[i, at, n] * made / n
            shift[i, at] = old[i, at] + level * (free - lost)
