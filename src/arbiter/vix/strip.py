"""One expiry of a listed chain, summed by the exchange's index rule (docs/vix.md)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import ArrayLike, NDArray

from arbiter.conventions import MINUTES_PER_YEAR, Array

MAX_MINUTES = 100 * MINUTES_PER_YEAR
LARGEST_GROWTH = 0.01  # of money to settlement, beyond which a rate of 100 % is a mistaken unit
QUOTE_COLUMNS = ("strike", "call_bid", "call_ask", "put_bid", "put_ask")


@dataclass(frozen=True, eq=False)
class Strip:
    """The options of one expiry, summed by the index rule.

    Attributes:
        minutes: Minutes to settlement.
        rate: Continuously compounded rate to settlement.
        forward: Level at which call and put cost the same, from the strike where they nearly do.
        k0: The first strike at or below the forward, where puts end and calls begin.
        variance: Annualised variance, a decimal.
        strikes: ``(m,)`` strikes of the options used, increasing.
        mids: ``(m,)`` their prices; at ``k0`` the mean of put and call.
        unusable: How many bid options were passed over because their ask was absent or below
            the bid.
        label: Name of the expiry.
    """

    minutes: float
    rate: float
    forward: float
    k0: float
    variance: float
    strikes: Array
    mids: Array
    unusable: int = 0
    label: str = ""

    @property
    def contributions(self) -> pl.DataFrame:
        """One row per option used: strike, type, mid, dk, contribution.

        Types are Put, Call, and Put/Call at ``k0``. ``variance`` is ``2/T`` times the sum of the
        contributions less ``(forward/k0 − 1)²/T``.
        """
        K, at = self.strikes, np.sign(self.strikes - self.k0).astype(np.int64) + 1
        return pl.DataFrame(
            {
                "strike": K,
                "type": np.array(["Put", "Put/Call", "Call"])[at],
                "mid": self.mids,
                "dk": _find_widths(K),
                "contribution": _weigh_strikes(K, self.rate * self.T) * self.mids,
            }
        )

    @property
    def T(self) -> float:  # noqa: N802 - the field's name
        """Year fraction to settlement."""
        return self.minutes / MINUTES_PER_YEAR

    @property
    def volatility(self) -> float:
        """Volatility of this expiry alone, in index points."""
        return 100.0 * float(np.sqrt(self.variance))


def sum_strip(
    strike: ArrayLike,
    call_bid: ArrayLike,
    call_ask: ArrayLike,
    put_bid: ArrayLike,
    put_ask: ArrayLike,
    *,
    minutes: float,
    rate: float,
) -> Strip:
    """Sum the options of one expiry by the index rule.

    Args:
        strike: ``(m,)`` strikes, each once, in any order.
        call_bid: ``(m,)`` bids in currency; 0 or NaN where nobody bids.
        call_ask: ``(m,)`` asks in currency.
        put_bid: ``(m,)`` as for calls.
        put_ask: ``(m,)`` as for calls.
        minutes: Minutes to settlement.
        rate: Continuously compounded rate to settlement, a decimal.

    Raises:
        ValueError: Naming the strike, the value and the remedy.

    Example:
        >>> near = sum_strip(
        ...     [90.0, 95.0, 100.0, 105.0, 110.0],
        ...     [10.1, 5.6, 2.2, 0.5, 0.1],
        ...     [10.3, 5.8, 2.4, 0.7, 0.3],
        ...     [0.1, 0.6, 2.1, 5.4, 9.9],
        ...     [0.3, 0.8, 2.3, 5.6, 10.1],
        ...     minutes=43_200,
        ...     rate=0.0,
        ... )
        >>> near.k0, round(near.forward, 6), round(near.volatility, 4)
        (100.0, 100.1, 22.0082)
    """
    K, quotes = _check_quotes(strike, (call_bid, call_ask, put_bid, put_ask), minutes, rate)
    bid, ask = quotes[0::2], quotes[1::2]  # (2, m): calls, puts
    mid = 0.5 * (bid + ask)
    two_sided = (bid > 0.0) & (ask >= bid)
    T = minutes / MINUTES_PER_YEAR
    growth = np.exp(rate * T)

    gap = np.where(two_sided.all(axis=0), np.abs(mid[0] - mid[1]), np.inf)
    at = int(gap.argmin())
    if not np.isfinite(gap[at]):
        raise ValueError(
            "no strike has both a call and a put with bid and ask, so there is no forward: "
            "leave out this expiry"
        )
    forward = float(K[at] + growth * (mid[0, at] - mid[1, at]))
    centre = int(np.searchsorted(K, forward, side="right")) - 1
    if centre < 0:
        raise ValueError(
            f"the lowest strike, {K[0]:g}, lies above the forward, {forward:.6g}: "
            "the strip needs strikes on both sides"
        )
    if not two_sided[:, centre].all():
        raise ValueError(
            f"strike {K[centre]:g}, the first below the forward {forward:.6g}, has no two-sided "
            "call and put, and the rule averages the two: leave out this strike, or this expiry"
        )

    puts = np.arange(centre)[::-1][: _before_two_zeros(bid[1, :centre][::-1])][::-1]
    calls = centre + 1 + np.arange(_before_two_zeros(bid[0, centre + 1 :]))
    reached = np.concatenate([puts, [centre], calls])
    side = np.where(reached > centre, 0, 1)
    keep = two_sided[side, reached]
    unusable = int(np.sum((bid[side, reached] > 0.0) & ~keep))
    used, side = reached[keep], side[keep]
    if used.size < 2:
        raise ValueError(
            f"only strike {K[centre]:g} is bid out of the money, and a strip needs at least two "
            "strikes: leave out this expiry"
        )
    price = np.where(used == centre, mid[:, centre].mean(), mid[side, used])
    total = float((_weigh_strikes(K[used], rate * T) * price).sum())
    k0 = float(K[centre])
    variance = 2.0 / T * total - (forward / k0 - 1.0) ** 2 / T
    if variance <= 0.0:
        raise ValueError(
            f"the strip sums to a variance of {variance:.4g}: the strikes around the forward "
            f"{forward:.6g} are too few or their quotes contradict each other; leave it out"
        )
    return Strip(
        minutes=float(minutes),
        rate=float(rate),
        forward=forward,
        k0=k0,
        variance=variance,
        strikes=K[used],
        mids=price,
        unusable=unusable,
    )


def _find_widths(K: Array) -> Array:
    """Half the distance between the neighbours of each strike, the whole one at the ends."""
    return np.gradient(K)


def _weigh_strikes(K: Array, growth: float) -> Array:
    """``ΔK/K² e^{rT}``, which turns prices into contributions."""
    return np.asarray(_find_widths(K) / K**2 * np.exp(growth))


def _before_two_zeros(bids: Array) -> int:
    """Number of options, from the money outwards, before two in a row without a bid."""
    none = bids == 0.0
    two = np.flatnonzero(none[1:] & none[:-1])
    return int(two[0]) if two.size else bids.size


def _check_quotes(
    strike: ArrayLike, quotes: tuple[ArrayLike, ...], minutes: float, rate: float
) -> tuple[Array, Array]:
    """Sorted strikes ``(m,)`` and quotes ``(4, m)``: absent bids 0, absent asks NaN."""
    if not 0.0 < minutes <= MAX_MINUTES:
        raise ValueError(
            f"minutes = {minutes!r}: give the time to settlement, positive and at most a century"
        )
    # parity of a very short expiry may imply a large rate, which then hardly discounts
    if not (abs(rate) < 1.0 or abs(rate) * minutes <= LARGEST_GROWTH * MINUTES_PER_YEAR):
        raise ValueError(f"rate = {rate!r}: give a continuously compounded decimal, as 0.05")
    K = np.atleast_1d(np.asarray(strike, dtype=np.float64))
    rows = [np.atleast_1d(np.asarray(side, dtype=np.float64)) for side in quotes]
    for name, row in zip(QUOTE_COLUMNS[1:], rows, strict=True):
        if row.shape != K.shape or K.ndim != 1:
            raise ValueError(f"{name} has shape {row.shape} and strike {K.shape}: give one each")
        _raise_at_first_bad(
            name, K, row, (row < 0.0) | np.isinf(row), "prices are not negative or infinite"
        )
    if not K.size:
        raise ValueError("no strikes were given")
    _raise_at_first_bad("strike", K, K, ~(np.isfinite(K) & (K > 0.0)), "strikes are positive")
    order = np.argsort(K, kind="stable")
    K, table = K[order], np.stack(rows)[:, order]
    again = np.append(np.diff(K) == 0.0, False)
    _raise_at_first_bad("strike", K, K, again, "given twice: sum the AM and the PM series apart")
    table[0::2] = np.nan_to_num(table[0::2])
    return K, table


def _raise_at_first_bad(
    name: str, K: Array, values: Array, bad: NDArray[np.bool_], remedy: str
) -> None:
    where = np.flatnonzero(bad)
    if where.size:
        raise ValueError(f"strike {K[where[0]]:g}: {name} = {values[where[0]]:g}; {remedy}")
