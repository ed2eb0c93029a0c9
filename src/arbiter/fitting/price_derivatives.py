"""Prices of ragged quotes and their derivatives by the slopes, in closed form and in NumPy.

The decoder of :mod:`arbiter.pricing.transport` prices with every digit; a fit needs far fewer
digits, many times over. Here (docs/theory.md, section 2)

    call = R(x*)/M − κ Φ(−x*),   R(x) = ∫_x^∞ e^s φ,   M = R(−∞),

and puts from the left. At fixed x* (the envelope theorem) the derivative by a slope needs only
the integrals of e^s φ against 1, t − t²/2w and t²/2w over segments, and cumulative sums.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import ndtr

from arbiter.conventions import Array
from arbiter.pricing.knots import Knots

_NODES_PER_SEGMENT = 6  # relative error near 1e-11 on segments of a third
_ROWS_AT_ONCE = 1024  # rows of a Jacobian that are computed together
_INV_ROOT_2PI = 1.0 / np.sqrt(2.0 * np.pi)


@dataclass(frozen=True, eq=False)
class KnotQuadrature:
    """The line of Z, cut at the knots, with the constants of the quadrature."""

    x: Array  # (N,) cut knots
    cut: Array  # (N, n) slopes at the cut knots from slopes at the given ones
    rise: Array  # (N, N) transport at the cut knots from the slopes there, s(0) = 0
    width: Array  # (N-1,)
    node: Array  # (q,) on [0, 1]
    weight: Array  # (q,)
    moments: Array  # (q, 3) weights of 1, (t − t²/2w)/w and t²/2w² on a whole segment
    gauss: Array  # (N-1, q) w φ(x) at the nodes

    @staticmethod
    def from_knots(knots: Array) -> KnotQuadrature:
        """The line of ``knots``, computed once for each set of knots."""
        return _compute_quadrature(tuple(knots.tolist()))


@lru_cache(maxsize=16)
def _compute_quadrature(key: tuple[float, ...]) -> KnotQuadrature:
    knots = np.array(key)
    cut = Knots.from_tensor(torch.from_numpy(knots), torch.empty(0, dtype=torch.float64))
    x = cut.x.numpy()
    count, width = x.size, np.diff(x)
    source, blend = cut.source.numpy(), cut.blend.numpy()
    blended = np.zeros((count, knots.size))
    at = np.arange(count)
    blended[at, source] = 1.0 - blend
    blended[at, np.minimum(source + 1, knots.size - 1)] += blend
    steps = np.zeros((count, count))
    steps[at[1:], at[:-1]] = steps[at[1:], at[1:]] = 0.5 * width
    rise = np.cumsum(steps, axis=0)
    rise -= rise[cut.zero].copy()
    raw, weight = np.polynomial.legendre.leggauss(_NODES_PER_SEGMENT)
    node, weight = 0.5 * (raw + 1.0), 0.5 * weight
    late = 0.5 * node * node
    moments = np.stack([weight, weight * (node - late), weight * late], axis=1)
    inner = x[:-1, None] + width[:, None] * node
    gauss = _INV_ROOT_2PI * width[:, None] * np.exp(-0.5 * inner * inner)
    return KnotQuadrature(x, blended, rise, width, node, weight, moments, gauss)


class SliceIntegrals(NamedTuple):
    """Integrals of ``S`` slices that do not depend on strikes."""

    b: Array  # (S, N) slopes at the cut knots
    s: Array  # (S, N) transport there
    below: Array  # (S, N) ∫_{−∞}^{x_j} e^s φ
    above: Array  # (S, N) ∫_{x_j}^∞ e^s φ
    mean: Array  # (S,)
    parts: Array  # (S, N+1, 3) moments by segment, the tails first and last
    left: Array  # (S,) e^{s_1 − b_1 x_1 + b_1²/2}, the scale of the left tail
    right: Array  # (S,)


class QuotePrices(NamedTuple):
    """Prices of quotes, and the integrals that their derivatives need."""

    price: Array  # (m,)
    segment: NDArray[np.int64]  # (m,) of N+1, the tails first and last
    moments: Array  # (3, m) of the part of the segment on the far side of the strike
    share: Array  # (m,) ∫ of e^s φ beyond the strike over M


class OtmPricer:
    """Out-of-the-money prices of quotes ``(m,)``, each on one of ``S`` slices.

    Args:
        line: The cut line.
        slice_of: ``(m,)`` slice of each quote, nondecreasing.
        k: ``(m,)`` log-moneyness.
    """

    def __init__(self, line: KnotQuadrature, slice_of: NDArray[np.int64], k: Array) -> None:
        self.line, self.slice_of, self.k = line, slice_of, k
        self.call = k >= 0.0
        self.sign = np.where(self.call, 1.0, -1.0)
        self.kappa = np.exp(k)
        count = line.x.size
        n = line.cut.shape[1]
        self._row = slice_of * count
        self._base = np.clip(np.arange(count + 1) - 1, 0, count - 1)  # knot that a part starts at
        self._corner = (2 * slice_of + np.where(self.call, 0, 1)) * (count + 1)
        self._first = np.arange(k.size) * n
        self._whole = count == n  # no segment had to be cut

    def integrate_slices(self, slopes: Array) -> SliceIntegrals:
        """Segment integrals of slices with ``slopes`` of shape ``(S, n)``."""
        line = self.line
        b = slopes @ line.cut.T  # (S, N)
        s = b @ line.rise.T
        w = line.width
        t = w[:, None] * line.node  # (N-1, q)
        half = 0.5 * (np.diff(b, axis=1) / w)[:, :, None]
        e = np.exp(s[:, :-1, None] + t * (b[:, :-1, None] + half * t)) * line.gauss
        inner = e @ line.moments  # (S, N-1, 3)
        inner[:, :, 1:] *= w[:, None]
        parts = np.empty((b.shape[0], line.x.size + 1, 3))
        parts[:, 1:-1] = inner
        x1, xn, b1, bn = line.x[0], line.x[-1], b[:, 0], b[:, -1]
        left = np.exp(s[:, 0] + b1 * (0.5 * b1 - x1))
        right = np.exp(s[:, -1] + bn * (0.5 * bn - xn))
        parts[:, 0] = _tail(left, b1, x1, x1, -1.0).T
        parts[:, -1] = _tail(right, bn, xn, xn, 1.0).T
        mass = parts[:, :, 0]
        below = np.cumsum(mass[:, :-1], axis=1)
        above = np.cumsum(mass[:, :0:-1], axis=1)[:, ::-1]
        return SliceIntegrals(b, s, below, above, below[:, -1] + mass[:, -1], parts, left, right)

    def price_quotes(self, slices: SliceIntegrals, moved: Array | None = None) -> QuotePrices:
        """Prices of all quotes.

        Args:
            slices: From :meth:`integrate_slices`.
            moved: ``(m,)`` log-moneyness of the same options after a move of the forward. Each
                stays the call or put that it was. None for no move.
        """
        line, count = self.line, self.line.x.size
        k, kappa = (self.k, self.kappa) if moved is None else (moved, np.exp(moved))
        log_mean = np.log(slices.mean)
        target = k + log_mean[self.slice_of]
        # one search for all slices: each is lifted above the one before
        lift = (float(np.abs(slices.s).max()) + float(np.abs(target).max(initial=0.0)) + 1.0) * 2.0
        raised = slices.s + lift * np.arange(slices.s.shape[0])[:, None]
        found = np.searchsorted(raised.ravel(), target + lift * self.slice_of, side="right")
        segment = found - self._row  # 0 and N are the tails
        j = np.clip(segment - 1, 0, count - 2)
        flat = self._row + j
        b, s = slices.b.ravel(), slices.s.ravel()
        b0, b1, w = b[flat], b[flat + 1], line.width[j]
        climb = np.clip(target - s[flat], 0.0, None)
        bend = (b1 - b0) / w
        root = np.sqrt(np.maximum(b0 * b0 + 2.0 * bend * climb, 0.0))
        t = np.minimum(2.0 * climb / (b0 + root), w)
        x = line.x[j] + t
        low, high = segment == 0, segment == count
        tails = low | high
        some = bool(tails.any())
        if some:
            first, last = slices.b[self.slice_of, 0], slices.b[self.slice_of, -1]
            x = np.where(low, line.x[0] + (target - slices.s[self.slice_of, 0]) / first, x)
            x = np.where(high, line.x[-1] + (target - slices.s[self.slice_of, -1]) / last, x)
        # the part of the segment from the strike outwards: t0 + node · room
        t0 = np.where(self.call, t, 0.0)
        room = np.where(self.call, w - t, t)
        at = t0 + line.node[:, None] * room  # (q, m)
        place = line.x[j] + at
        e = s[flat] + at * (b0 + (0.5 * bend) * at) - 0.5 * place * place
        np.exp(e, out=e)
        e *= (_INV_ROOT_2PI * room) * line.weight[:, None]
        moments = np.empty((3, x.size))
        moments[0] = e.sum(axis=0)
        e *= at
        first_moment = e.sum(axis=0)
        e *= at
        moments[2] = e.sum(axis=0) / (2.0 * w)
        moments[1] = first_moment - moments[2]
        beyond = np.where(self.call, slices.above.ravel()[flat + 1], slices.below.ravel()[flat])
        if some:
            self._price_beyond_knots(slices, np.flatnonzero(tails), x, high, moments, beyond)
        share = (moments[0] + beyond) / slices.mean[self.slice_of]
        price = self.sign * (share - kappa * ndtr(-self.sign * x))
        return QuotePrices(price, segment, moments, share)

    def _price_beyond_knots(
        self,
        slices: SliceIntegrals,
        where: NDArray[np.int64],
        x: Array,
        high: NDArray[np.bool_],
        moments: Array,
        beyond: Array,
    ) -> None:
        """Write closed forms for strikes beyond the end knots into ``moments`` and ``beyond``."""
        line, of = self.line, self.slice_of[where]
        right, call = high[where], self.call[where]
        scale = np.where(right, slices.right[of], slices.left[of])
        b = np.where(right, slices.b[of, -1], slices.b[of, 0])
        end = np.where(right, line.x[-1], line.x[0])
        outward = right == call
        side = np.where(right, 1.0, -1.0)
        tail = _tail(scale, b, end, x[where], side)  # beyond the strike, away from the money
        whole = np.where(right, slices.parts[of, -1].T, slices.parts[of, 0].T)
        # looking back across the end knot: the rest of the tail, then the whole line
        moments[:, where] = np.where(outward, tail, whole - tail)
        back = np.where(right, slices.below[of, -1], slices.above[of, 0])
        beyond[where] = np.where(outward, 0.0, back)

    def jacobian(self, slices: SliceIntegrals, prices: QuotePrices, scale: Array) -> Array:
        """Derivatives ``(m, n)`` of the prices by the slopes of their slice, times ``scale``."""
        line, count = self.line, self.line.x.size
        parts = slices.parts
        by = parts[:, :, :1] * line.rise[self._base]  # (S, N+1, N) derivative of each part
        at = np.arange(count - 1)
        by[:, at + 1, at] += parts[:, 1:-1, 1]
        by[:, at + 1, at + 1] += parts[:, 1:-1, 2]
        by[:, 0, 0] += parts[:, 0, 1]
        by[:, count, count - 1] += parts[:, -1, 1]
        # everything right of a part, and everything left of it: (S, 2, N+1, N)
        around = np.zeros((by.shape[0], 2, count + 1, count))
        np.cumsum(by[:, :0:-1], axis=1, out=around[:, 0, -2::-1])
        np.cumsum(by[:, :-1], axis=1, out=around[:, 1, 1:])
        total = around[:, 1, -1] + by[:, -1]  # (S, N)
        rise = line.rise
        if not self._whole:
            around, total, rise = around @ line.cut, total @ line.cut, rise @ line.cut
        n, j = line.cut.shape[1], prices.segment
        rows, rises, corner = np.empty((self.k.size, n)), rise[self._base], self._corner + j
        table, other = around.reshape(-1, n), np.empty((_ROWS_AT_ONCE, n))
        for first in range(0, self.k.size, _ROWS_AT_ONCE):  # so many rows stay in the cache
            some = slice(first, first + _ROWS_AT_ONCE)
            part = rows[some]
            term = other[: len(part)]
            np.take(table, corner[some], axis=0, out=part, mode="clip")
            np.take(rises, j[some], axis=0, out=term, mode="clip")
            term *= prices.moments[0][some, None]
            part += term
            np.take(total, self.slice_of[some], axis=0, out=term, mode="clip")
            term *= prices.share[some, None]
            part -= term
        start = self._base[j]
        end = np.minimum(start + 1, count - 1)
        if self._whole:
            rows.ravel()[self._first + start] += prices.moments[1]
            rows.ravel()[self._first + end] += prices.moments[2]
        else:
            rows += prices.moments[1][:, None] * line.cut[start]
            rows += prices.moments[2][:, None] * line.cut[end]
        rows *= (scale * self.sign / slices.mean[self.slice_of])[:, None]
        return rows


def log_mean_gradient(line: KnotQuadrature, slices: SliceIntegrals) -> Array:
    """``(S, n)`` derivatives of ``log M`` by the slopes."""
    parts, count = slices.parts, line.x.size
    base = np.clip(np.arange(count + 1) - 1, 0, count - 1)
    total = parts[:, :, 0] @ line.rise[base]  # (S, N)
    total[:, :-1] += parts[:, 1:-1, 1]
    total[:, 1:] += parts[:, 1:-1, 2]
    total[:, 0] += parts[:, 0, 1]
    total[:, -1] += parts[:, -1, 1]
    return np.asarray(total @ line.cut / slices.mean[:, None])


def _tail(scale: Array, b: Array, end: Array, x: Array, side: Array | float) -> Array:
    """``(3, …)`` moments of ``e^s φ`` beyond ``x``: against 1, against ``x − end``, and zero."""
    z = side * (b - x)
    phi = _INV_ROOT_2PI * np.exp(-0.5 * z * z)
    mass = scale * ndtr(z)
    first = (b - end) * mass + side * scale * phi
    return np.stack([mass, first, np.zeros_like(mass)])
