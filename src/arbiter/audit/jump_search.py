"""A search for jumps of prices in strike or maturity: even points, then successive zooms.

An even sixth difference is of order h⁶ where a price is smooth, of order h³ where its density
has a kink, and stays what it is across a jump. So a zoom by four calms everything but a jump,
and a jump, once its neighbours are close enough, is an arbitrage that inequalities see. Of the
even points themselves those are proposed between which a price is not convex: a smooth bump of few
of their distances. The search only proposes points; it judges nothing.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.random import Generator

from arbiter.audit.grid import EPS, Places
from arbiter.conventions import Array

PriceFunction = Callable[[Array, Array], Array]  # (k, T), broadcast -> prices out of the money
MaturityCurves = Callable[[Array], Array]  # maturities (n,) -> values (r, n) that must not fall

MAX_SCANNED_MATURITIES = 14  # maturities scanned across strikes
_DIFFERENCE_ORDER = 6
_STRIKES_PER_SIDE = 3072  # even strikes on each side of the forward
_MAX_EVEN_MATURITIES = 384  # even maturities, shared out among the gaps between listed ones
_MAX_SCANNED_GAPS = 24  # that are scanned
_MAX_STRIKE_CELLS = 24  # places zoomed into, per row and side
_MAX_MATURITY_CELLS = 30  # places zoomed into, of all gaps
_ZOOM_FACTOR = 4  # by each zoom
_MAX_STRIKE_ZOOMS = 7
_MAX_MATURITY_ZOOMS = 11  # a calendar spread shrinks only with the first power of the distance
_MEDIAN_WINDOW = 64  # differences that one is compared with
_MAX_SMOOTH_RATIO = 1.0 / 32.0  # a zoom by four leaves 1/64 of a kink, less of anything smooth
_ZOOM_OFFSETS = np.arange(_DIFFERENCE_ORDER * _ZOOM_FACTOR + 1)
_DIFFERENCE_ROUNDING = (
    64.0 * 2.0**_DIFFERENCE_ORDER * EPS
)  # a sixth difference of rounded prices, with room


def search_across_strikes(
    price: PriceFunction, T: Array, left: Array, right: Array, rng: Generator
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
        surface is smooth and convex.
    """
    kept_T, kept_k = [np.zeros(0)], [np.zeros(0)]
    for sign, reach in ((-1.0, left), (1.0, right)):
        step = sign * reach / _STRIKES_PER_SIDE  # (r,)
        k = step[:, None] * (
            rng.uniform(0.1, 0.9, T.size)[:, None] + np.arange(_STRIKES_PER_SIDE)
        )  # (r, n)
        even = price(k, T[:, None])
        score = _scaled_differences(even)
        row, first = _find_dents(k, even)
        dents = k[row[:, None], first[:, None] + np.arange(3)]
        kept_T.append(np.repeat(T[row], 3))
        kept_k.append(dents.ravel())
        row, first = _find_peaks(score, _MAX_STRIKE_CELLS)
        at, low, width, before = T[row], k[row, first], step[row], score[row, first]
        for _ in range(_MAX_STRIKE_ZOOMS):
            inner = low[:, None] + width[:, None] / _ZOOM_FACTOR * _ZOOM_OFFSETS
            rough, place = _largest_differences(
                _scaled_differences(price(inner, at[:, None]))
            )  # of (cells, 19)
            low = inner[np.arange(low.size), place]
            jump = rough > np.maximum(1.0, _MAX_SMOOTH_RATIO * before)
            at, low, width, before = at[jump], low[jump], width[jump] / _ZOOM_FACTOR, rough[jump]
            if not jump.any():
                break
            points = low[:, None] + width[:, None] * np.arange(_DIFFERENCE_ORDER + 1)
            kept_T.append(np.repeat(at, _DIFFERENCE_ORDER + 1))
            kept_k.append(points.ravel())
    return np.concatenate(kept_T), np.concatenate(kept_k)


