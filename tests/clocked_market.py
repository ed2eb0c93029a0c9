"""Quotes of a Heston market on a clock of its own, with jumps at scheduled events: truth known."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass

import numpy as np

from arbiter.conventions import MINUTES_PER_YEAR, Array
from arbiter.markets import LiftedHeston
from arbiter.pricing import black
from arbiter.quotes import Quotes
from arbiter.timing.clock import Clock, Event
from arbiter.timing.sessions import find_sessions, last_session

WEEKEND = 1.0 / 3.0  # variance of a weekend's minutes over a weekday's
_NODE, _WEIGHT = np.polynomial.hermite_e.hermegauss(16)
_DEVIATIONS = np.linspace(-3.5, 2.0, 41)


@dataclass(frozen=True)
class ClockedDay:
    """The quotes of one moment, and the events that are in them.

    Attributes:
        quotes: With half-spreads of 0.5 to 2 % of volatility and mids uniform within them.
        events: With their true variances.
        iv: ``(m,)`` true volatilities of the quotes.
    """

    quotes: Quotes
    events: tuple[Event, ...]
    iv: Array


def list_settlements(as_of: np.datetime64, opens: bool = False) -> list[np.datetime64]:
    """Closes like those of index options: daily, then weekly, then monthly and quarterly.

    Third Fridays may have their opening auction too.
    """
    found = []
    for opened, close in find_sessions(as_of, as_of + np.timedelta64(800, "D")):
        day: dt.date = close.astype("datetime64[D]").item()
        days = (day - as_of.astype("datetime64[D]").item()).days
        third = day.weekday() == 4 and 15 <= day.day <= 21
        monthly = third and (days <= 400 or day.month in (6, 12))
        if close > as_of and (days <= 28 or (days <= 75 and day.weekday() == 4) or monthly):
            found += [opened, close] if opens and monthly else [close]
    return found


def draw_day(
    seed: int, events: int = 3, clock: Clock | None = None, opens: bool = False
) -> ClockedDay:
    """A day of a Heston market with up to three events.

    Args:
        seed: Of the draw.
        events: How many.
        clock: Of the market; weekends pass at a third if left out.
        opens: Whether third Fridays settle at the open too.
    """
    rng = np.random.default_rng(seed)
    start = np.datetime64("2024-01-02") + np.timedelta64(int(rng.integers(500)), "D")
    as_of = (last_session(start) + np.timedelta64(16 * 60 + 15, "m")).astype("datetime64[s]")
    settles = np.array(list_settlements(as_of, opens))
    T = (settles - as_of) / np.timedelta64(1, "m") / MINUTES_PER_YEAR
    v0, theta = np.exp(rng.uniform(np.log(0.012), np.log(0.08), 2))
    market = LiftedHeston.heston(
        v0=float(v0),
        kappa=float(rng.uniform(0.8, 4.0)),
        theta=float(theta),
        sigma=float(rng.uniform(0.3, 1.0)),
        rho=float(rng.uniform(-0.85, -0.5)),
    )
    happening: dict[np.datetime64, float] = {}
    for low, high in ((4.0, 12.0), (15.0, 26.0), (30.0, 60.0))[:events]:
        day = last_session(as_of + np.timedelta64(int(rng.uniform(low, high)), "D"))
        when = day.astype("datetime64[m]") + np.timedelta64(14 * 60, "m")
        happening[when] = float(rng.uniform(0.007, 0.015) ** 2)
    told = [Event(when, f"event {i}", v) for i, (when, v) in enumerate(happening.items())]
    market_clock = clock or Clock(weekend=WEEKEND)
    stands = market_clock.change_time(as_of, float(T[-1])).at(T)
    rows = []
    for settled, t, years in zip(settles, T, stands, strict=True):
        jumped = sum(variance for when, variance in happening.items() if when <= settled)
        total = float(market.iv(0.0, years)) ** 2 * years + jumped
        k = _DEVIATIONS * np.sqrt(total)
        iv = _price_jumps(market, k, years, jumped) / np.sqrt(t)
        half = iv * (0.005 + 0.015 * np.abs(_DEVIATIONS) / 3.5)
        mid = iv + half * rng.uniform(-1.0, 1.0, k.size)
        rows.append([np.full(k.size, t), k, mid - half, mid + half, iv])
    table = dict(
        zip(("T", "k", "iv_bid", "iv_ask", "iv"), np.concatenate(rows, axis=1), strict=True)
    )
    iv = table.pop("iv")
    return ClockedDay(Quotes.from_frame(table, as_of=as_of), Clock(events=tuple(told)).events, iv)


def _price_jumps(market: LiftedHeston, k: Array, years: float, variance: float) -> Array:
    """Total volatilities of the market's law times an independent lognormal law of mean one."""
    price = np.zeros(k.size)
    for z, weight in zip(_NODE, _WEIGHT / _WEIGHT.sum(), strict=True):
        jump = z * np.sqrt(variance) - 0.5 * variance
        at = k - jump
        v = np.asarray(market.iv(at, years)) * np.sqrt(years)
        other = np.abs(1.0 - np.exp(at)) * ((at >= 0.0) != (k >= 0.0))  # the forward's part
        price += weight * np.exp(jump) * (np.nan_to_num(black.otm(at, v)) + other)
    return np.asarray(black.implied_total_volatility(price, k).volatility)
