"""A search for jumps: dense even points, then zooms into whatever does not become smooth.

An even sixth difference is of order h⁶ where a price is smooth, of order h³ where its density
has a kink, and stays what it is across a jump. So a zoom by four calms everything but a jump,
and a jump, once its neighbours are close enough, is an arbitrage that inequalities see. The
search only proposes points; it judges nothing.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.random import Generator

from arbiter.grid import EPS, Array, Places

Price = Callable[[Array, Array], Array]  # (k, T), broadcast -> prices out of the money

ROWS = 6  # maturities scanned across strikes
_ORDER = 6
_EVEN = 4096  # even strikes on each side of the forward
_EVEN_T = 384  # even maturities, in log T
_CELLS = 32  # places zoomed into, per row
_FINER = 4  # by each zoom
_ZOOMS = 7
_NOISE = 2.0**_ORDER * 64.0 * EPS  # a sixth difference of rounded numbers, with room


def across_strikes(
    price: Price, T: Array, left: Array, right: Array, rng: Generator
) -> tuple[Array, Array]:
    """Points around suspected jumps in strike.

    Args:
        price: Public prices out of the money.
        T: Maturities to scan, (r,).
        left: How far below the forward to look, as a positive log-strike, (r,).
        right: How far above, (r,).
        rng: Moves the even points by a random share of their distance.

    Returns:
        Maturities and log-strikes of points worth an inequality, both (n,); empty where the
        surface is smooth.
    """
    kept_T, kept_k = [], []
    for sign, reach in ((-1.0, left), (1.0, right)):
        step = reach / _EVEN  # (r,)
        start = step * rng.uniform(0.1, 0.9, T.size)
        k = sign * (start[:, None] + step[:, None] * np.arange(_EVEN))  # (r, n)
        row, first = _suspects(price(k, T[:, None]))
        low, width, at = k[row, first], sign * step[row], T[row]
        rough = np.ones(row.size, dtype=np.bool_)
        trail = []
        for _ in range(_ZOOMS):
            width = width / _FINER
            inner = low[:, None] + width[:, None] * np.arange(_ORDER * _FINER + 1)
            value = price(inner, at[:, None])
            i, rough = _roughest(value)
            low = np.take_along_axis(inner, i[:, None], axis=1)[:, 0]
            trail.append(low[:, None] + width[:, None] * np.arange(_ORDER + 1))
        points = np.concatenate(trail, axis=1)[rough]  # (suspects left, zooms · 7)
        kept_T.append(np.repeat(at[rough], points.shape[1]))
        kept_k.append(points.ravel())
    return np.concatenate(kept_T), np.concatenate(kept_k)


def across_maturities(
    price: Price, T: Array, k: Array, rng: Generator
) -> tuple[Array, Array]:
    """Maturities for calendar spreads at fixed strikes: even ones, and around suspected jumps.

    Args:
        price: Public prices out of the money.
        T: Maturities already in use, (L,), increasing.
        k: Log-strikes, (r,).
        rng: Moves the even points by a random share of their distance.

    Returns:
        Maturities, (n,) increasing, and prices at every strike, (r, n).
    """
    step = np.log(T[-1] / T[0]) / _EVEN_T
    even = np.log(T[0]) + step * (rng.uniform(0.1, 0.9) + np.arange(_EVEN_T))
    first = price(k[:, None], np.exp(even)[None])  # (r, n)
    score = np.max(_score(first), axis=0)
    low = even[_peaks(score)]
    # Maturities close to those in use, where a surface may be told apart from its neighbours.
    times = [np.exp(even), T, T * (1.0 - 1e-9), T * (1.0 + 1e-9)]
    values = [first, *(price(k[:, None], t[None]) for t in times[1:])]
    width = step
    for _ in range(_ZOOMS):
        width = width / _FINER
        inner = low[:, None] + width * np.arange(_ORDER * _FINER + 1)  # (cells, 25)
        value = price(k[:, None], np.exp(inner).reshape(1, -1))  # (r, cells · 25)
        times.append(np.exp(inner).ravel())
        values.append(value)
        score = np.max(_score(value.reshape(k.size, *inner.shape)), axis=0)  # (cells, windows)
        low = inner[np.arange(low.size), np.argmax(score, axis=1)]
    together, place = np.unique(np.concatenate(times), return_index=True)
    return together, np.concatenate(values, axis=1)[:, place]


def _score(value: Array) -> Array:
    """Sixth differences along the last axis, in units of their rounding."""
    size = np.abs(value)
    windows = np.lib.stride_tricks.sliding_window_view(size, _ORDER + 1, axis=-1)
    noise = _NOISE * windows.max(axis=-1) + 1e-290
    return np.asarray(np.abs(np.diff(value, n=_ORDER, axis=-1)) / noise)
