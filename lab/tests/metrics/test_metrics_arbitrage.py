"""No-arbitrage scores: one for sound prices, below for each planted arbitrage, by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from arbiter import Surface, example
from arbiter.conventions import Array
from arbiter.markets import LiftedHeston
from arbiter_lab.metrics.arbitrage import audit_panel, nas, nas_as_printed, nas_inequalities
from arbiter_lab.metrics.metric import Metric
from arbiter_lab.metrics.panels import build_panel, negative_mass, price_calls, violations
from arbiter_lab.metrics.smoothed_arbitrage import (
    Hinge,
    Kernel,
    cnas,
    cnas_convolved,
    cnas_frozen_drop,
    nas_by_maturity,
)
from counts import count

KAPPA, T = np.array([0.9, 1.0, 1.1]), np.array([0.5, 1.0])
SOUND = np.array([[0.12, 0.06, 0.03], [0.13, 0.08, 0.05]])


def planted(at: tuple[int, int], price: float) -> Array:
    panel = SOUND.copy()
    panel[at] = price
    return panel


VERTICAL = planted((0, 2), 0.08)  # rises by 0.02 along strikes, and falls by 0.03 along maturities
BUTTERFLY = planted((0, 1), 0.10)  # slopes −0.2 and −0.7: mass −0.5; falls by 0.02


def value(metric: Metric) -> float:
    assert metric.value is not None
    return metric.value


def test_score_by_hand() -> None:
    assert value(nas(SOUND, KAPPA, T)) == 1.0
    assert value(nas(VERTICAL, KAPPA, T)) == pytest.approx(1 - (0.02 / 2 + 0.03 / 3) / 3)
    assert value(nas(BUTTERFLY, KAPPA, T)) == pytest.approx(1 - (0.5 / 2 + 0.02 / 3) / 3)


def test_score_as_printed_by_hand() -> None:
    """Sound calls rise by 0.01, 0.02 and 0.02 with maturity, and are punished for it."""
    assert value(nas_as_printed(SOUND, KAPPA, T)) == pytest.approx(1 - (0.05 / 3) / 3)
    assert value(nas_as_printed(SOUND[::-1], KAPPA, T)) == 1.0


def test_days_are_scored_one_by_one() -> None:
    metric = nas(np.stack([SOUND, VERTICAL, BUTTERFLY]), KAPPA, T)
    singles = [value(nas(day, KAPPA, T)) for day in (SOUND, VERTICAL, BUTTERFLY)]
    assert metric.daily is not None
    assert metric.daily.tolist() == singles
    assert metric.value == pytest.approx(np.mean(singles))


def test_one_maturity_has_no_calendar() -> None:
    assert value(nas(VERTICAL[:1], KAPPA, T[:1])) == pytest.approx(1 - 0.02 / 2)


def test_score_does_not_depend_on_the_unit_of_time() -> None:
    for panel in (VERTICAL, BUTTERFLY, SOUND):
        assert nas(panel, KAPPA, T).value == nas(panel, KAPPA, 365.0 * T).value


def test_a_loss_below_rounding_is_a_loss() -> None:
    panel = planted((0, 0), math.nextafter(SOUND[1, 0], 1.0))
    assert value(nas(panel, KAPPA, T, tolerance=0.0)) == math.nextafter(1.0, 0.0)
    assert value(nas(panel, KAPPA, T)) == 1.0  # 1e-12 of the forward is rounding


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_price_that_is_not_a_number_makes_the_day_undefined(bad: float) -> None:
    days = np.stack([SOUND, planted((1, 1), bad)])
    for metric in (nas, nas_as_printed, cnas, cnas_convolved):
        found = metric(days, KAPPA, T)
        assert found.value is None
        assert str(found.reason).startswith("1 of 2 days, the first of them day 1, have a price")
    with pytest.raises(ValueError, match="day 1 has a price that is not a number"):
        audit_panel(days, KAPPA, T)


@pytest.mark.parametrize(
    ("kappa", "times", "match"),
    [
        (KAPPA[::-1], T, "kappa must be positive and increasing"),
        (KAPPA, T[::-1], "T must be positive and increasing"),
        (KAPPA[:2], T, "give calls of"),
        (KAPPA, np.append(T, 2.0), "give calls of"),
    ],
)
def test_a_grid_that_is_none_is_refused(kappa: Array, times: Array, match: str) -> None:
    with pytest.raises(ValueError, match=match):
        nas(SOUND, kappa, times)


def test_two_strikes_are_refused() -> None:
    with pytest.raises(ValueError, match="give three or more"):
        nas(SOUND[:, :2], KAPPA[:2], T)


@settings(max_examples=count(full=400, reduced=20))
@given(st.integers(0, 2**32 - 1))
def test_surfaces_score_one_and_each_planted_arbitrage_less(seed: int) -> None:
    rng = np.random.default_rng(seed)
    slopes = np.cumsum(10.0 ** rng.uniform(-2.5, -0.7, size=(3, 7)), axis=0)
    times = np.array([0.1, 0.5, 1.0])
    surface = Surface.from_slopes(np.linspace(-3.0, 3.0, 7), times, slopes)
    kappa = np.unique([1.0, *rng.uniform(0.6, 1.5, 12).round(3)])
    calls = price_calls(surface, kappa, times)
    assert value(nas(calls, kappa, times)) == 1.0
    assert value(cnas(calls, kappa, times)) == 1.0
    assert value(cnas_convolved(calls, kappa, times)) == 1.0
    i, j = int(rng.integers(3)), int(rng.integers(1, kappa.size - 1))
    for broken in (
        _with(calls, (i, j), calls[i, j - 1] + 0.01),  # a call above one of a lower strike
        _with(calls, (i, j), max(calls[i, j - 1], calls[i, j + 1]) + 0.02),  # a dent upwards
        _with(calls, (2, j), calls[0, j] - 0.01),  # a call below an earlier one
    ):
        assert value(nas(broken, kappa, times)) < 1.0
        assert value(cnas(broken, kappa, times)) < 1.0
        assert value(cnas_convolved(broken, kappa, times)) < 1.0
        assert value(nas_inequalities(audit_panel(broken, kappa, times))) < 1.0


def _with(calls: Array, at: tuple[int, int], price: float) -> Array:
    out = calls.copy()
    out[at] = price
    return out


@given(st.lists(st.floats(-2.0, 2.0), min_size=12, max_size=12))
def test_scores_stay_within_zero_and_one_whatever_the_prices(prices: list[float]) -> None:
    panel = np.array(prices).reshape(2, 2, 3)
    for metric in (nas(panel, KAPPA, T), cnas(panel, KAPPA, T)):
        assert 0.0 <= value(metric) <= 1.0
    by_maturity = nas_by_maturity(panel, KAPPA, T)
    some = by_maturity[~np.isnan(by_maturity)]
    assert ((some >= 0.0) & (some <= 1.0)).all()


def test_a_larger_violation_costs_more_until_the_cap() -> None:
    sizes = [0.0, 0.001, 0.01, 0.1, 1.0, 10.0, 100.0]
    scores = [value(nas(planted((0, 2), 0.03 + size), KAPPA, T)) for size in sizes]
    assert scores == sorted(scores, reverse=True)
    assert scores[-1] == scores[-2] == pytest.approx(1 - (1 / 2 + 0 + 1 / 3) / 3)


def test_negative_mass_is_the_drop_of_the_slope() -> None:
    kappa = np.array([0.8, 1.0, 1.3])
    calls = np.array([[[0.22, 0.15, 0.01]]])  # slopes −0.35 and −0.4667
    panel = build_panel(calls, kappa, [1.0])
    mass = negative_mass(violations(panel).butterfly, kappa)
    assert mass[0, 0, 0] == pytest.approx(0.14 / 0.3 - 0.35)


def test_inequalities_are_those_of_the_audit() -> None:
    surface = example()
    kappa, times = np.linspace(0.7, 1.3, 13), surface.maturities[[2, 5, 8]]
    calls = price_calls(surface, kappa, times)
    found = audit_panel(np.stack([calls, calls[::-1]]), kappa, times)
    metric = nas_inequalities(found)
    assert metric.daily is not None
    assert metric.daily[0] == 1.0
    assert metric.daily[1] == found[1].nas < 1.0
    assert set(found[1].findings["family"]) >= {"calendar"}


def test_convolved_score_by_hand() -> None:
    """Six inequalities at the first maturity, three at the second; the scale is 0.08 there."""
    lost = (0.02 / 0.08 + 0.03 / 0.08) / 6
    assert nas_by_maturity(VERTICAL, KAPPA, T)[0] == pytest.approx([1 - lost, 1.0])
    flat = Kernel(bandwidth=1e6, horizon=1e6)
    assert value(cnas_convolved(VERTICAL, KAPPA, T, flat)) == pytest.approx(1 - lost / 2)
    sharp = Kernel(bandwidth=1e-6, horizon=1e6)  # no smoothing, and no maturity fades
    assert value(cnas_convolved(VERTICAL, KAPPA, T, sharp)) == pytest.approx(1 - lost / 2)
    near = Kernel(bandwidth=1e6, horizon=1e-2)  # the first maturity alone
    assert value(cnas_convolved(VERTICAL, KAPPA, T, near)) == pytest.approx(1 - lost)


@given(st.floats(0.01, 2.0), st.floats(0.05, 5.0))
def test_convolution_stays_between_the_scores_of_maturities(width: float, horizon: float) -> None:
    kernel = Kernel(width, horizon)
    weights = kernel.weights(np.array([0.02, 0.1, 0.5, 2.0]))
    assert weights.sum(axis=1) == pytest.approx(np.ones(4))
    assert (weights >= 0.0).all()
    by_maturity = nas_by_maturity(VERTICAL, KAPPA, T)
    smooth = value(cnas_convolved(VERTICAL, KAPPA, T, kernel))
    assert by_maturity.min() - 1e-12 <= smooth <= by_maturity.max() + 1e-12


def test_a_maturity_without_time_value_has_no_scale() -> None:
    intrinsic = np.maximum(1.0 - KAPPA, 0.0) * np.ones((2, 1))
    assert "without time value" in str(cnas_convolved(intrinsic, KAPPA, T).reason)


def test_calibrated_score_by_hand() -> None:
    """Violations of 2 and 3 scales at two of six nodes."""
    expected = 1 - (1 - math.exp(-4) + 1 - math.exp(-9)) / 6
    assert value(cnas(VERTICAL, KAPPA, T)) == pytest.approx(expected)
    printed = cnas(SOUND, KAPPA, T, printed=True)  # rises of 1, 2 and 2 scales
    assert printed.name == "CNAS_as_printed"
    assert value(printed) == pytest.approx(1 - (3 - math.exp(-1) - 2 * math.exp(-4)) / 6)


def test_parameters_of_the_hinge_shape_it() -> None:
    x = np.array([0.0, 0.01, 0.02, 0.5])
    assert Hinge()(x) == pytest.approx([0.0, 1 - math.exp(-1), 1 - math.exp(-4), 1.0])
    assert Hinge(tolerance=1.0)(x)[:2].tolist() == [0.0, 0.0]
    assert (Hinge(stiffness=2.0)(x)[1:3] > Hinge()(x)[1:3]).all()
    assert (Hinge(scale=0.1)(x)[1:3] < Hinge()(x)[1:3]).all()
    with pytest.raises(ValueError, match="must be positive"):
        Hinge(scale=0.0)
    with pytest.raises(ValueError, match="must be positive"):
        Kernel(bandwidth=0.0)


@given(st.floats(0.0, 1.0), st.floats(0.0, 1.0))
def test_the_hinge_rises_and_saturates(a: float, b: float) -> None:
    low, high = Hinge(tolerance=0.5)(np.sort([a, b]))
    assert 0.0 <= low <= high <= 1.0


def test_frozen_drop_is_base_less_mean() -> None:
    """The paper's four windows and base, section 6.3: a rise of 2.5e-4, not a drop of 3.87e-4."""
    drop = cnas_frozen_drop(0.99022, [0.99008, 0.99013, 0.99063, 0.99103])
    assert value(drop) == pytest.approx(-2.475e-4)
    assert cnas_frozen_drop(None, [0.99]).reason == "the base has no CNAS"
    assert cnas_frozen_drop(0.99, [np.nan]).reason == "a window has no CNAS"
    assert cnas_frozen_drop(0.99, []).reason == "no windows"


def test_an_oracle_scores_one() -> None:
    heston = LiftedHeston.heston(0.04, 1.5, 0.04, 0.5, -0.7)
    strikes = count(full=81, reduced=21)
    kappa, times = np.linspace(0.7, 1.3, strikes), np.array([0.1, 0.25, 1.0])
    calls = price_calls(heston, kappa, times)
    assert value(nas(calls, kappa, times)) == 1.0
    assert value(nas_as_printed(calls, kappa, times)) < 0.995
