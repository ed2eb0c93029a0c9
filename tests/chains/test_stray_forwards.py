"""A forward that contradicts its neighbours' is said to; what carry and error explain is not."""

from __future__ import annotations

import datetime as dt
from pathlib import Path

import numpy as np
import polars as pl
import pytest

import listed
from arbiter.chains import ChainError, read_chain
from arbiter.chains.stray_forwards import find_stray_forwards

MONTHS = np.arange(1.0, 13.0) / 12.0
ERROR = np.full(12, 0.05)
CALM = 4000.0 * np.exp(0.03 * MONTHS)


@pytest.mark.parametrize("at", range(12))
@pytest.mark.parametrize("share", [-0.03, 0.03])
def test_a_forward_that_strays_is_found_at_either_end_and_between(at: int, share: float) -> None:
    moved = CALM.copy()
    moved[at] *= 1.0 + share
    (found,) = find_stray_forwards(MONTHS, moved, ERROR)
    assert found[0] == at
    assert found[1] == pytest.approx(CALM[at], rel=1e-3)


def test_two_that_stray_are_both_found() -> None:
    moved = CALM.copy()
    moved[[3, 8]] *= [1.03, 0.98]
    assert {at for at, _ in find_stray_forwards(MONTHS, moved, ERROR)} == {3, 8}


@pytest.mark.parametrize(
    ("forward", "error"),
    [
        (CALM, ERROR),
        (4000.0 * np.exp(0.05 * MONTHS - 0.02 * MONTHS**2), ERROR),  # rates are cut by 4 % a year
        (CALM - 5.0 * np.floor(4.0 * MONTHS), ERROR),  # a dividend a quarter
        (CALM * np.where(np.arange(12) == 4, 1.03, 1.0), 40.0 * np.ones(12)),  # known to 1 %
        (CALM[:3] * np.array([1.0, 1.03, 1.0]), ERROR[:3]),  # which of three is it?
        (np.where(np.arange(12) == 4, np.nan, CALM), ERROR),
        (20.0 + 4.0 * np.sqrt(MONTHS), 0.05 + 0.0 * MONTHS),  # a curve of futures
    ],
)
def test_carry_dividends_and_errors_are_no_alarm(forward: np.ndarray, error: np.ndarray) -> None:
    assert find_stray_forwards(MONTHS[: forward.size], forward, error) == []


def test_the_quotes_of_a_chain_carry_the_warning() -> None:
    day = dt.date(2023, 3, 31)
    factor = pl.when(pl.col("expiry") == day).then(1.03).otherwise(1.0)
    columns = ("strike", "bid", "ask")
    plain = listed.market()
    stray = plain.with_columns(pl.col(name) * factor for name in columns)
    (warning,) = read_chain(stray, as_of=listed.AS_OF).quotes().warnings
    assert "parity implies a forward of 4307.28 for 2023-03-31 SPXW" in warning
    assert "3.0% from the 418" in warning
    assert read_chain(plain, as_of=listed.AS_OF).quotes().warnings == ()


def test_no_real_chain_has_a_false_alarm(data_dir: Path) -> None:
    read = 0
    for path in sorted((data_dir / "chains").iterdir()):
        try:
            chain = read_chain(path)
        except ChainError as error:
            moment = error.remedy.value if error.remedy else None
            chain = read_chain(path, as_of=moment, underlying="SPX")
        read += 1
        assert not [warning for warning in chain.quotes().warnings if "parity implies" in warning]
    assert read > 10
