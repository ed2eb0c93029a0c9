"""Loops over numbers, compiled on their first call and kept on disk for the next process.

For what is a long row of small steps: there a tensor library spends its time between operations.
Sums may be taken in another order than they are written, always the same one on one machine.
Threads run such functions side by side.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import lru_cache
from typing import Any, TypeVar, cast

from numba import njit
from numba.core import event

F = TypeVar("F", bound=Callable[..., object])
logger = logging.getLogger(__name__)


def compiled(f: F) -> F:
    """The function in machine code; it takes and returns numbers and arrays."""
    _told()
    options: dict[str, Any] = {
        "nogil": True,
        "error_model": "numpy",
        "fastmath": {"reassoc", "contract", "nsz"},
    }
    try:
        return cast(F, njit(cache=True, **options)(f))
    except RuntimeError:  # no folder that could be written to: each process compiles anew
        return cast(F, njit(**options)(f))


class _Notice(event.Listener):
    """Says once why the first call of all takes long."""

    def on_start(self, event: Any) -> None:
        if event.data["dispatcher"].py_func.__module__.startswith("arbiter."):
            _say()

    def on_end(self, event: Any) -> None:
        """Nothing."""


@lru_cache(maxsize=1)
def _told() -> None:
    event.register("numba:compile", _Notice())  # type: ignore[no-untyped-call]


@lru_cache(maxsize=1)
def _say() -> None:
    logger.warning("compiling for this machine: some twenty seconds, only the first time")
