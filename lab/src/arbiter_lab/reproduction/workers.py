"""Independent parts of a stage, several at a time: each gives what it would give alone."""

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
"""Processes at the most; each holds about a gigabyte."""
_PARENT_CHECK_SECONDS = 2.0  # seconds between looks at whether the parent lives


def default_workers() -> int:
    """One for each processor that this process may use."""
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return max(1, min(allowed or 1, MAX_WORKERS))


def run_in_order(
    work: Callable[..., Any],
    parts: Sequence[tuple[Any, ...]],
    workers: int,
    tell: Callable[[int], object],
) -> list[Any]:
    """Results of ``work(*part)``, in the order of the parts.

    Args:
        work: A function of a module; what it is given and gives back can be sent to a process.
        parts: Its arguments.
        workers: How many at a time; one works here, without another process.
        tell: Hears how many are done.
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
    """One thread: the workers are the parallelism, and sums are in one order."""
    import torch

    threading.Thread(target=_exit_when_orphaned, args=(parent,), daemon=True).start()
    torch.set_num_threads(1)
    log = logging.getLogger("arbiter")
    log.addHandler(logging.NullHandler())
    log.propagate = False


def _exit_when_orphaned(parent: int) -> None:
    """End with the process that asked for the work: a killed one cannot say that it is over."""
    while os.getppid() == parent:
        time.sleep(_PARENT_CHECK_SECONDS)
    os._exit(1)
