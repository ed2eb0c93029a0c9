"""Products with a map's weights, in pieces that a library of matrices computes by itself.

Libraries split a large product among threads, which wait for each other where chains are split
among ours, and whose number may change last digits. OpenBLAS, which NumPy brings, leaves a product
of up to 2¹⁸ multiplications to the thread that asks. Here all are of that size at most. They are
also quicker: rows of a piece stay in the nearest cache.
"""

from __future__ import annotations

from typing import Any, NamedTuple, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

Rough = NDArray[np.floating[Any]]  # in the precision of the maps
Kind = TypeVar("Kind", bound=Rough)

_MAX_MULTIPLICATIONS = 1 << 18
_ROWS, _COLUMNS = 16, 16  # rows of a piece, and what its columns are a multiple of


class LinearMap(NamedTuple):
    """A linear map as it is applied.

    Attributes:
        weight: ``(K, N)`` from inputs to outputs.
        bias: ``(N,)``, or None.
    """

    weight: Rough
    bias: Rough | None = None

    @staticmethod
    def from_weight(weight: Rough, bias: Rough | None = None) -> LinearMap:
        """A map from its matrix ``(N, K)``."""
        return LinearMap(np.ascontiguousarray(weight.T), bias)

    def __call__(self, x: Rough) -> Rough:
        """``(…, N)`` of inputs ``(…, K)``."""
        found = multiply(x.reshape(-1, x.shape[-1]), self.weight)
        if self.bias is not None:
            found += self.bias
        return found.reshape(*x.shape[:-1], found.shape[-1])


def multiply(x: Kind, weight: Rough) -> Kind:
    """``(M, N)`` products of ``(M, K)`` and ``(K, N)``, piece by piece."""
    (M, K), N = x.shape, weight.shape[1]
    out: Rough = np.empty((M, N), x.dtype)
    if M == 1:  # a single row would go another way, which splits sooner
        return cast(Kind, multiply(np.repeat(x, 2, axis=0), weight)[:1])
    if K * N * (_ROWS + 1) <= _MAX_MULTIPLICATIONS:  # all columns, and as many rows as fit
        high, wide = _MAX_MULTIPLICATIONS // (K * N) - 1, N
    else:
        high, wide = _ROWS, _MAX_MULTIPLICATIONS // ((_ROWS + 1) * K) // _COLUMNS * _COLUMNS
        wide = max(wide - _COLUMNS if N % max(wide, 1) == 1 else wide, _COLUMNS)
    rows, columns = M - M % high, N - N % wide
    if M - rows == 1:  # one row is taken with those before it
        rows -= high
    if rows and columns:
        pieces = x[:rows].reshape(-1, 1, high, K)
        parts = weight[:, :columns].reshape(K, -1, wide).transpose(1, 0, 2)
        tiles = out[:rows, :columns].reshape(-1, high, columns // wide, wide)
        np.matmul(pieces, parts, out=tiles.transpose(0, 2, 1, 3))
    if rows and columns < N:
        rest = out[:rows, columns:].reshape(-1, high, N - columns)
        np.matmul(x[:rows].reshape(-1, high, K), weight[:, columns:], out=rest)
    if rows < M:
        for first in range(0, N, wide):
            some = slice(first, first + wide)
            np.matmul(x[rows:], weight[:, some], out=out[rows:, some])
    return cast(Kind, out)
