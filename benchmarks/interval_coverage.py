"""How often a 95 % interval holds the mean of an AR(1) that is known, for each method.

Persistence ρ from 0 to 0.95, Gaussian innovations, a stationary start, so that every day has the
mean zero. The width is relative to the interval that knows the long-run variance: narrower is
better only where the coverage is right. Beside them, how often the sign-flip test of `compare`
keeps the true hypothesis at 5 %, which should be as often.

    python -m benchmarks.interval_coverage [--replications 10000]
"""

from __future__ import annotations

import argparse
from typing import NamedTuple, get_args

import numpy as np
from scipy.signal import lfilter

from arbiter.conventions import Array
from arbiter_lab.protocol.inference import Method, hac_mean
from arbiter_lab.protocol.paired_tests import choose_flip_block, sign_flip_test

METHODS: tuple[Method, ...] = get_args(Method)
PERSISTENCE = (0.0, 0.3, 0.5, 0.7, 0.9, 0.95)
DAYS = (60, 250, 1000)


class Coverage(NamedTuple):
    """Share of intervals that hold the mean, and their mean width over the exact one's."""

    share: float
    width: float


def autoregressions(rho: float, days: int, replications: int, seed: int) -> Array:
    """``(replications, days)`` stationary AR(1) series of mean zero and innovations of one."""
    noise = np.random.default_rng(seed).standard_normal((replications, days))
    noise[:, 0] /= np.sqrt(1.0 - rho**2)
    return np.asarray(lfilter([1.0], [1.0, -rho], noise, axis=1))


def coverage(method: Method, series: Array, rho: float, level: float = 0.95) -> Coverage:
    """Coverage of the mean zero over replications ``(R, T)``."""
    from scipy.stats import norm

    found = [hac_mean(row, method=method, level=level) for row in series]
    days = series.shape[1]
    ahead = np.arange(1, days)
    variance = (1.0 + 2.0 * ((1.0 - ahead / days) * rho**ahead).sum()) / (1.0 - rho**2) / days
    exact = 2.0 * norm.ppf(0.5 + 0.5 * level) * np.sqrt(variance)
    held = np.mean([e.low <= 0.0 <= e.high for e in found])
    return Coverage(float(held), float(np.mean([e.high - e.low for e in found]) / exact))


def kept_by_flips(series: Array, flips: int = 199) -> float:
    """Share of series ``(R, T)`` whose mean of zero the sign-flip test does not reject at 5 %."""
    found = [
        sign_flip_test(row, choose_flip_block(row), flips=flips, seed=i)
        for i, row in enumerate(series)
    ]
    return float(np.mean([p > 0.05 for p, _ in found]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--replications", type=int, default=10_000)
    replications = parser.parse_args().replications
    print(f"{replications} series each; coverage in per cent, mean width over the exact one's\n")
    print("| days | ρ | " + " | ".join(METHODS) + " | sign flips |")
    print("|---|---|" + "---|" * len(METHODS) + "---|")
    for days in DAYS:
        for rho in PERSISTENCE:
            series = autoregressions(rho, days, replications, seed=days)
            found = [coverage(method, series, rho) for method in METHODS]
            cells = [f"{100.0 * c.share:.1f} ({c.width:.2f})" for c in found]
            cells.append(f"{100.0 * kept_by_flips(series):.1f}")
            print(f"| {days} | {rho} | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
