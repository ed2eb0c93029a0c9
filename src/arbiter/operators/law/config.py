"""Sizes of the network, and constants that the library and the lab share."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from typing import Any

import numpy as np

from arbiter import values
from arbiter.conventions import Array

# Bounds of what a file may ask for, far beyond what was ever trained.
_SIZES = {
    "heads": (2, 1024),
    "width": (1, 4096),
    "state": (1, 4096),
    "rank": (1, 256),
    "context": (1, 4096),
    "looks": (1, 3),
}
_MAX_BUDGET = 1e6

# the scan: see arbiter.operators.law.green_scan
SLOWEST_RATE, FASTEST_RATE = 0.25, 1.25  # of forgetting, per unit of log-maturity
MAX_LOW_RANK = 0.35  # norm of the generator's low-rank part
LONGEST_STEP = 0.55  # steps approach it, however far apart maturities are
GUARD_MARGIN = 0.05  # ε of the guard, ρ(A) Δ ≤ 1 − ε
MAX_LOG_STRETCH = 1.4  # steps are stretched or shrunk by at most e^1.4
MIN_STEP = 1e-3
GATE_BIAS = 1.5  # where inputs' gates start: nearly open

# the view and what is written
MAX_SIZE = 2.0  # of what is told in units in which it is about one
RESIDUAL_GAIN = 8.0  # what the prior leaves of the quotes is a tenth of what they say, or less
HALF_SETTLED_ERROR = 2e-3  # error of log-volatility that leaves half to be said
MIN_READ_VEGA = 1e-12  # of the forward: cheaper quotes say nothing; from twice that on, all
MIN_NOISE = 1e-6  # of a reading, relative
WIDTH_OVER_GAP = 0.8  # widths of heads before training, over the distance between them
BASE_GAIN = 0.1  # of what the geometry alone writes
ORDER_WIDTH = 2.0  # standard deviations within which slopes count most
SHIFT_GAIN = 0.05  # of the shift that is not the mean's
SILU = 1.1  # slopes of x·sigmoid(x)·SILU⁻¹ are at most one
DIRECTIONS = 2  # of the scans: from short to long maturities, and back


@dataclass(frozen=True)
class LawConfig:
    """Sizes.

    Attributes:
        heads: H, through which quotes are read.
        reach: Farthest heads, in standard deviations below and above the median.
        width: Of the value stream.
        state: m, of each scan.
        rank: r, of each scan's low-rank factors.
        context: Width of the geometry stream.
        looks: How many times the quotes are read.
        budget: Largest spectral norm of a value map.
        unread_mass: Mass of a head's quotes that halves its reading.
        largest_misfit: Size at which a misfit of log-volatility is cut.
        prior_places: Places at which the prior is told, and their ``asinh z`` below and above.
    """

    heads: int = 32
    reach: tuple[float, float] = (4.5, 3.3)
    width: int = 160
    state: int = 64
    rank: int = 4
    context: int = 160
    looks: int = 1
    budget: float = 10.0
    unread_mass: float = 0.1
    largest_misfit: float = 1.0
    prior_places: tuple[int, float, float] = (44, 3.7, 2.4)

    def __post_init__(self) -> None:
        reach = values.require_numbers("reach", self.reach)
        if len(reach) != 2 or min(reach) <= 0.0 or max(reach) > 10.0:
            told = values.shorten_repr(self.reach)
            raise ValueError(f"reach = {told} must be two numbers above 0, to 10")
        places = values.require_numbers("prior_places", self.prior_places)
        whole = len(places) == 3 and places[0] == int(places[0]) and 2 <= places[0] <= 1024
        if not whole or min(places) <= 0.0 or max(places[1:]) >= 5.0:
            told = values.shorten_repr(self.prior_places)
            raise ValueError(f"prior_places = {told} must be a count and two numbers between 0, 5")
        object.__setattr__(self, "reach", reach)
        object.__setattr__(self, "prior_places", (int(places[0]), *places[1:]))
        for name, (least, most) in _SIZES.items():
            values.require_integer(name, getattr(self, name), least, most)
        for name in ("budget", "unread_mass", "largest_misfit"):
            values.require_positive(name, getattr(self, name), _MAX_BUDGET)

    def places(self) -> Array:
        """``(P,)`` places ``asinh z`` at which the prior is told."""
        count, below, above = self.prior_places
        return np.linspace(-below, above, count)

    def to_dict(self) -> dict[str, Any]:
        """Plain values, as a file of JSON gives them back."""
        plain = asdict(self)
        return plain | {name: list(plain[name]) for name in ("reach", "prior_places")}

    @classmethod
    def from_dict(cls, given: object) -> LawConfig:
        """From plain values; what is left out has its default.

        Raises:
            ValueError: If they are not those of a configuration.
        """
        return cls(**values.require_known_keys("config", given, [f.name for f in fields(cls)]))
