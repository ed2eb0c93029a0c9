"""The objective of a fit to VIX options and futures: log-slopes by date, without calendar order.

With ``ρ = F/F⁰`` the model's future over the one that quotes are written in,

    option = ρ · otm(log K/F),   log F = log 100 + ½ log FV + log H − ½ log M,

H and M the means of ``e^h`` and ``e^{2h}`` (docs/vix.md). A free fit holds the future, a
coupled one is given log FV and has derivatives by it. Units as in
:mod:`arbiter.fitting.objective`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from arbiter.conventions import INDEX_POINTS, Array
from arbiter.fitting.initial_point import log_slopes_from_smile
from arbiter.fitting.interior_point import OrderConstraints
from arbiter.fitting.loss import Cost
from arbiter.fitting.objective import FitObjective
from arbiter.fitting.objective import ObjectivePoint as Options
from arbiter.fitting.options import KNOTS, FitOptions
from arbiter.fitting.price_derivatives import (
    KnotQuadrature,
    OtmPricer,
    QuotePrices,
    SliceIntegrals,
    log_mean_gradient,
)
from arbiter.fitting.roughness import Penalty
from arbiter.fitting.vix_quotes import VixMarket

VIX_KNOTS = tuple(-x for x in reversed(KNOTS))  # the long wing of the VIX is the right one
LOWEST_LOG_SLOPE, HIGHEST_LOG_SLOPE = (
    np.log(1e-4),
    np.log(4.0),
)  # of log-slopes: all moments are far from overflow
_USUAL_VIX_VOLATILITY = 0.8  # volatility of the VIX to start from where no option is quoted
_BOUND_MARGIN = 0.05
# Slopes beyond the last option of a date are tied to the last one that is seen: E VIX² of a free
# fit is finite whatever they are, but a trend that goes on into the wing can make it anything.
_BEYOND_QUOTES_WEIGHT = 30.0


class FutureRatios(NamedTuple):
    """What an evaluation has beside prices."""

    rho: Array  # (L,)
    by_slope: Array | None  # (L, n) derivative of log F, where it depends on the slopes


class PricedVixSlices(NamedTuple):
    """Laws of the VIX at all dates, priced."""

    slopes: Array  # (L, n)
    slices: SliceIntegrals
    levels: QuotePrices
    scales: FutureRatios


def log_future(log_variance: Array, slices: SliceIntegrals, squares: SliceIntegrals) -> Array:
    """``log F`` ``(L,)`` at given ``log FV``, from the integrals of slopes a and 2a."""
    level = np.log(INDEX_POINTS) + 0.5 * log_variance
    return np.asarray(level + np.log(slices.mean) - 0.5 * np.log(squares.mean))


def differentiate_log_future(
    line: KnotQuadrature, slices: SliceIntegrals, squares: SliceIntegrals
) -> Array:
    """``(L, n)`` derivatives of ``log H − ½ log M`` by the slopes: those of 2a count twice."""
    return log_mean_gradient(line, slices) - log_mean_gradient(line, squares)


def differentiate_vix_prices(
    kernel: OtmPricer, market: VixMarket, laws: PricedVixSlices, scale: Array
) -> tuple[Array, Array]:
    """Of options and futures times ``scale``, all ``(m + f,)``.

    Returns:
        ``(m + f, n)`` by the log-slopes of their date, and ``(m + f,)`` by the logarithm of its
        future.
    """
    quotes, rho = market.quotes, laws.scales.rho
    date = np.concatenate([quotes.expiry, market.at])
    share = kernel.sign * laws.levels.share
    along = scale * np.concatenate([rho[quotes.expiry] * share, (quotes.forwards * rho)[market.at]])
    m = len(quotes)
    rows = np.zeros((along.size, laws.slopes.shape[1]))
    rows[:m] = kernel.jacobian(laws.slices, laws.levels, scale[:m] * rho[quotes.expiry])
    if laws.scales.by_slope is not None:
        rows += along[:, None] * laws.scales.by_slope[date]
    rows *= laws.slopes[date]
    return rows, along


class VarianceDerivatives(NamedTuple):
    """Derivatives by ``log FV`` of each date, as last linearised."""

    gradient: Array  # (L,)
    weight: Array  # (L,) Gauss-Newton weight q
    cross: Array  # (L, n) Gauss-Newton block beside it


class VixObjective(FitObjective):
    """Objective over log-slopes ``(L, n)`` of VIX dates.

    Args:
        market: What is quoted.
        options: Loss, roughness and tolerances.

    Attributes:
        by_variance: Derivatives by log FV, while coupled.
    """

    def __init__(self, market: VixMarket, options: FitOptions) -> None:
        self.market = market
        super().__init__(market.quotes, replace(options, components=1, knots=VIX_KNOTS))
        self.options_count = len(market.quotes)
        self._free = np.log(market.futures / market.quotes.forwards)
        self._variance: Array | None = None
        self.weights = np.ones(self.options_count + market.at.size)
        self.weights[self.options_count :] = 0.0  # a free fit holds the futures
        self.residuals = np.zeros(self.weights.size)
        none = np.zeros(self.L)
        self.by_variance = VarianceDerivatives(none, none, np.zeros((self.L, self.n)))
        self._scales = FutureRatios(np.exp(self._free), None)

    def set_forward_variance(self, log_variance: Array) -> None:
        """Take ``log FV`` ``(L,)`` from outside; futures are then residuals like options."""
        self._variance = log_variance
        self.weights[self.options_count :] = 1.0
        self.last_point = None

    def future(self) -> Array:
        """``(L,)`` futures as last evaluated, in index points."""
        return np.asarray(self.quotes.forwards * self._scales.rho)

    def initial_point(self) -> Array:
        """Slopes read off the smiles; where there is none, those of the dates around."""
        root = np.sqrt(self.quotes.maturities)[:, None]
        logs = np.full((self.L, self.n), np.log(_USUAL_VIX_VOLATILITY))
        quoted = np.flatnonzero(np.diff(self.starts) >= 2)
        for i in quoted:
            part = slice(self.starts[i], self.starts[i + 1])
            smile = (self.level[part], self.quotes.k[part], self.volatility[part])
            logs[i] = log_slopes_from_smile(self.knots, *smile) - np.log(root[i])
        for i in np.setdiff1d(np.arange(self.L), quoted) if quoted.size else ():
            nearest = quoted[np.argmin(np.abs(root[quoted, 0] - root[i, 0]))]
            logs[i] = logs[nearest]
        inside = (LOWEST_LOG_SLOPE + _BOUND_MARGIN, HIGHEST_LOG_SLOPE - _BOUND_MARGIN)
        return np.asarray(np.clip(logs + np.log(root), *inside).reshape(-1))

    # -- what differs from options on the index ---------------------------------------------

    def quoted_range(self) -> Array:
        """``(L, 2)`` Gaussian coordinates of the end strikes; an empty range without any."""
        reach = np.tile([np.inf, -np.inf], (self.L, 1))
        quoted = np.flatnonzero(np.diff(self.starts))
        reach[quoted, 0] = self.level[self.starts[quoted]]
        reach[quoted, 1] = self.level[self.starts[quoted + 1] - 1]
        return reach

    def _penalty(self) -> Penalty:
        """No date is unseen, since one with a future alone is quoted, too; wings are tied."""
        return Penalty(
            self.knots, self.quotes.maturities, self.quoted_range(), beyond=_BEYOND_QUOTES_WEIGHT
        )

    def _highest_log_slope(self) -> float:
        return float(HIGHEST_LOG_SLOPE)

    def build_constraints(self) -> OrderConstraints:
        """Bounds alone: VIX dates are dates of different windows and have no order."""
        index = np.arange(self.size)
        none = np.full(self.size, -1)
        offset = np.repeat([-LOWEST_LOG_SLOPE, HIGHEST_LOG_SLOPE], self.size)
        return OrderConstraints(
            np.concatenate([index, none]), np.concatenate([none, index]), offset
        )

    def evaluate_at(self, z: Array) -> Options:
        """Prices of options and futures at the unknowns ``z``; the last point is kept."""
        if self.last_point is not None and self.last_point.z is z:
            return self.last_point
        quotes, market = self.quotes, self.market
        slopes = np.exp(z.reshape(self.shape))
        slices = self.kernel.integrate_slices(slopes)
        ratio, by = self._free, None
        if self._variance is not None:
            squares = self.kernel.integrate_slices(2.0 * slopes)
            ratio = log_future(self._variance, slices, squares) - np.log(quotes.forwards)
            by = differentiate_log_future(self.kernel.line, slices, squares)
        rho = np.exp(ratio)
        self._scales = FutureRatios(rho, by)
        self.kernel.set_strikes(quotes.k - ratio[quotes.expiry])
        levels = self.kernel.price_quotes(slices)
        options = (rho[quotes.expiry] * levels.price - self.mid) / self.unit
        futures = (quotes.forwards * rho)[market.at] - market.price
        residuals = np.concatenate([options, futures / market.half])
        cost = self.options.loss(residuals)
        loss = float(self.weights @ cost.value)
        self.last_point = Options(z, slices, levels, residuals, cost, loss)
        return self.last_point

    def linearise(self, z: Array, cost: Cost) -> Array:
        """The data's gradient at ``z``; blocks are left in :attr:`data` and :attr:`by_variance`.

        While coupled the blocks are those at the best level: what the derivative by log FV
        explains is taken out of them and left to the coupling, whose column has it.
        """
        point, market = self.evaluate_at(z), self.market
        slopes = np.exp(z.reshape(self.shape))
        unit = np.concatenate([self.unit, market.half])
        scale = np.sqrt(self.weights * cost.weight) / unit
        force = self.weights * cost.slope / (unit * scale + 1e-300)
        laws = PricedVixSlices(slopes, point.slices, point.levels, self._scales)
        rows, along = differentiate_vix_prices(self.kernel, market, laws, scale)
        date = np.concatenate([self.quotes.expiry, market.at])
        order = np.argsort(date, kind="stable")
        edges = np.searchsorted(date[order], np.arange(self.L + 1))
        gradient = np.zeros(self.shape)
        level = VarianceDerivatives(np.zeros(self.L), np.zeros(self.L), np.zeros(self.shape))
        for i in range(self.L):
            own = order[edges[i] : edges[i + 1]]
            part, up = rows[own], 0.5 * along[own]  # ½: log F has half of log FV
            self.data[i] = part.T @ part
            gradient[i] = force[own] @ part
            if self._scales.by_slope is not None and own.size:
                q, cross = float(up @ up), part.T @ up
                level.gradient[i], level.weight[i], level.cross[i] = force[own] @ up, q, cross
                self.data[i] -= np.outer(cross, cross) / max(q, 1e-300)
        self.by_variance = level
        return gradient.reshape(-1)
