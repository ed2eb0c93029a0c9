"""A run on disk: checkpoints from which training is resumed bit for bit.

    run.json                    settings, step, ending, metrics, and which checkpoint is the last
    step-0005000/
      weights.safetensors       averaged parameters, as shipped
      state-1.safetensors …     parameters and optimiser, in files of at most 15 MB
    steps.jsonl                 the journal
    sweeps.csv, sweeps.sqlite   the ledger, a row for each leg

A checkpoint is a new folder, and ``run.json`` names it only when it is complete: a run that is
killed while it writes is resumed from the one before.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import Any

from torch import Tensor

from arbiter.files import write_whole
from arbiter.operators.checkpoint import CheckpointError
from arbiter.values import (
    is_number,
    require_integer,
    require_known_keys,
    require_text,
    shorten_repr,
)
from arbiter_lab.differentiable.operators import checkpoint
from arbiter_lab.training.settings import Settings

RUN_FILE = "run.json"
WEIGHTS_FILE = "weights.safetensors"
JOURNAL_FILE = "steps.jsonl"
FORMAT = "arbiter-run"
MAX_FILE_BYTES = 15_000_000  # bytes of a file

_REMEDY = "restore the file, or start a run in another folder"
_MAX_COUNT = 10**12  # steps, or files
_PROGRESS_KEYS = ("taken", "rule", "plateau", "representer")


@dataclass
class TrainingLeg:
    """The state of a run besides its tensors.

    Attributes:
        settings: Settings of the last leg.
        step: Steps done.
        seconds: Training time over all legs.
        progress: Counters that the next steps depend on: batches, stopping rule, plateau.
        data: First step and pool of each leg.
        metrics: Last measures on held-out laws.
        revision: Revision of the code of the last leg.
        ended: Why the last leg ended; empty while it runs.
        begun: Hash of the weights that the first leg began with; empty if with none.
    """

    settings: Settings
    step: int = 0
    seconds: float = 0.0
    progress: dict[str, Any] = field(default_factory=dict)
    data: list[dict[str, Any]] = field(default_factory=list)
    metrics: dict[str, Any] = field(default_factory=dict)
    revision: str = ""
    ended: str = ""
    begun: str = ""

    @property
    def data_hash(self) -> str:
        """Hash of the pool of the last leg."""
        return str(self.data[-1]["content"]) if self.data else ""


def save(
    folder: str | PathLike[str],
    leg: TrainingLeg,
    state: Mapping[str, Tensor],
    weights: Mapping[str, Tensor],
) -> Path:
    """Write a checkpoint, then name it in ``run.json``, then remove the one before.

    Returns:
        The file of weights.
    """
    folder = Path(folder)
    name = f"step-{leg.step:07d}"
    place = folder / name
    place.mkdir(parents=True, exist_ok=True)
    about = {
        "data_hash": leg.data_hash,
        "seed": leg.settings.seed,
        "revision": leg.revision,
        "metrics": leg.metrics,
        "step": leg.step,
    }
    training = leg.settings.to_dict()
    config, law, design = training.pop("config"), training.pop("law"), leg.settings.design
    if leg.settings.model == "law":
        config = law
    elif design is not None:
        config = design.to_dict()
    card = {**about, "config": config, "training": training, "ended": leg.ended, "begun": leg.begun}
    path = checkpoint.save(place / WEIGHTS_FILE, weights, card)
    parts = _split_tensors(state)
    for number, part in enumerate(parts, start=1):
        info = {**about, "config": leg.settings.to_dict(), "part": number, "parts": len(parts)}
        checkpoint.save(place / f"state-{number}.safetensors", part, info)
    run = {
        "format": FORMAT,
        "version": 1,
        "checkpoint": name,
        "parts": len(parts),
        "step": leg.step,
        "ended": leg.ended,
        "begun": leg.begun,
        "seconds": round(leg.seconds, 3),
        "settings": leg.settings.to_dict(),
        "progress": leg.progress,
        "data": leg.data,
        "revision": leg.revision,
        "metrics": leg.metrics,
    }
    write_whole(folder / RUN_FILE, json.dumps(run, indent=1, allow_nan=False) + "\n")
    for old in folder.glob("step-*"):
        if old.name != name and old.is_dir():
            shutil.rmtree(old)
    return path


def load(folder: str | PathLike[str]) -> tuple[TrainingLeg, dict[str, Tensor], dict[str, Tensor]]:
    """Read the last checkpoint: the leg, the optimiser's state and the averaged weights.

    Raises:
        CheckpointError: If the folder holds no run, or one whose files do not belong together.
    """
    folder = Path(folder)
    run = _read_run(folder)
    leg = _parse_leg(folder, run)
    place = folder / run["checkpoint"]
    state: dict[str, Tensor] = {}
    try:
        weights, about = checkpoint.load(place / WEIGHTS_FILE)
        found = [about]
        for number in range(1, run["parts"] + 1):
            part, about = checkpoint.load(place / f"state-{number}.safetensors")
            state |= part
            found.append(about)
    except FileNotFoundError as error:
        raise CheckpointError(
            f"{error.filename} is missing: {folder / RUN_FILE} names it; restore the folder"
        ) from error
    if any(about.get("step") != leg.step for about in found):
        raise CheckpointError(
            f"{place}: its files are of different steps, {[a.get('step') for a in found]}, and "
            f"{RUN_FILE} says {leg.step}: restore the folder"
        )
    if any(
        _network_settings(about.get("config")) != _network_settings(run["settings"])
        for about in found[1:]
    ):
        raise CheckpointError(
            f"{place}: its files are of another network than the settings of {folder / RUN_FILE}: "
            "restore the folder"
        )
    return leg, state, weights


def read_settings(folder: str | PathLike[str]) -> Settings:
    """Read the settings of the run in a folder.

    Raises:
        CheckpointError: If the folder holds no run, or one without settings.
    """
    folder = Path(folder)
    return _parse_settings(folder, _read_run(folder))


def _read_run(folder: Path) -> dict[str, Any]:
    try:
        run = json.loads((folder / RUN_FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise CheckpointError(
            f"{folder} holds no run to resume ({error}): start one there without resuming"
        ) from error
    if not isinstance(run, dict) or run.get("format") != FORMAT or run.get("version") != 1:
        raise CheckpointError(
            f"{folder / RUN_FILE} is not a run of this version: name another folder"
        )
    return run


def _parse_settings(folder: Path, run: Mapping[str, Any]) -> Settings:
    try:
        return Settings.from_dict(run.get("settings"))
    except ValueError as error:
        raise CheckpointError(f"{folder / RUN_FILE}: {error}; {_REMEDY}") from error


def _parse_leg(folder: Path, run: Mapping[str, Any]) -> TrainingLeg:
    settings = _parse_settings(folder, run)
    try:
        _check_run(run, settings)
    except ValueError as error:
        raise CheckpointError(f"{folder / RUN_FILE}: {error}; {_REMEDY}") from error
    return TrainingLeg(
        settings,
        **{name: run[name] for name in ("step", "seconds", "progress", "data", "metrics")},
        revision=run["revision"],
        ended=run["ended"],
        begun=run.get("begun", ""),
    )


def _check_run(run: Mapping[str, Any], settings: Settings) -> None:
    """Refuse a run that cannot be resumed.

    Raises:
        ValueError: Names the value.
    """
    for name in ("parts", "step"):
        require_integer(name, run.get(name), 0, _MAX_COUNT)
    for name in ("checkpoint", "revision", "ended"):
        require_text(name, run.get(name))
    require_text("begun", run.get("begun", ""))
    if not re.fullmatch(r"step-\d+", run["checkpoint"]):
        raise _wrong_value("checkpoint", run["checkpoint"], "the name of a folder, step-…")
    if not is_number(run.get("seconds")):
        raise _wrong_value("seconds", run.get("seconds"), "a number")
    if not isinstance(run.get("metrics"), dict):
        raise _wrong_value("metrics", run.get("metrics"), "an object of values by name")
    data = run.get("data")
    if not isinstance(data, list) or not all(
        isinstance(pool, dict) and {"origin", "content"} <= pool.keys() for pool in data
    ):
        raise _wrong_value("data", data, "a list of pools, each with origin and content")
    progress = require_known_keys("progress", run.get("progress"), _PROGRESS_KEYS)
    taken, rule, best, entered = map(progress.get, _PROGRESS_KEYS)
    if not isinstance(taken, list) or [type(n) for n in taken] != [int] * len(settings.layouts):
        raise _wrong_value("progress: taken", taken, "a count of batches for every layout")
    if not isinstance(rule, dict) or not all(x is None or is_number(x) for x in rule.values()):
        raise _wrong_value("progress: rule", rule, "an object of numbers by name")
    if not isinstance(best, list) or not all(map(_is_pair, best)):
        raise _wrong_value("progress: plateau", best, "a list of pairs of numbers")
    there = "representer" in progress or settings.model != "operator"
    if not there or not (entered is None or _is_pair(entered)):
        raise _wrong_value("progress: representer", entered, "a step and a coverage, or null")


def _wrong_value(name: str, value: object, wanted: str) -> ValueError:
    return ValueError(f"{name} = {shorten_repr(value)} must be {wanted}")


def _is_pair(found: object) -> bool:
    return isinstance(found, list) and len(found) == 2 and all(map(is_number, found))


def _network_settings(settings: object) -> object:
    """Return the settings that determine the shapes of a run's tensors."""
    if not isinstance(settings, dict):
        return None
    return settings.get("config"), settings.get("law"), settings.get("model", "operator")


def _split_tensors(tensors: Mapping[str, Tensor]) -> list[dict[str, Tensor]]:
    """Split tensors, in order, into files of at most ``MAX_FILE_BYTES``."""
    parts: list[dict[str, Tensor]] = [{}]
    room = MAX_FILE_BYTES
    for name, tensor in tensors.items():
        size = tensor.numel() * tensor.element_size()
        if size > room and parts[-1]:
            parts.append({})
            room = MAX_FILE_BYTES
        parts[-1][name] = tensor
        room -= size
    return parts
