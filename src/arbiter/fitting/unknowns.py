"""The unknowns of a fit in one vector, and block-tridiagonal matrices over them.

The vector holds the unknowns expiry by expiry: the log-slopes of each component, then (for two
components) the probability of the second. A matrix over them couples an expiry with its
neighbours only, and is kept as a band (:mod:`arbiter.fitting.banded`).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from arbiter.compiled import compiled
from arbiter.conventions import Array

_LINK_BANDWIDTH = 2  # diagonals on each side in the blocks that couple expiries: second differences


@dataclass(frozen=True, eq=False)
class UnknownLayout:
    """The places of the unknowns: L expiries of B unknowns each.

    ``B = n`` for one component and ``2n + 1`` for two.

    Attributes:
        knots: ``(n,)`` Gaussian coordinates of the slopes.
        expiry_count: L.
        components: 1 or 2.
    """

    knots: Array
    expiry_count: int
    components: int

    @property
    def knot_count(self) -> int:
        """The number n of knots."""
        return self.knots.size

    @property
    def block_size(self) -> int:
        """The number B of unknowns of one expiry."""
        return self.components * self.knots.size + self.components - 1

    @property
    def shape(self) -> tuple[int, int]:
        """``(L, B)``."""
        return self.expiry_count, self.block_size

    @property
    def size(self) -> int:
        """The number p of all unknowns."""
        return self.expiry_count * self.block_size

    @property
    def band_shape(self) -> tuple[int, int]:
        """``(p, w)`` of a matrix over the unknowns."""
        return self.size, self.block_size + _LINK_BANDWIDTH + 1

    def pack(self, log_slopes: Array, shares: Array) -> Array:
        """Unknowns ``(p,)`` from log-slopes ``(J, L, n)`` and shares ``(J-1, L)``."""
        return np.concatenate([*log_slopes, *shares[:, :, None]], axis=1).reshape(-1)

    def unpack(self, z: Array) -> tuple[Array, Array]:
        """Log-slopes ``(J, L, n)`` and shares ``(J-1, L)`` from unknowns ``(p,)``."""
        table, slopes = z.reshape(self.shape), self.components * self.knot_count
        split = (self.expiry_count, self.components, self.knot_count)
        return table[:, :slopes].reshape(split).transpose(1, 0, 2), table[:, slopes:].T

    def to_band(self, blocks: Array, links: Array | None = None) -> Array:
        """The band of a block-tridiagonal matrix.

        Args:
            blocks: ``(L, B, B)`` on the diagonal, or one block ``(1, B, B)`` for all expiries.
            links: ``(L-1, B, B)`` beside the diagonal; None for zeros.

        Returns:
            ``(p, w)``.
        """
        band = np.zeros(self.band_shape)
        if links is None:
            links = np.zeros((0, self.block_size, self.block_size))
        _fill_band(np.ascontiguousarray(blocks), np.ascontiguousarray(links), band)
        return band


@compiled
def _fill_band(blocks: Array, links: Array, band: Array) -> None:
    size = blocks.shape[1]
    for at in range(len(band) // size):
        own, rows = blocks[min(at, len(blocks) - 1)], band[at * size : (at + 1) * size]
        for column in range(size):
            for row in range(column, size):
                rows[column, row - column] = own[row, column]
    for at in range(len(links)):
        link, rows = links[at], band[at * size : (at + 1) * size]
        for column in range(size):
            low = max(column - _LINK_BANDWIDTH, 0)
            for row in range(low, min(column + _LINK_BANDWIDTH + 1, size)):
                rows[column, size + row - column] = link[row, column]
