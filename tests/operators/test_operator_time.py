"""The operator on a moment of the day: same-day expiries, a clock and its events, kept in files."""

from __future__ import annotations

import copy
from pathlib import Path

import numpy as np
import pytest

import arbiter as ab
from arbiter.data import example_chain_path
from arbiter.report.tables import event_table

EVENT = ab.Event("2026-10-28T14:00", "FOMC", 4e-4)
K = np.linspace(-0.05, 0.05, 5)


@pytest.fixture(scope="module")
def quotes() -> ab.Quotes:
    """The shipped chain as if it were of the next morning: an expiry settles that day."""
    chain = ab.read_chain(example_chain_path(), as_of="2026-10-16T10:00")
    return chain.quotes().with_clock(ab.Clock.trading(EVENT))


@pytest.fixture(scope="module")
def answers(quotes: ab.Quotes) -> dict[str, ab.Surface]:
    operator = ab.Operator.pretrained()
    first = operator(quotes)
    return {
        "operator": first,
        "many": operator.many([quotes])[0],
        "refined": operator.refine(quotes),
    }


@pytest.mark.parametrize("name", ["operator", "many", "refined"])
def test_expiries_clock_and_events_come_with_the_answer_and_its_file(
    name: str, answers: dict[str, ab.Surface], quotes: ab.Quotes, tmp_path: Path
) -> None:
    surface = answers[name]
    assert [one.label for one in surface.expiries] == list(quotes.labels)
    assert str(surface.expiries[0].moment) == "2026-10-16T16:00:00"
    assert surface.clock == quotes.clock == ab.Clock.trading(EVENT)
    surface.save(tmp_path / "surface.npz")
    for twin in (ab.Surface.load(tmp_path / "surface.npz"), copy.deepcopy(surface)):
        assert type(twin) is type(surface)
        assert (twin.clock, twin.expiries) == (surface.clock, surface.expiries)
        for T in ("2026-10-16", "2026-10-30 SPXW", "2026-10-28T13:59", "2026-10-28T14:00"):
            assert np.array_equal(twin.iv(K, T), surface.iv(K, T)), T
    before, after = (surface.total_variance(0.0, f"2026-10-28T{at}") for at in ("13:59", "14:00"))
    assert float(after - before) > 0.5e-4  # the event, but for what the shape makes of it
    assert event_table(surface.info["clock"]) is not None


def test_without_a_clock_nothing_jumps(quotes: ab.Quotes) -> None:
    """The control."""
    surface = ab.Operator.pretrained()(quotes.with_clock(None))
    assert surface.clock is None
    before, after = (surface.total_variance(0.0, f"2026-10-28T{at}") for at in ("13:59", "14:00"))
    assert 0.0 <= float(after - before) < 1e-6
