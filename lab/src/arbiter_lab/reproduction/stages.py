"""Stages of the protocol with inputs and outputs on disk; finished stages are skipped.

A stage is done if it has a record, the hash of its inputs has not changed, and its outputs are as
they were written. Its inputs are the code that computes, its part of the profile, and the outputs
of the stages it needs.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple

from arbiter.files import remove_partial_files, write_whole
from arbiter_lab.protocol.machine import StageTimer
from arbiter_lab.protocol.manifest import sha256
from arbiter_lab.reproduction.models import Checkpoints
from arbiter_lab.reproduction.profiles import Profile

Facts = dict[str, Any]
ProgressCallback = Callable[[str, int, int], None]

CACHE_FOLDER = ".cache"
# folders and modules that show results and compute none
_PRESENTATION_FOLDERS = ("cli", "report")
_PRESENTATION_MODULES = (
    "check_results.py", "claims.py", "display.py", "figures.py", "headlines.py",
    "kept_run.py", "number_format.py", "page.py", "paper_page.py", "paper_tables.py",
    "publication.py", "result_files.py", "result_records.py", "stated_claims.py",
    "surface_figures.py", "tables.py", "text_tables.py", "verdicts.py",
)  # fmt: skip


@dataclass(frozen=True)
class StageContext:
    """Inputs that every stage receives.

    Attributes:
        out: Folder of the results.
        profile: Sizes of the run.
        checkpoints: Networks trained at full size, where available.
        chains: Folder of listed chains; None without one.
        tell: Progress callback: a name, how many are done, and how many there are.
        workers: Number of processes.
        key: Hash of the stage's inputs; it names the folder of the stage.
        name: Name of the running stage.
    """

    out: Path
    profile: Profile
    checkpoints: Checkpoints
    chains: Path | None
    tell: ProgressCallback
    workers: int = 1
    key: str = ""
    name: str = ""

    @property
    def folder(self) -> Path:
        """Cache folder of the running stage, for large files; created if absent."""
        place = self.out / CACHE_FOLDER / self.name / self.key[:16]
        place.mkdir(parents=True, exist_ok=True)
        return place

    def read_facts(self, stage: str) -> Facts:
        """Return the facts of an earlier stage."""
        found: Facts = json.loads(facts_path(self.out, stage).read_text(encoding="utf-8"))
        return found

    def folder_of(self, stage: str) -> Path:
        """Return the cache folder of an earlier stage."""
        record = read_record(self.out, stage)
        assert record is not None, stage
        return self.out / CACHE_FOLDER / stage / str(record["inputs"])[:16]


class Stage(NamedTuple):
    """A stage of the protocol.

    Attributes:
        name: Name of the stage; its facts are in ``stages/NAME.json``.
        needs: Stages whose facts or folders it reads.
        sizes: Fields of the profile that it depends on; ``checkpoints`` and ``chains`` stand for
            those inputs of the context.
        make: Computes the facts: plain JSON values without times.
    """

    name: str
    needs: tuple[str, ...]
    sizes: tuple[str, ...]
    make: Callable[[StageContext], Facts]


def run_stages(
    context: StageContext,
    stages: Sequence[Stage],
    clock: StageTimer,
    *,
    last: str | None = None,
    watch: Callable[[str, bool], None] | None = None,
) -> list[str]:
    """Run the stages that are not done, in order.

    Args:
        context: Inputs of the stages.
        stages: The stages, each after those it needs.
        clock: Timer of the stages.
        last: Name of the stage to end after; all run if left out.
        watch: Called before each stage with its name and whether it was done already.

    Returns:
        Names of the stages that ran.

    Raises:
        ValueError: If ``last`` is not the name of a stage.
    """
    names = [stage.name for stage in stages]
    if last is not None and last not in names:
        raise ValueError(f"stage {last!r} is not one of {', '.join(names)}")
    ran = []
    for stage in stages[: names.index(last) + 1 if last is not None else None]:
        key = inputs_hash(context, stage)
        done = is_done(context.out, stage.name, key)
        if watch is not None:
            watch(stage.name, done)
        if done:
            continue
        own = replace(context, key=key, name=stage.name)
        remove_partial_files(own.folder)
        with clock.time_stage(stage.name):
            facts = stage.make(own)
        write_stage(context.out, stage.name, key, facts)
        ran.append(stage.name)
    return ran


def inputs_hash(context: StageContext, stage: Stage) -> str:
    """Return the hash of all inputs of a stage."""
    sizes = context.profile.to_dict()
    before = {}
    for need in stage.needs:
        record = read_record(context.out, need)
        before[need] = None if record is None else record["outputs"]
    whole = {
        "stage": stage.name,
        "code": code_hash(),
        "sizes": {name: sizes[name] for name in stage.sizes if name in sizes},
        "checkpoints": context.checkpoints.collect_checksums()
        if "checkpoints" in stage.sizes
        else None,
        "chains": chains_hash(context.chains) if "chains" in stage.sizes else None,
        "before": before,
    }
    text = json.dumps(whole, sort_keys=True, allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


def is_done(out: Path, name: str, key: str) -> bool:
    """Return whether a stage ended with these inputs and its facts are unchanged."""
    record = read_record(out, name)
    if record is None or record["inputs"] != key:
        return False
    path = facts_path(out, name)
    return path.is_file() and sha256(path) == record["outputs"][path.name]


def write_stage(out: Path, name: str, key: str, facts: Mapping[str, Any]) -> None:
    """Write the facts of a stage, and then the record that it is done."""
    path = facts_path(out, name)
    path.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps(to_json_values(facts), indent=1, ensure_ascii=False, allow_nan=False)
    write_whole(path, text + "\n")
    record = {"inputs": key, "outputs": {path.name: sha256(path)}}
    place = _record_path(out, name)
    place.parent.mkdir(parents=True, exist_ok=True)
    write_whole(place, json.dumps(record, indent=1) + "\n")


def read_record(out: Path, name: str) -> dict[str, Any] | None:
    """Return the record of a finished stage; None if it is missing or unreadable."""
    try:
        found = json.loads(_record_path(out, name).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    sound = isinstance(found, dict) and {"inputs", "outputs"} <= found.keys()
    return found if sound else None


def facts_path(out: Path, name: str) -> Path:
    """Return the path of the facts of a stage."""
    return out / "stages" / f"{name}.json"


def to_json_values(value: Any) -> Any:
    """Return plain JSON values: NumPy numbers and arrays converted, NaN and infinity as null."""
    if isinstance(value, Mapping):
        return {str(key): to_json_values(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [to_json_values(inner) for inner in value]
    if hasattr(value, "tolist"):
        return to_json_values(value.tolist())
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


@lru_cache(maxsize=1)
def code_hash() -> str:
    """Return the hash of the modules of library and lab that compute; those that show are left out.

    Weights are not part of it: stages that use networks depend on their checksums.
    """
    digest = hashlib.sha256()
    for package in ("arbiter", "arbiter_lab"):
        root = Path(str(files(package)))
        for path in sorted(root.rglob("*")):
            inside = path.relative_to(root)
            if inside.parts[0] in _PRESENTATION_FOLDERS or path.suffix not in (".py", ".npy"):
                continue
            if inside.parts[0] == "reproduction" and inside.name in _PRESENTATION_MODULES:
                continue
            name = f"{package}/{inside.as_posix()}"
            digest.update(name.encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()


@lru_cache(maxsize=4)
def chains_hash(folder: Path | None) -> str | None:
    """Return the hash of the names and sizes of the files of a folder; None without a folder."""
    if folder is None:
        return None
    listed = sorted((p.name, p.stat().st_size) for p in folder.iterdir() if p.is_file())
    return hashlib.sha256(json.dumps(listed).encode()).hexdigest()


def _record_path(out: Path, name: str) -> Path:
    return out / CACHE_FOLDER / "done" / f"{name}.json"
