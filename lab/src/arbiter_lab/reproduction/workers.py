"""Runs the independent parts of a stage in several processes; results do not depend on them."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from multiprocessing import get_context
from typing import Any

MAX_WORKERS = 8
"""Largest number of processes; each takes about a gigabyte."""
_PARENT_CHECK_SECONDS = 2.0  # seconds between checks that the parent process is alive


def default_workers() -> int:
    """Return the number of processors that this process may use, at most ``MAX_WORKERS``."""
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return max(1, min(allowed or 1, MAX_WORKERS))


def run_in_order(
    work: Callable[..., Any],
    parts: Sequence[tuple[Any, ...]],
    workers: int,
    tell: Callable[[int], object],
) -> list[Any]:
    """Return the results of ``work(*part)``, in the order of the parts.

    Args:
        work: A module-level function; its arguments and result can be pickled.
        parts: Arguments of each call.
        workers: Number of processes; one runs in this process.
        tell: Called with the number of parts done.
    """
    tell(0)
    if workers <= 1 or len(parts) <= 1:
        found = []
        for part in parts:
            found.append(work(*part))
            tell(len(found))
        return found
    # started anew, not forked: threads of libraries do not survive a fork
    pool = ProcessPoolExecutor(
        min(workers, len(parts)),
        mp_context=get_context("spawn"),
        initializer=_prepare_worker,
        initargs=(os.getpid(),),
    )
    try:
        tasks = [pool.submit(work, *part) for part in parts]
        for done in _count_finished(tasks):
            tell(done)
        return [task.result() for task in tasks]
    finally:
        # after an error what waits is not begun; what runs is waited for
        pool.shutdown(wait=True, cancel_futures=True)


def _count_finished(tasks: list[Future[Any]]) -> Iterator[int]:
    left = set(tasks)
    while left:
        done, left = wait(left, return_when=FIRST_COMPLETED)
        for task in done:
            task.result()  # an error ends it all
        yield len(tasks) - len(left)


def _prepare_worker(parent: int) -> None:
    """Set a worker to one thread, so that sums have one order, and silence the library's log."""
    import torch

    threading.Thread(target=_exit_when_orphaned, args=(parent,), daemon=True).start()
    torch.set_num_threads(1)
    log = logging.getLogger("arbiter")
    log.addHandler(logging.NullHandler())
    log.propagate = False


def _exit_when_orphaned(parent: int) -> None:
    """End the worker when its parent process is gone: a killed parent sends no message."""
    while os.getppid() == parent:
        time.sleep(_PARENT_CHECK_SECONDS)
    os._exit(1)
