"""The compiled core: reading, fits, updates, queries and certificates, each beside a named peer.

Seconds are the least of several repetitions on one thread; what counts is the ratio to the peer in
the same run, because the machine cancels out of it. Rows of a full close need ARBITER_DATA.

    python -m benchmarks.core [--json | --markdown]
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import py_lets_be_rational as rational
import QuantLib as ql
from rich.box import MARKDOWN
from rich.console import Console
from rich.table import Table
from scipy.special import ndtr

import arbiter as ab
from arbiter.audit.structural_proof import check_structure
from arbiter.chains.chain import MIN_COUNTED_DAYS, MIN_COUNTED_STRIKES
from arbiter.conventions import Array
from arbiter.fitting import FitOptions, FittedSurface, Roughness
from arbiter.pricing import black
from arbiter.quotes import Quotes
from arbiter_lab.evaluation.heston_surfaces import heston_surface
from arbiter_lab.peers import fit_svi
from arbiter_lab.peers.svi import raw_svi
from benchmarks.batched_svi import fit_batched_svi

CLOSE = "spx_2023-09-14_close.csv"
SEED = 20260101
MAX_SLOPE = 1.1  # of log time against log size: what counts as linear


@dataclass(frozen=True)
class Row:
    """One measurement.

    Attributes:
        task: What was done.
        seconds: Ours.
        peer: Who did the same, empty if nobody was asked.
        peer_seconds: Theirs.
    """

    task: str
    seconds: float
    peer: str = ""
    peer_seconds: float | None = None

    @property
    def ratio(self) -> float | None:
        """Ours over theirs."""
        return None if self.peer_seconds is None else self.seconds / self.peer_seconds


def time_call(f: Callable[[], object], repeats: int = 7) -> float:
    """The least seconds of a call, after one that is not counted."""
    f()
    found = []
    for _ in range(repeats):
        began = time.perf_counter()
        f()
        found.append(time.perf_counter() - began)
    return min(found)


def make_quotes(expiries: int, strikes: int, seed: int = SEED) -> Quotes:
    """Noisy quotes of a Heston market: expiries from a week to two years."""
    rng = np.random.default_rng(seed)
    T = np.geomspace(7.0, 730.0, expiries) / 365.0
    market = ab.markets.LiftedHeston.heston(v0=0.04, kappa=1.5, theta=0.05, sigma=0.6, rho=-0.7)
    s = np.sort(rng.uniform(-3.5, 2.0, (expiries, strikes)), axis=1)
    k = s * 0.2 * np.sqrt(T)[:, None]
    iv = np.stack([market.iv(row, t) for row, t in zip(k, T, strict=True)])
    half = iv * (0.005 + 0.015 * np.abs(s) / 3.5)
    mid = iv + half * rng.uniform(-1.0, 1.0, iv.shape)
    table = {"T": np.repeat(T, strikes), "k": k.ravel()}
    return Quotes.from_frame(
        {**table, "iv_bid": (mid - half).ravel(), "iv_ask": (mid + half).ravel()}
    )


def measure_fits(name: str, chains: Sequence[Quotes]) -> tuple[list[Row], FittedSurface]:
    """Fits and updates beside raw SVI, in seconds a chain, and the first chain's surface."""
    surfaces = [ab.fit(quotes) for quotes in chains]
    given = [FitOptions(roughness=surface.result.roughness) for surface in surfaces]
    moved = [move_one_expiry(quotes) for quotes in chains]
    alone = [quotes.select(quotes.expiry == quotes.maturities.size // 2) for quotes in moved]

    def average(f: Callable[[int], object], repeats: int = 5) -> float:
        return time_call(lambda: [f(i) for i in range(len(chains))], repeats) / len(chains)

    svi = average(lambda i: fit_svi(chains[i]), 2)
    rows = [
        Row(
            f"fit {name}, roughness chosen",
            average(lambda i: ab.fit(chains[i])),
            "raw SVI, SciPy",
            svi,
        ),
        Row(
            f"fit {name}, roughness given",
            average(lambda i: ab.fit(chains[i], options=given[i])),
            "raw SVI, SciPy",
            svi,
        ),
        Row(
            f"fit {name}, warm start",
            average(lambda i: ab.fit(chains[i], options=given[i], start=surfaces[i])),
            "raw SVI, batched",
            average(lambda i: fit_batched_svi(chains[i])),
        ),
        Row(
            f"update {name}, one expiry",
            average(lambda i: surfaces[i].update(moved[i])),
            "raw SVI of that expiry, SciPy",
            average(lambda i: fit_svi(alone[i]), 3),
        ),
    ]
    return rows, surfaces[0]


def move_one_expiry(quotes: Quotes) -> Quotes:
    """Quotes whose middle expiry has moved at random, by a tenth of its half-spreads at most."""
    noise = np.random.default_rng(SEED).uniform(-0.1, 0.1, len(quotes)) * quotes.half_spread
    shift = np.where(quotes.expiry == quotes.maturities.size // 2, noise, 0.0)
    return replace(quotes, bid=quotes.bid + shift, ask=quotes.ask + shift)


def measure_queries(surface: FittedSurface) -> list[Row]:
    """Prices, volatilities and local variances beside QuantLib, SVI in NumPy and others."""
    rng = np.random.default_rng(SEED)
    k, T = rng.uniform(-0.3, 0.15, 100_000), rng.uniform(0.02, 2.0, 100_000)
    quantlib = build_quantlib_surface(surface)
    local = ql.LocalVolSurface(
        ql.BlackVolTermStructureHandle(quantlib),
        *[
            ql.YieldTermStructureHandle(
                ql.FlatForward(0, ql.NullCalendar(), 0.0, ql.Actual365Fixed())
            )
        ]
        * 2,
        1.0,
    )
    parameters = np.array([0.002, 0.02, -0.6, 0.01, 0.1])
    price = surface.otm(k, 0.3)
    grid_k, grid_T = np.linspace(-0.3, 0.2, 200), np.linspace(0.05, 1.5, 100)[:, None]

    def price_svi(at: Array, t: Array | float) -> Array:
        v = np.sqrt(raw_svi(parameters, at) * t)
        d = -np.abs(at) / v + 0.5 * v
        return np.asarray(ndtr(d) - np.exp(np.abs(at)) * ndtr(d - v))

    def ask_local() -> None:
        for t in grid_T[:, 0].tolist():
            for strike in np.exp(grid_k).tolist():
                try:
                    local.localVol(t, strike, True)
                except RuntimeError:
                    continue

    def ask_rational() -> None:
        for p, at in zip(price[:2000].tolist(), np.exp(k[:2000]).tolist(), strict=True):
            rational.implied_volatility_from_a_transformed_rational_guess(
                p, 1.0, at, 1.0, 1 if at >= 1.0 else -1
            )

    ask_one = time_call(lambda: quantlib.blackVol(0.3, 0.9, True), 2000)
    later = iter(np.linspace(0.2, 0.4, 10_000).tolist())
    return [
        Row("one price", time_call(lambda: surface.otm(-0.1, 0.3), 2000)),
        Row(
            "one volatility",
            time_call(lambda: surface.iv(-0.1, 0.3), 2000),
            "QuantLib, a bilinear variance surface",
            ask_one,
        ),
        Row(
            "one volatility at a new maturity",
            time_call(lambda: surface.iv(-0.1, next(later)), 2000),
            "QuantLib, a bilinear variance surface",
            ask_one,
        ),
        Row(
            "1e5 prices at one maturity",
            time_call(lambda: surface.otm(k, 0.3)),
            "raw SVI and Black in NumPy",
            time_call(lambda: price_svi(k, 0.3)),
        ),
        Row(
            "1e5 prices at random maturities",
            time_call(lambda: surface.otm(k, T)),
            "raw SVI and Black in NumPy",
            time_call(lambda: price_svi(k, T)),
        ),
        Row("1e5 volatilities at random maturities", time_call(lambda: surface.iv(k, T))),
        Row(
            "one implied volatility of 1e5",
            time_call(lambda: black.implied_total_volatility(price, k)) / k.size,
            "lets_be_rational in Python",
            time_call(ask_rational, 3) / 2000,
        ),
        Row(
            "local variance, 100 × 200",
            time_call(lambda: surface.local_variance(grid_k, grid_T)),
            "QuantLib, of the bilinear surface",
            time_call(ask_local, 1),
        ),
    ]


def build_quantlib_surface(surface: FittedSurface) -> Any:
    """QuantLib's bilinear variance surface on a grid of ours."""
    day = ql.Date(14, 9, 2023)
    ql.Settings.instance().evaluationDate = day
    dates = [day + days for days in range(10, 900, 20)]
    strikes = np.exp(np.linspace(-0.5, 0.4, 61))
    matrix = ql.Matrix(strikes.size, len(dates))
    for j, date in enumerate(dates):
        for i, vol in enumerate(surface.iv(np.log(strikes), (date - day) / 365.0)):
            matrix[i][j] = float(vol)
    found = ql.BlackVarianceSurface(
        day, ql.NullCalendar(), dates, strikes.tolist(), matrix, ql.Actual365Fixed()
    )
    found.enableExtrapolation()
    return found


def measure_checks(name: str, surface: FittedSurface) -> list[Row]:
    """The certificate, and its proof alone."""
    stored = surface.knots, surface.maturities, surface.slopes, surface.weights
    return [
        Row(f"certificate of {name}", time_call(surface.certificate, 3)),
        Row(f"structural proof of {name}", time_call(lambda: check_structure(*stored), 20)),
    ]


def measure_growth() -> list[tuple[str, float]]:
    """Slopes of log time against log size."""
    options = FitOptions(roughness=Roughness(1.0, 10.0, 1.0))

    def time_fit(quotes: Quotes) -> float:
        return time_call(lambda: ab.fit(quotes, options=options))

    def time_certificate(quotes: Quotes) -> float:
        return time_call(ab.fit(quotes, options=options).certificate, 2)

    sizes, counts = np.array([8, 16, 32, 64]), np.array([25_000, 50_000, 100_000, 200_000])
    deep = [make_quotes(int(size), 41) for size in sizes]
    wide = [make_quotes(8, int(size)) for size in 20 * sizes]
    surface, rng = ab.fit(deep[1]), np.random.default_rng(SEED)
    k, T = rng.uniform(-0.3, 0.2, counts[-1]), rng.uniform(0.05, 2.0, counts[-1])

    def time_prices(count: int) -> float:
        return time_call(lambda: surface.otm(k[:count], T[:count]))

    def slope(size: Array, seconds: list[float]) -> float:
        return float(np.polyfit(np.log(size), np.log(seconds), 1)[0])

    return [
        ("fit against expiries", slope(sizes, [time_fit(quotes) for quotes in deep])),
        ("fit against quotes an expiry", slope(sizes, [time_fit(quotes) for quotes in wide])),
        ("certificate against expiries", slope(sizes, [time_certificate(q) for q in deep])),
        ("prices against points", slope(counts, [time_prices(int(n)) for n in counts])),
    ]


def run_command(arguments: list[str], cache: str | None = None) -> float:
    """Seconds of a command in a process of its own; with an empty cache of machine code or ours."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "POLARS_MAX_THREADS": "1"}
    if cache is not None:
        environment["NUMBA_CACHE_DIR"] = cache
    began = time.perf_counter()
    subprocess.run([sys.executable, *arguments], check=True, capture_output=True, env=environment)
    return time.perf_counter() - began


def measure_processes(chain: Path | None) -> list[Row]:
    """Whole commands, and first calls from an empty cache."""
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        if chain is not None:
            fit = [
                "-c",
                "from arbiter.cli import main; main()",
                "fit",
                str(chain),
                "--out",
                f"{folder}/out",
                "--json",
            ]
            run_command(fit)
            rows.append(
                Row("arbiter fit CHAIN, with report", min(run_command(fit) for _ in range(3)))
            )
            fit.append("--no-report")
            rows.append(Row("arbiter fit CHAIN", min(run_command(fit) for _ in range(3))))
        script = "import arbiter as ab; q = ab.example_chain().quotes(); "
        for name, call in (
            ("first fit", "ab.fit(q)"),
            ("first operator call", "ab.Operator.pretrained()(q)"),
        ):
            empty = run_command(["-c", script + call], f"{folder}/{name.replace(' ', '-')}")
            kept = run_command(["-c", script + call], f"{folder}/{name.replace(' ', '-')}")
            rows.append(
                Row(f"{name}, a process with an empty cache", empty, "the next process", kept)
            )
    return rows


def measure_memory(quotes: Quotes) -> int:
    """Bytes by which a fit raises the largest memory of this process."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    ab.fit(quotes)
    return (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024


def main() -> int:
    folder = os.environ.get("ARBITER_DATA")
    chain = None if folder is None else Path(folder) / "chains" / CLOSE
    rows, memory = [], None
    if chain is not None:
        rows.append(
            Row("read and clean a full close", time_call(lambda: ab.read_chain(chain).quotes()))
        )
        close = ab.read_chain(chain).quotes(
            shortest_days=MIN_COUNTED_DAYS, fewest_strikes=MIN_COUNTED_STRIKES
        )
        memory = measure_memory(close)
        found, surface = measure_fits("a full close", [close])
        rows += [*found, *measure_checks("a full close", surface)]
    small, surface = measure_fits("16 × 41", [heston_surface(i).quotes for i in range(8)])
    rows += [*small, *measure_queries(surface), *measure_processes(chain)]
    growth = measure_growth()
    steep = [name for name, slope in growth if slope > MAX_SLOPE]
    if "--json" in sys.argv[1:]:
        about = {"rows": [{**asdict(row), "ratio": row.ratio} for row in rows], "growth": growth}
        print(json.dumps({**about, "fit_bytes": memory}, indent=2))
        return len(steep)
    table = Table(box=MARKDOWN)
    for heading in ("task", "seconds", "peer", "its seconds", "ratio"):
        table.add_column(heading, no_wrap=True)
    for row in rows:
        theirs = "" if row.peer_seconds is None else f"{row.peer_seconds:.2e}"
        ratio = "" if row.ratio is None else f"{row.ratio:.2f}"
        table.add_row(row.task, f"{row.seconds:.2e}", row.peer, theirs, ratio)
    Console(width=150).print(table)
    for name, slope in growth:
        print(f"{name}: time grows with the power {slope:.2f}")
    if memory is not None:
        print(f"a fit of a full close raises the largest memory by {memory / 2**20:.0f} MiB")
    return len(steep)


if __name__ == "__main__":
    sys.exit(main())
