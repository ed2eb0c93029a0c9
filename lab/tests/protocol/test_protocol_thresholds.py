"""Where half of the cases fail is found, with an interval that holds it."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from arbiter_lab.protocol.thresholds import bisect_to_failure, estimate_failure_threshold
from counts import count


def outcomes(failures: list[int], cases: int) -> list[list[bool]]:
    """Return outcomes ``(n, cases)`` with the given number of failures at each severity."""
    return [[i < failed for i in range(cases)] for failed in failures]


def test_threshold_by_hand() -> None:
    # shares 0, 0.2, 0.7, 1: one half is (0.5 − 0.2)/(0.7 − 0.2) of the way from 1 to 2
    found = estimate_failure_threshold([0.0, 1.0, 2.0, 4.0], outcomes([0, 2, 7, 10], 10))
    assert found.estimate == pytest.approx(1.6)
    # 0 of 10 is below one half (bound 0.308), 2 of 10 not (0.556); 10 of 10 above, 7 of 10 not
    assert (found.low, found.high) == (0.0, 4.0)
    assert found.shares == pytest.approx((0.0, 0.2, 0.7, 1.0))
    assert found.reason is None


def test_shares_that_fall_are_pooled_by_hand() -> None:
    # 0.6 then 0.2 are pooled to 0.4, 0.4; then up to 1: a sixth of the way
    found = estimate_failure_threshold([0.0, 1.0, 2.0, 3.0], outcomes([0, 6, 2, 10], 10))
    assert found.shares == pytest.approx((0.0, 0.4, 0.4, 1.0))
    assert found.estimate == pytest.approx(2.0 + 1.0 / 6.0)


def test_flat_at_one_half_is_its_middle() -> None:
    assert (
        estimate_failure_threshold([0.0, 1.0, 3.0, 4.0], outcomes([0, 4, 4, 8], 8)).estimate == 2.0
    )


def test_one_case_fails_midway_and_has_no_exact_interval() -> None:
    found = estimate_failure_threshold([0.0, 1.0, 2.0], [False, False, True])
    assert (found.estimate, found.low, found.high, found.cases) == (1.5, None, None, 1)


@pytest.mark.parametrize(("cases", "told"), [(5, False), (6, True)])
def test_six_cases_are_the_fewest_with_an_exact_interval(cases: int, told: bool) -> None:
    # all of six agree with chance 2·(½)⁶ = 3 %, of five with 6 %
    found = estimate_failure_threshold([0.0, 1.0], outcomes([0, cases], cases))
    assert (found.low == 0.0, found.high == 1.0) == (told, told)


def test_never_failing_is_said() -> None:
    found = estimate_failure_threshold([0.0, 1.0, 2.0], outcomes([0, 0, 1], 12))
    assert (found.estimate, found.low, found.high) == (None, 2.0, None)
    assert found.reason == "fewer than half of the cases fail at 2, the hardest level tried"
    assert found.bootstrap_high is None


def test_always_failing_is_said() -> None:
    found = estimate_failure_threshold([1.0, 2.0], outcomes([12, 12], 12))
    assert (found.estimate, found.low, found.high) == (None, None, 1.0)
    assert found.reason == "more than half of the cases fail at 1, the mildest level tried"


def test_interval_stops_at_the_first_level_that_cannot_be_told() -> None:
    # the third severity alone would be told to be below one half; the second is in the way
    found = estimate_failure_threshold([0.0, 1.0, 2.0, 3.0], outcomes([0, 5, 0, 12], 12))
    assert found.low == 0.0


@given(st.integers(0, 2**32 - 1), st.integers(1, 30))
def test_estimate_lies_within_what_it_should(seed: int, cases: int) -> None:
    rng = np.random.default_rng(seed)
    severities = np.cumsum(rng.uniform(0.1, 1.0, 6))
    failed = rng.uniform(size=(6, cases)) < np.linspace(0.0, 1.0, 6)[:, None]
    found = estimate_failure_threshold(severities, failed, resamples=20)
    assert (np.diff(found.shares) >= 0.0).all()
    if found.estimate is not None:
        assert severities[0] <= found.estimate <= severities[-1]
    if found.low is not None and found.high is not None:
        assert found.low < found.high


def test_intervals_hold_the_threshold() -> None:
    # cases fail with chance Φ(severity − 2): one half at 2
    severities = np.linspace(0.0, 4.0, 9)
    chance = np.array([0.5 * math.erfc(-(x - 2.0) / math.sqrt(2.0)) for x in severities])
    rng = np.random.default_rng(5)
    replications = count(full=1000, reduced=150)
    exact, approximate = [], []
    for seed in range(replications):
        # a case has one breaking point: its outcomes are nested
        failed = rng.uniform(size=30) < chance[:, None]
        found = estimate_failure_threshold(severities, failed, resamples=200, seed=seed)
        assert found.low is not None
        assert found.high is not None
        exact.append(found.low <= 2.0 <= found.high)
        approximate.append((found.bootstrap_low or 0.0) <= 2.0 <= (found.bootstrap_high or 9.0))
    slack = 4.0 * math.sqrt(0.05 * 0.95 / replications)
    assert np.mean(exact) >= 0.95 - slack
    assert np.mean(approximate) >= 0.91 - slack


def test_wrong_threshold_is_not_held() -> None:
    # the negative control: a model that breaks at 1 does not have 2 in its interval
    severities = np.linspace(0.0, 4.0, 9)
    failed = np.repeat((severities > 1.0)[:, None], 20, axis=1)
    found = estimate_failure_threshold(severities, failed)
    assert found.high is not None
    assert found.high < 2.0
    assert found.estimate == pytest.approx(1.25)


def test_tables_that_make_no_sense_are_refused() -> None:
    with pytest.raises(ValueError, match="must be finite and increase"):
        estimate_failure_threshold([0.0, 0.0], [[True], [True]])
    with pytest.raises(ValueError, match="give n severities"):
        estimate_failure_threshold([0.0, 1.0], [[True]])
    with pytest.raises(ValueError, match="something else than true and false"):
        estimate_failure_threshold([0.0, 1.0], [[0.2], [0.7]])


def test_to_failure_brackets_the_breaking_point() -> None:
    tried: list[float] = []

    def fails(severity: float) -> bool:
        tried.append(severity)
        return severity > 3.3

    found = bisect_to_failure(fails, 0.5, 100.0, steps=10)
    assert found is not None
    assert found[0] <= 3.3 < found[1]
    assert found[1] - found[0] == pytest.approx(2.0 / 2**10)
    assert tried[:5] == [0.0, 0.5, 1.0, 2.0, 4.0]
    assert bisect_to_failure(fails, 0.5, 3.0) is None
    assert bisect_to_failure(lambda severity: True, 0.5, 3.0) == (0.0, 0.0)
    with pytest.raises(ValueError, match="0 < first"):
        bisect_to_failure(fails, 0.0, 3.0)
