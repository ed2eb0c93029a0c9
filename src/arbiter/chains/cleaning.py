"""Which options become quotes: each is used, or has the one reason for which it is not."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from arbiter.chains.contradictions import find_contradictions
from arbiter.conventions import MINUTES_PER_YEAR, Array
from arbiter.exclusions import Exclusion
from arbiter.quotes import MAX_LOG_MONEYNESS

Mask = NDArray[np.bool_]

_CODE_DTYPE = f"<U{max(map(len, Exclusion))}"  # NumPy cuts longer text off


@dataclass(frozen=True)
class CleaningRules:
    """What is asked of a quote; :meth:`arbiter.chains.Chain.quotes` explains each."""

    shortest_days: float = 2.0
    fewest_strikes: int = 8
    stop_after_zero_bids: bool = True
    stale_after_hours: float = 24.0

    def __post_init__(self) -> None:
        for name in ("shortest_days", "fewest_strikes", "stale_after_hours"):
            value = getattr(self, name)
            if not value >= 0:
                raise ValueError(f"{name} = {value!r} must be zero or more")


@dataclass(frozen=True)
class CleaningVerdict:
    """One entry per option, in the order of the frame that was judged.

    Attributes:
        reason: Code of the exclusion, empty where the option is used.
        k: Log-moneyness, NaN where the series has no forward.
        two_sided: Whether the option is out of the money with a bid and a higher ask: the quotes
            that one would expect to be used. Where a series has no forward, that of its
            neighbours says what is out of the money.
        strikes: Number of these on the same series.
    """

    reason: NDArray[np.str_]
    k: Array
    two_sided: Mask
    strikes: NDArray[np.int64]


def judge_options(
    options: pl.DataFrame, rules: CleaningRules, as_of: np.datetime64
) -> CleaningVerdict:
    """Decide on every option.

    Args:
        options: A chain's frame with the columns of its parity table joined on.
        rules: What to ask of a quote.
        as_of: Moment of the quotes.
    """
    T, K, bid, ask, F, D = (
        _read_floats(options, name) for name in ("T", "strike", "bid", "ask", "forward", "discount")
    )
    with np.errstate(all="ignore"):  # bids and asks may be anything
        k = np.log(K / F)
        call = (options["side"] == "call").to_numpy()
        first = options.select(pl.struct("label", "strike", "side").is_first_distinct()).to_series()
        out = call == (k >= 0.0)
        checks = {
            Exclusion.EXPIRED: T <= 0.0,
            Exclusion.DUPLICATE: ~first.to_numpy(),
            Exclusion.TOO_SHORT: 1440.0 * rules.shortest_days - 1e-6 > T * MINUTES_PER_YEAR,
            Exclusion.NO_FORWARD: np.isnan(k),
        }
        reason = np.select(list(checks.values()), [code.value for code in checks], default="")
        reason = reason.astype(_CODE_DTYPE)
        listed = out & (reason == "")
        _mark_excluded(reason, Exclusion.MISSING, ~np.isfinite(ask) | (np.minimum(ask, bid) < 0.0))
        _mark_excluded(reason, Exclusion.MISSING, np.isinf(bid))
        _mark_excluded(reason, Exclusion.NO_ASK, (bid > 0.0) & (ask == 0.0))
        _mark_excluded(reason, Exclusion.CROSSED, bid > ask)
        _mark_excluded(reason, Exclusion.IN_THE_MONEY, ~out)
        # in forward units, where a bid of 1e-320 is nothing
        _mark_excluded(reason, Exclusion.ZERO_BID, ~(bid / (D * F) > 0.0))
        _mark_excluded(reason, Exclusion.LOCKED, bid / (D * F) == ask / (D * F))
        series = options["label"].rank("dense").to_numpy().astype(np.int64) - 1
        two_sided = (
            (T > 0.0)
            & first.to_numpy()
            & (call == (np.log(K / _interpolate_forwards(T, F)) >= 0.0))
        )
        two_sided &= (bid > 0.0) & (ask > bid) & np.isfinite(ask)
        strikes = np.bincount(series[two_sided], minlength=series.max(initial=-1) + 1)[series]
        _mark_excluded(
            reason,
            Exclusion.BOUNDS,
            (ask >= D * np.minimum(K, F)) | (np.abs(k) > MAX_LOG_MONEYNESS),
        )
        _mark_excluded(reason, Exclusion.STALE, _find_stale(options, rules, as_of))
        for code, bad in find_contradictions(options, reason == "", k).items():
            _mark_excluded(reason, code, bad)
    if rules.stop_after_zero_bids:
        _mark_excluded(
            reason, Exclusion.BEYOND_ZERO_BIDS, _find_beyond_zero_bids(series, k, bid, listed)
        )
    _mark_excluded(reason, Exclusion.TOO_FEW, strikes < rules.fewest_strikes)
    return CleaningVerdict(reason, k, two_sided, strikes)


def _read_floats(frame: pl.DataFrame, name: str) -> Array:
    return frame[name].cast(pl.Float64).fill_null(np.nan).to_numpy()


def _interpolate_forwards(T: Array, F: Array) -> Array:
    """Forwards, those that are missing by interpolation in ``T``."""
    known = np.flatnonzero(np.isfinite(F))
    if known.size == 0:
        return F
    T_known, place = np.unique(T[known], return_index=True)
    return np.where(np.isfinite(F), F, np.interp(T, T_known, F[known[place]]))


def _mark_excluded(reason: NDArray[np.str_], code: Exclusion, bad: Mask) -> None:
    """Give ``code`` to the options that are ``bad`` and have no reason yet."""
    reason[bad & (reason == "")] = code.value


def _find_stale(options: pl.DataFrame, rules: CleaningRules, as_of: np.datetime64) -> Mask:
    """Quotes that the source itself dates long before ``as_of``."""
    if "quote_time" not in options.columns:
        return np.zeros(options.height, dtype=bool)
    made = options["quote_time"].to_numpy().astype("datetime64[s]")
    hours = (as_of - made).astype("timedelta64[s]") / np.timedelta64(3600, "s")
    return np.asarray(hours > rules.stale_after_hours)


def _find_beyond_zero_bids(series: NDArray[np.int64], k: Array, bid: Array, listed: Mask) -> Mask:
    """Out-of-the-money options past two neighbouring strikes without a bid, from the money out."""
    wing = 2 * series + (k >= 0.0)
    order = np.lexsort((np.abs(k), wing))
    order = order[listed[order]]
    beyond = np.zeros(k.size, dtype=bool)
    if order.size == 0:
        return beyond
    zero = ~(bid[order] > 0.0)
    inner = np.concatenate([[False], np.diff(wing[order]) == 0])  # has a neighbour nearer the money
    double = zero & inner & np.concatenate([[False], zero[:-1]])
    before = np.cumsum(double) - double
    first = np.flatnonzero(~inner)
    before -= np.repeat(before[first], np.diff(np.append(first, order.size)))
    beyond[order] = before > 0
    return beyond
