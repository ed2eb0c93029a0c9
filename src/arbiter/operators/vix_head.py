"""The operator's VIX side: slices from VIX quotes, around what the SPX surface makes likely.

The surface fixes ``E[(VIX_T/100)²] = FV(T)`` and, by :mod:`arbiter.vix.prior`, a Gaussian
of the log-slopes of every date. Quotes of options and futures on the VIX are observations of them,
and a few Gauss-Newton steps find the likeliest slopes. The SPX side stays as it is. Where the two
markets disagree about the level of the VIX, shapes are not bent to hide it: each date has a level
of its own while they are looked for, and none in the answer. The joint fit moves both sides.

Shapes: V dates, n knots, m options and f futures.
"""

from __future__ import annotations

import logging
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from arbiter import inputs
from arbiter.conventions import Array
from arbiter.fitting.fitted_surface import VixResult
from arbiter.fitting.interior_point import Status
from arbiter.fitting.vix_objective import (
    FutureRatios,
    PricedVixSlices,
    differentiate_log_future,
    differentiate_vix_prices,
    log_future,
)
from arbiter.fitting.vix_quotes import VixMarket
from arbiter.pricing.price_derivatives import KnotQuadrature, OtmPricer
from arbiter.pricing.vix_slices import VixSlices, require_variance
from arbiter.surface import Surface
from arbiter.vix.prior import KNOTS, PRIOR_SLOPE_RANGE, VixPrior, vix_prior

logger = logging.getLogger(__name__)

MAX_STEPS = 40  # of each search
_PRIOR_WIDENING = 2.0  # times the prior's deviations: real markets are no model's
_LOG_MATURITY_SPAN = 1.0  # of log-maturity along which dates are off together
LOG_OFFSET_DEVIATION = 0.05  # deviation of the logarithm of a date's own level
_NOISE_HALF_SPREADS = 0.6  # deviation of a mid, in half-spreads
_ROBUST_DEVIATIONS = (100.0, 4.0)  # deviations from which on a quote is doubted, first and then
_MIN_HALF_SPREAD = 1e-4  # half-spread over the future that no quote is believed to beat
_MAX_HALVINGS, _RELATIVE_TOLERANCE = 8, 1e-5


class VixAnswer(NamedTuple):
    """Slices, how they sit in the quotes, and sentences where they are poor."""

    slices: VixSlices
    result: VixResult
    warnings: tuple[str, ...]


def fit_vix_slices(surface: Surface, market: VixMarket) -> VixAnswer:
    """The likeliest VIX slices at the dates of a market; a warning is logged where they are poor.

    Raises:
        ValueError: If the surface has no variance in the 30 days after a date.
    """
    prior = vix_prior(surface, market.quotes.maturities)
    head = _PosteriorObjective(prior, market)
    e = np.zeros(head.size)
    for far in _ROBUST_DEVIATIONS:  # at first no quote counts as an outlier
        e, status = _minimise_objective(head, e, far)
    m, unit = len(market.quotes), head.unit
    missed = int(
        np.count_nonzero(np.abs(head.evaluate_at(e, far).residuals[:m]) * _NOISE_HALF_SPREADS > 1.0)
    )
    warnings = _describe_poor_slices(status, missed, m)
    for warning in warnings:
        logger.warning(warning)
    here = head.evaluate_at(head.drop_offsets(e), far)
    half = np.where(market.quotes.half_spread > 0.0, market.quotes.half_spread, unit)
    options = here.residuals[:m] * _NOISE_HALF_SPREADS * unit / half
    futures = here.residuals[m:] * _NOISE_HALF_SPREADS * market.half
    slices = VixSlices.of(KNOTS, market.quotes.maturities, here.laws.slopes)
    sits = VixResult(inputs.freeze_array(options), inputs.freeze_array(futures), None, status)
    return VixAnswer(slices, sits, (*prior.warnings, *warnings))


def _describe_poor_slices(status: Status, missed: int, count: int) -> list[str]:
    """Sentences if the search did not end well, or most options are missed."""
    found = []
    if status is not Status.CONVERGED:
        found.append(f"VIX slices: {status.explain()}")
    if missed > 0.5 * count:
        found.append(
            f"{missed} of {count} options on the VIX are missed by more than their half-spread, "
            "whatever the level: take refine(quotes, vix_quotes=...), or look at the quotes"
        )
    return found


