"""Listed series and strikes of a synthetic exchange on a day.

Dailies, weeklies and month-ends settle at the close (SPXW), monthlies and quarterlies at the open
(SPX). Strikes stand close at the money and near in time, wide in the wings and far out.
"""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from arbiter.conventions import MINUTES_PER_YEAR, Array
from arbiter.timing.sessions import QUOTES_AFTER_CLOSE, last_session, session_close, settlement_time

_ONE_DAY = dt.timedelta(days=1)
_REFERENCE_SPOT = 5000.0  # index level for which strike steps are stated
_STRIKE_STEP_SCALES = np.array([1e-3, 0.01, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 100.0])


@dataclass(frozen=True)
class Curves:
    """Zero rate and dividend yield by maturity, continuously compounded, the same every day.

    Attributes:
        rate: Rate at long maturities.
        tilt: Short rate less long rate; it dies out at speed ``decay`` a year.
        decay: That speed.
        dividend: Dividend yield.
    """

    rate: float = 0.035
    tilt: float = 0.005
    decay: float = 1.0
    dividend: float = 0.013

    def __post_init__(self) -> None:
        for name in ("rate", "tilt", "decay", "dividend"):
            if not abs(getattr(self, name)) < 10.0:
                raise ValueError(f"{name} = {getattr(self, name)!r} is a rate a year: 0.03 say")

    def zero(self, T: Array | float) -> Array:
        """Zero rates at maturities ``T``, continuously compounded."""
        return np.asarray(self.rate + self.tilt * np.exp(-self.decay * np.asarray(T)))

    def discount(self, T: Array | float) -> Array:
        """Discount factors at maturities ``T``."""
        return np.asarray(np.exp(-self.zero(T) * T))

    def forward(self, spot: float, T: Array | float) -> Array:
        """Forwards of the index."""
        return np.asarray(spot * np.exp((self.zero(T) - self.dividend) * T))


@dataclass(frozen=True)
class Listing:
    """Which series and strikes are listed.

    Attributes:
        daily: Every session within so many days has a series that settles at its close.
        weekly: Every Friday within so many days, too.
        month_end: The last session of every month, too.
        monthly: Third Fridays within so many days have a series that settles at the open.
        quarterly: Third Fridays of March, June, September and December, too.
        deviations: Strikes reach so many standard deviations down and up.
        steps: Strike steps at an index of 5,000, from the money outwards; they grow and shrink
            with the index by factors of 2, 5 and 10.
        borders: Standard deviations from the money at which each but the last step ends.
        finest: Steps below this share of a standard deviation are left out, so that five-point
            strikes are for near expiries.
        narrowest: Volatility below which the range of strikes does not shrink.
        shortest_days: Nearer series are not listed.
    """

    daily: int = 16
    weekly: int = 60
    month_end: int = 200
    monthly: int = 250
    quarterly: int = 900
    deviations: tuple[float, float] = (6.0, 3.5)
    steps: tuple[float, ...] = (5.0, 10.0, 25.0, 50.0, 100.0)
    borders: tuple[float, ...] = (0.75, 1.5, 2.5, 4.0)
    finest: float = 0.025
    narrowest: float = 0.08
    shortest_days: float = 1.0

    def __post_init__(self) -> None:
        if len(self.borders) != len(self.steps) - 1 or list(self.borders) != sorted(self.borders):
            raise ValueError(
                f"borders = {self.borders} must increase, one fewer than the "
                f"{len(self.steps)} steps"
            )
        if not (min(self.steps) > 0.0 and min(self.deviations) > 0.0):
            raise ValueError(
                f"steps = {self.steps}, deviations = {self.deviations}: all must be positive"
            )
        reach = max(self.daily, self.weekly, self.month_end, self.monthly, self.quarterly)
        if not reach >= self.shortest_days:
            raise ValueError(
                f"no series: the farthest is {reach} days out, the nearest allowed "
                f"{self.shortest_days:g}"
            )


SPARSE_LISTING = Listing(
    daily=0,
    weekly=30,
    month_end=0,
    monthly=130,
    quarterly=720,
    deviations=(4.0, 2.5),
    steps=(5.0, 10.0, 25.0, 50.0, 100.0, 200.0),
    borders=(1.0, 1.0, 1.0, 2.5, 3.0),
    finest=0.12,
)


@dataclass(frozen=True, eq=False)
class Board:
    """Every strike that is listed at one moment.

    Attributes:
        as_of: The moment, New York time, in minutes.
        spot: Level of the index.
        roots: ``(L,)`` SPX or SPXW.
        expiries: ``(L,)`` dates.
        maturities: ``(L,)`` years, increasing.
        forwards: ``(L,)``.
        discounts: ``(L,)``.
        series: ``(m,)`` index of each strike's series, nondecreasing.
        strikes: ``(m,)`` increasing within a series.
    """

    as_of: np.datetime64
    spot: float
    roots: tuple[str, ...]
    expiries: tuple[dt.date, ...]
    maturities: Array
    forwards: Array
    discounts: Array
    series: NDArray[np.int64]
    strikes: Array

    @property
    def k(self) -> Array:
        """``(m,)`` log-moneyness of the listed strikes."""
        return np.asarray(np.log(self.strikes / self.forwards[self.series]))

    @property
    def T(self) -> Array:  # noqa: N802 - the field's name
        """``(m,)`` maturities of the listed strikes in years."""
        return np.asarray(self.maturities[self.series])

    @property
    def labels(self) -> tuple[str, ...]:
        """``(L,)`` such as ``"2023-03-17 SPX"``, as chains call them."""
        return tuple(f"{day} {root}" for day, root in zip(self.expiries, self.roots, strict=True))


