"""Stage ``train``: trains networks of the small width from scratch."""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Callable, Iterator
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, NamedTuple, Self

from arbiter_lab.differentiable.operators import checkpoint
from arbiter_lab.metrics.stability import MAX_RHO_DT
from arbiter_lab.reproduction.models import SMALL, has_baselines
from arbiter_lab.reproduction.profiles import BASELINES, Profile
from arbiter_lab.reproduction.stages import Facts, StageContext
from arbiter_lab.reproduction.workers import run_in_order
from arbiter_lab.training import run_folder
from arbiter_lab.training.display import Display
from arbiter_lab.training.held_out import HeldOut
from arbiter_lab.training.journal import digest_journal, read_steps
from arbiter_lab.training.loop import train
from arbiter_lab.training.pool_files import load_pool
from arbiter_lab.training.run_folder import JOURNAL_FILE, RUN_FILE, WEIGHTS_FILE, read_settings
from arbiter_lab.training.settings import Settings
from arbiter_lab.training.stopping_rule import Ending
from arbiter_lab.training.trainer import Trainer

POOLS_FOLDER = "pools"
_ENDED_BY_ITSELF = (Ending.BUDGET, Ending.CONVERGED, Ending.PLATEAU)  # not by a user's interrupt


class TrainingPlan(NamedTuple):
    """A planned training run.

    Attributes:
        name: Name of the run.
        kind: ``operator``, ``ablation``, ``baseline``, ``sweep`` or ``budget``.
        settings: Settings of the training; None where it cannot be trained.
        reason: Why it cannot be trained; empty where it can.
    """

    name: str
    kind: str
    settings: Settings | None
    reason: str = ""


def list_trainings(profile: Profile) -> Iterator[TrainingPlan]:
    """Yield the runs of a profile: base, ablations, baselines, sweep and Lipschitz budgets."""
    base = profile.small
    yield TrainingPlan(SMALL, "operator", base)
    for name in profile.ablations:
        yield TrainingPlan(f"{SMALL}_{name}", "ablation", base.apply_ablation(name))
    for name in profile.baselines:
        yield plan_baseline(name, f"{SMALL}_{name}", base)
    for seed in profile.seeds:
        for factor in profile.rates:
            if (seed, factor) != (base.seed, 1.0):
                changed = replace(base, seed=seed, lr=factor * base.lr)
                yield TrainingPlan(f"sweep_{seed}_{factor:g}", "sweep", changed)
    for budget in profile.budgets:
        changed = replace(base, config=replace(base.config, budget=budget))
        yield TrainingPlan(f"budget_{budget:g}", "budget", changed)


def make_trainings(context: StageContext) -> Facts:
    """Train the runs that are not finished; return what each measured and how it ended."""
    runs = list(list_trainings(context.profile))
    pools, base = context.folder / POOLS_FOLDER, context.profile.small
    context.tell("laws", 0, base.pool + base.held_out)
    # made once, before several runs look for them
    for count, seed in ((base.pool, base.pool_seed), (base.held_out, base.held_out_seed)):
        load_pool(count, seed, pools, "cpu")
    able = [run for run in runs if run.settings is not None]
    parts = [(context.folder / run.name, run.settings, pools) for run in able]
    told = run_in_order(
        train_small, parts, context.workers, lambda n: context.tell("trainings", n, len(parts))
    )
    measured = {run.name: facts for run, facts in zip(able, told, strict=True)}
    made = {
        run.name: {"kind": run.kind, **measured.get(run.name, {"reason": run.reason})}
        for run in runs
    }
    return {"runs": made}


def train_small(place: Path, settings: Settings, pools: Path) -> Facts:
    """Train a run unless it is finished, and return its facts; a divergence is one of them."""
    try:
        ensure_trained(place, settings, pools, SilentDisplay(settings.steps))
    except FloatingPointError as error:
        return describe_divergence(error)
    return describe(place, settings, pools)


def describe_divergence(error: FloatingPointError) -> Facts:
    """Return the facts of a training that diverged: the reason and a flag."""
    return {"reason": f"its training diverged: {error}", "diverged": True}


def weights_of(folder: Path, facts: Facts, name: str) -> Path:
    """Return the path of the checkpoint of a run."""
    return folder / name / str(facts["runs"][name]["weights"])


