"""A universe: many synthetic markets, each at one moment of its own path."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from arbiter.conventions import Array
from arbiter.markets.listing import last_quote_time, sessions
from arbiter.markets.paths import simulate
from arbiter.markets.seeds import Purpose, derive_seed
from arbiter.markets.snapshots import Snapshot, Venue, observe
from arbiter.markets.timelines import START_DATE, START_SPOT
from arbiter.models.lifted_heston import LiftedHeston
from arbiter.models.parameters import Parameters, draw


@dataclass(frozen=True, eq=False)
class Universe:
    """Many markets, each at one moment of a path of its own.

    Attributes:
        count: How many.
        seed: The one seed.
        venue: How the markets list and quote.
        as_of: The moment, the same for all.
    """

    count: int
    seed: int
    venue: Venue
    as_of: np.datetime64

    def __len__(self) -> int:
        return self.count

    def __iter__(self) -> Iterator[Snapshot]:
        return (self.days([i])[0] for i in range(self.count))

    def member(self, i: int) -> tuple[LiftedHeston, Array]:
        """The market with number ``i`` and its state."""
        chosen = derive_seed(self.seed, Purpose.MODEL, range(self.count)[i])
        model, path = chosen.spawn(2)
        parameters = draw(np.random.default_rng(model))
        return LiftedHeston.of(parameters), simulate_settled_state(parameters, path)

    def days(self, which: Sequence[int]) -> list[Snapshot]:
        """The snapshots of some members."""
        found = []
        for i in which:
            market, state = self.member(i)
            moments = [(self.as_of, START_SPOT)]
            seeds = [derive_seed(self.seed, Purpose.QUOTES, range(self.count)[i])]
            found += observe(market, state[None], moments, seeds, self.venue)
        return found


def universe(
    count: int, seed: int, *, start: dt.date = START_DATE, venue: Venue | None = None
) -> Universe:
    """Many parameter sets of the prior, each in a state that a path of a year has reached."""
    if count < 1:
        raise ValueError(f"count = {count}: give at least one")
    return Universe(count, seed, venue or Venue(), last_quote_time(sessions(start, 1)[0]))


def simulate_settled_state(parameters: Parameters, seed: int | np.random.SeedSequence) -> Array:
    """``(n,)`` the state after a path of a year: coarse steps at first, fine ones at the end.

    Fast factors forget within days, so only the last days need the fine steps.
    """
    ahead = 2.0 ** np.arange(0.0, -12.0, -0.25)  # years before the end
    times = np.append(1.0 - ahead[1:], 1.0)
    return np.asarray(simulate(parameters, times, seed, steps_per_day=1e-6).states[0, -1])
