"""Independent parts of a stage, several at a time: each gives what it would give alone."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from multiprocessing import get_context
from typing import Any

MOST = 8
"""Processes at the most; each holds about a gigabyte."""


def default_workers() -> int:
    """One for each processor that this process may use."""
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return max(1, min(allowed or 1, MOST))


def in_order(
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
    with ProcessPoolExecutor(
        min(workers, len(parts)), mp_context=get_context("spawn"), initializer=_alone
    ) as pool:
        tasks = [pool.submit(work, *part) for part in parts]
        try:
            for done in _counted(tasks):
                tell(done)
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
        return [task.result() for task in tasks]


def _counted(tasks: list[Future[Any]]) -> Iterator[int]:
    left = set(tasks)
    while left:
        done, left = wait(left, return_when=FIRST_COMPLETED)
        for task in done:
            task.result()  # an error ends it all
        yield len(tasks) - len(left)


def _alone() -> None:
    """One thread: the workers are the parallelism, and sums are in one order."""
    import logging

    import torch

    torch.set_num_threads(1)
    log = logging.getLogger("arbiter")
    log.addHandler(logging.NullHandler())
    log.propagate = False
