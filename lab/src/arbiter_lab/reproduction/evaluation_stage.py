"""Stage ``evaluate``: runs every model on every day and stores its errors and prices as arrays."""

from __future__ import annotations

import io
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from arbiter.conventions import Array
from arbiter.files import write_whole
from arbiter.scoring import Model, is_inside_bid_ask
from arbiter_lab.evaluation.methods import Method
from arbiter_lab.evaluation.model_extensions import ErrorModel, has_iv_errors, read_index
from arbiter_lab.metrics.densities import slice_cvar_error, slice_relative_entropy
from arbiter_lab.metrics.marginals import Marginals, explain_missing_law
from arbiter_lab.metrics.panels import price_calls
from arbiter_lab.metrics.volatility import iv_error_bp
from arbiter_lab.metrics.wasserstein import slice_wasserstein
from arbiter_lab.reproduction.input_variations import evaluate_variations, make_empty_row
from arbiter_lab.reproduction.models import (
    SMALL,
    ModelEntry,
    add_unprojected,
    list_checkpointed,
    list_untrained,
)
from arbiter_lab.reproduction.query_models import audit_or_zero, solve_chains
from arbiter_lab.reproduction.scored_days import KAPPA, LAW_MATURITIES, MATURITIES, Days, read_days
from arbiter_lab.reproduction.stages import Facts, StageContext
from arbiter_lab.reproduction.training_stage import weights_of
from arbiter_lab.reproduction.workers import run_in_order

Arrays = dict[str, NDArray[Any]]

CHAINS_PER_BATCH = (
    16  # chains that a model is given at once; fixed, since padding may move the last digits
)
NOMINAL_LEVELS = (0.5, 0.8, 0.9, 0.95, 0.99)
"""Confidence levels at which a model's own standard errors are checked."""
_NORMAL_QUANTILES = np.array([0.674490, 1.281552, 1.644854, 1.959964, 2.575829])


def list_entries(context: StageContext) -> list[ModelEntry]:
    """Return all models: fits and peers, networks at full size, then those of the small width."""
    facts, folder = context.read_facts("train"), context.folder_of("train")
    small = []
    for name, run in facts["runs"].items():
        missing = run.get("reason", "")
        weights = None if missing else weights_of(folder, facts, name)
        small.append(ModelEntry(name, run["kind"], SMALL, weights, missing))
    known = [*list_untrained(context.profile.methods), *list_checkpointed(context.checkpoints)]
    return [*known, *add_unprojected(small)]


def make_answers(context: StageContext) -> Facts:
    """Evaluate the models that were not evaluated yet; return which exist and which are missing."""
    home = context.folder_of("days") / context.profile.market
    every = list_entries(context)
    there = [entry for entry in every if not entry.missing]
    parts = [
        (entry, home, context.folder / f"{entry.name}.npz", context.profile.judge_every)
        for entry in there
    ]
    told = run_in_order(
        evaluate_entry, parts, context.workers, lambda n: context.tell("models", n, len(parts))
    )
    refusals = {entry.name: found for entry, found in zip(there, told, strict=True)}
    facts: dict[str, Any] = {}
    for entry in every:
        facts[entry.name] = {"label": entry.label, "kind": entry.kind, "width": entry.width}
        if entry.missing:
            facts[entry.name]["reason"] = entry.reason
        else:
            facts[entry.name] |= {"promises": entry.promises, **refusals[entry.name]}
    return {"models": facts}


def evaluate_entry(entry: ModelEntry, home: Path, path: Path, judge_every: int) -> Facts:
    """Evaluate a model on every day unless its file exists; return how many days it refused."""
    if not path.is_file():
        plainly = entry.kind in ("sweep", "budget")  # of these the errors are wanted alone
        step = 0 if plainly else judge_every
        save_arrays(
            path, evaluate_days(entry.method(), _read_days_cached(home), step, laws=not plainly)
        )
    refusals = [why for why in read(path)["refusals"].tolist() if why]
    return {"refused": len(refusals), "refusal": refusals[0] if refusals else None}


@lru_cache(maxsize=1)
def _read_days_cached(home: Path) -> Days:
    """Return the days of a folder; a worker reads them once and shares the oracle's answers."""
    return read_days(home)


