"""Asks without a bid that no market without static arbitrage can respect together with others."""

from __future__ import annotations

import logging
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from arbiter.conventions import Array, Indices
from arbiter.quotes.quote_set import Quotes
from arbiter.quotes.static_program import NEGLIGIBLE, LowestPrice, StaticProgram

logger = logging.getLogger(__name__)

_NEIGHBOURS = 1  # expiries on each side that an ask is held against


@dataclass(frozen=True)
class ContradictoryAsk:
    """An ask without a bid, below every price that the other quotes leave possible.

    Attributes:
        expiry: Label of its expiry.
        strike: Of the option; in units of the forward where that is not known.
        k: Log-moneyness.
        ask: Forward units.
        lowest: The least price that the other quotes leave possible, forward units.
        against: The quotes that it contradicts: expiry, strike, and which side of them.
    """

    expiry: str
    strike: float
    k: float
    ask: float
    lowest: float
    against: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """The fields as plain values for JSON."""
        return {**asdict(self), "against": list(self.against)}


def find_contradictory_asks(
    quotes: Quotes, exceeded: NDArray[np.bool_]
) -> tuple[ContradictoryAsk, ...]:
    """Those of some asks that contradict the other quotes of their expiry and the two beside it.

    The least price of each is found by linear programming, with the two-sided quotes inside their
    spreads and the other asks met. Where these quotes contradict each other already, every spread
    is widened by the least that makes them possible. Asks of an expiry whose program the solver
    gives up are not found, with a warning in the log.

    Args:
        quotes: All quotes of the moment.
        exceeded: ``(u,)`` the asks of ``quotes.bounds`` in question, those that a surface exceeds.
    """
    found: list[ContradictoryAsk] = []
    for expiry in np.unique(quotes.bounds.expiry[exceeded]).tolist():
        try:
            found += _find_in_expiry(quotes, exceeded, expiry)
        except ArithmeticError as error:
            logger.warning("asks of %s were not judged: %s", quotes.labels[expiry], error)
    return tuple(found)


def _find_in_expiry(
    quotes: Quotes, exceeded: NDArray[np.bool_], expiry: int
) -> list[ContradictoryAsk]:
    first, last = max(expiry - _NEIGHBOURS, 0), expiry + _NEIGHBOURS
    program = StaticProgram.from_quotes(quotes, first, min(last, quotes.maturities.size - 1))
    if program.find_least_violation(np.ones_like(exceeded[program.bounds])) <= NEGLIGIBLE:
        return []  # all can be met together, as is usual
    kept = ~exceeded[program.bounds]
    slack = program.find_least_violation(kept) + NEGLIGIBLE
    asked = np.flatnonzero(~kept & (quotes.bounds.expiry[program.bounds] == expiry))
    found, rest = [], []
    for place in asked.tolist():
        lowest = program.find_lowest_price(place, kept, slack)
        if _is_below(quotes, program, place, lowest):
            found.append(_describe(quotes, int(program.bounds[place]), lowest))
        else:
            rest.append(place)
    # those that quotes alone allow may contradict each other: each is held against those before it
    for place in rest:
        lowest = program.find_lowest_price(place, kept, slack)
        if _is_below(quotes, program, place, lowest):
            found.append(_describe(quotes, int(program.bounds[place]), lowest))
        else:
            kept[place] = True
    return found


def _is_below(quotes: Quotes, program: StaticProgram, place: int, lowest: LowestPrice) -> bool:
    ask = float(quotes.bounds.ask[program.bounds[place]])
    return lowest.price > ask * (1.0 + NEGLIGIBLE)


def _describe(quotes: Quotes, bound: int, lowest: LowestPrice) -> ContradictoryAsk:
    bounds, because = quotes.bounds, lowest.because
    expiry = int(bounds.expiry[bound])
    against = [
        *_name(quotes, quotes.expiry[because.bids], quotes.k[because.bids], "bid"),
        *_name(quotes, quotes.expiry[because.asks], quotes.k[because.asks], "ask"),
        *_name(quotes, bounds.expiry[because.bounds], bounds.k[because.bounds], "ask, no bid"),
    ]
    k = float(bounds.k[bound])
    return ContradictoryAsk(
        quotes.labels[expiry],
        float(quotes.forwards[expiry] * np.exp(k)),
        k,
        float(bounds.ask[bound]),
        lowest.price,
        tuple(against),
    )


def _name(quotes: Quotes, expiry: Indices, k: Array, side: str) -> list[str]:
    strikes = quotes.forwards[expiry] * np.exp(k)
    kinds = np.where(k < 0.0, "put", "call")
    return [
        f"{quotes.labels[e]} {strike:.10g} {kind} ({side})"
        for e, strike, kind in zip(expiry, strikes, kinds, strict=True)
    ]
