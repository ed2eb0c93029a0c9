"""The paper on its metrics: each statement fails, the corrected one holds.

The order is that of docs/errata.md, which names these tests.
"""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import beta

from arbiter import example
from arbiter.conventions import Array
from arbiter_lab.metrics.arbitrage import audit_panel, nas, nas_as_printed, nas_inequalities
from arbiter_lab.metrics.effective_dimension import effective_dimensions
from arbiter_lab.metrics.generalisation import gen_gap_p95, gen_gap_p95_score
from arbiter_lab.metrics.metric import Metric
from arbiter_lab.metrics.numeraire import ni, ni_invariance, ni_residual
from arbiter_lab.metrics.panels import price_calls
from arbiter_lab.metrics.smoothed_arbitrage import Hinge, Kernel, nas_by_maturity
from arbiter_lab.metrics.wasserstein import surface_wasserstein, surface_wasserstein_quantile
from claims import flat

KAPPA = np.linspace(0.6, 1.4, 41)


def value(metric: Metric) -> float:
    assert metric.value is not None
    return metric.value


def panel() -> tuple[Array, Array]:
    """Exact calls (L, 41) of the example, and its maturities."""
    surface = example()
    return price_calls(surface, KAPPA, surface.maturities), surface.maturities


def test_score_as_printed_prefers_the_reversal() -> None:
    """Paper, (40): correct prices lose what they gain along maturities, an arbitrage nothing."""
    calls, T = panel()
    assert 0.98 < value(nas_as_printed(calls, KAPPA, T)) < 0.99  # the paper reports 0.9866
    assert value(nas_as_printed(calls[::-1], KAPPA, T)) == pytest.approx(1.0, abs=1e-12)
    assert value(nas(calls, KAPPA, T)) == 1.0
    assert value(nas(calls[::-1], KAPPA, T)) < 0.99


def test_integrity_as_printed_prefers_the_frozen_model(rng: np.random.Generator) -> None:
    """Paper, (42): 0 for the truth, 1 for no movement. The residual has it the right way round."""
    truth = np.cumsum(rng.normal(size=(100, 8, 4)), axis=0)
    frozen = np.zeros_like(truth)
    assert value(ni(truth, truth)) == pytest.approx(0.0, abs=1e-9)
    assert value(ni(frozen, truth)) == 1.0
    assert value(ni_residual(truth, truth)) == 1.0
    assert value(ni_residual(frozen, truth)) == pytest.approx(0.0, abs=1e-9)


def test_uncentred_spectra_count_the_mean(rng: np.random.Generator) -> None:
    """Paper, 7.3: d90 = d95 = 1, d99 = 2 read as a low-dimensional manifold.

    Volatilities of 20 % that move by a point in each of 40 independent directions have the same.
    """
    rows = 0.2 + 0.01 * rng.normal(size=(400, 40))
    assert [value(m) for m in effective_dimensions(rows)] == [1.0, 1.0, 1.0]
    assert value(effective_dimensions(rows, centred=True)[0]) > 30.0


def test_sliced_distance_is_blind_to_the_level() -> None:
    """Paper, (44): a distance of price panels. As masses, panels of double the price are equal."""
    calls, T = panel()
    assert value(surface_wasserstein(2.0 * calls, calls, KAPPA, T)) == pytest.approx(0.0, abs=1e-7)
    times = np.array([0.25, 1.0])
    wide, narrow = (flat(v, times, np.ones(2), np.ones(2)) for v in (0.4, 0.2))
    sliced = surface_wasserstein(
        price_calls(wide, KAPPA, times), price_calls(narrow, KAPPA, times), KAPPA, times
    )
    assert value(sliced) < 0.2
    assert value(surface_wasserstein_quantile([wide], [narrow], times)) > 1.0


def test_the_price_gap_does_not_see_training(rng: np.random.Generator) -> None:
    """Paper, 5.2: a generalisation gap. It is an error: training days do not enter it."""
    truth = rng.uniform(0.1, 0.2, (40, 3, 5))
    wrong_everywhere = truth + 0.05  # as wrong on training days: nothing fails to generalise
    assert value(gen_gap_p95(wrong_everywhere[20:], truth[20:])) == pytest.approx(0.05)
    scores = np.abs(wrong_everywhere - truth).mean(axis=(1, 2))
    assert value(gen_gap_p95_score(scores[:20], scores[20:])) == pytest.approx(0.0, abs=1e-12)


def test_prices_in_their_own_numeraires_differ() -> None:
    """Paper, (6): the dispersion of C/N over numeraires. Correct prices have it: N differs."""
    calls, _ = panel()
    numeraire = np.array([1.0, 1.05, 0.9])[:, None, None]  # bank account, bond, index
    own_units = calls / numeraire
    assert value(ni_invariance(own_units)) < 0.96
    assert value(ni_invariance(own_units * numeraire)) == pytest.approx(1.0, abs=1e-12)


def test_a_convolution_is_a_curve_not_a_number() -> None:
    """Paper, (5): CNAS is NAS smoothed along maturities, which has a value at each of them."""
    calls, T = panel()
    calls = calls.copy()
    calls[0, 20] = calls[0, 19] + 0.01
    curve = Kernel().weights(T) @ nas_by_maturity(calls, KAPPA, T)[0]
    assert curve.shape == T.shape
    assert curve[-1] - curve[0] > 1e-3


def test_a_softplus_hinge_punishes_sound_prices() -> None:
    """Paper, (41): a smooth, saturating hinge. The usual one is log 2 over stiffness at zero."""
    sound = np.zeros(3)
    softplus = np.tanh(np.logaddexp(0.0, 10.0 * sound) / 10.0)
    assert (softplus > 0.06).all()
    assert (Hinge()(sound) == 0.0).all()


def test_three_axioms_are_not_no_arbitrage() -> None:
    """Paper, (40): monotone, convex, calendar. Free options satisfy all three; the audit does not.

    Below the forward a call of price zero is worth less than what exercise pays.
    """
    _, T = panel()
    free = np.zeros((T.size, KAPPA.size))
    assert value(nas(free, KAPPA, T)) == value(nas_as_printed(free, KAPPA, T)) == 1.0
    found = audit_panel(free, KAPPA, T)
    assert value(nas_inequalities(found)) < 1.0
    assert "bound" in set(found[0].findings["family"])


def test_derivatives_in_different_units_do_not_add_up() -> None:
    """Paper, (40): a sum of ∂_K, ∂_KK and ∂_T over the grid. The year decides what it weighs."""
    calls, T = panel()
    reversed_calls = calls[::-1]

    def summed(times: Array) -> float:
        return float(
            np.maximum(-np.diff(reversed_calls, axis=0) / np.diff(times)[:, None], 0).sum()
        )

    assert summed(T) > 300.0 * summed(365.0 * T)
    assert nas(reversed_calls, KAPPA, T).value == nas(reversed_calls, KAPPA, 365.0 * T).value


def test_a_share_of_runs_has_no_interval_of_width_zero() -> None:
    """Paper, Table 1: Stability 1.000 in [1.000, 1.000]. Twenty of twenty leave 0.83 possible."""
    runs = 20
    lowest = beta.ppf(0.025, runs, 1)  # Clopper and Pearson: 0.025^(1/20)
    assert lowest == pytest.approx(0.025 ** (1 / runs))
    assert lowest < 0.84
    assert 0.025 ** (1 / 7000) < 0.9995  # what three digits would need
