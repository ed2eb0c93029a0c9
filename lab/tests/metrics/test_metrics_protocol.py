"""The paper's other metrics: numeraires, saddles, runs, distances, gaps, dimensions."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from arbiter import Surface, example
from arbiter.conventions import Array
from arbiter.markets import LiftedHeston
from arbiter_lab.metrics.duality_gap import dual_gap, ratio_log
from arbiter_lab.metrics.effective_dimension import effective_dimensions
from arbiter_lab.metrics.generalisation import gen_gap_p95, gen_gap_p95_score
from arbiter_lab.metrics.marginals import InvertedMarginals
from arbiter_lab.metrics.metric import Metric
from arbiter_lab.metrics.numeraire import ni, ni_invariance, ni_residual
from arbiter_lab.metrics.panels import price_calls
from arbiter_lab.metrics.stability import stability, stability_windows
from arbiter_lab.metrics.wasserstein import (
    slice_wasserstein,
    surface_wasserstein,
    surface_wasserstein_quantile,
    wasserstein2,
)
from arbiter_lab.training import duality
from arbiter_lab.training.duals import Box, Duals
from arbiter_lab.training.saddle import Evaluation


def value(metric: Metric) -> float:
    assert metric.value is not None
    return metric.value


def one_option(*prices: float) -> Array:
    return np.array(prices)[:, None, None]


def test_integrity_by_hand() -> None:
    """Increments 2 and 4 against 1 and 2: variances 1 and ¼; of the residual, ¼."""
    model, oracle = one_option(0.0, 2.0, 6.0), one_option(0.0, 1.0, 3.0)
    assert value(ni(model, oracle)) == pytest.approx(-3.0)
    assert value(ni_residual(model, oracle)) == pytest.approx(0.0, abs=1e-12)


def test_perfect_frozen_and_noisy_models(rng: np.random.Generator) -> None:
    oracle = np.cumsum(rng.normal(0.0, 1e-3, (200, 9, 7)), axis=0) + 0.1
    frozen = np.broadcast_to(oracle[:1], oracle.shape)
    noisy = oracle + rng.normal(0.0, 1e-3, oracle.shape)
    assert value(ni(oracle, oracle)) == pytest.approx(0.0, abs=1e-9)
    assert value(ni(frozen, oracle)) == 1.0
    assert value(ni_residual(oracle, oracle)) == 1.0
    assert value(ni_residual(frozen, oracle)) == pytest.approx(0.0, abs=1e-9)
    assert value(ni_residual(noisy, oracle)) == pytest.approx(-1.0, abs=0.1)  # twice the variance
    assert value(ni_residual(oracle + 0.05, oracle)) == pytest.approx(1.0)


def test_buckets_weigh_as_told(rng: np.random.Generator) -> None:
    """There are eight by four buckets; with weight on one, only its options count."""
    oracle = rng.normal(size=(50, 16, 8))
    model = oracle.copy()
    model[:, :2, :2] = 0.0  # the first bucket is frozen
    weights = np.zeros((8, 4))
    weights[0, 0] = 3.0
    assert value(ni_residual(model, oracle, weights)) == pytest.approx(0.0, abs=1e-9)
    assert value(ni_residual(model, oracle, 1.0 - weights / 3.0)) == 1.0
    assert value(ni_residual(model, oracle)) == pytest.approx(31 / 32, abs=0.01)
    with pytest.raises(ValueError, match="weights must be"):
        ni(model, oracle, np.ones((4, 8)))


@given(st.integers(0, 2**32 - 1))
def test_order_within_a_bucket_does_not_matter(seed: int) -> None:
    rng = np.random.default_rng(seed)
    model, oracle = rng.normal(size=(2, 6, 16, 8))
    swapped = np.arange(16).reshape(8, 2)[:, ::-1].ravel()
    for metric in (ni, ni_residual):
        again = metric(model[:, swapped], oracle[:, swapped])
        assert value(again) == pytest.approx(value(metric(model, oracle)))
        assert value(again) <= 1.0


def test_integrity_needs_days_that_move() -> None:
    still = np.ones((5, 2, 2))
    assert ni(still, still).reason == "the oracle does not move"
    assert ni(still[:2], still[:2]).reason == "2 days have no variance of increments"
    broken = still.copy()
    broken[2, 0, 0] = np.nan
    assert ni_residual(broken, still).reason == "a price is not a number"
    with pytest.raises(ValueError, match="days, maturities, strikes"):
        ni(still, still[1:])


def test_invariance_by_hand() -> None:
    """1.0, 1.1 and 0.8: the median distance from the median is 0.1."""
    assert value(ni_invariance(one_option(1.0, 1.1, 0.8))) == pytest.approx(0.9)
    assert value(ni_invariance(one_option(0.3, 0.3, 0.3))) == 1.0


@given(st.floats(0.1, 10.0), st.permutations(range(4)))
def test_invariance_has_no_unit_and_no_order(unit: float, order: list[int]) -> None:
    prices = np.random.default_rng(3).uniform(0.1, 0.2, (4, 2, 9, 5))
    first = ni_invariance(prices)
    assert value(ni_invariance(unit * prices[order])) == pytest.approx(value(first))
    assert value(first) <= 1.0


def test_invariance_needs_two_numeraires_and_a_scale() -> None:
    assert "two or more" in str(ni_invariance(np.ones((1, 2, 2))).reason)
    assert "without a scale" in str(ni_invariance(np.zeros((2, 2, 2))).reason)
    with pytest.raises(ValueError, match="numeraires, maturities, strikes"):
        ni_invariance(np.ones(3))


def test_gap_is_primal_less_dual() -> None:
    """L = (θ − 1)² + λθ on |λ| ≤ ½ at θ = 2, λ = 0: 1 + ½·2 = 2 above, and 0 below."""
    assert value(dual_gap(2.0, 0.0)) == 2.0
    assert value(dual_gap(0.5, 0.5)) == 0.0  # a saddle
    assert "not both finite" in str(dual_gap(math.inf, 0.0).reason)
    with pytest.raises(ValueError, match="swapped"):
        dual_gap(0.0, 1.0)


def test_the_gap_measured_in_training_is_this_gap() -> None:
    found = duality.DualityGap(primal=0.75, value=0.6, dual=0.5)
    assert value(dual_gap(found.primal, found.dual)) == found.gap == 0.25
    assert value(ratio_log(found.primal, found.dual)) == found.ratio_log == math.log(1.5)
    assert math.isnan(duality.estimate_ratio_log(-1.0, 0.5))


def test_a_gap_measured_on_a_problem_is_the_metric() -> None:
    """θ² + λθ on |λ| ≤ 1 at θ = ½, λ = 0: ¼ + ½ above; the least of θ² is 0, not reached."""
    theta = torch.nn.Parameter(torch.tensor([0.5], dtype=torch.float64))
    duals = Duals({"c": Box.signed(1, 1.0)}, dtype=torch.float64)

    def lagrangian(multipliers: Duals) -> Evaluation:
        defects = {"c": theta}
        return Evaluation((theta**2).sum() + multipliers.inner_product(defects), defects)

    here = duality.estimate_dual_gap(lagrangian, [theta], duals, steps=0)
    assert value(dual_gap(here.primal, here.dual)) == pytest.approx(0.5)
    ahead = duality.estimate_dual_gap(lagrangian, [theta], duals, steps=200, lr=0.02)
    assert value(dual_gap(ahead.primal, ahead.dual)) == pytest.approx(0.75, abs=1e-3)


@pytest.mark.parametrize("sides", [(-1.0, 1.0), (1.0, 0.0), (math.nan, 1.0)])
def test_the_ratio_of_sides_that_are_not_positive_is_undefined(sides: tuple[float, float]) -> None:
    assert "needs both positive" in str(ratio_log(*sides).reason)


def test_a_run_is_stable_if_all_three_hold() -> None:
    rho = [0.99, 1.01, 0.5, 0.5, math.nan]
    metric = stability(rho, [True, True, False, True, True], [True, True, True, False, True])
    assert metric.value == 0.2
    assert metric.daily is not None
    assert metric.daily.tolist() == [1.0, 0.0, 0.0, 0.0, 0.0]
    assert stability([], [], []).reason == "there are no runs"
    with pytest.raises(ValueError, match="converged is float64"):
        stability([1.0], [True], [1.0])


def test_a_window_is_stable_if_all_four_hold() -> None:
    nas = [0.95, 0.89, 1.0, 1.0, 1.0, math.nan]
    rho = [1.0, 0.5, 1.1, 0.5, 0.5, 0.5]
    distance = [1.0, 1.0, 1.0, math.inf, 1.0, 1.0]
    stalled = [True, True, True, True, False, True]
    assert stability_windows(nas, rho, distance, stalled).value == pytest.approx(1 / 6)
    assert stability_windows(nas, rho, distance, stalled, farthest=0.5).value == 0.0
    with pytest.raises(ValueError, match="one of each"):
        stability_windows(nas, rho[:2], distance, stalled)


@given(st.lists(st.tuples(st.floats(0.0, 2.0), st.booleans(), st.booleans()), min_size=1))
def test_stability_is_a_share_and_runs_have_no_order(
    runs: list[tuple[float, bool, bool]],
) -> None:
    there = value(stability(*zip(*runs, strict=True)))
    assert 0.0 <= there <= 1.0
    assert value(stability(*zip(*reversed(runs), strict=True))) == pytest.approx(there)


counts = st.lists(st.integers(0, 3), min_size=6, max_size=6).filter(lambda w: sum(w) > 0)


@given(counts, counts, st.permutations(range(6)))
def test_distance_on_a_line_is_that_of_sorted_samples(
    p: list[int], q: list[int], order: list[int]
) -> None:
    """Repeat each place as often as it weighs: W₂ pairs sorted samples."""
    places = np.array([0.0, 0.1, 0.5, 0.7, 2.0, 2.5])
    many = math.lcm(sum(p), sum(q))
    a = np.repeat(places, np.array(p) * (many // sum(p)))
    b = np.repeat(places, np.array(q) * (many // sum(q)))
    expected = math.sqrt(np.mean((a - b) ** 2))
    one, two = np.array(p, dtype=float), np.array(q, dtype=float)
    found = wasserstein2(places[order], one[order], two[order])
    assert float(found) == pytest.approx(expected, abs=1e-7)
    assert float(wasserstein2(places, two, one)) == pytest.approx(expected, abs=1e-7)
    assert float(wasserstein2(places + 3.0, 2.0 * one, two)) == pytest.approx(expected, abs=1e-7)


def test_distance_of_a_shifted_law_is_the_shift() -> None:
    x = np.linspace(0.0, 1.0, 101)
    p = np.exp(-0.5 * ((x - 0.4) / 0.05) ** 2)
    moved = np.roll(p, 17)
    assert float(wasserstein2(x, p, moved)) == pytest.approx(0.17, abs=1e-9)
    assert np.isnan(wasserstein2(x, p, -p))
    assert np.isnan(wasserstein2(x, p, 0.0 * p))


def test_sliced_distance_by_hand() -> None:
    """If all mass moves over the diagonal of the unit square, the mean √2·|cos| is 2√2/π."""
    one, two = np.zeros((2, 3)), np.zeros((2, 3))
    one[0, 0] = two[1, 2] = 1.0
    kappa, T = [0.8, 1.0, 1.3], [0.25, 2.0]
    found = value(surface_wasserstein(one, two, kappa, T))
    assert found == pytest.approx(2.0 * math.sqrt(2.0) / math.pi, abs=1e-3)
    assert found <= math.sqrt(2.0)
    up = np.zeros((2, 3))
    up[1, 0] = 1.0  # along maturities alone: the mean of |cos| is 2/π
    assert value(surface_wasserstein(one, up, kappa, T)) == pytest.approx(2 / math.pi, abs=1e-3)


def test_sliced_distance_is_one_a_day_and_a_distance() -> None:
    surface = example()
    kappa, T = np.linspace(0.7, 1.3, 13), surface.maturities[[2, 5, 8]]
    calls = price_calls(surface, kappa, T)
    other, third = calls**1.1, calls**1.2
    days = surface_wasserstein(np.stack([calls, other]), np.stack([calls, calls]), kappa, T)
    assert days.daily is not None
    assert days.daily[0] == 0.0
    there = value(surface_wasserstein(calls, other, kappa, T))
    assert days.daily[1] == pytest.approx(there)
    assert value(surface_wasserstein(other, calls, kappa, T)) == pytest.approx(there)
    far = value(surface_wasserstein(calls, third, kappa, T))
    assert there < far <= there + value(surface_wasserstein(other, third, kappa, T)) + 1e-12
    assert value(surface_wasserstein(calls, other, 3.0 * kappa, 365.0 * T)) == pytest.approx(there)
    negative = calls.copy()
    negative[0, -1] = -1e-3
    assert "is negative" in str(surface_wasserstein(negative, calls, kappa, T).reason)
    with pytest.raises(ValueError, match="one maturity"):
        surface_wasserstein(calls[:1], calls[:1], kappa, T[:1])


def black(totals: list[float], T: list[float]) -> Surface:
    return Surface.from_slopes([-1.0, 1.0], T, np.array(totals)[:, None] * np.ones(2))


@given(st.floats(0.05, 0.8), st.floats(0.05, 0.8))
def test_distance_of_lognormals(s: float, t: float) -> None:
    """log X is N(−s²/2, s²): W₂² is (s − t)² plus the square of the means' distance."""
    found = slice_wasserstein(black([t], [1.0]), black([s], [1.0]), [1.0])[0]
    expected = math.hypot(s - t, 0.5 * (s * s - t * t)) / s
    assert found == pytest.approx(expected, rel=1e-9, abs=1e-12)


