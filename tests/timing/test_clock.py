"""Clocks of variance: an ordinary week has seven days, and events are checked."""

from __future__ import annotations

import datetime as dt

import numpy as np
import pytest

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
    "when", ["2026-12-09", "tomorrow", dt.date(2026, 12, 9), dt.datetime.now(dt.UTC), 3]
)
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
