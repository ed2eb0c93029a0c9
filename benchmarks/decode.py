"""Decoding 10,000 surfaces of 16 maturities × 41 strikes: surfaces per second, against floors.

Two floors are computed and the larger one counts: the bytes that must move (slopes and strikes
in, prices out, once each) over the measured copy bandwidth, and the operations of the quadrature
over the measured arithmetic rate. The peer is an SVI parametrisation priced at the same points
with NumPy and SciPy on the CPU.

    python -m benchmarks.decode [--device cuda] [--surfaces 10000] [--json PATH]
"""

from __future__ import annotations

import argparse
import json
import platform
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from arbiter_lab.differentiable.pricing.knots import Knots
from arbiter_lab.differentiable.pricing.transport import Transport

MATURITIES, STRIKES, KNOTS = 16, 41, 31
EXP, ERFC = 20, 45  # arithmetic operations of one float64 exp and one erfc, about


def universe(count: int, dtype: torch.dtype, device: str) -> tuple[Knots, Tensor, Tensor]:
    """Knots, random index-like slopes ``(count, 16, 31)`` and strikes ``(count, 16, 41)``."""
    generator = torch.Generator().manual_seed(7)
    knots = torch.linspace(-5.5, 4.5, KNOTS, dtype=torch.float64)
    T = torch.linspace(0.02**0.5, 2.0**0.5, MATURITIES, dtype=torch.float64) ** 2
    draws = torch.rand(count, 2, 1, 1, generator=generator, dtype=torch.float64)
    level, skew = 0.1 + 0.3 * draws[:, 0], 0.05 + 0.2 * draws[:, 1]
    slopes = level * torch.sqrt(T)[:, None] * torch.exp(-skew * knots)
    spread = torch.linspace(-3.5, 2.0, STRIKES, dtype=torch.float64)
    k = level * torch.sqrt(T)[:, None] * spread
    slopes = slopes.to(device, dtype)
    return Knots.from_tensor(knots, slopes), slopes, k.to(device, dtype).contiguous()


def decode(knots: Knots, slopes: Tensor, k: Tensor) -> Tensor:
    return Transport(knots, slopes).otm(k)


def chunked(knots: Knots, slopes: Tensor, k: Tensor, size: int) -> Tensor:
    """Decode in pieces whose intermediate arrays stay near the processor."""
    out = torch.empty_like(k)
    for i in range(0, slopes.shape[0], size):
        out[i : i + size] = decode(knots, slopes[i : i + size], k[i : i + size])
    return out


def seconds(f: Callable[[], object], device: str, repeats: int) -> float:
    """Median time of ``f`` after a warm-up, the device's queue emptied."""

    def sync() -> None:
        if device == "cuda":
            torch.cuda.synchronize()

    f()
    sync()
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        f()
        sync()
        times.append(time.perf_counter() - start)
    return float(np.median(times))


def floors(count: int, dtype: torch.dtype, device: str, repeats: int) -> dict[str, float]:
    """Seconds below which no version can go: bytes at copy speed, operations at the peak rate."""
    size = torch.finfo(dtype).bits // 8
    nodes = 12 if dtype == torch.float64 else 8
    moved = count * MATURITIES * (KNOTS + 2 * STRIKES) * size
    work = count * MATURITIES * nodes * (KNOTS * (EXP + 10) + STRIKES * (EXP + ERFC + 12))
    big = torch.rand(2**26, dtype=dtype, device=device)
    other = torch.empty_like(big)
    copy = seconds(lambda: other.copy_(big), device, repeats)
    bandwidth = 2 * big.numel() * size / copy
    x = torch.rand(2**16 if device == "cpu" else 2**24, dtype=dtype, device=device)
    rate = _arithmetic_rate(x, device, repeats)
    return {
        "bytes": moved,
        "operations": work,
        "bandwidth_GBps": bandwidth / 1e9,
        "arithmetic_Gops": rate / 1e9,
        "memory_floor_s": moved / bandwidth,
        "arithmetic_floor_s": work / rate,
    }


