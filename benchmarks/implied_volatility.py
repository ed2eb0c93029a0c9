"""Implied volatility: ours against lets_be_rational and QuantLib, accuracy and speed in one run.

Every library gets the same doubles, an undiscounted out-of-the-money price and a strike with
forward one, and is compared with mpmath (60 digits) on those very doubles. Rates are ratios
inside one run: the machine cancels out of them. Two sets of quotes: "quoted" has total
volatilities from 0.01 to 1 and strikes up to 4 deviations away, "whole" the whole domain that
:func:`arbiter.pricing.black.implied_total_volatility` states, 1e-4 to 10 and 15 deviations.

    python -m benchmarks.implied_volatility
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import mpmath as mp
import numpy as np
import py_lets_be_rational as rational
import QuantLib as ql
from rich.box import MARKDOWN
from rich.console import Console
from rich.table import Table

from arbiter.conventions import Array
from arbiter.pricing import black

SEED = 7
CHECKED = 3_000  # points compared with mpmath and given to the scalar functions
TILES = 300  # a library that takes arrays is timed on this many copies of them
REPEATS = 5
WRONG = 1e-6


class Market(NamedTuple):
    """One set of quotes, with the exact total volatility of each rounded price."""

    name: str
    strike: Array
    price: Array
    exact: list[Any]
    limit: Array  # relative error that rounding the price alone causes: ε·price/(v·vega)


def draw(name: str, v: Array, deviations: Array) -> Market:
    """Price strikes at ``deviations`` of ``v`` in mpmath and correct ``v`` for the rounding."""
    strike = np.exp(deviations * v)
    price, exact = np.empty_like(v), []
    with mp.workdps(60):
        for i, (strike_i, v_i) in enumerate(zip(strike, v, strict=True)):
            k, w = mp.log(mp.mpf(float(strike_i))), mp.mpf(float(v_i))
            high, low = (mp.erfc((abs(k) / w + s * w / 2) / mp.sqrt(2)) / 2 for s in (-1, 1))
            value = mp.exp(min(k, 0)) * (high - mp.exp(abs(k)) * low)
            price[i] = float(value)
            exact.append(w + (mp.mpf(float(price[i])) - value) / mp.npdf(w / 2 - k / w))
    slope = v * black.vega(np.log(strike), v)
    return Market(name, strike, price, exact, np.finfo(np.float64).eps * price / slope)


def markets() -> list[Market]:
    rng = np.random.default_rng(SEED)
    sign = rng.choice([-1.0, 1.0], CHECKED)
    quoted = draw(
        "quoted",
        10 ** rng.uniform(-2, 0, CHECKED),
        sign * rng.uniform(0, 4, CHECKED),
    )
    whole = draw(
        "whole",
        10 ** rng.uniform(-4, 1, CHECKED),
        sign * rng.uniform(0, 15, CHECKED),
    )
    return [quoted, whole]


def ours(price: Array, strike: Array) -> Array:
    volatility: Array = black.implied_total_volatility(price, np.log(strike)).volatility
    return volatility


def one_by_one(solve: Callable[[float, float], float]) -> Callable[[Array, Array], Array]:
    def loop(price: Array, strike: Array) -> Array:
        out = np.full(price.shape, np.nan)
        for i, (p, k) in enumerate(zip(price.tolist(), strike.tolist(), strict=True)):
            try:
                out[i] = solve(p, k)
            except (RuntimeError, ArithmeticError, ValueError):
                continue
        return out

    return loop


def lets_be_rational(price: float, strike: float) -> float:
    side = 1 if strike >= 1.0 else -1
    found: float = rational.implied_volatility_from_a_transformed_rational_guess(
        price, 1.0, strike, 1.0, side
    )
    return found


def quantlib(price: float, strike: float) -> float:
    side = ql.Option.Call if strike >= 1.0 else ql.Option.Put
    found: float = ql.blackFormulaImpliedStdDev(
        side, strike, 1.0, price, 1.0, 0.0, ql.nullDouble(), 1e-15, 1000
    )
    return found


def rate(solve: Callable[[Array, Array], Array], price: Array, strike: Array) -> float:
    """Volatilities per second, the best of a few repeats."""
    seconds = []
    for _ in range(REPEATS):
        start = time.perf_counter()
        solve(price, strike)
        seconds.append(time.perf_counter() - start)
    return price.size / min(seconds)


def run() -> list[dict[str, Any]]:
    """Measure every library on every set: one row each."""
    libraries = {
        "arbiter": (ours, TILES),
        "lets_be_rational": (one_by_one(lets_be_rational), 1),
        "QuantLib": (one_by_one(quantlib), 1),
    }
    rows: list[dict[str, Any]] = []
    for market in markets():
        for name, (solve, tiles) in libraries.items():
            found = solve(market.price, market.strike)
            pairs = zip(found, market.exact, strict=True)
            error = np.array([float(abs(mp.mpf(float(x)) / y - 1)) for x, y in pairs])
            answered = np.isfinite(error)
            well_posed = answered & (market.limit < 1e-12)
            rows.append(
                {
                    "set": market.name,
                    "library": name,
                    "points": CHECKED,
                    "smallest_price": float(market.price.min()),
                    "worst_relative_error": float(error[well_posed].max()),
                    "median_relative_error": float(np.median(error[well_posed])),
                    "no_answer": int((~answered).sum()),
                    "wrong": int((error[answered] > WRONG).sum()),
                    "per_second": rate(
                        solve, np.tile(market.price, tiles), np.tile(market.strike, tiles)
                    ),
                }
            )
        for row in rows[-len(libraries) :]:
            row["speed_of_arbiter"] = rows[-len(libraries)]["per_second"] / row["per_second"]
    return rows


def main() -> None:
    rows = run()
    if "--json" in sys.argv[1:]:
        print(json.dumps(rows, indent=2))
        return
    table = Table(title="Implied volatility, one thread", box=MARKDOWN)
    for heading in ("set", "library", "worst", "median", "none", "wrong", "per second", "× slower"):
        table.add_column(heading, no_wrap=True)
    for row in rows:
        table.add_row(
            row["set"],
            row["library"],
            f"{row['worst_relative_error']:.1e}",
            f"{row['median_relative_error']:.1e}",
            str(row["no_answer"]),
            str(row["wrong"]),
            f"{row['per_second']:,.0f}",
            f"{row['speed_of_arbiter']:.1f}",
        )
    Console(width=110).print(table)
    print(f"worst, median: relative error where rounding the price costs < 1e-12; wrong: > {WRONG}")


if __name__ == "__main__":
    main()
