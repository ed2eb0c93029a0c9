"""Blocked folds of a timeline with a rolling horizon and an embargo, in the order of time.

Section 5.1 of the paper: the timeline is cut into B contiguous blocks; in fold b blocks 1 to b−1
train, block b validates, and blocks b+1 to B are scored out of sample, window after window. The
first fold has nothing to train on and the last nothing to score, so that folds 2 to B−1 remain.

An embargo of e days drops the last e days before validation from training, and the last e days
before scoring from validation, since their information may reach across the border.
:mod:`arbiter_lab.protocol.leakage` checks for leaks that remain.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

Days = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Fold:
    """The days of a fold as increasing numbers.

    Attributes:
        number: Number of the validation block, counted from 1 as in the paper.
        train: Days on which parameters are fitted.
        validate: Days on which training is stopped and models are chosen.
        windows: Days that are scored, by window of the rolling horizon.
    """

    number: int
    train: Days
    validate: Days
    windows: tuple[Days, ...]

    def __post_init__(self) -> None:
        if not self.windows:
            raise ValueError(f"fold {self.number} has no window to score: give at least one")
        for name, days in (("train", self.train), ("validate", self.validate), ("test", self.test)):
            whole = days.ndim == 1 and np.issubdtype(days.dtype, np.integer)
            if not whole or days.size == 0 or (np.diff(days) <= 0).any():
                raise ValueError(f"{name} of fold {self.number} is not a row of increasing days")

    @property
    def test(self) -> Days:
        """All scored days."""
        return np.concatenate(self.windows)

    def to_dict(self) -> dict[str, Any]:
        """Return the first and last day of each part as plain JSON values."""
        return {
            "fold": self.number,
            "train": _first_and_last_day(self.train),
            "validate": _first_and_last_day(self.validate),
            "windows": [_first_and_last_day(window) for window in self.windows],
        }


def make_blocked_folds(
    days: int, blocks: int, *, embargo: int = 0, horizon: int | None = None
) -> list[Fold]:
    """Cut a timeline into folds.

    Args:
        days: Length of the timeline.
        blocks: Number of blocks B, at least 3; their lengths differ by at most a day.
        embargo: Days dropped before each border.
        horizon: Length in days of a window out of sample; one block if left out. The last window of
            a fold may be shorter.

    Raises:
        ValueError: If a part of a fold would have no days.

    Example:
        >>> [fold.number for fold in make_blocked_folds(100, 5)]
        [2, 3, 4]
        >>> make_blocked_folds(100, 5, embargo=3)[0].to_dict()["train"]
        [0, 16]
    """
    if blocks < 3:
        raise ValueError(f"blocks = {blocks}: training, validation and scoring need at least 3")
    if embargo < 0 or (horizon is not None and horizon < 1):
        raise ValueError(f"embargo = {embargo}, horizon = {horizon}: give days, not negative")
    if days < blocks * (embargo + 1):
        raise ValueError(
            f"{days} days in {blocks} blocks leave {days // blocks} a block, and an embargo of "
            f"{embargo} drops them all: give more days, fewer blocks or a shorter embargo"
        )
    edges = np.linspace(0, days, blocks + 1).round().astype(np.int64)
    folds = []
    for b in range(1, blocks - 1):
        start, stop = int(edges[b]), int(edges[b + 1])
        rolling = edges[b + 1 : -1] if horizon is None else np.arange(stop, days, horizon)
        cuts = np.append(rolling, days).tolist()
        windows = tuple(np.arange(low, high) for low, high in pairwise(cuts))
        folds.append(
            Fold(b + 1, np.arange(start - embargo), np.arange(start, stop - embargo), windows)
        )
    return folds


def _first_and_last_day(days: Days) -> list[int]:
    return [int(days[0]), int(days[-1])]
