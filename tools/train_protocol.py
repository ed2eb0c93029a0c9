"""Train every network of the protocol at full size: the operator, its ablations, the baselines.

Usage: python tools/train_protocol.py OUT [--device cuda] [--steps N] [--seconds S] [--only NAME …]
       python tools/train_protocol.py OUT --ship [FOLDER]

All have the settings of lab/src/arbiter_lab/reproduction/full.json, one pool of laws and as many
steps. With --seconds one that is slower ends its steps at the full rate when so much of its time is
gone as leaves the rest for the falling rate, so that it takes about that long in all; trained.json
says how many steps it had. The same command goes on where it stopped: finished networks are left
alone.
OUT holds little; pools are hundreds of megabytes, and --pool puts them elsewhere.
Needs PyTorch, NumPy, SciPy and safetensors alone; --ship, which puts the weights and their
checksums where `arbiter reproduce` looks for them, needs the whole package.
"""

from __future__ import annotations

import argparse
import gc
import json
import math
import shutil
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from arbiter.files import write_whole
from arbiter_lab.reproduction.profiles import full_networks, full_settings
from arbiter_lab.training.loop import Limits, TrainingOutcome, train
from arbiter_lab.training.pool_files import load_pool
from arbiter_lab.training.run_folder import RUN_FILE, read_settings
from arbiter_lab.training.settings import Settings
from arbiter_lab.training.stopping_rule import Ending

NETS = Path(__file__).resolve().parents[1] / "lab" / "src" / "arbiter_lab" / "nets"
LARGEST = 30_000_000  # bytes of all files together
RECORD = "trained.json"
_ENDED = (Ending.BUDGET, Ending.CONVERGED, Ending.PLATEAU)


def main(arguments: Sequence[str] | None = None) -> int:
    """Train, or ship; the exit code is 0, or 1 if a network diverged or the files are too large."""
    given = _parser().parse_args(arguments)
    if given.ship is not None:
        return ship(given.out, given.ship)
    settings = full_settings() if given.settings is None else Settings.read(given.settings)
    if given.steps is not None:
        settings = scaled(settings, given.steps)
    wanted = full_networks(settings)
    unknown = sorted(set(given.only or ()) - set(wanted))
    if unknown:
        raise SystemExit(f"--only {' '.join(unknown)}: give some of {', '.join(wanted)}")
    names = given.only or list(wanted)
    pool = given.pool or given.out / "pool"
    given.out.mkdir(parents=True, exist_ok=True)
    for count, seed in (
        (settings.pool, settings.pool_seed),
        (settings.held_out, settings.held_out_seed),
    ):
        load_pool(count, seed, pool, given.device)  # made once, on nobody's time
    for number, name in enumerate(names, start=1):
        print(f"{number} of {len(names)}: {name}", flush=True)
        entry = one(given.out, name, wanted[name], (given.device, pool, given.seconds))
        _enter(given.out, name, entry)
        print(f"  {json.dumps(entry)}", flush=True)
        gc.collect()
        if torch.cuda.is_available():  # recordings of the last network hold memory
            torch.cuda.empty_cache()
    return 1 if any("reason" in entry for entry in _record(given.out).values()) else 0


def one(out: Path, name: str, settings: Settings, how: tuple[str, Path, float]) -> dict[str, Any]:
    """Train one network, or what is left of it, and put its weights beside the others.

    Args:
        out: Folder of all.
        name: Of the network.
        settings: Of the network, with its steps in all.
        how: Device, folder of pools, seconds.
    """
    place, asked = out / "runs" / name, settings.to_dict()
    known = _record(out).get(name, {})
    if known.get("settings", asked) != asked:
        raise SystemExit(
            f"{place} was trained with other settings: name another folder, or remove it and its "
            f"entry in {RECORD}"
        )
    if "file" in known and (out / known["file"]).is_file():
        return known
    try:
        if not _finished(place):
            _train(place, settings, how)
    except FloatingPointError as error:
        return {"reason": f"its training diverged: {error}", "settings": asked}
    run = _run(place)
    source = place / run["checkpoint"] / "weights.safetensors"
    weights = Path(shutil.copyfile(source, out / f"{name}.safetensors"))
    shutil.rmtree(source.parent)  # the optimiser's state is several times as large
    return {
        "file": weights.name,
        "bytes": weights.stat().st_size,
        "steps": run["step"],
        "ended": run["ended"],
        "seconds": run["seconds"],
        "heldout_rmse_bp": run["metrics"].get("heldout_rmse_bp"),
        "settings": asked,
    }


