"""What became of each listed expiry: fitted, or left out with the reason."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from arbiter.conventions import Array, Indices
from arbiter.values import ExplainedCode


class Ending(ExplainedCode):
    """What became of an expiry. The value is the code, :meth:`explain` the sentence."""

    USED = "used", "its quotes are used"
    THIN = "thin", "it has fewer usable quotes than was asked for"
    TOO_SHORT = "too short", "it is nearer than the shortest that was asked for"
    DROPPED = "dropped", "it was left out as asked"
    NO_FORWARD = "no forward", "too few pairs of call and put imply its forward"
    EXPIRED = "expired", "it has settled by the time of the quotes"


class ExpiryEnding(NamedTuple):
    """The ending of one listed expiry.

    Attributes:
        label: Of the expiry.
        T: Maturity in years; zero or less where it has settled.
        ending: Its code.
        quotes: How many quotes of it can be used.
        why: The reason as a sentence; of an expiry that is used, the count.
    """

    label: str
    T: float
    ending: Ending
    quotes: int
    why: str

    @classmethod
    def of_used(cls, label: str, T: float, quotes: int) -> ExpiryEnding:
        """The ending of an expiry that is used."""
        return cls(label, T, Ending.USED, quotes, Ending.USED.explain())

    @classmethod
    def of_thin(cls, label: str, T: float, quotes: int, fewest: int) -> ExpiryEnding:
        """The ending of an expiry with too few quotes."""
        why = f"{quotes} usable quotes, and {max(fewest, 1)} are asked for"
        return cls(label, T, Ending.THIN, quotes, why)

    @classmethod
    def of_left_out(cls, label: str, T: float, ending: Ending, quotes: int = 0) -> ExpiryEnding:
        """The ending of an expiry for which its code says all."""
        return cls(label, T, ending, quotes, ending.explain())


def list_endings(
    labels: tuple[str, ...], maturities: Array, expiry: Indices
) -> tuple[ExpiryEnding, ...]:
    """The endings of expiries that are all used.

    Args:
        labels: Of the expiries.
        maturities: ``(L,)`` in years.
        expiry: ``(m,)`` the expiry of each quote.
    """
    sizes = np.bincount(expiry, minlength=maturities.size).tolist()
    listed = zip(labels, maturities.tolist(), sizes, strict=True)
    return tuple(ExpiryEnding.of_used(*one) for one in listed)


def end_select(
    endings: tuple[ExpiryEnding, ...], labels: tuple[str, ...], maturities: Array, expiry: Indices
) -> tuple[ExpiryEnding, ...]:
    """Endings after a choice of quotes: expiries that were used and have none left are dropped.

    Args:
        endings: Before.
        labels: Of the expiries, before.
        maturities: ``(L,)`` in years, before.
        expiry: The expiry of each chosen quote.
    """
    sizes = np.bincount(expiry, minlength=maturities.size).tolist()
    left = dict(zip(zip(labels, maturities.tolist(), strict=True), sizes, strict=True))
    return tuple(
        one
        if one.ending is not Ending.USED
        else ExpiryEnding.of_used(one.label, one.T, left[one.label, one.T])
        if left.get((one.label, one.T))
        else ExpiryEnding.of_left_out(one.label, one.T, Ending.DROPPED)
        for one in endings
    )
