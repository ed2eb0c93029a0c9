"""Roughness of log-slopes, quadratic in them: in strike, in maturity, and where nobody quotes.

What is rough is the distance from a centre: from flat volatility, or from a prior.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from arbiter.conventions import Array
from arbiter.fitting.options import Roughness

# First differences of log-slopes cost this much everywhere, and this much more beyond the last
# quote of an expiry: enough to settle what no quote sees, next to nothing where one does.
_TIE_WEIGHT = 0.03
_BEYOND_QUOTES_WEIGHT = 0.3
# Beside a maturity without quotes, the end of a VIX window between two expiries, a change along
# maturity costs this much more: variance that no expiry sees would else be moved in time before
# any quote gives way by a tenth of its spread (docs/vix.md).
_UNQUOTED_MATURITY_FACTOR = 100.0


class Penalty:
    """``½ Σ_ℓ v_ℓᵀ A v_ℓ + ½ Σ_ℓ (v_{ℓ+1} − v_ℓ)ᵀ B (v_{ℓ+1} − v_ℓ)/Δτ``, ``v = u − centre``.

    ``u`` are log-slopes ``(L, n)``; without a prior the centre is ``τ = log √T``. ``A`` holds
    second differences in x, the ties, and the masses of ``level``; ``B`` masses and second
    differences: the level of a smile moves along maturity more readily than its curvature, and
    the data weigh the two apart.

    Args:
        knots: ``(n,)``.
        maturities: ``(L,)``.
        reach: ``(L, 2)`` Gaussian coordinates of the lowest and highest quote of each expiry.
        unseen: ``(L,)`` maturities that lie between expiries; None for none.
        beyond: What first differences cost beyond the last quote.
    """

    def __init__(
        self,
        knots: Array,
        maturities: Array,
        reach: Array,
        unseen: NDArray[np.bool_] | None = None,
        beyond: float = _BEYOND_QUOTES_WEIGHT,
    ) -> None:
        n, gap = knots.size, np.diff(knots)
        slope = (np.eye(n, k=1) - np.eye(n))[:-1] / gap[:, None]  # (n-1, n)
        span = 0.5 * (gap[1:] + gap[:-1])
        bend = (slope[1:] - slope[:-1]) / np.sqrt(span)[:, None]  # (n-2, n): ∫ u''² by the knots
        self.bend = bend.T @ bend  # (n, n)
        middle = 0.5 * (knots[1:] + knots[:-1])
        outside = (middle < reach[:, :1]) | (middle > reach[:, 1:])  # (L, n-1)
        weight = (_TIE_WEIGHT + beyond * outside) / gap
        self.tie = np.zeros((maturities.size, n, n))
        at = np.arange(n - 1)
        self.tie[:, at, at] += weight
        self.tie[:, at + 1, at + 1] += weight
        self.tie[:, at, at + 1] = self.tie[:, at + 1, at] = -weight
        self.tau = 0.5 * np.log(maturities)
        self.mass = np.zeros(n)
        self.mass[:-1] += 0.5 * gap
        self.mass[1:] += 0.5 * gap
        step = np.diff(self.tau)[:, None, None]
        self.drift = np.diag(self.mass) / step  # (L-1, n, n)
        self._judged = self.drift  # from which its weight is chosen: what expiries see
        if unseen is not None and unseen.any():
            beside = unseen[1:] | unseen[:-1]
            self._judged = np.where(beside[:, None, None], 0.0, self.drift)
            self.drift[beside] *= _UNQUOTED_MATURITY_FACTOR
        self.twist = self.bend / step  # (L-1, n, n)

    def blocks(self, roughness: Roughness) -> tuple[Array, Array]:
        """Diagonal blocks ``(L, n, n)`` and the blocks beside them ``(L-1, n, n)``."""
        diagonal = roughness.strike * self.bend + self.tie
        if roughness.level > 0.0:
            diagonal += roughness.level * np.diag(self.mass)
        link = roughness.maturity * self.drift + roughness.twist * self.twist
        diagonal[1:] += link
        diagonal[:-1] += link
        return diagonal, -link

    def terms(self, v: Array) -> tuple[float, float, float, float]:
        """The roughnesses of ``v = u − centre``, ``(L, n)``, at weight one and without the half."""
        step = np.diff(v, axis=0)
        square = step[:, :, None] * step[:, None, :]
        return (
            float(np.sum((v @ self.bend) * v)),
            float(np.sum(self._judged * square)),
            float(np.sum(self.twist * square)),
            float(np.sum(v * v @ self.mass)),
        )

    def traces(self, own: Array, beside: Array) -> tuple[float, float, float, float]:
        """The mean of :meth:`terms` under a covariance with blocks ``own`` and ``beside``."""
        step = own[1:] + own[:-1] - beside - beside.transpose(0, 2, 1)
        return (
            float(np.sum(own * self.bend)),
            float(np.sum(self._judged * step)),
            float(np.sum(self.twist * step)),
            float(np.einsum("lii,i->", own, self.mass)),
        )
