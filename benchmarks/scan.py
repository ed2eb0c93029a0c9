"""Time of the Green scan against the number of maturities: the slope on logarithmic axes.

Four rows: a batch's scan, the same as a stream with one state in memory, a whole pass of the
default network (random weights: time does not depend on them), and, for contrast, the kernel
written out, which is quadratic. Processor time on one thread, the quickest of several runs.

    python -m benchmarks.scan [--longest 2048] [--json PATH]
"""

from __future__ import annotations

import argparse
import json
import platform
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path as File
from typing import Any

import numpy as np
import torch

from arbiter.operators import green
from arbiter.operators.network import Config, Network
from arbiter.operators.ragged import Ragged
from arbiter.operators.scan import GreenScan, Path

WIDTH, SIZE, RANK, CONTEXT = 192, 64, 4, 160
STRIKES = 21


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
    scan = GreenScan(WIDTH, SIZE, RANK, CONTEXT).double()
    network = Network(Config()).double()
    lengths = [2**i for i in range(5, 14) if 2**i <= longest]

    def stream(of: Path) -> None:
        slices = (Path._make([part[:, i] for part in of]) for i in range(of.gap.shape[1]))
        for _ in scan.stream(slices):
            pass

    ways: dict[str, tuple[list[int], Callable[[int], Callable[[], object]]]] = {
        "scan": (lengths, lambda n: partial(scan, path(n))),
        "stream": (lengths, lambda n: partial(stream, path(n))),
        "network": (lengths, lambda n: partial(network, chain(n))),
        "kernel": ([16, 32, 64], lambda n: partial(green.kernel, scan, path(n))),
    }
    rows = []
    for name, (sizes, make) in ways.items():
        times = [seconds(make(n), repeats) for n in sizes]
        each = {str(n): round(1e3 * t, 3) for n, t in zip(sizes, times, strict=True)}
        rows.append({"way": name, "slope": round(slope(sizes, times), 3), "ms": each})
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--longest", type=int, default=2048)
    parser.add_argument("--json", type=File)
    asked, _ = parser.parse_known_args()
    rows = run(asked.longest)
    for row in rows:
        times = ", ".join(f"L={n}: {t:.2f}" for n, t in row["ms"].items())
        print(f"{row['way']:8} slope {row['slope']:.2f}   ms {times}")
    if asked.json:
        about = {"machine": platform.processor() or platform.machine(), "torch": torch.__version__}
        asked.json.write_text(json.dumps({**about, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
