"""Which options become quotes: each is used, or has the one reason for which it is not."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from arbiter.chains.contradictions import find_contradictions
from arbiter.chains.option_table import Mask, OptionTable, SeriesEstimates
from arbiter.conventions import MINUTES_PER_YEAR, Array, Indices
from arbiter.exclusions import Exclusion
from arbiter.quotes import MAX_LOG_MONEYNESS

SHORTEST_DAYS, FEWEST_STRIKES = 0.0, 5  # of an expiry that is used by default
USED = 0  # place of an option without a reason
REASONS = ("", *(code.value for code in Exclusion))


@dataclass(frozen=True)
class CleaningRules:
    """What is asked of a quote; :meth:`arbiter.chains.Chain.quotes` explains each."""

    shortest_days: float = SHORTEST_DAYS
    fewest_strikes: int = FEWEST_STRIKES
    stop_after_zero_bids: bool = True
    stale_after_hours: float = 24.0

    def __post_init__(self) -> None:
        for name in ("shortest_days", "fewest_strikes", "stale_after_hours"):
            value = getattr(self, name)
            if not value >= 0:
                raise ValueError(f"{name} = {value!r} must be zero or more")


@dataclass(frozen=True)
class CleaningVerdict:
    """One entry per option of the table that was judged.

    Attributes:
        reason: Place of the exclusion's code in :data:`REASONS`.
        k: Log-moneyness, NaN where the series has no forward.
        two_sided: Whether the option is out of the money with a bid and a higher ask: the quotes
            that one would expect to be used. Where a series has no forward, that of its
            neighbours says what is out of the money.
        strikes: Number of these on the same series.
        usable: Number of quotes by series that can be used, were there enough of them.
        bound: Whether the option is out of the money with an ask and no bid.
    """

    reason: NDArray[np.int8]
    k: Array
    two_sided: Mask
    strikes: NDArray[np.int64]
    usable: NDArray[np.int64]
    bound: Mask


def judge_options(
    options: OptionTable, estimates: SeriesEstimates, rules: CleaningRules, age: Array | None
) -> CleaningVerdict:
    """Decide on every option.

    Args:
        options: The options.
        estimates: Forwards and discount factors of their series.
        rules: What to ask of a quote.
        age: Hours since each was quoted, or None where that is not known.
    """
    T, K, bid, ask, call = options.T, options.strike, options.bid, options.ask, options.call
    with np.errstate(all="ignore"):  # bids and asks may be anything
        F, D = estimates.forward[options.series], estimates.discount[options.series]
        k = np.log(K / F)
        out = call == (k >= 0.0)
        unit = D * F  # in forward units a bid of 1e-320 is nothing
        unit_bid = bid / unit
        reasons = _Reasons(T.size)
        reasons.mark(Exclusion.EXPIRED, T <= 0.0)
        reasons.mark(Exclusion.DUPLICATE, ~options.first)
        short = 1440.0 * rules.shortest_days - 1e-6 > T * MINUTES_PER_YEAR
        reasons.mark(Exclusion.TOO_SHORT, short)
        reasons.mark(Exclusion.NO_FORWARD, np.isnan(k))
        listed = out & reasons.none
        reasons.mark(Exclusion.MISSING, ~np.isfinite(ask) | (np.minimum(ask, bid) < 0.0))
        reasons.mark(Exclusion.MISSING, np.isinf(bid))
        reasons.mark(Exclusion.NO_ASK, (bid > 0.0) & (ask == 0.0))
        reasons.mark(Exclusion.CROSSED, bid > ask)
        reasons.mark(Exclusion.IN_THE_MONEY, ~out)
        reasons.mark(Exclusion.ZERO_BID, ~(unit_bid > 0.0))
        reasons.mark(Exclusion.LOCKED, unit_bid == ask / unit)
        two_sided = (T > 0.0) & options.first & (bid > 0.0) & (ask > bid) & np.isfinite(ask)
        two_sided &= call == (_interpolate_forwards(options, estimates.forward) <= K)
        strikes = np.bincount(options.series[two_sided], minlength=len(options.labels))
        strikes = strikes[options.series]
        reasons.mark(
            Exclusion.BOUNDS,
            (ask >= D * np.minimum(K, F)) | (np.abs(k) > MAX_LOG_MONEYNESS),
        )
        if age is not None:
            reasons.mark(Exclusion.STALE, age > rules.stale_after_hours)
        usable = options.order[reasons.none[options.order]]
        found = find_contradictions(options, estimates, usable)
        for code, bad in found.items():
            reasons.mark(code, bad)
    if rules.stop_after_zero_bids:
        beyond = _find_beyond_zero_bids(options, k, options.order[listed[options.order]])
        reasons.mark(Exclusion.BEYOND_ZERO_BIDS, beyond)
    usable = np.bincount(options.series[reasons.none], minlength=len(options.labels))
    reasons.mark(Exclusion.TOO_FEW, (usable < rules.fewest_strikes)[options.series])
    fresh = True if age is None else age <= rules.stale_after_hours
    bound = (reasons.codes == REASONS.index(Exclusion.ZERO_BID.value)) & (ask > 0.0) & fresh
    bound &= (np.abs(k) <= MAX_LOG_MONEYNESS) & (ask < D * np.minimum(K, F))
    return CleaningVerdict(reasons.codes, k, two_sided, strikes, usable, bound)


class _Reasons:
    """The reason of each option, the first that is marked."""

    def __init__(self, count: int) -> None:
        self.codes = np.full(count, USED, dtype=np.int8)
        self.none = np.ones(count, dtype=bool)

    def mark(self, code: Exclusion, bad: Mask) -> None:
        """Give ``code`` to the options that are ``bad`` and have no reason yet."""
        new = bad & self.none
        self.codes[new] = REASONS.index(code.value)
        self.none = self.none & ~bad


def _interpolate_forwards(options: OptionTable, F: Array) -> Array:
    """Forwards of all options, those that are missing by interpolation in ``T``."""
    if np.isfinite(F).all():
        return F[options.series]
    T = np.zeros(F.size)
    T[options.series] = options.T
    known = np.flatnonzero(np.isfinite(F))
    if known.size == 0:
        return F[options.series]
    T_known, place = np.unique(T[known], return_index=True)
    return np.where(np.isfinite(F), F, np.interp(T, T_known, F[known[place]]))[options.series]


def _find_beyond_zero_bids(options: OptionTable, k: Array, listed: Indices) -> Mask:
    """Out-of-the-money options past two neighbouring strikes without a bid, from the money out.

    ``listed`` are all that are out of the money, by series and strike.
    """
    beyond = np.zeros(k.size, dtype=bool)
    if listed.size == 0:
        return beyond
    wing = 2 * options.series[listed] + (k[listed] >= 0.0)
    first = np.flatnonzero(np.diff(wing, prepend=-1))
    size = np.diff(first, append=listed.size)
    place, begin = np.arange(listed.size), np.repeat(first, size)
    outward = np.where(wing % 2 == 1, place, 2 * begin + np.repeat(size, size) - 1 - place)
    order = listed[outward]
    zero = ~(options.bid[order] > 0.0)
    double = zero & (place > begin) & np.append(False, zero[:-1])
    before = np.cumsum(double) - double
    beyond[order] = before > before[begin]
    return beyond