def test_distance_over_maturities_is_the_root_of_the_mean_square() -> None:
    T = [0.5, 1.0]
    model, exact = black([0.11, 0.25], T), black([0.1, 0.2], T)
    each = slice_wasserstein(model, exact, T)
    metric = surface_wasserstein_quantile([model, exact], [exact, exact], T)
    assert metric.daily == pytest.approx([math.sqrt(np.mean(each**2)), 0.0])
    first = surface_wasserstein_quantile([model], [exact], T, weights=[2.0, 0.0])
    assert value(first) == pytest.approx(each[0])
    with pytest.raises(ValueError, match="weights must be"):
        surface_wasserstein_quantile([model], [exact], T, weights=[-1.0, 2.0])
    with pytest.raises(ValueError, match="one of each a day"):
        surface_wasserstein_quantile([model], [], T)


def test_distance_from_an_oracle_falls_as_the_surface_nears_it() -> None:
    heston = LiftedHeston.heston(0.04, 1.5, 0.04, 0.5, -0.7)
    law, T = InvertedMarginals(heston), [0.5]
    total = float(np.sqrt(heston.variance_swap(0.5) * 0.5))
    off = [value(surface_wasserstein_quantile([black([c * total], T)], [law], T)) for c in (1, 2)]
    assert 0.0 < off[0] < off[1]
    assert "no law of its own" in str(
        surface_wasserstein_quantile([heston], [law], T).reason  # type: ignore[list-item]
    )


