"""A benchmark case: noisy quotes and the exact volatilities behind them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from arbiter.conventions import Array
from arbiter.quotes import Quotes

Mask = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Case:
    """Noisy quotes and the exact volatilities of all listed strikes, quoted or not.

    There are L expiries with up to S strikes; rows with fewer are padded with NaN.

    Attributes:
        name: Name in tables.
        family: Kind of market that the case was drawn from.
        quotes: The input of a method.
        T: ``(L,)`` years.
        k: ``(L, S)`` log-strikes.
        deviations: ``(L, S)`` log-strikes in standard deviations of the log contract.
        iv: ``(L, S)`` exact volatilities; NaN where no strike is listed.
        quoted: ``(L, S)`` whether a strike has a quote.
        vix: Exact volatility index, in points.
        market: Market that the case was drawn from, the name if empty: surfaces of one market are
            not independent.
    """

    name: str
    family: str
    quotes: Quotes
    T: Array
    k: Array
    deviations: Array
    iv: Array
    quoted: Mask
    vix: float
    market: str = ""

    @property
    def listed(self) -> Mask:
        """``(L, S)`` whether a strike is listed; errors are taken at these points."""
        return np.isfinite(self.iv)


def quotes_from_volatilities(T: Array, k: Array, mid: Array, half: Array, keep: Mask) -> Quotes:
    """Build quotes from mid volatilities and half-spreads ``(L, S)`` where ``keep`` is true."""
    table = {
        "T": np.broadcast_to(T[:, None], k.shape)[keep],
        "k": k[keep],
        "iv_bid": (mid - half)[keep],
        "iv_ask": (mid + half)[keep],
    }
    return Quotes.from_frame(table)