def evaluate_days(method: Method, days: Days, judge_every: int, *, laws: bool = True) -> Arrays:
    """Evaluate a model on every day.

    Args:
        method: The model.
        days: All days of the timeline.
        judge_every: Days between full audits, which also vary the inputs
            (:mod:`.input_variations`); 0 makes none.
        laws: Whether risk-neutral laws are compared, which takes most of the time.

    Returns:
        Arrays by name, with one row per day.
    """
    rows: list[dict[str, Any]] = []
    for start in range(0, len(days), CHAINS_PER_BATCH):
        stop = min(start + CHAINS_PER_BATCH, len(days))
        models = solve_chains(method, days.quotes[start:stop])
        chosen = [day for day in range(start, stop) if judge_every > 0 and day % judge_every == 0]
        again = evaluate_variations(method, [days.quotes[day] for day in chosen], chosen)
        for day, model in zip(range(start, stop), models, strict=True):
            judged = day in chosen
            row = _evaluate_day(model, days, day, judged=judged, laws=laws)
            rows.append(row | (again[chosen.index(day)] if judged else make_empty_row()))
    return {name: np.stack([np.asarray(row[name]) for row in rows]) for name in rows[0]}


def _evaluate_day(
    model: Model | str, days: Days, day: int, *, judged: bool, laws: bool
) -> dict[str, Any]:
    listed = np.isfinite(days.iv[day])
    nothing = np.full(LAW_MATURITIES.size, np.nan)
    row = {
        "error": np.where(listed, np.inf, np.nan),
        "inside": 0,
        "quotes": len(days.quotes[day]),
        "calls": np.full((MATURITIES.size, KAPPA.size), np.nan),
        "vix": np.nan,
        "nas": np.nan,
        "findings": 0,
        "relative_entropy": nothing,
        "cvar": nothing,
        "wasserstein": nothing,
        "within": np.full(len(NOMINAL_LEVELS), np.nan),
        "lacking": "",
        "refusals": model if isinstance(model, str) else "",
    }
    if isinstance(model, str):
        return row | ({"nas": 0.0} if judged else {})
    k, T, quotes = days.k[day, listed], days.T[day, listed], days.quotes[day]
    found = np.full(listed.shape, np.nan)
    with np.errstate(invalid="ignore", divide="ignore"):
        found[listed] = model.iv(k, T)
        row["error"] = iv_error_bp(found, days.iv[day])
        row["inside"] = int(is_inside_bid_ask(model.otm(quotes.k, quotes.T), quotes).sum())
        row["calls"] = price_calls(model, KAPPA, MATURITIES)
    index = read_index(model)
    if index is not None:
        row["vix"] = index
    if judged:
        verdict = audit_or_zero(model, quotes)
        row |= {"nas": verdict.nas, "findings": verdict.findings}
    if has_iv_errors(model):
        row["within"] = _measure_interval_coverage(
            model, k, T, found[listed] - days.iv[day, listed]
        )
    why = explain_missing_law(model)
    row["lacking"] = why or ""
    if laws and why is None:
        exact, law = days.laws[day], cast(Marginals, model)
        row["relative_entropy"] = slice_relative_entropy(law, exact, LAW_MATURITIES)
        row["cvar"] = slice_cvar_error(law, exact, LAW_MATURITIES)
        row["wasserstein"] = slice_wasserstein(law, exact, LAW_MATURITIES)
    return row


def _measure_interval_coverage(model: ErrorModel, k: Array, T: Array, error: Array) -> Array:
    """Return for each nominal level the share of errors inside the model's own interval."""
    deviation = np.asarray(model.iv_error(k, T), dtype=np.float64)
    known = np.isfinite(deviation) & (deviation > 0.0)
    if not known.any():
        return np.full(len(NOMINAL_LEVELS), np.nan)
    ratio = np.abs(error[known]) / deviation[known]
    return np.asarray((ratio[:, None] <= _NORMAL_QUANTILES).mean(0))


def save_arrays(path: Path, arrays: Arrays) -> Path:
    """Write arrays to a compressed NumPy file in one atomic step."""
    content = io.BytesIO()
    np.savez_compressed(content, **arrays)  # type: ignore[arg-type]
    return write_whole(path, content.getvalue())


def read(path: Path) -> Arrays:
    """Read the arrays of a NumPy file by name."""
    with np.load(path, allow_pickle=False) as archive:
        return {name: archive[name] for name in archive.files}


def read_answers(context: StageContext, name: str) -> Arrays:
    """Read the arrays of a model that :func:`evaluate_days` returned."""
    return read(context.folder_of("evaluate") / f"{name}.npz")


def list_evaluated_models(context: StageContext) -> list[str]:
    """Return the names of the models that were evaluated."""
    told = context.read_facts("evaluate")["models"]
    return [name for name, about in told.items() if "reason" not in about]


def select_entries(context: StageContext, names: Sequence[str]) -> list[ModelEntry]:
    """Return the entries of the named models that are available."""
    every = {entry.name: entry for entry in list_entries(context)}
    return [every[name] for name in names if name in every and not every[name].missing]