def _train(place: Path, settings: Settings, how: tuple[str, Path, float]) -> None:
    device, pool, seconds = how
    begun = (place / RUN_FILE).is_file()
    if begun and read_settings(place).steps < settings.steps:  # it was cut short, and is falling
        _leg(read_settings(place), place, device, pool, math.inf)
        return
    share = settings.decay / settings.steps
    left = seconds * (1.0 - share) - (_run(place)["seconds"] if begun else 0.0)
    outcome = _leg(settings, place, device, pool, left)
    if outcome.ending is Ending.TIME:
        if outcome.step < settings.steps - settings.decay:
            settings = scaled(settings, math.ceil(outcome.step / (1.0 - share)), outcome.step)
        _leg(settings, place, device, pool, math.inf)


def _leg(
    settings: Settings, place: Path, device: str, pool: Path, seconds: float
) -> TrainingOutcome:
    limits = Limits(seconds=max(seconds, 0.0))
    begun = (place / RUN_FILE).is_file()
    outcome = train(settings, place, device, resume=begun, limits=limits, pool=pool)
    if outcome.ending is Ending.INTERRUPTED:
        raise KeyboardInterrupt
    return outcome


def scaled(settings: Settings, steps: int, before: int | None = None) -> Settings:
    """The same schedule over another number of steps.

    Args:
        settings: The schedule.
        steps: In all.
        before: Of these, how many come before the rate falls; in proportion if left out.
    """
    if before is None:
        before = steps - round(steps * settings.decay / settings.steps)
    return replace(settings, steps=max(steps, before + 1), decay=max(steps - before, 1))


def ship(out: Path, folder: Path) -> int:
    """Copy finished weights to where a reproduction looks for them, and write their checksums."""
    from arbiter_lab.reproduction.models import write_checkpoint_manifest

    made = {name: entry for name, entry in _record(out).items() if "file" in entry}
    size = sum(entry["bytes"] for entry in made.values())
    if size > LARGEST:
        print(f"{len(made)} files of {size:,} bytes: {LARGEST:,} are allowed in all")
        return 1
    folder.mkdir(parents=True, exist_ok=True)
    for entry in made.values():
        shutil.copyfile(out / entry["file"], folder / entry["file"])
    print(f"{len(made)} networks, {size:,} bytes: {write_checkpoint_manifest(folder, list(made))}")
    return 0


def _finished(place: Path) -> bool:
    if not (place / RUN_FILE).is_file():
        return False
    run = _run(place)
    return run["ended"] in _ENDED and run["step"] >= run["settings"]["steps"]


def _run(place: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((place / RUN_FILE).read_text(encoding="utf-8"))
    return found


def _record(out: Path) -> dict[str, dict[str, Any]]:
    path = out / RECORD
    if not path.is_file():
        return {}
    found: dict[str, dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))
    return found


def _enter(out: Path, name: str, entry: dict[str, Any]) -> None:
    write_whole(out / RECORD, json.dumps(_record(out) | {name: entry}, indent=1) + "\n")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("out", type=Path, help="folder of runs, weights and trained.json")
    parser.add_argument("--settings", type=Path, help="instead of reproduction/full.json")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--steps", type=int, help="of each, the schedule scaled with them")
    parser.add_argument("--seconds", type=float, default=math.inf, help="of each, about")
    parser.add_argument("--only", nargs="+", metavar="NAME", help="some of the networks")
    parser.add_argument("--pool", type=Path, help="folder of pools; OUT/pool if left out")
    parser.add_argument("--ship", type=Path, nargs="?", const=NETS, help="copy what is finished")
    return parser


if __name__ == "__main__":
    sys.exit(main())
