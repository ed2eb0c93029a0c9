"""Why a quote is not used: codes, sentences, and the table that lists every one."""

from __future__ import annotations

import polars as pl

from arbiter import forked
from arbiter.values import ExplainedCode


class Exclusion(ExplainedCode):
    """Why a quote is not used. The value is the code, :meth:`explain` the sentence."""

    UNREADABLE = "unreadable", "the row's expiry, strike, side or symbol cannot be read"
    ZERO_BID = "zero bid", "nobody bids: the price has no lower side"
    BEYOND_ZERO_BIDS = (
        "beyond two zero bids",
        "beyond two consecutive strikes without a bid, seen from the money",
    )
    NO_ASK = "no ask", "a bid without an ask: the price has no upper side"
    CROSSED = "crossed", "the bid is above the ask"
    LOCKED = "locked", "the bid equals the ask"
    MISSING = "missing", "the ask is absent, or the bid or the ask is negative or infinite"
    DUPLICATE = "duplicate", "this option was quoted before, on an earlier row"
    STALE = "stale", "the quote has not moved with the market"
    IN_THE_MONEY = "in the money", "the option of the other side of this strike is the one used"
    BOUNDS = (
        "outside price bounds",
        "the price is not between zero and that of the underlying or the strike",
    )
    PARITY = (
        "outside parity bounds",
        "call and put of this strike contradict each other by more than the spreads",
    )
    AMBIGUOUS = "ambiguous root", "the file does not say which of two series this quote belongs to"
    NO_FORWARD = "no forward", "too few pairs of call and put to imply a forward"
    EXPIRED = "expired", "the option has settled by the time of the quotes"
    TOO_SHORT = "too short", "the expiry is nearer than the shortest that was asked for"
    TOO_FEW = "too few strikes", "the expiry has fewer usable strikes than was asked for"
    DROPPED = "dropped", "the expiry was left out as asked"


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
    forked.require_polars()
    table = exclusions.group_by("reason").agg(pl.len().cast(pl.Int64).alias("quotes"))
    meaning = {reason.value: reason.explain() for reason in Exclusion}
    return table.sort("quotes", "reason", descending=[True, False]).with_columns(
        meaning=pl.col("reason").replace_strict(
            list(meaning), list(meaning.values()), return_dtype=pl.String
        )
    )
