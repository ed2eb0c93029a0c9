"""Time of the Green scan against the number of maturities: the slope on logarithmic axes.

Scans: the resolvent's, the exponential's, and the former as a stream with one state in memory.
Whole passes, quotes to surface or slopes: the shipped operator's compiled one, one chain at a time
and four together, and the default network's as it is trained (random weights: time does not depend
on them). These end at 512 maturities, many times what is listed: pooling compares every pair of
maturities, which is cheap up to there and not at thousands. For contrast, the kernel written out,
which is quadratic. Processor time on one thread, the quickest of several runs.

Ends with status 1 if a slope but the kernel's is above the limit.

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

from arbiter.operators.network.config import Config
from arbiter.operators.pretrained import Operator
from arbiter.quotes import Quotes
from arbiter_lab.differentiable.operators.network.green_scan import GreenScan, Path
from arbiter_lab.differentiable.operators.network.network import Network
from arbiter_lab.differentiable.operators.quote_tensors import Ragged
from arbiter_lab.stability import green_kernel

WIDTH, SIZE, RANK, CONTEXT = 192, 64, 4, 160
STRIKES, TOGETHER = 21, 4
LONGEST_CHAIN = 512  # eight times what any exchange lists
LIMIT = 1.1
FREE = ("kernel",)  # quadratic, and for contrast only


def path(maturities: int) -> Path:
    g = torch.Generator().manual_seed(maturities)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(1, maturities, *shape, generator=g, dtype=torch.float64)

    seen = torch.ones(1, maturities, dtype=torch.bool)
    return Path(normal(WIDTH), torch.exp(normal() - 2.0), normal(CONTEXT), seen)


def chain(maturities: int) -> Ragged:
    T = torch.linspace(0.02, 3.0, maturities, dtype=torch.float64)[None]
    k = torch.linspace(-2.0, 1.5, STRIKES, dtype=torch.float64) * 0.2 * torch.sqrt(T)[..., None]
    iv = 0.2 * torch.exp(-0.4 * k)
    return Ragged(T, k, iv, 0.01 * iv, torch.ones_like(k, dtype=torch.bool))


def quotes(maturities: int) -> Quotes:
    """The same chain as quotes."""
    T, k, iv, half, _ = (part[0].numpy() for part in chain(maturities))
    columns = {"T": np.repeat(T, STRIKES), "k": k, "iv_bid": iv - half, "iv_ask": iv + half}
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
    scan, exponential = (
        GreenScan(WIDTH, SIZE, RANK, CONTEXT, kind=kind).double()
        for kind in ("resolvent", "exponential")
    )
    network, operator = Network(Config()).double(), Operator.pretrained()
    lengths = [2**i for i in range(5, 14) if 2**i <= longest]
    listed = [2**i for i in range(4, 10) if 2**i <= min(longest, LONGEST_CHAIN)]

    def stream(of: Path) -> None:
        slices = (Path._make([part[:, i] for part in of]) for i in range(of.gap.shape[1]))
        for _ in scan.stream(slices):
            pass

    def fresh(of: Quotes, chains: int) -> list[Quotes]:
        return [replace(of) for _ in range(chains)]  # without remembered volatilities

    def one(n: int) -> Callable[[], object]:
        of = quotes(n)
        return lambda: operator(*fresh(of, 1))

    def together(n: int) -> Callable[[], object]:
        of = quotes(n)
        return lambda: operator.many(fresh(of, TOGETHER))

    ways: dict[str, tuple[list[int], Callable[[int], Callable[[], object]]]] = {
        "scan": (lengths, lambda n: partial(scan, path(n))),
        "exponential": (lengths, lambda n: partial(exponential, path(n))),
        "stream": (lengths, lambda n: partial(stream, path(n))),
        "operator": (listed, one),
        f"operator, {TOGETHER} chains": (listed, together),
        "network": (listed, lambda n: partial(network, chain(n))),
        "kernel": ([16, 32, 64], lambda n: partial(green_kernel.kernel, scan, path(n))),
    }
    rows = []
    for name, (sizes, make) in ways.items():
        times = [seconds(make(n), repeats) for n in sizes]
        each = {str(n): round(1e3 * t, 3) for n, t in zip(sizes, times, strict=True)}
        rows.append({"way": name, "slope": round(slope(sizes, times), 3), "ms": each})
    return rows


def steep(rows: list[dict[str, Any]], limit: float) -> list[str]:
    """Ways whose slope is above the limit, but for those that are free to be."""
    return [row["way"] for row in rows if row["way"] not in FREE and row["slope"] > limit]


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