def search_across_maturities(
    curves: MaturityCurves, T: Array, rng: Generator
) -> tuple[Array, Array]:
    """Maturities at which to compare curves in T: even ones, and around suspected jumps.

    A surface may have kinks at its listed maturities, so that the search runs between them;
    what is special about one of them shows between it and maturities close to it.

    Args:
        curves: What must not fall in maturity.
        T: First maturity of interest, the listed ones, the last one of interest; increasing.
        rng: Chooses among many gaps and moves the even points by a random share.

    Returns:
        Maturities, (n,) increasing, and the curves there, (r, n).
    """
    gaps = rng.permutation(T.size - 1)[:_MAX_SCANNED_GAPS]
    count = min(_MAX_EVEN_MATURITIES // gaps.size, 96)
    step = (T[gaps + 1] - T[gaps]) / count
    start = T[gaps] + step * rng.uniform(0.1, 0.9, gaps.size)
    even = start[:, None] + step[:, None] * np.arange(count)  # (gaps, count)
    times = [even.ravel(), *(T * beside for beside in (1.0 - 1e-9, 1.0, 1.0 + 1e-9))]
    values = [curves(t) for t in times]
    score = _scaled_differences(values[0].reshape(-1, *even.shape)).max(axis=0)
    row, first = _find_peaks(score, 3)
    ratio = score[row, first] / np.median(score, axis=1)[row]
    row, first = (places[np.argsort(-ratio)[:_MAX_MATURITY_CELLS]] for places in (row, first))
    low, width, before = even[row, first], step[row], score[row, first]
    for _ in range(_MAX_MATURITY_ZOOMS):
        if not low.size:
            break
        inner = low[:, None] + width[:, None] / _ZOOM_FACTOR * _ZOOM_OFFSETS  # (cells, 25)
        times.append(inner.ravel())
        values.append(curves(times[-1]))  # (r, cells · 25)
        score = _scaled_differences(values[-1].reshape(-1, *inner.shape)).max(axis=0)
        rough, place = _largest_differences(score)
        low = inner[np.arange(low.size), place]
        jump = rough > np.maximum(1.0, _MAX_SMOOTH_RATIO * before)
        low, width, before = low[jump], width[jump] / _ZOOM_FACTOR, rough[jump]
    together, place = np.unique(np.concatenate(times), return_index=True)
    return together, np.concatenate(values, axis=1)[:, place]


def _scaled_differences(value: Array) -> Array:
    """Sixth differences along the last axis, in units of the rounding of prices."""
    value = np.nan_to_num(value)
    windows = np.lib.stride_tricks.sliding_window_view(
        np.abs(value), _DIFFERENCE_ORDER + 1, axis=-1
    )
    noise = _DIFFERENCE_ROUNDING * windows.max(axis=-1) + 1e-290
    return np.asarray(np.abs(np.diff(value, n=_DIFFERENCE_ORDER, axis=-1)) / noise)


def _find_dents(k: Array, value: Array) -> tuple[Places, Places]:
    """Rows and places of the deepest dents: where three of the prices (r, n) are not convex."""
    kappa = np.exp(k)
    width = np.diff(kappa, axis=1)  # negative where strikes fall
    change = np.diff(np.diff(value, axis=1) / width, axis=1) * np.sign(width[:, 1:])
    noise = _DIFFERENCE_ROUNDING * np.abs(value[:, 1:-1] / width[:, 1:]) + 1e-290
    depth = np.nan_to_num(-change / noise, nan=np.inf)
    deepest = np.argpartition(depth, -_MAX_STRIKE_CELLS, axis=1)[:, -_MAX_STRIKE_CELLS:]
    row, place = np.nonzero(np.take_along_axis(depth, deepest, axis=1) > 1.0)
    return row, deepest[row, place]


def _largest_differences(score: Array) -> tuple[Array, Places]:
    """The largest difference of each cell, and where its seven points begin."""
    return score.max(axis=1), np.argmax(score, axis=1)


def _find_peaks(score: Array, most: int) -> tuple[Places, Places]:
    """Rows and places of the differences (r, n) that stand out most from those around them."""
    size = min(_MEDIAN_WINDOW, score.shape[1])
    blocks = score.shape[1] // size
    near = np.median(score[:, : blocks * size].reshape(-1, blocks, size), axis=2)
    near = np.repeat(near, size, axis=1)
    near = np.pad(near, ((0, 0), (0, score.shape[1] - near.shape[1])), mode="edge")
    ratio = score / np.maximum(near, 1.0)
    rows, reach = np.arange(score.shape[0]), np.arange(-_DIFFERENCE_ORDER, _DIFFERENCE_ORDER + 1)
    row, place = [], []
    for _ in range(most):
        best = np.argmax(ratio, axis=1)
        keep = ratio[rows, best] > 1.0
        row.append(rows[keep])
        place.append(best[keep])
        # Differences that share points with this one show the same jump.
        ratio[rows[:, None], np.clip(best[:, None] + reach, 0, score.shape[1] - 1)] = 0.0
    return np.concatenate(row), np.concatenate(place)
