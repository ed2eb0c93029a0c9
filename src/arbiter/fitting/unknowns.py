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

LINK_BANDWIDTH = 2  # diagonals on each side in the blocks that couple expiries: second differences


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
        return self.size, self.block_size + LINK_BANDWIDTH + 1

    def pack(self, log_slopes: Array, shares: Array) -> Array:
        """Unknowns ``(p,)`` from log-slopes ``(J, L, n)`` and shares ``(J-1, L)``."""
        return np.concatenate([*log_slopes, *shares[:, :, None]], axis=1).reshape(-1)

    def unpack(self, z: Array) -> tuple[Array, Array]:
        """Log-slopes ``(J, L, n)`` and shares ``(J-1, L)`` from unknowns ``(p,)``."""
        table, slopes = z.reshape(self.shape), self.components * self.knot_count
        split = (self.expiry_count, self.components, self.knot_count)
        return table[:, :slopes].reshape(split).transpose(1, 0, 2), table[:, slopes:].T

    def decode(self, z: Array) -> tuple[Array, Array]:
        """Slopes ``(J, L, n)`` and weights ``(J, L)`` of the components."""
        logs, shares = self.unpack(z)
        rest = 1.0 - shares.sum(axis=0)
        return np.exp(logs), np.concatenate([rest[None], shares])

    def to_band(self, blocks: Array) -> Array:
        """The band ``(p, w)`` of a block-diagonal matrix.

        Args:
            blocks: ``(L, B, B)``, or one block ``(1, B, B)`` for all expiries.
        """
        band, size = np.zeros(self.band_shape), self.block_size
        table = band.reshape(*self.shape, -1)
        for off in range(size):
            table[:, : size - off, off] = np.diagonal(blocks, -off, 1, 2)
        return band

    def add_spread_block(
        self, block: Array, on: Array, between: Array, weight: float, band: Array
    ) -> None:
        """Add ``weight`` times ``Σ on_ℓ u_ℓᵀ C u_ℓ − 2 Σ between_ℓ u_ℓᵀ C u_{ℓ+1}`` to a band.

        Args:
            block: ``(n, n)`` C, with up to two diagonals on each side; ``u_ℓ`` are the log-slopes
                of one component, and the sums are over all components.
            on: ``(L,)``.
            between: ``(L-1,)``.
            weight: Of the sums.
            band: ``(p, w)``.
        """
        for j in range(self.components):
            place = j * self.knot_count, self.block_size
            _add_spread_block(block, (on, between), weight, place, band)


@compiled
def _add_spread_block(
    block: Array,
    factors: tuple[Array, Array],
    weight: float,
    place: tuple[int, int],
    band: Array,
) -> None:
    """``place`` is the first unknown of the component in an expiry, and the size of an expiry."""
    (on, between), (first, size) = factors, place
    for at in range(on.size):
        rows = band[at * size + first : at * size + first + len(block)]
        for column in range(len(block)):
            low = max(column - LINK_BANDWIDTH, 0)
            for row in range(low, min(column + LINK_BANDWIDTH + 1, len(block))):
                if row >= column:
                    rows[column, row - column] += weight * (on[at] * block[row, column])
                if at < between.size:
                    rows[column, size + row - column] -= weight * (between[at] * block[row, column])
