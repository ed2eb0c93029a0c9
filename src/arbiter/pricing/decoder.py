"""Evaluation of slices at arrays of points (k, T) in any order and shape.

Each distinct maturity is one slice, whose integrals are computed once, however ragged the request.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import numpy as np

from arbiter.conventions import Array, Indices
from arbiter.pricing.calendar_rate import fill_calendar_rates
from arbiter.pricing.knots import MAX_SLOPE, Knots
from arbiter.pricing.maturity import interpolate_slopes, weight_rates_at, weights_at
from arbiter.pricing.mixture import Mixture
from arbiter.pricing.monotone_cubic import Hermite

Query = Callable[[Mixture, Array, Indices], Array]
_MAX_SLICES_PER_CHUNK = 4096  # slices decoded at once: bounds memory, not results


@dataclass(frozen=True, eq=False)
class Decoder:
    """Slopes at listed maturities, evaluated at any maturity.

    Attributes:
        knots: ``(n,)`` Gaussian coordinates.
        maturities: ``(L,)`` listed maturities in years.
        slopes: ``(J, L, n)`` transport slopes.
        weights: ``(J, L)`` mixture weights.
    """

    knots: Array
    maturities: Array
    slopes: Array
    weights: Array

    @cached_property
    def _grid(self) -> Knots:
        return Knots.from_array(self.knots)

    @cached_property
    def _cubics(self) -> Hermite:
        return interpolate_slopes(self.maturities, self.slopes)

    def slopes_at(self, T: Array) -> Array:
        """Slopes ``(J, U, n)`` at maturities ``T`` of shape ``(U,)``."""
        # far past the last maturity slopes saturate, which keeps every order among them
        found = self._cubics.at(T)
        return found if T.size and T.max() <= self.maturities[-1] else np.minimum(found, MAX_SLOPE)

    def weights_at(self, T: Array) -> Array:
        """Mixture weights ``(J, U)`` at maturities ``T`` of shape ``(U,)``."""
        return weights_at(self.maturities, self.weights, T)

    def slices_at(self, T: Array) -> Mixture:
        """The slices at maturities ``T`` of shape ``(U,)``."""
        return self._latest_slice(float(T[0])) if T.size == 1 else self._build_slices(T)

    @cached_property
    def _latest_slice(self) -> Callable[[float], Mixture]:
        """The slice at one maturity; questions about one smile often come strike by strike."""
        return lru_cache(maxsize=8)(lambda T: self._build_slices(np.array([T])))

    def _build_slices(self, T: Array) -> Mixture:
        weights = None if len(self.weights) == 1 else self.weights_at(T)
        return Mixture(self._grid, self.slopes_at(T), weights)

    def __reduce__(self) -> tuple[Any, ...]:
        return Decoder, (self.knots, self.maturities, self.slopes, self.weights)

    def evaluate(self, query: Query, points: Array, T: Array) -> Array:
        """``query(slices, points, of)`` elementwise over ``points`` and ``T`` of one shape.

        Args:
            query: Takes slices, a row of points and the slice of each.
            points: Log-strikes, Gaussian coordinates or probabilities.
            T: Year fractions.
        """
        return evaluate_by_slice(lambda t, row, of: query(self.slices_at(t), row, of), points, T)

    def calendar_rate(self, k: Array, T: Array) -> Array:
        """``∂c/∂T`` at fixed moneyness, by the envelope theorem."""
        return evaluate_by_slice(self._calendar_rates, k, T)

    def _calendar_rates(self, T: Array, k: Array, of: Indices) -> Array:
        slices = self.slices_at(T)
        growth = self._cubics.rates_at(T)  # (J, U, n)
        growth[self.slopes_at(T) >= MAX_SLOPE] = 0.0
        total = np.zeros(k.size)
        shares = slices.weights
        for part, rate, share in zip(slices.parts, growth, shares, strict=True):
            found = np.empty(k.size)
            fill_calendar_rates(self._grid, part.slices, rate, part.at_strike(k, of), found)
            total += share[of] * found
        if len(shares) > 1:
            moving = weight_rates_at(self.maturities, self.weights, T)
            for part, rate in zip(slices.parts, moving, strict=True):
                total += rate[of] * part.otm(k, of)
        return total

    def log_variance(self, T: Array) -> Array:
        """Total log-contract variance ``W(T)``."""
        unique, inverse = np.unique(T, return_inverse=True)
        return self.slices_at(unique).log_variance()[inverse].reshape(T.shape)


def evaluate_by_slice(
    f: Callable[[Array, Array, Indices], Array], points: Array, T: Array
) -> Array:
    """Apply ``f(T (U,), points (m,), of (m,)) -> (m,)``, every distinct maturity one slice."""
    row = np.ascontiguousarray(points).reshape(-1)
    if not row.size:
        return np.empty(points.shape)
    # of a broadcast axis every maturity is one and the same
    own_axes = T[tuple(slice(1 if step == 0 else None) for step in T.strides)]
    if own_axes.size == 1 or (own_axes == own_axes.flat[0]).all():
        at = own_axes.reshape(-1)[:1]
        return f(at, row, np.zeros(row.size, dtype=np.int64)).reshape(points.shape)
    unique, of = np.unique(own_axes, return_inverse=True)
    of = np.broadcast_to(of.reshape(own_axes.shape), T.shape).flatten()
    if unique.size <= _MAX_SLICES_PER_CHUNK:
        return f(unique, row, of).reshape(points.shape)
    out, order = np.empty(row.size), np.argsort(of, kind="stable")
    edges = np.searchsorted(of[order], np.arange(0, unique.size, _MAX_SLICES_PER_CHUNK))
    for first, start, end in zip(
        range(0, unique.size, _MAX_SLICES_PER_CHUNK),
        edges,
        [*edges[1:], row.size],
        strict=True,
    ):
        own = order[start:end]
        some = unique[first : first + _MAX_SLICES_PER_CHUNK]
        out[own] = f(some, row[own], of[own] - first)
    return out.reshape(points.shape)
