"""The misfit of quotes: residuals in half-spreads, their loss, and its linearisation.

:meth:`QuoteMisfit.evaluate_at` returns a point that carries prices, residuals and, once it is
asked for, the Gauss-Newton linearisation there. Nothing is left behind in the misfit itself.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from arbiter.conventions import Array
from arbiter.fitting.bound_misfit import BoundMisfit, BoundPoint, mix_components
from arbiter.fitting.interior_point import Expansion
from arbiter.fitting.loss import Cost, Loss
from arbiter.fitting.normal_equations import add_normal_equations
from arbiter.fitting.options import FitOptions
from arbiter.fitting.unknowns import UnknownLayout
from arbiter.pricing import black
from arbiter.pricing.price_derivatives import KnotQuadrature, OtmPricer, QuotePrices, SliceIntegrals
from arbiter.quotes import Quotes


def compute_half_spreads(quotes: Quotes, options: FitOptions) -> Array:
    """Half-spreads ``(m,)`` in price, none below the floor that ``options`` set in volatility."""
    vega = np.asarray(black.vega(quotes.k, quotes.iv_mid * np.sqrt(quotes.T))) * np.sqrt(quotes.T)
    half = quotes.half_spread
    floor = np.where(half > 0.0, options.finest, options.unsure)
    return np.asarray(np.maximum(half, floor * vega))


class QuotedSmiles(NamedTuple):
    """The quotes as smiles, expiry by expiry."""

    starts: NDArray[np.int64]  # (L+1,) first quote of each expiry
    quoted: NDArray[np.int64]  # expiries with quotes; the others are dates of VIX windows
    total_volatility: Array  # (m,) σ√T
    gaussian_strike: Array  # (m,) strikes as Gaussian coordinates, by Black's formula
    # (L, 2) Gaussian coordinates of the end strikes; of an expiry without any, the nearest one's
    quoted_range: Array

    @classmethod
    def from_quotes(cls, quotes: Quotes) -> QuotedSmiles:
        """The smiles of ``quotes``."""
        starts = np.searchsorted(quotes.expiry, np.arange(quotes.maturities.size + 1))
        volatility = quotes.iv_mid * np.sqrt(quotes.T)
        strike = quotes.k / volatility + 0.5 * volatility
        quoted, count = np.flatnonzero(np.diff(starts)), starts.size - 1
        near = quoted
        if 0 < near.size < count:
            near = quoted[np.abs(np.arange(count)[:, None] - quoted).argmin(axis=1)]
        ends = np.stack([starts[near], starts[near + 1] - 1], axis=1)
        return cls(starts, quoted, volatility, strike, strike[ends])


@dataclass(frozen=True, eq=False)
class Linearisation:
    """The loss of the quotes to second order, by Gauss and Newton.

    Attributes:
        gradient: ``(p,)``.
        band: ``(p, w)`` the Gauss-Newton matrix; quotes do not couple expiries.
    """

    gradient: Array
    band: Array


@dataclass(frozen=True, eq=False)
class QuoteMisfit:
    """The loss of quotes as a function of the unknowns.

    Attributes:
        quotes: What is fitted.
        options: Loss, knots and floors of the half-spreads.
        layout: The places of the unknowns.
        weights: Factors of each residual's loss.
        half_spreads: ``(m,)`` units of the residuals, in price.
        smiles: The quotes by expiry.
        pricer: Prices at any slopes.
        mid: ``(m,)`` mid prices.
        bounds: The loss of asks without a bid; None where there are none.
        choosing: Whether the rim of the loss and the bounds are left out, as long as roughness is
            chosen: what comes and goes with a price at an edge would make the choice a matter of
            chance.
    """

    quotes: Quotes
    options: FitOptions
    layout: UnknownLayout
    weights: Array
    half_spreads: Array
    smiles: QuotedSmiles
    pricer: OtmPricer
    mid: Array
    bounds: BoundMisfit | None = field(default=None, kw_only=True)
    choosing: bool = field(default=False, kw_only=True)

    @property
    def loss(self) -> Loss:
        """The loss of a residual."""
        return self.options.loss.without_rim() if self.choosing else self.options.loss

    @classmethod
    def from_quotes(
        cls, quotes: Quotes, options: FitOptions, weights: Array | None = None
    ) -> QuoteMisfit:
        """The misfit of ``quotes``, each with weight one if ``weights`` are left out."""
        count, components = quotes.maturities.size, options.components
        layout = UnknownLayout(options.line(), count, components)
        slice_of = np.concatenate([quotes.expiry + j * count for j in range(components)])
        line = KnotQuadrature.from_knots(layout.knots)
        return QuoteMisfit(
            quotes,
            options,
            layout,
            np.ones(len(quotes)) if weights is None else weights,
            compute_half_spreads(quotes, options),
            QuotedSmiles.from_quotes(quotes),
            OtmPricer(line, slice_of, np.tile(quotes.k, components)),
            quotes.mid,
            bounds=BoundMisfit.from_quotes(quotes, options, layout, line),
        )

    def evaluate_at(self, z: Array) -> MisfitPoint:
        """Prices, residuals and loss at the unknowns ``z``."""
        logs, shares = self.layout.unpack(z)
        slices = self.pricer.integrate_slices(np.exp(logs.reshape(-1, self.layout.knot_count)))
        prices = self.pricer.price_quotes(slices)
        price = mix_components(prices, shares, self.quotes.expiry)
        residuals = (price - self.mid) / self.half_spreads
        cost = self.loss(residuals)
        loss = float(self.weights @ cost.value)
        if self.bounds is None or self.choosing:
            return MisfitPoint(self, z, slices, prices, residuals, cost, loss)
        above = self.bounds.evaluate_at(slices, shares)
        loss += float(above.cost.value.sum())
        return MisfitPoint(self, z, slices, prices, residuals, cost, loss, bounds=above)


@dataclass(frozen=True, eq=False)
class MisfitPoint:
    """The misfit at one set of unknowns.

    Attributes:
        misfit: The function that was evaluated.
        z: ``(p,)`` the unknowns.
        slices: Integrals of the slices.
        prices: Prices of the quotes, with what their derivatives need.
        residuals: Distances from the mids in half-spreads.
        cost: Loss of each residual.
        loss: The weighted sum of the losses, those of bounds included.
        bounds: The asks without a bid; None where there are none.
    """

    misfit: QuoteMisfit
    z: Array
    slices: SliceIntegrals
    prices: QuotePrices
    residuals: Array
    cost: Cost
    loss: float
    bounds: BoundPoint | None = field(default=None, kw_only=True)

    def sum_by_expiry(self) -> Array:
        """``(L,)`` the loss of each expiry, that of its bounds included."""
        misfit, count = self.misfit, self.misfit.layout.expiry_count
        expiry = misfit.quotes.expiry
        found = np.asarray(np.bincount(expiry, misfit.weights * self.cost.value, count), float)
        if self.bounds is not None and misfit.bounds is not None:
            found += np.bincount(misfit.bounds.expiry, self.bounds.cost.value, count)
        return found

    def while_choosing(self) -> Self:
        """The same point under the loss by which roughness is chosen, without bounds."""
        misfit = replace(self.misfit, choosing=True)
        cost = misfit.loss(self.residuals)
        loss = float(misfit.weights @ cost.value)
        found = replace(self, misfit=misfit, cost=cost, loss=loss, bounds=None)
        if np.array_equal(cost.weight, self.cost.weight):  # no quote is in the rim
            found.__dict__["of_quotes"] = self.of_quotes
        return found

    @cached_property
    def of_quotes(self) -> Linearisation:
        """The linearisation of the loss of the quotes alone, computed once."""
        return self.linearise(self.cost)

    @cached_property
    def linearisation(self) -> Linearisation:
        """The linearisation of the loss that was evaluated, bounds included, computed once."""
        above = self.misfit.bounds
        if self.bounds is None or above is None or not self.bounds.cost.weight.any():
            return self.of_quotes
        found = Linearisation(self.of_quotes.gradient.copy(), self.of_quotes.band.copy())
        prices, cost = self.bounds
        scale = np.sqrt(cost.weight) / above.units
        force = cost.slope / (above.units * scale + 1e-300)
        rows, factor = self._scale_jacobian(above.pricer, prices, scale)
        add_normal_equations(rows, force, above.starts, factor, found.gradient, found.band)
        return found

    def expand(self, value: float, gradient: Array, band: Array) -> Expansion:
        """The quadratic model of this loss and a roughness.

        Args:
            value: Both together.
            gradient: ``(p,)`` of the roughness.
            band: ``(p, w)`` its matrix.
        """
        local = self.linearisation
        return Expansion(value, gradient + local.gradient, band + local.band)

    def linearise(self, cost: Cost) -> Linearisation:
        """The linearisation here of any loss of the residuals.

        Args:
            cost: That loss at :attr:`residuals`.
        """
        weights, unit = self.misfit.weights, self.misfit.half_spreads
        scale = np.sqrt(weights * cost.weight) / unit
        force = weights * cost.slope / (unit * scale + 1e-300)
        rows, factor = self.scaled_jacobian(scale)
        layout, starts = self.misfit.layout, self.misfit.smiles.starts
        gradient, band = np.zeros(layout.size), np.zeros(layout.band_shape)
        add_normal_equations(rows, force, starts, factor, gradient, band)
        return Linearisation(gradient, band)

    def scaled_jacobian(self, scale: Array) -> tuple[Array, Array]:
        """``(m, B)`` scaled derivatives, and ``(L, B)`` factors still to be applied to columns."""
        return self._scale_jacobian(self.misfit.pricer, self.prices, scale)

    def _scale_jacobian(
        self, pricer: OtmPricer, prices: QuotePrices, scale: Array
    ) -> tuple[Array, Array]:
        logs, shares = self.misfit.layout.unpack(self.z)
        if self.misfit.layout.components == 1:
            return pricer.jacobian(self.slices, prices, scale), np.exp(logs[0])
        calm, crash = prices.price.reshape(2, -1)
        both = pricer.jacobian(self.slices, prices, np.tile(scale, 2))
        first, second = both.reshape(2, scale.size, -1)
        rows = np.concatenate([first, second, (scale * (crash - calm))[:, None]], axis=1)
        share = shares[0][:, None]
        factor = [(1.0 - share) * np.exp(logs[0]), share * np.exp(logs[1]), np.ones_like(share)]
        return rows, np.concatenate(factor, axis=1)

    def residual_jacobian(self) -> Array:
        """``(m, B)`` derivatives of the residuals by the unknowns of their expiries."""
        rows, factor = self.scaled_jacobian(1.0 / self.misfit.half_spreads)
        return np.asarray(rows * factor[self.misfit.quotes.expiry])
