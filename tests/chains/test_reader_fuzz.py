"""Fuzzing the readers: whatever comes in, a chain comes out or a sentence does."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from arbiter.chains import ChainError, read_chain
from counts import count
from damage import DAMAGES, FILES, flip_bytes

CASES = count(full=50_000, reduced=420)


def outcome(source: object, as_of: str | None) -> str:
    """Read, clean and count; anything but a ChainError gets through to the test."""
    try:
        chain = read_chain(source, as_of=as_of, underlying=None if as_of is None else "SPX")
        quotes = chain.quotes(fewest_strikes=1, shortest_days=0.0)
    except ChainError:
        return "refused"
    assert len(quotes) + quotes.exclusions.height == chain.frame.height + chain.set_aside.height
    assert quotes.exclusions.select("row", "side", "strike").is_duplicated().sum() == 0
    assert np.all((quotes.bid > 0.0) & (quotes.ask > quotes.bid) & np.isfinite(quotes.ask))
    assert np.all(np.isfinite(quotes.k) & (quotes.T > 0.0))
    assert np.all((quotes.forwards > 0.0) & (quotes.discounts > 0.0))
    return "read"


@pytest.mark.parametrize("file", FILES)
@settings(max_examples=-(-CASES // len(FILES)))
@given(
    damage=st.lists(st.sampled_from(range(len(DAMAGES))), min_size=1, max_size=3),
    seed=st.integers(0, 2**32 - 1),
    as_of=st.sampled_from([None, "2023-02-07T16:15"]),
)
def test_damaged_files_are_read_or_refused(
    file: str, damage: list[int], seed: int, as_of: str | None
) -> None:
    data, rng = FILES[file], np.random.default_rng(seed)
    for i in damage:
        data = DAMAGES[i](data, rng) if data else data
    outcome(data, as_of)


@settings(max_examples=max(CASES // 100, 20))
@given(
    bids=st.lists(st.floats(), min_size=1, max_size=8),
    strikes=st.lists(st.floats(), min_size=1, max_size=8),
    expiry=st.sampled_from(["2023-02-17", "2099-12-31", "1800-01-01", "", None, "x"]),
)
def test_tables_of_any_numbers_are_read_or_refused(
    bids: list[float], strikes: list[float], expiry: str | None
) -> None:
    n = min(len(bids), len(strikes))
    table = pl.DataFrame(
        {
            "bid": (bids[:n] * 2),
            "ask": [bid + 1.0 for bid in bids[:n] * 2],
            "strike": strikes[:n] * 2,
            "side": ["call"] * n + ["put"] * n,
            "expiry": [expiry] * (2 * n),
        },
        schema_overrides={"expiry": pl.String},
    )
    outcome(table, "2023-02-07T16:15")


def test_undamaged_files_are_read() -> None:
    """The control: the fuzzer starts from files that are fine."""
    assert {outcome(data, "2023-02-07T16:15") for data in FILES.values()} == {"read"}


def test_damage_leaves_some_files_readable_and_some_not(rng: np.random.Generator) -> None:
    """The control: the fuzzer reaches both ends of the readers."""
    files = list(FILES.values())
    found = [outcome(flip_bytes(files[i % 7], rng), "2023-02-07T16:15") for i in range(56)]
    assert {"read", "refused"} == set(found)
