"""Our index on real closes against what the exchange published."""

from __future__ import annotations

import datetime as dt
from functools import cache
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from arbiter.chains import Chain, read_chain
from arbiter.vix.index_rule import Cycle, vix
from arbiter.vix.strip import QUOTE_COLUMNS

HISTORIES = {
    "VIX": "vix-daily_datasets-finance-vix.csv",
    "VIX9D": "VIX9D_History.csv",
    "VIX3M": "VIX3M_History.csv",
    "VIX6M": "VIX6M_History.csv",
}
DAYS = {"VIX9D": 9, "VIX": 30, "VIX3M": 93, "VIX6M": 184}
CALM = {
    "2022-02-04": "spx_2022-02-04_close.csv",
    "2023-02-07": "spx_2023-02-07_close.csv",
    "2023-08-18": "spx_2023-08-18_close.csv",
    "2023-09-14": "spx_2023-09-14_close.csv",
}
STRESSED = {"2020-09-04": "spx_2020-09-04_close.dat"}  # its quotes are wide, and of after the close

calm_days = pytest.mark.parametrize("day", CALM)


@cache
def close(folder: Path, name: str, day: str) -> float:
    """The official close."""
    table = pl.read_csv(folder / "indices" / HISTORIES[name], infer_schema=False)
    written = {day, dt.date.fromisoformat(day).strftime("%m/%d/%Y")}
    (row,) = table.filter(pl.col("DATE").is_in(list(written)))["CLOSE"]
    return float(row)


@cache
def chain(folder: Path, day: str) -> Chain:
    return read_chain(folder / "chains" / {**CALM, **STRESSED}[day])


@calm_days
def test_vix_is_the_official_close(data_dir: Path, day: str) -> None:
    assert vix(chain(data_dir, day)) == pytest.approx(close(data_dir, "VIX", day), abs=0.05)


def test_vix_of_a_stressed_close(data_dir: Path) -> None:
    day = "2020-09-04"
    assert vix(chain(data_dir, day)) == pytest.approx(close(data_dir, "VIX", day), abs=0.5)


@cache
def treasury(folder: Path, day: str, days: float) -> float:
    """The rate the exchange uses: Treasury yields, here taken linear between tenors."""
    table = pl.read_csv(folder / "indices" / "us_treasury_2021-2025_deerfieldgreen.csv")
    tenors = {"1 Mo": 30, "2 Mo": 60, "3 Mo": 91, "6 Mo": 182, "1 Yr": 365}
    (row,) = table.filter(pl.col("Date") == day).select(list(tenors)).iter_rows()
    # half-yearly compounding; before the first tenor its own rate
    return 2.0 * float(np.log1p(0.005 * np.interp(days, list(tenors.values()), row)))


@calm_days
@pytest.mark.parametrize("name", DAYS)
def test_every_horizon_is_the_official_close(data_dir: Path, day: str, name: str) -> None:
    days, official = DAYS[name], close(data_dir, name, day)
    ours = vix(chain(data_dir, day), days=days, rate=treasury(data_dir, day, days))
    assert ours == pytest.approx(official, abs=0.01)
    # parity implies funding above Treasury yields, which shows at six months
    assert vix(chain(data_dir, day), days=days) == pytest.approx(official, abs=0.03)


# Negative controls: other choices of expiries or of time are told apart by the closes.


def misses(folder: Path, name: str, days: float, cycle: Cycle | None = None) -> list[float]:
    """Differences to the official closes of the calm days."""
    return [
        abs(
            vix(chain(folder, day), days=days, rate=treasury(folder, day, days), cycle=cycle)
            - close(folder, name, day)
        )
        for day in CALM
    ]


def test_other_expiries_miss_the_closes(data_dir: Path) -> None:
    assert max(misses(data_dir, "VIX", 30, "listed")) > 0.3
    assert max(misses(data_dir, "VIX9D", 9, "listed")) > 0.3
    assert max(misses(data_dir, "VIX3M", 93, "monthly")) > 0.05
    assert max(misses(data_dir, "VIX6M", 184, "listed")) > 0.05


def test_six_months_are_184_days(data_dir: Path) -> None:
    assert max(misses(data_dir, "VIX6M", 184)) < 0.006
    assert max(misses(data_dir, "VIX6M", 182)) > 0.03


def test_the_monthly_series_is_the_one_that_settles_at_the_open(data_dir: Path) -> None:
    day = "2023-02-07"
    strips = chain(data_dir, day).strips()
    official = close(data_dir, "VIX9D", day)
    assert vix(strips, days=9, rate=0.047) == pytest.approx(official, abs=0.01)
    at_the_close = strips.filter(pl.col("settlement") == "PM")
    assert abs(vix(at_the_close, days=9, rate=0.047) - official) > 0.2


def test_the_rate_hardly_matters(data_dir: Path) -> None:
    day = "2023-09-14"
    low, high = (vix(chain(data_dir, day), rate=rate) for rate in (0.044, 0.064))
    assert abs(high - low) < 0.02


@calm_days
def test_row_order_does_not_matter(data_dir: Path, day: str) -> None:
    strips = chain(data_dir, day).strips()
    shuffled = strips.sample(fraction=1.0, shuffle=True, seed=3)
    assert vix(shuffled, rate=0.03) == pytest.approx(vix(strips, rate=0.03), rel=1e-12)


def test_mini_index_of_the_same_minute_agrees(data_dir: Path) -> None:
    mini = vix(read_chain(data_dir / "chains" / "xsp_2023-09-14_close.csv"), rate=0.054)
    assert mini == pytest.approx(vix(chain(data_dir, "2023-09-14"), rate=0.054), abs=0.5)


@pytest.mark.parametrize(
    ("file", "day"),
    [("spx_2022-07-12_1155ET.csv", "2022-07-12"), ("spx_2019-05-13_0447ET_gth.dat", "2019-05-13")],
)
def test_during_the_day_the_index_lies_in_the_day_s_range(
    data_dir: Path, file: str, day: str
) -> None:
    table = pl.read_csv(data_dir / "indices" / HISTORIES["VIX"])
    row = table.row(by_predicate=pl.col("DATE") == day, named=True)
    assert row["LOW"] <= vix(read_chain(data_dir / "chains" / file)) <= row["HIGH"]


def test_one_month_of_expiries_is_not_enough(data_dir: Path) -> None:
    short = read_chain(data_dir / "chains" / "spx_2023-12-08_close.csv")
    with pytest.raises(ValueError, match="the index needs one on each side"):
        vix(short, days=93, rate=0.05)


def test_strips_of_a_chain_have_the_columns_that_the_rule_reads(data_dir: Path) -> None:
    strips = chain(data_dir, "2023-09-14").strips()
    assert {"label", "settles", "minutes", *QUOTE_COLUMNS} <= set(strips.columns)
    assert np.all(strips["minutes"].to_numpy() > 0)
