"""Quotes of a batch in one row without padding, and sums over the slices they belong to.

What a forward pass on the CPU works with (:mod:`arbiter.operators.inference`): N quotes of all
chains, M = B·L slices.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import csr_array
from torch import Tensor

from arbiter.operators.reference import Scaled


class Flat(NamedTuple):
    """Quotes in one row.

    Attributes:
        chain: The batch as it came, padded.
        counts: ``(M,)`` quotes of each slice.
        row: ``(N,)`` slice of each quote, nondecreasing.
        zeta: ``(N,)`` :class:`~arbiter.operators.reference.Scaled` has what these are.
        u: ``(N,)``
        noise: ``(N,)``
        spacing: ``(N,)``
        width: ``(N,)``
        slices: ``(M, N)`` ones where a quote belongs to a slice, sparse.
        weighed: The same with room for other weights.
    """

    chain: Scaled
    counts: NDArray[np.int64]
    row: Tensor
    zeta: Tensor
    u: Tensor
    noise: Tensor
    spacing: Tensor
    width: Tensor
    slices: csr_array
    weighed: csr_array

    def sums(self, values: Tensor, weight: Tensor | None = None) -> Tensor:
        """``(M, K)`` sums over slices of values ``(N, K)``, each times its weight ``(N,)``."""
        by = self.slices
        if weight is not None:
            by = self.weighed
            by.data = weight.numpy()
        return torch.from_numpy(by @ values.numpy())


def flat(chain: Scaled, dtype: torch.dtype) -> Flat:
    """A batch without its padding; sums are of the given type."""
    count = chain.quoted.sum(-1).flatten().numpy()  # (M,)
    row = torch.from_numpy(np.repeat(np.arange(count.size), count))
    at = chain.quoted.flatten().nonzero()[:, 0]
    ends = np.zeros(count.size + 1, np.int32)
    np.cumsum(count, out=ends[1:])
    ones = torch.ones(row.numel(), dtype=dtype).numpy()
    belongs = (ones, np.arange(ones.size, dtype=np.int32), ends)
    slices = csr_array(belongs, shape=(count.size, ones.size))
    weighed = csr_array(belongs, shape=slices.shape)
    return Flat(
        chain,
        count,
        row,
        zeta=chain.zeta.flatten()[at],
        u=chain.u.flatten()[at],
        noise=chain.noise.flatten()[at],
        spacing=chain.spacing.flatten()[at],
        width=chain.width.flatten()[at],
        slices=slices,
        weighed=weighed,
    )
