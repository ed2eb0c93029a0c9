"""The Green scan: a state carried along maturities by a dissipative resolvent.

    h_ℓ = R_ℓ h_{ℓ−1} + B_ℓ x_ℓ,     R_ℓ = (I − Δ_ℓ A)⁻¹

``A = −diag(d) − U Uᵀ`` is symmetric, with rates d between the slowest and the fastest, and a
low-rank part of bounded norm, so that ``‖R_ℓ‖ ≤ 1/(1 + Δ_ℓ μ)`` whatever is learned; the paper's
condition on the spectral radius does not give that (docs/errata.md). ``‖B_ℓ‖ ≤ b Δ_ℓ`` with b such
that the Green sum ``Σ_s ‖R_ℓ⋯R_{s+1} B_s‖`` is at most ‖W‖, W the input map. Steps are log-maturity
times a learned factor, and approach a longest one; inputs are gated. Both depend on where the
quotes are and how good, not on what they say: for given strikes the scan is linear.

Spec-Guard shortens a step to ``ρ(A) Δ ≤ 1 − ε``. Here a scan is walked in the eigenvectors of its
generator: one multiplication per maturity and state. Ways back go from long to short maturities.

Shapes: B chains of L slices, D directions, m states.
"""

from __future__ import annotations

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
from arbiter.operators.matrix_products import LinearMap, Rough, multiply
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
        self.limit = limit.astype(dtype)[:, None, None]

    def __call__(self, x: Rough, choice: Rough, walk: Walk) -> Rough:
        """``(B, L, D·m)`` states in eigenvectors, of inputs ``(B, L, d)`` where anything is seen.

        Args:
            x: Inputs.
            choice: ``(B, L, D·(1 + m))`` what the geometry selects.
            walk: Along maturities.
        """
        (B, L, _), (D, m) = x.shape, self.rates.shape
        chosen = np.moveaxis(choice.reshape(B, L, D, 1 + m), 2, 0)  # (D, B, L, 1 + m)
        given = np.moveaxis(self.enter(x).reshape(B, L, D, m), 2, 0)
        step = walk.gaps * np.exp(MAX_LOG_STRETCH * np.tanh(chosen[..., 0]))
        step = np.maximum(-LONGEST_STEP * np.expm1(-step / LONGEST_STEP), MIN_STEP)
        step = np.minimum(step, self.limit)
        strength = SLOWEST_RATE * step / (1.0 + SLOWEST_RATE * self.limit) * walk.seen
        drive = strength[..., None] * np.tanh(chosen[..., 1:]) * given
        fade = 1.0 / (1.0 - step[..., None] * self.rates[:, None, None])
        turned = [
            multiply(way.reshape(B * L, m), vectors)
            for way, vectors in zip(drive, self.vectors, strict=True)
        ]
        states = np.empty((B, L, D * m), x.dtype)
        _fill_states(np.stack(turned).reshape(D, B, L, m), fade, states)
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
def _fill_states(drive: Rough, fade: Rough, states: Rough) -> None:
    """States ``(B, L, D·m)`` of what enters ``(D, B, L, m)`` and what a step keeps."""
    D, B, L, m = drive.shape
    for way in range(D):
        for i in range(B):
            for each in range(L):
                at, before = (L - 1 - each, L - each) if way == 1 else (each, each - 1)
                new, kept = drive[way, i, at], fade[way, i, at]
                out = states[i, at, way * m : (way + 1) * m]
                for j in range(m):
                    out[j] = new[j]
                if each > 0:
                    last = states[i, before, way * m : (way + 1) * m]
                    for j in range(m):
                        out[j] += kept[j] * last[j]