def test_price_gap_by_hand() -> None:
    """Mean errors of 1 to 20 thousandths over 20 windows: the 95th percentile is 19.05."""
    oracle = np.full((20, 2, 3), 0.1)
    oracle[:, 1, 2] = np.nan
    model = oracle + np.arange(1, 21)[:, None, None] * 1e-3
    model[:, :, 0] = 2.0 * oracle[:, :, 0] - model[:, :, 0]  # errors of both signs
    metric = gen_gap_p95(model, oracle)
    assert value(metric) == pytest.approx(19.05e-3)
    assert metric.daily == pytest.approx(np.arange(1, 21) * 1e-3)
    assert value(gen_gap_p95(oracle, oracle)) == 0.0
    model[3, 0, 0] = np.nan
    assert "day 3" in str(gen_gap_p95(model, oracle).reason)
    with pytest.raises(ValueError, match="windows, maturities"):
        gen_gap_p95(model, oracle[1:])


def test_score_gap_by_hand() -> None:
    assert value(gen_gap_p95_score([1.0, 0.9, 0.8], [0.9, 0.9, 1.0])) == pytest.approx(0.19)
    assert gen_gap_p95_score([1.0], [np.nan]).value is None
    with pytest.raises(ValueError, match="give pairs"):
        gen_gap_p95_score([1.0], [1.0, 2.0])


