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
_EVEN_T = 256  # even maturities, in log T
_CELLS = 32  # places zoomed into, per row and side
_CELLS_T = 6
_FINER = 4  # by each zoom
_ZOOMS = 7
_NEAR = 64  # differences that one is compared with
_OUTSTANDING = 30.0  # times the median of those around it
_NOISE = 64.0 * 2.0**_ORDER * EPS  # a sixth difference of rounded prices, with room


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
    kept_T, kept_k = [np.zeros(0)], [np.zeros(0)]
    for sign, reach in ((-1.0, left), (1.0, right)):
        step = sign * reach / _EVEN  # (r,)
        k = step[:, None] * (rng.uniform(0.1, 0.9, T.size)[:, None] + np.arange(_EVEN))  # (r, n)
        row, first = _peaks(_differences(price(k, T[:, None])), _CELLS)
        at, low, width = T[row], k[row, first], step[row]
        seen = []
        jump = np.ones(row.size, dtype=np.bool_)
        for _ in range(_ZOOMS):
            width = width / _FINER
            inner = low[:, None] + width[:, None] * np.arange(_ORDER * _FINER + 1)
            score = _differences(price(inner, at[:, None]))  # (cells, 19)
            low = inner[np.arange(low.size), np.argmax(score, axis=1)]
            jump = score.max(axis=1) > np.maximum(1.0, _OUTSTANDING * np.median(score, axis=1))
            seen.append(low[:, None] + width[:, None] * np.arange(_ORDER + 1))
        points = np.concatenate(seen, axis=1)[jump]
        kept_T.append(np.repeat(at[jump], points.shape[1]))
        kept_k.append(points.ravel())
    return np.concatenate(kept_T), np.concatenate(kept_k)


def across_maturities(price: Price, T: Array, k: Array, rng: Generator) -> tuple[Array, Array]:
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
    times, values = [np.exp(even)], [price(k[:, None], np.exp(even))]
    score = _differences(values[0]).max(axis=0)
    low, width = even[_peaks(score[None], _CELLS_T)[1]], step
    for _ in range(_ZOOMS):
        width = width / _FINER
        inner = low[:, None] + width * np.arange(_ORDER * _FINER + 1)  # (cells, 25)
        times.append(np.exp(inner).ravel())
        values.append(price(k[:, None], times[-1]))  # (r, cells · 25)
        score = _differences(values[-1].reshape(k.size, *inner.shape)).max(axis=0)
        low = inner[np.arange(low.size), np.argmax(score, axis=1)]
    # What is special about a listed maturity would show between it and its neighbours.
    for beside in (1.0 - 1e-9, 1.0, 1.0 + 1e-9):
        times.append(T * beside)
        values.append(price(k[:, None], times[-1]))
    together, place = np.unique(np.concatenate(times), return_index=True)
    return together, np.concatenate(values, axis=1)[:, place]


def _differences(value: Array) -> Array:
    """Sixth differences along the last axis, in units of the rounding of prices."""
    value = np.nan_to_num(value)
    windows = np.lib.stride_tricks.sliding_window_view(np.abs(value), _ORDER + 1, axis=-1)
    noise = _NOISE * windows.max(axis=-1) + 1e-290
    return np.asarray(np.abs(np.diff(value, n=_ORDER, axis=-1)) / noise)


def _peaks(score: Array, most: int) -> tuple[Places, Places]:
    """Rows and places of the differences (r, n) that stand out most from those around them."""
    blocks = score.shape[1] // _NEAR
    near = np.median(score[:, : blocks * _NEAR].reshape(-1, blocks, _NEAR), axis=2)
    near = np.repeat(near, _NEAR, axis=1)
    near = np.pad(near, ((0, 0), (0, score.shape[1] - near.shape[1])), mode="edge")
    ratio = score / np.maximum(near, 1.0)
    # A jump raises six differences in a row: one is enough.
    cells = ratio.shape[1] // _ORDER
    groups = ratio[:, : cells * _ORDER].reshape(-1, cells, _ORDER)
    best = groups.max(axis=2)
    top = np.argsort(-best, axis=1)[:, :most]  # (r, most)
    row = np.repeat(np.arange(top.shape[0]), top.shape[1])
    place = top.ravel() * _ORDER + groups.argmax(axis=2)[row, top.ravel()]
    keep = best[row, top.ravel()] > 1.0
    return row[keep], place[keep]
