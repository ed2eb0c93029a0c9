"""A curve of VIX futures quotes: bid and ask by settlement date."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from arbiter import inputs
from arbiter.conventions import DAYS_PER_YEAR, Array
from arbiter.timing.maturities import DateLike, MaturityLike, as_datetime, to_year_fractions

# Half the tick of a VIX future: a price alone is known no better.
HALF_TICK = 0.025
_MAX_YEARS = 10.0  # of a maturity: days were meant for years, since futures reach nine months
_INDEX_POINT_RANGE = (1.0, 500.0)


@dataclass(frozen=True, eq=False, repr=False)
class FuturesCurve:
    """VIX futures by settlement date, in index points. :meth:`of` and ``read_futures`` make one.

    Attributes:
        maturities: ``(L,)`` year fractions to settlement, increasing.
        bid: ``(L,)`` bids in index points.
        ask: ``(L,)`` asks in index points, at least the bid.
        labels: ``(L,)`` names of the futures.
        as_of: The moment of the quotes, or None.
    """

    maturities: Array
    bid: Array
    ask: Array
    labels: tuple[str, ...]
    as_of: np.datetime64 | None = None

    @classmethod
    def of(
        cls,
        T: MaturityLike,
        bid: ArrayLike,
        ask: ArrayLike | None = None,
        *,
        as_of: DateLike | None = None,
    ) -> FuturesCurve:
        """A curve from arrays, sorted by settlement.

        Args:
            T: Year fractions, or settlement dates where ``as_of`` is given; a date alone is
                its open.
            bid: Bids; or prices, where ``ask`` is left out, which count as known to half a tick.
            ask: Asks.
            as_of: Moment of the quotes.

        Raises:
            ValueError: Naming the place, the value and the remedy.

        Example:
            >>> curve = FuturesCurve.of([0.1, 0.2], [20.0, 21.0])
            >>> curve.mid.tolist()
            [20.0, 21.0]
        """
        moment = as_datetime(as_of)
        t = np.atleast_1d(to_year_fractions(T, moment, settlement="AM"))
        if np.any(t > _MAX_YEARS):
            raise ValueError(f"T = {t.max():g} is in years: for days give '{t.max():g}d'")
        low = np.atleast_1d(np.asarray(bid, dtype=np.float64))
        high = low if ask is None else np.atleast_1d(np.asarray(ask, dtype=np.float64))
        if not (t.shape == low.shape == high.shape and t.ndim == 1):
            raise ValueError(
                f"{t.size} maturities, {low.size} bids, {high.size} asks: give one per future"
            )
        least, most = _INDEX_POINT_RANGE
        for name, row in (("bid", low), ("ask", high)):
            bad = ~((row >= least) & (row <= most))
            if bad.any():
                i = int(np.argmax(bad))
                raise ValueError(
                    f"{name}[{i}] = {row[i]:g}: VIX futures are index points from {least:g} to "
                    f"{most:g}, 20 and not 0.2"
                )
        if np.any(low > high):
            i = int(np.argmax(low > high))
            raise ValueError(f"bid[{i}] = {low[i]:g} is above ask[{i}] = {high[i]:g}: drop it")
        if ask is None:
            low, high = low - HALF_TICK, high + HALF_TICK
        order = np.argsort(t)
        twice = np.flatnonzero(np.diff(t[order]) == 0.0)
        if twice.size:
            raise ValueError(f"two futures settle at T = {t[order][twice[0]]:g}: keep one of them")
        dated = np.asarray(T).dtype.kind in "MUO"
        names = np.atleast_1d(np.asarray(T)).astype(str) if dated else [f"T={x:.4g}" for x in t]
        labels = tuple(str(names[i]) for i in order)
        t, low, high = (inputs.freeze_array(row[order]) for row in (t, low, high))
        return cls(t, low, high, labels, moment)

    @property
    def mid(self) -> Array:
        """``(L,)`` mid prices, index points."""
        return 0.5 * (self.bid + self.ask)

    @property
    def half_spread(self) -> Array:
        """``(L,)`` half of the bid-ask spread, index points."""
        return 0.5 * (self.ask - self.bid)

    def __len__(self) -> int:
        return int(self.maturities.size)

    def __repr__(self) -> str:
        if not len(self):
            return "FuturesCurve(empty)"
        return (
            f"FuturesCurve({len(self)} from {DAYS_PER_YEAR * self.maturities[0]:.3g} to "
            f"{DAYS_PER_YEAR * self.maturities[-1]:.4g} days, "
            f"{self.mid[0]:.2f} to {self.mid[-1]:.2f})"
        )
