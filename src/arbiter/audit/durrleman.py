"""Durrleman's function of a smile that is known on strikes only.

With ``w(k)`` the total implied variance, the density of a slice is ``g`` times a positive
function, so that a slice is free of butterfly arbitrage only where ``g ≥ 0``:

    g = (1 − k w'/(2w))² − (w'²/4)(1/w + 1/4) + w''/2

Reference: Gatheral and Jacquier, Arbitrage-free SVI volatility surfaces, Quantitative Finance
14 (2014), section 2.
"""

from __future__ import annotations

import numpy as np
import polars as pl
from numpy.typing import ArrayLike

from arbiter.audit.grid import Grid, Places, find_slice_starts
from arbiter.conventions import Array
from arbiter.pricing import black

STENCIL_STRIKES = 7  # a polynomial of degree six goes through each seven neighbours
_POINTS_PER_GAP = 16  # places looked at between two strikes
_SLICE_SCHEMA: dict[str, type[pl.DataType]] = {
    "T": pl.Float64,
    "strikes": pl.Int64,
    "min_g": pl.Float64,
    "k_at_min": pl.Float64,
}


def evaluate_durrleman(k: ArrayLike, w: ArrayLike) -> tuple[Array, Array]:
    """Durrleman's ``g`` at the strikes and between them.

    The derivatives are those of the polynomial through the seven nearest strikes, so the
    result is as good as the strikes are dense and the variances smooth; it is information
    about a slice, not evidence of an arbitrage (that is what the inequalities are for).

    Args:
        k: Log-strikes, (n,), strictly increasing, at least seven.
        w: Total implied variances ``σ²T``, (n,), positive.

    Returns:
        Log-strikes, sixteen to each gap, and ``g`` there.

    Raises:
        ValueError: For fewer than seven strikes, or strikes that do not increase.

    Example:
        >>> k = np.linspace(-1.0, 1.0, 41)
        >>> at, g = evaluate_durrleman(k, np.full(41, 0.04))
        >>> bool(np.allclose(g, 1.0))
        True
    """
    strikes, variance = np.asarray(k, dtype=np.float64), np.asarray(w, dtype=np.float64)
    if strikes.ndim != 1 or strikes.shape != variance.shape or strikes.size < STENCIL_STRIKES:
        raise ValueError(
            f"k has shape {strikes.shape} and w {variance.shape}; give two rows of the same "
            f"length, {STENCIL_STRIKES} strikes or more"
        )
    if np.any(np.diff(strikes) <= 0.0):
        raise ValueError("k must increase strictly; sort the strikes and drop duplicates")
    at, g = _evaluate_gaps(strikes, variance, np.zeros(1, dtype=np.int64))
    return np.append(at[:, :-1], at[-1, -1]), np.append(g[:, :-1], g[-1, -1])


def find_smallest_durrleman(k: Array, w: Array, starts: Places) -> tuple[Array, Array]:
    """The smallest ``g`` of every smile and its log-strike, as :func:`evaluate_durrleman` has it.

    Args:
        k: Log-strikes of all smiles in a row, (N,), strictly increasing within each.
        w: Total implied variances, (N,).
        starts: Where smiles begin, (L,); each has at least seven strikes.

    Returns:
        Log-strikes and values, (L,) each.
    """
    at, g = _evaluate_gaps(k, w, starts)
    gaps = starts - np.arange(starts.size)  # each smile has one gap less than strikes
    last = np.zeros(len(g), dtype=np.bool_)
    last[np.append(gaps[1:], len(g)) - 1] = True
    g[~last, -1] = np.inf  # a strike between two gaps belongs to the right one
    best = g.argmin(axis=1)
    smallest = np.take_along_axis(g, best[:, None], 1)[:, 0]
    value = np.minimum.reduceat(smallest, gaps)
    smile = np.repeat(np.arange(starts.size), np.diff(np.append(gaps, len(g))))
    hit = np.flatnonzero((smallest == value[smile]) | np.isnan(smallest))
    gap = hit[np.searchsorted(smile[hit], np.arange(starts.size))]  # the first of each smile
    return at[gap, best[gap]], value


