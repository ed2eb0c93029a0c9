"""The objective of a fit to VIX options and futures: log-slopes by date, without calendar order.

With ``ρ = F/F⁰`` the model's future over the one that quotes are written in,

    option = ρ · otm(log K/F),   log F = log 100 + ½ log FV + log H − ½ log M,

H and M the means of ``e^h`` and ``e^{2h}`` (docs/vix.md). A free fit holds the future. A
coupled one takes log FV as an argument and has derivatives by it. Residuals are in half-spreads,
as in :mod:`arbiter.fitting.misfit`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np

from arbiter.conventions import INDEX_POINTS, Array
from arbiter.fitting.initial_point import log_slopes_from_smile
from arbiter.fitting.loss import Cost
from arbiter.fitting.misfit import Linearisation, MisfitPoint, QuotedSmiles, QuoteMisfit
from arbiter.fitting.normal_equations import add_normal_equations
from arbiter.fitting.objective import INITIAL_ROUGHNESS, FitObjective, PackedMean
from arbiter.fitting.options import FitOptions
from arbiter.fitting.order_constraints import OrderConstraints
from arbiter.fitting.prior_mean import make_flat_prior_mean
from arbiter.fitting.roughness import Penalty
from arbiter.fitting.vix_quotes import VixMarket
from arbiter.pricing.price_derivatives import (
    KnotQuadrature,
    OtmPricer,
    QuotePrices,
    SliceIntegrals,
    log_mean_gradient,
)

VIX_KNOTS = tuple(n / 3 for n in range(-14, 17))  # the long wing of the VIX is the right one
LOWEST_LOG_SLOPE, HIGHEST_LOG_SLOPE = np.log(1e-4), np.log(4.0)  # moments are far from overflow
_USUAL_VIX_VOLATILITY = 0.8  # volatility of the VIX to start from where no option is quoted
_BOUND_MARGIN = 0.05
# Slopes beyond the last option of a date are tied to the last one inside. E VIX² of a free fit is
# finite whatever they are, but a trend that continues into the wing can make it any number.
_BEYOND_QUOTES_WEIGHT = 30.0


class FutureRatios(NamedTuple):
    """The model's futures over those that the quotes are written in."""

    rho: Array  # (L,)
    by_slope: Array | None  # (L, n) derivative of log F, where it depends on the slopes


class PricedVixSlices(NamedTuple):
    """Laws of the VIX at all dates, priced."""

    slopes: Array  # (L, n)
    slices: SliceIntegrals
    prices: QuotePrices
    ratios: FutureRatios


def log_future(log_variance: Array, slices: SliceIntegrals, squares: SliceIntegrals) -> Array:
    """``log F`` ``(L,)`` at given ``log FV``, from the integrals of slopes a and 2a."""
    log_root = np.log(INDEX_POINTS) + 0.5 * log_variance
    return np.asarray(log_root + np.log(slices.mean) - 0.5 * np.log(squares.mean))


def differentiate_log_future(
    line: KnotQuadrature, slices: SliceIntegrals, squares: SliceIntegrals
) -> Array:
    """``(L, n)`` derivatives of ``log H − ½ log M`` by the slopes.

    M is the mean at slopes 2a, so that its derivative by a is twice the one by 2a.
    """
    return log_mean_gradient(line, slices) - log_mean_gradient(line, squares)


def differentiate_vix_prices(
    pricer: OtmPricer, market: VixMarket, laws: PricedVixSlices, scale: Array
) -> tuple[Array, Array]:
    """Derivatives of the prices of options and futures.

    Args:
        pricer: Of the options.
        market: What is quoted.
        laws: Where the derivatives are taken.
        scale: ``(m + f,)`` factors of the rows, options first.

    Returns:
        ``(m + f, n)`` by the log-slopes of their date, and ``(m + f,)`` by the logarithm of its
        future.
    """
    quotes, rho = market.quotes, laws.ratios.rho
    share = pricer.sign * laws.prices.share
    along = scale * np.concatenate([rho[quotes.expiry] * share, (quotes.forwards * rho)[market.at]])
    m = len(quotes)
    rows = np.zeros((along.size, laws.slopes.shape[1]))
    rows[:m] = pricer.jacobian(laws.slices, laws.prices, scale[:m] * rho[quotes.expiry])
    if laws.ratios.by_slope is not None:
        rows += along[:, None] * laws.ratios.by_slope[market.date]
    rows *= laws.slopes[market.date]
    return rows, along