@given(st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1)), min_size=1))
def test_score_gap_is_symmetric_and_within_its_range(pairs: list[tuple[float, float]]) -> None:
    one, two = zip(*pairs, strict=True)
    there = value(gen_gap_p95_score(one, two))
    assert value(gen_gap_p95_score(two, one)) == there
    assert 0.0 <= there <= 1.0


def dimensions(rows: Array, centred: bool = False) -> list[float]:
    return [value(metric) for metric in effective_dimensions(rows, centred=centred)]


def test_dimensions_by_hand() -> None:
    """Squares 9, 0.7, 0.25 and 0.05 of 10: 90, 97, 99.5 and 100 %."""
    rows = np.diag(np.sqrt([0.05, 9.0, 0.25, 0.7]))
    assert dimensions(rows) == [1.0, 2.0, 3.0]
    assert [m.name for m in effective_dimensions(rows, suffix="features", centred=True)] == [
        "d90_features_centred",
        "d95_features_centred",
        "d99_features_centred",
    ]
    assert dimensions(np.eye(100)) == [90.0, 95.0, 99.0]


def test_dimensions_are_those_of_the_gram_matrix(rng: np.random.Generator) -> None:
    rows = rng.normal(size=(30, 12)) * np.geomspace(1.0, 0.05, 12)
    spectrum = np.sort(np.linalg.eigvalsh(rows @ rows.T))[::-1]
    held = np.cumsum(spectrum) / spectrum.sum()
    expected = [float(np.argmax(held >= share) + 1) for share in (0.9, 0.95, 0.99)]
    assert dimensions(rows) == expected


@given(st.integers(0, 2**32 - 1), st.floats(1e-200, 1e200))
def test_dimensions_have_no_unit_no_order_and_no_axes(seed: int, unit: float) -> None:
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(9, 5)) * np.geomspace(1.0, 0.1, 5)
    turn = np.linalg.qr(rng.normal(size=(5, 5)))[0]
    there = dimensions(rows)
    assert dimensions(unit * rng.permutation(rows) @ turn) == there
    assert 1.0 <= there[0] <= there[1] <= there[2] <= 5.0
    moved = dimensions(rows + 100.0 * rng.normal(size=5), centred=True)
    assert moved == dimensions(rows, centred=True)


def test_rows_without_a_spectrum_have_a_reason() -> None:
    assert {m.reason for m in effective_dimensions(np.zeros((3, 2)))} == {"all rows are zero"}
    same = effective_dimensions(np.ones((3, 2)), centred=True)
    assert {m.reason for m in same} == {"all rows are equal"}
    assert {m.reason for m in effective_dimensions([[np.nan]])} == {"a row is not finite"}
    with pytest.raises(ValueError, match="samples, coordinates"):
        effective_dimensions([1.0, 2.0])
