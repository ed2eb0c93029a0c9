"""Interpolation between expiries on several clocks: each expiry of a real close left out in turn.

ARBITER_DATA=DIR python -m benchmarks.clocks [CHAIN ...]
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import numpy as np

import arbiter as ab
from arbiter.chains.chain import MIN_COUNTED_DAYS, MIN_COUNTED_STRIKES
from arbiter.conventions import MINUTES_PER_YEAR
from arbiter.fitting import FitOptions
from arbiter.quotes import Quotes

CLOSES = ("spx_2022-02-04_close.csv", "spx_2023-02-07_close.csv", "spx_2023-09-14_close.csv")
CLOCKS = {"minutes": ab.Clock(), "trading": ab.Clock.trading()}
WEEKDAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday")
MAX_BIAS_DAYS = 45.0  # of expiries whose weekday is looked at


def measure_left_out(quotes: Quotes, clock: ab.Clock) -> tuple[list[float], dict[str, list[float]]]:
    """Errors of left-out expiries within two deviations, basis points, and biases by weekday."""
    options, errors = None, []
    biases: dict[str, list[float]] = {day: [] for day in WEEKDAYS}
    for left in range(1, quotes.maturities.size - 1):
        own = quotes.expiry == left
        surface = ab.fit(quotes.select(~own), options=options, clock=clock)
        options = options or FitOptions(roughness=surface.result.roughness)
        near = own & (np.abs(quotes.k) <= 2.0 * quotes.iv_mid * np.sqrt(quotes.T))
        T = quotes.T[near]
        missed = 1e4 * (surface.iv(quotes.k[near], T) - quotes.iv_mid[near])
        errors.append(float(np.sqrt(np.mean(missed**2))))
        if quotes.as_of is not None and T[0] * 365.0 < MAX_BIAS_DAYS:
            minutes = np.timedelta64(round(float(T[0]) * MINUTES_PER_YEAR), "m")
            day = (quotes.as_of + minutes).astype("datetime64[D]").astype(object).weekday()
            biases[WEEKDAYS[day]].append(float(missed.mean()))
    return errors, biases


def main() -> None:
    folder = Path(os.environ["ARBITER_DATA"]) / "chains"
    for name in sys.argv[1:] or CLOSES:
        chain = ab.read_chain(folder / name)
        quotes = chain.quotes(shortest_days=MIN_COUNTED_DAYS, fewest_strikes=MIN_COUNTED_STRIKES)
        for title, clock in CLOCKS.items():
            errors, biases = measure_left_out(quotes, clock)
            means = {day: round(float(np.mean(each)), 1) for day, each in biases.items() if each}
            found = f"median {np.median(errors):.1f}, mean {np.mean(errors):.1f}, bias {means}"
            print(f"{name} {title}: {found}", flush=True)


if __name__ == "__main__":
    main()
