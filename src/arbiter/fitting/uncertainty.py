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
from numpy.typing import ArrayLike

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
        J, L, n = self.slopes.shape
        slopes = self.decoder.slopes_at(unique)  # (J, U, n)
        by_slope = self._log_slope_derivatives(unique)  # (U, J, L, n)
        shares = self.decoder.weights_at(unique)  # (J, U)
        line = KnotQuadrature.from_knots(self.knots)
        gradient = np.zeros((flat.size, L, J * n + J - 1))
        price = np.zeros(flat.size)
        parts = []
        for j in range(J):
            kernel = OtmPricer(line, slice_of, flat)
            slices = kernel.integrate_slices(slopes[j])
            prices = kernel.price_quotes(slices)
            rows = kernel.jacobian(slices, prices, shares[j][slice_of])  # (p, n)
            column = slice(j * n, (j + 1) * n)
            gradient[:, :, column] = by_slope[slice_of, j] * rows[:, None, :]
            price += shares[j][slice_of] * prices.price
            parts.append(prices.price)
        if J == 2:
            along = weight_derivatives_at(self.maturities, self.weights, unique)  # (U, L)
            gradient[:, :, -1] = along[slice_of] * (parts[1] - parts[0])[:, None]
        root = np.sqrt(maturities)
        v = np.asarray(black.implied_total_volatility(price, flat).volatility)
        vega = np.asarray(black.vega(flat, v)) * root
        error = self._standard_errors(gradient.reshape(flat.size, -1)) / vega
        return np.asarray(error.reshape(points.shape))

    def vix(self, tenor: float) -> Array:
        """Standard error of ``100 √(W/T)`` at ``tenor``."""
        at = np.array([tenor])
        slices = self.decoder.slices_at(at)
        total = float(slices.log_variance()[0])
        line = KnotQuadrature.from_knots(self.knots)
        parts = [integrate_segments(line, slopes) for slopes in self.decoder.slopes_at(at)]
        # W = 2 (log M − E s), and the index is 100 √(W/T)
        scale = INDEX_POINTS * 0.5 / np.sqrt(total * tenor)
        by_slope = [2.0 * (log_mean_gradient(line, part)[0] - line.mean) for part in parts]
        share = slices.weights[:, 0]
        by_log = scale * (share[:, None] * by_slope)[:, None] * self._log_slope_derivatives(at)[0]
        columns = [by_log.transpose(1, 0, 2).reshape(self.maturities.size, -1)]
        if len(parts) == 2:
            variance = [float(part.log_variance()[0]) for part in slices.parts]
            along = weight_derivatives_at(self.maturities, self.weights, at)[0]
            columns.append((scale * (variance[1] - variance[0]) * along)[:, None])
        gradient = np.concatenate(columns, axis=1).reshape(1, -1)
        return np.asarray(self._standard_errors(gradient)[0])

    def _standard_errors(self, gradient: Array) -> Array:
        """``√(φ g H⁻¹ g)`` for rows ``g`` of shape ``(p, L·B)``."""
        try:
            factor = banded.factorise(add_ridge(self.matrix))
        except banded.SingularMatrixError as error:
            raise ValueError(
                "the Gauss-Newton matrix is singular: the quotes do not fix the fit"
            ) from error
        solved = banded.solve(factor, gradient.T)
        return np.asarray(np.sqrt(self.dispersion * np.einsum("pi,ip->p", gradient, solved)))

    def _log_slope_derivatives(self, T: Array) -> Array:
        """Derivatives ``(U, J, L, n)`` of the slopes at ``T`` by the listed log-slopes."""
        return slope_derivatives_at(self.maturities, self.slopes, T) * self.slopes
