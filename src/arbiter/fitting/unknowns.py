"""The unknowns of a fit in one vector, and block-tridiagonal matrices over them.

The vector holds the unknowns expiry by expiry: the log-slopes of each component, then (for two
components) the probability of the second. A matrix over them couples an expiry with its
neighbours only, so it is kept as blocks or in the lower banded form of LAPACK.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

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

    def pack(self, log_slopes: Array, shares: Array) -> Array:
        """Unknowns ``(p,)`` from log-slopes ``(J, L, n)`` and shares ``(J-1, L)``."""
        return np.concatenate([*log_slopes, *shares[:, :, None]], axis=1).reshape(-1)

    def unpack(self, z: Array) -> tuple[Array, Array]:
        """Log-slopes ``(J, L, n)`` and shares ``(J-1, L)`` from unknowns ``(p,)``."""
        table, slopes = z.reshape(self.shape), self.components * self.knot_count
        split = (self.expiry_count, self.components, self.knot_count)
        return table[:, :slopes].reshape(split).transpose(1, 0, 2), table[:, slopes:].T

    def to_band(self, blocks: Array, links: Array | None = None) -> Array:
        """The lower banded form of a block-tridiagonal matrix.

        Args:
            blocks: ``(L, B, B)`` on the diagonal, or one block ``(1, B, B)`` for all expiries.
            links: ``(L-1, B, B)`` beside the diagonal; None for zeros.

        Returns:
            ``(B+3, p)``.
        """
        (count, block), size = self.shape, self.size
        band = np.zeros((block + _LINK_BANDWIDTH + 1, size))
        entries, places = self._band_places
        rows = np.broadcast_to(blocks, (count, block, block)).reshape(count, -1)
        band.reshape(-1)[places] = rows[:, entries].ravel()
        if links is not None:
            table = band.reshape(-1, count, block)
            for shift, column in _iterate_link_diagonals(block):
                table[block + shift, :-1, column] = links[:, column + shift, column].T
        return band

    def to_blocks(self, band: Array) -> tuple[Array, Array]:
        """The blocks ``(L, B, B)`` and links ``(L-1, B, B)`` of a lower banded matrix."""
        count, block = self.shape
        table = band.reshape(-1, count, block)
        row, column = np.tril_indices(block)
        blocks = np.zeros((count, block, block))
        blocks[:, row, column] = table[row - column, :, column].T
        blocks[:, column, row] = blocks[:, row, column]
        links = np.zeros((count - 1, block, block))
        for shift, at in _iterate_link_diagonals(block):
            links[:, at + shift, at] = table[block + shift, :-1, at].T
        return blocks, links

    def multiply(self, blocks: Array, links: Array | None, change: Array) -> Array:
        """A block-tridiagonal matrix times a change ``(p,)`` of the unknowns."""
        table = change.reshape(self.shape)
        out: Array = np.matmul(blocks, table[:, :, None])[:, :, 0]
        if links is not None:
            out[1:] += np.matmul(links, table[:-1, :, None])[:, :, 0]
            out[:-1] += np.matmul(links, table[1:, :, None])[:, :, 0]  # the links are symmetric
        return out.reshape(-1)

    @cached_property
    def _band_places(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The lower entries of a block, and their places in the band for all blocks."""
        row, column = np.tril_indices(self.block_size)
        first = (row - column) * self.size + column
        places = (np.arange(self.expiry_count)[:, None] * self.block_size + first).ravel()
        return row * self.block_size + column, places


def inverse_blocks(blocks: Array, links: Array) -> tuple[Array, Array]:
    """Blocks of the inverse of a block-tridiagonal matrix: the diagonal ones and those above.

    Args:
        blocks: ``(L, B, B)``.
        links: ``(L-1, B, B)`` symmetric blocks beside them.
    """
    count = blocks.shape[0]
    left = np.empty_like(blocks)
    left[0] = np.linalg.inv(blocks[0])
    for i in range(1, count):
        edge = links[i - 1]
        left[i] = np.linalg.inv(blocks[i] - edge @ left[i - 1] @ edge)
    inner, beside = left.copy(), np.empty((count - 1, *blocks.shape[1:]))
    for i in range(count - 2, -1, -1):
        carried = left[i] @ links[i]
        beside[i] = -carried @ inner[i + 1]
        inner[i] -= beside[i] @ carried.T
    return inner, beside


def _iterate_link_diagonals(block: int) -> Iterator[tuple[int, NDArray[np.int64]]]:
    """Diagonals of the links that are not zero: the shift of each, and its columns."""
    for shift in range(-_LINK_BANDWIDTH, _LINK_BANDWIDTH + 1):
        yield shift, np.arange(max(0, -shift), block - max(0, shift))
