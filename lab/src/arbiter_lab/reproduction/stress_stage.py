"""Stage ``stress``: stress to failure along every axis, with a threshold for each model."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from arbiter.models.parameters import Parameters, draw, preset
from arbiter_lab.evaluation.methods import Method
from arbiter_lab.evaluation.scores import CaseScore, score_case, score_refusal
from arbiter_lab.protocol.stress import AXES, StressedCase, check_failure, make_stressed_case
from arbiter_lab.protocol.thresholds import estimate_failure_threshold
from arbiter_lab.reproduction.evaluation_stage import select_entries as present
from arbiter_lab.reproduction.models import ModelEntry
from arbiter_lab.reproduction.profiles import Profile
from arbiter_lab.reproduction.query_models import audit_or_zero, solve_chains
from arbiter_lab.reproduction.stages import Facts, StageContext
from arbiter_lab.reproduction.workers import run_in_order

_FIRST_CASE_SEED = 1_000


def make_stress(context: StageContext) -> Facts:
    """Return scores, errors and failure thresholds by axis and model."""
    profile = context.profile
    models = present(context, profile.stress_models)
    parts = [(name, profile, models) for name in profile.stress_axes]
    told = run_in_order(
        stress_along_axis, parts, context.workers, lambda n: context.tell("axes", n, len(parts))
    )
    absent = [name for name in profile.stress_models if name not in {m.name for m in models}]
    axes = dict(zip(profile.stress_axes, told, strict=True))
    return {"axes": axes, "cases": profile.stress_cases, "absent": absent}


def stress_along_axis(name: str, profile: Profile, models: list[ModelEntry]) -> Facts:
    """Evaluate every model on every case and severity of one axis."""
    axis = AXES[name]
    severities = select_severities(axis.severities, profile.stress_levels)
    methods = [entry.method() for entry in models]
    rows: dict[str, list[list[Any]]] = {method.name: [] for method in methods}
    for severity in severities:
        cases = [
            make_stressed_case(
                name, severity, draw_stressed_market(profile, case), _FIRST_CASE_SEED + case
            )
            for case in range(profile.stress_cases)
        ]
        for method in methods:
            rows[method.name].append(_find_failures(method, cases))
    summaries = {model: _summary(severities, found) for model, found in rows.items()}
    return {"unit": axis.unit, "levels": severities, "models": summaries}


def select_severities(severities: tuple[float, ...], count: int) -> list[float]:
    """Return ``count`` evenly spaced severities, the first and the last among them."""
    places = np.unique(np.linspace(0, len(severities) - 1, max(count, 2)).round().astype(int))
    return [severities[i] for i in places.tolist()]


def draw_stressed_market(profile: Profile, case: int) -> Parameters:
    """Return the market of a case: the timeline's first, then draws of the prior without jumps."""
    if case == 0:
        return preset(profile.market)
    rng = np.random.default_rng((_FIRST_CASE_SEED, case))
    while True:
        found = draw(rng)
        if found.jumps is None and 0.01 < found.v0 < 0.15 and found.hurst > 0.06:
            return found


def _find_failures(method: Method, cases: list[StressedCase]) -> list[dict[str, Any]]:
    models = solve_chains(method, [made.case.quotes for made in cases])
    found = []
    for made, model in zip(cases, models, strict=True):
        if isinstance(model, str):
            answer = score_refusal(made.case, model)
        else:
            answer = score_case(made.case, model, audit_or_zero(model, made.case.quotes), math.nan)
        failed = check_failure(answer, made.spread)
        rmse = _rmse(answer)
        found.append(
            {
                "nas": answer.verdict.nas,
                "rmse_bp": rmse,
                "spread_bp": made.spread,
                "by_score": failed.score,
                "by_error": failed.error,
            }
        )
    return found


def _rmse(answer: CaseScore) -> float:
    error = answer.error[~np.isnan(answer.error)]
    return float(np.sqrt(np.mean(error**2)))


def _summary(severities: list[float], rows: list[list[dict[str, Any]]]) -> Facts:
    table = {key: [[cell[key] for cell in row] for row in rows] for key in rows[0][0]}
    return {
        "nas": table["nas"],
        "rmse_bp": table["rmse_bp"],
        "spread_bp": table["spread_bp"],
        "threshold_by_score": estimate_failure_threshold(severities, table["by_score"]).to_dict(),
        "threshold_by_error": estimate_failure_threshold(severities, table["by_error"]).to_dict(),
    }
