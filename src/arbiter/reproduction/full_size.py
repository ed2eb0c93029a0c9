"""Stage: every network at full size with one budget, for the profile that has hours and a GPU."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from typing import Any

import torch

from arbiter.protocol.manifest import sha256
from arbiter.reproduction.models import MATCHED, write_checkpoints
from arbiter.reproduction.profiles import Profile
from arbiter.reproduction.stages import Facts, Workshop
from arbiter.reproduction.training import POOLS, Silent, Training, baseline, trained

WEIGHTS = "weights.safetensors"


def full_trainings(profile: Profile) -> Iterator[Training]:
    """Ablations and baselines with the settings of the profile's full size; none where it has none.

    The base is among them under the name `MATCHED`: the shipped operator was trained for longer,
    and what a part is worth is told by runs of one budget only.
    """
    if profile.full is None:
        return
    yield Training(MATCHED, "operator", profile.full)
    for name in profile.ablations:
        yield Training(name, "ablation", profile.full.ablated(name))
    for name in profile.baselines:
        yield baseline(name, name, profile.full)


def make_checkpoints(workshop: Workshop) -> Facts:
    """Train, and leave ``NAME.safetensors`` with a manifest of checksums."""
    runs = list(full_trainings(workshop.profile))
    if not runs:
        return {"runs": {}, "reason": "this profile evaluates the checkpoints that are there"}
    device = "cuda" if torch.cuda.is_available() else "cpu"
    folder = workshop.checkpoints.folder
    folder.mkdir(parents=True, exist_ok=True)
    made: dict[str, Any] = {}
    for number, run in enumerate(runs):
        workshop.tell("checkpoints", number, len(runs))
        if run.settings is None:
            made[run.name] = {"kind": run.kind, "reason": run.reason}
            continue
        heard = _heard(workshop, run.name, run.settings.steps)
        display = Silent(run.settings.steps, heard)
        pools = workshop.folder / POOLS
        place = trained(workshop.folder / run.name, run.settings, pools, display, device)
        target = folder / f"{run.name}.safetensors"
        shutil.copyfile(next(place.glob(f"step-*/{WEIGHTS}")), target)
        made[run.name] = {"kind": run.kind, "sha256": sha256(target)}
    write_checkpoints(folder, [name for name, about in made.items() if "sha256" in about])
    workshop.tell("checkpoints", len(runs), len(runs))
    return {"runs": made, "reason": None}


def _heard(workshop: Workshop, name: str, steps: int) -> Callable[[int], None]:
    return lambda done: workshop.tell(name, done, steps)
