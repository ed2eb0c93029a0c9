"""Ragged quotes as tensors: one row of strikes per maturity, padded, many chains at once.

Shapes throughout the operator: B chains, L maturities, S strikes, H heads, n knots.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from torch import Tensor

if TYPE_CHECKING:  # tensors alone need no tables
    from arbiter.quotes import Quotes

_SPARE_VOLATILITY, _SPARE_HALF = 0.2, 0.01  # what padding holds: finite, and never read


class Ragged(NamedTuple):
    """Quotes of B chains.

    Attributes:
        T: ``(B, L)`` years, increasing along L, padding included.
        k: ``(B, L, S)`` log-moneyness, increasing along S where quoted.
        iv: ``(B, L, S)`` volatility of the mid price.
        half: ``(B, L, S)`` half the spread of volatility.
        quoted: ``(B, L, S)`` whether there is a quote; padding and query maturities have none.
    """

    T: Tensor
    k: Tensor
    iv: Tensor
    half: Tensor
    quoted: Tensor

    @property
    def listed(self) -> Tensor:
        """``(B, L)`` maturities with a quote."""
        return self.quoted.any(-1)


def ragged(chains: list[Quotes], dtype: torch.dtype = torch.float64) -> Ragged:
    """Chains side by side, padded to the longest of them."""
    deep = max(quotes.maturities.size for quotes in chains)
    counts = [np.bincount(quotes.expiry, minlength=quotes.maturities.size) for quotes in chains]
    wide = max(int(count.max(initial=1)) for count in counts)
    shape = (len(chains), deep, wide)
    k = np.zeros(shape)
    iv, half = np.full(shape, _SPARE_VOLATILITY), np.full(shape, _SPARE_HALF)
    quoted = np.zeros(shape, dtype=bool)
    T = np.empty(shape[:2])
    for i, (quotes, count) in enumerate(zip(chains, counts, strict=True)):
        listed = quotes.maturities.size
        T[i, :listed] = quotes.maturities
        T[i, listed:] = quotes.maturities[-1] * 1.25 ** np.arange(1.0, deep - listed + 1.0)
        place = np.arange(len(quotes)) - (np.cumsum(count) - count)[quotes.expiry]
        at = (i, quotes.expiry, place)
        k[at], quoted[at] = quotes.k, True
        iv[at] = quotes.iv_mid
        half[at] = 0.5 * (quotes.iv_ask - quotes.iv_bid)
    parts = (torch.from_numpy(a).to(dtype) for a in (T, k, iv, half))
    return Ragged(*parts, torch.from_numpy(quoted))
