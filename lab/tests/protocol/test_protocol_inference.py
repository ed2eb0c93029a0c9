"""Means have honest errors, families honest p-values, and what is not honest is written down."""

import math

import numpy as np
import pytest
import statsmodels.api as sm
from benchmarks.interval_coverage import autoregressions, coverage
from hypothesis import given
from hypothesis import strategies as st
from statsmodels.stats.multitest import multipletests
from statsmodels.stats.proportion import proportion_confint

from arbiter_lab.protocol.inference import (
    automatic_lag,
    clopper_pearson_interval,
    hac_mean,
    hac_regression,
    holm,
    long_run_covariance,
    paper_lag,
)
from counts import count

SERIES = np.array([3.0, 1.0, 2.0, 6.0])  # mean 3, deviations 0, −2, −1, 3


@pytest.mark.parametrize(
    ("days", "lag"), [(1, 0), (15, 1), (16, 2), (80, 2), (81, 3), (625, 5), (2**16, 16)]
)
def test_lag_is_the_fourth_root_rounded_down(days: int, lag: int) -> None:
    assert paper_lag(days) == lag


@given(st.integers(1, 200))
def test_fourth_powers_are_not_rounded_the_wrong_way(root: int) -> None:
    assert paper_lag(root**4) == min(root, root**4 - 1)


def test_lag_scales_with_its_factor_and_never_reaches_the_length() -> None:
    assert paper_lag(256, c=2.5) == 10
    assert paper_lag(5, c=100.0) == 4


def test_newey_west_by_hand() -> None:
    # Γ0 = (0 + 4 + 1 + 9)/4 = 3.5; Γ1 = (0·−2 + −2·−1 + −1·3)/4 = −0.25; weight ½, twice
    found = hac_mean(SERIES, lag=1)
    assert found.mean == 3.0
    assert found.error == pytest.approx(math.sqrt((3.5 - 0.25) / 4.0), rel=1e-15)
    assert found.high - found.mean == pytest.approx(1.959963984540054 * found.error, rel=1e-12)


@given(st.integers(0, 2**32 - 1), st.integers(6, 120), st.integers(0, 5), st.floats(-0.9, 0.9))
def test_newey_west_is_statsmodels(seed: int, days: int, lag: int, rho: float) -> None:
    series = autoregressions(rho, days, 1, seed)[0] + 0.7
    ours = hac_mean(series, lag=lag, level=0.9)
    theirs = sm.OLS(series, np.ones(days)).fit(cov_type="HAC", cov_kwds={"maxlags": lag})
    assert ours.error == pytest.approx(theirs.bse[0], rel=1e-10)
    assert ours.p_value == pytest.approx(theirs.pvalues[0], rel=1e-8)
    assert [ours.low, ours.high] == pytest.approx(theirs.conf_int(0.1)[0], rel=1e-9, abs=1e-12)


def test_a_longer_lag_is_another_error(rng: np.random.Generator) -> None:
    # the negative control of the agreement: a lag that is off by one shows
    series = rng.standard_normal(50).cumsum()
    theirs = sm.OLS(series, np.ones(50)).fit(cov_type="HAC", cov_kwds={"maxlags": 2})
    assert abs(hac_mean(series, lag=3).error / theirs.bse[0] - 1.0) > 0.01


def test_long_run_variance_is_never_negative(rng: np.random.Generator) -> None:
    # an alternating series, where plain sums of autocovariances do turn negative
    series = (-1.0) ** np.arange(30)
    assert all(long_run_covariance(series[:, None], lag)[0, 0] >= 0.0 for lag in range(30))
    plain = 1.0 + 2.0 * np.mean(series[1:] * series[:-1])
    assert plain < 0.0


def test_cosine_error_by_hand() -> None:
    # cos(π(t + ½)/4) for t = 0..3 is ±0.92388, ±0.38268: the sum is 0.92388·(3−6) + 0.38268·(1−2)
    first = math.cos(math.pi / 8) * (3.0 - 6.0) + math.cos(3 * math.pi / 8) * (1.0 - 2.0)
    found = hac_mean(SERIES, method="cosine", lag=1)
    assert found.error == pytest.approx(math.sqrt(2.0) * abs(first) / 4.0, rel=1e-12)
    # Student's t with one degree of freedom: tan(0.475 π) = 12.7062
    assert found.high - found.mean == pytest.approx(12.706204736 * found.error, rel=1e-9)


