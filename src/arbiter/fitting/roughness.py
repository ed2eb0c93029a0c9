"""Roughness of log-slopes, quadratic in them: in strike, in maturity, and beyond the quotes.

The penalty applies to the distance from a centre: from flat volatility, or from a prior.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from arbiter.conventions import Array
from arbiter.fitting import banded
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
        centre: ``(p,)`` where the penalty is zero.
        band: ``(p, w)`` P.
    """

    centre: Array
    band: Array

    def multiply(self, change: Array) -> Array:
        """``P`` times a change of the unknowns."""
        return banded.multiply(self.band, change)

    def evaluate_at(self, z: Array) -> tuple[float, Array]:
        """The penalty at ``z`` and its gradient ``(p,)``."""
        change = z - self.centre
        gradient = self.multiply(change)
        return 0.5 * float(change @ gradient), gradient


class Penalty:
    """``½ Σ_ℓ v_ℓᵀ A v_ℓ + ½ Σ_ℓ (v_{ℓ+1} − v_ℓ)ᵀ B (v_{ℓ+1} − v_ℓ)/Δτ``, ``v = u − centre``.

    ``u`` are log-slopes ``(L, n)`` of each component; without a prior the centre is ``τ = log √T``.
    ``A`` holds second differences in x, the ties, and the masses of ``Roughness.level``. Second
    differences of an expiry count between its own quotes only, ties hold its slopes beyond them:
    a trend that went on there would press on later expiries, which may be quoted there.
    ``B`` holds masses and second differences: a smile shifts along maturity more readily than its
    curvature changes, so the two have weights of their own.

    Args:
        layout: The places of the unknowns.
        maturities: ``(L,)``.
        reach: ``(L, 2)`` Gaussian coordinates of the lowest and highest quote of each expiry.
        unseen: ``(L,)`` maturities that lie between expiries; None for none.
        beyond: Cost of first differences beyond the last quote.

    Attributes:
        tau: ``(L,)`` ``log √T``.
        mass: ``(n,)`` masses of the knots.
        bend: ``(n, n)`` ``∫ u''²`` by the knots, over all of them.
        terms: four matrices ``(p, w)`` at weight one, in the order of :class:`Roughness`.
        fixed: ``(p, w)`` what has no weight: ties, the pull between components, shares.
    """

    def __init__(
        self,
        layout: UnknownLayout,
        maturities: Array,
        reach: Array,
        unseen: NDArray[np.bool_] | None = None,
        beyond: float = _BEYOND_QUOTES_WEIGHT,
    ) -> None:
        self.layout = layout
        knots, n, gap = layout.knots, layout.knot_count, np.diff(layout.knots)
        bend = _second_differences(knots)
        self.bend = bend.T @ bend
        self.mass = np.zeros(n)
        self.mass[:-1] += 0.5 * gap
        self.mass[1:] += 0.5 * gap
        self.tau = 0.5 * np.log(maturities)
        outside = _find_segments_beyond(knots, reach)
        per_step = 1.0 / np.diff(self.tau)  # (L-1,)
        beside = np.zeros(per_step.size, dtype=bool)
        if unseen is not None:
            beside = unseen[1:] | unseen[:-1]
        drift, ones = np.diag(self.mass), np.ones(maturities.size)
        none, factor = np.zeros(per_step.size), np.where(beside, _UNQUOTED_MATURITY_FACTOR, 1.0)
        self.terms = (
            self._spread_bend(bend, _find_knots_between(outside)),
            self._spread_steps(drift, factor * per_step),
            self._spread_steps(self.bend, per_step),
            layout.spread_block(drift, ones, none),
        )
        # the weight of changes along maturity is chosen from steps between quoted expiries
        self._chosen_terms = self.terms
        if beside.any():
            chosen = self._spread_steps(drift, np.where(beside, 0.0, per_step))
            self._chosen_terms = (self.terms[0], chosen, *self.terms[2:])
        self.fixed = self._build_fixed((_TIE_WEIGHT + beyond * outside) / gap)

    def _spread_bend(self, bend: Array, kept: NDArray[np.bool_]) -> Array:
        """The band of ``Σ u''²`` over the inner knots ``(L, n-2)`` that are kept."""
        layout, n, inner = self.layout, self.layout.knot_count, np.arange(len(bend))
        band = np.zeros(layout.band_shape)
        table = band.reshape(*layout.shape, -1)
        for first in range(0, layout.components * n, n):
            for one in range(3):
                for other in range(one, 3):
                    share = bend[inner, inner + one] * bend[inner, inner + other]
                    at = first + one
                    table[:, at : at + inner.size, other - one] += kept * share
        return band

    def _spread_steps(self, step: Array, weights: Array) -> Array:
        """The band of ``Σ w_ℓ (v_{ℓ+1} − v_ℓ)ᵀ step (v_{ℓ+1} − v_ℓ)``."""
        ends = np.concatenate([[0.0], weights, [0.0]])
        return self.layout.spread_block(step, ends[1:] + ends[:-1], weights)

    def _build_fixed(self, tie: Array) -> Array:
        """Ties with weights ``(L, n-1)``; for two components also their pull and the shares."""
        layout, n = self.layout, self.layout.knot_count
        band = np.zeros(layout.band_shape)
        table = band.reshape(*layout.shape, -1)
        for first in range(0, layout.components * n, n):
            table[:, first : first + n - 1, 0] += tie
            table[:, first + 1 : first + n, 0] += tie
            table[:, first : first + n - 1, 1] -= tie
        if layout.components == 2:
            table[:, : 2 * n, 0] += _COMPONENT_DISTANCE_WEIGHT
            table[:, :n, n] -= _COMPONENT_DISTANCE_WEIGHT
            share = _SHARE_CHANGE_COST / np.diff(self.tau)
            table[1:, -1, 0] += share
            table[:-1, -1, 0] += share
            table[:, -1, 0] += _SHARE_RIDGE
            table[:-1, -1, layout.block_size] = -share
        return band

    def weigh(self, roughness: Roughness) -> Array:
        """``(p, w)`` the penalty's matrix with the weights of ``roughness``."""
        matrix = self.fixed.copy()
        for weight, term in zip(roughness.weights, self.terms, strict=True):
            if weight > 0.0:
                matrix += weight * term
        return matrix

    def evaluate_terms(self, change: Array, count: int = 4) -> list[float]:
        """The first roughnesses of ``z − centre``, ``(p,)``, at weight one and without the half."""
        terms = self._chosen_terms[:count]
        return [float(change @ banded.multiply(term, change)) for term in terms]

    def average_terms(self, covariance: Array, count: int = 4) -> list[float]:
        """The means of :meth:`evaluate_terms` under a covariance ``(p, w)`` within the band."""
        return [banded.inner_product(covariance, term) for term in self._chosen_terms[:count]]


