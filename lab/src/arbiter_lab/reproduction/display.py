"""Display of a reproduction: the stages, and the progress of the running one.

A terminal has live bars; elsewhere a plain line is written when a stage begins and every half
minute.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple, Self, TextIO

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

_SECONDS_BETWEEN_LINES = 30.0  # of plain lines


class _LiveBars(NamedTuple):
    """A live display with one bar for all stages and one for the running stage."""

    progress: Progress
    stages: TaskID
    stage: TaskID


class Display:
    """Shows the progress of the stages; a context manager.

    Args:
        stages: Number of stages.
        stream: Output stream; standard error by default.
        silent: Whether to show nothing.
        clock: A monotonic clock, in seconds.
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
        self._last_line_at = clock()
        self._live: _LiveBars | None = None

    def __enter__(self) -> Self:
        if not self.silent and self.stream.isatty():
            progress = _make_progress_bar(self.stream)
            stages = progress.add_task("stages", total=self.stages)
            self._live = _LiveBars(progress, stages, progress.add_task("", total=1))
            progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.progress.stop()
            self._live = None

    def announce_stage(self, name: str, done: bool) -> None:
        """Show that a stage begins, or that it was done already."""
        self.number += 1
        self._name = name
        if self._live is not None:
            progress, stages, _ = self._live
            progress.update(stages, completed=self.number - 1, description=name)
        state = "done already" if done else "begins"
        self._write_line(f"stage {self.number} of {self.stages}, {name}: {state}", force=True)

    def tell(self, what: str, done: int, total: int) -> None:
        """Show the progress within a stage."""
        if self._live is not None:
            progress, _, stage = self._live
            progress.update(stage, description=what, completed=done, total=total)
        else:
            self._write_line(f"  {self._name}: {what} {done:,} of {total:,}")

    def _write_line(self, text: str, force: bool = False) -> None:
        now = self.clock()
        if (
            self.silent
            or self._live is not None
            or not (force or now - self._last_line_at >= _SECONDS_BETWEEN_LINES)
        ):
            return
        self._last_line_at = now
        self.stream.write(text + "\n")
        self.stream.flush()


def _make_progress_bar(stream: TextIO) -> Progress:
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
