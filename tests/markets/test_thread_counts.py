"""Seeded markets and their prices have the same bits, however many threads a library may use."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path

import numpy as np
import pytest

from arbiter.conventions import Array
from arbiter.markets import LiftedHeston, preset, timeline
from arbiter.markets.listing import Listing
from arbiter.markets.paths import simulate
from arbiter.markets.snapshots import Venue
from arbiter.markets.vix_listing import VolatilityVenue
from arbiter.models.double_heston import DoubleHeston, HestonVariance
from arbiter.models.fourier_nodes import otm
from arbiter.models.heston import Heston

LIMITS = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
    "NUMBA_NUM_THREADS",
)
T = np.array([0.02, 0.1, 0.7])


def quoted_days() -> Array:
    venue = Venue(Listing(), volatility=VolatilityVenue(monthly=1))
    found = timeline(preset("jumpy"), 2, seed=4, venue=venue).days([0, 1])
    volatility = [day.volatility for day in found if day.volatility is not None]
    return np.concatenate([day.exact.price for day in (*found, *volatility)])


def many_days() -> Array:
    market = LiftedHeston.of(preset("stressed"))
    states = simulate(market, np.arange(1, 500) / 365.0, seed=3, steps_per_day=1).states[0]
    k = np.linspace(-3.0, 2.0, 33) * np.sqrt(market.log_variance(T))[:, None]
    moved = k * np.linspace(0.7, 1.3, len(states))[:, None, None]
    return np.stack([market.days(states, k, T), market.days(states, moved, T)])


def many_paths() -> Array:
    return simulate(preset("rough"), [0.1, 0.2], seed=1, paths=3_000, steps_per_day=0.2).states


def closed_forms() -> Array:
    one = HestonVariance(v0=0.02, reversion=1.5, theta=0.02, nu=0.5, rho=-0.7)
    double = DoubleHeston(one, one).otm(np.linspace(-1.0, 0.5, 60), 0.1)
    markets = [Heston(0.04 + 0.01 * i, 1.5, 0.05, 0.6, -0.7) for i in range(5)]
    level = np.array([market.reference_volatility(T) * np.sqrt(T) for market in markets])
    return np.append(double, otm(markets, T, level, np.linspace(-4.0, 3.0, 40)))


def library_products() -> Array:
    """The same prices by products of a linear algebra library: the control."""
    rng = np.random.default_rng(0)
    return rng.standard_normal((2_000, 500)) @ rng.standard_normal((500, 17))


QUESTIONS: dict[str, Callable[[], Array]] = {
    question.__name__: question
    for question in (quoted_days, many_days, many_paths, closed_forms, library_products)
}


@lru_cache
def answers(threads: int) -> dict[str, str]:
    """Fingerprints of all answers, from a process that may use so many threads."""
    program = (
        "import hashlib, json, test_thread_counts as asked\n"
        "print(json.dumps({name: hashlib.sha256(question().tobytes()).hexdigest()\n"
        "                  for name, question in asked.QUESTIONS.items()}))"
    )
    environment = {**os.environ, **dict.fromkeys(LIMITS, str(threads))}
    environment["PYTHONPATH"] = os.pathsep.join([str(Path(__file__).parent), *sys.path])
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True
    )
    found: dict[str, str] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize("name", [name for name in QUESTIONS if name != "library_products"])
def test_threads_change_no_bit(name: str) -> None:
    assert answers(1)[name] == answers(4)[name]


def test_a_library_of_linear_algebra_lets_threads_change_bits() -> None:
    """The control: where this holds, a product of that library would have been seen."""
    if answers(1)["library_products"] == answers(4)["library_products"]:
        pytest.skip("this machine's linear algebra sums in one order, or has one processor")
    assert answers(1) != answers(4)
