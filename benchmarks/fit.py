"""Fitting a surface: time, growth, and quality beside raw SVI, SSVI and Andreasen-Huge.

Four tables from one run. *Time*: one solve at given roughness from cold and from a previous
surface, and the fit that chooses its roughness, on a full index chain and on 16×41 quotes.
*Growth*: how time grows with expiries and with quotes. *Peers*: the same quotes given to every
method; share inside bid-ask and error of volatility where the method saw the quotes and on a
fifth that it did not, and what ``arbiter.audit`` finds in a table of the result. *Oracle*: error
against the truth on the Heston surfaces of :mod:`arbiter_lab.evaluation.heston_surfaces`.

The chain is a real one where ``ARBITER_DATA`` names the folder with the market data, and one
listed like an index but priced from Heston's model elsewhere and beside it.

    python -m benchmarks.fit [--chain NAME] [--surfaces 50] [--json PATH] [--markdown]
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import platform
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.box import MARKDOWN, SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

import arbiter as ab
from arbiter.chains import read_chain
from arbiter.chains.chain import MIN_COUNTED_DAYS, MIN_COUNTED_STRIKES
from arbiter.conventions import Array
from arbiter.fitting import FitOptions, FittedSurface, fit
from arbiter.models.heston import Heston
from arbiter.quotes import Quotes
from arbiter.scoring import BASIS_POINT, Model, count_modes, find_counted_quotes, score
from arbiter_lab.evaluation.arbitrage_check import tabulate_volatility
from arbiter_lab.evaluation.heston_surfaces import heston_surface
from arbiter_lab.peers import fit_andreasen_huge, fit_ssvi, fit_svi

Row = dict[str, Any]

CHAIN = "spx_2023-09-14_close.csv"
HELD_OUT, SEED = 0.2, 1
MARKET = Heston(v0=0.025, kappa=2.0, theta=0.045, sigma=0.75, rho=-0.75)
FORWARD = 4500.0  # makes ticks of a listed index out of forward units
METHODS: dict[str, Callable[[Quotes], Model]] = {
    "arbiter": fit,
    "raw SVI": fit_svi,
    "SSVI": fit_ssvi,
    "Andreasen-Huge": fit_andreasen_huge,
}


def listed_quotes(expiries: int = 51, strikes: int = 165, seed: int = SEED) -> Quotes:
    """Quotes listed like an index: equally spaced strikes down to 15 cents, spreads of ticks."""
    rng = np.random.default_rng(seed)
    days = np.unique(np.rint(np.geomspace(2.0, 950.0, 3 * expiries)))
    days = days[np.rint(np.linspace(0, days.size - 1, expiries)).astype(int)]
    columns: dict[str, list[Array]] = {"T": [], "k": [], "bid": [], "ask": []}
    for T in (days / 365.0).tolist():
        deviation = float(MARKET.reference_volatility(np.array(T))) * np.sqrt(T)
        wide = np.linspace(np.exp(-8.0 * deviation), np.exp(4.0 * deviation), 400)
        quoted = wide[MARKET.otm(np.log(wide), T) * FORWARD > 0.15]
        k = np.log(np.linspace(quoted[0], quoted[-1], strikes))
        price = MARKET.otm(k, T) * FORWARD
        half = 0.05 + 0.006 * price
        mid = price + half * rng.uniform(-0.5, 0.5, k.size)
        keep = mid > half
        columns["T"].append(np.full(int(keep.sum()), T))
        columns["k"].append(k[keep])
        columns["bid"].append((mid - half)[keep] / FORWARD)
        columns["ask"].append((mid + half)[keep] / FORWARD)
    return Quotes.from_frame({name: np.concatenate(parts) for name, parts in columns.items()})


def square_quotes() -> Quotes:
    """All 16 × 41 points of a Heston surface, half-spreads of 1 % of volatility."""
    surface = heston_surface(SEED)
    noise = np.random.default_rng(SEED).uniform(-1.0, 1.0, surface.k.shape)
    mid = surface.iv_oracle * (1.0 + 0.01 * noise)
    table = {
        "T": np.repeat(surface.T, surface.k.shape[1]),
        "k": surface.k.ravel(),
        "iv_bid": (mid - 0.01 * surface.iv_oracle).ravel(),
        "iv_ask": (mid + 0.01 * surface.iv_oracle).ravel(),
    }
    return Quotes.from_frame(table)


def moved(quotes: Quotes, factor: float = 1.01) -> Quotes:
    """The same quotes at another moment: every volatility ``factor`` times as high."""
    table = {"T": quotes.T, "k": quotes.k}
    both = {"iv_bid": factor * quotes.iv_bid, "iv_ask": factor * quotes.iv_ask}
    return Quotes.from_frame({**table, **both})


def real_quotes(folder: str | None, name: str) -> Quotes | None:
    """The quotes that count of a chain in the data folder, if there is one."""
    if not folder:
        return None
    chain = read_chain(Path(folder) / "chains" / name)
    quotes = chain.quotes(shortest_days=MIN_COUNTED_DAYS, fewest_strikes=MIN_COUNTED_STRIKES)
    return quotes.select(find_counted_quotes(quotes))


def seconds(f: Callable[[], object], repeats: int) -> float:
    """Median time of ``f`` after a warm-up."""
    f()
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        f()
        times.append(time.perf_counter() - start)
    return float(np.median(times))


def _steps(surface: FittedSurface) -> int:
    return surface.result.iterations


def time_rows(name: str, quotes: Quotes, repeats: int) -> list[Row]:
    """Cold and warm solves at the roughness that the data chose, and the fit that chooses it."""
    chosen = fit(quotes)
    given = FitOptions(roughness=chosen.result.roughness)
    before = fit(moved(quotes), options=given)
    routes: dict[str, Callable[[], FittedSurface]] = {
        "given roughness, cold": lambda: fit(quotes, options=given),
        "given roughness, warm": lambda: fit(quotes, options=given, start=before),
        "roughness chosen, cold": lambda: fit(quotes),
        "roughness chosen, warm": lambda: fit(quotes, start=before),
    }
    rows = []
    for route, run in routes.items():
        elapsed, surface = seconds(run, repeats), run()
        rows.append(
            {
                "chain": name,
                "expiries": int(quotes.maturities.size),
                "count": len(quotes),
                "route": route,
                "status": surface.result.status.value,
                "steps": _steps(surface),
                "seconds": elapsed,
                "ms_per_step": 1e3 * elapsed / max(_steps(surface), 1),
            }
        )
    return rows


def growth_rows(repeats: int) -> list[Row]:
    """Time at one given roughness against expiries (at 160 strikes) and quotes (30 expiries)."""
    base = fit(listed_quotes(30, 160))
    given = FitOptions(roughness=base.result.roughness)
    sizes = {
        "expiries": [(n, 160) for n in (8, 15, 30, 60)],
        "quotes": [(30, n) for n in (40, 80, 160, 320)],
    }
    rows = []
    for of, shapes in sizes.items():
        found: list[Row] = []
        for expiries, strikes in shapes:
            quotes = listed_quotes(expiries, strikes)
            elapsed = seconds(lambda q=quotes: fit(q, options=given), repeats)  # type: ignore[misc]
            size = quotes.maturities.size if of == "expiries" else len(quotes)
            steps = _steps(fit(quotes, options=given))
            found.append(
                {
                    "growth_in": of,
                    "size": int(size),
                    "count": len(quotes),
                    "steps": steps,
                    "seconds": elapsed,
                    "ms_per_step": 1e3 * elapsed / max(steps, 1),
                }
            )
        logs = np.log([[row["size"], row["seconds"], row["ms_per_step"]] for row in found])
        for row in found:
            row["slope"] = float(np.polyfit(logs[:, 0], logs[:, 1], 1)[0])
            row["slope_per_step"] = float(np.polyfit(logs[:, 0], logs[:, 2], 1)[0])
        rows += found
    return rows


def timed(run: Callable[[Quotes], Model], quotes: Quotes) -> tuple[Model, float]:
    """The model and its seconds: the median of three where that is quick, else one run."""
    times: list[float] = []
    while not times or (len(times) < 3 and sum(times) < 5.0):
        start = time.perf_counter()
        model = run(quotes)
        times.append(time.perf_counter() - start)
    return model, float(np.median(times))


def peer_rows(name: str, quotes: Quotes) -> list[Row]:
    """Every method on the same quotes."""
    hidden = quotes.held_out(HELD_OUT, SEED)
    shown, small = quotes.select(~hidden), square_quotes()
    rows = []
    for method, run in METHODS.items():
        run(small)  # imports of a first call are not the method's time
        model, elapsed = timed(run, quotes)
        seen = score(model, quotes)
        unseen = score(run(shown), quotes, among=hidden)
        verdict = ab.audit(tabulate_volatility(model, quotes, 101))
        sizes = verdict.findings["size"]
        rows.append(
            {
                "chain": name,
                "method": method,
                "seconds": elapsed,
                "inside_bid_ask": seen.inside_bid_ask,
                "inside_held_out": unseen.inside_bid_ask,
                "iv_rmse_bp": seen.iv_rmse_bp,
                "iv_rmse_bp_held_out": unseen.iv_rmse_bp,
                "iv_rmse_half_spreads_held_out": unseen.iv_rmse_half_spreads,
                "violations": len(sizes),
                "material": int(verdict.findings["material"].sum()),
                "largest": float(sizes.max()) if len(sizes) else 0.0,  # type: ignore[arg-type]
                "modes": float(count_modes(model).mean())
                if isinstance(model, ab.Surface)
                else None,
            }
        )
    return rows


def oracle_rows(surfaces: int) -> list[Row]:
    """Error against the truth, pooled over surfaces, and seconds of a fit."""
    rows = []
    for method, run in METHODS.items():
        row: Row = {"method": method, "surfaces": surfaces}
        for hard in (False, True):
            squares, times = [], []
            for seed in range(surfaces):
                surface = heston_surface(seed, hard)
                start = time.perf_counter()
                model = run(surface.quotes)
                times.append(time.perf_counter() - start)
                error = model.iv(surface.k, surface.T[:, None]) - surface.iv_oracle
                squares.append(np.mean(error**2))
            label = "hard" if hard else "base"
            row[f"rmse_bp_{label}"] = float(np.sqrt(np.mean(squares))) / BASIS_POINT
            row[f"seconds_{label}"] = float(np.median(times))
        rows.append(row)
    return rows


# title, and of each column its heading, its key and how its value is written
TABLES: dict[str, tuple[str, list[tuple[str, str, str]]]] = {
    "time": (
        "Time of a fit",
        [
            ("chain", "chain", "s"),
            ("expiries", "expiries", "d"),
            ("quotes", "count", ",d"),
            ("route", "route", "s"),
            ("ended", "status", "s"),
            ("steps", "steps", "d"),
            ("seconds", "seconds", ".4f"),
            ("ms a step", "ms_per_step", ".2f"),
        ],
    ),
    "growth": (
        "Growth at given roughness",
        [
            ("growth in", "growth_in", "s"),
            ("size", "size", ",d"),
            ("quotes", "count", ",d"),
            ("steps", "steps", "d"),
            ("seconds", "seconds", ".4f"),
            ("ms a step", "ms_per_step", ".2f"),
            ("log-log slope", "slope", ".2f"),
            ("of a step", "slope_per_step", ".2f"),
        ],
    ),
    "peers": (
        "Beside its peers on the same quotes",
        [
            ("chain", "chain", "s"),
            ("method", "method", "s"),
            ("seconds", "seconds", ".2f"),
            ("inside bid-ask", "inside_bid_ask", ".2%"),
            ("inside, held out", "inside_held_out", ".2%"),
            ("IV RMSE bp", "iv_rmse_bp", ".1f"),
            ("held out", "iv_rmse_bp_held_out", ".1f"),
            ("violations", "violations", ",d"),
            ("≥ 1e-5", "material", ",d"),
            ("largest, of forward", "largest", ".0e"),
        ],
    ),
    "oracle": (
        "Error against the truth on Heston surfaces, IV RMSE in bp",
        [
            ("method", "method", "s"),
            ("surfaces", "surfaces", "d"),
            ("base", "rmse_bp_base", ".1f"),
            ("hard", "rmse_bp_hard", ".1f"),
            ("seconds base", "seconds_base", ".3f"),
            ("seconds hard", "seconds_hard", ".3f"),
        ],
    ),
}


def rendered(name: str, rows: list[Row], markdown: bool) -> Table:
    """Rows as a table for the terminal, or as Markdown for a page."""
    title, columns = TABLES[name]
    table = Table(title=title, box=MARKDOWN if markdown else SIMPLE_HEAD)
    for heading, _, form in columns:
        table.add_column(heading, justify="left" if form == "s" else "right", no_wrap=True)
    for row in rows:
        table.add_row(*(format(row[key], form) for _, key, form in columns))
    return table


def run(
    folder: str | None, chain: str, surfaces: int, repeats: int = 5
) -> Iterator[tuple[str, list[Row]]]:
    """Every table with its name, as soon as it is measured."""
    chains = {"listed like an index": listed_quotes()}
    real = real_quotes(folder, chain)
    if real is not None:
        chains = {chain.removesuffix(".csv"): real, **chains}
    timings = [row for name in chains for row in time_rows(name, chains[name], repeats)]
    yield "time", [*timings, *time_rows("16 × 41", square_quotes(), 4 * repeats)]
    yield "growth", growth_rows(repeats)
    yield "peers", [row for name in chains for row in peer_rows(name, chains[name])]
    yield "oracle", oracle_rows(surfaces)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--chain", default=CHAIN, help="a file of ARBITER_DATA/chains")
    parser.add_argument("--surfaces", type=int, default=50, help="Heston surfaces of the oracle")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--markdown", action="store_true")
    chosen = parser.parse_args()
    logging.getLogger("arbiter").setLevel(logging.ERROR)
    console = Console(width=160)
    console.print(
        f"NumPy {np.__version__}, {platform.machine()}, {torch.get_num_threads()} threads"
    )
    found = {}
    for name, rows in run(os.environ.get("ARBITER_DATA"), chosen.chain, chosen.surfaces):
        console.print(rendered(name, rows, chosen.markdown))
        found[name] = rows
    if chosen.json:
        chosen.json.write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