def test_cosine_error_is_that_of_independent_days_on_average() -> None:
    series = autoregressions(0.0, 200, count(full=2000, reduced=200), seed=3)
    squares = [hac_mean(row, method="cosine").error ** 2 for row in series]
    assert np.mean(squares) * 200 == pytest.approx(1.0, abs=4.0 * math.sqrt(2.0 / 14 / len(series)))


def test_automatic_lag_follows_persistence() -> None:
    lags = [automatic_lag(autoregressions(rho, 1000, 1, 5)[0]) for rho in (0.0, 0.5, 0.9)]
    assert lags == sorted(lags)
    assert lags[0] <= 3
    assert lags[2] > 3 * paper_lag(1000)
    # ρ = ½: α = 4·0.25/(0.25·2.25) = 16/9, and 1.1447·(16/9·1000)^{1/3} = 13.87
    assert lags[1] == pytest.approx(13.87, abs=3.0)


@pytest.mark.parametrize("method", ["paper", "automatic", "cosine"])
def test_constant_series_is_known_exactly(method: str) -> None:
    found = hac_mean(np.full(40, 0.1), method=method, null=1.0)  # type: ignore[arg-type]
    assert (found.error, found.low, found.high) == (0.0, found.mean, found.mean)
    assert found.p_value == 0.0
    assert hac_mean(np.ones(40), method=method, null=1.0).p_value == 1.0  # type: ignore[arg-type]


def test_unknown_days_are_refused_by_name() -> None:
    with pytest.raises(ValueError, match=r"series\[2\] = inf, and 2 of 5"):
        hac_mean([1.0, 2.0, math.inf, 3.0, math.nan])
    with pytest.raises(ValueError, match="at least 4"):
        hac_mean([1.0, 2.0, 3.0])
    with pytest.raises(ValueError, match="lag = 4: with 4 days give at most 3"):
        hac_mean(SERIES, lag=4)
    with pytest.raises(ValueError, match="not one of paper, automatic, cosine"):
        hac_mean(SERIES, method="bootstrap")  # type: ignore[arg-type]


# Coverage: the full study is benchmarks/interval_coverage.py, its table in docs/protocol.md.


def test_intervals_of_independent_days_cover() -> None:
    replications = count(full=4000, reduced=400)
    series = autoregressions(0.0, 250, replications, seed=11)
    slack = 4.0 * math.sqrt(0.95 * 0.05 / replications)
    for method in ("paper", "automatic", "cosine"):
        share = coverage(method, series, 0.0).share
        assert share == pytest.approx(0.95, abs=slack + 0.012)  # what 250 days still cost


def test_the_papers_lag_is_too_short_for_persistent_days_and_the_others_mend_it() -> None:
    replications = count(full=4000, reduced=400)
    slack = 4.0 * math.sqrt(0.9 * 0.1 / replications)
    series = autoregressions(0.7, 250, replications, seed=12)
    paper, automatic, cosine = (
        coverage(method, series, 0.7) for method in ("paper", "automatic", "cosine")
    )
    assert paper.share < 0.87  # so short that the table must say so
    assert paper.width < 0.75
    assert automatic.share > 0.895 - slack
    assert cosine.share == pytest.approx(0.945, abs=slack)


def test_no_method_covers_near_a_unit_root() -> None:
    series = autoregressions(0.95, 60, count(full=2000, reduced=300), seed=13)
    assert all(coverage(m, series, 0.95).share < 0.8 for m in ("paper", "automatic", "cosine"))


def test_holm_by_hand() -> None:
    # sorted 0.005·4, 0.01·3 → 0.03, 0.03·2 → 0.06, 0.04·1 → raised to 0.06
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02], rel=1e-15)


def test_holm_is_statsmodels() -> None:
    for seed in range(count(full=40, reduced=5)):
        p = np.random.default_rng(seed).uniform(size=3 + seed) ** 3  # some of them small
        reject, theirs, _, _ = multipletests(p, alpha=0.05, method="holm")
        assert holm(p) == pytest.approx(theirs, rel=1e-12)
        assert ((holm(p) <= 0.05) == reject).all()


