"""Clocks of variance: minutes with weights, and scheduled events with a variance of their own.

A minute of a session counts one. Minutes while the exchange is closed count what the clock says,
and an ordinary week without holidays counts as seven days, so that volatilities stay comparable.
"""

from __future__ import annotations

import datetime as dt
import itertools
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from arbiter.conventions import MINUTES_PER_YEAR, Array
from arbiter.timing.sessions import NYSE, convert_to_new_york, find_sessions
from arbiter.timing.time_change import TimeChange
from arbiter.values import require_known_keys, require_number, require_text, shorten_repr

MIN_WEIGHT, MAX_WEIGHT = 0.01, 100.0  # of a minute: a clock must not stand still
_MAX_CLOCK_YEARS = 5.0  # after which it runs like the calendar: a night no longer matters
_WEEK_MINUTES = {"session": 5 * 390, "overnight": 4 * 1050, "weekend": 3930}
# French and Roll (1986), "Stock return variances", table 2: an hour of a session has 12.78 times
# the variance of an hour of a night, 70.4 times that of a weekend, 35.0 times that of a holiday.
_FRENCH_ROLL = {"overnight": 1.0 / 12.78, "weekend": 1.0 / 70.4, "holiday": 1.0 / 35.0}


@dataclass(frozen=True)
class Event:
    """A scheduled moment at which the price may jump.

    Attributes:
        when: New York time, to the minute; what has a zone is converted.
        name: What it is called.
        variance: Variance of the jump of the logarithm; None to estimate it from the quotes.
        error: Standard error of an estimated variance; None of a given one.

    Example:
        >>> Event("2026-12-09T14:00", "FOMC", variance=1e-4).move
        0.01
    """

    when: str | dt.datetime | np.datetime64
    name: str = "event"
    variance: float | None = None
    error: float | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "when", _parse_moment(self.when))
        require_text("name of an event", self.name)
        for what, value in (("variance", self.variance), ("error", self.error)):
            if value is not None and not require_number(f"{what} of {self.name}", value) >= 0.0:
                raise ValueError(f"{what} of {self.name} = {value!r} must not be negative")

    @property
    def moment(self) -> np.datetime64:
        """When it happens, in minutes."""
        return np.datetime64(str(self.when), "m")

    @property
    def move(self) -> float | None:
        """The implied move: the standard deviation of the jump."""
        return None if self.variance is None else float(np.sqrt(self.variance))

    @property
    def move_range(self) -> tuple[float, float] | None:
        """The implied move with two standard errors of the variance; None where it is given."""
        if self.variance is None or self.error is None:
            return None
        low, high = self.variance - 2.0 * self.error, self.variance + 2.0 * self.error
        return float(np.sqrt(max(low, 0.0))), float(np.sqrt(high))

    def to_dict(self) -> dict[str, Any]:
        """Plain values."""
        return {**asdict(self), "when": str(self.moment)}


