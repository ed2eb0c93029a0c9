"""Stage: every network at full size with one budget, for the profile that has hours and a GPU."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from typing import Any

import torch

from arbiter_lab.protocol.manifest import sha256
from arbiter_lab.reproduction.models import write_checkpoint_manifest
from arbiter_lab.reproduction.profiles import BASELINES, MATCHED, Profile, full_networks
from arbiter_lab.reproduction.stages import Facts, Workshop
from arbiter_lab.reproduction.training_stage import (
    POOLS_FOLDER,
    SilentDisplay,
    TrainingPlan,
    ensure_trained,
)

WEIGHTS_FILE = "weights.safetensors"


def list_full_trainings(profile: Profile) -> Iterator[TrainingPlan]:
    """Ablations and baselines with the settings of the profile's full size; none where it has none.

    `full_networks` says which.
    """
    if profile.full is None:
        return
    for name, settings in full_networks(profile.full, profile.ablations, profile.baselines).items():
        kind = "operator" if name == MATCHED else "ablation"
        yield TrainingPlan(name, "baseline" if name in BASELINES else kind, settings)


def make_checkpoints(workshop: Workshop) -> Facts:
    """Train, and leave ``NAME.safetensors`` with a manifest of checksums."""
    runs = list(list_full_trainings(workshop.profile))
    if not runs:
        return {"runs": {}, "reason": "this profile evaluates the checkpoints that are there"}
    device = "cuda" if torch.cuda.is_available() else "cpu"
    folder = workshop.checkpoints.folder
    folder.mkdir(parents=True, exist_ok=True)
    made: dict[str, Any] = {}
    for number, run in enumerate(runs):
        workshop.tell("checkpoints", number, len(runs))
        assert run.settings is not None
        heard = _make_step_callback(workshop, run.name, run.settings.steps)
        display = SilentDisplay(run.settings.steps, heard)
        pools = workshop.folder / POOLS_FOLDER
        place = ensure_trained(workshop.folder / run.name, run.settings, pools, display, device)
        target = folder / f"{run.name}.safetensors"
        shutil.copyfile(next(place.glob(f"step-*/{WEIGHTS_FILE}")), target)
        made[run.name] = {"kind": run.kind, "sha256": sha256(target)}
    write_checkpoint_manifest(folder, [name for name, about in made.items() if "sha256" in about])
    workshop.tell("checkpoints", len(runs), len(runs))
    return {"runs": made, "reason": None}


def _make_step_callback(workshop: Workshop, name: str, steps: int) -> Callable[[int], None]:
    return lambda done: workshop.tell(name, done, steps)
