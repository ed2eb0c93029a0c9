"""Quadrature of transport laws, independent of the decoder: normalisers and option prices.

The structural proof uses it to check the decoder, so it shares no arithmetic with it.

Glossary: ``x`` Gaussian percentile, ``b = s'`` slope, ``s`` transport, ``M = E exp s(Z)``,
``X = exp(s(Z))/M``, ``κ`` strike over forward, J components, L maturities, n knots, P pieces.
"""

from __future__ import annotations

import math
from functools import cached_property, lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from arbiter.conventions import Array

_HALF_LOG_2PI = 0.5 * math.log(2.0 * math.pi)
MAX_PIECE_WIDTH = 0.25  # longest piece of the quadrature in x; 16 nodes on it are exact to rounding
_MAX_PIECES = 4096
_NODES, _NODE_WEIGHTS = np.polynomial.legendre.leggauss(16)


class _Pieces(NamedTuple):
    """The line between the end knots in pieces, none across a knot, with 16 nodes on each."""

    border: Array  # (P+1,)
    segment: NDArray[np.int64]  # (P,) knot to the left
    t: Array  # (P, 16) distance of the nodes from that knot
    log_weight: Array  # (P, 16) log of the nodes' weights times φ
    probability: Array  # (P,) of a Gaussian variable to lie there


class Law:
    """Transport laws by their stored numbers.

    Args:
        knots: Gaussian percentiles, (n,); a single knot is one slope everywhere.
        slopes: Transport slopes, (J, L, n).
    """

    def __init__(self, knots: ArrayLike, slopes: ArrayLike) -> None:
        x, b = np.asarray(knots, dtype=np.float64), np.asarray(slopes, dtype=np.float64)
        if x.size == 1:  # written twice, which leaves the law unchanged
            x, b = np.append(x, x + 1.0), np.repeat(b, 2, axis=-1)
        self.x, self.b = x, b
        self.bend = np.diff(b) / np.diff(x)
        rise = 0.5 * (b[..., 1:] + b[..., :-1]) * np.diff(x)
        s = np.concatenate([np.zeros((*b.shape[:2], 1)), np.cumsum(rise, axis=-1)], axis=-1)
        self.s = s - s[..., [int(np.argmin(np.abs(x)))]]  # (J, L, n), zero beside x = 0

    @cached_property
    def log_tails(self) -> Array:
        """``log E[e^s; Z < x_0]`` and ``log E[e^s; Z > x_{n-1}]``, (J, L, 2): normal integrals."""
        slope, end = self.b[..., [0, -1]], self.x[[0, -1]]
        outward = np.array([1.0, -1.0]) * (end - slope)
        return np.asarray(
            self.s[..., [0, -1]] - slope * end + 0.5 * slope * slope + _log_cdf(outward)
        )

    def log_mean(self, longest: float) -> Array:
        """``log M``, (J, L): Gauss-Legendre on pieces up to ``longest`` wide, and the tails."""
        terms = self._log_terms(_cut_line(self.x, longest)).reshape(*self.b.shape[:2], -1)
        top = np.maximum(terms.max(axis=-1), self.log_tails.max(axis=-1))[..., None]
        terms -= top
        inside = np.exp(terms, out=terms).sum(axis=-1)
        return np.asarray(top[..., 0] + np.log(inside + np.exp(self.log_tails - top).sum(axis=-1)))

    def _log_terms(self, pieces: _Pieces) -> Array:
        """Logarithms of the terms of ``E[e^s]`` at the nodes, (J, L, P, 16)."""
        at = pieces.segment
        terms = pieces.t * self.b[..., at, None]
        terms += (0.5 * pieces.t * pieces.t) * self.bend[..., at, None]
        terms += self.s[..., at, None]
        terms += pieces.log_weight
        return terms

    def invert(self, target: Array) -> Array:
        """The percentiles at which ``s`` takes ``target`` (J, L, m), by bisection: s increases."""
        x, s = self.x, self.s
        left = (s[..., None, 1:-1] <= target[..., None]).sum(axis=-1)  # (J, L, m)
        start, slope = np.take_along_axis(s, left, -1), np.take_along_axis(self.b, left, -1)
        bend = np.take_along_axis(self.bend, left, -1)
        low, high = np.zeros(target.shape), np.diff(x)[left]
        for _ in range(60):
            middle = 0.5 * (low + high)
            under = start + middle * (slope + 0.5 * bend * middle) < target
            low, high = np.where(under, middle, low), np.where(under, high, middle)
        below = x[0] + (target - s[..., :1]) / self.b[..., :1]
        above = x[-1] + (target - s[..., -1:]) / self.b[..., -1:]
        found = np.where(target < s[..., :1], below, x[left] + 0.5 * (low + high))
        return np.asarray(np.where(target > s[..., -1:], above, found))

    def integrate_payoffs(self, kappa: Array) -> tuple[Array, Array]:
        """``E[(X − κ)+]`` and ``E[(κ − X)+]`` at strikes (m,), each (J, L, m).

        Each side of the strike is integrated separately: the pieces beyond it, its own piece
        cut in two, and the tails.
        """
        pieces = _cut_line(self.x, MAX_PIECE_WIDTH)
        log_m = self.log_mean(MAX_PIECE_WIDTH)[..., None]  # (J, L, 1)
        at = self.invert(np.log(kappa) + log_m)  # (J, L, m)
        inside = np.clip(at, self.x[0], self.x[-1])
        own = np.searchsorted(pieces.border[1:-1], inside, side="right")  # piece of the strike
        mass = np.exp(self._log_terms(pieces) - log_m[..., None]).sum(axis=-1)  # (J, L, P)
        paid = []
        for sign in (1.0, -1.0):  # calls, puts
            payoff = sign * (
                _sum_beyond(mass, own, sign) - kappa * _sum_beyond(pieces.probability, own, sign)
            )
            end = pieces.border[own + 1] if sign > 0.0 else pieces.border[own]
            payoff += sign * self._integrate_piece(
                (np.minimum(inside, end), np.maximum(inside, end)),
                pieces.segment[own],
                log_m,
                kappa,
            )
            paid.append(payoff + sign * self._integrate_tails(at, sign, log_m, kappa))
        return paid[0], paid[1]

    def _integrate_piece(
        self, ends: tuple[Array, Array], segment: NDArray[np.int64], log_m: Array, kappa: Array
    ) -> Array:
        """``E[X − κ]`` between two percentiles of one segment, each (J, L, m)."""
        half = 0.5 * (ends[1] - ends[0])[..., None]
        z = ends[0][..., None] + half * (1.0 + _NODES)  # (J, L, m, 16)
        t = z - self.x[segment][..., None]
        start, slope, bend = (
            np.take_along_axis(values, segment, -1)[..., None]
            for values in (self.s, self.b, self.bend)
        )
        shift = (start - log_m[..., None]) - np.log(kappa)[:, None]
        payoff = kappa[:, None] * np.expm1(shift + t * (slope + 0.5 * bend * t))
        density = np.exp(-0.5 * z * z - _HALF_LOG_2PI)
        return np.asarray((payoff * density * half * _NODE_WEIGHTS).sum(axis=-1))

    def _integrate_tails(self, at: Array, sign: float, log_m: Array, kappa: Array) -> Array:
        """``E[X − κ]`` beyond the end knots, above (sign 1) or below percentiles (J, L, m)."""
        total = np.zeros(at.shape)
        for i, left, right in ((0, -np.inf, self.x[0]), (-1, self.x[-1], np.inf)):
            bounds = (np.maximum(at, left), right) if sign > 0.0 else (left, np.minimum(at, right))
            low, high = np.broadcast_arrays(*bounds)
            slope = self.b[..., [i]]
            start = self.s[..., [i]] - slope * self.x[i] + 0.5 * slope * slope - log_m
            # Distribution functions of the smaller side: on the right, of the mirror image.
            near, far = (high, low) if i == 0 else (-low, -high)
            shift = slope if i == 0 else -slope
            mass = np.exp(start + _log_cdf(near - shift)) - np.exp(start + _log_cdf(far - shift))
            probability = np.exp(_log_cdf(near)) - np.exp(_log_cdf(far))
            total += np.where(low < high, mass - kappa * probability, 0.0)
        return total


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
    strikes = np.atleast_1d(np.asarray(kappa, dtype=np.float64))
    share = np.asarray(weights, dtype=np.float64)[..., None]
    calls, puts = Law(knots, slopes).integrate_payoffs(strikes)
    return (share * calls).sum(axis=0), (share * puts).sum(axis=0)


