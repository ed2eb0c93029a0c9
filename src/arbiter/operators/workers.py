"""Threads of our own, each on one processor.

PyTorch splits single operations among processors and waits for all of them, hundreds of times in a
forward pass. On a machine that is busy with anything else each wait can last a time slice: a pass
of ten milliseconds then takes a second. Chains are independent, so here whole chains are split
instead, and every thread computes by itself. The caller's own number of threads stays what it is;
where that is one, nothing is handed over.

A pass fills some ten megabytes, frees them and fills them again. An allocator that hands them back
to the system each time has every page cleared anew, which took up to a fifth of a pass:
:func:`keep_memory`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from threading import Barrier, Lock, local
from typing import TypeVar

import torch

Given = TypeVar("Given")
Found = TypeVar("Found")
_KEPT_BYTES = 31 << 20  # bytes; glibc learns up to 32 MiB
_MAX_THREADS = 8  # the interpreter is shared, and more than these would wait for it
_pool_lock, _thread_state = Lock(), local()


def map_in_threads(f: Callable[[Given], Found], given: Sequence[Given]) -> list[Found]:
    """``[f(x) for x in given]``, as many at a time as PyTorch has threads, up to eight."""
    count = torch.get_num_threads()
    if count == 1 or hasattr(_thread_state, "alone"):  # what our own threads call stays where it is
        return [f(x) for x in given]
    with _pool_lock:
        pool = _pool(
            min(count, _MAX_THREADS), os.getpid()
        )  # a fork has none of its parent's threads
    return list(pool.map(f, given))


@lru_cache(maxsize=1)
def keep_memory() -> None:
    """Let the allocator keep what passes free, where it is glibc's; elsewhere this does nothing.

    It takes the largest block that was ever freed for one worth keeping, and keeps twice as much.
    The block is never written to, and so costs no memory.
    """
    torch.empty(_KEPT_BYTES, dtype=torch.uint8)


@lru_cache(maxsize=4)
def _pool(count: int, _process: int) -> ThreadPoolExecutor:
    pool = ThreadPoolExecutor(count, "arbiter", _compute_alone)
    started = Barrier(count + 1)
    for _ in range(count):
        pool.submit(started.wait)
    started.wait()
    # a thread's number is its own, but also becomes that of threads not yet born: take it back
    torch.set_num_threads(torch.get_num_threads())
    return pool


def _compute_alone() -> None:
    """Make the thread that calls compute by itself."""
    torch.get_num_threads()  # the first question sets it to the common number
    torch.set_num_threads(1)
    _thread_state.alone = True
