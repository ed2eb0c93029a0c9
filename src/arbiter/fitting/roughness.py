"""Roughness of log-slopes, quadratic in them: in strike, in maturity, and beyond the quotes.

The penalty applies to the distance from a centre: from flat volatility, or from a prior.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from arbiter.conventions import Array
from arbiter.fitting.options import Roughness
from arbiter.fitting.unknowns import UnknownLayout

# First differences of log-slopes cost this much everywhere, and this much more beyond the last
# quote of an expiry: enough to fix slopes beyond the quotes, next to nothing between them.
_TIE_WEIGHT = 0.03
_BEYOND_QUOTES_WEIGHT = 0.3
# Beside a maturity without quotes, the end of a VIX window between two expiries, a change along
# maturity costs this much more. Without it variance between expiries would move in time before any
# residual grows by a tenth of a spread (docs/vix.md).
_UNQUOTED_MATURITY_FACTOR = 100.0
_SHARE_CHANGE_COST = 1.0  # cost of a change of the share along maturity, per unit of log √T
_SHARE_RIDGE = 1e-6  # cost of a share itself, so that the matrix has an inverse
_COMPONENT_DISTANCE_WEIGHT = 0.03  # pull of the two components to the distance of their centres


@dataclass(frozen=True, eq=False)
class QuadraticPenalty:
    """``½ (z − centre)ᵀ P (z − centre)``, with a block-tridiagonal P.

    Attributes:
        layout: The places of the unknowns.
        centre: ``(p,)`` where the penalty is zero.
        blocks: ``(L, B, B)`` of P.
        links: ``(L-1, B, B)`` of P, beside the diagonal.
        band: ``(B+3, p)`` the same P in lower banded form.
    """

    layout: UnknownLayout
    centre: Array
    blocks: Array
    links: Array
    band: Array

    def multiply(self, change: Array) -> Array:
        """``P`` times a change of the unknowns."""
        return self.layout.multiply(self.blocks, self.links, change)

    def evaluate_at(self, z: Array) -> tuple[float, Array]:
        """The penalty at ``z`` and its gradient ``(p,)``."""
        change = z - self.centre
        gradient = self.multiply(change)
        return 0.5 * float(change @ gradient), gradient


class Penalty:
    """``½ Σ_ℓ v_ℓᵀ A v_ℓ + ½ Σ_ℓ (v_{ℓ+1} − v_ℓ)ᵀ B (v_{ℓ+1} − v_ℓ)/Δτ``, ``v = u − centre``.

    ``u`` are log-slopes ``(L, n)``; without a prior the centre is ``τ = log √T``. ``A`` holds
    second differences in x, the ties, and the masses of ``Roughness.level``. ``B`` holds masses
    and second differences: a smile shifts along maturity more readily than its curvature changes,
    so the two have weights of their own.

    Args:
        knots: ``(n,)``.
        maturities: ``(L,)``.
        reach: ``(L, 2)`` Gaussian coordinates of the lowest and highest quote of each expiry.
        unseen: ``(L,)`` maturities that lie between expiries; None for none.
        beyond: Cost of first differences beyond the last quote.
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
        self._quoted_drift = self.drift  # its weight is chosen from steps between quoted expiries
        if unseen is not None and unseen.any():
            beside = unseen[1:] | unseen[:-1]
            self._quoted_drift = np.where(beside[:, None, None], 0.0, self.drift)
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
            float(np.sum(self._quoted_drift * square)),
            float(np.sum(self.twist * square)),
            float(np.sum(v * v @ self.mass)),
        )

    def traces(self, own: Array, beside: Array) -> tuple[float, float, float, float]:
        """The mean of :meth:`terms` under a covariance with blocks ``own`` and ``beside``."""
        step = own[1:] + own[:-1] - beside - beside.transpose(0, 2, 1)
        return (
            float(np.sum(own * self.bend)),
            float(np.sum(self._quoted_drift * step)),
            float(np.sum(self.twist * step)),
            float(np.einsum("lii,i->", own, self.mass)),
        )


def assemble_precision(
    layout: UnknownLayout, penalty: Penalty, roughness: Roughness
) -> tuple[Array, Array]:
    """Blocks ``(L, B, B)`` and links ``(L-1, B, B)`` of the roughness over all unknowns.

    With two components they include the pull between the components and the cost of changes of
    the share along maturity.
    """
    count, (block, n) = layout.expiry_count, (layout.block_size, layout.knot_count)
    diagonal, link = penalty.blocks(roughness)
    blocks = np.zeros((count, block, block))
    links = np.zeros((count - 1, block, block))
    for j in range(layout.components):
        part = slice(j * n, (j + 1) * n)
        blocks[:, part, part], links[:, part, part] = diagonal, link
    if layout.components == 2:
        first = np.arange(n)
        second = first + n
        blocks[:, first, first] += _COMPONENT_DISTANCE_WEIGHT
        blocks[:, second, second] += _COMPONENT_DISTANCE_WEIGHT
        blocks[:, first, second] -= _COMPONENT_DISTANCE_WEIGHT
        blocks[:, second, first] -= _COMPONENT_DISTANCE_WEIGHT
        share = _SHARE_CHANGE_COST / np.diff(penalty.tau)
        blocks[1:, -1, -1] += share
        blocks[:-1, -1, -1] += share
        blocks[:, -1, -1] += _SHARE_RIDGE
        links[:, -1, -1] = -share
    return blocks, links
