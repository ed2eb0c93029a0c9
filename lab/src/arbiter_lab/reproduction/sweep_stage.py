"""Stage ``sweeps``: the sweep over seeds and learning rates, Stability, and the ledger."""

from __future__ import annotations

import csv
import io
import json
from typing import Any

import numpy as np
from numpy.typing import NDArray

from arbiter_lab.metrics.stability import MAX_RHO_DT, stability, stability_windows
from arbiter_lab.protocol.inference import hac_mean
from arbiter_lab.protocol.intervals import metric_intervals
from arbiter_lab.reproduction.evaluation_stage import read_answers
from arbiter_lab.reproduction.metrics_stage import PRIMARY_METRIC
from arbiter_lab.reproduction.models import SMALL
from arbiter_lab.reproduction.scored_days import first_fold, make_folds
from arbiter_lab.reproduction.stages import Facts, StageContext
from arbiter_lab.training.ledger import LEDGER_COLUMNS, Ledger

_CONVERGED = "converged"
_AR1_COEFFICIENTS = (0.0, 0.3, 0.5, 0.7, 0.9)
_CONFIDENCE_LEVEL = 0.95


def make_sweeps(context: StageContext) -> Facts:
    """Return errors of every run of the sweep, the choice of each fold, shares of stable runs."""
    trained, measured = context.read_facts("train"), context.read_facts("measure")
    swept = [n for n, run in trained["runs"].items() if run["kind"] in ("operator", "sweep")]
    names = [name for name in swept if "reason" not in trained["runs"][name]]
    errors = {name: read_answers(context, name)["error"] for name in names}
    rows = {}
    for name in names:
        run = trained["runs"][name]
        rows[name] = {
            "seed": run["settings"]["seed"],
            "lr": run["settings"]["lr"],
            "ended": run["ended"],
            "validate": measured["models"][name]["validate"][PRIMARY_METRIC],
            "test": measured["models"][name]["test"][PRIMARY_METRIC]["value"],
            "heldout_rmse_bp": run["metrics"]["heldout_rmse_bp"],
            "DualGap": run["metrics"]["DualGap"],
            "max_rho_dt": run["max_rho_dt"],
        }
    folds = []
    for fold in make_folds(context.profile) if names else ():
        each = {name: _rms(errors[name][fold.validate]) for name in names}
        best = min(each, key=lambda name: each[name])
        folds.append(
            {
                "fold": fold.number,
                "chosen": best,
                "validate": each[best],
                "test": _rms(errors[best][fold.test]),
            }
        )
    budgets = [
        {
            "budget": run["settings"]["config"]["budget"],
            "aligned": run["settings"]["config"]["align"],
            "lipschitz": run["metrics"]["lambda_lip_after"],
            "test": measured["models"][name]["test"][PRIMARY_METRIC]["value"],
            "run": name,
        }
        for name, run in trained["runs"].items()
        if "reason" not in run
        and (run["kind"] in ("budget", "operator") or name == f"{SMALL}_no_qalign")
    ]
    return {
        "runs": rows,
        "folds": folds,
        "lipschitz": budgets,
        "diverged": [name for name in swept if name not in names],
        **_measure_stability(context, trained, names, len(swept) - len(names)),
        "interval_coverage": simulate_interval_coverage(
            first_fold(context.profile).test.size, context.profile.series
        ),
    }


def format_ledger(context: StageContext) -> str:
    """Return all runs as CSV text without times: configuration, seed, data, journal, results."""
    folder, facts = context.folder_of("train"), context.read_facts("train")
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    names = [name for name in LEDGER_COLUMNS if name != "seconds"]
    writer.writerow(["name", *names])
    for name in facts["runs"]:
        for row in Ledger(folder / name).runs():
            writer.writerow([name, *(_format_cell(row[column]) for column in names)])
    return file.getvalue()


def simulate_interval_coverage(days: int, series: int) -> Facts:
    """Simulate how often 95 % intervals contain the mean of an AR(1), by method and persistence.

    Args:
        days: Length of a series: the number of days out of sample.
        series: Number of series per persistence.
    """
    rng = np.random.default_rng(11)
    found: dict[str, list[float]] = {method: [] for method in ("paper", "automatic", "cosine")}
    for rho in _AR1_COEFFICIENTS:
        noise = rng.standard_normal((series, days))
        x = np.empty_like(noise)
        x[:, 0] = noise[:, 0] / np.sqrt(1.0 - rho**2)
        for t in range(1, days):
            x[:, t] = rho * x[:, t - 1] + noise[:, t]
        for method, shares in found.items():
            ends = [hac_mean(row, method=method, level=_CONFIDENCE_LEVEL) for row in x]  # type: ignore[arg-type]
            shares.append(float(np.mean([e.low <= 0.0 <= e.high for e in ends])))
    return {
        "persistence": _AR1_COEFFICIENTS,
        "level": _CONFIDENCE_LEVEL,
        "days": days,
        "series": series,
        **found,
    }


def _measure_stability(
    context: StageContext, trained: Facts, names: list[str], diverged: int
) -> dict[str, Any]:
    """Return shares of stable runs; a run that diverged counts as unstable."""
    lost = {"max_rho_dt": np.inf, "martingale_passed": False, "ended": "diverged"}
    runs = [*(trained["runs"][name] for name in names), *[lost] * diverged]
    passed = [bool(run["martingale_passed"]) for run in runs]
    converged = [run["ended"] == _CONVERGED for run in runs]
    shares = [stability([run["max_rho_dt"] for run in runs], passed, converged)]
    models = context.read_facts("measure")["models"]
    shares.append(
        stability_windows(
            [*(models[name]["test"]["NAS"]["value"] or 0.0 for name in names), *[0.0] * diverged],
            [run["max_rho_dt"] for run in runs],
            [run.get("projection_distance", np.inf) for run in runs],
            converged,
        )
    )
    ends = metric_intervals(shares).ends
    safe = {
        "safe": float(np.mean([run["max_rho_dt"] <= MAX_RHO_DT for run in runs])),
        "martingale": float(np.mean(passed)),
        "converged": float(np.mean(converged)),
    }
    return {
        "stability": {
            metric.name: {
                "value": metric.value,
                "interval": ends.get(metric.name),
                "runs": metric.daily,
            }
            for metric in shares
        },
        "stability_parts": safe,
    }


def _rms(error: NDArray[np.float64]) -> float:
    some = error[~np.isnan(error)]
    return float(np.sqrt(np.mean(some**2)))


def _format_cell(value: object) -> object:
    if isinstance(value, dict):
        return json.dumps(value, sort_keys=True)
    return value
