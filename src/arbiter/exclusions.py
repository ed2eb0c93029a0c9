"""Why a quote is not used: codes, sentences, and the table that lists every one."""

from __future__ import annotations

from enum import StrEnum

import polars as pl


class Exclusion(StrEnum):
    """Why a quote is not used. The value is the code, :meth:`explain` the sentence."""

    UNREADABLE = "unreadable"
    ZERO_BID = "zero bid"
    BEYOND_ZERO_BIDS = "beyond two zero bids"
    NO_ASK = "no ask"
    CROSSED = "crossed"
    LOCKED = "locked"
    MISSING = "missing"
    DUPLICATE = "duplicate"
    STALE = "stale"
    IN_THE_MONEY = "in the money"
    BOUNDS = "outside price bounds"
    PARITY = "outside parity bounds"
    AMBIGUOUS = "ambiguous root"
    NO_FORWARD = "no forward"
    EXPIRED = "expired"
    TOO_SHORT = "too short"
    TOO_FEW = "too few strikes"

    def explain(self) -> str:
        """The reason as a sentence."""
        return _EXPLANATIONS[self]


_EXPLANATIONS = {
    Exclusion.UNREADABLE: "the row's expiry, strike, side or symbol cannot be read",
    Exclusion.ZERO_BID: "nobody bids: the price has no lower side",
    Exclusion.BEYOND_ZERO_BIDS: "beyond two consecutive strikes without a bid, seen from the money",
    Exclusion.NO_ASK: "a bid without an ask: the price has no upper side",
    Exclusion.CROSSED: "the bid is above the ask",
    Exclusion.LOCKED: "the bid equals the ask",
    Exclusion.MISSING: "the bid or the ask is absent, NaN or negative",
    Exclusion.DUPLICATE: "this option was quoted before, on an earlier row",
    Exclusion.STALE: "the quote has not moved with the market",
    Exclusion.IN_THE_MONEY: "the option of the other side of this strike is the one used",
    Exclusion.BOUNDS: "the price is not between zero and that of the underlying or the strike",
    Exclusion.PARITY: "call and put of this strike contradict each other by more than the spreads",
    Exclusion.AMBIGUOUS: "the file does not say which of two series this quote belongs to",
    Exclusion.NO_FORWARD: "too few pairs of call and put to imply a forward",
    Exclusion.EXPIRED: "the option has settled by the time of the quotes",
    Exclusion.TOO_SHORT: "the expiry is nearer than the shortest that was asked for",
    Exclusion.TOO_FEW: "the expiry has fewer usable strikes than was asked for",
}

EXCLUSION_SCHEMA = {
    "row": pl.Int64,  # of the source, counted from 1 as an editor does; null if there is none
    "expiry": pl.String,
    "T": pl.Float64,
    "strike": pl.Float64,  # in the units of the source; κ where the source has no strikes
    "side": pl.String,  # "call" or "put"
    "bid": pl.Float64,  # in the units of the source
    "ask": pl.Float64,
    "reason": pl.String,  # an Exclusion
}


def no_exclusions() -> pl.DataFrame:
    """An exclusion table without rows."""
    return pl.DataFrame(schema=EXCLUSION_SCHEMA)


def count_exclusions(exclusions: pl.DataFrame) -> pl.DataFrame:
    """How many quotes were excluded for each reason: columns reason, quotes, meaning."""
    table = exclusions.group_by("reason").agg(pl.len().cast(pl.Int64).alias("quotes"))
    meaning = {reason.value: reason.explain() for reason in Exclusion}
    return table.sort("quotes", "reason", descending=[True, False]).with_columns(
        meaning=pl.col("reason").replace_strict(
            list(meaning), list(meaning.values()), return_dtype=pl.String
        )
    )
