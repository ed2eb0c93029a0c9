"""A law per slice as the operator proposes it: ``X = e^{a + s(Z)}``, not yet of mean one.

``s`` has the slopes ``σ√T e^g`` at the knots and is zero at ``x = 0``; ``a`` is the shift. The law
is a positive density w over moneyness, and its prices are ``∫ φ w dκ`` for any payoff φ. What it
lacks to be a surface are its defects: a mean that is not one, and slopes that fall with maturity.

Shapes: B chains, L maturities, n knots, N quotes of all chains.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from arbiter.conventions import Array, Indices
from arbiter.operators.prior.star_order_projection import order_along_maturity
from arbiter.operators.quote_rows import Flags
from arbiter.operators.slope_head import (
    KNOTS,
    MAX_LOG_RATIO,
    MAX_SLOPE,
    MIN_LOG_RATIO,
    MIN_SLOPE,
)
from arbiter.pricing.price_derivatives import (
    KnotQuadrature,
    OtmPricer,
    SliceIntegrals,
    integrate_segments,
)

UNQUOTED_WEIGHT = 1e-6  # of a maturity without quotes in the decoder: it follows the others


class Law(NamedTuple):
    """Laws of B chains.

    Attributes:
        log_ratio: ``(B, L, n)`` g, the logarithm of slope over ``σ√T``.
        shift: ``(B, L)`` a.
    """

    log_ratio: Array
    shift: Array

    def slopes(self, total: Array) -> Array:
        """``(B, L, n)`` slopes, from ``log(σ√T)`` ``(B, L)``."""
        ratio = np.clip(self.log_ratio, MIN_LOG_RATIO, MAX_LOG_RATIO)
        return np.clip(np.exp(ratio + total[..., None]), MIN_SLOPE, MAX_SLOPE)


class LawPrices(NamedTuple):
    """Prices of a law at quotes.

    Attributes:
        price: ``(N,)`` out-of-the-money prices.
        x: ``(N,)`` Gaussian percentile of each strike.
        log_mean: ``(B, L)`` ``log E X``.
    """

    price: Array
    x: Array
    log_mean: Array


def line() -> KnotQuadrature:
    """The line of Z, cut at the operator's knots."""
    return KnotQuadrature.from_knots(np.array(KNOTS))


def integrate_laws(log_ratio: Array, total: Array) -> SliceIntegrals:
    """Integrals of the slices of laws ``(B, L, n)``, whatever their shifts are."""
    slopes = Law(log_ratio, total).slopes(total)
    return integrate_segments(line(), slopes.reshape(total.size, -1))


def prior_law(start: Array, slices: SliceIntegrals) -> Law:
    """The law of mean one with log-ratios ``start`` ``(B, L, n)``, where a look begins."""
    return Law(start, -slices.log_mean.reshape(start.shape[:2]))


def price_law(law: Law, slices: SliceIntegrals, row: Indices, k: Array) -> LawPrices:
    """Prices of laws at quotes, by the integrals of the decoder.

    ``E(X − κ)+ = E X · E(X/E X − κ/E X)+``: the normalised law at strikes moved by its mean.

    Args:
        law: The laws.
        slices: Their integrals.
        row: ``(N,)`` slice of each quote, nondecreasing.
        k: ``(N,)`` log-moneyness.
    """
    pricer = OtmPricer(line(), row, k)
    log_mean = law.shift + slices.log_mean.reshape(law.shift.shape)
    mean = log_mean.ravel()[row]
    found = pricer.price_quotes(slices, k - mean)
    return LawPrices(found.price * np.exp(mean), found.x, log_mean)


def martingale_defect(log_mean: Array, total: Array) -> Array:
    """``(B, L)`` ``(E X − 1)/(σ√T)``."""
    return np.expm1(log_mean) * np.exp(-total)


def decode(law: Law, total: Array, seen: Flags) -> Array:
    """``(B, L, n)`` slopes of the surface: the nearest that do not fall with maturity.

    Isotonic regression of log-slopes at each knot, of which no distance grows in sup norm. The
    decoder of prices has mean one by itself, and leaves the shift out.

    Args:
        law: The proposal.
        total: ``(B, L)`` ``log(σ√T)``.
        seen: ``(B, L)`` maturities with quotes.
    """
    log_slopes = law.log_ratio + total[..., None]
    weight = np.broadcast_to((seen + UNQUOTED_WEIGHT)[..., None], log_slopes.shape)
    ordered = np.empty_like(log_slopes)
    none = np.zeros(total.shape)
    order_along_maturity(log_slopes, none, np.ascontiguousarray(weight), ordered)
    # the exponential rises, but not from one rounding to the next
    return np.maximum.accumulate(np.clip(np.exp(ordered), MIN_SLOPE, MAX_SLOPE), axis=1)
