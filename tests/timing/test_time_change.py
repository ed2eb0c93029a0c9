"""A change of time keeps every order: it never falls, in floating point either."""

from __future__ import annotations

import numpy as np
import pytest

from arbiter.timing.time_change import TimeChange
from counts import count

CLOCK = TimeChange.from_nodes([0.0, 0.1, 0.1, 0.4], [0.0, 0.05, 0.25, 0.4])


def test_nodes_are_met_jumps_have_happened_and_the_calendar_goes_on() -> None:
    assert CLOCK.at([0.0, 0.05, 0.1, 0.4, 1.4]).tolist() == pytest.approx(
        [0.0, 0.025, 0.25, 0.4, 1.4]
    )
    assert float(CLOCK.at(0.1 - 1e-12)) == pytest.approx(0.05)
    assert CLOCK.rate_at([0.05, 0.1, 0.5]).tolist() == pytest.approx([0.5, 0.5, 1.0])


def test_the_clock_never_falls_between_neighbouring_numbers(rng: np.random.Generator) -> None:
    for _ in range(count(full=200, reduced=20)):
        T = np.sort(np.concatenate([[0.0], rng.exponential(1.0, 9)]))
        clock = np.sort(np.concatenate([[0.0], rng.exponential(1.0, 9)]))
        found = TimeChange.from_nodes(T, clock)
        near = np.concatenate([T, rng.uniform(0.0, 1.2 * T[-1], 200)])
        path = np.sort(np.concatenate([near, np.nextafter(near, 9.0), np.nextafter(near, 0.0)]))
        assert np.all(np.diff(found.at(path)) >= 0.0)


@pytest.mark.parametrize(
    ("T", "clock", "said"),
    [
        ([0.0, 1.0], [0.1, 1.0], "start at 0"),
        ([0.0, 1.0, 0.5], [0.0, 1.0, 2.0], "never fall"),
        ([0.0, 1.0, 2.0], [0.0, 1.0, 1.0], "stands still at T = 1"),
        ([0.0, np.nan], [0.0, 1.0], "never fall"),
        ([0.0], [0.0], "two rows"),
    ],
)
def test_what_is_no_clock_is_refused(T: list[float], clock: list[float], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        TimeChange.from_nodes(T, clock)
