"""Kriging: the best guess of a whole surface, from what surfaces of the universe are like.

Gaussian-process regression in a fixed basis. In the chain's own units a surface is a function
``u(ζ, w)`` of ``ζ = asinh z`` and ``w = log(σ√T)``, here a product spline with coefficients
``F a``: the factor F holds the covariance of such functions over the training universe, so that a
has unit variances. Every slice has a level of its own beside it
(:mod:`arbiter.operators.prior.slice_offsets`). Quotes are intervals, and what they say of all that
is :mod:`arbiter.operators.prior.bid_ask_likelihood`.

The smile that it guesses is the network's reference, and the slopes of a transport that prices it
(:mod:`arbiter.operators.prior.smile_to_slopes`,
:mod:`arbiter.operators.prior.star_order_projection`) are where the network starts. No weight has a
part in it.

Shapes: B chains of L slices, H heads, N quotes of all chains, d coefficients, NZ and NW splines.
"""

from __future__ import annotations

from functools import lru_cache
from importlib.resources import files
from typing import NamedTuple

import numpy as np

from arbiter.conventions import Array
from arbiter.operators.matrix_products import multiply
from arbiter.operators.prior.bid_ask_likelihood import Near, Quoted, posterior, read
from arbiter.operators.prior.reference_volatility import MAX_LOG_VOLATILITY_RATIO, Scaled
from arbiter.operators.prior.slice_offsets import SplineRows
from arbiter.operators.prior.star_order_projection import transport
from arbiter.operators.prior.transport_prices import PricedSmile, Smile, price_smile

ZETA, CLOCK = (-3.8, 2.6), (-6.8, 0.5)  # ζ and w between which the basis lives
STRIKES, CLOCKS = 16, 17  # splines along each
MIN_VARIANCE = 1e-12


class Kriged(NamedTuple):
    """The reference of B chains, which a Lipschitz constant holds fixed as it does σ.

    Attributes:
        smile: ``(B, L, H)`` the guess of ``log(iv/σ)`` at each head.
        doubt: ``(B, L, H)`` logarithm of its standard error.
        start: ``(B, L, n)`` logarithm of slope over ``σ√T`` of a transport that prices it.
        miss: ``(B, L, H)`` by how much the log-volatility of that transport is short of the smile.
    """

    smile: Array
    doubt: Array
    start: Array
    miss: Array


@lru_cache(maxsize=1)
def factor() -> Array:
    """``(NZ, NW, d)`` F of the training universe, that the package ships."""
    with (files("arbiter.data") / "kernel.npy").open("rb") as file:
        try:
            array = np.load(file, allow_pickle=False)
        except ValueError as error:
            raise ValueError(
                f"kernel.npy of this installation is damaged ({error}): install the package again"
            ) from error
    if array.ndim != 3 or array.shape[:2] != (STRIKES, CLOCKS) or not np.isfinite(array).all():
        raise ValueError(
            f"kernel.npy of this installation is {array.shape}, not a factor: install the package "
            "again"
        )
    found: Array = array.astype(np.float64)
    found.setflags(write=False)
    return found


@lru_cache(maxsize=1)
def _factor_along_clock() -> Array:
    """``(NW, d·NZ)`` the same, in the order of use."""
    return np.ascontiguousarray(np.moveaxis(factor(), 0, -1)).reshape(CLOCKS, -1)


def along_clock(total: Array) -> Array:
    """``(M, d, NZ)`` what coefficients make of the splines along strikes, at ``log(σ√T)``."""
    clock, near = splines(total, CLOCK, CLOCKS), np.zeros((total.size, CLOCKS))
    at = clock.left[:, None] + np.arange(clock.basis.shape[1])
    np.put_along_axis(near, at, clock.basis, 1)
    return multiply(near, _factor_along_clock()).reshape(total.size, -1, STRIKES)


def splines(x: Array, ends: tuple[float, float], count: int) -> Near:
    """The first of the four cubic B-splines that are not zero at x ``(N,)``, and all ``(N, 4)``.

    On even knots; x is cut at the ends.
    """
    low, high = ends
    t = (np.clip(x, low, high) - low) * ((count - 3) / (high - low))
    left = np.fmin(np.fmax(t, 0.0), count - 4.0).astype(np.int64)  # a NaN is left to the values
    f = t - left
    g, ff = 1.0 - f, f * f
    basis = np.empty((x.size, 4))
    basis[:, 0] = g * g * g / 6.0
    basis[:, 3] = ff * f / 6.0
    basis[:, 1] = 2.0 / 3.0 - ff * (1.0 - 0.5 * f)
    basis[:, 2] = 2.0 / 3.0 - g * g * (1.0 - 0.5 * g)
    return Near(left, basis)


def kriged(chain: Scaled, place: Array) -> tuple[Kriged, PricedSmile]:
    """The reference of chains at heads ``(H,)`` of ζ, and how its smile is priced."""
    smile, doubt = guess_smiles(chain, place)
    priced = price_smile(Smile(smile, doubt, place, chain.total, chain.quotes.listed))
    return Kriged(smile, doubt, *transport(priced)), priced


def guess_smiles(chain: Scaled, place: Array) -> tuple[Array, Array]:
    """``(B, L, H)`` smiles at heads ``(H,)`` of ζ, and logarithms of their standard errors."""
    (B, L), ends = chain.total.shape, chain.quotes.ends
    heads, at = splines(place, ZETA, STRIKES), splines(chain.zeta, ZETA, STRIKES)
    every = Near(
        (heads.left + STRIKES * np.arange(L)[:, None]).ravel(), np.tile(heads.basis, (L, 1))
    )
    slices, half = along_clock(chain.total.ravel()), np.exp(chain.noise)
    smile, variance = np.empty((B, L, place.size)), np.empty((B, L, place.size))
    for i in range(B):
        by = np.swapaxes(slices[i * L : (i + 1) * L], 0, 1).reshape(-1, L * STRIKES)  # (d, R)
        fan = SplineRows(by, np.arange(L + 1) * STRIKES)
        begin = ends[i * L : (i + 1) * L + 1]
        some = slice(begin[0], begin[L])
        near = Near(at.left[some], at.basis[some])
        belief = posterior(fan, Quoted(begin - begin[0], near, chain.u[some], half[some]))
        read(belief, every, smile[i].reshape(-1), variance[i].reshape(-1))
    np.clip(smile, -MAX_LOG_VOLATILITY_RATIO, MAX_LOG_VOLATILITY_RATIO, out=smile)
    return smile, 0.5 * np.log(np.maximum(variance, MIN_VARIANCE))