def last_quote_time(session: dt.date) -> np.datetime64:
    """The last quotes of a session: a quarter of an hour after its close, in minutes."""
    return session_close(np.datetime64(session, "D")) + QUOTES_AFTER_CLOSE


def sessions(start: dt.date, count: int) -> list[dt.date]:
    """The first ``count`` sessions from ``start`` on."""
    found: list[dt.date] = []
    day = start
    while len(found) < count:
        if _is_session(day):
            found.append(day)
        day += _ONE_DAY
    return found


def list_strikes(
    as_of: np.datetime64, spot: float, volatility: Array | float, listing: Listing, curves: Curves
) -> Board:
    """The strikes that are listed at a moment.

    Args:
        as_of: Moment of the quotes.
        spot: Level of the index.
        volatility: At-the-money volatility that scales the range, a number or a function of
            maturity as values at :func:`series` of the same moment.
        listing: What to list.
        curves: Rates and dividends.
    """
    if not 0.0 < spot < np.inf:
        raise ValueError(f"spot = {spot!r}: the level of the index must be positive")
    roots, expiries, T = series(as_of, listing)
    forwards = curves.forward(spot, T)
    volatilities = np.broadcast_to(np.asarray(volatility, dtype=np.float64), T.shape)
    strikes = [
        _strikes(f, v, t, listing) for f, v, t in zip(forwards, volatilities, T, strict=True)
    ]
    return Board(
        as_of=as_of,
        spot=spot,
        roots=roots,
        expiries=expiries,
        maturities=T,
        forwards=forwards,
        discounts=curves.discount(T),
        series=np.repeat(np.arange(T.size), [part.size for part in strikes]),
        strikes=np.concatenate(strikes),
    )


@lru_cache(maxsize=4096)
def _find_series(
    as_of: str, listing: Listing
) -> tuple[tuple[str, ...], tuple[dt.date, ...], Array]:
    now = dt.datetime.fromisoformat(as_of)
    today = now.date()
    found: dict[dt.datetime, tuple[str, dt.date]] = {}
    last = max(listing.daily, listing.weekly, listing.month_end, listing.monthly, listing.quarterly)
    for ahead in range(last + 1):
        day = today + ahead * _ONE_DAY
        opens = (
            ahead <= listing.monthly or (ahead <= listing.quarterly and day.month % 3 == 0)
        ) and (_is_third_friday(day))
        closes = _is_session(day) and (
            ahead <= listing.daily or (ahead <= listing.month_end and _is_month_end(day))
        )
        # a Friday that is a holiday expires the day before
        closes = closes or (ahead <= listing.weekly and day.weekday() == 4)
        for root, listed in (("SPX", opens), ("SPXW", closes)):
            if listed:
                settles = settlement_time(day, "AM" if root == "SPX" else "PM")
                found[settles] = (root, settles.date())
    live = sorted(
        at for at in found if (at - now).total_seconds() >= 86400.0 * (listing.shortest_days - 0.5)
    )
    minutes = np.array([(at - now).total_seconds() / 60.0 for at in live])
    years = minutes / MINUTES_PER_YEAR
    years.setflags(write=False)
    return tuple(found[at][0] for at in live), tuple(found[at][1] for at in live), years


def series(
    as_of: np.datetime64, listing: Listing
) -> tuple[tuple[str, ...], tuple[dt.date, ...], Array]:
    """Roots, expiries and maturities ``(L,)`` in years of the series listed at a moment."""
    found = _find_series(str(as_of.astype("datetime64[m]")), listing)
    if not found[0]:
        raise ValueError(f"nothing is listed at {as_of}: widen the listing, {listing}")
    return found


def _strikes(forward: float, volatility: float, T: float, listing: Listing) -> Array:
    """Strikes of one series: steps around the forward that widen outwards."""
    unit = _STRIKE_STEP_SCALES[
        np.abs(np.log(_STRIKE_STEP_SCALES * _REFERENCE_SPOT / forward)).argmin()
    ]
    deviation = max(volatility, listing.narrowest) * np.sqrt(T)
    down, up = listing.deviations
    least = np.searchsorted(listing.steps, listing.finest * forward * deviation / unit)
    floor = listing.steps[min(int(least), len(listing.steps) - 1)]
    found = []
    for step, border in zip(listing.steps, (*listing.borders, np.inf), strict=True):
        low = forward * np.exp(-min(border, down) * deviation)
        high = forward * np.exp(min(border, up) * deviation)
        size = unit * max(step, floor)
        found.append(size * np.arange(max(np.ceil(low / size), 1.0), np.floor(high / size) + 1.0))
    return np.unique(np.round(np.concatenate(found), 3))


@lru_cache(maxsize=65536)
def _is_session(day: dt.date) -> bool:
    at = np.datetime64(day, "D")
    return bool(last_session(at) == at)


def _is_third_friday(day: dt.date) -> bool:
    return day.weekday() == 4 and 15 <= day.day <= 21


@lru_cache(maxsize=65536)
def _is_month_end(day: dt.date) -> bool:
    ahead = day + _ONE_DAY
    while ahead.month == day.month:
        if _is_session(ahead):
            return False
        ahead += _ONE_DAY
    return True