@given(st.lists(st.floats(0.0, 1.0), min_size=1, max_size=12), st.floats(0.001, 0.5))
def test_adjusted_values_reject_what_the_papers_sequence_rejects(
    p: list[float], alpha: float
) -> None:
    # section 5.3: in order, reject H_(k) while p_(k) ≤ α/(m−k+1), stop at the first that is not
    rejected = set()
    for k, i in enumerate(sorted(range(len(p)), key=lambda i: p[i])):
        if p[i] * (len(p) - k) > alpha:
            break
        rejected.add(p[i])
    assert {p[i] for i in np.flatnonzero(holm(p) <= alpha)} == rejected


def test_holm_is_not_plain_p_values() -> None:
    assert (holm([0.03, 0.03]) > 0.05).all()


def test_holm_holds_the_family_error() -> None:
    families = count(full=20_000, reduced=4_000)
    p = np.random.default_rng(1).uniform(size=(families, 7))
    any_false = np.mean([(holm(row) <= 0.05).any() for row in p])
    assert any_false <= 0.05 + 4.0 * math.sqrt(0.05 * 0.95 / families)
    assert np.mean((p <= 0.05).any(1)) > 0.25  # uncorrected: 1 − 0.95⁷ = 0.30


def test_holm_refuses_a_test_that_was_not_made() -> None:
    with pytest.raises(ValueError, match=r"p_values\[1\] = nan"):
        holm([0.1, math.nan])


def test_proportion_by_hand_and_by_statsmodels() -> None:
    assert clopper_pearson_interval(4, 4) == pytest.approx((0.025**0.25, 1.0))
    assert clopper_pearson_interval(0, 6).high == pytest.approx(1.0 - 0.025 ** (1.0 / 6.0))
    for successes, trials in ((1, 9), (40, 100), (7, 7)):
        theirs = proportion_confint(successes, trials, 0.05, method="beta")
        assert clopper_pearson_interval(successes, trials) == pytest.approx(theirs, rel=1e-9)
    with pytest.raises(ValueError, match="5 successes in 4 trials"):
        clopper_pearson_interval(5, 4)


def test_ones_have_a_point_for_a_hac_interval_and_not_for_an_exact_one() -> None:
    assert hac_mean(np.ones(4)).low == 1.0
    assert clopper_pearson_interval(4, 4).low < 0.4


@given(st.integers(0, 2**32 - 1), st.integers(8, 80), st.integers(0, 4))
def test_regression_is_statsmodels(seed: int, points: int, lag: int) -> None:
    rng = np.random.default_rng(seed)
    x = rng.standard_normal(points) + 3.0
    y = 0.47 * x + 0.1 + rng.standard_normal(points) * np.abs(x)
    ours = hac_regression(x, y, lag=lag)
    theirs = sm.OLS(y, sm.add_constant(x)).fit(cov_type="HAC", cov_kwds={"maxlags": lag})
    assert [ours.intercept, ours.slope] == pytest.approx(theirs.params, rel=1e-8, abs=1e-10)
    assert [ours.intercept_error, ours.slope_error] == pytest.approx(theirs.bse, rel=1e-8)
    assert ours.slope_interval == pytest.approx(theirs.conf_int()[1], rel=1e-8, abs=1e-10)
    assert ours.slope_p_value == pytest.approx(theirs.pvalues[1], rel=1e-6, abs=1e-14)
    assert ours.r_squared == pytest.approx(theirs.rsquared, rel=1e-8, abs=1e-12)


def test_blocks_cut_dependence_as_statsmodels_panels_do(rng: np.random.Generator) -> None:
    x, blocks = rng.standard_normal(60), np.repeat([0, 1, 2], 20)
    y = x + rng.standard_normal(60).cumsum()
    ours = hac_regression(x, y, blocks=blocks, lag=3)
    panel = {"groups": blocks, "maxlags": 3, "use_correction": False}
    theirs = sm.OLS(y, sm.add_constant(x)).fit(cov_type="hac-panel", cov_kwds=panel)
    assert ours.slope_error == pytest.approx(theirs.bse[1], rel=1e-8)
    assert ours.slope_error != pytest.approx(hac_regression(x, y, lag=3).slope_error, rel=1e-4)


def test_slope_needs_an_x_that_varies() -> None:
    with pytest.raises(ValueError, match=r"x is 2.0 throughout"):
        hac_regression([2.0] * 5, [1.0, 2.0, 3.0, 4.0, 5.0])
