"""The Green scan: a state carried along maturities by a dissipative resolvent.

    h_ℓ = R_ℓ h_{ℓ−1} + B_ℓ x_ℓ,     R_ℓ = (I − Δ_ℓ A)⁻¹

``A = −diag(d) − U Uᵀ`` is symmetric, with rates d between the slowest and the fastest, and a
low-rank part of bounded norm, so that ``‖R_ℓ‖ ≤ 1/(1 + Δ_ℓ μ)`` whatever is learned; the paper's
condition on the spectral radius does not give that (docs/errata.md). ``‖B_ℓ‖ ≤ b Δ_ℓ`` with b such
that the Green sum ``Σ_s ‖R_ℓ⋯R_{s+1} B_s‖`` is at most ‖W‖, W the input map. Steps are log-maturity
times a learned factor, and approach a longest one; inputs are gated. Both depend on where the
quotes are, how good, and on the prior: for a given prior the scan is linear.

Spec-Guard shortens a step to ``ρ(A) Δ ≤ 1 − ε``; no step needs it, since the longest one times the
largest radius is below. Here a scan is walked in the eigenvectors of its generator: one
multiplication per maturity and state. Ways back go from long to short maturities.

Shapes: B chains of L slices, D directions, m states.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from arbiter.compiled import compiled
from arbiter.operators.law.config import (
    FASTEST_RATE,
    GATE_BIAS,
    GUARD_MARGIN,
    LONGEST_STEP,
    MAX_LOG_STRETCH,
    MAX_LOW_RANK,
    MIN_STEP,
    SLOWEST_RATE,
)
from arbiter.operators.law.weights import Weights
from arbiter.operators.matrix_products import LinearMap, Rough, fill_product, multiply
from arbiter.operators.quote_rows import Flags


class Walk(NamedTuple):
    """Steps along maturities.

    Attributes:
        gaps: ``(D, B, L)`` log-maturities to the slice before, and to the one after.
        seen: ``(B, L)`` where anything is quoted: nothing enters elsewhere, the state passes.
    """

    gaps: Rough
    seen: Flags


class GreenScans:
    """Selective scans of one place, forth and back.

    Args:
        parts: Weights of each.
        dtype: Precision of the maps.
        gain: That inputs are short of.
    """

    def __init__(
        self, parts: Sequence[Weights], dtype: type[np.floating], gain: float = 1.0
    ) -> None:
        self.size = parts[0]["raw"].size
        # the first of each is a step's, the others are gates: open before anything is chosen
        opened = np.array([0.0] + [GATE_BIAS] * self.size)
        self.select = np.concatenate([part["select.weight"] for part in parts])
        self.select_bias = np.concatenate([part["select.bias"] + opened for part in parts])
        enter = gain * np.concatenate([part["enter.weight"] for part in parts])
        self.enter = LinearMap.from_weight(enter.astype(dtype))
        pairs = [np.linalg.eigh(dense(part)) for part in parts]
        self.rates = np.stack([values for values, _ in pairs]).astype(dtype)  # (D, m)
        self.vectors = np.stack([vectors for _, vectors in pairs]).astype(dtype)  # (D, m, m)
        limit = np.array([(1.0 - GUARD_MARGIN) / bound_radius(part) for part in parts])
        self.limit = limit.astype(dtype)

    def __call__(self, x: Rough, chosen: Rough, walk: Walk) -> Rough:
        """``(B, L, D·m)`` states in eigenvectors, of inputs ``(B, L, d)`` where anything is seen.

        Args:
            x: Inputs.
            chosen: ``(B, L, …)`` whose last ``D·(1 + m)`` are hyperbolic tangents of what the
                geometry selects.
            walk: Along maturities.
        """
        states = np.empty((*x.shape[:2], self.rates.size), x.dtype)
        generator = (self.rates, self.limit, self.vectors)
        _fill_states(chosen, self.enter(x), walk, generator, states)
        return states

    def take_states(self, weights: Sequence[Rough]) -> Rough:
        """``(…, D·m)`` maps that take states, made to take them in eigenvectors."""
        return np.concatenate(
            [
                multiply(weight, vectors)
                for weight, vectors in zip(weights, self.vectors, strict=True)
            ],
            1,
        )


def list_rates(part: Weights) -> Rough:
    """``(m,)`` d of a generator."""
    share = 1.0 / (1.0 + np.exp(-part["raw"].astype(np.float64)))
    return np.asarray(SLOWEST_RATE + (FASTEST_RATE - SLOWEST_RATE) * share)


def low_rank(part: Weights) -> Rough:
    """``(m, r)`` U, its part of the generator no larger than it may be."""
    U = part["U"].astype(np.float64)
    return np.asarray(U * np.sqrt(MAX_LOW_RANK / max(np.square(U).sum(), MAX_LOW_RANK)))


def dense(part: Weights) -> Rough:
    """``(m, m)`` the generator ``A = −diag(d) − U Uᵀ``."""
    U = low_rank(part)
    return np.asarray(-np.diag(list_rates(part)) - U @ U.T)


def bound_radius(part: Weights) -> float:
    """An upper bound of the spectral radius of A, which for a symmetric A is its norm."""
    return float(list_rates(part).max() + np.square(low_rank(part)).sum())


@compiled
def _fill_states(
    chosen: Rough, given: Rough, walk: Walk, generator: tuple[Rough, Rough, Rough], states: Rough
) -> None:
    """States ``(B, L, D·m)`` of inputs ``(B, L, D·m)``, way by way."""
    (B, L, width), (rates, limit, vectors) = chosen.shape, generator
    D, m = rates.shape
    step, strength = np.empty(L, states.dtype), np.empty(L, states.dtype)
    drive, turned = np.empty((L, m), states.dtype), np.empty((L, m), states.dtype)
    none = np.zeros(m, states.dtype)
    for each in range(B * D):
        i, way = each // D, each % D
        first, from_state = width - (D - way) * (1 + m), way * m
        for at in range(L):
            stretched = walk.gaps[way, i, at] * math.exp(MAX_LOG_STRETCH * chosen[i, at, first])
            stretched = max(-LONGEST_STEP * math.expm1(-stretched / LONGEST_STEP), MIN_STEP)
            step[at] = min(stretched, limit[way])
            share = SLOWEST_RATE * step[at] / (1.0 + SLOWEST_RATE * limit[way])
            strength[at] = share if walk.seen[i, at] else 0.0
            gate, own, row = chosen[i, at, first + 1 :], given[i, at, from_state:], drive[at]
            for j in range(m):
                row[j] = strength[at] * gate[j] * own[j]
        fill_product(drive, vectors[way], none, turned)
        for walked in range(L):
            at = L - 1 - walked if way == 1 else walked
            before = at + 1 if way == 1 else at - 1
            out, new = states[i, at, from_state:], turned[at]
            for j in range(m):
                out[j] = new[j]
            if walked > 0:
                last = states[i, before, from_state:]
                for j in range(m):
                    out[j] += last[j] / (1.0 - step[at] * rates[way, j])
