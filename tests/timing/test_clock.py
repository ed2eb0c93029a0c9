"""Clocks of variance: an ordinary week has seven days, and events are checked."""

from __future__ import annotations

import datetime as dt

import numpy as np
import pytest

import arbiter as ab
from arbiter.data import example_chain_path
from arbiter.timing.clock import Clock, Event

DAY, MONDAY = 1.0 / 365.0, np.datetime64("2023-09-11T16:00")  # no holiday until Thanksgiving


@pytest.mark.parametrize("clock", [Clock.trading(), Clock(weekend=0.3), Clock(overnight=2.0)])
def test_an_ordinary_week_has_seven_days(clock: Clock) -> None:
    time = clock.change_time(MONDAY, 0.1)
    assert time.at(np.array([7.0, 14.0]) * DAY) == pytest.approx([7.0 * DAY, 14.0 * DAY])
    assert float(time.at(3.0 * DAY)) != pytest.approx(3.0 * DAY, rel=1e-3)  # the control


def test_minutes_weigh_what_the_clock_says() -> None:
    time = Clock(overnight=0.5, weekend=0.1, holiday=0.2).change_time(MONDAY, 1.0)
    moments = {
        "session": ("2023-09-12T10:00", "2023-09-12T11:00"),
        "overnight": ("2023-09-12T20:00", "2023-09-12T21:00"),
        "weekend": ("2023-09-16T10:00", "2023-09-16T11:00"),
        "long weekend": ("2024-01-15T10:00", "2024-01-15T11:00"),  # Martin Luther King's Monday
        "holiday": ("2023-11-23T10:00", "2023-11-23T11:00"),  # Thanksgiving, a Thursday
        "half day": ("2023-11-24T13:30", "2023-11-24T14:30"),  # closed since 13:00
    }
    passed = {}
    for name, ends in moments.items():
        T = (np.array(ends, dtype="datetime64[m]") - MONDAY) / np.timedelta64(365, "D")
        passed[name] = float(np.diff(time.at(T))[0])
    unit = passed["session"]
    assert {name: round(each / unit, 9) for name, each in passed.items()} == {
        "session": 1.0,
        "overnight": 0.5,
        "weekend": 0.1,
        "long weekend": 0.1,
        "holiday": 0.2,
        "half day": 0.1,
    }


def test_the_clock_of_minutes_is_the_calendar() -> None:
    assert Clock().is_calendar
    T = np.linspace(1e-6, 3.0, 99)
    assert Clock().change_time(MONDAY, 2.0).at(T) == pytest.approx(T, rel=1e-12)


def test_events_jump_by_what_is_given() -> None:
    when = np.datetime64("2023-09-20T14:00")
    plain, jumped = (Clock.trading().change_time(MONDAY, 0.1, j) for j in (None, {when: 0.01}))
    at = (when - MONDAY) / np.timedelta64(365, "D")
    T = np.array([at - 1e-9, at, 0.09])
    assert jumped.at(T) - plain.at(T) == pytest.approx([0.0, 0.01, 0.01], abs=1e-12)


def test_plain_values_give_the_clock_back() -> None:
    clock = Clock.trading(Event("2023-09-20T14:00", "FOMC", 1e-4), Event("2023-09-13T08:30", "CPI"))
    assert [event.name for event in clock.events] == ["CPI", "FOMC"]
    assert clock.events[1].move == pytest.approx(0.01)
    again = Clock.from_dict(clock.to_dict())
    assert again == clock


@pytest.mark.parametrize(
    "when",
    [
        "2026-12-09T19:00Z",
        dt.datetime(2026, 12, 9, 19, tzinfo=dt.UTC),
        dt.datetime(2026, 12, 9, 14),
        np.datetime64("2026-12-09T14:00:00"),
    ],
)
def test_a_moment_with_a_zone_is_converted(when: str | dt.datetime | np.datetime64) -> None:
    assert Event(when) == Event("2026-12-09T14:00")
    assert Event(when) != Event("2026-12-09T15:00")  # the control


@pytest.mark.parametrize("when", ["2026-12-09", "tomorrow", dt.date(2026, 12, 9), None, 3])
def test_an_event_needs_a_time_of_day_in_new_york(when: object) -> None:
    with pytest.raises(ValueError, match="give New York time, such as '2026-12-09T14:00'"):
        Event(when)  # type: ignore[arg-type]


def test_clocks_that_cannot_be_meant_are_refused() -> None:
    with pytest.raises(ValueError, match=r"weekend = 0.009 must be a weight from 0.01 to 100"):
        Clock(weekend=0.009)
    one = Event("2026-12-09T14:00", "FOMC")
    with pytest.raises(ValueError, match="FOMC and CPI are both at 2026-12-09T14:00: give one"):
        Clock(events=(one, Event("2026-12-09T14:00", "CPI")))
    with pytest.raises(ValueError, match="variance of FOMC = -1 must not be negative"):
        Event("2026-12-09T14:00", "FOMC", -1)
    with pytest.raises(ValueError, match=r"events has '2026-12-09T14:00': give Event\("):
        Clock.trading("2026-12-09T14:00")  # type: ignore[arg-type]
    assert Clock(events=one) == Clock(events=(one,))  # type: ignore[arg-type]


def test_what_is_no_clock_is_refused_wherever_one_is_taken() -> None:
    chain = ab.example_chain()
    quotes = chain.quotes()
    for take in (
        lambda: ab.read_chain(example_chain_path(), clock="trading"),  # type: ignore[arg-type]
        lambda: quotes.with_clock("trading"),  # type: ignore[arg-type]
        lambda: ab.fit(quotes, clock="trading"),  # type: ignore[arg-type]
    ):
        with pytest.raises(ValueError, match=r"clock = 'trading' is no Clock: give Clock.trading"):
            take()
    assert quotes.with_clock(None).clock is None  # the control


def test_an_event_in_the_past_is_refused_and_one_after_the_last_expiry_is_warned_of() -> None:
    quotes = ab.example_chain().quotes()
    for when in ("2026-10-15T14:00", "2026-10-15T16:15"):
        with pytest.raises(ValueError, match=f"CPI at {when} is not after the quotes, .*: drop it"):
            quotes.with_clock(Clock.trading(Event(when, "CPI")))
    late = quotes.with_clock(Clock.trading(Event("2035-01-10T08:30", "CPI")))
    assert late.clock is not None
    assert late.clock.events == ()
    assert "CPI at 2035-01-10T08:30 is after the last expiry" in late.warnings[-1]
    given = quotes.with_clock(Clock.trading(Event("2035-01-10T08:30", "CPI", 1e-4)))
    assert given.warnings == quotes.warnings  # the control
