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

from arbiter.compiled import compiled
from arbiter.conventions import Array, Indices
from arbiter.operators.prior.bid_ask_likelihood import Near, Quoted, posterior, read
from arbiter.operators.prior.reference_volatility import MAX_LOG_VOLATILITY_RATIO, Scaled
from arbiter.operators.prior.slice_offsets import NEAR, SplineRows
from arbiter.operators.prior.small_matrices import combine
from arbiter.operators.prior.star_order_projection import transport
from arbiter.operators.prior.transport_prices import Smile, price_smile

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
    """``(NW, NZ·d)`` the same in the order of use, with coefficients of nothing to a multiple."""
    F = np.moveaxis(factor(), 1, 0)
    return np.pad(F, ((0, 0), (0, 0), (0, -F.shape[2] % 8))).reshape(CLOCKS, -1)


def along_clock(total: Array) -> Array:
    """``(M, NZ, d)`` what coefficients make of the splines along strikes, at ``log(σ√T)``."""
    clock, F = splines(total, CLOCK, CLOCKS), _factor_along_clock()
    found = np.empty((total.size, F.shape[1]))
    combine(F, clock.left, clock.basis, found)
    return found.reshape(total.size, STRIKES, -1)


def splines(x: Array, ends: tuple[float, float], count: int) -> Near:
    """The first of the four cubic B-splines that are not zero at x ``(N,)``, and all ``(N, 4)``.

    On even knots; x is cut at the ends.
    """
    near = Near(np.empty(x.size, np.int64), np.empty((x.size, NEAR)))
    _fill_splines(x, ends, count, near)
    return near


@compiled
def _fill_splines(x: Array, ends: tuple[float, float], count: int, near: Near) -> None:
    low, high = ends
    for i in range(x.size):
        inside = low if x[i] < low else high if x[i] > high else x[i]  # a NaN stays one
        t = (inside - low) * ((count - 3) / (high - low))
        near.left[i] = int(min(max(t, 0.0), count - 4.0)) if t >= 0.0 else 0
        f = t - near.left[i]
        g, basis = 1.0 - f, near.basis[i]
        basis[0], basis[3] = g * g * g / 6.0, f * f * f / 6.0
        basis[1] = 2.0 / 3.0 - f * f * (1.0 - 0.5 * f)
        basis[2] = 2.0 / 3.0 - g * g * (1.0 - 0.5 * g)


def kriged(chain: Scaled, place: Array) -> Kriged:
    """The reference of chains at heads ``(H,)`` of ζ."""
    smile, doubt = guess_smiles(chain, place)
    priced = price_smile(Smile(smile, doubt, place, chain.total, chain.quotes.listed))
    return Kriged(smile, doubt, *transport(priced))


def guess_smiles(chain: Scaled, place: Array) -> tuple[Array, Array]:
    """``(B, L, H)`` smiles at heads ``(H,)`` of ζ, and logarithms of their standard errors."""
    (B, L), ends = chain.total.shape, chain.quotes.ends
    heads, at = splines(place, ZETA, STRIKES), splines(chain.zeta, ZETA, STRIKES)
    first = STRIKES * np.arange(L + 1)
    every = Near((heads.left + first[:-1, None]).ravel(), np.tile(heads.basis, (L, 1)))
    source, begin, left = _select_splines(ends, at.left)
    by = along_clock(chain.total.ravel()).reshape(B, L * STRIKES, -1)
    half, found = np.exp(chain.noise), np.empty((2, B, L * place.size))
    for i in range(B):
        own, some = begin[i * L : (i + 1) * L + 1], slice(ends[i * L], ends[(i + 1) * L])
        selected = by[i, source[own[0] : own[L]] - i * first[L]]
        near = Near(left[some] - own[0], at.basis[some])
        quotes = Quoted(near, chain.u[some], half[some])
        fan, asked = SplineRows(by[i], first), SplineRows(selected, own - own[0])
        found[:, i] = read(posterior(fan, asked, quotes), every)
    smile, variance = found.reshape(2, B, L, -1)
    np.clip(smile, -MAX_LOG_VOLATILITY_RATIO, MAX_LOG_VOLATILITY_RATIO, out=smile)
    return smile, 0.5 * np.log(np.maximum(variance, MIN_VARIANCE))


def _select_splines(ends: Indices, left: Indices) -> tuple[Indices, Indices, Indices]:
    """Of the splines of each slice those from the first to the last at a quote.

    Their numbers among all; where those of each slice begin, and the last end; and ``left``, the
    first of each quote, in numbers among those that are selected.
    """
    count = np.diff(ends)
    some, low, size = np.flatnonzero(count), np.zeros_like(count), np.zeros_like(count)
    low[some] = np.minimum.reduceat(left, ends[some])
    size[some] = np.maximum.reduceat(left, ends[some]) + NEAR - low[some]
    begin = np.concatenate([np.zeros(1, np.int64), np.cumsum(size)])
    shift = begin[:-1] - low
    source = np.arange(begin[-1]) + np.repeat(STRIKES * np.arange(count.size) - shift, size)
    return source, begin, left + np.repeat(shift, count)
