"""Each monitor of A1 to A4 moves the right way on a case that trips it, and rests on one that does
not; none of them moves a price."""

from __future__ import annotations

import json
import logging
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import arbiter as ab
from arbiter.conventions import Array
from arbiter.operators import chain_pass
from arbiter.operators.law.config import FASTEST_RATE, MAX_LOW_RANK, SLOWEST_RATE
from arbiter.operators.monitor_sums import (
    COVERAGE_POINTS,
    COVERAGE_WINDOW,
    COVERED_RADIUS,
    covered_shares,
    decay_power,
    exponential_moments,
    mean_slopes,
    patch_orders,
    scan_decays,
)
from arbiter.operators.monitors import MIN_COVERAGE, Monitors, typical_rate, watch
from arbiter.operators.operator_surface import OperatorSurface
from arbiter.operators.pretrained import Operator
from arbiter.operators.slope_head import KNOTS
from arbiter.quotes import Quotes
from arbiter.surface import Surface

X = np.array(KNOTS)
T = np.geomspace(0.02, 2.0, 12)
ROWS = np.repeat(np.arange(T.size), 21)
ZETA = np.tile(np.arcsinh(np.linspace(-3.5, 2.0, 21)), T.size)
LEVEL = 0.2 * np.sqrt(T)[:, None]
CALM = LEVEL * (1.0 - 0.08 * X + 0.01 * X**2)  # a skewed smile with every derivative


def watched(
    slopes: Array = CALM,
    zeta: Array = ZETA,
    years: Array = T,
    rate: float | None = 0.5,
) -> Monitors:
    return watch(X, slopes, zeta, ROWS, years, rate)


@pytest.fixture(scope="module")
def operator() -> Operator:
    return Operator.pretrained()


@pytest.fixture(scope="module")
def quotes() -> Quotes:
    return ab.example_chain().quotes()


def test_a_calm_surface_has_no_flag() -> None:
    found = watched()
    assert found.flags == {}
    assert found.condition == "novikov"
    # variance rises as the index falls; the control is the other way round
    rising = watched(slopes=LEVEL * (1.0 + 0.08 * X + 0.01 * X**2))
    assert found.gap < -0.003 < 0.0 < rising.gap


def test_blacks_law_has_the_moments_of_its_variance() -> None:
    b = np.array([0.1, 0.4, 1.5])
    slopes = b[:, None] * np.ones(X.size)
    moments = exponential_moments(X, slopes, mean_slopes(X, slopes), 3.0)
    np.testing.assert_allclose(moments[:, 0], b**2 / 2.0, atol=1e-4)
    np.testing.assert_allclose(moments[:, 1], b**2 / 8.0, atol=1e-4)
    # the trapezoid takes half of the cell at three deviations for within
    np.testing.assert_allclose(moments[:, 2], math.erfc(3.0 / math.sqrt(2.0)), rtol=0.6)


def test_moments_of_small_variances_and_of_steep_wings_are_numbers() -> None:
    small = np.full((1, X.size), 1e-4)
    moments = exponential_moments(X, small, mean_slopes(X, small), 3.0)[0]
    np.testing.assert_allclose(moments[:2], [5e-9, 1.25e-9], rtol=1e-3)
    steep = np.where(np.abs(X) > 3.0, 19.0, 2e-6)[None]  # e^{V/2} is beyond any double
    found = watched(slopes=np.repeat(steep, T.size, 0))
    assert found.novikov > 1e3
    assert np.isfinite([found.novikov, found.kazamaki, found.gap]).all()
    assert found.novikov_tail == pytest.approx(1.0)
    assert found.condition == "neither"


def test_a_file_may_lack_a_number_of_a_monitor() -> None:
    plain = watched().to_dict()
    kept = Monitors.from_dict({**plain, "novikov": None})
    assert kept is not None
    assert math.isnan(kept.novikov)
    assert kept.order == plain["order"]
    assert Monitors.from_dict(plain) == watched()


def test_mean_slopes_are_those_of_the_transport() -> None:
    slopes = CALM[:1]
    whole = Surface.from_slopes(X, T[:1], slopes)
    k = whole.quantile(0.5, T[0]), whole.quantile(0.1586552539314571, T[0])  # at 0 and −1
    one = float(np.log(k[0] / k[1]))
    assert mean_slopes(X, slopes)[0, np.searchsorted(X, -1.0 - 1e-9)] == pytest.approx(
        one, rel=1e-6
    )


def test_a_steep_tail_switches_novikov_to_kazamaki_and_a_wild_one_has_neither() -> None:
    kept = []
    for tail in (1.0, 6.0, 19.0):
        steep = CALM.copy()
        steep[:, X < -3.5] = np.maximum(tail, CALM[:, X < -3.5])
        kept.append(watched(slopes=steep))
    assert [found.condition for found in kept] == ["novikov", "kazamaki", "neither"]
    assert [set(found.flags) - {"A2"} for found in kept] == [set(), {"A1"}, {"A1"}]
    assert "Kazamaki's condition holds" in kept[1].flags["A1"]


