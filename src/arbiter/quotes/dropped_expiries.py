"""Expiries that are left out of quotes: by a caller's wish, or by a reader's rules."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np
import polars as pl
from numpy.typing import NDArray

from arbiter import forked
from arbiter.conventions import MINUTES_PER_YEAR
from arbiter.exclusions import EXCLUSION_SCHEMA, Exclusion
from arbiter.quotes.expiry_endings import Ending, ExpiryEnding
from arbiter.quotes.quote_set import Quotes

ExpiryLike = str | float  # a label, or a maturity in years
_HALF_MINUTE = 0.5 / MINUTES_PER_YEAR


def drop_expiries(quotes: Quotes, asked: Iterable[ExpiryLike] | ExpiryLike) -> Quotes:
    """The quotes without some expiries, each of whose quotes is listed as dropped.

    Args:
        quotes: All of them.
        asked: Labels, or maturities in years, met to half a minute; one of them or several.

    Raises:
        ValueError: For one that does not exist; names those that do.

    Example:
        >>> table = {"T": [0.1] * 3 + [0.5] * 3, "k": [-0.1, 0.0, 0.1] * 2}
        >>> table |= {"iv_bid": [0.21, 0.19, 0.17] * 2, "iv_ask": [0.22, 0.20, 0.18] * 2}
        >>> drop_expiries(Quotes.from_frame(table), "T=0.1")
        Quotes(3 on 1 expiries, T 0.5 to 0.5, 3 excluded)
    """
    found = np.zeros(quotes.maturities.size, dtype=np.bool_)
    for one in (asked,) if isinstance(asked, str | float | int) else asked:
        match = _match_expiry(quotes, one)
        if not match.any():
            raise ValueError(
                f"drop has {one!r}, and the expiries are {', '.join(quotes.labels)}: name some of "
                "these, or give their maturities in years"
            )
        found |= match
    return leave_out(quotes, [Exclusion.DROPPED if out else None for out in found])


def _match_expiry(quotes: Quotes, asked: object) -> NDArray[np.bool_]:
    if isinstance(asked, str):
        return np.array([label == asked for label in quotes.labels], dtype=np.bool_)
    if isinstance(asked, float | int | np.floating):
        return np.asarray(np.abs(quotes.maturities - float(asked)) <= _HALF_MINUTE)
    raise ValueError(f"drop has {asked!r}: give labels of expiries, or maturities in years")


def leave_out(quotes: Quotes, reasons: Sequence[Exclusion | None], fewest: int = 0) -> Quotes:
    """The quotes without some expiries; their quotes become exclusions, and they have an ending.

    Args:
        quotes: All of them.
        reasons: One per expiry, None for one that stays.
        fewest: Quotes that were asked for, where that is a reason.
    """
    out = np.array([reason is not None for reason in reasons], dtype=np.bool_)
    if not out.any():
        return quotes
    forked.require_polars()
    gone, T = np.flatnonzero(out[quotes.expiry]), quotes.T
    unit = (quotes.forwards * quotes.discounts)[quotes.expiry]
    codes = [str(reason) for reason in reasons]
    added = pl.DataFrame(
        {
            "row": [None] * gone.size,
            "expiry": [quotes.labels[quotes.expiry[i]] for i in gone],
            "T": T[gone],
            "strike": (quotes.forwards[quotes.expiry] * np.exp(quotes.k))[gone],
            "side": np.where(quotes.k[gone] >= 0.0, "call", "put").tolist(),
            "bid": (unit * quotes.bid)[gone],
            "ask": (unit * quotes.ask)[gone],
            "reason": [codes[quotes.expiry[i]] for i in gone],
        },
        schema=EXCLUSION_SCHEMA,
    )
    sizes = np.bincount(quotes.expiry, minlength=out.size).tolist()
    given = zip(quotes.labels, quotes.maturities.tolist(), reasons, sizes, strict=True)
    ended = {
        (label, years): _end_of(label, years, reason, size, fewest)
        for label, years, reason, size in given
        if reason is not None
    }
    kept = quotes.select(~out[quotes.expiry])
    return replace(
        kept,
        exclusions=pl.concat([quotes.exclusions, added]),
        endings=tuple(ended.get((one.label, one.T), one) for one in kept.endings),
    )


def _end_of(label: str, T: float, reason: Exclusion, quotes: int, fewest: int) -> ExpiryEnding:
    if reason is Exclusion.TOO_FEW:
        return ExpiryEnding.of_thin(label, T, quotes, fewest)
    ending = Ending.TOO_SHORT if reason is Exclusion.TOO_SHORT else Ending.DROPPED
    return ExpiryEnding.of_left_out(label, T, ending, quotes)
