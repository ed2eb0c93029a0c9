"""Fits of every listed chain, same-day expiries included: what lies inside bid-ask and what not.

Beside each chain stands what a linear program reaches on the same quotes, expiry by expiry, with
any law that has no butterfly: the share inside after the repair of least sum, and the expiries
that some law brings within the same violation. A second table holds quotes out: a random fifth,
and every third strike of each expiry. Chains are in the folder that ``ARBITER_DATA`` names.

    python -m benchmarks.listed_chains
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from rich.box import MARKDOWN
from rich.console import Console
from rich.table import Table

import arbiter as ab
from arbiter.conventions import Array
from arbiter.maturity_scores import score_by_maturity
from arbiter.quotes.static_program import NEGLIGIBLE, StaticProgram
from arbiter.scoring import is_inside_bid_ask
from arbiter.sources import QuoteSource
from benchmarks.index_closes import UNTIMED, chains, folder

SMALL_VIOLATION = 0.15  # half-spreads
TITLES = (
    "chain", "quotes", "expiries", "inside %", "LP %", "under 7 days %",
    f"expiries with worst < {SMALL_VIOLATION} %", "LP %", "worst",
    "asks violated", "contradictory", "RMS",
)  # fmt: skip
HELD_TITLES = (
    "chain", "random fifth: in sample", "held out", "ratio", "inside %",
    "every third strike: in sample", "held out", "ratio", "inside %",
)  # fmt: skip


class Floor(NamedTuple):
    """What a linear program reaches on the quotes of each expiry alone."""

    inside: float  # share of the quotes after the repair of least sum
    worst: Array  # (L,) least possible largest violation, half-spreads


def main() -> None:
    """Print a row per chain, and one of held-out quotes."""
    table, held = Table(*TITLES, box=MARKDOWN), Table(*HELD_TITLES, box=MARKDOWN)
    for path in [*chains(), *folder().glob("chains/xsp_*")]:
        quotes = QuoteSource.read(path, as_of=UNTIMED.get(path.name)).quotes
        table.add_row(path.name, *describe_fit(quotes))
        parts = [describe_held_out(quotes, mask) for mask in choose_held_out(quotes)]
        held.add_row(path.name, *parts[0], *parts[1])
    for one in (table, held):
        Console(width=240).print(one)


def describe_fit(quotes: ab.Quotes) -> list[str]:
    """Cells about a fit and the floor below it."""
    surface, floor = ab.fit(quotes), find_floor(quotes)
    scores, outside = score_by_maturity(surface, quotes), measure_violations(surface, quotes)
    short = quotes.T < 7.0 / 365.0
    inside = is_inside_bid_ask(surface.otm(quotes.k, quotes.T), quotes)
    worst = np.zeros(quotes.maturities.size)
    np.maximum.at(worst, quotes.expiry, outside)
    return [
        f"{len(quotes):,}",
        str(worst.size),
        f"{100.0 * scores.overall.inside_bid_ask:.2f}",
        f"{100.0 * floor.inside:.2f}",
        f"{100.0 * inside[short].mean():.2f}" if short.any() else "–",
        f"{100.0 * (worst < SMALL_VIOLATION).mean():.0f}",
        f"{100.0 * (floor.worst < SMALL_VIOLATION).mean():.0f}",
        f"{worst.max():.2f}",
        f"{scores.one_sided_violated} of {scores.one_sided}",
        str(len(scores.contradictory)),
        f"{scores.overall.rms_half_spreads:.2f}",
    ]


def find_floor(quotes: ab.Quotes) -> Floor:
    """What no law of an expiry can better, bounds of asks without a bid left out."""
    worst, repair = [], []
    for at in range(quotes.maturities.size):
        program = StaticProgram.from_quotes(quotes, at, at)
        none = np.zeros(program.bounds.size, dtype=bool)
        worst.append(program.find_least_violation(none))
        repair.append(program.repair(none))
    inside = float(np.mean(np.concatenate(repair) <= NEGLIGIBLE))
    return Floor(inside, np.array(worst))


def choose_held_out(quotes: ab.Quotes) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """A random fifth, and every third strike of an expiry; the end strikes are never held out."""
    first = np.flatnonzero(np.diff(quotes.expiry, prepend=-1))
    place = np.arange(len(quotes)) - first[quotes.expiry]
    last = np.bincount(quotes.expiry)[quotes.expiry] - 1
    return quotes.held_out(0.2, seed=11), (place % 3 == 1) & (place < last)


def describe_held_out(quotes: ab.Quotes, held: NDArray[np.bool_]) -> list[str]:
    """Cells about a fit to the other quotes: RMS in half-spreads of these and of those held out."""
    surface = ab.fit(quotes.select(~held))
    price = surface.otm(quotes.k, quotes.T)
    wide = quotes.half_spread > 0.0
    residual = (price - quotes.mid) / np.where(wide, quotes.half_spread, 1.0)
    used, unseen = (float(np.sqrt(np.mean(residual[part & wide] ** 2))) for part in (~held, held))
    inside = is_inside_bid_ask(price, quotes)[held].mean()
    return [f"{used:.3f}", f"{unseen:.3f}", f"{unseen / used:.2f}", f"{100.0 * inside:.2f}"]


def measure_violations(surface: ab.Surface, quotes: ab.Quotes) -> np.ndarray:
    """``(m,)`` distance outside bid-ask in half-spreads, 0 inside."""
    distance = np.abs(surface.otm(quotes.k, quotes.T) - quotes.mid) / quotes.half_spread
    return np.maximum(distance - 1.0, 0.0)


if __name__ == "__main__":
    main()