def _arithmetic_rate(x: Tensor, device: str, repeats: int) -> float:
    """Multiply-add rate of the vector units, by matrix products without tensor cores."""
    n = 4096 if device == "cuda" else 1536
    a = torch.rand(n, n, dtype=x.dtype, device=device)
    torch.backends.cuda.matmul.allow_tf32 = False
    return 2.0 * n**3 / seconds(lambda: a @ a, device, repeats)


def svi_peer(count: int, repeats: int) -> float:
    """Seconds to price as many points from raw SVI with NumPy and SciPy's normal CDF."""
    from scipy.special import ndtr

    rng = np.random.default_rng(7)
    shape = (count, MATURITIES, 1)
    a, b = rng.uniform(0.005, 0.02, shape), rng.uniform(0.02, 0.1, shape)
    rho, m = rng.uniform(-0.8, -0.2, shape), rng.uniform(-0.1, 0.1, shape)
    sigma = rng.uniform(0.05, 0.3, shape)
    k = np.linspace(-0.6, 0.35, STRIKES) * np.ones(shape)

    def price() -> np.ndarray:
        y = k - m
        v = np.sqrt(a + b * (rho * y + np.sqrt(y * y + sigma * sigma)))
        sign = np.where(k >= 0.0, 1.0, -1.0)
        d1 = -k / v + 0.5 * v
        return np.asarray(sign * (ndtr(sign * d1) - np.exp(k) * ndtr(sign * (d1 - v))))

    return seconds(price, "cpu", repeats)


def run(device: str = "cpu", count: int = 10_000, repeats: int = 5) -> list[dict[str, Any]]:
    """One row per precision and route."""
    rows = []
    svi = None if device == "cuda" else svi_peer(count, 3)
    for dtype in (torch.float64, torch.float32):
        knots, slopes, k = universe(count, dtype, device)
        floor = floors(count, dtype, device, repeats)
        bound = max(floor["memory_floor_s"], floor["arithmetic_floor_s"])
        sizes = (20, 160) if device == "cpu" else (1000, count)
        routes: dict[str, Callable[[], object]] = {
            f"eager, {size} at once": partial(chunked, knots, slopes, k, size) for size in sizes
        }
        if device == "cuda":
            routes[f"compiled, {count} at once"] = partial(torch.compile(decode), knots, slopes, k)
        exact = decode(*universe(100, torch.float64, "cpu"))
        for name, route in routes.items():
            elapsed = seconds(route, device, repeats)
            answer = route()
            assert isinstance(answer, Tensor)
            gap = (answer[:100].double().cpu() - exact[: answer.shape[0]]).abs().max()
            rows.append(
                {
                    "device": torch.cuda.get_device_name() if device == "cuda" else "cpu",
                    "dtype": str(dtype).removeprefix("torch."),
                    "route": name,
                    "surfaces": count,
                    "seconds": elapsed,
                    "surfaces_per_second": count / elapsed,
                    "times_memory_floor": elapsed / floor["memory_floor_s"],
                    "times_floor": elapsed / bound,
                    "gap_to_cpu_float64": float(gap),
                    "times_svi": None if svi is None else elapsed / svi,
                    **floor,
                }
            )
    return rows


def table(rows: list[dict[str, Any]]) -> str:
    """The rows as a Markdown table."""
    lines = [
        "| device | precision | route | surfaces/s | × floor | × memory floor "
        "| × SVI in NumPy | gap to CPU float64 |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        peer = "" if row["times_svi"] is None else f"{row['times_svi']:.2f}"
        lines.append(
            f"| {row['device']} | {row['dtype']} | {row['route']} "
            f"| {row['surfaces_per_second']:,.0f} | {row['times_floor']:.1f} "
            f"| {row['times_memory_floor']:.1f} | {peer} | {row['gap_to_cpu_float64']:.0e} |"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--surfaces", type=int, default=10_000)
    parser.add_argument("--json", type=Path)
    chosen = parser.parse_args()
    rows = run(chosen.device, chosen.surfaces)
    print(f"torch {torch.__version__}, {platform.machine()}, {torch.get_num_threads()} threads")
    print(table(rows))
    if chosen.json:
        chosen.json.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