def _cut_line(x: Array, longest: float) -> _Pieces:
    return _build_pieces(tuple(x.tolist()), longest)


@lru_cache(maxsize=16)
def _build_pieces(knots: tuple[float, ...], longest: float) -> _Pieces:
    """Pieces between the knots, at most ``longest`` wide unless that would be thousands."""
    x = np.array(knots)
    counts = np.ceil(np.diff(x) / longest).astype(np.int64)
    counts = np.maximum(1, counts if counts.sum() <= _MAX_PIECES else np.minimum(counts, 64))
    parts = [np.linspace(x[i], x[i + 1], n, endpoint=False) for i, n in enumerate(counts)]
    border = np.concatenate([*parts, x[-1:]])
    segment = np.repeat(np.arange(x.size - 1), counts)
    half = 0.5 * np.diff(border)[:, None]
    at = border[:-1, None] + half * (1.0 + _NODES)
    log_weight = np.log(half * _NODE_WEIGHTS) - 0.5 * at * at - _HALF_LOG_2PI
    t = at - x[segment][:, None]
    return _Pieces(border, segment, t, log_weight, np.exp(log_weight).sum(axis=-1))


def _sum_beyond(values: Array, piece: NDArray[np.int64], sign: float) -> Array:
    """Sums of (…, P) over the pieces above (sign 1) or below ``piece`` (J, L, m)."""
    turned = values[..., ::-1] if sign > 0.0 else values
    total = np.cumsum(turned, axis=-1)
    total = np.concatenate([np.zeros((*values.shape[:-1], 1)), total], axis=-1)
    count = values.shape[-1] - 1 - piece if sign > 0.0 else piece
    return total[count] if total.ndim == 1 else np.take_along_axis(total, count, -1)


def _log_cdf(z: ArrayLike) -> Array:
    """``log Φ``; the asymptotic series where erfc underflows."""
    z = np.asarray(z, dtype=np.float64)
    scaled = -math.sqrt(0.5) * np.maximum(z, -30.0)
    near = np.array([math.erfc(v) for v in scaled.ravel().tolist()]).reshape(z.shape)
    value = np.log(0.5 * near)
    if (z > -30.0).all():
        return value
    far = np.minimum(z, -30.0)
    u = 1.0 / (far * far)
    series = 1.0 - u * (1.0 - 3.0 * u * (1.0 - 5.0 * u * (1.0 - 7.0 * u * (1.0 - 9.0 * u))))
    return np.where(
        z > -30.0, value, -0.5 * far * far - _HALF_LOG_2PI - np.log(-far) + np.log(series)
    )