@dataclass(frozen=True)
class Clock:
    """How fast variance passes.

    ``Clock()`` counts minutes. The weights are those of a minute outside of sessions, a minute of
    a session being one.

    Attributes:
        overnight: Between two sessions of neighbouring days.
        weekend: Between two sessions with a Saturday or Sunday between them.
        holiday: Between two sessions with a holiday in the middle of the week between them.
        events: Scheduled events, in any order.

    Example:
        >>> Clock.trading().weekend < Clock.trading().overnight < 1.0
        True
    """

    overnight: float = 1.0
    weekend: float = 1.0
    holiday: float = 1.0
    events: tuple[Event, ...] = ()

    def __post_init__(self) -> None:
        for name in ("overnight", "weekend", "holiday"):
            value = getattr(self, name)
            if not MIN_WEIGHT <= require_number(name, value) <= MAX_WEIGHT:
                raise ValueError(
                    f"{name} = {value!r} must be a weight from {MIN_WEIGHT:g} to {MAX_WEIGHT:g}: "
                    "that of a minute, where a minute of a session has 1"
                )
        events = (self.events,) if isinstance(self.events, Event) else tuple(self.events)
        for event in events:
            if not isinstance(event, Event):
                raise ValueError(
                    f"events has {shorten_repr(event)}: give Event('2026-12-09T14:00', 'FOMC')"
                )
        events = tuple(sorted(events, key=lambda event: event.moment))
        for one, other in itertools.pairwise(events):
            if one.moment == other.moment:
                raise ValueError(
                    f"{one.name} and {other.name} are both at {one.moment}: give one event, whose "
                    "variance is that of both"
                )
        object.__setattr__(self, "events", events)

    @classmethod
    def trading(cls, *events: Event) -> Clock:
        """Nights, weekends and holidays as French and Roll (1986) measured them."""
        return cls(**_FRENCH_ROLL, events=events)

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> Clock:
        """The clock of plain values, as :meth:`to_dict` gives them."""
        known = require_known_keys("clock", plain, ("overnight", "weekend", "holiday", "events"))
        return cls(**{**known, "events": tuple(Event(**event) for event in known["events"])})

    def to_dict(self) -> dict[str, Any]:
        """Plain values."""
        return {**asdict(self), "events": [event.to_dict() for event in self.events]}

    def with_events(self, *events: Event) -> Clock:
        """The same weights with these events."""
        return replace(self, events=events)

    @property
    def is_calendar(self) -> bool:
        """Whether it counts minutes and nothing else."""
        return self.overnight == self.weekend == self.holiday == 1.0 and not self.events

    def change_time(
        self, as_of: np.datetime64, years: float, jumps: Mapping[np.datetime64, float] | None = None
    ) -> TimeChange:
        """Where the clock stands from ``as_of`` on.

        Args:
            as_of: New York time without a zone.
            years: Length of what is wanted, in calendar time.
            jumps: Years that the clock gains at events.
        """
        minutes = np.ceil(min(years, _MAX_CLOCK_YEARS) * MINUTES_PER_YEAR) + 1.0
        end = as_of + np.timedelta64(int(minutes), "m")
        edges, weights = self._weigh_minutes(as_of.astype("datetime64[s]"), end)
        T = (edges - edges[0]) / np.timedelta64(1, "m") / MINUTES_PER_YEAR
        clock = np.concatenate([[0.0], np.cumsum(weights * np.diff(T))])
        for when, gain in sorted((jumps or {}).items()):
            at = (when - edges[0]) / np.timedelta64(1, "m") / MINUTES_PER_YEAR
            before = TimeChange(T, clock).at(at)
            place = int(np.searchsorted(T, at, side="right"))
            T = np.concatenate([T[:place], [at, at], T[place:]])
            clock = np.concatenate([clock[:place], [before, before + gain], clock[place:] + gain])
        return TimeChange.from_nodes(T, clock)

    def _weigh_minutes(self, start: np.datetime64, end: np.datetime64) -> tuple[Any, Array]:
        """Moments ``(N+1,)`` between which minutes count the same, and what they count ``(N,)``."""
        own = {"session": 1.0, "overnight": self.overnight, "weekend": self.weekend}
        scale = 10_080.0 / sum(own[name] * minutes for name, minutes in _WEEK_MINUTES.items())
        sessions = find_sessions(start - np.timedelta64(7, "D"), end + np.timedelta64(7, "D"), NYSE)
        edges, weights = [], []
        for (opened, closed), (following, _) in itertools.pairwise(sessions):
            night = (following.astype("datetime64[D]") - closed.astype("datetime64[D]")).astype(int)
            days = (closed.astype("datetime64[D]") + np.arange(1, max(night, 1))).astype(object)
            kind = self.overnight
            if any(day.weekday() >= 5 for day in days):
                kind = self.weekend
            elif night > 1:
                kind = self.holiday
            edges += [opened, closed]
            weights += [1.0, kind]
        at, rate = np.array(edges, dtype="datetime64[s]"), scale * np.array(weights)
        first = int(np.searchsorted(at, start, side="right")) - 1
        last = int(np.searchsorted(at, end, side="left"))
        return np.concatenate([[start], at[first + 1 : last], [end]]), rate[first:last]


def _parse_moment(when: object) -> np.datetime64:
    """A moment in minutes; a ``ValueError`` where it has no time of day or is none."""
    remedy = f"an event at {shorten_repr(when)}: give New York time, such as '2026-12-09T14:00'"
    if isinstance(when, str):
        try:
            when = dt.datetime.fromisoformat(when)
        except ValueError as error:
            raise ValueError(remedy) from error
        if when.time() == dt.time():  # a bare date, or midnight, at which nothing is scheduled
            raise ValueError(remedy)
    if isinstance(when, np.datetime64):
        if when.dtype == np.dtype("datetime64[D]"):
            raise ValueError(remedy)
        when = when.astype("datetime64[us]").item()
    if not isinstance(when, dt.datetime):
        raise ValueError(remedy)
    return np.datetime64(convert_to_new_york(when), "m")


def require_clock(clock: object) -> Clock | None:
    """``clock``; a ``ValueError`` with examples where it is none."""
    if clock is None or isinstance(clock, Clock):
        return clock
    raise ValueError(
        f"clock = {shorten_repr(clock)} is no Clock: give Clock.trading(), Clock(weekend=0.1), or "
        "None for calendar time"
    )
