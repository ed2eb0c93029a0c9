"""Pairs: a function of the library and its torch version in the lab, which have to be one.

A pair computes the same numbers on both sides from one seed. Its first side may be given inputs
that are a little off: the control, which has to be told apart.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from arbiter.operators.prior import reference_volatility
from arbiter_lab.differentiable.operators.prior import reference_volatility as torch_reference
from arbiter_lab.differentiable.operators.quote_tensors import Ragged, sort_quotes
from counts import count
from ragged_chains import random_chain, to_rows

Sides = tuple[list[Any], list[Any]]


class Pair(NamedTuple):
    """A function on both sides.

    Attributes:
        compute: From a seed and a shift of the first side's inputs to both sides' numbers.
        error: Up to which they are equal, absolutely; beside it 1e-9 of a number.
        shift: Of the control.
    """

    compute: Callable[[int, float], Sides]
    error: float
    shift: float = 1e-3


def largest_gap(sides: Sides, relative: float = 1e-9) -> float:
    """Largest difference of two sides beyond a share of a number; infinite where one has none."""
    gaps = []
    for one, other in zip(*sides, strict=True):
        wanted = other.detach().numpy() if isinstance(other, Tensor) else np.asarray(other)
        assert np.shape(one) == wanted.shape
        gap = np.abs(one - wanted.astype(np.float64)) - relative * np.abs(wanted)
        gaps.append(float(np.where(np.isfinite(gap), gap, np.inf).max()))
    return max(gaps)


def check_pair(pair: Pair) -> None:
    """Both sides are one function, and a side whose inputs are off is told apart."""
    with torch.no_grad():
        for seed in range(count(full=1000, reduced=22)):
            assert largest_gap(pair.compute(seed, 0.0)) < pair.error, seed
        off = [largest_gap(pair.compute(seed, pair.shift)) for seed in range(6)]
    assert max(off) > 3.0 * pair.error


def sparse_chain(seed: int) -> Ragged:
    """Three chains: one with a lone quote in a slice, others with slices without any."""
    quotes = random_chain(seed, chains=3)
    quotes.quoted[1, 2:] = False
    quotes.quoted[2, 0] = False
    quotes.quoted[0, 1, 1:] = False
    return sort_quotes(quotes)


def scaled_sides(seed: int, shift: float = 0.0, calm: float = 1.0) -> tuple[Any, Any]:
    """Chains in their own units, on both sides."""
    quotes = sparse_chain(seed)
    theirs = torch_reference.scaled(quotes)
    ours = reference_volatility.scaled(to_rows(quotes))
    return (
        ours._replace(u=calm * ours.u + shift),
        theirs._replace(u=calm * theirs.u),
    )
