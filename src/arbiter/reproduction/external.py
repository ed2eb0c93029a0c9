"""Stage: external validity. Nothing is chosen here: the same models, on markets of other kinds."""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import Any

import numpy as np

from arbiter.evaluation.cases import Case
from arbiter.evaluation.chains import chains_in, evaluate_chains
from arbiter.evaluation.heston import heston_case
from arbiter.evaluation.methods import Method
from arbiter.evaluation.running import evaluate
from arbiter.evaluation.stored import BLOCK, stored
from arbiter.metrics.arbitrage import nas
from arbiter.metrics.smoothed_arbitrage import cnas
from arbiter.metrics.volatility import iv_rmse_bp
from arbiter.reproduction.days import KAPPA, MATURITIES, read_days
from arbiter.reproduction.evaluating import answers, opened
from arbiter.reproduction.stages import Facts, Workshop

MODELS = (
    "operator", "refine", "fit", "svi", "ssvi", "fit_then_clean", "unconstrained", "gru",
    "transformer", "small", "small_unconstrained", "small_gru", "small_transformer",
)  # fmt: skip
_SLOW = ("svi",)  # on listed chains
_KEPT = (
    "surfaces", "rmse_bp", "rmse_unquoted_bp", "mae_bp", "max_bp", "inside_bid_ask", "nas_one",
    "nas_least", "vix_rmse", "refused",
)  # fmt: skip


def make_external(workshop: Workshop) -> Facts:
    """Errors on other timelines, on benchmarks, and on listed chains where there are any."""
    profile = workshop.profile
    methods = opened(workshop, MODELS)
    found: dict[str, Any] = {"timelines": {}, "benchmarks": {}}
    for name in profile.elsewhere:
        days = read_days(workshop.folder_of("days") / name)
        found["timelines"][name] = {"days": len(days), "models": {}}
        for method in methods:
            workshop.tell(f"{name}, {method.name}", 0, 1)
            arrays = answers(method, days, 0, laws=False)
            error = iv_rmse_bp(arrays["error"][:, None])
            calls = arrays["calls"]
            found["timelines"][name]["models"][method.name] = {
                "iv_rmse_bp": error.value,
                "reason": error.reason,
                "NAS": nas(calls, KAPPA, MATURITIES).value,
                "CNAS": cnas(calls, KAPPA, MATURITIES).value,
            }
            workshop.tell(f"{name}, {method.name}", 1, 1)
    benches = {
        "heston": [heston_case(seed) for seed in range(profile.heston)],
        "heston, hard": [heston_case(seed, hard=True) for seed in range(profile.heston)],
    }
    if profile.unseen:
        # files hold whole blocks of surfaces: fewer are made and not kept
        kept = workshop.folder / "unseen" if profile.unseen >= BLOCK else None
        benches["unseen"] = stored(profile.unseen, kept)
    for name, cases in benches.items():
        found["benchmarks"][name] = _bench(workshop, name, cases, methods)
    found["chains"] = _chains(workshop, methods)
    return found


def chains_folder() -> Path | None:
    """Listed chains, where ``ARBITER_DATA`` names a folder that has them."""
    home = os.environ.get("ARBITER_DATA")
    if not home:
        return None
    for place in (Path(home) / "chains", Path(home)):
        if place.is_dir():
            return place
    raise ValueError(f"ARBITER_DATA is {home!r}, which is not a folder: set it to one, or unset it")


def _bench(workshop: Workshop, name: str, cases: list[Case], methods: list[Method]) -> Facts:
    def tell(method: str, done: int) -> None:
        workshop.tell(f"{name}, {method}", done, len(cases))

    whole = evaluate(cases, methods, tell=tell).to_dict()
    return {
        "surfaces": whole["surfaces"],
        "noise_bp": whole["noise_bp"],
        "models": {
            method: {
                **{key: summary[key] for key in _KEPT},
                "by_family": {
                    family: part["rmse_bp"] for family, part in summary["by_family"].items()
                },
            }
            for method, summary in whole["methods"].items()
        },
    }


def _chains(workshop: Workshop, methods: list[Method]) -> Facts:
    if workshop.chains is None:
        return {"rows": [], "reason": "ARBITER_DATA is not set: no listed chains were given"}
    logging.getLogger("arbiter").addHandler(logging.NullHandler())
    try:
        paths = spread(chains_in(workshop.chains), workshop.profile.chains)
    except ValueError as error:
        return {"rows": [], "reason": str(error)}
    quick = [method for method in methods if method.name not in _SLOW]
    rows = evaluate_chains(
        paths, quick, lambda name, done: workshop.tell("chains", done, len(paths))
    )
    for row in rows:
        row.pop("seconds", None)
    return {"rows": rows, "reason": None}


def spread(paths: list[Path], count: int) -> list[Path]:
    """At most so many, spread evenly over all."""
    if len(paths) <= count:
        return paths
    places = np.unique(np.linspace(0, len(paths) - 1, count).round().astype(int))
    return [paths[i] for i in places.tolist()]
