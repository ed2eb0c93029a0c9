"""Stage ``measure``: metrics of all models on the same days, with intervals and paired tests."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from arbiter.conventions import DAYS_PER_YEAR
from arbiter_lab.metrics.arbitrage import nas, nas_as_printed
from arbiter_lab.metrics.desk import vix_mae, vix_max, vix_rmse
from arbiter_lab.metrics.generalisation import gen_gap_p95, gen_gap_p95_score
from arbiter_lab.metrics.metric import Metric, worst_day
from arbiter_lab.metrics.numeraire import ni, ni_invariance, ni_residual
from arbiter_lab.metrics.smoothed_arbitrage import cnas, cnas_convolved, cnas_frozen_drop
from arbiter_lab.metrics.volatility import iv_errors
from arbiter_lab.metrics.wasserstein import surface_wasserstein
from arbiter_lab.protocol.folds import Fold
from arbiter_lab.protocol.inference import MIN_DAYS, Method, holm
from arbiter_lab.protocol.intervals import metric_intervals
from arbiter_lab.protocol.paired_tests import compare
from arbiter_lab.reproduction.evaluation_stage import (
    NOMINAL_LEVELS,
    Arrays,
    list_evaluated_models,
    read_answers,
)
from arbiter_lab.reproduction.models import SMALL
from arbiter_lab.reproduction.profiles import MATCHED
from arbiter_lab.reproduction.scored_days import KAPPA, MATURITIES, Days, first_fold, read_days
from arbiter_lab.reproduction.stages import Facts, StageContext

Rows = NDArray[np.int64]

PRIMARY_METRIC = "iv_rmse_bp"
INTERVAL_METHOD: Method = "cosine"
"""Method of intervals and paired tests; accurate up to a persistence of 0.7 (docs/protocol.md)."""
PAPER_INTERVAL_METHOD: Method = "paper"
"""Method of the second set of intervals: the paper's lag, too short for persistent days."""
TEST_FAMILIES = {"operator": "full", "refine": "full", MATCHED: "full", SMALL: SMALL}
"""Models that are compared with all others of their width; each is a family of hypotheses."""


def make_measures(context: StageContext) -> Facts:
    """Return metrics with intervals, families of paired tests and errors by cell."""
    days = read_days(context.folder_of("days") / context.profile.market)
    told = context.read_facts("evaluate")["models"]
    fold = first_fold(context.profile)
    names = list_evaluated_models(context)
    found: dict[str, Any] = {}
    daily: dict[str, NDArray[np.float64]] = {}
    for number, name in enumerate(names):
        context.tell("metrics", number, len(names))
        arrays = read_answers(context, name)
        scored = score_model(arrays, days, fold)
        found[name] = scored.to_dict()
        daily[name] = next(
            m.daily for m in scored.test if m.name == PRIMARY_METRIC and m.daily is not None
        )
        if "lacking" in arrays and np.isfinite(arrays["within"]).any():
            shares = arrays["within"][fold.test].mean(0)
            found[name]["own_errors"] = {"nominal": NOMINAL_LEVELS, "within": shares}
    context.tell("metrics", len(names), len(names))
    tests = {
        base: compare_with_others(
            base, daily, [n for n in names if _is_compared(n, base, width, told)]
        )
        for base, width in TEST_FAMILIES.items()
        if base in daily
    }
    return {
        "models": found,
        "pairs": tests,
        "primary": PRIMARY_METRIC,
        "days": {"validate": fold.validate.size, "test": fold.test.size},
        "daily": {name: daily[name] for name in names},
        "errors_by_cell": {
            name: _compute_error_cells(read_answers(context, name), days, fold) for name in names
        },
    }


