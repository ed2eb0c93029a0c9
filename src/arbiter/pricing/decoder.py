"""Evaluation of the torch decoder at arrays of points (k, T) in any order and shape.

Points are laid out in rows that share a maturity, so that each slice's integrals are computed
once, however ragged the request. Everything is float64 on the CPU.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from arbiter.conventions import Array
from arbiter.pricing.knots import MAX_SLOPE
from arbiter.pricing.maturity import slopes_at, weights_at
from arbiter.pricing.mixture import Mixture

Query = Callable[[Mixture, Tensor], Tensor]

_MAX_POINTS_PER_ROW = 256  # widest row of points that share a slice
_MAX_POINTS_PER_CHUNK = 1 << 16  # points decoded at once: bounds memory, not results


@dataclass(frozen=True, eq=False)
class Decoder:
    """Slopes at listed maturities, evaluated at any maturity.

    Attributes:
        knots: ``(n,)`` Gaussian coordinates.
        maturities: ``(L,)`` listed maturities in years.
        slopes: ``(J, L, n)`` transport slopes.
        weights: ``(J, L)`` mixture weights.
    """

    knots: Tensor
    maturities: Tensor
    slopes: Tensor
    weights: Tensor

    @staticmethod
    @torch.inference_mode(False)
    def from_arrays(knots: Array, maturities: Array, slopes: Array, weights: Array) -> Decoder:
        """A decoder of NumPy arrays (copied: torch does not respect read-only memory)."""
        return Decoder(*(torch.from_numpy(a.copy()) for a in (knots, maturities, slopes, weights)))

    def slices_at(self, T: Tensor) -> Mixture:
        """The slices at maturities ``T`` of shape ``(U,)``."""
        # far past the last maturity slopes saturate, which keeps every order among them
        slopes = torch.clamp(slopes_at(self.maturities, self.slopes, T), max=MAX_SLOPE)
        return Mixture(self.knots, slopes, weights_at(self.maturities, self.weights, T))

    def evaluate(self, query: Query, points: Array, T: Array) -> Array:
        """``query(slices, points)`` elementwise over ``points`` and ``T`` of one shape.

        Args:
            query: Takes slices and points ``(R, w)``, returns ``(R, w)``.
            points: Log-strikes, Gaussian coordinates or probabilities.
            T: Year fractions.
        """
        return evaluate_by_rows(lambda row, t: query(self.slices_at(t), row), points, T)

    def calendar_rate(self, k: Array, T: Array) -> Array:
        """``∂c/∂T`` at fixed moneyness, by differentiating the decoder."""

        def rate(row: Tensor, t: Tensor) -> Tensor:
            # Each price depends on its own row's T alone. Weighting prices and differentiating
            # twice, by T and then by the weights, reads off every one of those derivatives.
            with torch.enable_grad():
                t = t.requires_grad_()
                price = self.slices_at(t).otm(row)
                weight = torch.ones_like(price, requires_grad=True)
                (by_maturity,) = torch.autograd.grad(price, t, weight, create_graph=True)
                (derivative,) = torch.autograd.grad(by_maturity.sum(), weight)
            return derivative

        return evaluate_by_rows(rate, k, T)

    def log_variance(self, T: Array) -> Array:
        """Total log-contract variance ``W(T)``."""
        unique, inverse = np.unique(T, return_inverse=True)
        with torch.no_grad():
            total: Array = self.slices_at(torch.from_numpy(unique)).log_variance().numpy()
        return total[inverse].reshape(T.shape)


@torch.inference_mode(False)  # a caller's inference mode must not forbid the derivatives
def evaluate_by_rows(f: Callable[[Tensor, Tensor], Tensor], points: Array, T: Array) -> Array:
    """Apply ``f(points (R, w), T (R,)) -> (R, w)`` with every row at one maturity."""
    flat_points, flat_T = points.ravel(), T.ravel()
    out = np.empty(flat_points.size)
    if out.size == 0:
        return out.reshape(points.shape)
    order = np.argsort(flat_T, kind="stable")
    unique, start, count = np.unique(flat_T[order], return_index=True, return_counts=True)
    width = int(np.clip(out.size // unique.size, 1, _MAX_POINTS_PER_ROW))
    rows = -(-count // width)  # rows per maturity
    group = np.repeat(np.arange(unique.size), count)
    place = np.arange(out.size) - start[group]
    row = (np.cumsum(rows) - rows)[group] + place // width
    table = np.zeros((int(rows.sum()), width))  # unused places hold k = 0 and are never read
    table[row, place % width] = flat_points[order]
    row_T = np.repeat(unique, rows)
    value = np.empty_like(table)
    step = max(1, _MAX_POINTS_PER_CHUNK // width)
    with torch.no_grad():
        for i in range(0, table.shape[0], step):
            part = f(torch.from_numpy(table[i : i + step]), torch.from_numpy(row_T[i : i + step]))
            value[i : i + step] = part.numpy()
    out[order] = value[row, place % width]
    return out.reshape(points.shape)
