"""Handles stop signals: training ends after the current step."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any


@contextmanager
def catch_stop_signals() -> Iterator[threading.Event]:
    """Set the event at SIGINT or SIGTERM; a second signal has its usual effect."""
    stop = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return
    before: dict[signal.Signals, Any] = {}

    def ask(number: int, _: FrameType | None) -> None:
        stop.set()
        for one, handler in before.items():
            signal.signal(one, handler)
        sys.stderr.write("stopping after this step; once more to stop at once\n")

    for number in (signal.SIGINT, signal.SIGTERM):
        before[number] = signal.signal(number, ask)
    try:
        yield stop
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)
