"""The mean of the log-slopes before any quote: flat volatility, or those of a prior surface."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from arbiter.conventions import Array
from arbiter.pricing.maturity import slopes_at, weights_at
from arbiter.surface import Surface

_MIN_SHAPE_IN_LOG_SLOPE = 1e-9  # log-slopes this near to flat are flat, but for rounding


class PriorMean(NamedTuple):
    """The mean ``flat + trust · shape``; the quotes choose the trust.

    A factor common to all volatilities of a prior is in ``flat``. So a prior whose volatilities
    are all too high by one factor keeps its shape.
    """

    flat: Array  # (J, L, n) log-slopes of flat volatilities, one a component
    shape: Array  # (J, L, n) what a prior adds, zero without one
    shares: Array  # (L,) of the second component


def make_flat_prior_mean(tau: Array, knots: int, components: int) -> PriorMean:
    """Flat volatility, the second component twice as wide as the first."""
    apart = np.log(2.0) * np.arange(components)
    flat = apart[:, None, None] + np.broadcast_to(tau[:, None], (tau.size, knots))
    return PriorMean(flat, np.zeros_like(flat), np.zeros(tau.size))


def read_prior_mean(
    surface: Surface, knots: Array, maturities: Array, tau: Array, mass: Array
) -> PriorMean:
    """The log-slopes of a prior at the knots and maturities of a fit, split into flat and shape."""
    logs, shares = log_slopes(surface, knots, maturities)
    tau = tau[:, None]
    mean_rate = (logs - tau).mean(axis=1) @ mass / mass.sum()  # (J,)
    flat = mean_rate[:, None, None] + tau + np.zeros_like(logs)
    shape = logs - flat
    return PriorMean(flat, shape * (np.abs(shape).max() > _MIN_SHAPE_IN_LOG_SLOPE), shares)


def log_slopes(surface: Surface, knots: Array, maturities: Array) -> tuple[Array, Array]:
    """Log-slopes ``(J, L, n)`` of a surface and the shares ``(L,)`` beyond its first component."""
    listed, at = surface.clock_years(surface.maturities), surface.clock_years(maturities)
    found = slopes_at(listed, surface.slopes, at)  # (J, L, n)
    if not np.array_equal(surface.knots, knots):
        found = np.stack([[np.interp(knots, surface.knots, row) for row in part] for part in found])
    return np.log(found), 1.0 - weights_at(listed, surface.weights, at)[0]
