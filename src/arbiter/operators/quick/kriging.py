"""Kriging of quotes in one row: :func:`arbiter.operators.kriging.kriged` without its padding."""

from __future__ import annotations

import math

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from arbiter.compiled import compiled
from arbiter.operators import kriging
from arbiter.operators.kriging import STRIKES, ZETA, Kriged, along_clock
from arbiter.operators.polish import Smile
from arbiter.operators.quick.flat import Flat
from arbiter.operators.quick.polish import Polish
from arbiter.operators.quick.posterior import Quoted, posterior, read
from arbiter.operators.reference import FARTHEST

Array = NDArray[np.float64]
Indices = NDArray[np.int64]


class Kriging:
    """Kriging at given heads.

    Args:
        place: ``(H,)`` of the heads.
    """

    def __init__(self, place: Tensor) -> None:
        self.place = place.double()
        self.heads = near_splines(self.place.numpy(), ZETA, STRIKES)

    def __call__(self, batch: Flat) -> tuple[Kriged, Polish]:
        """The reference of a batch, in float64, and how its smile is priced."""
        total = batch.chain.total.double()
        left, basis = near_splines(batch.zeta.numpy(), ZETA, STRIKES)
        ends = np.concatenate([[0], np.cumsum(batch.counts)])
        half = torch.exp(batch.noise.double()).numpy()
        quotes = Quoted(ends, left, basis, batch.u.double().numpy(), half)
        splines = np.ascontiguousarray(along_clock(total).movedim(-1, 1).flatten(2).numpy())
        found = _kriged(splines, quotes, total.shape[1], *self.heads)
        smile, doubt = (torch.from_numpy(part) for part in found)
        seen = batch.chain.quoted.any(-1)
        polish = Polish(Smile(smile, doubt, self.place, total, seen))
        return Kriged(smile, doubt, *polish.transport()), polish


@compiled
def _kriged(
    splines: Array, quotes: Quoted, L: int, left: Indices, basis: Array
) -> tuple[Array, Array]:
    """``(B, L, H)`` smiles and logarithms of their standard errors at the heads."""
    B, H = len(splines), left.size
    smile, doubt = np.empty((B, L, H)), np.empty((B, L, H))
    for chain in range(B):
        ends = quotes.ends[chain * L : (chain + 1) * L + 1]
        here = slice(ends[0], ends[L])
        own = Quoted(
            ends - ends[0],
            quotes.left[here],
            quotes.basis[here],
            quotes.u[here],
            quotes.half[here],
        )
        belief = posterior(splines[chain], own)
        for each in range(L):
            value, variance = smile[chain, each], doubt[chain, each]
            read(belief, each * STRIKES, left, basis, value, variance)
            for h in range(H):
                value[h] = min(max(value[h], -FARTHEST), FARTHEST)
                variance[h] = 0.5 * math.log(max(variance[h], kriging._LEAST_VARIANCE))
    return smile, doubt


def near_splines(
    x: Array, ends: tuple[float, float], count: int
) -> tuple[NDArray[np.int64], Array]:
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
    return left, basis
