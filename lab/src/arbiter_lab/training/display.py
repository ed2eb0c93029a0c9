"""Display of a training: a live line on a terminal, plain lines at intervals elsewhere.

Only a terminal needs rich, which is imported when there is one.
"""

from __future__ import annotations

import math
import sys
import time
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple, Self, TextIO

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

_SPEED_WINDOW_UPDATES = 50  # updates over which the speed is taken
_MIN_BAR_COLUMNS = 130  # columns of a terminal that has room for a bar beside the numbers


class TrainingState(NamedTuple):
    """The last measured numbers of a training; None for those never measured."""

    loss: float | None = None
    gap: float | None = None
    guard_hits: float | None = None
    lipschitz_before: float | None = None
    lipschitz_after: float | None = None

    def format_state(self) -> str:
        """Return the measured numbers in one line."""
        parts = [
            f"{name} {_format_number(value)}"
            for name, value in (("loss", self.loss), ("gap", self.gap))
            if value is not None
        ]
        if self.guard_hits is not None:
            parts.append(f"guard {self.guard_hits:,.0f}")
        if self.lipschitz_after is not None:
            before = (
                ""
                if self.lipschitz_before is None
                else f"{_format_number(self.lipschitz_before)} → "
            )
            parts.append(f"Lipschitz {before}{_format_number(self.lipschitz_after)}")
        return "  ".join(parts)


class Display:
    """Shows the progress of a training; a context manager.

    Args:
        steps: Number of steps of the training.
        done: Number of steps done before, when a run is resumed.
        stream: Output stream; standard error by default.
        every: Seconds between plain lines if the stream is no terminal; infinite shows none.
        clock: A monotonic clock, in seconds.
    """

    def __init__(
        self,
        steps: int,
        *,
        done: int = 0,
        stream: TextIO | None = None,
        every: float = 30.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.steps, self.step, self.every, self.clock = steps, done, every, clock
        self.stream = sys.stderr if stream is None else stream
        self.state = TrainingState()
        self._seen: deque[tuple[float, int]] = deque(
            [(clock(), done)], maxlen=_SPEED_WINDOW_UPDATES
        )
        self._last_line_at = clock()
        self.live: tuple[Progress, TaskID] | None = None

    def __enter__(self) -> Self:
        if self.stream.isatty():
            progress = _make_progress_bar(self.stream)
            task = progress.add_task(
                "", total=self.steps, completed=self.step, state=self._format_line()
            )
            self.live = progress, task
            progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self.live is not None:
            self.live[0].stop()
            self.live = None
        elif math.isfinite(self.every):
            self._write_line()

    def update(self, step: int, **measured: float | None) -> None:
        """Show the number of steps done and the numbers of :class:`TrainingState` given by name.

        Numbers that are left out keep their last value. They are floats, not tensors: the caller
        decides when to wait for the device.
        """
        self.step = step
        known = {name: value for name, value in measured.items() if value is not None}
        self.state = self.state._replace(**known)
        self._seen.append((self.clock(), step))
        if self.live is not None:
            progress, task = self.live
            progress.update(task, completed=step, state=self._format_line())
        elif self.clock() - self._last_line_at >= self.every:
            self._write_line()

    @property
    def speed(self) -> float:
        """Steps per second over the last updates; 0 while unknown."""
        (first, start), (last, end) = self._seen[0], self._seen[-1]
        return (end - start) / (last - first) if last > first else 0.0

    def _format_line(self) -> str:
        left = (self.steps - self.step) / self.speed if self.speed > 0.0 else math.inf
        head = f"step {self.step:,}/{self.steps:,}"
        tail = f"{self.speed:.3g} steps/s  {_duration(left)} left"
        return "  ".join(filter(None, [head, self.state.format_state(), tail]))

    def _write_line(self) -> None:
        self._last_line_at = self.clock()
        self.stream.write(f"{self._format_line()}\n")
        self.stream.flush()


def _make_progress_bar(stream: TextIO) -> Progress:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, ProgressColumn, TextColumn
    from rich.table import Column

    console = Console(file=stream)
    # A narrow terminal gets two lines rather than half of the numbers.
    folded = Column(no_wrap=False)
    columns: list[ProgressColumn] = [TextColumn("{task.fields[state]}", table_column=folded)]
    if console.width >= _MIN_BAR_COLUMNS:
        columns.insert(0, BarColumn(bar_width=24))
    return Progress(*columns, console=console)


def _format_number(value: float) -> str:
    return f"{value:.4g}"


def _duration(seconds: float) -> str:
    if not math.isfinite(seconds):
        return "unknown time"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