def _evaluate_gaps(k: Array, w: Array, starts: Places) -> tuple[Array, Array]:
    """Log-strikes of every gap, its two ends included, and ``g`` there: ``(gaps, 17)`` each.

    The polynomial through a stencil is Newton's: divided differences at its strikes, and
    Horner's rule for the value and the first two derivatives.
    """
    smile = np.repeat(np.arange(starts.size), np.diff(np.append(starts, k.size)))
    left = np.flatnonzero(smile[1:] == smile[:-1])  # (gaps,)
    first, end = starts[smile[left]], np.append(starts[1:], k.size)[smile[left]]
    stencil = np.clip(left - (STENCIL_STRIKES // 2 - 1), first, end - STENCIL_STRIKES)
    places = np.arange(STENCIL_STRIKES)[:, None] + stencil  # (7, gaps)
    nodes, difference = k[places], w[places]
    middle, scale = nodes.mean(axis=0), np.ptp(nodes, axis=0)
    nodes = (nodes - middle) / scale
    for order in range(1, STENCIL_STRIKES):
        difference[order:] = np.diff(difference[order - 1 :], axis=0) / (
            nodes[order:] - nodes[:-order]
        )
    share = np.arange(_POINTS_PER_GAP + 1) / _POINTS_PER_GAP
    at = k[left, None] + share * (k[left + 1] - k[left])[:, None]  # (gaps, 17)
    at[:, -1] = k[left + 1]
    t = (at - middle[:, None]) / scale[:, None]
    value = np.repeat(difference[-1][:, None], share.size, axis=1)
    slope, bend = np.zeros(t.shape), np.zeros(t.shape)  # bend: half of the second derivative
    for order in range(STENCIL_STRIKES - 2, -1, -1):
        step = t - nodes[order][:, None]
        bend *= step
        bend += slope
        slope *= step
        slope += value
        value *= step
        value += difference[order][:, None]
    slope /= scale[:, None]
    bend /= (scale * scale)[:, None]
    skew = 1.0 - 0.5 * at * slope / value
    return at, skew * skew - 0.25 * slope * slope * (1.0 / value + 0.25) + bend


def tabulate_smallest_durrleman(grid: Grid) -> pl.DataFrame:
    """One row per maturity with enough strikes: the smallest Durrleman ``g`` and its place."""
    iv = grid.implied_volatilities
    vega = black.vega(grid.k, np.nan_to_num(iv) * np.sqrt(grid.T)) * np.sqrt(grid.T)
    with np.errstate(divide="ignore", invalid="ignore"):
        doubt = grid.error / (vega * iv)  # of the volatility, relative
    at = _keep_long_smiles(grid.T, np.flatnonzero(doubt < 1e-6))
    w = iv * iv * grid.T
    # Strikes closer than this would turn rounding into curvature.
    starts = find_slice_starts(grid.T[at])
    worst = np.maximum.reduceat(doubt[at] * w[at], starts) if at.size else np.zeros(0)
    apart = np.repeat(np.sqrt(2.0 * worst / 1e-4), np.diff(np.append(starts, at.size)))
    cell = np.floor(grid.k[at] / apart)
    fresh = np.append(True, (np.diff(cell) != 0.0) | (np.diff(grid.T[at]) != 0.0))
    at = _keep_long_smiles(grid.T, at[fresh[: at.size]])
    if not at.size:
        return pl.DataFrame(schema=_SLICE_SCHEMA)
    starts = find_slice_starts(grid.T[at])
    k, g = find_smallest_durrleman(grid.k[at], w[at], starts)
    columns = (grid.T[at][starts], np.diff(np.append(starts, at.size)), g, k)
    return pl.DataFrame(dict(zip(_SLICE_SCHEMA, columns, strict=True)), schema=_SLICE_SCHEMA)


def _keep_long_smiles(T: Array, at: Places) -> Places:
    """The places ``at`` of maturities that have enough of them for a stencil."""
    counts = np.diff(np.append(find_slice_starts(T[at]), at.size))
    return at[np.repeat(counts >= STENCIL_STRIKES, counts)]