def _minimise_objective(head: _PosteriorObjective, e: Array, far: float) -> tuple[Array, Status]:
    here = head.evaluate_at(e, far)
    for _ in range(MAX_STEPS):
        step = head.step(e, here)
        for halving in range(_MAX_HALVINGS):
            moved = e + 0.5**halving * step
            there = head.evaluate_at(moved, far)
            if there.value <= here.value:
                break
        else:
            return e, Status.CONVERGED  # nothing within rounding is better
        done = here.value - there.value < _RELATIVE_TOLERANCE * (1.0 + here.value)
        e, here = moved, there
        if done:
            return e, Status.CONVERGED
    return e, Status.MAX_ITERATIONS


class _ObjectivePoint(NamedTuple):
    """The objective at one place.

    Attributes:
        laws: Of the VIX, priced.
        free: ``(V, n)`` whether slopes are inside their range.
        residuals: ``(m + f,)`` in deviations.
        far: Deviations from which on a quote counts for less.
        value: Of the objective.
    """

    laws: PricedVixSlices
    free: NDArray[np.bool_]
    residuals: Array
    far: float
    value: float


class _PosteriorObjective:
    """The objective over independent standard normal variables: ``V·n`` of shapes, V of levels."""

    def __init__(self, prior: VixPrior, market: VixMarket) -> None:
        quotes, T = market.quotes, market.quotes.maturities
        self.prior, self.market = prior, market
        self.shapes, self.size = prior.mean.size, prior.mean.size + T.size
        apart = np.abs(np.subtract.outer(np.log(T), np.log(T)))
        dates = np.linalg.cholesky(np.exp(-apart / _LOG_MATURITY_SPAN) + 1e-9 * np.eye(T.size))
        self.root = _PRIOR_WIDENING * np.einsum("vnm,vw->vnwm", prior.root, dates).reshape(
            self.shapes, -1
        )
        variance = np.asarray(prior.surface.forward_variance(T))
        require_variance(T, variance)
        self.log_variance = np.log(variance)
        self.pricer = OtmPricer(KnotQuadrature.from_knots(np.array(KNOTS)), quotes.expiry, quotes.k)
        self.unit = np.maximum(quotes.half_spread, _MIN_HALF_SPREAD)
        self.scale = _NOISE_HALF_SPREADS * np.concatenate([self.unit, market.half])
        self.date = np.concatenate([quotes.expiry, market.at])

    def drop_offsets(self, e: Array) -> Array:
        """The same shapes at the level of the surface."""
        return np.concatenate([e[: self.shapes], np.zeros(self.size - self.shapes)])

    def evaluate_at(self, e: Array, far: float) -> _ObjectivePoint:
        """The objective at ``e``, with a loss that grows slowly from ``far`` deviations on."""
        quotes, market, pricer = self.market.quotes, self.market, self.pricer
        logs = self.prior.mean + (self.root @ e[: self.shapes]).reshape(self.prior.mean.shape)
        slopes = np.clip(np.exp(logs), *PRIOR_SLOPE_RANGE)
        slices, squares = pricer.integrate_slices(slopes), pricer.integrate_slices(2.0 * slopes)
        ratio = log_future(self.log_variance, slices, squares) - np.log(quotes.forwards)
        ratio = ratio + LOG_OFFSET_DEVIATION * e[self.shapes :]
        ratios = FutureRatios(np.exp(ratio), differentiate_log_future(pricer.line, slices, squares))
        prices = pricer.price_quotes(slices, moved=quotes.k - ratio[quotes.expiry])
        options = ratios.rho[quotes.expiry] * prices.price - quotes.mid
        futures = (quotes.forwards * ratios.rho)[market.at] - market.price
        residuals = np.concatenate([options, futures]) / self.scale
        loss = 0.5 * far**2 * np.log1p((residuals / far) ** 2)
        value = float(loss.sum() + 0.5 * e @ e)
        laws = PricedVixSlices(slopes, slices, prices, ratios)
        return _ObjectivePoint(laws, slopes == np.exp(logs), residuals, far, value)

    def step(self, e: Array, here: _ObjectivePoint) -> Array:
        """A Gauss-Newton step from e, whose point is given."""
        rows, along = differentiate_vix_prices(
            self.pricer, self.market, here.laws, 1.0 / self.scale
        )
        rows *= here.free[self.date]
        wide = np.zeros((len(rows), *here.free.shape))
        wide[np.arange(len(rows)), self.date] = rows
        level = (
            LOG_OFFSET_DEVIATION
            * along[:, None]
            * (self.date[:, None] == np.arange(len(here.free)))
        )
        J = np.concatenate([wide.reshape(len(rows), -1) @ self.root, level], 1)
        weight = 1.0 / (1.0 + (here.residuals / here.far) ** 2)
        P = J.T @ (weight[:, None] * J)
        P[np.diag_indices_from(P)] += 1.0
        gradient = J.T @ (weight * here.residuals) + e
        return -np.linalg.solve(P, gradient)
