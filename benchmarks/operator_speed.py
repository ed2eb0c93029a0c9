"""Speed of the operator on the CPU, beside the fit and SVI.

    python -m benchmarks.operator_speed [--clock cpu] [--json PATH]

One chain of 16 × 41, a batch of 64 such chains, and a full listed chain of 50 expiries, the same
quotes given to the operator, the fit that refines it, the fit alone and raw SVI in one run, their
implied volatilities included. Ratios compare; seconds are of one machine: the least of some
repetitions, since whatever else runs there only adds. On a busy one ``--clock cpu`` with
OMP_NUM_THREADS=1 counts the time on the processor.
"""

from __future__ import annotations

import argparse
import json
import platform
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from arbiter.fitting import fit
from arbiter.operators.pretrained import Operator
from arbiter.quotes import Quotes
from arbiter_lab.peers import fit_svi
from benchmarks.fit import listed_quotes, moved, square_quotes

Row = dict[str, Any]
EXPIRIES, STRIKES, TOGETHER = 16, 41, 64
LISTED = 50
CLOCKS = {"wall": time.perf_counter, "cpu": time.process_time}


class Stopwatch:
    """Least times of calls, by a clock of :data:`CLOCKS`."""

    def __init__(self, clock: str, repeats: int) -> None:
        self.clock, self.repeats = CLOCKS[clock], repeats

    def __call__(self, f: Callable[..., object], *given: object, slow: bool = False) -> float:
        f(*given)
        times = []
        for _ in range(max(3, self.repeats // 4) if slow else self.repeats):
            start = self.clock()
            f(*given)
            times.append(self.clock() - start)
        return min(times)


def fresh(chains: Sequence[Quotes]) -> list[Quotes]:
    """The same quotes without remembered volatilities."""
    return [replace(quotes) for quotes in chains]


def latency(watch: Stopwatch) -> list[Row]:
    """Milliseconds per chain of every method."""
    operator = Operator.pretrained()
    square = square_quotes()
    many = [moved(square, 1.0 + 0.002 * i) for i in range(TOGETHER)]
    cases = {
        f"one chain, {EXPIRIES} × {STRIKES}": [square],
        f"{TOGETHER} chains, {EXPIRIES} × {STRIKES}, each": many,
        f"listed chain, {LISTED} expiries": [listed_quotes(LISTED)],
    }
    alone: dict[str, Callable[[Quotes], object]] = {
        "refined": operator.refine,
        "fit": fit,
        "raw SVI": fit_svi,
    }
    rows = []
    for name, chains in cases.items():
        row: Row = {"quotes": name, "count": sum(map(len, chains)) // len(chains)}
        row["operator"] = (
            1e3 * watch(lambda given: operator.many(fresh(given)), chains) / len(chains)
        )
        for method, run in alone.items():
            row[method] = 1e3 * watch(_after(run), chains[0], slow=True)
        row["fit over operator"] = row["fit"] / row["operator"]
        rows.append(row)
    return rows


def _after(run: Callable[[Quotes], object]) -> Callable[[Quotes], object]:
    return lambda quotes: run(replace(quotes))


def table(rows: Sequence[Row]) -> str:
    """Rows as markdown."""
    heads = list(rows[0])
    lines = ["| " + " | ".join(heads) + " |", "|" + "---|" * len(heads)]
    for row in rows:
        cells = [f"{v:,.4g}" if isinstance(v, float) else str(v) for v in row.values()]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--clock", choices=CLOCKS, default="wall")
    parser.add_argument("--repeats", type=int, default=21)
    parser.add_argument("--json", type=Path, default=None)
    given, _ = parser.parse_known_args()
    rows = latency(Stopwatch(given.clock, given.repeats))
    print("Milliseconds per chain\n\n" + table(rows))
    if given.json is not None:
        result = {"clock": given.clock, "machine": platform.processor() or platform.machine()}
        result |= {"latency": rows}
        given.json.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
