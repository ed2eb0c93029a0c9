"""Heston's market that quotes speak for: least squares in half-spreads.

One set of Fourier nodes for all parameters, so that a step costs a few products of matrices.

Shapes: m quotes on L maturities, Q nodes, P sets of parameters.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import least_squares

from arbiter.models.fourier_nodes import Waves
from arbiter.models.heston import Heston
from arbiter.pricing import black
from arbiter.quotes import Quotes

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]

# v0, κ, θ, σ, and ρ: from where they are looked for, and to where
_LOWEST, _HIGHEST = (1e-3, 0.05, 1e-3, 0.05, -0.99), (1.0, 15.0, 1.0, 3.0, 0.9)
_REVERSION, _WILDNESS, _CORRELATION = 2.0, 0.7, -0.7  # to start from
_NODES, _FARTHEST = 96, 40.0  # of an index's markets prices within REACH are right to 5e-6
REACH = 4.0  # deviations of quotes
_STEP = 1e-5  # of differences, in coordinates
_EVALUATIONS = 40
_ODD = 1e3  # half-spreads that a price which is no number is off by


@dataclass(frozen=True, eq=False)
class Calibration:
    """A market fitted to quotes.

    Attributes:
        heston: The market.
        at: ``(5,)`` its coordinates: logarithms, and ``artanh ρ``.
        residuals: ``(m,)`` its prices less the mids, in half-spreads.
        derivatives: ``(m, 5)`` of these to the coordinates.
    """

    heston: Heston
    at: Array
    residuals: Array
    derivatives: Array

    def without(self, out: Mask) -> tuple[Heston, Array]:
        """The market of all quotes but some, and what it misses these by; one Newton step.

        A faint pull to where it is keeps what the others do not determine.
        """
        rows = np.concatenate([self.derivatives[~out], np.eye(5)])
        step = np.linalg.lstsq(rows, np.append(-self.residuals[~out], np.zeros(5)), rcond=None)[0]
        at = np.clip(self.at + step, coordinates(_LOWEST), coordinates(_HIGHEST))
        return market(at), self.residuals[out] + self.derivatives[out] @ (at - self.at)


def calibrate(quotes: Quotes, half_spread: Array) -> Calibration | None:
    """Heston's market nearest to the mids, in half-spreads ``(m,)``; None if there is none.

    Quotes are to lie within :data:`REACH` of the money.
    """
    level = levels(quotes)
    if not (np.isfinite(level).all() and level.min() > 0.0):
        return None
    low, high = coordinates(_LOWEST), coordinates(_HIGHEST)
    variance = level**2 / quotes.maturities
    start = (variance[0], _REVERSION, variance[-1], _WILDNESS, _CORRELATION)
    first = np.clip(coordinates(start), low + 1e-6, high - 1e-6)
    with np.errstate(all="ignore"):  # what is no number is far off, and left
        residuals = _residuals(quotes, half_spread, level)

        def derivatives(at: Array) -> Array:
            moved = residuals(np.concatenate([at + _STEP * np.eye(5), at[None]]))
            return np.asarray((moved[:5] - moved[5]).T / _STEP)

        found = least_squares(
            lambda at: residuals(at[None])[0],
            first,
            derivatives,
            (low, high),
            max_nfev=_EVALUATIONS,
        )
        if found.status < 0 or not np.isfinite(found.cost):
            return None
        return Calibration(market(found.x), found.x, found.fun, found.jac)


def _residuals(quotes: Quotes, half_spread: Array, level: Array) -> Callable[[Array], Array]:
    """``(P, m)`` at coordinates ``(P, 5)``."""
    waves = Waves(quotes.maturities, level, _NODES, _FARTHEST)
    turned = np.exp(-1j * quotes.k[:, None] * waves.u[quotes.expiry])  # (m, Q)
    scale = np.exp(0.5 * quotes.k) / half_spread
    off = (np.asarray(black.otm(quotes.k, level[quotes.expiry])) - quotes.mid) / half_spread
    ends = np.searchsorted(quotes.expiry, np.arange(level.size + 1))

    def residuals(at: Array) -> Array:
        weight = waves.differences(parameters(at))
        covered = np.empty((len(at), len(quotes)))
        for i, part in enumerate(map(slice, ends[:-1], ends[1:])):
            covered[:, part] = (weight[:, i] @ turned[part].T).real
        return np.asarray(np.nan_to_num(off - scale * covered, True, _ODD, _ODD, -_ODD))

    return residuals


def market(at: Array) -> Heston:
    """The market at coordinates ``(5,)``."""
    return Heston(*parameters(at).tolist())


def parameters(at: Array) -> Array:
    """``(..., 5)`` v0, κ, θ, σ and ρ at coordinates ``(..., 5)``."""
    return np.concatenate([np.exp(at[..., :4]), np.tanh(at[..., 4:])], axis=-1)


def coordinates(given: tuple[float, ...]) -> Array:
    """``(5,)`` of v0, κ, θ, σ and ρ."""
    return np.array([*np.log(given[:4]), np.arctanh(given[4])])


def levels(quotes: Quotes) -> Array:
    """``(L,)`` σ√T of the quote nearest to the money."""
    order = np.lexsort((np.abs(quotes.k), quotes.expiry))
    quoted, first = np.unique(quotes.expiry, return_index=True)
    T, iv = quotes.maturities, quotes.iv_mid[order[first]]
    return np.asarray(np.interp(T, T[quoted], iv) * np.sqrt(T))
