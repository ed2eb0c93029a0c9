"""Hostile cases by the thousand, judged in a process of their own whose memory is measured.

A case may end with a result, or with a ``ValueError`` or ``OSError`` that has a sentence. Anything
else is a finding: another exception, a wrong result, a minute without an answer, more than 1 GB.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
import traceback
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

TESTS = Path(__file__).parent
MOST_BYTES = 10**9
MOST_SECONDS = 60  # for one case
_MOST_ADDRESSES = 16 * 2**30  # bytes: stops a process that runs away before the machine does


class Hang(BaseException):
    """A case took too long; no handler of errors catches it."""


Judge = Callable[[int, Path], str]


def child_environment() -> dict[str, str]:
    """The environment of a process that imports the vocabulary of the tests."""
    path = os.pathsep.join([str(TESTS), os.environ.get("PYTHONPATH", "")])
    return {**os.environ, "PYTHONPATH": path, "POLARS_MAX_THREADS": "1"}


def measure_peak() -> int:
    """The most memory that this process has taken, in bytes.

    On Linux from its own record: the usage that the system reports begins with the parent's.
    """
    status = Path("/proc/self/status")
    if status.exists():
        rows = dict(line.split(":", 1) for line in status.read_text().splitlines())
        return 1024 * int(rows["VmHWM"].split()[0])
    used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return used * (1 if sys.platform == "darwin" else 1024)


def judge(name: str, count: int, folder: Path, first: int = 0) -> dict[str, Any]:
    """Run ``count`` cases of ``judges.<name>`` in a child; its counts, findings and memory."""
    child = subprocess.run(
        [
            sys.executable,
            str(TESTS / "hostile_cases.py"),
            name,
            str(first),
            str(count),
            str(folder),
        ],
        capture_output=True,
        text=True,
        env=child_environment(),
        check=False,
    )
    if child.returncode != 0:
        return {"findings": [f"exit code {child.returncode}: {child.stderr[-2000:]}"], "counts": {}}
    found: dict[str, Any] = json.loads(child.stdout.splitlines()[-1])
    return found


def require_clean(found: dict[str, Any]) -> None:
    """Fail with the first findings, or where too much memory was taken."""
    assert found["findings"][:3] == []
    assert found["bytes"] < MOST_BYTES, f"{found['bytes'] / 1e6:,.0f} MB"


def _raise_hang(_: int, __: FrameType | None) -> None:
    raise Hang


def _run(judge_one: Judge, first: int, count: int, folder: Path) -> dict[str, Any]:
    signal.signal(signal.SIGALRM, _raise_hang)
    counts: Counter[str] = Counter()
    findings = []
    for seed in range(first, first + count):
        signal.alarm(MOST_SECONDS)
        try:
            counts[judge_one(seed, folder)] += 1
        except (ValueError, OSError) as error:
            counts["refused"] += 1
            if len(str(error)) < 10:
                findings.append(f"seed {seed}: no sentence, {error!r}")
        except Hang:
            findings.append(f"seed {seed}: more than {MOST_SECONDS} seconds")
        except BaseException:  # noqa: BLE001 - a panic of a compiled library is no Exception
            findings.append(f"seed {seed}: {traceback.format_exc()[-1500:]}")
        finally:
            signal.alarm(0)
    return {
        "counts": dict(counts),
        "findings": findings,
        "bytes": measure_peak(),
    }


def main() -> None:
    import hostile_judges

    name, first, count, folder = sys.argv[1:]
    resource.setrlimit(resource.RLIMIT_AS, (_MOST_ADDRESSES, _MOST_ADDRESSES))
    found = _run(getattr(hostile_judges, name), int(first), int(count), Path(folder))
    print(json.dumps(found))


if __name__ == "__main__":
    main()