def test_a_rough_smile_is_flagged_and_a_kink_is_not(rng: np.random.Generator) -> None:
    rough = CALM * np.exp(0.3 * rng.standard_normal(CALM.shape))
    assert set(watched(slopes=rough).flags) == {"A2"}
    kinked = LEVEL * (1.0 + 0.3 * np.abs(X - X[14]))
    assert watched(slopes=kinked).flags == {}
    assert watched(slopes=kinked).order < watched().order


def test_orders_are_those_of_second_differences(rng: np.random.Generator) -> None:
    at = np.linspace(-1.0, 1.0, 129)
    values = np.stack([at**2, np.abs(at - at[40]), rng.standard_normal(129), 3.0 * at])
    found = patch_orders(values, 129, 1e-13)[:, 0]
    np.testing.assert_allclose(found, [2.0, 1.0, 0.0, 2.0], atol=0.15)


def test_maturities_too_near_for_the_scan_to_forget_are_flagged() -> None:
    near: Array = np.linspace(0.5, 0.511, T.size)
    assert set(watched(years=near).flags) == {"A3"}
    assert watched().chi == pytest.approx(0.0, abs=0.3)
    assert watched(years=near, rate=None).chi is None
    assert watched(years=near, rate=None).flags == {}


def test_a_decay_that_is_known_has_its_power() -> None:
    apart = np.linspace(0.1, 5.0, 60)
    assert decay_power(apart, -0.7 * np.log(apart)) == pytest.approx(0.7)
    pairs, left = scan_decays(np.array([1.0, math.e, math.e**3]), 0.5)
    np.testing.assert_allclose(pairs, [1.0, 3.0, 2.0])
    np.testing.assert_allclose(left, -np.log([1.5, 3.0, 2.0]))


def test_the_typical_rate_is_that_of_the_shipped_scans(operator: Operator) -> None:
    rate = typical_rate(operator.weights)
    assert rate is not None
    assert SLOWEST_RATE < rate < FASTEST_RATE + MAX_LOW_RANK
    slower = {
        name: value - 6.0 if name.endswith(".raw") else value
        for name, value in operator.weights.items()
    }
    assert (typical_rate(slower) or rate) < 0.8 * rate
    assert typical_rate({}) is None


def test_coverage_is_flagged_below_three_quarters() -> None:
    narrow = np.where(np.abs(ZETA) < 1.0, ZETA, 0.0)
    found = watched(zeta=narrow)
    assert found.coverage < MIN_COVERAGE
    assert set(found.flags) == {"A4"}
    assert watched().coverage == pytest.approx(1.0)


def test_coverage_counts_points_near_a_quote(rng: np.random.Generator) -> None:
    zeta = rng.uniform(-2.5, 2.0, 7)
    low, high = map(math.asinh, COVERAGE_WINDOW)
    at = np.linspace(low, high, COVERAGE_POINTS)
    plain = (np.abs(zeta - at[:, None]) <= COVERED_RADIUS).any(1).mean()
    found = covered_shares(zeta, np.zeros(7, np.int64), 2)
    np.testing.assert_allclose(found, [plain, 0.0], atol=1e-12)


def test_the_surface_has_its_monitors_and_its_file_keeps_them(
    operator: Operator, quotes: Quotes, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    surface = operator(quotes)
    found = surface.result.monitors
    assert found is not None
    plain = found.to_dict()
    assert json.loads(json.dumps(plain, allow_nan=False)) == plain
    assert plain["flags"] == {}
    surface.save(tmp_path / "s.npz")
    kept = Surface.load(tmp_path / "s.npz")
    assert isinstance(kept, OperatorSurface)
    assert kept.result.monitors == found
    few = quotes.select(np.abs(quotes.k) < 0.5 * quotes.iv_mid * np.sqrt(quotes.T))
    with caplog.at_level(logging.INFO, "arbiter.operators.monitors"):
        narrow = operator(few).result.monitors
    assert narrow is not None
    assert "A4" in narrow.flags
    assert f"A4: {narrow.flags['A4']}" in caplog.messages


def test_no_flag_moves_a_price(
    operator: Operator, quotes: Quotes, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = operator(quotes)
    worst = Monitors(9.0, 9.0, 1.0, 1.0, 0.0, 0.0, 1.0, 0.0, 0.0)
    assert set(worst.flags) == {"A1", "A2", "A3", "A4"}
    monkeypatch.setattr(chain_pass, "watch", lambda *_: worst)
    flagged = operator(quotes)
    assert flagged.result.monitors is worst
    assert flagged.slopes.tobytes() == plain.slopes.tobytes()
    assert replace(flagged.result, watch=lambda: None).path == plain.result.path