@dataclass(frozen=True, eq=False)
class ModelScores:
    """Metrics of one model.

    Attributes:
        test: Metrics on the windows out of sample.
        validate: Metrics on the validation block.
    """

    test: list[Metric]
    validate: list[Metric]

    def to_dict(self) -> Facts:
        """Return JSON values: test metrics with intervals, and values on the validation block."""
        made = metric_intervals(self.test, method=INTERVAL_METHOD)
        papers = metric_intervals(self.test, method=PAPER_INTERVAL_METHOD)
        return {
            "test": {
                m.name: {
                    "value": m.value,
                    "reason": m.reason,
                    "interval": made.ends.get(m.name),
                    "interval_paper": papers.ends.get(m.name),
                    "no_interval": made.reasons.get(m.name),
                }
                for m in self.test
            },
            "validate": {m.name: m.value for m in self.validate},
        }


def score_model(arrays: Arrays, days: Days, fold: Fold) -> ModelScores:
    """Return all metrics of a model on the days of a fold."""
    test = compute_metrics(arrays, days, fold.test)
    validate = compute_metrics(arrays, days, fold.validate)
    base = next(m for m in validate if m.name == "CNAS").value
    windows = [cnas(arrays["calls"][rows], KAPPA, MATURITIES).value for rows in fold.windows]
    drop = cnas_frozen_drop(base, [np.nan if value is None else value for value in windows])
    early = nas(arrays["calls"][fold.train], KAPPA, MATURITIES).value
    late = [nas(arrays["calls"][rows], KAPPA, MATURITIES).value for rows in fold.windows]
    gap = gen_gap_p95_score(
        [np.nan if early is None else early] * len(late),
        [np.nan if value is None else value for value in late],
    )
    primary = next(m for m in test if m.name == PRIMARY_METRIC)
    return ModelScores([*test, drop, gap, worst_day(primary)], validate)


def compute_metrics(arrays: Arrays, days: Days, rows: Rows) -> list[Metric]:
    """Return the metrics of the days ``rows``."""
    calls, exact = arrays["calls"][rows], days.calls[rows]
    grid = (KAPPA, MATURITIES)
    found = [
        *iv_errors(arrays["error"][rows][:, None], days.quoted[rows][:, None]),
        _measure_inside_bid_ask(arrays, rows),
        _measure_inside_unseen(arrays, rows),
        *(m(arrays["vix"][rows], days.vix[rows]) for m in (vix_rmse, vix_mae, vix_max)),
        nas(calls, *grid),
        nas_as_printed(calls, *grid),
        _measure_audit_score(arrays, rows),
        cnas(calls, *grid),
        cnas_convolved(calls, *grid),
        ni(calls, exact),
        ni_residual(calls, exact),
        _invariance(arrays, rows),
        _measure_wasserstein(calls, exact),
        gen_gap_p95(calls, exact),
    ]
    if np.isnan(arrays["vix"][rows]).all():
        why = "the model has no index of its own"
        found = [Metric.undefined(m.name, why) if "vix" in m.name else m for m in found]
    return [*found, *_measure_law_distances(arrays, rows)]


def compare_with_others(
    base: str, daily: dict[str, NDArray[np.float64]], others: Sequence[str]
) -> Facts:
    """Test one model against others, day by day, with Holm's adjustment over the family.

    A model without an error on some day is left out of the family, with the reason.
    """
    made, left = {}, {}
    for name in others:
        first, second = daily[base], daily[name]
        if first.size < MIN_DAYS:
            left[name] = f"{first.size} days: {MIN_DAYS} are needed"
        elif not (np.isfinite(first).all() and np.isfinite(second).all()):
            days = int((~np.isfinite(second)).sum() or (~np.isfinite(first)).sum())
            left[name] = f"no error on {days} of {second.size} days: a volatility is missing there"
        else:
            made[name] = compare(first, second, method=INTERVAL_METHOD)
    adjusted = _adjust_by_holm([c.difference.p_value for c in made.values()])
    flips = _adjust_by_holm([c.flip_p_value for c in made.values()])
    return {
        "tests": {
            name: {
                **c.to_dict(),
                "holm_p_value": p,
                "holm_flip_p_value": q,
            }
            for (name, c), p, q in zip(made.items(), adjusted, flips, strict=True)
        },
        "left_out": left,
    }


def _adjust_by_holm(p_values: list[float]) -> list[float]:
    adjusted: list[float] = holm(p_values).tolist() if p_values else []
    return adjusted


