"""What a person sees while it trains: one live line on a terminal, a plain line now and then else.

Only a terminal needs rich, which is imported when there is one.
"""

from __future__ import annotations

import math
import sys
import time
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple, Self, TextIO

_SPEED_WINDOW_UPDATES = 50  # updates over which the speed is taken
_MIN_BAR_COLUMNS = 130  # columns of a terminal that has room for a bar beside the numbers


class TrainingState(NamedTuple):
    """Where training stands; what was never measured is None."""

    loss: float | None = None
    gap: float | None = None
    guard_hits: float | None = None
    lipschitz_before: float | None = None
    lipschitz_after: float | None = None

    def format_state(self) -> str:
        """In one line."""
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
    """Shows the progress of a training; use as a context.

    Args:
        steps: How many there will be.
        done: How many were done before, when a run is resumed.
        stream: Where to; standard error by default.
        every: Seconds between plain lines, where the stream is no terminal; infinite is silent.
        clock: Seconds that only rise.
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
        self._spoken = clock()
        self._live: Any = None

    def __enter__(self) -> Self:
        if self.stream.isatty():
            self._live = _make_progress_bar(self.stream)
            self._task = self._live.add_task(
                "", total=self.steps, completed=self.step, state=self._format_line()
            )
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None
        elif math.isfinite(self.every):
            self._write_line()

    def update(self, step: int, **measured: float | None) -> None:
        """Take in the number of steps done and what was measured, by the names of `State`.

        What is left out keeps its last value. Numbers, not tensors: fetching one waits for the
        device, and that is for the caller to decide.
        """
        self.step = step
        known = {name: value for name, value in measured.items() if value is not None}
        self.state = self.state._replace(**known)
        self._seen.append((self.clock(), step))
        if self._live is not None:
            self._live.update(self._task, completed=step, state=self._format_line())
        elif self.clock() - self._spoken >= self.every:
            self._write_line()

    @property
    def speed(self) -> float:
        """Steps per second lately; 0 while unknown."""
        (first, start), (last, end) = self._seen[0], self._seen[-1]
        return (end - start) / (last - first) if last > first else 0.0

    def _format_line(self) -> str:
        left = (self.steps - self.step) / self.speed if self.speed > 0.0 else math.inf
        head = f"step {self.step:,}/{self.steps:,}"
        tail = f"{self.speed:.3g} steps/s  {_duration(left)} left"
        return "  ".join(filter(None, [head, self.state.format_state(), tail]))

    def _write_line(self) -> None:
        self._spoken = self.clock()
        self.stream.write(f"{self._format_line()}\n")
        self.stream.flush()


def _make_progress_bar(stream: TextIO) -> Any:
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
