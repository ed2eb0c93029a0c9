"""Seeds of a synthetic market: one for each purpose and day, derived from a single seed."""

from __future__ import annotations

from enum import IntEnum

import numpy as np


class Purpose(IntEnum):
    """Purposes of random draws. Reusing a number would change what a given seed produces."""

    PATH = 0
    QUOTES = 1
    MODEL = 2
    CHAIN = 3


def derive_seed(seed: int, purpose: Purpose, number: int = 0) -> np.random.SeedSequence:
    """The seed of one purpose and one day (or member); independent of all the others."""
    if seed < 0:
        raise ValueError(f"seed = {seed}: give zero or a positive whole number")
    return np.random.SeedSequence(seed, spawn_key=(int(purpose), number))
