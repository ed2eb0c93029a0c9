"""Training ends when it should, says why, and the martingale test keeps its stated level."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from arbiter_lab.training.martingale_test import martingale_test
from arbiter_lab.training.stopping_rule import Ending, Plateau, StoppingRule, Thresholds
from counts import count


def densities(mean: Tensor | float, volatility: float = 0.2) -> tuple[Tensor, Tensor]:
    """Mass and moneyness of 8 × 6 slices of 41 strikes, tilted to have the mean exactly."""
    B, L, S = 8, 6, 41
    total = volatility * torch.linspace(0.2, 1.4, L, dtype=torch.float64)[:, None]
    z = torch.linspace(-3.5, 3.0, S, dtype=torch.float64)
    kappa = torch.exp(z * total).expand(B, L, S)
    start = torch.exp(-0.5 * z**2).expand(B, L, S)
    tilt, target = torch.zeros(B, L, 1, dtype=torch.float64), torch.as_tensor(mean)
    for _ in range(60):  # Newton on the exponential tilt
        p = torch.softmax(torch.log(start) + tilt * kappa, -1)
        m = (p * kappa).sum(-1, keepdim=True)
        v = (p * (kappa - m) ** 2).sum(-1, keepdim=True)
        tilt = tilt + (target - m) / v
    return torch.softmax(torch.log(start) + tilt * kappa, -1), kappa


def test_measures_of_mean_one_are_accepted_at_the_stated_rate() -> None:
    mass, kappa = densities(1.0)
    assert float(((mass * kappa).sum(-1) - 1.0).abs().max()) < 1e-12
    n, level = count(full=2000, reduced=200), 0.1
    rejected = sum(
        not martingale_test(mass, kappa, seed=s, draws=512, level=level) for s in range(n)
    )
    deviation = math.sqrt(level * (1.0 - level) / n)
    assert level - 4.5 * deviation < rejected / n < level + 3.5 * deviation


@pytest.mark.parametrize("mean", [1.01, 0.99])
def test_measure_of_another_mean_is_rejected(mean: float) -> None:
    mass, kappa = densities(mean)
    for seed in range(20):
        test = martingale_test(mass, kappa, seed=seed)
        assert not test
        assert test.p_value < 1e-6
        assert test.defect_max == pytest.approx(0.01, rel=1e-6)


def test_defects_whose_signs_cancel_are_rejected_too() -> None:
    signs = torch.tensor([1.0, -1.0], dtype=torch.float64).repeat(4)[:, None, None]
    mass, kappa = densities(1.0 + 0.01 * signs)
    test = martingale_test(mass, kappa, seed=0)
    assert abs(float(((mass * kappa).sum(-1) - 1.0).mean())) < 1e-12
    assert not test
    # A statistic of the bias alone would have let it pass.
    assert math.erfc(abs(test.bias) / math.sqrt(2.0)) > 0.01


def test_defect_below_the_resolution_passes() -> None:
    mass, kappa = densities(1.0 + 1e-5)
    assert sum(bool(martingale_test(mass, kappa, seed=s)) for s in range(20)) >= 16


def test_strikes_that_are_not_listed_do_not_count() -> None:
    mass, kappa = densities(1.0)
    padded = torch.cat([mass, torch.full_like(mass, 7.0)], -1)
    far = torch.cat([kappa, torch.full_like(kappa, float("nan"))], -1)
    listed = torch.cat([torch.ones_like(mass), torch.zeros_like(mass)], -1).bool()
    whole, masked = (
        martingale_test(mass, kappa, seed=3),
        martingale_test(padded, far, listed, seed=3),
    )
    assert masked == pytest.approx(whole, rel=1e-9, abs=1e-12)
    first = torch.zeros(8, 6, dtype=torch.bool)
    first[:, 0] = True
    assert martingale_test(mass, kappa, first, seed=3).slices == 8


def test_same_seed_same_answer_another_seed_another() -> None:
    mass, kappa = densities(1.0)
    one, same, other = (martingale_test(mass, kappa, seed=s) for s in (1, 1, 2))
    assert one == same
    assert one != other


def test_slices_beside_the_forward_are_counted_and_left_out() -> None:
    """Puts only: whatever the density, its mean is below one."""
    mass, kappa = densities(1.0)
    kappa = kappa.clone()
    kappa[0] *= 0.01
    assert martingale_test(mass, kappa, seed=0).untestable == 6
    with pytest.raises(ValueError, match="both sides of the forward"):
        martingale_test(mass, 0.01 * kappa, seed=0)


def test_mass_that_is_no_density_is_refused() -> None:
    mass, kappa = densities(1.0)
    mass[2, 3] *= 1.5
    with pytest.raises(ValueError, match=r"slice \(2, 3\) is not a density: its mass is 1.5"):
        martingale_test(mass, kappa, seed=0)
    with pytest.raises(ValueError, match="share a shape"):
        martingale_test(mass, kappa[..., 1:], seed=0)
    with pytest.raises(ValueError, match="listed must have the shape"):
        martingale_test(mass, kappa, torch.ones(3), seed=0)


def passes() -> bool:
    return True


def test_rule_of_the_paper_needs_a_thousand_steps_in_a_row() -> None:
    rule = StoppingRule()
    ends = [
        rule.update(step, gap=0.2, dual_residual=5e-4, martingale=passes) for step in range(1, 1003)
    ]
    assert ends.index(Ending.CONVERGED) == 1000  # ΔGap exists from the second step on


@pytest.mark.parametrize("spoiled", [{"gap": 0.5}, {"dual_residual": 2e-3}, {"gap": math.nan}])
def test_one_bad_step_starts_the_count_anew(spoiled: dict[str, float]) -> None:
    rule = StoppingRule(Thresholds(patience=10))
    good = {"gap": 0.2, "dual_residual": 0.0}
    ended_at = None
    for step in range(1, 40):
        values = {**good, **spoiled} if step == 8 else good
        if rule.update(step, **values, martingale=passes):
            ended_at = step
            break
    # A gap that jumps spoils two changes; without the bad step it ends at 11.
    assert ended_at == (19 if "gap" in spoiled else 18)


def test_measures_may_be_rare() -> None:
    rule = StoppingRule(Thresholds(patience=100))
    for step in range(1, 400):
        ending = (
            rule.update(step, gap=0.2, dual_residual=0.0, martingale=passes)
            if step % 50 == 0
            else rule.update(step)
        )
        if ending:
            break
    # ΔGap from 100 on, patience over at 199, declared by the next measurement.
    assert step == 200


def test_failed_martingale_test_costs_the_patience() -> None:
    rule, asked = StoppingRule(Thresholds(patience=10, max_steps=45)), []

    def fails() -> bool:
        asked.append(1)
        return False

    for step in range(1, 100):
        ending = rule.update(step, gap=0.2, dual_residual=0.0, martingale=fails)
        if ending:
            break
    assert (step, ending) == (45, Ending.BUDGET)
    assert len(asked) == rule.failed_tests == 4


def test_without_a_martingale_test_nothing_converges() -> None:
    rule = StoppingRule(Thresholds(patience=2, max_steps=20))
    ends = [rule.update(step, gap=0.2, dual_residual=0.0) for step in range(1, 21)]
    assert set(ends[:-1]) == {None}
    assert ends[-1] is Ending.BUDGET


def test_stuck_gap_converges_by_the_paper_and_not_under_a_bound() -> None:
    for bound, expected in ((math.inf, Ending.CONVERGED), (0.1, Ending.BUDGET)):
        rule = StoppingRule(Thresholds(patience=5, gap=bound, max_steps=30))
        for step in range(1, 31):
            ending = rule.update(step, gap=7.0, dual_residual=0.0, martingale=passes)
            if ending:
                break
        assert ending is expected


def test_time_ends_training() -> None:
    rule = StoppingRule(Thresholds(max_seconds=60.0))
    assert rule.update(1, seconds=59.0) is None
    assert rule.update(2, seconds=60.0) is Ending.TIME


@given(st.lists(st.tuples(st.floats(0, 2e-3), st.floats(0, 2e-3)), min_size=8, max_size=40))
def test_resumed_rule_ends_at_the_same_step(measures: list[tuple[float, float]]) -> None:
    def ends(resumed_at: int | None) -> list[Ending | None]:
        rule, found = StoppingRule(Thresholds(patience=3)), []
        for step, (gap, residual) in enumerate(measures):
            if step == resumed_at:
                state, rule = rule.state_dict(), StoppingRule(rule.thresholds)
                rule.load_state_dict(state)
            found.append(rule.update(step, gap=gap, dual_residual=residual, martingale=passes))
        return found

    assert ends(len(measures) // 2) == ends(None)


def test_every_ending_is_explained() -> None:
    assert {str(ending) for ending in Ending} >= {"converged", "budget", "time", "plateau"}
    for ending in Ending:
        assert ending.sentence.endswith(".")


def test_plateau_is_seen_after_its_span_and_not_before() -> None:
    falling, flat = Plateau(0.01, 300.0), Plateau(0.01, 300.0)
    times = range(0, 1200, 60)
    scores = [10.0 * 0.99 ** (t / 60) for t in times]
    assert not any(falling.update(t, s) for t, s in zip(times, scores, strict=True))
    seen = [flat.update(t, 10.0 - 1e-4 * t) for t in times]
    assert seen.index(True) == 5
    assert all(a <= b for a, b in pairwise(seen))
    assert not Plateau().update(0.0, math.nan)
    with pytest.raises(ValueError, match="in order"):
        flat.update(0.0, 1.0)


@pytest.mark.parametrize("bad", [{"patience": 0}, {"gap_change": 0.0}, {"gap": math.nan}])
def test_thresholds_that_cannot_be_met_are_refused(bad: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="must be positive"):
        Thresholds(**bad)  # type: ignore[arg-type]
