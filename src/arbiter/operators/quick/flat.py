"""Quotes of a batch in one row without padding.

What a forward pass on the CPU works with (:mod:`..forward_pass`): N quotes
of all chains, M = B·L slices.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from arbiter.compiled import compiled
from arbiter.conventions import Array
from arbiter.operators.prior.reference_volatility import Scaled

Indices = NDArray[np.int64]
Flags = NDArray[np.bool_]


class Flat(NamedTuple):
    """Quotes in one row.

    Attributes:
        chain: The batch as it came, padded.
        ends: ``(M + 1,)`` where the quotes of each slice begin, and the last end.
        row: ``(N,)`` slice of each quote, nondecreasing.
        zeta: ``(N,)`` :class:`~arbiter.operators.prior.reference_volatility.Scaled` has what these
            are.
        u: ``(N,)``
        noise: ``(N,)``
        spacing: ``(N,)``
        width: ``(N,)``
    """

    chain: Scaled
    ends: Indices
    row: Tensor
    zeta: Tensor
    u: Tensor
    noise: Tensor
    spacing: Tensor
    width: Tensor


def flat(chain: Scaled) -> Flat:
    """A batch without its padding, in float64."""
    padded = (chain.zeta, chain.u, chain.noise, chain.spacing, chain.width)
    ends, row, values = _flat(chain.quoted.numpy(), tuple(part.double().numpy() for part in padded))
    zeta, u, noise, spacing, width = torch.from_numpy(values)
    return Flat(chain, ends, torch.from_numpy(row), zeta, u, noise, spacing, width)


@compiled
def _flat(quoted: Flags, padded: tuple[Array, ...]) -> tuple[Indices, Indices, Array]:
    """Ends of slices, the slice of each quote, and what is said of it."""
    B, L, S = quoted.shape
    ends = np.zeros(B * L + 1, np.int64)
    for i in range(B):
        for each in range(L):
            slot = i * L + each
            ends[slot + 1] = ends[slot]
            for s in range(S):
                ends[slot + 1] += quoted[i, each, s]
    row, values = np.empty(ends[-1], np.int64), np.empty((len(padded), ends[-1]))
    for i in range(B):
        for each in range(L):
            at = ends[i * L + each]
            for s in range(S):
                if quoted[i, each, s]:
                    row[at] = i * L + each
                    for part in range(len(padded)):
                        values[part, at] = padded[part][i, each, s]
                    at += 1
    return ends, row, values