def _is_compared(name: str, base: str, width: str, told: dict[str, Any]) -> bool:
    if name == base or told[name]["kind"] in ("sweep", "budget"):
        return False
    small = told[name]["width"] == SMALL
    return small if width == SMALL else not small


def _measure_inside_bid_ask(arrays: Arrays, rows: Rows) -> Metric:
    hit, of = arrays["inside"][rows], arrays["quotes"][rows]
    return Metric("inside_bid_ask", float(hit.sum() / of.sum()), None, hit / of)


def _measure_inside_unseen(arrays: Arrays, rows: Rows) -> Metric:
    """Share of hidden quotes inside bid-ask, on the days on which quotes were hidden."""
    name, hit, of = "inside_bid_ask_unseen", arrays["unseen_inside"][rows], arrays["unseen"][rows]
    some = of > 0
    if not some.any():
        return Metric.undefined(name, "no quotes were hidden from this model")
    return Metric(name, float(hit.sum() / of.sum()), None, hit[some] / of[some])


def _invariance(arrays: Arrays, rows: Rows) -> Metric:
    """Agreement of prices from quotes in cash and in units of the index, on audited days."""
    audited = np.isfinite(arrays["nas"][rows])
    if not audited.any():
        return Metric.undefined("NI_invariance", "this model was asked in one numeraire only")
    told = np.stack([arrays[column][rows][audited] for column in ("calls", "calls_index")])
    return ni_invariance(told)


def _measure_audit_score(arrays: Arrays, rows: Rows) -> Metric:
    """Mean score of the full audit, on the days that had one."""
    seen = arrays["nas"][rows]
    seen = seen[np.isfinite(seen)]
    if not seen.size:
        return Metric.undefined("NAS_inequalities", "no day of this part was audited in full")
    return Metric.from_days("NAS_inequalities", seen, "have no score")


def _measure_wasserstein(calls: NDArray[np.float64], exact: NDArray[np.float64]) -> Metric:
    return surface_wasserstein(calls, exact, KAPPA, MATURITIES)


def _measure_law_distances(arrays: Arrays, rows: Rows) -> list[Metric]:
    why = next((text for text in arrays["lacking"][rows].tolist() if text), None)
    found = []
    for name, column in (
        ("relative_entropy", "relative_entropy"),
        ("cvar_alignment", "cvar"),
        ("SurfaceWasserstein_quantile", "wasserstein"),
    ):
        each = arrays[column][rows]
        if why is not None:
            found.append(Metric.undefined(name, why))
        elif np.isnan(each).all():
            found.append(Metric.undefined(name, "laws were not compared for this model"))
        else:
            power = 2.0 if column == "wasserstein" else 1.0
            daily = np.mean(each**power, axis=1) ** (1.0 / power)
            # of two laws that agree to the quadrature's rounding it may come out below zero
            daily = np.maximum(daily, 0.0)
            found.append(Metric.from_days(name, daily, "have a law that is not a number"))
    return found


MONEYNESS_EDGES_SD = np.array([-3.0, -2.0, -1.0, -0.5, 0.0, 0.5, 1.0])
MATURITY_EDGES_YEARS = np.array([30.0, 60.0, 120.0, 240.0, 480.0]) / DAYS_PER_YEAR


def _compute_error_cells(arrays: Arrays, days: Days, fold: Fold) -> list[list[float | None]]:
    """Return root mean square errors by maturity (rows) and moneyness, in basis points."""
    error, z, T = (a[fold.test].ravel() for a in (arrays["error"], days.deviations, days.T))
    sound = np.isfinite(error)
    across, down = np.searchsorted(MONEYNESS_EDGES_SD, z), np.searchsorted(MATURITY_EDGES_YEARS, T)
    table: list[list[float | None]] = []
    for row in range(MATURITY_EDGES_YEARS.size + 1):
        cells = (
            error[sound & (down == row) & (across == c)] for c in range(MONEYNESS_EDGES_SD.size + 1)
        )
        table.append([float(np.sqrt(np.mean(e**2))) if e.size else None for e in cells])
    return table
