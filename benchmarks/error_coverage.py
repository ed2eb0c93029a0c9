"""How often two standard errors of a fit's volatility hold the truth, by days to expiry.

*Known truth*: listed days of a mixture of lognormals, from the last half hour on, quoted in ticks;
and days of a Heston market with quiet weekends and jumps at events. *Real chains*: a random fifth
of the quotes is held out. The distance of a held-out mid from the fit is divided by the root of
``iv_error² + φ h²``, with ``h`` its half-spread in volatility and ``φ`` the dispersion of the fit.
Chains are in the folder that ``ARBITER_DATA`` names.

    PYTHONPATH=.:tests python -m benchmarks.error_coverage [--days 20]
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable

import numpy as np
from rich.box import MARKDOWN
from rich.console import Console
from rich.table import Table

import arbiter as ab
from arbiter.conventions import Array, Indices
from arbiter.maturity_scores import LAST_DAYS, LONGER, find_buckets
from arbiter.quotes import Quotes
from arbiter.sources import QuoteSource
from benchmarks.index_closes import UNTIMED, chains, folder
from clocked_market import draw_day
from listed_days import draw_listed_day

BUCKETS = (*LAST_DAYS, LONGER)


def measure_known(quotes: Quotes, truth: Array) -> tuple[Array, Indices]:
    """Errors at the quotes in standard errors, and the bucket of each.

    Args:
        quotes: What is fitted.
        truth: ``(m,)`` true volatilities.
    """
    surface = ab.fit(quotes)
    k, T = quotes.k, quotes.T
    return (surface.iv(k, T) - truth) / surface.iv_error(k, T), find_buckets(quotes)[quotes.expiry]


def measure_held_out(quotes: Quotes) -> tuple[Array, Indices]:
    """Standardised distances of held-out mids from a fit to the others, and the bucket of each."""
    held = quotes.held_out(0.2, seed=11)
    surface = ab.fit(quotes.select(~held))
    k, T = quotes.k[held], quotes.T[held]
    half = 0.5 * (quotes.iv_ask - quotes.iv_bid)[held]
    noise = surface.result.dispersion * half**2
    miss = quotes.iv_mid[held] - surface.iv(k, T)
    score = miss / np.sqrt(surface.iv_error(k, T) ** 2 + noise)
    return score, find_buckets(quotes)[quotes.expiry[held]]


def share_within(parts: Iterable[tuple[Array, Indices]], errors: float = 2.0) -> Array:
    """``(5, 2)`` share within that many standard errors by bucket, and the number of points."""
    score, bucket = (np.concatenate(part) for part in zip(*parts, strict=True))
    known = np.isfinite(score)
    rows = []
    for at in range(len(BUCKETS)):
        own = np.abs(score[known & (bucket == at)])
        rows.append((float(np.mean(own <= errors)) if own.size else np.nan, own.size))
    return np.array(rows)


def add_row(table: Table, name: str, found: Array) -> None:
    """A row of shares in per cent, each with its number of points."""
    cells = ["–" if not n else f"{100.0 * share:.1f} % of {n:,.0f}" for share, n in found]
    table.add_row(name, *cells)


def main() -> None:
    """Print a row per kind of truth, and one per chain."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--days", type=int, default=20)
    days = parser.parse_args().days
    table = Table("truth", *BUCKETS, box=MARKDOWN)
    add_row(
        table, "listed days", share_within(measure_known(*draw_listed_day(i)) for i in range(days))
    )
    clocked = (draw_day(i) for i in range(days))
    found = share_within(measure_known(day.quotes, day.iv) for day in clocked)
    add_row(table, "Heston, weekends and events", found)
    every = []
    for path in [*chains(), *folder().glob("chains/xsp_*")]:
        every.append(measure_held_out(QuoteSource.read(path, as_of=UNTIMED.get(path.name)).quotes))
        add_row(table, path.name, share_within(every[-1:]))
    add_row(table, "all chains", share_within(every))
    Console(width=200).print(table)


if __name__ == "__main__":
    main()
