"""VIX futures and options of a synthetic market: listing, exact prices, bids and asks.

A monthly series settles at the open of the day that lies 30 days before the next month's third
Friday, so that the index it settles on is the one of that month's SPX options.
"""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np

from arbiter.conventions import INDEX_POINTS, MINUTES_PER_YEAR, Array
from arbiter.markets.frictions import Frictions
from arbiter.markets.listing import Board, Curves
from arbiter.markets.quoted_chain import QuotedChain, quote_board
from arbiter.models.lifted_heston import INDEX_PRICE_RESOLUTION, LiftedHeston
from arbiter.timing.sessions import last_session, settlement_time

_INDEX_WINDOW = dt.timedelta(days=30)
_FUTURE_TICK = 0.05
_JENSEN_TOLERANCE = 1e-6
_STRIKE_STEPS = ((15.0, 0.5), (30.0, 1.0), (60.0, 2.5), (120.0, 5.0), (np.inf, 10.0))


@dataclass(frozen=True)
class VolatilityVenue:
    """How futures and options on the volatility index are listed and quoted.

    Attributes:
        monthly: Number of monthly series.
        weekly: Other Wednesdays within so many days have a series, too.
        deviations: Strikes reach so many standard deviations down and up.
        future_spread: Half-spread of a future in index points, before ticks of 0.05.
        shortest_days: Nearer series are not listed.
        frictions: Spreads, noise and liquidity of the options.
    """

    monthly: int = 6
    weekly: int = 0
    deviations: tuple[float, float] = (1.5, 3.0)
    future_spread: float = 0.03
    shortest_days: float = 1.0
    frictions: Frictions = field(
        default_factory=lambda: Frictions(
            spread=0.015, wings=0.15, term=0.5, least=0.02, floor=1.5e-3, floor_wings=0.5
        )
    )

    def __post_init__(self) -> None:
        if not (self.monthly > 0 and self.weekly >= 0 and min(self.deviations) > 0.0):
            raise ValueError(
                f"monthly = {self.monthly}, weekly = {self.weekly}, deviations = "
                f"{self.deviations}: give at least one month and positive deviations"
            )
        if not 0.0 <= self.future_spread < 10.0:
            raise ValueError(
                f"future_spread = {self.future_spread!r} is in index points: give 0.03"
            )


@dataclass(frozen=True, eq=False)
class QuotedVolatilityChain(QuotedChain):
    """Options on the volatility index; the forwards of the board are the exact futures.

    Attributes:
        future_bid: ``(L,)`` index points, on ticks of 0.05.
        future_ask: ``(L,)``.
    """

    future_bid: Array
    future_ask: Array


def list_volatility_series(
    as_of: np.datetime64, venue: VolatilityVenue
) -> tuple[tuple[str, ...], tuple[dt.date, ...], Array]:
    """Roots, expiries and maturities ``(L,)`` in years of the series listed at a moment."""
    now = dt.datetime.fromisoformat(str(as_of.astype("datetime64[m]")))
    first = now + dt.timedelta(days=venue.shortest_days - 0.5)
    found: dict[dt.datetime, str] = {}
    year, month = now.year, now.month
    while sum(root == "VIX" for root in found.values()) < venue.monthly:
        settles = settlement_time(_monthly_settlement(year, month), "AM")
        if settles >= first:
            found[settles] = "VIX"
        year, month = (year, month + 1) if month < 12 else (year + 1, 1)
    monthlies = {settles.date() for settles in found}
    for ahead in range(venue.weekly + 1):
        day = now.date() + dt.timedelta(days=ahead)
        settles = settlement_time(day, "AM")
        if day.weekday() == 2 and settles >= first and settles.date() not in monthlies:
            found[settles] = "VIXW"
    live = sorted(found)
    minutes = np.array([(at - now).total_seconds() / 60.0 for at in live])
    return (
        tuple(found[at] for at in live),
        tuple(at.date() for at in live),
        minutes / MINUTES_PER_YEAR,
    )


