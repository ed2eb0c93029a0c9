"""Builds the runs of the results file: each field of every model with a value or a reason."""

from __future__ import annotations

from typing import Any

import numpy as np

from arbiter.operators.monitors import MIN_COVERAGE
from arbiter_lab.evaluation.first_design import FirstDesign
from arbiter_lab.metrics.metric import Metric
from arbiter_lab.metrics.stability import stability
from arbiter_lab.protocol.intervals import metric_intervals
from arbiter_lab.protocol.results_file import FIELDS, as_run
from arbiter_lab.reproduction.models import SMALL, UNPROJECTED_SUFFIX
from arbiter_lab.reproduction.stages import Facts, StageContext

_REASON_NOT_TRAINED = "nothing is trained here: it belongs to training"
_TRAINING_FIELDS = ("DualGap", "ratio_log", "mfm_mse", "martingale_residual")
_LIPSCHITZ_FIELDS = ("lambda_lip_before", "lambda_lip_after")
_SPECTRAL_FIELDS = ("spec_guard_hits", "projection_distance", "max_rho_dt")
_REPRESENTER_FIELDS = ("enter_representer_at_step", "coverage_at_trigger")
_REASON_UNDEFINED = "it was not measured: the route or the decoder does not define it"
_REASON_UNCONSTRAINED = (
    "the network has no guard and no constraints: only its pricing error is trained"
)


def build_runs(context: StageContext) -> dict[str, dict[str, Any]]:
    """Return every run by name, checked; all fields of a missing model are null with its reason."""
    told = context.read_facts("evaluate")["models"]
    measured = context.read_facts("measure")["models"]
    found = {}
    for name, about in told.items():
        kept = {key: about[key] for key in ("label", "kind", "width")}
        if "reason" in about:
            missing = dict.fromkeys(FIELDS, about["reason"])
            found[name] = as_run([], missing=missing, about=kept | {"missing": True})
            continue
        metrics, intervals = _read_measured_metrics(measured[name]["test"])
        more, reasons = _collect_training_metrics(context, name, kept)
        metrics += [*_collect_data_metrics(context, intervals), *more]
        metrics += _collect_dimension_metrics(context, name)
        for metric in more:
            ends = metric_intervals([metric]).ends.get(metric.name)
            if ends is not None:
                intervals[metric.name] = ends
        known = {metric.name for metric in metrics}
        missing = {
            field: reasons.get(field, _REASON_NOT_TRAINED) for field in FIELDS if field not in known
        }
        kept |= {"promises": about["promises"], "refused": about["refused"]}
        kept |= {"days": context.read_facts("measure")["days"]["test"]}
        kept |= {"intervals_paper": _read_paper_intervals(measured[name]["test"])}
        found[name] = as_run(metrics, missing=missing, intervals=intervals, about=kept)
    return found


def _read_measured_metrics(test: Facts) -> tuple[list[Metric], dict[str, tuple[float, float]]]:
    metrics = [Metric(name, entry["value"], entry["reason"]) for name, entry in test.items()]
    ends = {
        name: (entry["interval"][0], entry["interval"][1])
        for name, entry in test.items()
        if entry["interval"] is not None
    }
    return metrics, ends


def _read_paper_intervals(test: Facts) -> dict[str, list[float]]:
    """Return the intervals with the paper's lag, for the metrics that have one."""
    return {
        name: entry["interval_paper"]
        for name, entry in sorted(test.items())
        if entry["interval_paper"] is not None
    }


def _collect_data_metrics(
    context: StageContext, intervals: dict[str, tuple[float, float]]
) -> list[Metric]:
    """Return metrics of the days: coverage, cleaning, the monitor A1."""
    days, monitors = context.read_facts("days"), context.read_facts("monitors")
    windows, switched = days["coverage_windows"], monitors["A1"]
    intervals["novik_to_kazamaki_rate"] = tuple(switched["interval"])
    return [
        Metric("coverage_min", min(windows)),
        Metric("coverage_mean", sum(windows) / len(windows)),
        Metric("filter_rate", days["filter_rate"]),
        Metric("novik_to_kazamaki_rate", switched["rate"]),
    ]


def _collect_dimension_metrics(context: StageContext, name: str) -> list[Metric]:
    """Return effective dimensions of the inputs and of the operator's features."""
    dimensions = context.read_facts("monitors")["dimensions"]
    values = dict(dimensions["inputs"])
    if name in dimensions:
        values |= dimensions[name]
    return [Metric(key, value) for key, value in values.items() if value is not None]


