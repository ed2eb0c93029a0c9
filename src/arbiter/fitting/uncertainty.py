"""Standard errors: the Gauss-Newton covariance carried to volatilities and the VIX.

The covariance of the unknowns is φ H⁻¹: H the Gauss-Newton matrix with roughness and the
stiffness of binding constraints, φ the variance of the residuals. The data's part of H is divided
by Huber's correction, since the few quotes at the edges of their spreads determine the fit. The
roughness stands for a Gaussian prior, and the covariance is that of its posterior. So it covers the
bias of smoothing as well as noise.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray

from arbiter.conventions import INDEX_POINTS, Array
from arbiter.fitting import banded
from arbiter.fitting.interior_point import add_ridge
from arbiter.pricing import black
from arbiter.pricing.decoder import Decoder
from arbiter.pricing.maturity import slope_derivatives_at, weight_derivatives_at
from arbiter.pricing.price_derivatives import (
    KnotQuadrature,
    OtmPricer,
    integrate_segments,
    log_mean_gradient,
)


@dataclass(frozen=True, eq=False)
class Uncertainty:
    """The covariance of a fit.

    Attributes:
        knots: ``(n,)``.
        maturities: ``(L,)``.
        slopes: ``(J, L, n)``.
        weights: ``(J, L)``.
        matrix: ``(L·B, B+3)`` H, banded, over log-slopes (and shares).
        dispersion: φ.
    """

    knots: Array
    maturities: Array
    slopes: Array
    weights: Array
    matrix: Array
    dispersion: float

    @cached_property
    def decoder(self) -> Decoder:
        """The fitted slopes at any maturity."""
        return Decoder(self.knots, self.maturities, self.slopes, self.weights)

    def iv(self, k: ArrayLike, T: Array) -> Array:
        """Standard errors of implied volatilities."""
        points, at = np.broadcast_arrays(np.asarray(k, dtype=np.float64), T)
        flat, maturities = points.ravel(), at.ravel()
        unique, slice_of = np.unique(maturities, return_inverse=True)
        slopes, shares = self.decoder.slopes_at(unique), self.decoder.weights_at(unique)
        kernel = OtmPricer(KnotQuadrature.from_knots(self.knots), slice_of, flat)
        columns, parts = [], []
        for b, share in zip(slopes, shares[:, slice_of], strict=True):
            slices = kernel.integrate_slices(b)
            prices = kernel.price_quotes(slices)
            columns.append(kernel.jacobian(slices, prices, share))  # (p, n)
            parts.append(prices.price)
        if len(parts) == 2:
            columns.append((parts[1] - parts[0])[:, None])
        price = np.sum(shares[:, slice_of] * parts, axis=0)
        v = np.asarray(black.implied_total_volatility(price, flat).volatility)
        vega = np.asarray(black.vega(flat, v)) * np.sqrt(maturities)
        gradient, covariance = np.concatenate(columns, axis=1), self._covariances_at(unique)
        variance = np.einsum("pb,pb->p", gradient, _multiply_rows(gradient, covariance, slice_of))
        return np.asarray((np.sqrt(self.dispersion * variance) / vega).reshape(points.shape))

    def vix(self, tenor: float) -> Array:
        """Standard error of ``100 √(W/T)`` at ``tenor``."""
        at = np.array([tenor])
        slices = self.decoder.slices_at(at)
        line, shares = KnotQuadrature.from_knots(self.knots), slices.weights[:, 0]
        parts = [integrate_segments(line, slopes) for slopes in self.decoder.slopes_at(at)]
        # W = 2 (log M − E s), and the index is 100 √(W/T)
        scale = INDEX_POINTS * 0.5 / np.sqrt(float(slices.log_variance()[0]) * tenor)
        columns = [
            2.0 * share * (log_mean_gradient(line, part)[0] - line.mean)
            for share, part in zip(shares, parts, strict=True)
        ]
        if len(parts) == 2:
            columns.append(slices.parts[1].log_variance() - slices.parts[0].log_variance())
        gradient = scale * np.concatenate(columns)
        variance = gradient @ self._covariances_at(at)[0] @ gradient
        return np.asarray(np.sqrt(self.dispersion * variance))

    def _covariances_at(self, T: Array) -> Array:
        """Covariances ``(U, B, B)`` over φ of the slopes (and the share) at maturities ``(U,)``.

        Each depends on few expiries: one banded solve for each of its numbers, however many
        points are asked for.
        """
        try:
            factor = banded.factorise(add_ridge(self.matrix))
        except banded.SingularMatrixError as error:
            raise ValueError(
                "the Gauss-Newton matrix is singular: the quotes do not fix the fit"
            ) from error
        J, L, n = self.slopes.shape
        B = J * n + J - 1
        by_slope = slope_derivatives_at(self.maturities, self.slopes, T) * self.slopes
        by_share = weight_derivatives_at(self.maturities, self.weights, T) if J == 2 else None
        found, knot = np.empty((T.size, B, B)), np.arange(n)
        for at in range(T.size):
            # derivatives by the unknowns: log-slopes of the same knot, and shares
            by = np.zeros((L, B, B))
            for of in range(J):
                for j in range(J):
                    by[:, j * n + knot, of * n + knot] = by_slope[at, of, j]
            if by_share is not None:
                by[:, -1, -1] = by_share[at]
            touched = np.flatnonzero(by.any(axis=(1, 2)))
            solved = banded.solve(factor, by.reshape(L * B, B)).reshape(L, B, B)
            found[at] = np.einsum("lbc,lbd->cd", by[touched], solved[touched])
        return found


def _multiply_rows(rows: Array, matrices: Array, of: NDArray[np.intp]) -> Array:
    """Each row ``(m, B)`` times the one of the matrices ``(U, B, B)`` that belongs to it."""
    out = np.empty_like(rows)
    for at, matrix in enumerate(matrices):
        own = of == at
        out[own] = rows[own] @ matrix
    return out
