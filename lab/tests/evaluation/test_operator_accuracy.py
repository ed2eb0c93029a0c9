"""What the shipped operator is said to reach where the truth is known, and what refining adds.

Under `make verify` limits are the promised ones, on all 2,000 unseen surfaces and on all 50 Heston
surfaces, base and hard. The few surfaces of `make test` say less of all: errors have fat tails
(three hundreds of unseen surfaces in a row have 5.1, 4.7 and 5.4 bp). So their limits are what was
measured on these few and an eighth more, which finds a loss of accuracy and promises nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest
import torch

from arbiter_lab.differentiable.operators.network.network import Network
from arbiter_lab.evaluation import heston_surfaces, stored_surfaces, unseen_surfaces
from arbiter_lab.evaluation.arbitrage_check import ArbitrageVerdict
from arbiter_lab.evaluation.first_design import FirstDesign
from arbiter_lab.evaluation.heston_surfaces import heston_case
from arbiter_lab.evaluation.known_surface import Case
from arbiter_lab.evaluation.methods import load_operator, select_methods
from arbiter_lab.evaluation.run_methods import evaluate
from arbiter_lab.evaluation.scores import CaseScore, summary
from counts import FULL, count

Limits = Mapping[str, float]

UNSEEN = count(full=unseen_surfaces.SURFACE_COUNT, reduced=24)
HESTON = count(full=heston_surfaces.SURFACE_COUNT, reduced=6)


def limits(promised: Limits, measured_on_few: Limits) -> Limits:
    """Return the limits for the surfaces that are tested."""
    few = {name: 1.125 * value for name, value in measured_on_few.items()}
    assert all(few[name] <= value for name, value in promised.items()), "looser than promised"
    return promised if FULL else few


ON_UNSEEN = limits(
    {"rmse_bp": 5.8, "rmse_unquoted_bp": 6.1}, {"rmse_bp": 4.85, "rmse_unquoted_bp": 5.34}
)
ON_HESTON = {
    ("operator", False): limits({"rmse_bp": 2.8}, {"rmse_bp": 2.24}),
    ("operator", True): limits({"rmse_bp": 10.8}, {"rmse_bp": 9.11}),
    ("refine", False): limits({"rmse_bp": 2.8}, {"rmse_bp": 2.21}),
    ("refine", True): limits({"rmse_bp": 11.3}, {"rmse_bp": 9.97}),
}


def missed(cases: Sequence[Case], answers: Sequence[CaseScore], most: Limits) -> set[str]:
    """Return the names of the scores beyond their limits; any arbitrage is beyond."""
    found = summary(cases, answers)
    beyond = {name for name, at in most.items() if found[name] is None or not found[name] <= at}
    return beyond | ({"nas_one"} if found["nas_one"] != len(cases) else set())


def ten_off(answers: Sequence[CaseScore]) -> list[CaseScore]:
    """Return the same surfaces ten basis points higher."""
    return [replace(answer, error=answer.error + 10.0) for answer in answers]


def test_unseen_surfaces_are_met_and_free_of_arbitrage() -> None:
    """5.8 bp on all points, 6.1 on those without a quote; a third is of another family."""
    cases = stored_surfaces.load_unseen_surfaces(UNSEEN)
    answers = evaluate(cases, select_methods(["operator"], load_operator())).answers["operator"]
    assert missed(cases, answers, ON_UNSEEN) == set()
    assert all(answer.verdict == ArbitrageVerdict(1.0, 0, True) for answer in answers)
    assert sum(case.family == unseen_surfaces.FAMILIES[2] for case in cases) == UNSEEN // 3
    assert missed(cases, ten_off(answers), ON_UNSEEN) == {"rmse_bp", "rmse_unquoted_bp"}
    # one finding on one surface is found among all
    almost = replace(answers[-1], verdict=ArbitrageVerdict(1.0 - 1e-9, 1, True))
    assert missed(cases, [*answers[:-1], almost], ON_UNSEEN) == {"nas_one"}


@pytest.mark.parametrize("hard", [False, True])
def test_heston_surfaces_are_met_refined_or_not(hard: bool) -> None:
    """2.8 and 10.8 bp by the operator alone, 2.8 and 11.3 refined."""
    cases = [heston_case(seed, hard) for seed in range(HESTON)]
    found = evaluate(cases, select_methods(["operator", "refine"], load_operator())).answers
    for name, answers in found.items():
        assert missed(cases, answers, ON_HESTON[name, hard]) == set(), name
        assert missed(cases, ten_off(answers), ON_HESTON[name, hard]) == {"rmse_bp"}, name


def test_a_network_that_nobody_has_trained_does_not_meet_the_hard_ones() -> None:
    """Without training the answer is the prior alone: 18 bp, against 9 bp after training."""
    torch.manual_seed(0)
    untrained = FirstDesign(Network())
    cases = [heston_case(seed, hard=True) for seed in range(HESTON)]
    answers = evaluate(cases, select_methods(["operator"], untrained)).answers["operator"]
    assert missed(cases, answers, ON_HESTON["operator", True]) == {"rmse_bp"}
