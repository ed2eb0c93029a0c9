"""Quadrature of transport laws, independent of the decoder: normalisers and option prices.

The structural proof uses it to check the decoder, so it shares no arithmetic with it.

Glossary: ``x`` Gaussian percentile, ``b = s'`` slope, ``s`` transport, ``M = E exp s(Z)``,
``X = exp(s(Z))/M``, ``κ`` strike over forward, J components, L maturities, n knots.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike

from arbiter.conventions import Array

_HALF_LOG_2PI = 0.5 * math.log(2.0 * math.pi)
MAX_PIECE_WIDTH = 0.25  # longest piece of the quadrature in x; 16 nodes on it are exact to rounding
_MAX_PIECES = 4096


def reprice_by_quadrature(
    knots: ArrayLike, slopes: ArrayLike, weights: ArrayLike, kappa: ArrayLike
) -> tuple[Array, Array]:
    """Calls and puts in forward units by quadrature of their payoffs.

    The law is integrated on each side of the strike separately, so that call minus put plus the
    strike measures the mean. The absolute accuracy is about 1e-13: not made for far wings.

    Args:
        knots: Gaussian percentiles, (n,).
        slopes: Transport slopes, (J, L, n).
        weights: Mixture weights, (J, L).
        kappa: Strikes over forward, (m,).

    Returns:
        Calls and puts, each (L, m).
    """
    x = np.asarray(knots, dtype=np.float64)
    b = np.asarray(slopes, dtype=np.float64)
    w = np.asarray(weights, dtype=np.float64)
    strikes = np.atleast_1d(np.asarray(kappa, dtype=np.float64))
    x, b = duplicate_single_knot(x, b)
    log_m = log_mean(x, b, MAX_PIECE_WIDTH)  # (J, L)
    target = np.log(strikes) + log_m[..., None]  # (J, L, m): s at the strike
    root = _invert_transport(x, b, target)  # (J, L, m)
    calls = np.zeros(root.shape)
    puts = np.zeros(root.shape)
    for m, strike in enumerate(strikes):
        puts[..., m] = _integrate_one_side(x, b, log_m, strike, root[..., m], above=False)
        calls[..., m] = _integrate_one_side(x, b, log_m, strike, root[..., m], above=True)
    return np.einsum("jl,jlm->lm", w, calls), np.einsum("jl,jlm->lm", w, puts)


def duplicate_single_knot(x: Array, b: Array) -> tuple[Array, Array]:
    """Knots and slopes with a single knot written twice, which leaves the law unchanged."""
    return (np.append(x, x + 1.0), np.repeat(b, 2, axis=-1)) if x.size == 1 else (x, b)


def _quadrature_borders(x: Array, longest: float) -> Array:
    """Borders of the quadrature pieces: the knots, and points between at most ``longest`` apart."""
    counts = np.ceil(np.diff(x) / longest).astype(np.int64)
    counts = np.maximum(1, counts if counts.sum() <= _MAX_PIECES else np.minimum(counts, 64))
    parts = [np.linspace(x[i], x[i + 1], n, endpoint=False) for i, n in enumerate(counts)]
    return np.concatenate([*parts, x[-1:]])


def _evaluate_transport(x: Array, b: Array, at: Array) -> Array:
    """``s`` at points of shape (J, L, ...), zero at the knot nearest to x = 0."""
    rise = 0.5 * (b[..., 1:] + b[..., :-1]) * np.diff(x)
    s = np.concatenate([np.zeros((*b.shape[:2], 1)), np.cumsum(rise, axis=-1)], axis=-1)
    s -= s[..., [int(np.argmin(np.abs(x)))]]
    inside = np.clip(at, x[0], x[-1])
    i = np.clip(np.searchsorted(x, inside, side="right") - 1, 0, x.size - 2)
    j, ell = np.ogrid[: b.shape[0], : b.shape[1]]
    extra = (1,) * (at.ndim - 2)
    j, ell = j.reshape(*j.shape, *extra), ell.reshape(*ell.shape, *extra)
    t = inside - x[i]
    bend = (b[j, ell, i + 1] - b[j, ell, i]) / (x[i + 1] - x[i])
    value = s[j, ell, i] + t * (b[j, ell, i] + 0.5 * bend * t)
    value += b[j, ell, 0] * np.minimum(at - x[0], 0.0)
    value += b[j, ell, -1] * np.maximum(at - x[-1], 0.0)
    return np.asarray(value)


def log_mean(x: Array, b: Array, longest: float) -> Array:
    """``log M``, (J, L): Gauss-Legendre inside, the normal distribution function outside."""
    border = _quadrature_borders(x, longest)
    node, weight = np.polynomial.legendre.leggauss(16)
    half = 0.5 * np.diff(border)[:, None]
    at = (border[:-1, None] + half * (1.0 + node)).ravel()
    log_weight = np.log(half * weight).ravel() - 0.5 * at * at - _HALF_LOG_2PI
    s = _evaluate_transport(x, b, np.broadcast_to(at, (*b.shape[:2], at.size)))
    ends = _evaluate_transport(x, b, np.broadcast_to(x[[0, -1]], (*b.shape[:2], 2)))
    low, high = b[..., 0], b[..., -1]
    left = ends[..., 0] - low * x[0] + 0.5 * low * low + _log_cdf(x[0] - low)
    right = ends[..., 1] - high * x[-1] + 0.5 * high * high + _log_cdf(high - x[-1])
    terms = np.concatenate([s + log_weight, left[..., None], right[..., None]], axis=-1)
    top = terms.max(axis=-1, keepdims=True)
    return np.asarray(top[..., 0] + np.log(np.exp(terms - top).sum(axis=-1)))


def _invert_transport(x: Array, b: Array, target: Array) -> Array:
    """The percentile at which ``s`` takes ``target``, by bisection; s is strictly increasing."""
    ends = _evaluate_transport(x, b, np.broadcast_to(x[[0, -1]], (*b.shape[:2], 2)))
    below = x[0] + (target - ends[..., :1]) / b[..., :1]
    above = x[-1] + (target - ends[..., 1:]) / b[..., -1:]
    low = np.full(target.shape, x[0])
    high = np.full(target.shape, x[-1])
    for _ in range(60):
        middle = 0.5 * (low + high)
        under = _evaluate_transport(x, b, middle) < target
        low, high = np.where(under, middle, low), np.where(under, high, middle)
    inside = 0.5 * (low + high)
    tail = np.where(target < ends[..., :1], below, above)
    return np.asarray(np.where((target < ends[..., :1]) | (target > ends[..., 1:]), tail, inside))


def _integrate_one_side(
    x: Array, b: Array, log_m: Array, strike: float, at: Array, above: bool
) -> Array:
    """``E[(X − κ)+]`` or ``E[(κ − X)+]`` for each (component, maturity)."""
    border = _quadrature_borders(x, MAX_PIECE_WIDTH)
    cut = np.clip(at, x[0], x[-1])[..., None]
    border = np.maximum(border, cut) if above else np.minimum(border, cut)  # (J, L, pieces+1)
    node, weight = np.polynomial.legendre.leggauss(16)
    half = 0.5 * np.diff(border)[..., None]
    z = border[..., :-1, None] + half * (1.0 + node)
    payoff = strike * np.expm1(
        _evaluate_transport(x, b, z) - log_m[..., None, None] - np.log(strike)
    )
    density = np.exp(-0.5 * z * z - _HALF_LOG_2PI)
    total = np.einsum("jlpg,jlpg->jl", payoff * density, half * weight)
    ends = _evaluate_transport(x, b, np.broadcast_to(x[[0, -1]], (*b.shape[:2], 2)))
    for i, left, right in ((0, -np.inf, x[0]), (-1, x[-1], np.inf)):
        low, high = (np.maximum(at, left), right) if above else (left, np.minimum(at, right))
        slope = b[..., i]
        start = ends[..., i] - slope * x[i] + 0.5 * slope * slope - log_m
        # Distribution functions of the smaller side: on the right, of the mirror image.
        near, far = (high, low) if i == 0 else (-low, -high)
        shift = slope if i == 0 else -slope
        mass = np.exp(start + _log_cdf(near - shift)) - np.exp(start + _log_cdf(far - shift))
        probability = np.exp(_log_cdf(near)) - np.exp(_log_cdf(far))
        total += np.where(low < high, mass - strike * probability, 0.0)
    return np.asarray(total if above else -total)


def _log_cdf(z: ArrayLike) -> Array:
    """``log Φ``; the asymptotic series where erfc underflows."""
    z = np.asarray(z, dtype=np.float64)
    erfc = np.frompyfunc(math.erfc, 1, 1)
    near = np.maximum(z, -30.0)
    far = np.minimum(z, -30.0)
    u = 1.0 / (far * far)
    series = 1.0 - u * (1.0 - 3.0 * u * (1.0 - 5.0 * u * (1.0 - 7.0 * u * (1.0 - 9.0 * u))))
    value = np.where(
        z > -30.0,
        np.log(0.5 * np.asarray(erfc(-near * math.sqrt(0.5)), dtype=np.float64)),
        -0.5 * far * far - _HALF_LOG_2PI - np.log(-far) + np.log(series),
    )
    return np.asarray(value)
