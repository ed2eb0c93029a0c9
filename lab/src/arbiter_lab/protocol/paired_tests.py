"""Two models on the same days: the mean of their difference, tested in two ways."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from arbiter.conventions import Array
from arbiter_lab.protocol.inference import (
    CONFIDENCE_LEVEL,
    Estimate,
    Method,
    automatic_lag,
    hac_mean,
)

DEFAULT_FLIPS = 9_999
_TIE_TOLERANCE = 1e-12  # of the sum of sizes: sums that differ by less are ties


@dataclass(frozen=True)
class Comparison:
    """Paired comparison of two models: first minus second, day by day.

    Attributes:
        difference: Mean difference, with interval and p-value.
        flip_p_value: P-value of the block sign-flip test, which estimates no variance.
        block: Days that are flipped together.
        blocks: Number of blocks; the smallest possible p-value is ``2^(1 − blocks)``.
        lower: Share of the days on which the first model is lower.
    """

    difference: Estimate
    flip_p_value: float
    block: int
    blocks: int
    lower: float

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as plain JSON values."""
        return asdict(self)


def same_days(
    first: Mapping[Hashable, float], second: Mapping[Hashable, float]
) -> tuple[Array, Array]:
    """Return the values of both models on the same days, in the order of the first.

    Raises:
        ValueError: If one of them lacks a day of the other. Dropping the day would let the model
            that refused it choose the days.
    """
    for one, other, name in ((first, second, "second"), (second, first, "first")):
        absent = [day for day in one if day not in other]
        if absent:
            raise ValueError(
                f"the {name} model has no value on {absent[0]!r}, and lacks {len(absent)} days in "
                "all: compare on the days that both were given, and count refusals apart"
            )
    days = list(first)
    return np.array([first[d] for d in days]), np.array([second[d] for d in days])


def compare(
    first: ArrayLike,
    second: ArrayLike,
    *,
    method: Method = "paper",
    level: float = CONFIDENCE_LEVEL,
    block: int | None = None,
    flips: int = DEFAULT_FLIPS,
    seed: int = 0,
) -> Comparison:
    """Paired test of two models on the same days.

    Args:
        first: ``(T,)`` daily score of the first model, such as its root mean square error.
        second: ``(T,)`` the same score of the second model.
        method: Method of the interval of the mean difference (:func:`hac_mean`).
        level: Confidence level of that interval.
        block: Days that are flipped together; the automatic lag plus one, and at least ``T^{1/3}``,
            if left out.
        flips: Number of random sign patterns; if fewer patterns exist, each is taken once.
        seed: Seed of the patterns.

    Example:
        >>> found = compare([1.0, 2.0, 3.0, 2.0, 1.0] * 8, [2.0, 3.0, 5.0, 3.0, 2.0] * 8)
        >>> found.difference.mean, found.lower
        (-1.2, 1.0)
    """
    a, b = np.asarray(first, dtype=np.float64), np.asarray(second, dtype=np.float64)
    if a.shape != b.shape:
        raise ValueError(f"first has shape {a.shape}, second {b.shape}: give the same days of both")
    difference = hac_mean(a - b, method=method, level=level)
    size = choose_flip_block(a - b) if block is None else block
    p, blocks = sign_flip_test(a - b, size, flips=flips, seed=seed)
    return Comparison(difference, p, size, blocks, float(np.mean(a < b)))


def sign_flip_test(
    difference: ArrayLike, block: int, *, flips: int = DEFAULT_FLIPS, seed: int = 0
) -> tuple[float, int]:
    """Return the two-sided p-value of a mean of zero, and the number of blocks.

    The hypothesis is that the sign of each block of days is symmetric and independent. The p-value
    is then exact: the share of sign patterns, the observed one included, whose mean is at least as
    far from zero.

    Args:
        difference: ``(T,)`` daily differences.
        block: Days of a block; the last block may be shorter.
        flips: Number of random sign patterns.
        seed: Seed of the patterns.
    """
    x = np.asarray(difference, dtype=np.float64)
    if not 1 <= block <= x.size:
        raise ValueError(f"block = {block}: with {x.size} days give 1 to {x.size}")
    if flips < 1:
        raise ValueError(f"flips = {flips}: give at least one")
    sums = np.add.reduceat(x, np.arange(0, x.size, block))
    seen = abs(float(sums.sum())) - _TIE_TOLERANCE * float(np.abs(sums).sum())
    if 2 ** min(sums.size, 60) <= flips + 1:
        patterns = np.arange(2**sums.size)[:, None] >> np.arange(sums.size) & 1
        return float(np.mean(np.abs((1.0 - 2.0 * patterns) @ sums) >= seen)), sums.size
    rng = np.random.default_rng(seed)
    signs = 1.0 - 2.0 * rng.integers(0, 2, (flips, sums.size))
    far = int((np.abs(signs @ sums) >= seen).sum())
    return (1.0 + far) / (1.0 + flips), sums.size


def choose_flip_block(difference: ArrayLike) -> int:
    """Return the block length in days: the automatic lag plus one, at least ``T^{1/3}``."""
    x = np.asarray(difference, dtype=np.float64)
    longest = max(automatic_lag(x) + 1, math.ceil(math.cbrt(x.size) - 1e-9))
    return min(longest, x.size)
