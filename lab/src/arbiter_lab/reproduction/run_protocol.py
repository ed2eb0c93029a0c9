"""``reproduce``: runs every stage of the protocol and writes the results folder."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from os import PathLike
from pathlib import Path

import torch

from arbiter.files import require_folder
from arbiter_lab.protocol.machine import (
    REPLICATE_FILE,
    StageTimer,
    StageTiming,
    read_replicate,
    write_replicate,
)
from arbiter_lab.protocol.manifest import MANIFEST_FILE as MANIFEST
from arbiter_lab.protocol.manifest import write_manifest
from arbiter_lab.protocol.results_file import RESULTS_FILE
from arbiter_lab.reproduction import (
    evaluation_stage,
    external_stage,
    full_size_stage,
    metrics_stage,
    monitors_stage,
    scored_days,
    stress_stage,
    surface_stage,
    sweep_stage,
    training_stage,
)
from arbiter_lab.reproduction.display import Display
from arbiter_lab.reproduction.models import Checkpoints
from arbiter_lab.reproduction.profiles import Profile
from arbiter_lab.reproduction.result_files import write_all_results
from arbiter_lab.reproduction.stages import Stage, StageContext, run_stages
from arbiter_lab.reproduction.workers import default_workers

STAGES = (
    Stage(
        "days",
        (),
        ("market", "elsewhere", "days", "elsewhere_days", "seed", "blocks", "embargo"),
        scored_days.make_days,
    ),
    Stage(
        "train",
        (),
        ("small", "ablations", "baselines", "seeds", "rates", "budgets"),
        training_stage.make_trainings,
    ),
    Stage("checkpoints", (), ("full", "ablations", "baselines"), full_size_stage.make_checkpoints),
    Stage(
        "evaluate",
        ("days", "train"),
        ("judge_every", "methods", "checkpoints"),
        evaluation_stage.make_answers,
    ),
    Stage("measure", ("days", "evaluate"), ("blocks", "embargo"), metrics_stage.make_measures),
    Stage("sweeps", ("train", "evaluate", "measure"), ("series",), sweep_stage.make_sweeps),
    Stage(
        "stress",
        ("train",),
        (
            "market",
            "methods",
            "stress_axes",
            "stress_levels",
            "stress_cases",
            "stress_models",
            "checkpoints",
        ),
        stress_stage.make_stress,
    ),
    Stage(
        "external",
        ("days", "train"),
        ("methods", "elsewhere", "heston", "unseen", "chains", "checkpoints"),
        external_stage.make_external,
    ),
    Stage(
        "monitors",
        ("days", "train"),
        ("windows", "paths", "gap_windows", "seed", "checkpoints"),
        monitors_stage.make_monitors,
    ),
    Stage("portrait", ("days",), ("checkpoints",), surface_stage.make_portrait),
)
STAGE_NAMES = tuple(stage.name for stage in STAGES)


@dataclass(frozen=True)
class RunOutcome:
    """The outcome of a run of the protocol.

    Attributes:
        out: Folder of the results.
        ran: Names of the stages that ran now; the others were done already.
        complete: Whether results were written; False if the run was to end after a stage.
        missing: The reason of each missing model, by name.
    """

    out: Path
    ran: tuple[str, ...]
    complete: bool
    missing: dict[str, str]


def reproduce(
    profile: Profile,
    out: str | PathLike[str],
    *,
    checkpoints: Checkpoints | None = None,
    chains: Path | None = None,
    last: str | None = None,
    workers: int | None = None,
    display: Display | None = None,
) -> RunOutcome:
    """Run the stages that are not done, and write every result.

    Args:
        profile: Sizes of the run.
        out: Folder of the results; a run that was interrupted there is resumed.
        checkpoints: Networks at full size; those of the package if left out.
        chains: Folder of listed chains, for external validity.
        last: Name of a stage to end after; no results are written then.
        workers: Number of processes; one per processor if left out. Results do not depend on it.
        display: Display of the progress; none if left out.

    Raises:
        ValueError: If the folder cannot be used or holds results of another profile, or if
            ``last`` is not the name of a stage.
    """
    place = Path(out)
    require_folder(
        place, files=(RESULTS_FILE, REPLICATE_FILE, MANIFEST), folders=("stages", "figures")
    )
    clock = StageTimer(_read_earlier_stages(place, profile))
    # what a run trains at full size lies with its results
    own = Checkpoints() if profile.full is None else Checkpoints(place / "checkpoints")
    shown = display or Display(len(STAGES), silent=True)
    count = default_workers() if workers is None else workers
    if count < 1:
        raise ValueError(f"workers = {count}: give at least one")
    context = StageContext(place, profile, checkpoints or own, chains, shown.tell, count)
    place.mkdir(parents=True, exist_ok=True)
    with _hold_single_thread():
        try:
            ran = run_stages(context, STAGES, clock, last=last, watch=shown.announce_stage)
            if last is None:
                with clock.time_stage("results"):
                    write_all_results(context)
        finally:
            _write_replicate_record(context, clock)
    missing: dict[str, str] = {}
    if last is None:
        told = context.read_facts("evaluate")["models"]
        missing = {name: about["reason"] for name, about in told.items() if "reason" in about}
        command = f"arbiter reproduce --profile {profile.name}"
        write_manifest(place, commands=[command, *(f"{command} --stage {n}" for n in STAGE_NAMES)])
    return RunOutcome(place, tuple(ran), last is None, missing)


@contextmanager
def _hold_single_thread() -> Iterator[None]:
    """Run torch on one thread, so that sums have one order, and silence the library's log."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    log = logging.getLogger("arbiter")
    quiet = logging.NullHandler()
    log.addHandler(quiet)
    propagated, log.propagate = log.propagate, False
    try:
        yield
    finally:
        torch.set_num_threads(threads)
        log.removeHandler(quiet)
        log.propagate = propagated


def _read_earlier_stages(out: Path, profile: Profile) -> dict[str, StageTiming] | None:
    path = out / REPLICATE_FILE
    if not path.is_file():
        return None
    found = read_replicate(path)
    was = found.get("protocol", {}).get("profile", {}).get("name")
    if was != profile.name:
        raise ValueError(
            f"{out} holds a run of the profile {was!r}, not {profile.name!r}: name another folder"
        )
    stages: dict[str, StageTiming] = found["stages"]
    return stages


def _write_replicate_record(context: StageContext, clock: StageTimer) -> None:
    profile = context.profile
    folds = scored_days.make_folds(profile)
    seeds = {
        "timeline": profile.seed,
        "training": profile.small.seed,
        "pool": profile.small.pool_seed,
        "held_out": profile.small.held_out_seed,
        **{f"sweep_{i}": seed for i, seed in enumerate(profile.seeds)},
    }
    write_replicate(
        context.out / REPLICATE_FILE,
        clock,
        seeds=seeds,
        splits=[fold.to_dict() for fold in folds],
        protocol={
            "profile": profile.to_dict(),
            "intervals": {"method": metrics_stage.INTERVAL_METHOD, "level": 0.95},
            "intervals_beside": {
                "method": metrics_stage.PAPER_INTERVAL_METHOD,
                "c": 1.0,
                "level": 0.95,
            },
            "paired_tests": [metrics_stage.INTERVAL_METHOD, "sign flips"],
            "checkpoints": context.checkpoints.collect_checksums(),
        },
    )
