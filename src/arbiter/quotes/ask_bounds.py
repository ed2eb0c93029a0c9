"""One-sided quotes: options with an ask that nobody bids for, as upper bounds on a price."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from arbiter.conventions import Array, Indices
from arbiter.inputs import freeze_array


def _nothing() -> Array:
    return freeze_array(np.empty(0))


@dataclass(frozen=True, eq=False)
class AskBounds:
    """Asks without a bid, sorted by expiry and strike. They bound a price and are no quotes.

    Attributes:
        expiry: ``(u,)`` index of each one's maturity among those of the quotes.
        k: ``(u,)`` log-moneyness.
        ask: ``(u,)`` out-of-the-money price in forward units.
    """

    expiry: Indices = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    k: Array = field(default_factory=_nothing)
    ask: Array = field(default_factory=_nothing)

    def __setstate__(self, state: dict[str, Any]) -> None:  # a copy is as read-only as its source
        for array in state.values():
            array.setflags(write=False)
        self.__dict__.update(state)

    def __len__(self) -> int:
        return int(self.k.size)

    def select_expiries(self, place: Indices) -> AskBounds:
        """The bounds of some expiries.

        Args:
            place: ``(L,)`` new index of each expiry, negative for one that goes.
        """
        expiry = place[self.expiry]
        keep = expiry >= 0
        return AskBounds(expiry[keep], freeze_array(self.k[keep]), freeze_array(self.ask[keep]))
