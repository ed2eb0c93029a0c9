"""Fits of every listed chain, same-day expiries included: what lies inside bid-ask, and by how much not.

Chains are in the folder that ``ARBITER_DATA`` names.

    python -m benchmarks.listed_chains
"""

from __future__ import annotations

import numpy as np
from rich.box import MARKDOWN
from rich.console import Console
from rich.table import Table

import arbiter as ab
from arbiter.maturity_scores import score_by_maturity
from arbiter.sources import QuoteSource
from benchmarks.index_closes import UNTIMED, chains, folder

SMALL_VIOLATION = 0.15  # half-spreads


def main() -> None:
    """Print a row per chain."""
    titles = ("chain", "quotes", "expiries", "inside %", "under 7 days %")
    titles = (
        *titles,
        f"expiries with worst < {SMALL_VIOLATION} %",
        "worst",
        "asks exceeded",
        "RMS",
    )
    table = Table(*titles, box=MARKDOWN)
    for path in [*chains(), *folder().glob("chains/xsp_*")]:
        quotes = QuoteSource.read(path, as_of=UNTIMED.get(path.name)).quotes
        surface = ab.fit(quotes)
        scores, outside = score_by_maturity(surface, quotes), measure_violations(surface, quotes)
        short = quotes.T < 7.0 / 365.0
        near = surface.otm(quotes.k, quotes.T)
        inside = (near >= quotes.bid - 1e-12) & (near <= quotes.ask + 1e-12)
        worst = np.zeros(quotes.maturities.size)
        np.maximum.at(worst, quotes.expiry, outside)
        table.add_row(
            path.name,
            f"{len(quotes):,}",
            str(worst.size),
            f"{100.0 * scores.overall.inside_bid_ask:.2f}",
            f"{100.0 * inside[short].mean():.2f}" if short.any() else "–",
            f"{100.0 * (worst < SMALL_VIOLATION).mean():.0f}",
            f"{worst.max():.2f}",
            f"{scores.one_sided_violated} of {scores.one_sided}",
            f"{scores.overall.rms_half_spreads:.2f}",
        )
    Console(width=200).print(table)


def measure_violations(surface: ab.Surface, quotes: ab.Quotes) -> np.ndarray:
    """``(m,)`` distance outside bid-ask in half-spreads, 0 inside."""
    distance = np.abs(surface.otm(quotes.k, quotes.T) - quotes.mid) / quotes.half_spread
    return np.maximum(distance - 1.0, 0.0)


if __name__ == "__main__":
    main()
