"""Processes made by fork: polars' threads stay in the parent, and a child would wait for ever.

Polars starts its threads with its first work. A process that is forked after that has none, and
whatever it asks of polars never returns. What needs polars calls :func:`require_polars` first.
"""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

_THREADS = Path("/proc/self/task")
_WORKER = re.compile(r"polars-\d|async-exec")  # names of threads that work; importing starts none
_state = {"at fork": False, "lost": False}


def require_polars() -> None:
    """Raise a ``RuntimeError`` in a process that was forked from one with polars' threads."""
    if _state["lost"]:
        raise RuntimeError(
            "this process was forked after polars had been used, and polars does not survive that: "
            "start processes with multiprocessing.get_context('spawn') or 'forkserver'"
        )


def _note_threads() -> None:
    _state["at fork"] = "polars" in sys.modules and _has_polars_threads()


def _has_polars_threads() -> bool:
    """Whether polars' threads run; where the system does not tell, whether they may."""
    try:
        names = [(task / "comm").read_text() for task in _THREADS.iterdir()]
    except OSError:
        return True
    return any(_WORKER.match(name) for name in names)


def _note_loss() -> None:
    _state["lost"] = _state["lost"] or _state["at fork"]


if hasattr(os, "register_at_fork"):  # not on Windows, which never forks
    os.register_at_fork(before=_note_threads, after_in_child=_note_loss)
