"""Interpolation between expiries on several clocks: each expiry of a real close left out in turn.

Events are the releases that the public calendar had announced: consumer prices, the labour market,
the Federal Reserve's decisions and one election (``us_releases.csv``). The quotes that are left
tell their variances, and the weights of an implied clock.

ARBITER_DATA=DIR python -m benchmarks.clocks [CHAIN ...]
"""

from __future__ import annotations

import csv
import logging
import os
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
from rich.box import MARKDOWN
from rich.console import Console
from rich.table import Table

import arbiter as ab
from arbiter.chains.chain import MIN_COUNTED_DAYS, MIN_COUNTED_STRIKES
from arbiter.conventions import MINUTES_PER_YEAR
from arbiter.fitting import FitOptions
from arbiter.quotes import Quotes

CLOSES = (
    "spx_2020-09-04_close.dat",
    "spx_2022-02-04_close.csv",
    "spx_2022-07-12_1155ET.csv",
    "spx_2023-02-07_close.csv",
    "spx_2023-08-18_close.csv",
    "spx_2023-09-14_close.csv",
    "spx_2026-01-30_yahoo.csv",
)
CLOCKS: dict[str, Callable[..., ab.Clock]] = {
    "minutes": lambda quotes, events: ab.Clock(),
    "trading": lambda quotes, events: ab.Clock.trading(),
    "trading, events": lambda quotes, events: ab.Clock.trading(*events),
    "implied": lambda quotes, events: quotes.implied_clock(),
    "implied, events": lambda quotes, events: quotes.implied_clock(*events),
}
RELEASES = Path(__file__).with_name("us_releases.csv")
MAX_EVENT_DAYS = 75.0  # as far as weekly expiries are listed
MAX_BIAS_DAYS = 45.0  # of expiries whose weekday is looked at


class LeftOut(NamedTuple):
    """How an expiry that was left out is missed within two deviations."""

    days: float
    weekday: int
    error: float  # RMS, basis points
    level: float  # mean, basis points: the smile as a whole
    shape: float  # RMS of the rest
    half_spreads: float  # RMS
    inside: float  # share of quotes whose spread holds the surface


def main() -> None:
    """Print a row per chain and clock."""
    logging.disable(logging.WARNING)
    titles = ("chain", "clock", "median", "mean", "level", "shape", "half-spreads", "inside %")
    table = Table(*titles, "Mondays", "Fridays", box=MARKDOWN)
    folder = Path(os.environ["ARBITER_DATA"]) / "chains"
    for name in sys.argv[1:] or CLOSES:
        chain = ab.read_chain(folder / name)
        quotes = chain.quotes(shortest_days=MIN_COUNTED_DAYS, fewest_strikes=MIN_COUNTED_STRIKES)
        events = list_events(quotes)
        for title, choose in CLOCKS.items():
            found = measure_left_out(quotes, partial(choose, events=events))
            _, _, error, level, shape, half_spreads, inside = np.array(found).T
            row = [np.median(error), error.mean(), np.median(np.abs(level)), np.median(shape)]
            cells = [f"{value:.1f}" for value in row]
            cells += [f"{np.median(half_spreads):.2f}", f"{100.0 * inside.mean():.0f}"]
            biases = [average_level(found, weekday) for weekday in (0, 4)]
            table.add_row(name, title, *cells, *(f"{bias:+.0f}" for bias in biases))
    Console(width=160).print(table)


def list_events(quotes: Quotes) -> tuple[ab.Event, ...]:
    """What the calendar has between the quotes and the last weekly expiry."""
    assert quotes.as_of is not None
    found = []
    with RELEASES.open(encoding="utf-8") as file:
        for row in csv.DictReader(file):
            days = (np.datetime64(row["when"]) - quotes.as_of) / np.timedelta64(1, "D")
            if 0.0 < days < MAX_EVENT_DAYS:
                found.append(ab.Event(row["when"], row["name"]))
    return tuple(found)


def measure_left_out(quotes: Quotes, choose: Callable[[Quotes], ab.Clock]) -> list[LeftOut]:
    """Errors of every expiry between the first and the last, each left out in turn.

    Args:
        quotes: Of all expiries.
        choose: The clock, given the quotes that are left.
    """
    assert quotes.as_of is not None
    options, found = None, []
    for left in range(1, quotes.maturities.size - 1):
        own = quotes.expiry == left
        rest = quotes.select(~own)
        surface = ab.fit(rest, options=options, clock=choose(rest))
        options = options or FitOptions(roughness=surface.result.roughness)
        near = own & (np.abs(quotes.k) <= 2.0 * quotes.iv_mid * np.sqrt(quotes.T))
        T, half = quotes.T[near], 0.5e4 * (quotes.iv_ask - quotes.iv_bid)[near]
        missed = 1e4 * (surface.iv(quotes.k[near], T) - quotes.iv_mid[near])
        settles = quotes.as_of + np.timedelta64(round(float(T[0]) * MINUTES_PER_YEAR), "m")
        found.append(
            LeftOut(
                days=365.0 * float(T[0]),
                weekday=settles.astype("datetime64[D]").item().weekday(),
                error=float(np.sqrt(np.mean(missed**2))),
                level=float(missed.mean()),
                shape=float(missed.std()),
                half_spreads=float(np.sqrt(np.mean((missed / half) ** 2))),
                inside=float(np.mean(np.abs(missed) <= half)),
            )
        )
    return found


def average_level(found: list[LeftOut], weekday: int) -> float:
    """The mean level of the near expiries of one weekday; NaN without any."""
    levels = [each.level for each in found if each.weekday == weekday and each.days < MAX_BIAS_DAYS]
    return float(np.mean(levels)) if levels else np.nan


if __name__ == "__main__":
    main()