def describe(place: Path, settings: Settings, pools: Path) -> Facts:
    """Return the facts of a finished run: journal, ending and last measurements, without times."""
    run, journal = _read_json(place / RUN_FILE), read_steps(place / JOURNAL_FILE)
    weights = f"{run['checkpoint']}/{WEIGHTS_FILE}"
    tensors = checkpoint.load(place / weights)[0]
    proposed = max(_drop_missing(journal["max_rho_dt"]), default=0.0)
    measured = [i for i, gap in enumerate(journal["DualGap"]) if gap is not None]
    watched = ("step", "DualGap", "heldout_rmse_bp", "lambda_lip_before", "lambda_lip_after")
    return {
        "settings": settings.to_dict(),
        "weights": weights,
        "model": digest_journal(place / JOURNAL_FILE),
        "parameters": sum(tensor.numel() for tensor in tensors.values()),
        "ended": run["ended"],
        "steps": run["step"],
        "metrics": run["metrics"],
        "spec_guard_hits": int(sum(_drop_missing(journal["spec_guard_hits"]))),
        "projection_distance": sum(_drop_missing(journal["projection_distance"])),
        # with a guard steps are cut before they are taken
        "max_rho_dt": min(proposed, MAX_RHO_DT) if settings.config.guard else proposed,
        "max_rho_dt_proposed": proposed,
        "martingale_passed": _run_martingale_test(place, settings, pools),
        "enter_representer_at_step": journal["enter_representer_at_step"][-1],
        "coverage_at_trigger": journal["coverage_at_trigger"][-1],
        "measured": {name: [journal[name][i] for i in measured] for name in watched},
        "journal": {
            name: journal[name] for name in ("loss", "spec_guard_hits", "projection_distance")
        },
    }


def _drop_missing(column: list[float | None]) -> list[float]:
    return [value for value in column if value is not None]


def ensure_trained(
    place: Path, settings: Settings, pools: Path, display: Display, device: str = "cpu"
) -> Path:
    """Return the folder of a finished run; a run that was not finished starts again."""
    if not _is_finished(place, settings):
        shutil.rmtree(place, ignore_errors=True)
        outcome = train(settings, place, device, pool=pools, display=display)
        if outcome.ending is Ending.INTERRUPTED:  # training ends in good order, and so must all
            raise KeyboardInterrupt
    return place


def _is_finished(place: Path, settings: Settings) -> bool:
    if not (place / RUN_FILE).is_file():
        return False
    run = _read_json(place / RUN_FILE)
    return run["ended"] in _ENDED_BY_ITSELF and read_settings(place) == settings


class SilentDisplay(Display):
    """A display that shows nothing and passes the number of steps on.

    Args:
        steps: Number of steps of the training.
        on_step: Called with the number of steps done; nothing is called if left out.
    """

    def __init__(self, steps: int, on_step: Callable[[int], object] | None = None) -> None:
        super().__init__(steps, every=math.inf)
        self._on_step = on_step

    def __enter__(self) -> Self:
        return self

    def update(self, step: int, **measured: float | None) -> None:
        """Pass the number of steps done to the callback."""
        if self._on_step is not None:
            self._on_step(step)


def _run_martingale_test(place: Path, settings: Settings, pools: Path) -> bool | None:
    """Return whether the randomised martingale test passes on held-out laws; None for baselines."""
    if getattr(settings, "model", "operator") != "operator":
        return None
    laws = load_pool(settings.pool, settings.pool_seed, pools, "cpu")
    others = load_pool(settings.held_out, settings.held_out_seed, pools, "cpu")
    leg, state, weights = run_folder.load(place)
    trainer = Trainer(settings, laws.laws)
    trainer.load(state, weights, leg.progress)
    exam = HeldOut(settings, others.laws, trainer.route.make_lesson)
    return bool(exam.run_martingale_test(trainer.network, seed=leg.step))


def plan_baseline(name: str, run: str, base: Settings) -> TrainingPlan:
    """Plan an unconstrained network with the operator's batches, steps and parameter count."""
    if not has_baselines() or "model" not in {f.name for f in fields(Settings)}:
        return TrainingPlan(
            run, "baseline", None, "arbiter_lab.baselines is not in this version of the package"
        )
    try:
        made = Settings.from_dict(base.to_dict() | {"model": BASELINES[name]})
    except ValueError as error:
        return TrainingPlan(run, "baseline", None, f"it cannot be trained: {error}")
    return TrainingPlan(run, "baseline", made)


def _read_json(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return found
