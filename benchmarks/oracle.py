"""The oracle's timeline: 2,000 days × 14 maturities × 33 strikes of one lifted Heston market.

One Riccati solution serves every day; measured against one solution per day (on a sample of days,
scaled) and against QuantLib's Heston pricing of as many options (on a sample, scaled; one factor
rather than twenty). Two listings: the same log-strikes every day, and strikes that differ by day.

    python -m benchmarks.oracle [--cpu-time] [--days 2000] [--json PATH]

One thread is used. With ``--cpu-time`` its CPU time is counted, so that other load on the machine
does not enter.
"""

from __future__ import annotations

import argparse
import json
import platform
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numba
import numpy as np

from arbiter.conventions import Array
from arbiter.markets import LiftedHeston, preset
from arbiter.markets.paths import simulate
from arbiter.models.fourier_pricing import CONTOUR_STEP
from arbiter.models.lifted_heston import solve_contours
from arbiter.models.riccati import STEP_GROWTH
from arbiter.models.vix_oracle import IndexLaw, solve_index_law

T = np.array([7, 14, 21, 30, 45, 60, 91, 122, 182, 273, 365, 456, 547, 730]) / 365.0
STRIKES = 33
Clock = Callable[[], float]


def forget() -> None:
    """Drop what the oracle keeps, so that the next call solves again."""
    solve_contours.cache_clear()
    solve_index_law.cache_clear()


def states(market: LiftedHeston, days: int) -> Array:
    """``(days, n)`` states of a daily path."""
    return np.asarray(simulate(market, np.arange(days) / 365.0, seed=7).states[0])


def seconds(f: Callable[[], object], clock: Clock, repeats: int = 3) -> float:
    """Median time of ``f``, each time from nothing."""
    times = []
    for _ in range(repeats):
        forget()
        start = clock()
        f()
        times.append(clock() - start)
    return float(np.median(times))


def quantlib_seconds(options: int, clock: Clock, sample: int = 2_000) -> float:
    """Seconds for ``options`` Heston prices by QuantLib's fastest analytic engine, scaled."""
    try:
        import QuantLib as ql
    except ImportError:
        return float("nan")
    today = ql.Date(2, 1, 2026)
    ql.Settings.instance().evaluationDate = today
    flat = ql.YieldTermStructureHandle(ql.FlatForward(today, 0.0, ql.Actual365Fixed()))
    spot = ql.QuoteHandle(ql.SimpleQuote(1.0))
    model = ql.HestonModel(ql.HestonProcess(flat, flat, spot, 0.04, 1.5, 0.05, 0.7, -0.75))
    contour = ql.AnalyticHestonEngine.AngledContour
    engine = ql.ExponentialFittingHestonEngine(model, contour)
    start = clock()
    for i in range(sample):
        payoff = ql.PlainVanillaPayoff(ql.Option.Put, 0.8 + 0.2 * i / sample)
        exercise = ql.EuropeanExercise(today + round(365.0 * float(T[i % T.size])))
        option = ql.VanillaOption(payoff, exercise)
        option.setPricingEngine(engine)
        option.NPV()
    return (clock() - start) * options / sample


def run(days: int = 2_000, clock: Clock = time.perf_counter) -> dict[str, Any]:
    market = LiftedHeston.of(preset("stressed"))
    U = states(market, days)
    k = np.linspace(-3.5, 2.0, STRIKES) * np.sqrt(market.log_variance(T))[:, None]
    rng = np.random.default_rng(8)
    moved = k * rng.uniform(0.7, 1.3, (days, 1, 1))
    for strikes in (k, moved[:2]):
        market.days(U[:2], strikes, T)  # compiles
    solve = seconds(
        lambda: solve_contours(market, tuple(T.tolist()), CONTOUR_STEP, STEP_GROWTH), clock
    )
    same = seconds(lambda: market.days(U, k, T), clock)
    ragged = seconds(lambda: market.days(U, moved, T), clock)

    sample = 20

    def one_by_one() -> None:
        for state in U[:sample]:
            forget()
            market.days(state[None], k, T)

    apart = seconds(one_by_one, clock, 1) * days / sample
    gap = np.abs(market.days(U[:3], k, T) - np.stack([market.otm(k, T[:, None], u) for u in U[:3]]))
    index = seconds(lambda: IndexLaw.from_parameters(market, 0.25).future(U), clock)
    options = days * T.size * STRIKES
    return {
        "machine": platform.machine(),
        "numba": numba.__version__,
        "days": days,
        "options": options,
        "solve_s": solve,
        "timeline_s": same,
        "timeline_ragged_s": ragged,
        "surfaces_per_second": days / same,
        "surfaces_per_second_ragged": days / ragged,
        "one_solution_per_day_s": apart,
        "times_one_solution_per_day": apart / same,
        "quantlib_heston_s": quantlib_seconds(options, clock),
        "vix_futures_one_maturity_s": index,
        "gap_to_single_days": float(gap.max()),
        "error_estimate": market.error_estimate(k, T[:, None]),
    }


def table(row: dict[str, Any]) -> str:
    peer = row["quantlib_heston_s"]
    lines = [
        "| what | seconds | surfaces/s | against one solution per day | against QuantLib Heston |",
        "|---|---|---|---|---|",
    ]
    for name, key in (
        ("same strikes every day", "timeline_s"),
        ("strikes differ by day", "timeline_ragged_s"),
        ("one solution per day (20 days, scaled)", "one_solution_per_day_s"),
        ("QuantLib, Heston (2,000 options, scaled)", "quantlib_heston_s"),
    ):
        s = row[key]
        lines.append(
            f"| {name} | {s:.2f} | {row['days'] / s:,.0f} "
            f"| {row['one_solution_per_day_s'] / s:,.1f} | {peer / s:,.1f} |"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--days", type=int, default=2_000)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--cpu-time", action="store_true")
    chosen = parser.parse_args()
    row = run(chosen.days, time.process_time if chosen.cpu_time else time.perf_counter)
    print(f"{row['machine']}, numba {row['numba']}, one thread")
    print(table(row))
    print(
        f"one Riccati solution {row['solve_s']:.3f} s; VIX futures of all days, one maturity "
        f"{row['vix_futures_one_maturity_s']:.3f} s; gap to days one by one "
        f"{row['gap_to_single_days']:.0e}; error estimate {row['error_estimate']:.0e}"
    )
    if chosen.json:
        chosen.json.write_text(json.dumps(row, indent=1))


if __name__ == "__main__":
    main()
