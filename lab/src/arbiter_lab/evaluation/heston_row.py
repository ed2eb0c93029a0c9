"""Heston's model calibrated to the quotes, as a method: the information bound where it is true."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from arbiter.conventions import INDEX_POINTS, THIRTY_DAYS, Array
from arbiter.models.exact_prices import implied_volatility
from arbiter.models.heston import Heston
from arbiter.models.heston_calibration import MAX_QUOTE_DEVIATIONS, atm_total_volatility, calibrate
from arbiter.quotes import Quotes

_RESOLVED_PRICE = 1e-14  # of the forward: what Lewis' integral leaves of a price that is nothing


@dataclass(frozen=True)
class HestonModel:
    """A calibrated Heston model with the methods of a model that can be scored.

    Attributes:
        heston: The calibrated parameters.
    """

    heston: Heston

    def otm(self, k: Array, T: Array) -> Array:
        """Out-of-the-money prices; arguments broadcast."""
        points, at = np.broadcast_arrays(np.asarray(k, np.float64), np.asarray(T, np.float64))
        price = np.empty(points.shape)
        for t in np.unique(at).tolist():
            here = at == t
            price[here] = self.heston.otm(points[here], t)
        return np.asarray(np.maximum(price, _RESOLVED_PRICE))

    def iv(self, k: Array, T: Array) -> Array:
        """Implied volatilities; arguments broadcast."""
        points, at = np.broadcast_arrays(np.asarray(k, np.float64), np.asarray(T, np.float64))
        return implied_volatility(self.otm(points, at), points, at)

    def vix(self) -> float:
        """Volatility index in points."""
        return INDEX_POINTS * float(self.heston.reference_volatility(np.array(THIRTY_DAYS)))


def calibrate_heston(quotes: Quotes) -> HestonModel:
    """Return Heston's model nearest to the mids in half-spreads.

    Quotes farther from the money than the calibration prices are left out.

    Raises:
        ValueError: If the least-squares problem has no solution.
    """
    total = atm_total_volatility(quotes)
    some = quotes.select(np.abs(quotes.k) < MAX_QUOTE_DEVIATIONS * total[quotes.expiry])
    found = calibrate(some, some.half_spread)
    if found is None:
        raise ValueError(f"{quotes!r}: no Heston model could be calibrated")
    return HestonModel(found.heston)
