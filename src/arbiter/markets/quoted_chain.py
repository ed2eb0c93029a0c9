"""A quoted chain: listed strikes, their exact prices, and bids and asks around them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from arbiter import inputs
from arbiter.chains.roots import EUROPEAN_ROOTS
from arbiter.conventions import Array
from arbiter.exclusions import EXCLUSION_SCHEMA, Exclusion
from arbiter.markets.frictions import ExactPrices, Frictions, QuotedPrices, quote
from arbiter.markets.listing import Board
from arbiter.models.exact_prices import PRICE_RESOLUTION, implied_volatility
from arbiter.quotes import Quotes


@dataclass(frozen=True, eq=False)
class QuotedChain:
    """Listed options with their exact prices and their quotes.

    Attributes:
        board: The listed strikes.
        exact: Out-of-the-money price and volatility of every strike of the board.
        quoted: Bid and ask of every strike of the board.
    """

    board: Board
    exact: ExactPrices
    quoted: QuotedPrices

    @property
    def reason(self) -> NDArray[np.str_]:
        """``(m,)`` the reason why each strike of the board is not used; empty where it is."""
        return exclusion_reasons(self.quoted.bid, self.quoted.ask, self.exact.k, self.exact.unit)

    @property
    def used(self) -> NDArray[np.bool_]:
        """``(m,)`` whether each strike of the board becomes a quote."""
        return np.asarray(self.reason == "")

    @property
    def coverage(self) -> float:
        """Share of the listed strikes that become quotes."""
        return float(self.used.mean())

    @property
    def oracle(self) -> ExactPrices:
        """Exact price and volatility at each quote of :attr:`quotes`, in its order."""
        keep, e = self.used, self.exact
        return ExactPrices(e.price[keep], e.iv[keep], e.k[keep], e.T[keep], e.unit[keep])

    @property
    def quotes(self) -> Quotes:
        """Two-sided quotes in forward units, with a reason for every strike that has none.

        Forwards and discount factors are exact. The quotes of the same day read back from the
        exchange's layout have those of put-call parity instead.
        """
        return quotes_from_board(self.board, self.quoted.bid, self.quoted.ask)


def quote_board(
    board: Board,
    price: Array,
    frictions: Frictions,
    rng: np.random.Generator,
    resolution: float = PRICE_RESOLUTION,
) -> QuotedChain:
    """Quotes around exact out-of-the-money prices of a board.

    Args:
        board: What is listed.
        price: ``(m,)`` forward units.
        frictions: What is done to them.
        rng: For noise and gaps.
        resolution: Prices below it have no implied volatility.
    """
    k, T = board.k, board.T
    unit = (board.discounts * board.forwards)[board.series]
    exact = ExactPrices(price, implied_volatility(price, k, T, resolution), k, T, unit)
    return QuotedChain(board, exact, quote(exact, frictions, rng))


def exclusion_reasons(bid: Array, ask: Array, k: Array, unit: Array) -> NDArray[np.str_]:
    """``(m,)`` reasons why quotes in currency cannot be used; empty where they can."""
    rules = {
        Exclusion.MISSING: np.isnan(ask),
        Exclusion.ZERO_BID: ~(bid > 0.0),
        Exclusion.BOUNDS: ask >= unit * np.exp(np.minimum(k, 0.0)),
    }
    return np.select(list(rules.values()), [code.value for code in rules], default="")


def quotes_from_board(board: Board, bid: Array, ask: Array) -> Quotes:
    """The usable quotes of a board, bid and ask in currency, and the reasons of the others."""
    unit = (board.discounts * board.forwards)[board.series]
    why = exclusion_reasons(bid, ask, board.k, unit)
    bad = why != ""
    exclusions = pl.DataFrame(
        {
            "row": pl.Series([None] * int(bad.sum()), dtype=pl.Int64),
            "expiry": np.array(board.labels)[board.series[bad]].tolist(),
            "T": board.T[bad],
            "strike": board.strikes[bad],
            "side": np.where(board.k[bad] >= 0.0, "call", "put").tolist(),
            "bid": bid[bad],
            "ask": ask[bad],
            "reason": why[bad].tolist(),
        },
        schema=EXCLUSION_SCHEMA,
        nan_to_null=True,
    )
    underlying = EUROPEAN_ROOTS[board.roots[0]].underlying
    every = Quotes(
        maturities=inputs.freeze_array(board.maturities),
        forwards=inputs.freeze_array(board.forwards),
        discounts=inputs.freeze_array(board.discounts),
        expiry=board.series,
        k=inputs.freeze_array(board.k),
        bid=inputs.freeze_array(bid / unit),
        ask=inputs.freeze_array(ask / unit),
        labels=board.labels,
        as_of=board.as_of.astype("datetime64[s]"),
        exclusions=exclusions,
        info=inputs.freeze_info(
            {"source": "synthetic", "underlying": underlying, "spot": board.spot}
        ),
    )
    return every.select(~bad)
