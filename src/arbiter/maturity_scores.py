"""Three numbers on quotes of every expiry, by bucket of maturity, and asks without a bid.

Inside means ``bid ≤ model ≤ ask`` up to 1e-12 of the forward, as in :mod:`arbiter.scoring`; its
headline counts only expiries of two days and eight strikes, and here every one counts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from arbiter.conventions import DAYS_PER_YEAR, MINUTES_PER_YEAR, Array, Indices
from arbiter.quotes import ContradictoryAsk, Quotes, find_contradictory_asks
from arbiter.scoring import TOLERANCE, Mask, Model, is_inside_bid_ask

LAST_DAYS = {"same_day": 0, "1-7d": 7, "8-30d": 30, "31-180d": 180}  # of each bucket, calendar days
LONGER = "longer"  # the bucket beyond
_MAX_NAMED = 3  # asks in a sentence


@dataclass(frozen=True)
class BucketScore:
    """The score of some expiries; NaN where there is no quote to tell.

    Attributes:
        quotes: How many quotes count.
        expiries: On how many expiries.
        inside_bid_ask: Share of the quotes whose model price lies between bid and ask.
        worst_half_spreads: Largest distance outside bid-ask in half-spreads of the quote; 0 where
            every quote is inside.
        slices_without_violation: Share of the expiries with every quote inside.
        rms_half_spreads: Root mean square of (model − mid) / half-spread.
    """

    quotes: int
    expiries: int
    inside_bid_ask: float
    worst_half_spreads: float
    slices_without_violation: float
    rms_half_spreads: float

    def to_dict(self) -> dict[str, int | float | None]:
        """The numbers as plain values for JSON, None in place of what is not finite."""
        return {n: value if np.isfinite(value) else None for n, value in asdict(self).items()}


@dataclass(frozen=True)
class MaturityScores:
    """The score of a surface over every expiry.

    Attributes:
        overall: Of all quotes.
        buckets: The same by days to expiry: ``same_day``, ``1-7d``, ``8-30d``, ``31-180d``,
            ``longer``.
        one_sided: How many options have an ask and no bid.
        one_sided_violated: How many of these the model puts above their ask, those apart that
            contradict other quotes.
        contradictory: The others that it puts above their ask, each with what it contradicts.
    """

    overall: BucketScore
    buckets: dict[str, BucketScore]
    one_sided: int
    one_sided_violated: int
    contradictory: tuple[ContradictoryAsk, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """The field ``score`` of fit.json."""
        return {
            **self.overall.to_dict(),
            "buckets": {name: bucket.to_dict() for name, bucket in self.buckets.items()},
            "one_sided": {
                "quotes": self.one_sided,
                "violated": self.one_sided_violated,
                "contradictory": [one.to_dict() for one in self.contradictory],
            },
        }


def score_by_maturity(model: Model, quotes: Quotes) -> MaturityScores:
    """Score a model on all quotes, and by bucket of maturity.

    Quotes whose ask is not above their bid count as inside or outside, and have no half-spread.
    Where the model is above asks without a bid, a linear program tells which of these contradict
    other quotes.

    Args:
        model: The surface or peer.
        quotes: What it is judged by.

    Example:
        >>> from arbiter.examples import example
        >>> surface = example()
        >>> k, T = np.linspace(-0.1, 0.1, 9), np.full(9, 0.25)
        >>> iv = surface.iv(k, T)
        >>> table = {"T": T, "k": k, "iv_bid": iv - 0.01, "iv_ask": iv + 0.01}
        >>> found = score_by_maturity(surface, Quotes.from_frame(table))
        >>> found.buckets["31-180d"].slices_without_violation
        1.0
    """
    price = np.asarray(model.otm(quotes.k, quotes.T) if len(quotes) else quotes.mid)
    bucket = find_buckets(quotes)[quotes.expiry]
    everything = np.ones(len(quotes), dtype=np.bool_)
    bounds = quotes.bounds
    high = np.zeros(0, dtype=np.bool_)
    if len(bounds):
        own = np.asarray(model.otm(bounds.k, quotes.maturities[bounds.expiry]))
        high = ~(own <= bounds.ask + TOLERANCE)
    contradictory = find_contradictory_asks(quotes, high)
    return MaturityScores(
        _score_some(price, quotes, everything),
        {
            name: _score_some(price, quotes, bucket == place)
            for place, name in enumerate((*LAST_DAYS, LONGER))
        },
        len(bounds),
        int(np.count_nonzero(high)) - len(contradictory),
        contradictory,
    )


def describe_asks(one_sided: Mapping[str, Any]) -> str:
    """A sentence about the field ``one_sided`` of a score, without its full stop."""
    counts = f"{one_sided['violated']:,} of {one_sided['quotes']:,} asks without a bid violated"
    found = one_sided.get("contradictory", ())
    if not found:
        return counts
    named = ", ".join(f"{one['expiry']} {one['strike']:.10g}" for one in found[:_MAX_NAMED])
    more = len(found) - _MAX_NAMED
    others = f" and {more} more" if more > 0 else ""
    return f"{counts}, {len(found)} exceeded that contradict other quotes ({named}{others})"


def find_buckets(quotes: Quotes) -> Indices:
    """``(L,)`` the bucket of each expiry by calendar days from the day of the quotes.

    Where quotes have no moment, days are whole days of maturity.
    """
    if quotes.as_of is None:
        days = np.floor(quotes.maturities * DAYS_PER_YEAR * (1.0 + 1e-12))
    else:
        now = quotes.as_of.astype("datetime64[m]")
        minutes = np.round(quotes.maturities * MINUTES_PER_YEAR).astype("timedelta64[m]")
        today = now.astype("datetime64[D]")
        days = ((now + minutes).astype("datetime64[D]") - today).astype(np.float64)
    return np.searchsorted(list(LAST_DAYS.values()), days, side="left")


def _score_some(price: Array, quotes: Quotes, among: Mask) -> BucketScore:
    inside, wide = is_inside_bid_ask(price, quotes), among & (quotes.ask > quotes.bid)
    residual = ((price - quotes.mid)[wide]) / quotes.half_spread[wide]
    # what rounding of a price does to its distance is no violation
    outside = np.where(inside[wide], 0.0, np.abs(residual) - 1.0)
    expiries = np.unique(quotes.expiry[among])
    bad = np.unique(quotes.expiry[among & ~inside])
    known = residual.size > 0
    return BucketScore(
        quotes=int(among.sum()),
        expiries=expiries.size,
        inside_bid_ask=float(inside[among].mean()) if among.any() else np.nan,
        worst_half_spreads=float(outside.max()) if known else np.nan,
        slices_without_violation=1.0 - bad.size / expiries.size if expiries.size else np.nan,
        rms_half_spreads=float(np.sqrt(np.mean(residual**2))) if known else np.nan,
    )
