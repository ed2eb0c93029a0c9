"""``replicate.json``: on what machine, with which versions and seeds, and how long each stage took.

The only file of the results that holds times. It names no user, no host and no path.
"""

from __future__ import annotations

import json
import os
import platform
import re
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from importlib import metadata
from os import PathLike
from pathlib import Path
from typing import Any

from arbiter.files import require_version, write_whole

FORMAT, VERSION = "arbiter-replicate", 1
PACKAGE = "arbiter-lab"
ENVIRONMENT_VARIABLES = (
    "CUBLAS_WORKSPACE_CONFIG",
    "CUDA_VISIBLE_DEVICES",
    "MKL_NUM_THREADS",
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "POLARS_MAX_THREADS",
    "PYTHONHASHSEED",
)
"""Environment variables that affect determinism."""


@dataclass(frozen=True)
class StageTiming:
    """How one stage went.

    Attributes:
        seconds: Wall time of its last attempt.
        peak_memory_bytes: The most that the process had held when it ended; None where the system
            does not say.
        attempts: How often it was begun.
        finished: Whether it ended without an error.
    """

    seconds: float
    peak_memory_bytes: int | None
    attempts: int
    finished: bool


class StageTimer:
    """Times the stages of a run, over resumptions too.

    Args:
        earlier: Stages of an earlier, interrupted run, from :func:`read_replicate`.
        clock: Seconds that only grow.

    Example:
        >>> stages = Stages()
        >>> with stages.timed("simulate"):
        ...     pass
        >>> stages.first_try
        True
    """

    def __init__(
        self,
        earlier: Mapping[str, StageTiming] | None = None,
        *,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.done: dict[str, StageTiming] = dict(earlier or {})
        self._clock = clock

    @contextmanager
    def time_stage(self, name: str) -> Iterator[None]:
        """Time what happens inside; an error is counted as an attempt, and goes on."""
        before = self.done.get(name)
        attempts = 1 + (before.attempts if before is not None else 0)
        began = self._clock()
        finished = False
        try:
            yield
            finished = True
        finally:
            taken = self._clock() - began
            self.done[name] = StageTiming(taken, peak_memory(), attempts, finished)

    @property
    def first_try(self) -> bool:
        """Whether every stage was begun once and finished."""
        return bool(self.done) and all(s.finished and s.attempts == 1 for s in self.done.values())


def write_replicate(
    path: str | PathLike[str],
    stages: StageTimer,
    *,
    seeds: Mapping[str, int],
    splits: Sequence[Mapping[str, Any]] = (),
    protocol: Mapping[str, Any] | None = None,
) -> Path:
    """Write ``replicate.json``, whole or not at all.

    Args:
        path: The file.
        stages: Those that were timed.
        seeds: Every seed, by what it is for.
        splits: Folds, as :meth:`Fold.to_dict` gives them.
        protocol: What else fixes the evaluation: profile, levels, HAC settings.
    """
    whole = {
        "format": FORMAT,
        "version": VERSION,
        "first_try": stages.first_try,
        **describe_machine(),
        "seeds": dict(seeds),
        "splits": [dict(split) for split in splits],
        "protocol": dict(protocol or {}),
        "stages": {name: asdict(stage) for name, stage in stages.done.items()},
        "seconds": sum(stage.seconds for stage in stages.done.values()),
        "peak_memory_bytes": max(
            (stage.peak_memory_bytes or 0 for stage in stages.done.values()), default=0
        )
        or None,
    }
    try:
        text = json.dumps(whole, indent=1, ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"seeds, splits and protocol must be plain JSON values: {error}"
        ) from error
    return write_whole(path, text + "\n")


def read_replicate(path: str | PathLike[str]) -> dict[str, Any]:
    """The file again, its stages as :class:`Stage`.

    Raises:
        ValueError: If it is not such a file.
    """
    whole: Any = None
    with suppress(ValueError):
        whole = json.loads(Path(path).read_text(encoding="utf-8"))
    if not isinstance(whole, dict) or whole.get("format") != FORMAT:
        raise ValueError(f"{path} is no file of the format {FORMAT!r}: restore it, or remove it")
    require_version(path, whole.get("version"), VERSION, ValueError)
    try:
        whole["stages"] = {name: StageTiming(**stage) for name, stage in whole["stages"].items()}
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{path}: its stages cannot be read ({error}): remove it") from error
    return whole


def describe_machine() -> dict[str, Any]:
    """Hardware, system, versions and environment, as plain JSON values."""
    return {
        "hardware": {
            "cpu": _cpu(),
            "cores": os.cpu_count(),
            "memory_bytes": _memory(),
            "gpu": _gpus(),
        },
        "system": {
            "name": platform.system(),
            "release": platform.release(),
            "architecture": platform.machine(),
            "python": platform.python_version(),
            "compiler": platform.python_compiler(),
        },
        "packages": versions(),
        "environment": {name: os.environ.get(name) for name in ENVIRONMENT_VARIABLES},
    }


def versions() -> dict[str, str]:
    """Versions of this package and of all that it requires to run."""
    try:
        lines = metadata.requires(PACKAGE) or []
    except metadata.PackageNotFoundError:
        return {}
    required = [re.split(r"[^\w.-]", line, maxsplit=1)[0] for line in lines if "extra" not in line]
    found = {}
    for name in sorted([PACKAGE, *required]):
        with suppress(metadata.PackageNotFoundError):
            found[name] = metadata.version(name)
    return found


def peak_memory() -> int | None:
    """The most memory that this process and its ended children have held, in bytes."""
    try:
        import resource
    except ImportError:  # not a Unix system
        return None
    own, children = (
        resource.getrusage(who).ru_maxrss
        for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    )
    return int(max(own, children)) * (1 if sys.platform == "darwin" else 1024)


def _cpu() -> str:
    info = Path("/proc/cpuinfo")
    if info.is_file():
        names = re.findall(r"^model name\s*:\s*(.+)$", info.read_text(errors="replace"), re.M)
        if names:
            return str(names[0])
    return platform.processor() or platform.machine()


def _memory() -> int | None:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError, AttributeError):
        return None


def _gpus() -> list[dict[str, Any]]:
    """Graphics processors, with the libraries that drive them; torch is asked if it is there."""
    import torch

    if not torch.cuda.is_available():
        return []
    every = [torch.cuda.get_device_properties(i) for i in range(torch.cuda.device_count())]
    cuda = getattr(torch.version, "cuda", None)
    return [{"name": p.name, "memory_bytes": int(p.total_memory), "cuda": cuda} for p in every]
