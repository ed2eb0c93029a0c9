"""Calibration of the Heston model to quotes: least squares in bid-ask half-spreads.

All parameters share one set of Fourier nodes, so that a step costs a few matrix products.

Shapes: m quotes on L maturities, Q nodes, P sets of parameters.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from arbiter.conventions import Array
from arbiter.models.fourier_nodes import FourierNodes
from arbiter.models.heston import Heston
from arbiter.models.matrix_product import multiply_real_part
from arbiter.pricing import black
from arbiter.quotes import Quotes

Mask = NDArray[np.bool_]

# v0, κ, θ, σ, and ρ: from where they are looked for, and to where
_LOWER_BOUNDS, _UPPER_BOUNDS = (1e-3, 0.05, 1e-3, 0.05, -0.99), (1.0, 15.0, 1.0, 3.0, 0.9)
_INITIAL_REVERSION, _INITIAL_VOL_OF_VARIANCE, _INITIAL_CORRELATION = 2.0, 0.7, -0.7  # to start from
_FOURIER_NODE_COUNT, _MAX_SCALED_FREQUENCY = (
    96,
    40.0,
)  # of an index's markets prices within MAX_QUOTE_DEVIATIONS are right to 5e-6
MAX_QUOTE_DEVIATIONS = 4.0  # deviations of quotes
_DIFFERENCE_STEP = 1e-5  # of differences, in coordinates
_MAX_EVALUATIONS = 40
_INVALID_PRICE_RESIDUAL = 1e3  # half-spreads that a price which is no number is off by


@dataclass(frozen=True, eq=False)
class Calibration:
    """A Heston model fitted to quotes.

    Attributes:
        heston: The fitted parameters.
        residuals: ``(m,)`` model price minus mid, in half-spreads.
    """

    heston: Heston
    residuals: Array


def calibrate(quotes: Quotes, half_spread: Array) -> Calibration | None:
    """The Heston model nearest to the mids in half-spreads ``(m,)``; None if the fit fails.

    Quotes are to lie within :data:`MAX_QUOTE_DEVIATIONS` deviations of the money.
    """
    total_volatility = atm_total_volatility(quotes)
    if not (np.isfinite(total_volatility).all() and total_volatility.min() > 0.0):
        return None
    low, high = (
        coordinates_from_parameters(_LOWER_BOUNDS),
        coordinates_from_parameters(_UPPER_BOUNDS),
    )
    variance = total_volatility**2 / quotes.maturities
    start = (
        variance[0],
        _INITIAL_REVERSION,
        variance[-1],
        _INITIAL_VOL_OF_VARIANCE,
        _INITIAL_CORRELATION,
    )
    first = np.clip(coordinates_from_parameters(start), low + 1e-6, high - 1e-6)
    with np.errstate(all="ignore"):  # what is no number is far off, and left
        from scipy.optimize import least_squares  # a quarter of a second to import

        residuals = _residuals(quotes, half_spread, total_volatility)

        def derivatives(at: Array) -> Array:
            moved = residuals(np.concatenate([at + _DIFFERENCE_STEP * np.eye(5), at[None]]))
            return np.asarray((moved[:5] - moved[5]).T / _DIFFERENCE_STEP)

        found = least_squares(
            lambda at: residuals(at[None])[0],
            first,
            derivatives,
            (low, high),
            max_nfev=_MAX_EVALUATIONS,
        )
        if found.status < 0 or not np.isfinite(found.cost):
            return None
        return Calibration(market_from_coordinates(found.x), found.fun)


def _residuals(
    quotes: Quotes, half_spread: Array, total_volatility: Array
) -> Callable[[Array], Array]:
    """A function from coordinates ``(P, 5)`` to residuals ``(P, m)`` in half-spreads."""
    waves = FourierNodes(
        quotes.maturities, total_volatility, _FOURIER_NODE_COUNT, _MAX_SCALED_FREQUENCY
    )
    turned = np.exp(-1j * quotes.k[:, None] * waves.u[quotes.expiry])  # (m, Q)
    scale = np.exp(0.5 * quotes.k) / half_spread
    off = (
        np.asarray(black.otm(quotes.k, total_volatility[quotes.expiry])) - quotes.mid
    ) / half_spread
    ends = np.searchsorted(quotes.expiry, np.arange(total_volatility.size + 1))

    def residuals(at: Array) -> Array:
        weight = waves.difference_weights(parameters_from_coordinates(at))
        covered = np.empty((len(at), len(quotes)))
        for i, part in enumerate(map(slice, ends[:-1], ends[1:])):
            covered[:, part] = multiply_real_part(weight[:, i], turned[part].T)
        return np.asarray(
            np.nan_to_num(
                off - scale * covered,
                True,
                _INVALID_PRICE_RESIDUAL,
                _INVALID_PRICE_RESIDUAL,
                -_INVALID_PRICE_RESIDUAL,
            )
        )

    return residuals


def market_from_coordinates(at: Array) -> Heston:
    """The Heston parameters at coordinates ``(5,)``."""
    return Heston(*parameters_from_coordinates(at).tolist())


def parameters_from_coordinates(at: Array) -> Array:
    """``(..., 5)`` v0, κ, θ, σ and ρ at coordinates ``(..., 5)``."""
    return np.concatenate([np.exp(at[..., :4]), np.tanh(at[..., 4:])], axis=-1)


def coordinates_from_parameters(given: tuple[float, ...]) -> Array:
    """``(5,)`` coordinates of the parameters v0, κ, θ, σ and ρ."""
    return np.array([*np.log(given[:4]), np.arctanh(given[4])])


def atm_total_volatility(quotes: Quotes) -> Array:
    """``(L,)`` σ√T of the quote nearest to the money."""
    order = np.lexsort((np.abs(quotes.k), quotes.expiry))
    quoted, first = np.unique(quotes.expiry, return_index=True)
    T, iv = quotes.maturities, quotes.iv_mid[order[first]]
    return np.asarray(np.interp(T, T[quoted], iv) * np.sqrt(T))
