"""A surface whose truth is known: what every benchmark is made of."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from arbiter.conventions import Array
from arbiter.quotes import Quotes

Mask = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Case:
    """Noisy quotes, and the exact volatilities behind them, quoted or not.

    L expiries, S strikes of each; where fewer are listed the rest of a row is NaN.

    Attributes:
        name: What tables call it.
        family: The kind of market that it was drawn from.
        quotes: All that a method may see.
        T: ``(L,)`` years.
        k: ``(L, S)`` log-strikes.
        deviations: ``(L, S)`` the same in standard deviations of the log contract.
        iv: ``(L, S)`` exact volatilities; NaN where no strike is listed.
        quoted: ``(L, S)`` which of them have a quote.
        vix: The exact volatility index, in points.
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

    @property
    def listed(self) -> Mask:
        """``(L, S)`` the points that errors are counted on."""
        return np.isfinite(self.iv)


def quotes_from_volatilities(T: Array, k: Array, mid: Array, half: Array, keep: Mask) -> Quotes:
    """Quotes from volatilities: mids and half-spreads ``(L, S)`` where ``keep`` holds."""
    table = {
        "T": np.broadcast_to(T[:, None], k.shape)[keep],
        "k": k[keep],
        "iv_bid": (mid - half)[keep],
        "iv_ask": (mid + half)[keep],
    }
    return Quotes.from_frame(table)
