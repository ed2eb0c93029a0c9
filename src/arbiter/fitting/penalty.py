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
    """``½ Σ_ℓ u_ℓᵀ A u_ℓ + ½ Σ_ℓ (v_{ℓ+1} − v_ℓ)ᵀ B (v_{ℓ+1} − v_ℓ)/Δτ`` with ``v = u − τ``.

    ``u`` are log-slopes ``(L, n)`` and ``τ = log √T``. ``A`` holds second differences in x and the
    ties, ``B`` masses and second differences: the level of a smile moves along maturity more
    readily than its curvature, and the data weigh the two apart.

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
        step = np.diff(self.tau)[:, None, None]
        self.level = np.diag(mass) / step  # (L-1, n, n)
        self.twist = self.bend / step  # (L-1, n, n)

    def blocks(self, roughness: Roughness) -> tuple[Array, Array]:
        """Diagonal blocks ``(L, n, n)`` and the blocks beside them ``(L-1, n, n)``."""
        diagonal = roughness.strike * self.bend + self.tie
        link = roughness.maturity * self.level + roughness.twist * self.twist
        diagonal[1:] += link
        diagonal[:-1] += link
        return diagonal, -link

    def terms(self, u: Array) -> tuple[float, float, float]:
        """The three roughnesses of log-slopes ``(L, n)``, at weight one and without the half."""
        step = np.diff(u - self.tau[:, None], axis=0)
        square = step[:, :, None] * step[:, None, :]
        return (
            float(np.sum((u @ self.bend) * u)),
            float(np.sum(self.level * square)),
            float(np.sum(self.twist * square)),
        )

    def traces(self, own: Array, beside: Array) -> tuple[float, float, float]:
        """The mean of :meth:`terms` under a covariance with blocks ``own`` and ``beside``."""
        step = own[1:] + own[:-1] - beside - beside.transpose(0, 2, 1)
        return (
            float(np.sum(own * self.bend)),
            float(np.sum(self.level * step)),
            float(np.sum(self.twist * step)),
        )