class VarianceDerivatives(NamedTuple):
    """Derivatives of the loss by ``log FV`` of each date."""

    gradient: Array  # (L,)
    weight: Array  # (L,) Gauss-Newton weight q
    cross: Array  # (L, n) Gauss-Newton block beside it


@dataclass(frozen=True, eq=False)
class VixLinearisation(Linearisation):
    """The loss of VIX quotes to second order.

    While coupled the matrix is that at the best forward variance: the part that the derivative
    by log FV explains is taken out of it, and the columns of the joint objective have it.

    Attributes:
        by_variance: Derivatives by log FV, zero in a free fit.
    """

    by_variance: VarianceDerivatives


@dataclass(frozen=True, eq=False)
class VixMisfit(QuoteMisfit):
    """The loss of options and futures on the VIX.

    Attributes:
        market: What is quoted.
        log_variance: ``(L,)`` log FV of a coupled fit; None for a free one, which holds the
            futures.
    """

    market: VixMarket
    log_variance: Array | None = None

    @classmethod
    def from_market(cls, market: VixMarket, options: FitOptions) -> VixMisfit:
        """The misfit of a free fit."""
        plain = QuoteMisfit.from_quotes(
            market.quotes, replace(options, components=1, knots=VIX_KNOTS)
        )
        weights = np.concatenate([np.ones(len(market.quotes)), np.zeros(market.at.size)])
        return VixMisfit(
            quotes=plain.quotes,
            options=plain.options,
            layout=plain.layout,
            weights=weights,
            half_spreads=plain.half_spreads,
            smiles=plain.smiles,
            pricer=plain.pricer,
            mid=plain.mid,
            market=market,
        )

    def with_forward_variance(self, log_variance: Array) -> VixMisfit:
        """The misfit at given ``log FV`` ``(L,)``; futures are then residuals like options."""
        return replace(self, weights=np.ones(self.weights.size), log_variance=log_variance)

    def evaluate_at(self, z: Array) -> VixMisfitPoint:
        """Prices of options and futures, residuals and loss at the unknowns ``z``."""
        quotes, market = self.quotes, self.market
        slopes = np.exp(z.reshape(self.layout.shape))
        slices = self.pricer.integrate_slices(slopes)
        if self.log_variance is None:
            log_ratio, by_slope = np.log(market.futures / quotes.forwards), None
        else:
            squares = self.pricer.integrate_slices(2.0 * slopes)
            log_ratio = log_future(self.log_variance, slices, squares) - np.log(quotes.forwards)
            by_slope = differentiate_log_future(self.pricer.line, slices, squares)
        rho = np.exp(log_ratio)
        prices = self.pricer.price_quotes(slices, moved=quotes.k - log_ratio[quotes.expiry])
        options = (rho[quotes.expiry] * prices.price - self.mid) / self.half_spreads
        futures = (quotes.forwards * rho)[market.at] - market.price
        residuals = np.concatenate([options, futures / market.half])
        cost = self.options.loss.without_rim()(residuals)
        loss = float(self.weights @ cost.value)
        ratios = FutureRatios(rho, by_slope)
        return VixMisfitPoint(self, z, slices, prices, residuals, cost, loss, ratios)


