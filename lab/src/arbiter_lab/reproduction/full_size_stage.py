"""Stage ``checkpoints``: trains every network at full size with one budget; it needs a GPU."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from typing import Any

import torch

from arbiter_lab.protocol.manifest import sha256
from arbiter_lab.reproduction.models import write_checkpoint_manifest
from arbiter_lab.reproduction.profiles import BASELINES, MATCHED, Profile, full_networks
from arbiter_lab.reproduction.stages import Facts, StageContext
from arbiter_lab.reproduction.training_stage import (
    POOLS_FOLDER,
    SilentDisplay,
    TrainingPlan,
    describe_divergence,
    ensure_trained,
)
from arbiter_lab.training.run_folder import WEIGHTS_FILE


def list_full_trainings(profile: Profile) -> Iterator[TrainingPlan]:
    """Yield a plan for each network of `full_networks`; none if the profile has no full size."""
    if profile.full is None:
        return
    for name, settings in full_networks(profile.full, profile.ablations, profile.baselines).items():
        kind = "operator" if name == MATCHED else "ablation"
        yield TrainingPlan(name, "baseline" if name in BASELINES else kind, settings)


def make_checkpoints(context: StageContext) -> Facts:
    """Train every network, and write ``NAME.safetensors`` files with a manifest of checksums.

    A training that diverges is recorded with its reason and has no file; the others go on.
    """
    runs = list(list_full_trainings(context.profile))
    if not runs:
        return {"runs": {}, "reason": "this profile evaluates the checkpoints that are there"}
    device = "cuda" if torch.cuda.is_available() else "cpu"
    folder = context.checkpoints.folder
    folder.mkdir(parents=True, exist_ok=True)
    made: dict[str, Any] = {}
    for number, run in enumerate(runs):
        context.tell("checkpoints", number, len(runs))
        assert run.settings is not None
        on_step = _make_step_callback(context, run.name, run.settings.steps)
        display = SilentDisplay(run.settings.steps, on_step)
        pools = context.folder / POOLS_FOLDER
        try:
            place = ensure_trained(context.folder / run.name, run.settings, pools, display, device)
        except FloatingPointError as error:
            made[run.name] = {"kind": run.kind, **describe_divergence(error)}
            continue
        target = folder / f"{run.name}.safetensors"
        shutil.copyfile(next(place.glob(f"step-*/{WEIGHTS_FILE}")), target)
        made[run.name] = {"kind": run.kind, "sha256": sha256(target)}
    write_checkpoint_manifest(folder, [name for name, about in made.items() if "sha256" in about])
    context.tell("checkpoints", len(runs), len(runs))
    return {"runs": made, "reason": None}


def _make_step_callback(context: StageContext, name: str, steps: int) -> Callable[[int], None]:
    return lambda done: context.tell(name, done, steps)
