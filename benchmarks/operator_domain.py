"""How often the operator's domain is left by chains that belong to it, and by chains that do not.

Usage: python -m benchmarks.operator_domain [--chains N] [--out FILE]

Chains of the training universe from laws that neither training nor calibration has seen give the
false alarms; the same chains with one thing planted in them give the rates of detection.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from arbiter.conventions import Array
from arbiter.operators.pretrained import Operator
from arbiter.quotes import Quotes
from arbiter_lab.training.batches import Batch, default_batch_layouts, draw_batch
from arbiter_lab.training.law_pool import Laws, make_laws

MIX = (0.15, 0.25, 0.3, 0.2, 0.1)  # of the layouts, as in training
SEED = 424242
LAWS = 800


class Table:
    """A chain as columns that a plant can change."""

    def __init__(self, T: Array, k: Array, iv: Array, half: Array) -> None:
        self.T, self.k, self.iv, self.half = T, k, iv, half

    @classmethod
    def of(cls, batch: Batch, row: int) -> Table:
        quoted = batch.quoted[row].numpy()
        T = np.broadcast_to(batch.T[row].double().numpy()[:, None], quoted.shape)[quoted]
        return cls(T, *(x[row].double().numpy()[quoted] for x in (batch.k, batch.iv, batch.half)))

    @property
    def z(self) -> Array:
        """Deviations, by the volatility nearest the money of each expiry."""
        level = np.empty_like(self.k)
        for t in np.unique(self.T):
            here = t == self.T
            level[here] = self.iv[here][np.abs(self.k[here]).argmin()]
        return np.asarray(self.k / (level * np.sqrt(self.T)))

    def keep(self, mask: NDArray[np.bool_]) -> Table:
        return Table(self.T[mask], self.k[mask], self.iv[mask], self.half[mask])

    def quotes(self) -> Quotes:
        return Quotes.from_frame(
            {
                "T": self.T,
                "k": self.k,
                "iv_bid": self.iv - self.half,
                "iv_ask": self.iv + self.half,
            },
            percent=False,  # what is planted may look like it
        )


Plant = Callable[[Table, np.random.Generator], Table]


def levels_times_ten(t: Table, _: np.random.Generator) -> Table:
    """Volatilities ten times as high, with spreads and strikes as before."""
    iv = np.minimum(10.0 * t.iv, 3.5)
    return Table(t.T, t.k, iv, np.minimum(t.half, 0.4))


def lower_wing_alone(t: Table, _: np.random.Generator) -> Table:
    return t.keep(t.z < -1.0)


def upper_wing_alone(t: Table, _: np.random.Generator) -> Table:
    return t.keep(t.z > 0.75)


def two_quotes_each(t: Table, rng: np.random.Generator) -> Table:
    order = rng.permutation(t.T.size)
    rank = np.empty(t.T.size, dtype=int)
    for expiry in np.unique(t.T):
        here = order[t.T[order] == expiry]
        rank[here] = np.arange(here.size)
    return t.keep(rank < 2)


def one_expiry(t: Table, rng: np.random.Generator) -> Table:
    return t.keep(rng.choice(np.unique(t.T)) == t.T)


def decades(t: Table, rng: np.random.Generator) -> Table:
    """The last expiry 10 to 40 years ahead, volatilities as before, strikes spread with √T."""
    scale = rng.uniform(10.0, 40.0) / t.T.max()
    return Table(t.T * scale, t.k * np.sqrt(scale), t.iv, t.half)


def garbage(t: Table, rng: np.random.Generator) -> Table:
    """Mids that are off by 30 % of volatility at random, with spreads as before."""
    iv = t.iv * np.exp(0.3 * rng.standard_normal(t.iv.size))
    return Table(t.T, t.k, iv, np.minimum(t.half, 0.5 * iv))


def stale_slice(t: Table, rng: np.random.Generator) -> Table:
    """One expiry in four (one at least) quoted 10 % off its volatilities."""
    days = np.unique(t.T)
    chosen = rng.choice(days, max(1, days.size // 4), replace=False)
    shift = np.where(np.isin(t.T, chosen), 1.0 + 0.1 * rng.choice([-1.0, 1.0]), 1.0)
    return Table(t.T, t.k, t.iv * shift, t.half)


def shifted_strikes(t: Table, rng: np.random.Generator) -> Table:
    """All strikes off by half a deviation, as with a wrong forward."""
    root = t.k / np.where(t.z == 0.0, 1.0, t.z)
    return Table(t.T, t.k + 0.5 * rng.choice([-1.0, 1.0]) * np.abs(root), t.iv, t.half)


def butterflies(t: Table, rng: np.random.Generator) -> Table:
    """One mid in ten 20 % above its neighbours: no convex curve goes through."""
    bump = np.where(rng.uniform(size=t.iv.size) < 0.1, 1.2, 1.0)
    return Table(t.T, t.k, t.iv * bump, t.half)


def mirrored(t: Table, _: np.random.Generator) -> Table:
    """Puts taken for calls: the smile is that of the other side."""
    order = np.lexsort((-t.k, t.T))
    return Table(t.T[order], -t.k[order], t.iv[order], t.half[order])


PLANTS: dict[str, Plant] = {
    "volatilities ×10, spreads as before": levels_times_ten,
    "lower wing alone (below −1 deviation)": lower_wing_alone,
    "upper wing alone (above ¾)": upper_wing_alone,
    "two quotes an expiry": two_quotes_each,
    "one expiry": one_expiry,
    "last expiry 10 to 40 years ahead": decades,
    "mids off by 30 % at random": garbage,
    "a quarter of the expiries 10 % off": stale_slice,
    "forward off by half a deviation": shifted_strikes,
    "one mid in ten 20 % up": butterflies,
    "smile mirrored": mirrored,
}


def training_tables(laws: Laws, count: int, seed: int) -> list[tuple[Table, Batch, int]]:
    """Chains of the training universe, and where their truth is."""
    generator = torch.Generator().manual_seed(seed)
    found: list[tuple[Table, Batch, int]] = []
    for (layout, _), share in zip(default_batch_layouts(), MIX, strict=True):
        size = max(1, round(share * count))
        batch = draw_batch(laws, layout, generator, size)
        found += [(Table.of(batch, row), batch, row) for row in range(size)]
    return found


def traits_of(operator: Operator, chains: Sequence[Quotes]) -> list[dict[str, float]]:
    """Traits of every chain, which are those of the pass."""
    return [dict(surface.result.traits) for surface in operator.many(chains)]


def alarmed(operator: Operator, chains: Sequence[Quotes]) -> tuple[float, Counter[str]]:
    """Share of chains outside the domain, and how often each alarm rings."""
    names: Counter[str] = Counter()
    outside = 0
    for quotes in chains:
        try:
            report = operator(quotes).domain
        except ValueError:  # refused outright, which is louder than an alarm
            outside += 1
            names["refused"] += 1
            continue
        assert report is not None
        outside += not report.inside
        names.update(alarm.name for alarm in report.alarms)
    return outside / len(chains), names


def false_alarms(operator: Operator, count: int, laws: int = LAWS, seed: int = SEED) -> float:
    """Share of untouched chains that raise an alarm."""
    drawn = training_tables(make_laws(laws, seed), count, seed)
    return alarmed(operator, [table.quotes() for table, _, _ in drawn])[0]


def rates(operator: Operator, count: int, seed: int = SEED) -> dict[str, tuple[float, str, int]]:
    """Share of alarms for untouched chains and for every plant, the commonest alarms, how many."""
    laws = make_laws(LAWS, seed)
    tables = [table for table, _, _ in training_tables(laws, count, seed)]
    rng = np.random.default_rng(seed)
    result: dict[str, tuple[float, str, int]] = {}
    for name, plant in {"none: false alarms": lambda t, _: t, **PLANTS}.items():
        chains = []
        for table in tables:
            planted = plant(table, rng)
            if planted.T.size >= 3:
                quotes = planted.quotes()
                if len(quotes) >= 3:
                    chains.append(quotes)
        share, names = alarmed(operator, chains)
        result[name] = share, ", ".join(n for n, _ in names.most_common(2)), len(chains)
    return result


def main() -> None:
    import logging

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--chains", type=int, default=1000)
    parser.add_argument("--weights", type=Path, default=None)
    parser.add_argument("--out", type=Path, default=None, help="write the rates as JSON")
    given = parser.parse_args()
    logging.getLogger("arbiter").setLevel(logging.ERROR)
    operator = Operator.pretrained() if given.weights is None else Operator.load(given.weights)
    found = rates(operator, given.chains)
    print(f"{operator}\n\n| planted | alarm | commonest | chains |\n|---|---:|---|---:|")
    for name, (share, names, count) in found.items():
        print(f"| {name} | {share:.1%} | {names.replace('_', ' ')} | {count:,} |")
    if given.out is not None:
        given.out.write_text(json.dumps({"model": operator.model, "rates": found}, indent=1))


if __name__ == "__main__":
    main()
