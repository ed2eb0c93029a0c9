"""One day of a synthetic market: quotes like a real chain's, and the exact prices."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from arbiter.conventions import Array
from arbiter.markets.frictions import Frictions
from arbiter.markets.listing import Curves, Listing, list_strikes, series
from arbiter.markets.listing_prices import price_boards
from arbiter.markets.quoted_chain import QuotedChain, quote_board
from arbiter.markets.vix_listing import QuotedVolatilityChain, VolatilityVenue, quote_volatility
from arbiter.models.lifted_heston import LiftedHeston

_VOLATILITY_SEED_KEY = 1  # what the second child of a day's seed is for


@dataclass(frozen=True)
class Venue:
    """Rules of listing and quoting, the same for every day of a dataset.

    Attributes:
        listing: Series and strikes of the index options.
        curves: Rates and dividends.
        frictions: Spreads, noise and liquidity of the index options.
        volatility: Futures and options on the volatility index; None leaves them out.
    """

    listing: Listing = field(default_factory=Listing)
    curves: Curves = field(default_factory=Curves)
    frictions: Frictions = field(default_factory=Frictions)
    volatility: VolatilityVenue | None = None


@dataclass(frozen=True, eq=False)
class Snapshot(QuotedChain):
    """A moment of a synthetic market: its quoted index options, its model and its state.

    Attributes:
        market: The oracle: exact prices at any strike and maturity.
        state: ``(n,)`` the factors that the market is in.
        volatility: Futures and options on the volatility index, if the venue has them.
    """

    market: LiftedHeston
    state: Array
    volatility: QuotedVolatilityChain | None = None

    @property
    def variance(self) -> float:
        """Instantaneous variance."""
        return max(float(self.market.v0 + self.state @ self.market.c), 0.0)


def observe(
    market: LiftedHeston,
    states: Array,
    moments: Sequence[tuple[np.datetime64, float]],
    seeds: Sequence[np.random.SeedSequence],
    venue: Venue | None = None,
) -> list[Snapshot]:
    """Snapshots of one market on several days.

    Args:
        market: The oracle.
        states: ``(D, n)`` its state on each day.
        moments: Time and index level of each day.
        seeds: One for each day; what is drawn on a day depends on nothing else.
        venue: How the market lists and quotes.
    """
    if not len(states) == len(moments) == len(seeds):
        raise ValueError(
            f"{len(states)} states, {len(moments)} moments and {len(seeds)} seeds: give one of "
            "each for every day"
        )
    rules = venue or Venue()
    boards = []
    for state, (as_of, spot) in zip(states, moments, strict=True):
        T = series(as_of, rules.listing)[2]
        volatilities = np.sqrt(market.variance_swap(T, state))
        boards.append(list_strikes(as_of, spot, volatilities, rules.listing, rules.curves))
    made = []
    for i, price in enumerate(price_boards(market, states, boards)):
        found = quote_board(boards[i], price, rules.frictions, np.random.default_rng(seeds[i]))
        volatility = None
        if rules.volatility is not None:
            # a child of the day's seed: the index options are the same with it and without
            child = np.random.SeedSequence(
                seeds[i].entropy, spawn_key=(*seeds[i].spawn_key, _VOLATILITY_SEED_KEY)
            )
            volatility = quote_volatility(
                market, states[i], boards[i].as_of, rules.volatility, rules.curves, child
            )
        made.append(Snapshot(found.board, found.exact, found.quoted, market, states[i], volatility))
    return made
