"""Time of the Green scan against the number of maturities: the slope on logarithmic axes.

The scan of the law network in torch, both directions, and whole calls of the shipped operator, one
chain at a time and four together. These end at 512 maturities, many times what is listed: the prior
compares every pair of maturities, which is cheap up to there and not at thousands. Processor time
on one thread, the quickest of several runs.

Ends with status 1 if a slope is above the limit.

    python -m benchmarks.scan [--longest 2048] [--limit 1.1] [--json PATH]
"""

from __future__ import annotations

import argparse
import json
import logging
import platform
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path as File
from typing import Any

import numpy as np
import torch

from arbiter.operators.pretrained import Operator
from arbiter.quotes import Quotes
from arbiter_lab.differentiable.operators.law.green_scan import GreenScan, scan
from arbiter_lab.differentiable.operators.network.green_scan import Path

WIDTH, SIZE, RANK, CONTEXT, BUDGET = 160, 64, 4, 160, 5.0
STRIKES, TOGETHER = 21, 4
LONGEST_CHAIN = 512  # eight times what any exchange lists
LIMIT = 1.1


def path(maturities: int) -> tuple[Path, torch.Tensor]:
    """Random inputs of a scan, and the gaps to the next maturities."""
    g = torch.Generator().manual_seed(maturities)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(1, maturities, *shape, generator=g)

    seen = torch.ones(1, maturities, dtype=torch.bool)
    gap, ahead = torch.exp(normal() - 2.0), torch.exp(normal() - 2.0)
    return Path(normal(WIDTH), gap, normal(CONTEXT), seen), ahead


def quotes(maturities: int) -> Quotes:
    """A skewed chain."""
    T = np.linspace(0.02, 3.0, maturities)[:, None]
    k = np.linspace(-2.0, 1.5, STRIKES) * 0.2 * np.sqrt(T)
    iv = 0.2 * np.exp(-0.4 * k)
    columns = {"T": T + 0.0 * k, "k": k, "iv_bid": 0.99 * iv, "iv_ask": 1.01 * iv}
    return Quotes.from_frame({name: values.ravel() for name, values in columns.items()})


def seconds(f: Callable[[], object], repeats: int) -> float:
    """The least processor time of a call, after a warm-up: what other processes do is left out."""
    f()
    times = []
    for _ in range(repeats):
        start = time.process_time()
        f()
        times.append(time.process_time() - start)
    return min(times)


def slope(lengths: list[int], times: list[float]) -> float:
    return float(np.polyfit(np.log(lengths), np.log(times), 1)[0])


@torch.inference_mode()
def run(longest: int = 2048, repeats: int = 5) -> list[dict[str, Any]]:
    """One row per way: times in milliseconds at each length, and the slope."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    scans = [GreenScan(WIDTH, SIZE, RANK, CONTEXT, BUDGET) for _ in range(2)]
    operator = Operator.pretrained()
    lengths = [2**i for i in range(5, 14) if 2**i <= longest]
    listed = [2**i for i in range(4, 10) if 2**i <= min(longest, LONGEST_CHAIN)]

    def fresh(of: Quotes, chains: int) -> list[Quotes]:
        return [replace(of) for _ in range(chains)]  # without remembered volatilities

    def one(n: int) -> Callable[[], object]:
        of = quotes(n)
        return lambda: operator(*fresh(of, 1))

    def together(n: int) -> Callable[[], object]:
        of = quotes(n)
        return lambda: operator.many(fresh(of, TOGETHER))

    ways: dict[str, tuple[list[int], Callable[[int], Callable[[], object]]]] = {
        "scan": (lengths, lambda n: partial(scan, scans, *path(n))),
        "operator": (listed, one),
        f"operator, {TOGETHER} chains": (listed, together),
    }
    rows = []
    for name, (sizes, make) in ways.items():
        times = [seconds(make(n), repeats) for n in sizes]
        each = {str(n): round(1e3 * t, 3) for n, t in zip(sizes, times, strict=True)}
        rows.append({"way": name, "slope": round(slope(sizes, times), 3), "ms": each})
    return rows


def steep(rows: list[dict[str, Any]], limit: float) -> list[str]:
    """Ways whose slope is above the limit."""
    return [row["way"] for row in rows if row["slope"] > limit]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--longest", type=int, default=2048)
    parser.add_argument("--limit", type=float, default=LIMIT)
    parser.add_argument("--json", type=File)
    asked, _ = parser.parse_known_args()
    log = logging.getLogger("arbiter")
    before = log.level
    log.setLevel(logging.ERROR)  # more expiries than it was trained on
    try:
        rows = run(asked.longest)
    finally:
        log.setLevel(before)
    for row in rows:
        times = ", ".join(f"L={n}: {t:.2f}" for n, t in row["ms"].items())
        print(f"{row['way']:18} slope {row['slope']:.2f}   ms {times}")
    if asked.json:
        about = {"machine": platform.processor() or platform.machine(), "torch": torch.__version__}
        asked.json.write_text(json.dumps({**about, "rows": rows}, indent=1) + "\n")
    above = steep(rows, asked.limit)
    if above:
        sys.exit(f"slope above {asked.limit}: {', '.join(above)}")


if __name__ == "__main__":
    main()
