"""The audit of a price table agrees with a linear program that does not know its inequalities."""

from __future__ import annotations

import numpy as np
import pytest

import arbiter as ab
from arbiter.conventions import Array
from arbiter.pricing import black
from counts import count
from static_arbitrage import find_smallest_error

ROUNDING = 5e-7  # of the program's solver: what it allows its own constraints to be broken by


def draw_table(rng: np.random.Generator) -> tuple[Array, Array, Array]:
    """Calls of a mixture of two Black laws on ragged strikes, most of them disturbed."""
    maturities = np.sort(rng.choice([0.05, 0.1, 0.25, 0.5, 1.0, 2.0], rng.integers(1, 5), False))
    common = np.sort(rng.uniform(-0.4, 0.4, rng.integers(2, 9)))
    ragged = rng.random() < 0.5
    points = [
        np.sort(rng.uniform(-0.4, 0.4, rng.integers(1, 9))) if ragged else common
        for _ in maturities
    ]
    T, k = np.repeat(maturities, [p.size for p in points]), np.concatenate(points)
    low, high = rng.uniform(0.1, 0.5, 2)
    share = rng.uniform()
    root = np.sqrt(T)
    call = share * black.call(k, low * root) + (1.0 - share) * black.call(k, high * root)
    kind = rng.integers(0, 4)
    if kind == 1:
        call += rng.normal(size=k.size) * 10.0 ** rng.uniform(-6.0, -2.0)
    elif kind == 2:
        call[rng.integers(0, k.size)] += rng.normal() * 10.0 ** rng.uniform(-6.0, -1.0)
    elif kind == 3:
        call = black.call(k, rng.uniform(0.1, 0.6, k.size) * root)
    return T, k, call


def test_the_audit_finds_an_arbitrage_where_no_market_has_the_prices() -> None:
    seen = {True: 0, False: 0}
    for seed in range(count(full=3_000, reduced=300)):
        T, k, call = draw_table(np.random.default_rng(seed))
        certificate = ab.audit({"T": T, "k": k, "call": call})
        error = find_smallest_error(T, np.exp(k), call)
        seen[certificate.passed] += 1
        if certificate.passed:
            assert error <= ROUNDING, f"seed {seed}: passed, and prices are off by {error:g}"
        else:
            # long legs weigh one and so do short ones: half of a size is the least of two errors
            largest = certificate.findings["size"].max()
            assert isinstance(largest, float)
            assert error >= 0.5 * largest - ROUNDING, f"seed {seed}: {largest:g} is no arbitrage"
    assert min(seen.values()) > 0.2 * sum(seen.values())  # both verdicts are put to the test


def test_the_program_measures_planted_errors() -> None:
    """The control: a butterfly that pays is worth what it was made too cheap by."""
    k = np.array([-0.1, 0.0, 0.1])
    T = np.full(3, 0.5)
    call = black.call(k, 0.2 * np.sqrt(T))
    assert find_smallest_error(T, np.exp(k), call) <= ROUNDING
    call[1] += 0.02
    share = (np.exp(k[2]) - 1.0) / (np.exp(k[2]) - np.exp(k[0]))
    butterfly = share * call[0] + (1.0 - share) * call[2] - call[1]
    assert find_smallest_error(T, np.exp(k), call) == pytest.approx(-butterfly / 2.0, abs=1e-6)
    later = np.array([0.5, 1.0])
    falling = black.call(np.zeros(2), np.array([0.2, 0.1]))
    gap = falling[0] - falling[1]
    found = find_smallest_error(later, np.ones(2), falling)
    assert found == pytest.approx(gap / 2.0, abs=1e-6)
