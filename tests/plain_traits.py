"""The traits of one chain, plainly, in NumPy: what the compiled ones are compared with."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from arbiter.conventions import Array
from arbiter.operators.domain_features import ObservedChains

SOFT = 5e-3


def plain_traits(seen: ObservedChains) -> dict[str, float]:
    """Named as in the table of traits."""
    z = seen.k / np.exp(seen.total)[seen.expiry]
    log_T, size = np.log(seen.T), np.abs(seen.miss)
    u = np.log(seen.iv / np.exp(seen.total - 0.5 * log_T)[seen.expiry])
    slices = [np.flatnonzero(seen.expiry == each) for each in range(seen.T.size)]
    gap = np.diff(log_T)
    steep = np.abs(np.diff(seen.total) - 0.5 * gap) / np.maximum(gap, 0.1)
    middles = [np.sort(size[i])[(i.size - 1) // 2] for i in slices if i.size >= 3]
    return {
        "shortest_level": float(np.exp(seen.total[0])),
        "longest_level": float(np.exp(seen.total[-1])),
        "term_structure": float(steep.max(initial=0.0)),
        "expiries": float(seen.T.size),
        "widest_gap": float(np.exp(gap.max(initial=0.0))),
        "fewest_quotes": float(min(i.size for i in slices)),
        "lower_reach": float(np.median([z[i].min() for i in slices])),
        "upper_reach": float(np.median([z[i].max() for i in slices])),
        "money": max(float(np.abs(z[i]).min()) for i in slices),
        "spread": float(np.median(seen.spread)),
        "skew": float(np.median([_skew(z[i], u[i]) for i in slices])),
        "jagged": _jagged(slices, z, u, seen.spread),
        "out_of_line": _out_of_line(slices, z, log_T, seen),
        "misfit": float(np.median(size)),
        "misfit_worst": float(np.quantile(size, 0.95)),
        "misfit_expiry": float(max(middles)) if middles else float(size.max()),
        "moved": float(seen.moved[0]),
        "prior_misfit": float(seen.missed[0]),
    }


def _skew(z: Array, u: Array) -> float:
    w = np.exp(-0.5 * z * z) + 1e-6 / (1.0 + z * z)
    off = z - (w @ z) / w.sum()
    return float((w * off) @ u / ((w * off) @ off + 1e-2 * w.sum()))


def _jagged(slices: list[NDArray[np.int64]], z: Array, u: Array, spread: Array) -> float:
    off = []
    for i in (i for own in slices for i in own[1:-1]):
        wide = z[i + 1] - z[i - 1]
        if wide <= 1.0:
            share = np.array([z[i + 1] - z[i], -wide, z[i] - z[i - 1]]) / wide
            near = slice(i - 1, i + 2)
            bend = 0.25 * share[0] * share[2] * wide**2
            variance = share**2 @ (spread[near] ** 2 + SOFT**2) + bend**2
            off.append(abs(share @ u[near]) / np.sqrt(variance))
    return float(np.quantile(off, 0.95)) if off else 0.0


def _out_of_line(
    slices: list[NDArray[np.int64]], z: Array, log_T: Array, seen: ObservedChains
) -> float:
    at, level, noise = [], [], []
    for each, own in enumerate(slices):
        near = own[np.abs(z[own]) < 2.5]
        if near.size:
            deviation = np.hypot(seen.spread[near], SOFT)
            weight = deviation**-2.0
            at.append(log_T[each])
            level.append((weight * deviation) @ seen.miss[near] / weight.sum())
            noise.append(1.0 / weight.sum() + 1e-4)
    found = [0.0]
    for i in range(1, len(at) - 1):
        right = (at[i] - at[i - 1]) / (at[i + 1] - at[i - 1])
        share = np.array([right - 1.0, 1.0, -right])
        three = slice(i - 1, i + 2)
        found.append(abs(share @ level[three]) / np.sqrt(share**2 @ np.array(noise[three])))
    return float(max(found))
