"""Runs and scores every method on the same quotes."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from arbiter.scoring import Model
from arbiter_lab.evaluation.arbitrage_check import audit_model
from arbiter_lab.evaluation.known_surface import Case
from arbiter_lab.evaluation.methods import Method
from arbiter_lab.evaluation.paired_differences import paired_differences
from arbiter_lab.evaluation.scores import CaseScore, noise_bp, score_case, score_refusal, summary

CHAINS_PER_BATCH = 32  # chains per call of a method


@dataclass(frozen=True, eq=False)
class Evaluation:
    """Scores of every method on every case.

    Attributes:
        cases: Cases of the benchmark.
        answers: Scores by name of the method, in the order of the cases.
    """

    cases: Sequence[Case]
    answers: dict[str, list[CaseScore]] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Return the scores of every method as plain JSON values."""
        methods = {name: summary(self.cases, found) for name, found in self.answers.items()}
        for found in methods.values():
            found["ratio_to_fit"] = _ratio(found["rmse_bp"], methods.get("fit", {}).get("rmse_bp"))
        return {
            "surfaces": len(self.cases),
            "quotes": sum(len(case.quotes) for case in self.cases),
            "noise_bp": noise_bp(self.cases),
            "methods": methods,
            "paired": paired_differences(self.cases, self.answers),
        }


def _ratio(error: float | None, fit: float | None) -> float | None:
    return None if error is None or not fit else error / fit


def evaluate(
    cases: Sequence[Case],
    methods: Sequence[Method],
    *,
    full: bool = False,
    tell: Callable[[str, int], object] | None = None,
) -> Evaluation:
    """Run and score methods.

    Args:
        cases: Cases of the benchmark, at least one, all with the same number of maturities and
            strikes.
        methods: The methods to compare.
        full: Compute whole certificates rather than proofs and tables (:func:`audit_model`).
        tell: Called with the name of the method and the number of cases done.

    Raises:
        ValueError: If there are no cases.
    """
    if not cases:
        raise ValueError("there are no cases: give at least one")
    found: dict[str, list[CaseScore]] = {}
    for method in methods:
        answers = found.setdefault(method.name, [])
        for start in range(0, len(cases), CHAINS_PER_BATCH):
            answers += _evaluate_batch(method, cases[start : start + CHAINS_PER_BATCH], full)
            if tell is not None:
                tell(method.name, len(answers))
    return Evaluation(cases, found)


def _evaluate_batch(method: Method, cases: Sequence[Case], full: bool) -> list[CaseScore]:
    chains = [case.quotes for case in cases]
    began = time.perf_counter()
    models: list[Model | str]
    try:
        models = list(method.solve(chains))
    except ValueError:  # the method refuses one of the chains; the failed attempt is not timed
        began = time.perf_counter()
        models = [_solve_case(method, case) for case in cases]
    each = (time.perf_counter() - began) / len(cases)
    return [
        score_refusal(case, model)
        if isinstance(model, str)
        else score_case(case, model, audit_model(model, case.quotes, full), each)
        for case, model in zip(cases, models, strict=True)
    ]


def _solve_case(method: Method, case: Case) -> Model | str:
    try:
        return method.solve([case.quotes])[0]
    except ValueError as error:
        return f"{case.name}: {error}"