@dataclass(frozen=True, eq=False)
class VixMisfitPoint(MisfitPoint):
    """The loss of VIX quotes at one set of unknowns.

    Attributes:
        ratios: The model's futures there.
    """

    misfit: VixMisfit
    ratios: FutureRatios

    @cached_property
    def linearisation(self) -> VixLinearisation:
        """The linearisation of the loss that was evaluated, computed once."""
        return self.linearise(self.cost)

    @property
    def of_quotes(self) -> VixLinearisation:
        """The same: there are no bounds."""
        return self.linearisation

    def futures(self) -> Array:
        """``(L,)`` futures in index points."""
        return np.asarray(self.misfit.quotes.forwards * self.ratios.rho)

    def linearise(self, cost: Cost) -> VixLinearisation:
        """The linearisation here of any loss of the residuals.

        Args:
            cost: That loss at :attr:`residuals`.
        """
        market, layout, weights = self.misfit.market, self.misfit.layout, self.misfit.weights
        slopes = np.exp(self.z.reshape(layout.shape))
        unit = np.concatenate([self.misfit.half_spreads, market.half])
        scale = np.sqrt(weights * cost.weight) / unit
        force = weights * cost.slope / (unit * scale + 1e-300)
        laws = PricedVixSlices(slopes, self.slices, self.prices, self.ratios)
        rows, along = differentiate_vix_prices(self.misfit.pricer, market, laws, scale)
        coupled = self.ratios.by_slope is not None
        up = 0.5 * along if coupled else np.zeros(along.size)  # ½: log F has half of log FV
        total = (market.date == np.arange(layout.expiry_count)[:, None]).astype(np.float64)
        local = VarianceDerivatives(
            *(total @ part for part in (force * up, up**2, up[:, None] * rows))
        )
        # rows without what log FV explains of them, for a block without cross crossᵀ / q
        explained = local.cross / np.maximum(local.weight, 1e-300)[:, None]
        rows -= up[:, None] * explained[market.date]
        gradient, band = (
            (local.gradient[:, None] * explained).reshape(-1),
            np.zeros(layout.band_shape),
        )
        order, starts = market.by_date
        factor = np.ones(layout.shape)
        add_normal_equations(rows[order], force[order], starts, factor, gradient, band)
        return VixLinearisation(gradient, band, local)


@dataclass(frozen=True, eq=False)
class VixObjective(FitObjective):
    """The objective over log-slopes ``(L, n)`` of VIX dates, futures held."""

    misfit: VixMisfit

    @classmethod
    def from_market(cls, market: VixMarket, options: FitOptions) -> VixObjective:
        """The objective of a free fit with the roughness that it starts from.

        Args:
            market: What is quoted.
            options: Loss, roughness and tolerances.
        """
        misfit = VixMisfit.from_market(market, options)
        layout, maturities = misfit.layout, market.quotes.maturities
        # no date counts as unquoted, since one with a future alone is quoted, too; wings are tied
        reach = _find_option_range(misfit.smiles)
        penalty = Penalty(layout, maturities, reach, beyond=_BEYOND_QUOTES_WEIGHT)
        flat = make_flat_prior_mean(penalty.tau, layout.knot_count, 1)
        return VixObjective(
            misfit,
            penalty,
            PackedMean.from_prior_mean(flat, layout, is_prior=False),
            INITIAL_ROUGHNESS[1],
            1.0,
        )

    def initial_point(self) -> Array:
        """Slopes from the smiles; at dates without a smile, those of the nearest date with one."""
        (count, n), quotes, smiles = self.layout.shape, self.quotes, self.misfit.smiles
        root = np.sqrt(quotes.maturities)[:, None]
        logs = np.full((count, n), np.log(_USUAL_VIX_VOLATILITY))
        quoted = np.flatnonzero(np.diff(smiles.starts) >= 2)
        for i in quoted:
            part = slice(smiles.starts[i], smiles.starts[i + 1])
            smile = (smiles.gaussian_strike[part], quotes.k[part], smiles.total_volatility[part])
            logs[i] = log_slopes_from_smile(self.layout.knots, *smile) - np.log(root[i])
        for i in np.setdiff1d(np.arange(count), quoted) if quoted.size else ():
            nearest = quoted[np.argmin(np.abs(root[quoted, 0] - root[i, 0]))]
            logs[i] = logs[nearest]
        inside = (LOWEST_LOG_SLOPE + _BOUND_MARGIN, HIGHEST_LOG_SLOPE - _BOUND_MARGIN)
        return np.asarray(np.clip(logs + np.log(root), *inside).reshape(-1))

    def build_constraints(self) -> OrderConstraints:
        """Bounds alone: windows of different VIX dates have no order."""
        size = self.layout.size
        index = np.arange(size)
        none = np.full(size, -1)
        offset = np.repeat([-LOWEST_LOG_SLOPE, HIGHEST_LOG_SLOPE], size)
        return OrderConstraints(
            np.concatenate([index, none]), np.concatenate([none, index]), offset
        )


def _find_option_range(smiles: QuotedSmiles) -> Array:
    """``(L, 2)`` Gaussian coordinates of the end strikes; an empty range without any."""
    reach = np.tile([np.inf, -np.inf], (smiles.starts.size - 1, 1))
    quoted = smiles.quoted
    reach[quoted, 0] = smiles.gaussian_strike[smiles.starts[quoted]]
    reach[quoted, 1] = smiles.gaussian_strike[smiles.starts[quoted + 1] - 1]
    return reach
