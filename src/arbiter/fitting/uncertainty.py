"""Standard errors: the Gauss-Newton covariance carried to volatilities and the VIX.

The covariance of the unknowns is φ H⁻¹: H the Gauss-Newton matrix with roughness and the
stiffness of binding constraints, and with quotes on the VIX what these say about forward variance;
φ the variance of the residuals. The data's part of H is divided
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
from arbiter.fitting.interior_point import WoodburyFactor, add_ridge
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
        coupling: ``(L·B, r)`` columns U whose ``U Uᵀ`` is added to H, what VIX quotes say; or None.
    """

    knots: Array
    maturities: Array
    slopes: Array
    weights: Array
    matrix: Array
    dispersion: float
    coupling: Array | None = None

    @cached_property
    def decoder(self) -> Decoder:
        """The fitted slopes at any maturity."""
        return Decoder(self.knots, self.maturities, self.slopes, self.weights)

    def iv(self, k: ArrayLike, T: Array) -> Array:
        """Standard errors of implied volatilities."""
        points, at = np.broadcast_arrays(np.asarray(k, dtype=np.float64), T)
        order = np.argsort(at.ravel(), kind="stable")  # every maturity's points side by side
        flat, maturities = points.ravel()[order], at.ravel()[order]
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
        variance = self._carry_covariance(np.concatenate(columns, axis=1), slice_of, unique)
        error = np.empty(flat.size)
        error[order] = np.sqrt(self.dispersion * variance) / vega
        return error.reshape(points.shape)

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
        gradient = scale * np.concatenate(columns)[None]
        variance = self._carry_covariance(gradient, np.zeros(1, dtype=np.int64), at)
        return np.asarray(np.sqrt(self.dispersion * variance[0]))

    def _carry_covariance(self, gradient: Array, slice_of: NDArray[np.intp], T: Array) -> Array:
        """Variances ``(m,)`` over φ of numbers with known derivatives.

        Args:
            gradient: ``(m, B)`` derivatives by the slopes (and the share) at one maturity each.
            slice_of: ``(m,)`` that maturity, nondecreasing.
            T: ``(U,)`` maturities.
        """
        factor = WoodburyFactor.from_matrix(add_ridge(self.matrix), self.coupling)
        if factor is None:
            raise ValueError("the Gauss-Newton matrix is singular: the quotes do not fix the fit")
        J, L, n = self.slopes.shape
        B = J * n + J - 1
        by_slope = slope_derivatives_at(self.maturities, self.slopes, T) * self.slopes
        by_share = weight_derivatives_at(self.maturities, self.weights, T) if J == 2 else None
        found, knot = np.empty(len(gradient)), np.arange(n)
        edges = np.searchsorted(slice_of, np.arange(T.size + 1))
        for at, own in enumerate(map(slice, edges[:-1], edges[1:])):
            # derivatives by the unknowns: log-slopes of the same knot, and shares
            by = np.zeros((L, B, B))
            for of in range(J):
                for j in range(J):
                    by[:, j * n + knot, of * n + knot] = by_slope[at, of, j]
            if by_share is not None:
                by[:, -1, -1] = by_share[at]
            touched, rows = np.flatnonzero(by.any(axis=(1, 2))), gradient[own]
            # a solve for each number or for each slope, whichever are fewer
            few = len(rows) < B
            force = by @ rows.T if few else by
            solved = factor.solve(force.reshape(L * B, -1)).reshape(force.shape)
            covariance = np.einsum("lbc,lbd->cd", force[touched], solved[touched])
            found[own] = (
                np.diag(covariance) if few else np.einsum("pb,pb->p", rows @ covariance, rows)
            )
        return found