def _collect_training_metrics(
    context: StageContext, name: str, about: dict[str, Any]
) -> tuple[list[Metric], dict[str, str]]:
    """Return metrics of the training, and reasons for those that it did not measure."""
    windows = context.read_facts("days")["coverage_windows"]
    never = f"no window has a coverage below {MIN_COVERAGE:g}"
    reasons = dict.fromkeys(
        _REPRESENTER_FIELDS, f"the representer is not part of this model, and {never}"
    )
    if min(windows) < MIN_COVERAGE:
        reasons = dict.fromkeys(_REPRESENTER_FIELDS, "the representer is not part of this model")
    run = context.read_facts("train")["runs"].get(name.removesuffix(UNPROJECTED_SUFFIX))
    if run is not None:
        found, more = _collect_small_run_metrics(context, name, run)
        about |= {"seed": run["settings"]["seed"], "parameters": run["parameters"]}
        about |= {"ended": run["ended"], "steps": run["steps"], "journal": run["model"]}
        return found, reasons | more
    origin = "operator" if name == "refine" else name.removesuffix(UNPROJECTED_SUFFIX)
    known = context.read_facts("monitors")["networks"].get(origin)
    if known is None:
        return [], reasons
    about |= {key: known[key] for key in ("parameters", "seed", "steps", "ended")}
    if name in ("operator", "refine"):
        about |= {"model": FirstDesign.load().model}
    if name == "refine":
        return [], reasons
    found, more = _collect_checkpoint_metrics(known, about["kind"])
    if "max_rho_dt" in known:
        about |= {"guard": "watched on the days out of sample, not in training"}
    return found, reasons | more


def _collect_checkpoint_metrics(known: Facts, kind: str) -> tuple[list[Metric], dict[str, str]]:
    """Return metrics of a network that is read from a checkpoint, and reasons for the others."""
    if kind == "baseline":
        return [], dict.fromkeys(
            (*_SPECTRAL_FIELDS, *_TRAINING_FIELDS, *_LIPSCHITZ_FIELDS, "Stability"),
            _REASON_UNCONSTRAINED,
        )
    found = _read_card_metrics(known["metrics"])
    found += [
        Metric(field, float(known[field])) for field in (*_SPECTRAL_FIELDS, "max_rho_dt_proposed")
    ]
    found.append(
        stability(
            [known["max_rho_dt"]], [known["martingale_passed"]], [known["ended"] == "converged"]
        )
    )
    absent = dict.fromkeys((*_TRAINING_FIELDS, *_LIPSCHITZ_FIELDS), _REASON_UNDEFINED)
    return found, absent


def _read_card_metrics(metrics: Facts) -> list[Metric]:
    return [
        Metric(field, float(metrics[field]))
        for field in (*_TRAINING_FIELDS, *_LIPSCHITZ_FIELDS)
        if metrics.get(field) is not None
    ]


def _collect_small_run_metrics(
    context: StageContext, name: str, run: Facts
) -> tuple[list[Metric], dict[str, str]]:
    found = _read_card_metrics(run["metrics"])
    reasons = {
        field: _REASON_UNDEFINED
        for field in (*_TRAINING_FIELDS, *_LIPSCHITZ_FIELDS)
        if run["metrics"].get(field) is None
    }
    if run["kind"] == "baseline":
        reasons |= dict.fromkeys(
            (*_SPECTRAL_FIELDS, *_TRAINING_FIELDS, "Stability"), _REASON_UNCONSTRAINED
        )
        return [], reasons
    found += [Metric(field, float(run[field])) for field in _SPECTRAL_FIELDS]
    found.append(Metric("max_rho_dt_proposed", float(run["max_rho_dt_proposed"])))
    for field in _REPRESENTER_FIELDS:
        if run[field] is not None:
            found.append(Metric(field, float(run[field])))
        elif run["settings"]["config"]["representer"]:
            reasons[field] = f"no slice of training had a coverage below {MIN_COVERAGE:g}"
    if name == SMALL:
        share = context.read_facts("sweeps")["stability"]["Stability"]
        found.append(Metric("Stability", share["value"], None, np.array(share["runs"])))
    else:
        found.append(
            stability(
                [run["max_rho_dt"]],
                [bool(run["martingale_passed"])],
                [run["ended"] == "converged"],
            )
        )
    return found, reasons
