"""Kriging of quotes in one row: as :func:`arbiter.operators.kriging.kriged`, without its padding.

Of the cubic splines at a quote four are not zero: its row of Φ is a sum of four.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from arbiter.operators.flat import Flat
from arbiter.operators.intervals import posterior
from arbiter.operators.kriging import STRIKES, ZETA, Known, Kriged, along_clock, at_heads

Array = NDArray[np.float64]


class Kriging:
    """Kriging at given heads.

    Args:
        place: ``(H,)`` of the heads.
    """

    def __init__(self, place: Tensor) -> None:
        self.place = place.double()

    def __call__(self, batch: Flat) -> Kriged:
        """The reference of a batch, in float64."""
        chain = batch.chain
        B, L = chain.total.shape
        slices = along_clock(chain.total)  # (B, L, NZ, d)
        left, basis = near_splines(batch.zeta.numpy(), ZETA, STRIKES)  # (N,), (4, N)
        nodes = slices.flatten(0, 2)
        first = batch.row * STRIKES + torch.from_numpy(left)
        rows = nodes[first].mul_(torch.from_numpy(basis[0])[:, None])
        for i in range(1, 4):
            rows.addcmul_(nodes[first + i], torch.from_numpy(basis[i])[:, None])
        said = (rows, batch.u.double(), torch.exp(batch.noise.double()))
        many = torch.from_numpy(batch.counts).view(B, L).sum(1)
        return at_heads(Known(posterior(*_by_chain(said, many)), slices), chain, self.place)


def _by_chain(
    said: tuple[Tensor, Tensor, Tensor], many: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Rows, middles and half-lengths of all chains' quotes, padded to the longest chain."""
    longest = int(many.max())
    quoted = torch.arange(longest) < many[:, None]  # (B, N)
    if len(many) == 1:
        rows, u, half = (part[None] for part in said)
        return rows, u, half, quoted
    at = quoted.flatten().nonzero()[:, 0]
    rows, u, half = (
        part.new_zeros(quoted.numel(), *part.shape[1:]).index_copy_(0, at, part) for part in said
    )
    shape = quoted.shape
    return rows.view(*shape, -1), u.view(shape), half.view(shape) + ~quoted, quoted


def near_splines(
    x: Array, ends: tuple[float, float], count: int
) -> tuple[NDArray[np.int64], Array]:
    """The first of the four cubic B-splines that are not zero at x ``(N,)``, and all ``(4, N)``."""
    low, high = ends
    t = (np.clip(x, low, high) - low) * ((count - 3) / (high - low))
    left = np.fmin(np.fmax(t, 0.0), count - 4.0).astype(np.int64)  # a NaN is left to the values
    f = t - left
    g, ff = 1.0 - f, f * f
    basis = np.empty((4, x.size))
    basis[0] = g * g * g / 6.0
    basis[3] = ff * f / 6.0
    basis[1] = 2.0 / 3.0 - ff * (1.0 - 0.5 * f)
    basis[2] = 2.0 / 3.0 - g * g * (1.0 - 0.5 * g)
    return left, basis
