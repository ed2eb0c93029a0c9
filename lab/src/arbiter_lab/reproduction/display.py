"""What a person sees while it runs: the stages, and the progress of the one that runs.

On a terminal a live bar; elsewhere a plain line when a stage begins and every half minute.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any, Self, TextIO

_SECONDS_BETWEEN_LINES = 30.0  # seconds between plain lines


class Display:
    """Shows stages; use as a context.

    Args:
        stages: How many there are.
        stream: Where to; standard error by default.
        silent: Show nothing.
        clock: Seconds that only rise.
    """

    def __init__(
        self,
        stages: int,
        *,
        stream: TextIO | None = None,
        silent: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.stages, self.silent, self.clock = stages, silent, clock
        self.stream = sys.stderr if stream is None else stream
        self.number = 0
        self._name = ""
        self._spoken = clock()
        self._live: Any = None
        self._tasks: list[Any] = []

    def __enter__(self) -> Self:
        if not self.silent and self.stream.isatty():
            self._live = _make_progress_bar(self.stream)
            self._tasks = [
                self._live.add_task("stages", total=self.stages),
                self._live.add_task("", total=1),
            ]
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None

    def announce_stage(self, name: str, done: bool) -> None:
        """A stage begins, or was done already."""
        self.number += 1
        self._name = name
        if self._live is not None:
            self._live.update(self._tasks[0], completed=self.number - 1, description=name)
        state = "done already" if done else "begins"
        self._write_line(f"stage {self.number} of {self.stages}, {name}: {state}", force=True)

    def tell(self, what: str, done: int, total: int) -> None:
        """Progress within a stage."""
        if self._live is not None:
            self._live.update(self._tasks[1], description=what, completed=done, total=total)
        else:
            self._write_line(f"  {self._name}: {what} {done:,} of {total:,}")

    def _write_line(self, text: str, force: bool = False) -> None:
        now = self.clock()
        if (
            self.silent
            or self._live is not None
            or not (force or now - self._spoken >= _SECONDS_BETWEEN_LINES)
        ):
            return
        self._spoken = now
        self.stream.write(text + "\n")
        self.stream.flush()


def _make_progress_bar(stream: TextIO) -> Any:
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
    )

    return Progress(
        TextColumn("{task.description:>24}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=Console(file=stream),
        transient=True,
    )