def measure_by_reach(knots: Array, reach: Array, log_slopes: Array, strike: float) -> float:
    """The part of the penalty that depends on where quotes end, for one component ``(L, n)``.

    Args:
        knots: ``(n,)``.
        reach: ``(L, 2)`` Gaussian coordinates of the lowest and highest quote of each expiry.
        log_slopes: ``(L, n)``.
        strike: Weight of the second differences in x.
    """
    outside = _find_segments_beyond(knots, reach)
    ties = np.diff(log_slopes, axis=1) ** 2 / np.diff(knots)
    bends = (log_slopes @ _second_differences(knots).T) ** 2
    between = _find_knots_between(outside)
    return 0.5 * float(_BEYOND_QUOTES_WEIGHT * ties[outside].sum() + strike * bends[between].sum())


def _second_differences(knots: Array) -> Array:
    """``(n-2, n)`` rows at the inner knots, the sum of whose squares is ``∫ u''²``."""
    gap, n = np.diff(knots), knots.size
    slope = (np.eye(n, k=1) - np.eye(n))[:-1] / gap[:, None]  # (n-1, n)
    span = 0.5 * (gap[1:] + gap[:-1])
    return np.asarray((slope[1:] - slope[:-1]) / np.sqrt(span)[:, None])


def _find_segments_beyond(knots: Array, reach: Array) -> NDArray[np.bool_]:
    """``(L, n-1)`` whether the middle of a segment lies beyond the end strikes."""
    middle = 0.5 * (knots[1:] + knots[:-1])
    return np.asarray((middle < reach[:, :1]) | (middle > reach[:, 1:]))


def _find_knots_between(outside: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """``(L, n-2)`` whether one of an inner knot's segments ``(L, n-1)`` is between end strikes."""
    return np.asarray(~(outside[:, 1:] & outside[:, :-1]))
