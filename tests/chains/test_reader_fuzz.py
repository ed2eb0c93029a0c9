"""Fuzzing the readers: whatever comes in, a chain comes out or a sentence does."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import listed
from arbiter.chains import ChainError, read_chain
from counts import count

CASES = count(full=50_000, reduced=420)

SMALL = listed.market(
    (("SPXW", dt.date(2023, 2, 17)), ("SPX", dt.date(2023, 2, 17)), ("SPX", dt.date(2023, 12, 15))),
    strikes=11,
)
FILES = {
    "new": listed.exchange(SMALL).encode(),
    "old": listed.exchange(SMALL, listed.OLD_TOP).encode(),
    "no header": listed.exchange(SMALL, top="", header="").encode(),
    "yahoo": listed.yahoo(SMALL).encode(),
    "long": listed.long(SMALL).encode(),
    "tidy": listed.tidy(SMALL).encode(),
    "parquet": listed.parquet(SMALL),
}
TOKENS = [
    *("nan", "NaN", "-1", "0", "-0", "1e308", "1e-320", "1e999", "inf", "-inf", "", " ", "N/A"),
    *("9" * 40, "1,234.5", "1.234,5", "12/31/9999", "0000-00-00", "2023-02-30", "31.12.2023"),
    *(
        "SPXW230217C04000000",
        "SPX999999P00000000",
        "SPY230217C00400000",
        "C",
        "put",
        "AM",
        '"',
        "'",
    ),
    *("Date: 9 декабря 2023 г. в 13:49 GMT-5", "٣٫١٤", "－５", "\u202e", "🙂", "\ufeff", "a" * 300),
]


def truncate(data: bytes, rng: np.random.Generator) -> bytes:
    return data[: rng.integers(0, len(data))]


def drop_the_top(data: bytes, rng: np.random.Generator) -> bytes:
    return data[rng.integers(0, len(data)) :]


def shuffle_lines(data: bytes, rng: np.random.Generator) -> bytes:
    lines = data.split(b"\n")
    rng.shuffle(lines)
    return b"\n".join(lines)


def repeat_lines(data: bytes, rng: np.random.Generator) -> bytes:
    lines = data.split(b"\n")
    return b"\n".join(lines[i] for i in np.sort(rng.integers(0, len(lines), 2 * len(lines))))


def flip_bytes(data: bytes, rng: np.random.Generator) -> bytes:
    array = np.frombuffer(data, dtype=np.uint8).copy()
    places = rng.integers(0, array.size, rng.integers(1, 40))
    array[places] = rng.integers(0, 256, places.size)
    return array.tobytes()


def swap_fields(data: bytes, rng: np.random.Generator) -> bytes:
    lines = data.decode("utf-8", errors="replace").split("\n")
    for _ in range(rng.integers(1, 30)):
        i = int(rng.integers(0, len(lines)))
        fields = lines[i].split(",")
        fields[int(rng.integers(0, len(fields)))] = TOKENS[int(rng.integers(0, len(TOKENS)))]
        lines[i] = ",".join(fields)
    return "\n".join(lines).encode()


def fill_a_column(data: bytes, rng: np.random.Generator) -> bytes:
    lines = data.decode("utf-8", errors="replace").split("\n")
    column, token = int(rng.integers(0, 22)), TOKENS[int(rng.integers(0, len(TOKENS)))]
    filled = [line.split(",") for line in lines]
    for fields in filled:
        if len(fields) > column:
            fields[column] = token
    return "\n".join(",".join(fields) for fields in filled).encode()


def other_locale(data: bytes, rng: np.random.Generator) -> bytes:
    text = data.decode("utf-8", errors="replace")
    delimiter = [";", "\t", "|", ", "][int(rng.integers(0, 4))]
    text = text.replace(",", "\0").replace(".", [",", "."][int(rng.integers(0, 2))])
    encoding = ["utf-8", "utf-16", "latin-1", "cp1251"][int(rng.integers(0, 4))]
    return text.replace("\0", delimiter).encode(encoding, errors="replace")


def delete_spans(data: bytes, rng: np.random.Generator) -> bytes:
    for _ in range(rng.integers(1, 6)):
        start = int(rng.integers(0, max(len(data), 1)))
        data = data[:start] + data[start + int(rng.integers(0, 200)) :]
    return data


def noise(data: bytes, rng: np.random.Generator) -> bytes:
    return rng.integers(0, 256, rng.integers(0, 4_000), dtype=np.uint8).tobytes()


def nothing(data: bytes, rng: np.random.Generator) -> bytes:
    return data


Damage = Callable[[bytes, np.random.Generator], bytes]
DAMAGES: list[Damage] = [
    *(truncate, drop_the_top, shuffle_lines, repeat_lines, flip_bytes, swap_fields),
    *(fill_a_column, other_locale, delete_spans, noise, nothing),
]


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
