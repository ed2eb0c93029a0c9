"""Threads of our own, each on one processor.

Chains are independent: whole batches of them are computed side by side, and every thread computes
by itself. A library that splits single operations among processors would wait for all of them
hundreds of times in a pass, and on a busy machine each wait can last a time slice.

A pass fills some ten megabytes, frees them and fills them again. An allocator that hands them back
to the system each time has every page cleared anew, which took up to a fifth of a pass:
:func:`keep_memory`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from threading import Lock, local
from typing import TypeVar

import numpy as np

Given = TypeVar("Given")
Found = TypeVar("Found")
_KEPT_BYTES = 31 << 20  # bytes; glibc learns up to 32 MiB
_MAX_THREADS = 8  # the interpreter is shared, and more than these would wait for it
_pool_lock, _thread_state = Lock(), local()


def count_threads() -> int:
    """Threads to compute with, up to eight: ``OMP_NUM_THREADS``, else one for each processor."""
    asked = os.environ.get("OMP_NUM_THREADS", "").split(",")[0].strip()
    if asked.isdecimal() and int(asked) > 0:
        return min(int(asked), _MAX_THREADS)
    affinity = getattr(os, "sched_getaffinity", None)  # Linux has it
    return min(len(affinity(0)) if affinity else os.cpu_count() or 1, _MAX_THREADS)


def map_in_threads(
    f: Callable[[Given], Found], given: Sequence[Given], threads: int | None = None
) -> list[Found]:
    """``[f(x) for x in given]``, several at a time.

    Args:
        f: Whose results must not depend on each other.
        given: Its arguments.
        threads: How many at a time; :func:`count_threads` if left out.
    """
    count = count_threads() if threads is None else threads
    # what our own threads call stays where it is
    if min(count, len(given)) <= 1 or hasattr(_thread_state, "alone"):
        return [f(x) for x in given]
    with _pool_lock:
        pool = _pool(count, os.getpid())  # a fork has none of its parent's threads
    return list(pool.map(f, given))


@lru_cache(maxsize=1)
def keep_memory() -> None:
    """Let the allocator keep what passes free, where it is glibc's; elsewhere this does nothing.

    It takes the largest block that was ever freed for one worth keeping, and keeps twice as much.
    The block is never written to, and so costs no memory.
    """
    np.empty(_KEPT_BYTES, dtype=np.uint8)


@lru_cache(maxsize=4)
def _pool(count: int, _process: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(count, "arbiter", _mark_own_thread)


def _mark_own_thread() -> None:
    """Remember in a thread that it is ours."""
    _thread_state.alone = True
