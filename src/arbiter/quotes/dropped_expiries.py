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
from arbiter.timing.expiries import Expiry

ExpiryLike = str | float | Expiry  # a label, a maturity in years, or one of ``surface.expiries``
_DATE_LENGTH = 10  # of an ISO date, with which most labels begin
_MAX_NAMED = 6  # labels that an error names
_HALF_MINUTE = 0.5 / MINUTES_PER_YEAR


def drop_expiries(quotes: Quotes, asked: Iterable[ExpiryLike] | ExpiryLike) -> Quotes:
    """The quotes without some expiries, each of whose quotes is listed as dropped.

    Args:
        quotes: All of them.
        asked: Labels, or maturities in years, met to half a minute; one of them or several. Labels
            of expiries that are left out already are no error.

    Raises:
        ValueError: For one that is not listed; names those that are near.

    Example:
        >>> table = {"T": [0.1] * 3 + [0.5] * 3, "k": [-0.1, 0.0, 0.1] * 2}
        >>> table |= {"iv_bid": [0.21, 0.19, 0.17] * 2, "iv_ask": [0.22, 0.20, 0.18] * 2}
        >>> drop_expiries(Quotes.from_frame(table), "T=0.1")
        Quotes(3 on 1 expiries, T 0.5 to 0.5, 3 excluded)
    """
    found = np.zeros(quotes.maturities.size, dtype=np.bool_)
    ended = [ending.label for ending in quotes.endings]
    if isinstance(asked, np.ndarray):
        asked = np.atleast_1d(asked).tolist()
    for given in asked if isinstance(asked, Iterable) and not isinstance(asked, str) else (asked,):
        one = given.label if isinstance(given, Expiry) else given
        match = _match_expiry(quotes, one)
        if not match.any() and one not in ended:
            near = _name_near(quotes, one)
            raise ValueError(
                f"drop has {one!r}, which is no listed expiry: give labels such as {near}"
            )
        found |= match
    return leave_out(quotes, [Exclusion.DROPPED if out else None for out in found])


def _match_expiry(quotes: Quotes, asked: object) -> NDArray[np.bool_]:
    if isinstance(asked, str):
        return np.array([label == asked for label in quotes.labels], dtype=np.bool_)
    if isinstance(asked, float | int | np.floating):
        return np.asarray(np.abs(quotes.maturities - float(asked)) <= _HALF_MINUTE)
    raise ValueError(f"drop has {asked!r}: give labels of expiries, or maturities in years")


def _name_near(quotes: Quotes, asked: str | float) -> str:
    """Labels of the same day or maturity as what was asked for, or of the first ones."""
    size = len(quotes.labels)
    if isinstance(asked, str):
        day = asked.strip()[:_DATE_LENGTH]
        near = [label for label in quotes.labels if label.startswith(day)] if day else []
    else:
        order = np.argsort(np.abs(quotes.maturities - asked))
        near = [quotes.labels[i] for i in sorted(order[:_MAX_NAMED].tolist())]
    named = near[:_MAX_NAMED] or quotes.labels[:_MAX_NAMED]
    more = "" if size == len(named) else f" and {size - len(named)} others"
    return ", ".join(named) + more


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
