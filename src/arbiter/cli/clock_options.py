"""Options of a clock of variance: how fast it runs, and scheduled events."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from arbiter.cli.exit_codes import exit_bad_input

if TYPE_CHECKING:
    from arbiter.timing.clock import Clock, Event

ClockName = Annotated[
    str | None,
    typer.Option(
        "--clock",
        help="calendar, trading, implied (weights that the quotes imply), or weights of minutes: "
        "overnight=0.1,weekend=0.02,holiday=0.03.",
    ),
]
EventTexts = Annotated[
    list[str] | None,
    typer.Option(
        "--event",
        help="A scheduled event, 2026-12-09T14:00=FOMC or =FOMC:0.0001 with its variance; or a "
        "CSV file with columns when, name and variance. May be given several times.",
    ),
]
IMPLIED = "implied"
_WEIGHTS = ("overnight", "weekend", "holiday")


def parse_clock(name: str | None, events: Sequence[str] | None) -> Clock | None:
    """The clock of both options; None if neither is given. Implied weights are found later."""
    from arbiter.timing.clock import Clock

    if name is None and not events:
        return None
    try:
        plain = Clock.trading() if name == "trading" else Clock(**_parse_weights(name))
        return plain.with_events(*(each for text in events or () for each in _read_events(text)))
    except ValueError as error:
        exit_bad_input(str(error))


def _parse_weights(text: str | None) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for part in [] if text in (None, "calendar", IMPLIED) else str(text).split(","):
        name, _, weight = part.partition("=")
        try:
            if name not in _WEIGHTS:
                raise ValueError(name)
            found[name] = float(weight)
        except ValueError as error:
            raise ValueError(
                f"--clock {text}: give calendar, trading, implied, or weights such as "
                "overnight=0.1,weekend=0.02,holiday=0.03"
            ) from error
    return found


def _read_events(text: str) -> Iterator[Event]:
    """One event, or those of a file."""
    if "=" in text:
        when, _, rest = text.partition("=")
        name, _, variance = rest.partition(":")
        yield _make_event(when, name, variance, f"--event {text}")
        return
    path = Path(text)
    if not path.is_file():
        raise ValueError(
            f"--event {text}: give 2026-12-09T14:00=FOMC, or a CSV file with columns when, name "
            "and variance"
        )
    with path.open(newline="", encoding="utf-8-sig") as file:
        rows = csv.DictReader(file)
        if "when" not in (rows.fieldnames or ()):
            raise ValueError(f"{path} has no column when: give when, name and variance")
        for place, row in enumerate(rows, 2):
            given = (row.get("when") or "", row.get("name") or "", row.get("variance") or "")
            yield _make_event(*given, f"{path}, row {place}")


def _make_event(when: str, name: str, variance: str, where: str) -> Event:
    from arbiter.timing.clock import Event

    try:
        size = float(variance) if variance.strip() else None
        return Event(when.strip(), name.strip() or "event", size)
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from error


def clock_lines(clock: Mapping[str, Any] | None) -> list[tuple[str, str]]:
    """Rows about weights and the implied moves of events, from what ``fit.json`` says."""
    from arbiter.timing.clock import Clock

    if clock is None:
        return []
    found = Clock.from_dict(clock)
    weights = [f"{name} {getattr(found, name):.3g}" for name in _WEIGHTS]
    told = [("clock", f"minutes of a session count 1, {', '.join(weights)}")]
    rows: list[tuple[str, str]] = []
    for event in found.events:
        move = f"{event.name}, {str(event.moment).replace('T', ' ')}: {event.move:.2%}"
        if event.move_range is not None:
            low, high = event.move_range
            move += f" ({low:.2%} to {high:.2%} with two standard errors)"
        rows.append(("" if rows else "implied move", move))
    return told + rows