def quote_volatility(
    market: LiftedHeston,
    state: Array,
    as_of: np.datetime64,
    venue: VolatilityVenue,
    curves: Curves,
    seed: np.random.SeedSequence,
) -> QuotedVolatilityChain:
    """Futures and options on the volatility index of a market in a state."""
    rng = np.random.default_rng(seed)
    roots, expiries, T = list_volatility_series(as_of, venue)
    futures = np.asarray(market.vix_future(T, state))
    _check_futures(market, state, T, futures)
    vvix = np.asarray(market.vvix(T, state)) / 100.0
    strikes = [_strikes(f, v * np.sqrt(t), venue) for f, v, t in zip(futures, vvix, T, strict=True)]
    board = Board(
        as_of=as_of,
        spot=float(market.vix(state)),
        roots=roots,
        expiries=expiries,
        maturities=T,
        forwards=futures,
        discounts=curves.discount(T),
        series=np.repeat(np.arange(T.size), [part.size for part in strikes]),
        strikes=np.concatenate(strikes),
    )
    made = quote_board(
        board, _otm(market, state, board), venue.frictions, rng, INDEX_PRICE_RESOLUTION
    )
    half = venue.future_spread
    mid = futures + venue.frictions.noise * half * np.clip(rng.standard_normal(T.size), -2.5, 2.5)
    bid = _FUTURE_TICK * np.floor((mid - half) / _FUTURE_TICK + 1e-9)
    ask = _FUTURE_TICK * np.ceil((mid + half) / _FUTURE_TICK - 1e-9)
    return QuotedVolatilityChain(
        made.board, made.exact, made.quoted, np.round(bid, 2), np.round(ask, 2)
    )


def _check_futures(market: LiftedHeston, state: Array, T: Array, futures: Array) -> None:
    """Raise an error for futures above the root of forward variance, a failed inversion."""
    most = INDEX_POINTS * np.sqrt(market.forward_variance(T, state))  # Jensen
    bad = np.flatnonzero(~((futures > 0.0) & (futures <= most * (1.0 + _JENSEN_TOLERANCE))))
    if bad.size:
        i = bad[0]
        raise ArithmeticError(
            f"the future of the volatility index at T = {T[i]:.6g} is {futures[i]:.6g}, not "
            f"between 0 and {most[i]:.6g}: the oracle fails at these parameters, {market}"
        )


def _otm(market: LiftedHeston, state: Array, board: Board) -> Array:
    """Out-of-the-money prices over the future."""
    price = np.empty(board.strikes.size)
    for i, (T, future) in enumerate(zip(board.maturities, board.forwards, strict=True)):
        own = board.series == i
        strikes = board.strikes[own]
        calls, puts = (
            price_of(strikes, T, state) for price_of in (market.vix_call, market.vix_put)
        )
        price[own] = np.where(strikes >= future, calls, puts) / future
    return np.maximum(price, 0.0)


def _strikes(future: float, deviation: float, venue: VolatilityVenue) -> Array:
    low = future * np.exp(-venue.deviations[0] * deviation)
    high = future * np.exp(venue.deviations[1] * deviation)
    found, start = [], 0.0
    for end, step in _STRIKE_STEPS:
        grid = step * np.arange(
            np.ceil(max(low, start) / step), np.floor(min(high, end) / step) + 1
        )
        found.append(grid[grid > 0.0])
        start = end
        if high <= end:
            break
    return np.unique(np.concatenate(found))


@lru_cache(maxsize=4096)
def _monthly_settlement(year: int, month: int) -> dt.date:
    """The last session on or before the day 30 days before the next month's third Friday."""
    year, month = (year, month + 1) if month < 12 else (year + 1, 1)
    first = dt.date(year, month, 1)
    friday = first + dt.timedelta(days=(4 - first.weekday()) % 7 + 14)
    session = last_session(np.datetime64(friday, "D"))
    return dt.date.fromisoformat(str(session)) - _INDEX_WINDOW
