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
import torch
from numpy.typing import ArrayLike
from scipy.linalg.lapack import dpbtrf, dpbtrs
from torch import Tensor

from arbiter.conventions import INDEX_POINTS, Array
from arbiter.fitting.interior_point import RELATIVE_RIDGE
from arbiter.fitting.price_derivatives import KnotQuadrature, OtmPricer
from arbiter.pricing import black
from arbiter.pricing.decoder import Decoder
from arbiter.pricing.maturity import slopes_at, weights_at


@dataclass(frozen=True, eq=False)
class Uncertainty:
    """The covariance of a fit.

    Attributes:
        knots: ``(n,)``.
        maturities: ``(L,)``.
        slopes: ``(J, L, n)``.
        weights: ``(J, L)``.
        matrix: ``(B+3, L·B)`` H, lower banded, over log-slopes (and shares).
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
        """The fitted slopes as tensors."""
        return Decoder.from_arrays(self.knots, self.maturities, self.slopes, self.weights)

    def iv(self, k: ArrayLike, T: Array) -> Array:
        """Standard errors of implied volatilities."""
        points, at = np.broadcast_arrays(np.asarray(k, dtype=np.float64), T)
        flat, maturities = points.ravel(), at.ravel()
        unique, slice_of = np.unique(maturities, return_inverse=True)
        J, L, n = self.decoder.slopes.shape
        T_ = torch.from_numpy(unique)
        slopes, by_slope = self._slopes_with_derivatives(T_)
        shares = weights_at(self.decoder.maturities, self.decoder.weights, T_).numpy()  # (J, U)
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
            along = self._share_derivatives(T_)  # (U, L)
            gradient[:, :, -1] = along[slice_of] * (parts[1] - parts[0])[:, None]
        root = np.sqrt(maturities)
        v = np.asarray(black.implied_total_volatility(price, flat).volatility)
        vega = np.asarray(black.vega(flat, v)) * root
        error = self._standard_errors(gradient.reshape(flat.size, -1)) / vega
        return np.asarray(error.reshape(points.shape))

    def vix(self, tenor: float) -> Array:
        """Standard error of ``100 √(W/T)`` at ``tenor``."""
        slopes = self.decoder.slopes.clone().requires_grad_()
        weights = self.decoder.weights.clone().requires_grad_()
        with torch.enable_grad():
            decoder = Decoder(self.decoder.knots, self.decoder.maturities, slopes, weights)
            T = torch.tensor([tenor], dtype=torch.float64)
            index = INDEX_POINTS * torch.sqrt(decoder.slices_at(T).log_variance().sum() / tenor)
            by_slope, by_weight = torch.autograd.grad(
                index, (slopes, weights), materialize_grads=True
            )
        J, L, _ = slopes.shape
        by_log = (by_slope * slopes.detach()).permute(1, 0, 2).reshape(L, -1).numpy()
        columns = [by_log] if J == 1 else [by_log, (by_weight[1] - by_weight[0]).numpy()[:, None]]
        gradient = np.concatenate(columns, axis=1).reshape(1, -1)
        return np.asarray(self._standard_errors(gradient)[0])

    def _standard_errors(self, gradient: Array) -> Array:
        """``√(φ g H⁻¹ g)`` for rows ``g`` of shape ``(p, L·B)``."""
        matrix = self.matrix.copy()
        matrix[0] += RELATIVE_RIDGE * matrix[0].max()
        factor, failed = dpbtrf(matrix, lower=1)
        if failed:
            raise ValueError("the Gauss-Newton matrix is singular: the quotes do not fix the fit")
        solved, _ = dpbtrs(factor, np.asfortranarray(gradient.T), lower=1)
        return np.asarray(np.sqrt(self.dispersion * np.einsum("pi,ip->p", gradient, solved)))

    def _slopes_with_derivatives(self, T: Tensor) -> tuple[Array, Array]:
        """Slopes ``(J, U, n)`` at ``T`` and their derivatives by the listed ones ``(U, J, L, n)``.

        Derivatives are by log-slopes. A slope depends on the listed ones of its own knot only,
        so the sum over knots has all derivatives in one pass.
        """
        listed = self.decoder.slopes.clone().requires_grad_()
        with torch.enable_grad():
            at = slopes_at(self.decoder.maturities, listed, T)  # (J, U, n)
            rows = [
                torch.autograd.grad(at[:, u].sum(), listed, retain_graph=True)[0]
                for u in range(T.numel())
            ]
        by = torch.stack(rows) * listed.detach()
        return at.detach().numpy(), by.numpy()

    def _share_derivatives(self, T: Tensor) -> Array:
        """``(U, L)`` derivatives of the second component's share by the listed shares."""
        listed = self.decoder.weights[1].clone().requires_grad_()
        with torch.enable_grad():
            both = torch.stack([1.0 - listed, listed])
            at = weights_at(self.decoder.maturities, both, T)[1]
            rows = [
                torch.autograd.grad(at[u], listed, retain_graph=True)[0] for u in range(T.numel())
            ]
        return torch.stack(rows).numpy()
