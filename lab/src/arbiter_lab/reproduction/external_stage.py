"""Stage ``external``: external validity, the same models on markets of other kinds.

Nothing is chosen on these markets.
"""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

from arbiter_lab.evaluation.heston_surfaces import heston_case
from arbiter_lab.evaluation.known_surface import Case
from arbiter_lab.evaluation.listed_chains import evaluate_chains, find_chain_files
from arbiter_lab.evaluation.methods import Method
from arbiter_lab.evaluation.run_methods import evaluate
from arbiter_lab.evaluation.stored_surfaces import SURFACES_PER_FILE, load_unseen_surfaces
from arbiter_lab.metrics.arbitrage import nas
from arbiter_lab.metrics.smoothed_arbitrage import cnas
from arbiter_lab.metrics.volatility import iv_rmse_bp
from arbiter_lab.reproduction.evaluation_stage import evaluate_days, select_entries
from arbiter_lab.reproduction.models import ModelEntry
from arbiter_lab.reproduction.profiles import Profile
from arbiter_lab.reproduction.scored_days import KAPPA, MATURITIES, read_days
from arbiter_lab.reproduction.stages import Facts, StageContext
from arbiter_lab.reproduction.workers import run_in_order

EXTERNAL_MODELS = (
    "operator", "refine", "fit", "svi", "ssvi", "fit_then_clean", "unconstrained", "gru",
    "transformer", "small", "small_unconstrained", "small_gru", "small_transformer",
)  # fmt: skip
_REPORTED_KEYS = (
    "surfaces", "rmse_bp", "rmse_unquoted_bp", "mae_bp", "max_bp", "inside_bid_ask", "nas_one",
    "nas_least", "vix_rmse", "refused",
)  # fmt: skip


def make_external(context: StageContext) -> Facts:
    """Return errors on other timelines, on benchmarks, and on listed chains if any are given.

    Without a model every part is empty.
    """
    profile = context.profile
    kept = context.folder / "unseen"
    if profile.unseen >= SURFACES_PER_FILE:  # files hold whole blocks of surfaces, for all workers
        load_unseen_surfaces(
            profile.unseen, kept, lambda n: context.tell("surfaces", n, profile.unseen)
        )
    listed: list[Path] = []
    reason = "ARBITER_DATA is not set: no listed chains were given"
    if context.chains is not None:
        listed = select_evenly(find_chain_files(context.chains), profile.chains)
        reason = ""
    homes = {name: context.folder_of("days") / name for name in profile.elsewhere}
    models = select_entries(context, EXTERNAL_MODELS)
    parts = [(entry, profile, homes, kept, listed) for entry in models]
    told = run_in_order(
        evaluate_elsewhere,
        parts,
        context.workers,
        lambda n: context.tell("models abroad", n, len(parts)),
    )
    made = {entry.name: found for entry, found in zip(models, told, strict=True)}
    return {
        "timelines": _group_by_market(made, "timelines"),
        "benchmarks": _group_by_market(made, "benchmarks"),
        "chains": {
            "rows": [
                row
                for path in listed
                for model in made
                for row in made[model]["chains"]
                if row["chain"] == path.name
            ],
            "reason": reason or None,
        },
    }


def _group_by_market(made: dict[str, Facts], part: str) -> Facts:
    """Regroup facts by model into facts by market; empty without a model."""
    names = next(iter(made.values()))[part] if made else ()
    return {name: {"models": {model: made[model][part][name] for model in made}} for name in names}


def evaluate_elsewhere(
    entry: ModelEntry, profile: Profile, homes: dict[str, Path], kept: Path, listed: list[Path]
) -> Facts:
    """Return the errors of one model on other timelines, benchmarks and listed chains.

    Args:
        entry: The model.
        profile: Sizes of the benchmarks.
        homes: Folder of each timeline, by name.
        kept: Folder in which unseen surfaces are stored.
        listed: Files of listed chains.
    """
    method = entry.method()
    timelines = {}
    for name, home in homes.items():
        arrays = evaluate_days(method, read_days(home), 0, laws=False)
        error, calls = iv_rmse_bp(arrays["error"][:, None]), arrays["calls"]
        timelines[name] = {
            "days": len(calls),
            "iv_rmse_bp": error.value,
            "reason": error.reason,
            "NAS": nas(calls, KAPPA, MATURITIES).value,
            "CNAS": cnas(calls, KAPPA, MATURITIES).value,
        }
    benchmarks = {
        name: _evaluate_benchmark(cases, method)
        for name, cases in make_benchmarks(profile, kept).items()
    }
    rows = evaluate_chains(listed, [method])
    for row in rows:
        row.pop("seconds", None)
        row.setdefault("method", method.name)
    return {"timelines": timelines, "benchmarks": benchmarks, "chains": rows}


def make_benchmarks(profile: Profile, kept: Path) -> dict[str, list[Case]]:
    """Return benchmark surfaces with known volatilities, of other laws than the timelines."""
    found = {
        "heston": [heston_case(seed) for seed in range(profile.heston)],
        "heston, hard": [heston_case(seed, hard=True) for seed in range(profile.heston)],
    }
    if profile.unseen:
        found["unseen"] = load_unseen_surfaces(
            profile.unseen, kept if profile.unseen >= SURFACES_PER_FILE else None
        )
    return found


def chains_folder() -> Path | None:
    """Return the folder of listed chains that ``ARBITER_DATA`` names; None if it is not set.

    Raises:
        ValueError: If ``ARBITER_DATA`` is not a folder.
    """
    home = os.environ.get("ARBITER_DATA")
    if not home:
        return None
    for place in (Path(home) / "chains", Path(home)):
        if place.is_dir():
            return place
    raise ValueError(f"ARBITER_DATA is {home!r}, which is not a folder: set it to one, or unset it")


def _evaluate_benchmark(cases: list[Case], method: Method) -> Facts:
    whole = evaluate(cases, [method]).to_dict()
    found = whole["methods"][method.name]
    return {
        **{key: found[key] for key in _REPORTED_KEYS},
        "noise_bp": whole["noise_bp"],
        "by_family": {family: part["rmse_bp"] for family, part in found["by_family"].items()},
    }


def select_evenly(paths: list[Path], count: int) -> list[Path]:
    """Return at most ``count`` paths, evenly spaced over all."""
    if len(paths) <= count:
        return paths
    places = np.unique(np.linspace(0, len(paths) - 1, count).round().astype(int))
    return [paths[i] for i in places.tolist()]
