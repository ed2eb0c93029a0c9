"""A timeline: one synthetic market simulated over many sessions.

Every day has a seed of its own, derived from the one seed and the day's number, and its exact
prices do not depend on which other days are made with it: any day can be made again alone and is
the same.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from arbiter.conventions import MINUTES_PER_YEAR, Array
from arbiter.markets.listing import last_quote_time, sessions
from arbiter.markets.paths import STEPS_PER_DAY, simulate
from arbiter.markets.seeds import Purpose, derive_seed
from arbiter.markets.snapshots import Snapshot, Venue, observe
from arbiter.models.lifted_heston import LiftedHeston
from arbiter.models.parameters import Parameters

START_DATE = dt.date(2015, 1, 2)
START_SPOT = 5000.0


@dataclass(frozen=True, eq=False)
class Timeline:
    """One simulated market on many days.

    Attributes:
        market: The oracle.
        as_of: ``(D,)`` moments, the last quotes of each session, in minutes.
        spot: ``(D,)`` levels of the index.
        states: ``(D, n)``.
        seed: The one seed.
        venue: How the market lists and quotes.
    """

    market: LiftedHeston
    as_of: NDArray[np.datetime64]
    spot: Array
    states: Array
    seed: int
    venue: Venue

    def __len__(self) -> int:
        return int(self.as_of.size)

    @property
    def variance(self) -> Array:
        """``(D,)`` instantaneous variance."""
        return np.asarray(np.maximum(self.market.v0 + self.states @ self.market.c, 0.0))

    def days(self, which: Sequence[int]) -> list[Snapshot]:
        """The snapshots of some days, with one Riccati solution for all of them."""
        rows = [range(len(self))[i] for i in which]
        if not rows:
            return []
        return observe(
            self.market,
            self.states[rows],
            [(self.as_of[i], float(self.spot[i])) for i in rows],
            [derive_seed(self.seed, Purpose.QUOTES, i) for i in rows],
            self.venue,
        )


def timeline(
    parameters: Parameters,
    days: int,
    seed: int,
    *,
    start: dt.date = START_DATE,
    venue: Venue | None = None,
    steps_per_day: float = STEPS_PER_DAY,
) -> Timeline:
    """Simulate one market over many sessions.

    Args:
        parameters: The model, ``preset("calm")`` for instance.
        days: How many sessions.
        seed: The same seed gives the same bits.
        start: First session, or a day before it.
        venue: How the market lists and quotes.
        steps_per_day: Steps of the path's scheme per calendar day.

    Example:
        >>> from arbiter.models.parameters import preset
        >>> market = timeline(preset("calm"), days=250, seed=7)
        >>> day = market.days([249])[0]
        >>> bool((day.quotes.ask > day.quotes.bid).all())
        True
    """
    if days != int(days) or days < 1:
        raise ValueError(f"days = {days!r}: give a whole number, at least one")
    rules = venue or Venue()
    as_of = np.array([last_quote_time(day) for day in sessions(start, days)])
    years = (as_of - as_of[0]) / np.timedelta64(1, "m") / MINUTES_PER_YEAR
    path = simulate(
        parameters,
        years,
        derive_seed(seed, Purpose.PATH),
        steps_per_day=steps_per_day,
    )
    carry = float(rules.curves.zero(0.0)) - rules.curves.dividend
    spot = START_SPOT * np.exp(path.log_index[0] + carry * years)
    return Timeline(LiftedHeston.of(parameters), as_of, spot, path.states[0], seed, rules)
