"""Roughness of log-slopes, quadratic in them: in strike, in maturity, and where nobody quotes."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from arbiter.fitting.options import Roughness

Array = NDArray[np.float64]

# First differences of log-slopes cost this much everywhere, and this much more beyond the last
# quote of an expiry: enough to settle what no quote sees, next to nothing where one does.
_TIE = 0.03
_BEYOND = 0.3


class Penalty:
    """``½ Σ_ℓ u_ℓᵀ A u_ℓ + ½ λ_T Σ_ℓ Σ_i w_i (v_{ℓ+1} − v_ℓ)²/Δτ`` with ``v = u − τ``.

    ``u`` are log-slopes ``(L, n)``, ``τ = log √T``, and ``A`` holds second differences in x and
    the ties.

    Args:
        knots: ``(n,)``.
        maturities: ``(L,)``.
        reach: ``(L, 2)`` Gaussian coordinates of the lowest and highest quote of each expiry.
    """

    def __init__(self, knots: Array, maturities: Array, reach: Array) -> None:
        n, gap = knots.size, np.diff(knots)
        slope = (np.eye(n, k=1) - np.eye(n))[:-1] / gap[:, None]  # (n-1, n)
        span = 0.5 * (gap[1:] + gap[:-1])
        bend = (slope[1:] - slope[:-1]) / np.sqrt(span)[:, None]  # (n-2, n): ∫ u''² by the knots
        self.bend = bend.T @ bend  # (n, n)
        middle = 0.5 * (knots[1:] + knots[:-1])
        beyond = (middle < reach[:, :1]) | (middle > reach[:, 1:])  # (L, n-1)
        weight = (_TIE + _BEYOND * beyond) / gap
        self.tie = np.zeros((maturities.size, n, n))
        at = np.arange(n - 1)
        self.tie[:, at, at] += weight
        self.tie[:, at + 1, at + 1] += weight
        self.tie[:, at, at + 1] = self.tie[:, at + 1, at] = -weight
        self.tau = 0.5 * np.log(maturities)
        mass = np.zeros(n)
        mass[:-1] += 0.5 * gap
        mass[1:] += 0.5 * gap
        self.link = mass / np.diff(self.tau)[:, None]  # (L-1, n)

    def blocks(self, roughness: Roughness) -> tuple[Array, Array]:
        """Diagonal blocks ``(L, n, n)`` and the diagonal of the blocks beside them ``(L-1, n)``."""
        diagonal = roughness.strike * self.bend + self.tie
        link = roughness.maturity * self.link
        at = np.arange(self.bend.shape[0])
        diagonal[1:, at, at] += link
        diagonal[:-1, at, at] += link
        return diagonal, -link

    def terms(self, u: Array) -> tuple[float, float]:
        """The two roughnesses of log-slopes ``(L, n)``, each at weight one and without the half."""
        step = np.diff(u - self.tau[:, None], axis=0)
        return float(np.sum((u @ self.bend) * u)), float(np.sum(self.link * step * step))
