"""Kriging of quotes in one row: :func:`..prior.gaussian_process.kriged` without its padding."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from arbiter.compiled import compiled
from arbiter.conventions import Array
from arbiter.operators.prior import gaussian_process
from arbiter.operators.prior.gaussian_process import CLOCK, CLOCKS, STRIKES, ZETA, Kriged
from arbiter.operators.prior.reference_volatility import MAX_LOG_VOLATILITY_RATIO
from arbiter.operators.prior.star_order_projection import Smile
from arbiter.operators.quick.bid_ask_likelihood import Near, Quoted, posterior, read
from arbiter.operators.quick.elementary import log
from arbiter.operators.quick.flat import Flat
from arbiter.operators.quick.slice_offsets import Belief, Fan
from arbiter.operators.quick.star_order_projection import Polish


class Kriging:
    """Kriging at given heads.

    Args:
        place: ``(H,)`` of the heads.
    """

    def __init__(self, place: Tensor) -> None:
        self.place = place.double()
        self.heads = near_splines(self.place.numpy(), ZETA, STRIKES)
        factor = gaussian_process.factor(torch.device("cpu"))
        self.factor = np.ascontiguousarray(factor.movedim(0, -1).numpy())  # (NW, d, NZ)

    def __call__(self, batch: Flat) -> tuple[Kriged, Polish]:
        """The reference of a batch, in float64, and how its smile is priced."""
        total = batch.chain.total.double()
        B, L = total.shape
        left, basis = near_splines(batch.zeta.numpy(), ZETA, STRIKES)
        clock = near_splines(total.numpy().ravel(), CLOCK, CLOCKS)
        u, half = batch.u.double().numpy(), torch.exp(batch.noise.double()).numpy()
        quotes = Quoted(batch.ends, Near(left, basis), u, half)
        smile, doubt = np.empty((2, B, L, len(self.place)))
        _guesses(quotes, clock, self.factor, self.heads, smile, doubt)
        seen = batch.chain.quoted.any(-1)
        found = Smile(torch.from_numpy(smile), torch.from_numpy(doubt), self.place, total, seen)
        polish = Polish(found)
        return Kriged(found.u, found.doubt, *polish.transport()), polish


@compiled
def _guesses(
    quotes: Quoted, clock: Near, factor: Array, heads: Near, smile: Array, doubt: Array
) -> None:
    """Smiles ``(B, L, H)`` and logarithms of their standard errors, chain by chain."""
    for i in range(len(smile)):
        L = smile.shape[1]
        own = quotes.ends[i * L : (i + 1) * L + 1]
        at = slice(own[0], own[L])
        near = Near(quotes.near.left[at], quotes.near.basis[at])
        chain = Quoted(own - own[0], near, quotes.u[at], quotes.half[at])
        belief = posterior(_fan(i * L, L, clock, factor), chain)
        _at_heads(belief, heads, smile[i], doubt[i])


@compiled
def _at_heads(belief: Belief, heads: Near, smile: Array, doubt: Array) -> None:
    """``(L, H)`` smiles and logarithms of their standard errors at the heads."""
    for each in range(len(smile)):
        value, variance = smile[each], doubt[each]
        read(belief, Near(heads.left + each * STRIKES, heads.basis), value, variance)
        for h in range(value.size):
            value[h] = min(max(value[h], -MAX_LOG_VOLATILITY_RATIO), MAX_LOG_VOLATILITY_RATIO)
            variance[h] = 0.5 * log(max(variance[h], gaussian_process.MIN_VARIANCE))


@compiled
def _fan(first: int, L: int, clock: Near, factor: Array) -> Fan:
    """The splines along strikes of slices, from the first."""
    _, d, _ = factor.shape
    by = np.zeros((d, L * STRIKES))
    for each in range(L):
        left, basis = clock.left[first + each], clock.basis[first + each]
        a, b, c, e = factor[left], factor[left + 1], factor[left + 2], factor[left + 3]
        for j in range(d):
            for at in range(STRIKES):
                found = basis[0] * a[j, at] + basis[1] * b[j, at]
                by[j, each * STRIKES + at] = found + basis[2] * c[j, at] + basis[3] * e[j, at]
    return Fan(by, np.arange(L + 1) * STRIKES)


def near_splines(x: Array, ends: tuple[float, float], count: int) -> Near:
    """The first of the four cubic B-splines that are not zero at x ``(N,)``, and all ``(N, 4)``."""
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
