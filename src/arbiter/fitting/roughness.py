"""Roughness of log-slopes, quadratic in them: in strike, in maturity, and beyond the quotes.

The penalty applies to the distance from a centre: from flat volatility, or from a prior.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from arbiter.conventions import Array, Indices
from arbiter.fitting import banded
from arbiter.fitting.options import Roughness
from arbiter.fitting.unknowns import LINK_BANDWIDTH, UnknownLayout
from arbiter.pricing.knots import lock_arrays

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


class _KnotMeasures(NamedTuple):
    """What a penalty knows of its knots."""

    gap: Array  # (n-1,) between knots
    root_span: Array  # (n-2,) roots of the widths of which a second difference is the mean
    stencil: Array  # (3, n-2) of the second differences
    mass: Array  # (n,) masses of the knots
    drift: Array  # (n, n) ∫ u² by the knots, lumped: the masses on the diagonal
    bend: Array  # (n, n) ∫ u''² by the knots

    def bend_of(self, logs: Array) -> Array:
        """``(…, n-2)`` second differences of log-slopes, whose squares sum to ``∫ u''²``."""
        return np.asarray(np.diff(np.diff(logs) / self.gap) / self.root_span)


@lru_cache(maxsize=16)
def _measure_knots(key: tuple[float, ...]) -> _KnotMeasures:
    knots, n = np.array(key), len(key)
    gap = np.diff(knots)
    root_span = np.sqrt(0.5 * (gap[1:] + gap[:-1]))
    stencil = np.stack([1.0 / gap[:-1], -1.0 / gap[:-1] - 1.0 / gap[1:], 1.0 / gap[1:]]) / root_span
    bend = sum(np.eye(n - 2, n, k=i) * stencil[i][:, None] for i in range(3))  # (n-2, n)
    mass = np.zeros(n)
    mass[:-1] += 0.5 * gap
    mass[1:] += 0.5 * gap
    found = _KnotMeasures(gap, root_span, stencil, mass, np.diag(mass), bend.T @ bend)
    lock_arrays(found)
    return found


class _BendPart(NamedTuple):
    """``Σ u''²`` over the inner knots that count."""

    stencil: Array  # (3, n-2) of second differences
    kept: Array  # (L, n-2) one where a knot counts, else zero

    def add_to(self, layout: UnknownLayout, weight: float, band: Array) -> None:
        """Add it to a band ``(p, w)``."""
        table = band.reshape(*layout.shape, -1)
        size = self.kept.shape[1]
        for first in range(0, layout.components * layout.knot_count, layout.knot_count):
            for one in range(3):
                rows = table[:, first + one : first + one + size]
                for other in range(one, 3):
                    share = weight * self.stencil[one] * self.stencil[other]
                    rows[:, :, other - one] += self.kept * share


class _StepPart(NamedTuple):
    """``Σ on_ℓ u_ℓᵀ C u_ℓ − 2 Σ between_ℓ u_ℓᵀ C u_{ℓ+1}``."""

    block: Array  # (n, n) C
    on: Array  # (L,)
    between: Array  # (L-1,)

    def add_to(self, layout: UnknownLayout, weight: float, band: Array) -> None:
        """Add it to a band ``(p, w)``."""
        layout.add_spread_block(*self, weight, band)

    @classmethod
    def of_steps(cls, step: Array, weights: Array) -> _StepPart:
        """``Σ w_ℓ (v_{ℓ+1} − v_ℓ)ᵀ step (v_{ℓ+1} − v_ℓ)``."""
        ends = np.concatenate([[0.0], weights, [0.0]])
        return cls(step, ends[1:] + ends[:-1], weights)


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
        outside: ``(L, n-1)`` segments beyond the end strikes of each expiry.
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
        self._measures = measures = _measure_knots(tuple(layout.knots.tolist()))
        self.mass, self.tau, self.bend = measures.mass, 0.5 * np.log(maturities), measures.bend
        self.outside = outside = _find_segments_beyond(layout.knots, reach)
        per_step = 1.0 / np.diff(self.tau)  # (L-1,)
        beside = np.zeros(per_step.size, dtype=np.bool_)
        if unseen is not None:
            beside = unseen[1:] | unseen[:-1]
        drift, none = measures.drift, np.zeros(per_step.size)
        factor = np.where(beside, _UNQUOTED_MATURITY_FACTOR, 1.0)
        self._bends = _BendPart(measures.stencil, find_knots_between(outside).astype(np.float64))
        self._steps = (
            _StepPart.of_steps(drift, factor * per_step),
            _StepPart.of_steps(self.bend, per_step),
            _StepPart(drift, np.ones(maturities.size), none),
        )
        # the weight of changes along maturity is chosen from steps between quoted expiries
        between = self._steps[0]
        if beside.any():
            between = _StepPart.of_steps(drift, np.where(beside, 0.0, per_step))
        self._chosen_steps = (between, *self._steps[1:])
        self.fixed = self._build_fixed((_TIE_WEIGHT + beyond * outside) / measures.gap)

    def _list_parts(self, steps: Iterable[_StepPart]) -> list[_BendPart | _StepPart]:
        """The parts in the order of :class:`Roughness`."""
        return [self._bends, *steps]

    @cached_property
    def _diagonals(self) -> Indices:
        """``(d,)`` the diagonals on which the terms have entries."""
        near = np.arange(-LINK_BANDWIDTH, LINK_BANDWIDTH + 1)
        return np.unique(np.concatenate([near[LINK_BANDWIDTH:], self.layout.block_size + near]))

    @cached_property
    def _chosen_terms(self) -> Array:
        """``(4, p, d)`` the diagonals of the terms, those beside the main one twice."""
        band = np.empty(self.layout.band_shape)
        parts = self._list_parts(self._chosen_steps)
        found = np.empty((len(parts), len(band), self._diagonals.size))
        for part, rows in zip(parts, found, strict=True):
            band[:] = 0.0
            part.add_to(self.layout, 1.0, band)
            rows[:] = band[:, self._diagonals]
        found[:, :, 1:] *= 2.0
        return found

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
        for weight, part in zip(roughness.weights, self._list_parts(self._steps), strict=True):
            if weight > 0.0:
                part.add_to(self.layout, weight, matrix)
        return matrix

    def evaluate_terms(self, change: Array, count: int = 4) -> list[float]:
        """The first roughnesses of ``z − centre``, ``(p,)``, at weight one and without the half."""
        logs, _ = self.layout.unpack(change)
        bends, (drift, twist, _) = self._measures.bend_of(logs), self._chosen_steps
        moves, turns = np.diff(logs, axis=1), np.diff(bends, axis=1)
        energies = [
            np.sum(self._bends.kept * (bends * bends)),
            np.sum(drift.between[:, None] * (self.mass * moves * moves)),
            np.sum(twist.between[:, None] * (turns * turns)),
            np.sum(self.mass * logs * logs),
        ]
        return [float(energy) for energy in energies[:count]]

    def average_terms(self, covariance: Array, count: int = 4) -> list[float]:
        """The means of :meth:`evaluate_terms` under a covariance ``(p, w)`` within the band."""
        near = covariance[:, self._diagonals]
        # row by row first: the covariance has large constants, which each row of a term takes out
        rows = np.einsum("tpd,pd->tp", self._chosen_terms[:count], near)
        return [float(row.sum()) for row in rows]


def measure_reach_change(
    knots: Array, reach: tuple[Array, Array], log_slopes: Array, strike: float
) -> float:
    """What the penalty at ``log_slopes`` ``(L, n)`` loses as quotes end elsewhere.

    Args:
        knots: ``(n,)``.
        reach: ``(L, 2)`` where they ended before, and where they end now.
        log_slopes: Of one component.
        strike: Weight of the second differences in x.
    """
    before, now = (_find_segments_beyond(knots, ends) for ends in reach)
    if np.array_equal(before, now):
        return 0.0
    measures = _measure_knots(tuple(knots.tolist()))
    ties = np.diff(log_slopes, axis=1) ** 2 / measures.gap
    bends = measures.bend_of(log_slopes) ** 2
    values = [
        _BEYOND_QUOTES_WEIGHT * ties[outside].sum()
        + strike * bends[find_knots_between(outside)].sum()
        for outside in (before, now)
    ]
    return 0.5 * float(values[0] - values[1])


def _find_segments_beyond(knots: Array, reach: Array) -> NDArray[np.bool_]:
    """``(L, n-1)`` whether the middle of a segment lies beyond the end strikes."""
    middle = 0.5 * (knots[1:] + knots[:-1])
    return np.asarray((middle < reach[:, :1]) | (middle > reach[:, 1:]))


def find_knots_between(outside: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """``(L, n-2)`` whether one of an inner knot's segments ``(L, n-1)`` is between end strikes."""
    return np.asarray(~(outside[:, 1:] & outside[:, :-1]))
