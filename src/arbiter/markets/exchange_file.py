"""A quoted chain as the text of an exchange download, for the chain readers.

Out-of-the-money quotes are those of the chain. In-the-money quotes, last sales, volumes and open
interest are drawn from a seed; they carry the parity from which a reader takes its forwards.
"""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtr

from arbiter.chains.roots import EUROPEAN_ROOTS
from arbiter.conventions import Array
from arbiter.markets.frictions import round_to_ticks
from arbiter.markets.quoted_chain import QuotedChain
from arbiter.timing.sessions import NEW_YORK

COLUMN_HEADER = (
    "Expiration Date,Calls,Last Sale,Net,Bid,Ask,Volume,IV,Delta,Gamma,Open Interest,Strike,"
    "Puts,Last Sale,Net,Bid,Ask,Volume,IV,Delta,Gamma,Open Interest"
)
_PRINT_DELAY = dt.timedelta(minutes=16)  # the file is downloaded after the last quotes
_TITLES = {"SPX": "Standard & Poors 500 Index", "VIX": "CBOE Volatility Index"}
_MAX_STRIKE = 1e5  # strikes are coded with eight digits, three of them decimals
_ITM_EXTRA_HALF_SPREAD = (
    1e-4  # of the forward: in-the-money options are quoted this much wider, twice in a year
)


def exchange_text(day: QuotedChain, seed: int | np.random.SeedSequence) -> str:
    """A day's quotes as the text of an exchange download (new layout, ``.csv``).

    Read it back with ``arbiter.chains.read_chain(text.encode())``, or write it to a file whose
    name says what it is.

    Args:
        day: What to write: a snapshot, or the options on its volatility index.
        seed: For what a sheet does not hold: in-the-money quotes, sales and open interest.

    Raises:
        ValueError: If the layout cannot hold a strike: above 99,999, or finer than cents.
    """
    b = day.board
    cents = 100.0 * b.strikes
    bad = (b.strikes >= _MAX_STRIKE) | (np.abs(cents - np.round(cents)) > 1e-6)
    if bad.any():
        raise ValueError(
            f"strike {b.strikes[bad][0]:g} does not fit the exchange's layout, which has strikes "
            f"in cents below {_MAX_STRIKE:,.0f}: use another index level"
        )
    rng = np.random.default_rng(seed)
    calls, puts = _build_side_columns(day, rng)
    printed = b.as_of.astype("datetime64[s]").item() + _PRINT_DELAY
    zone = printed.replace(tzinfo=NEW_YORK).tzname()
    clock = f"{printed:%I:%M %p}".lstrip("0")
    lines = [
        "",
        f"{_TITLES[EUROPEAN_ROOTS[b.roots[0]].underlying]} (synthetic),Last: "
        f"{b.spot:.2f},Change:  0",
        f'"Date: {printed:%B} {printed.day}, {printed.year} at {clock} {zone}",'
        f"Bid: {0.999 * b.spot:.2f},Ask: {1.001 * b.spot:.2f},Size: 1*1,Volume: 0",
        COLUMN_HEADER,
    ]
    days = [expiry.strftime("%a %b %d %Y") for expiry in b.expiries]
    stems = [f"{root}{expiry:%y%m%d}" for root, expiry in zip(b.roots, b.expiries, strict=True)]
    rows = zip(b.series.tolist(), b.strikes.tolist(), _cells(calls), _cells(puts), strict=True)
    for there, (i, strike, call, put) in zip(day.quoted.present.tolist(), rows, strict=True):
        if not there:
            continue
        code = f"{round(1000.0 * strike):08d}"
        lines.append(f"{days[i]},{stems[i]}C{code},{call},{strike:.2f},{stems[i]}P{code},{put}")
    return "\n".join(lines) + "\n"


@dataclass(frozen=True, eq=False)
class _SideColumns:
    """Columns of the calls or the puts, in the order of the file, each ``(m,)``."""

    columns: tuple[Array, ...]


def _build_side_columns(
    day: QuotedChain, rng: np.random.Generator
) -> tuple[_SideColumns, _SideColumns]:
    b, e = day.board, day.exact
    total = np.where(np.isfinite(e.iv), e.iv, 0.0) * np.sqrt(e.T)
    known = total > 0.0
    safe = np.where(known, total, 1.0)
    d1 = -e.k / safe + 0.5 * safe
    delta = np.where(known, ndtr(d1), e.k < 0.0)
    gamma = np.where(known, np.exp(-0.5 * d1**2) / np.sqrt(2.0 * np.pi) / safe, 0.0)
    gamma = gamma / b.forwards[b.series]
    iv = np.where(known, e.iv, 0.0)
    made = []
    for calls in (True, False):
        out = (e.k >= 0.0) == calls
        deep_bid, deep_ask = _quote_in_the_money(day, calls, rng)
        bid = np.where(out, day.quoted.bid, deep_bid)
        ask = np.where(out, day.quoted.ask, deep_ask)
        traded = np.floor(2000.0 * np.exp(-0.5 * (d1 / 1.2) ** 2) * rng.random(e.k.size) ** 3)
        interest = np.floor(traded * 9.0 * rng.random(e.k.size)) + (traded > 0.0)
        bid, ask = np.nan_to_num(bid), np.nan_to_num(ask)  # rows of missing strikes are left out
        last = np.where(interest > 0.0, np.round(0.5 * (bid + ask), 2), 0.0)
        nothing = np.zeros(e.k.size)
        made.append(
            _SideColumns(
                (
                    *(last, nothing, bid, ask, traded),
                    *(iv, delta if calls else delta - 1.0, gamma, interest),
                )
            )
        )
    return made[0], made[1]


def _quote_in_the_money(
    day: QuotedChain, calls: bool, rng: np.random.Generator
) -> tuple[Array, Array]:
    """In-the-money bids and asks: by parity, wider than those of the other side of the strike."""
    e, sign = day.exact, 1.0 if calls else -1.0
    fair = e.unit * (e.price + np.maximum(-sign * np.expm1(e.k), 0.0))
    half = 0.5 * (day.quoted.ask - day.quoted.bid) + _ITM_EXTRA_HALF_SPREAD * e.unit * (1.0 + e.T)
    mid = fair + half * rng.uniform(-0.5, 0.5, e.k.size)
    bid, ask = round_to_ticks(mid - half, up=False), round_to_ticks(mid + half, up=True)
    return bid, ask


def _cells(side: _SideColumns) -> list[str]:
    """Each row's cells as the exchange writes them: at most four decimals, no trailing zeros."""
    table = np.round(np.column_stack(side.columns), 4) + 0.0  # no negative zero
    return [",".join(f"{value:.10g}" for value in row) for row in table.tolist()]
