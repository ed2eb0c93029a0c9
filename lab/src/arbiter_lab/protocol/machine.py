"""``replicate.json``: machine, package versions, seeds, and the wall time of each stage.

It is the only file of the results that holds times. It names no user, no host and no path.
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

REPLICATE_FILE = "replicate.json"
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
    """Time and memory of one stage.

    Attributes:
        seconds: Wall time of the last attempt.
        peak_memory_bytes: Peak resident memory of the process at the end of the stage; None where
            the system does not report it.
        attempts: How often the stage was started.
        finished: Whether the last attempt ended without an error.
    """

    seconds: float
    peak_memory_bytes: int | None
    attempts: int
    finished: bool


class StageTimer:
    """Times the stages of a run, also when it is resumed.

    Args:
        earlier: Timings of an earlier, interrupted run, from :func:`read_replicate`.
        clock: A monotonic clock, in seconds.

    Example:
        >>> stages = StageTimer()
        >>> with stages.time_stage("simulate"):
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
        """Time the body of a ``with`` statement; a body that raises counts as an attempt."""
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
        """Whether every stage was started once and finished."""
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
        path: The file to write.
        stages: The timer of the run.
        seeds: Every seed, by its purpose.
        splits: Folds, as returned by :meth:`Fold.to_dict`.
        protocol: Other settings of the evaluation: profile, confidence levels, HAC settings.
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
    """Read ``replicate.json``; its stages become :class:`StageTiming`.

    Raises:
        ValueError: If the file has another format.
    """
    whole: object = None
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
    """Return hardware, system, package versions and environment as plain JSON values."""
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
    """Return installed versions of this package and of its requirements."""
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
    """Return the peak resident memory of this process and of its ended children, in bytes."""
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
    """Return name, memory and CUDA version of each GPU; an empty list without torch or a GPU."""
    try:
        import torch
    except ImportError:
        return []
    if not torch.cuda.is_available():
        return []
    every = [torch.cuda.get_device_properties(i) for i in range(torch.cuda.device_count())]
    cuda = getattr(torch.version, "cuda", None)
    return [{"name": p.name, "memory_bytes": int(p.total_memory), "cuda": cuda} for p in every]
