"""Two models are compared on the same days, by two tests that assume different things."""

import math

import numpy as np
import pytest
from benchmarks.interval_coverage import autoregressions

from arbiter_lab.protocol.paired_tests import compare, same_days, sign_flip_test
from counts import count


def test_flips_by_hand() -> None:
    # ±1 ±2 ±3 ±2 is 8 or more in size for all plus and all minus only, of 16 patterns
    assert sign_flip_test([1.0, 2.0, 3.0, 2.0], 1) == (2.0 / 16.0, 4)
    # with −1 the sum is 6: it is reached by 8 and by 6, either sign
    assert sign_flip_test([-1.0, 2.0, 3.0, 2.0], 1)[0] == 4.0 / 16.0
    # in twos: ±3 ±5
    assert sign_flip_test([1.0, 2.0, 3.0, 2.0], 2) == (0.5, 2)


def test_random_patterns_agree_with_all_of_them() -> None:
    difference = np.random.default_rng(4).standard_normal(13) + 0.4
    exact, _ = sign_flip_test(difference, 1, flips=2**13)
    drawn, _ = sign_flip_test(difference, 1, flips=4_000, seed=1)
    assert drawn == pytest.approx(exact, abs=4.0 * math.sqrt(exact * (1 - exact) / 4_000))


def test_better_model_is_found_by_both() -> None:
    truth = autoregressions(0.5, 250, 1, seed=1)[0]
    found = compare(5.0 + truth, 5.5 + truth + 0.3 * autoregressions(0.0, 250, 1, seed=2)[0])
    assert found.difference.high < 0.0
    assert found.difference.p_value < 1e-6
    assert found.flip_p_value < 1e-3
    assert found.lower > 0.9


def test_pairing_takes_out_what_days_have_in_common() -> None:
    day = 10.0 * autoregressions(0.5, 250, 1, seed=1)[0]
    noise = autoregressions(0.0, 250, 2, seed=3)
    paired = compare(day + noise[0], day + noise[1] + 0.5)
    shuffled = compare(day + noise[0], np.roll(day, 100) + noise[1] + 0.5)  # other days
    assert paired.difference.p_value < 1e-4
    assert shuffled.difference.p_value > 0.01


@pytest.mark.parametrize("rho", [0.0, 0.5])
def test_equal_models_are_seldom_told_apart(rho: float) -> None:
    replications = count(full=1000, reduced=150)
    series = autoregressions(rho, 200, replications, seed=21)
    zero = np.zeros(200)
    found = [compare(row, zero, flips=199, method="cosine") for row in series]
    slack = 4.0 * math.sqrt(0.05 * 0.95 / replications)
    for p in ([c.difference.p_value for c in found], [c.flip_p_value for c in found]):
        assert np.mean(np.array(p) <= 0.05) <= 0.06 + slack


def test_flipping_single_days_finds_differences_that_are_not_there() -> None:
    # the negative control: persistent days flipped one by one
    series = autoregressions(0.9, 200, 100, seed=22)
    false = [sign_flip_test(row, 1, flips=199)[0] <= 0.05 for row in series]
    assert np.mean(false) > 0.3


def test_few_blocks_cannot_have_a_small_p_value() -> None:
    found = compare(np.arange(20.0), np.arange(20.0) + 1.0 + 0.01 * np.arange(20) ** 2, block=5)
    assert found.blocks == 4
    assert found.flip_p_value == 2.0 ** (1 - 4)


def test_equal_days_have_no_difference() -> None:
    found = compare(np.arange(9.0), np.arange(9.0))
    assert (found.difference.p_value, found.flip_p_value, found.lower) == (1.0, 1.0, 0.0)


def test_days_are_matched_by_name_and_none_is_dropped() -> None:
    a, b = same_days({"mon": 1.0, "tue": 2.0}, {"tue": 20.0, "mon": 10.0})
    assert (a.tolist(), b.tolist()) == ([1.0, 2.0], [10.0, 20.0])
    with pytest.raises(ValueError, match="second model has no value on 'tue', and lacks 1 days"):
        same_days({"mon": 1.0, "tue": 2.0}, {"mon": 10.0})
    with pytest.raises(ValueError, match="first model has no value on 'tue'"):
        same_days({"mon": 1.0}, {"mon": 10.0, "tue": 20.0})
    with pytest.raises(ValueError, match="the same days of both"):
        compare(np.zeros(5), np.zeros(6))


def test_same_seed_same_p_value() -> None:
    difference = np.random.default_rng(4).standard_normal(60)
    assert sign_flip_test(difference, 2, seed=3) == sign_flip_test(difference, 2, seed=3)
    with pytest.raises(ValueError, match="block = 0"):
        sign_flip_test(difference, 0)
