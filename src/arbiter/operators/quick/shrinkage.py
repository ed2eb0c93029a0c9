"""How far a proposal moves the smile, and is from the quotes, compiled: :mod:`..prior.shrinkage`.

Shapes: B chains of L slices, H heads, n knots, N quotes of all chains.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from arbiter.compiled import compiled
from arbiter.conventions import Array
from arbiter.operators.network.measure_gate import Gate
from arbiter.operators.prior import shrinkage
from arbiter.operators.prior.gaussian_process import Kriged
from arbiter.operators.prior.shrinkage import Trusted, share
from arbiter.operators.quick.elementary import exp
from arbiter.operators.quick.flat import Flat

Indices = NDArray[np.int64]


def trusted(
    proposal: Tensor, guess: Kriged, quotes: Flat, gate: Gate, short: tuple[Tensor, Tensor]
) -> Trusted:
    """As :func:`..prior.shrinkage.trusted`."""
    off, says = short
    B = len(proposal)
    left, between = gate.between(quotes.zeta)
    found = torch.empty(3, B, dtype=torch.float64)
    moved, missed, strained = found
    smiles = (off, guess.miss, guess.doubt, says, moved, strained)
    _moved(*(x.numpy() for x in smiles))
    seen = (left, between, quotes.u, quotes.noise, missed)
    _missed((guess.smile - off).numpy(), quotes.ends, *(x.numpy() for x in seen))
    part = share(moved, missed)[:, None, None]
    return Trusted(guess.start + part * (proposal - guess.start), moved, missed, strained)


@compiled
def _moved(
    off: Array, short: Array, doubt: Array, says: Array, moved: Array, strained: Array
) -> None:
    """``(B,)`` how far a proposal is from the start, and the start from the smile, in errors."""
    B, L, H = off.shape
    for i in range(B):
        counts = far = kept = 0.0
        for each in range(L):
            for h in range(H):
                at = (i, each, h)
                if says[at] > 0.0:
                    error, square = (
                        exp(2.0 * doubt[at]) + shrinkage.MIN_REFERENCE_ERROR**2,
                        short[at] ** 2,
                    )
                    far += says[at] * (off[at] - short[at]) ** 2 / (error + square)
                    kept += says[at] * square / error
                    counts += says[at]
        moved[i] = math.sqrt(far / max(counts, shrinkage.MIN_WEIGHT_SUM))
        strained[i] = math.sqrt(kept / max(counts, shrinkage.MIN_WEIGHT_SUM))


@compiled
def _missed(
    smile: Array,
    ends: Indices,
    left: Indices,
    between: Array,
    u: Array,
    noise: Array,
    missed: Array,
) -> None:
    """``(B,)`` how far smiles ``(B, L, H)`` are from the quotes, in half-spreads."""
    B, L, _ = smile.shape
    for i in range(B):
        squares = 0.0
        for each in range(L):
            nodes = smile[i, each]
            for at in range(ends[i * L + each], ends[i * L + each + 1]):
                low, high = nodes[left[at]], nodes[left[at] + 1]
                wide = exp(2.0 * noise[at]) + shrinkage.MIN_LOG_IV_TOLERANCE**2
                far = (u[at] - low - between[at] * (high - low)) ** 2 / wide
                squares += (
                    far
                    if not far > shrinkage.MAX_MISS_HALF_SPREADS**2
                    else shrinkage.MAX_MISS_HALF_SPREADS**2
                )  # a NaN stays
        missed[i] = math.sqrt(squares / max(ends[(i + 1) * L] - ends[i * L], 1))
