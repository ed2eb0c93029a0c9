"""VIX chains, futures curves and tables of volatilities: read with the clock of the exchange."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import arbiter as ab
from arbiter.chains import ChainError
from arbiter.chains.futures_files import monthly_settlement
from arbiter.exclusions import Exclusion
from arbiter.futures import FuturesCurve

DAYS = 365.25


def volatilities(**changes: Any) -> dict[str, Any]:
    strikes = [15.0, 18.0, 20.0, 25.0, 40.0]
    table = {
        "Expiry": [20230322] * 5,
        "Texp": [35 / DAYS] * 5,
        "Strike": strikes,
        "Bid": [None, 0.70, 0.72, 0.95, 1.3],
        "Ask": [0.9, 0.74, 0.76, 1.0, 1.4],
        "Fwd": [20.1] * 5,
        "CallMid": [None] * 5,
    }
    return table | changes


def test_volatilities_keep_prices_whatever_their_year() -> None:
    quotes = ab.read_volatilities(volatilities(), fewest_strikes=3)
    assert quotes.maturities.tolist() == [35 / 365]
    assert quotes.as_of == np.datetime64("2023-02-15T00:00")
    assert quotes.forwards.tolist() == [20.1]
    scale = np.sqrt(365 / DAYS)
    assert np.allclose(quotes.iv_bid, scale * np.array([0.70, 0.72, 0.95, 1.3]), rtol=1e-12)
    assert np.allclose(quotes.iv_ask, scale * np.array([0.74, 0.76, 1.0, 1.4]), rtol=1e-12)


def test_an_empty_bid_is_no_bid() -> None:
    excluded = ab.read_volatilities(volatilities(), fewest_strikes=3).exclusions
    assert excluded.select("row", "strike", "bid", "ask", "reason").rows() == [
        (1, 15.0, None, 0.9, Exclusion.ZERO_BID.value)
    ]


def test_thirty_days_after_a_vix_expiry_is_the_spx_expiry_it_settles_on() -> None:
    vix = ab.read_volatilities(volatilities(), fewest_strikes=3)
    spx = ab.read_volatilities(
        volatilities(
            Expiry=[20230421] * 5,
            Texp=[65 / DAYS] * 5,
            Fwd=[20.0] * 5,
            Bid=[0.2] * 5,
            Ask=[0.3] * 5,
        ),
        fewest_strikes=3,
    )
    assert vix.maturities[0] + 30 / 365 == pytest.approx(spx.maturities[0], abs=1e-15)


def test_files_and_frames_are_read_alike(tmp_path: Path) -> None:
    path = tmp_path / "vix.csv"
    table = volatilities()
    names = list(table)
    lines = [",".join(["", *names])]
    for i in range(5):
        cells = ["" if table[name][i] is None else repr(table[name][i]) for name in names]
        lines.append(",".join([str(i), *cells]))
    path.write_text("\n".join(lines))
    one, two = (ab.read_volatilities(each, fewest_strikes=3) for each in (path, table))
    assert np.array_equal(one.bid, two.bid)
    assert one.labels == two.labels == ("2023-03-22",)
    assert one.exclusions["row"].to_list() == [2]  # a line of the file


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"Fwd": None}, "row 1: fwd = None"),
        ({"Strike": [15.0, -1.0, 20.0, 25.0, 40.0]}, "row 2: strike = -1.0"),
        ({"Expiry": ["soon"] * 5}, "row 1: expiry = None"),
        ({"Texp": [0.1234] * 5}, "give as_of"),
    ],
)
def test_bad_volatilities_are_refused_by_row(changes: dict[str, Any], message: str) -> None:
    table = volatilities(
        **{name: v if v is not None else [None] * 5 for name, v in changes.items()}
    )
    with pytest.raises(ChainError, match=message):
        ab.read_volatilities(table)


def test_missing_columns_and_short_expiries() -> None:
    table = volatilities()
    del table["Fwd"]
    with pytest.raises(ChainError, match=r"lacks fwd.*read_chain"):
        ab.read_volatilities(table)
    with pytest.raises(ChainError, match="lower fewest_strikes"):
        ab.read_volatilities(volatilities(), fewest_strikes=6)
    with pytest.raises(ChainError, match="not after as_of"):
        ab.read_volatilities(volatilities(), as_of="2023-03-22")
    with pytest.raises(ChainError, match=r"as_of is 2023-02-13.*says 2023-02-15.*: 2 days apart"):
        ab.read_volatilities(volatilities(), as_of="2023-02-13", fewest_strikes=3)
    stated = ab.read_volatilities(volatilities(), as_of="2023-02-15", fewest_strikes=3)
    assert stated.as_of == np.datetime64("2023-02-15")
    both = {
        name: [*values, *volatilities(Expiry=[20230216] * 5, Texp=[1 / DAYS] * 5)[name]]
        for name, values in volatilities().items()
    }
    assert ab.read_volatilities(both, fewest_strikes=3).labels == ("2023-02-16", "2023-03-22")
    quotes = ab.read_volatilities(both, fewest_strikes=3, shortest_days=2.0)
    assert quotes.labels == ("2023-03-22",)
    assert [str(one.ending) for one in quotes.endings] == ["too short", "used"]
    assert Exclusion.TOO_SHORT.value in quotes.exclusions["reason"].to_list()


def test_the_joint_day(data_dir: Path) -> None:
    """48 SPX and 12 VIX expiries (README of the data); one SPX expiry is a day away."""
    spx, vix = (
        ab.read_volatilities(data_dir / "joint" / f"{name}_implied_vol_20230215.csv")
        for name in ("spx", "vix")
    )
    assert (spx.maturities.size, vix.maturities.size) == (48, 12)
    assert spx.as_of == vix.as_of == np.datetime64("2023-02-15")
    assert vix.forwards[0] == pytest.approx(20.1951741855249)
    for label, T in zip(vix.labels, vix.maturities, strict=True):
        settles = dt.date.fromisoformat(label) + dt.timedelta(days=30)
        if settles.isoformat() in spx.labels:
            listed = spx.maturities[spx.labels.index(settles.isoformat())]
            assert pytest.approx(listed, abs=1e-15) == T + 30 / 365


def test_a_vix_chain_settles_at_the_open_30_days_before_spx(data_dir: Path) -> None:
    chain = ab.read_chain(data_dir / "chains" / "vix_2019-08-29_0928ET_premarket.dat")
    assert chain.underlying == "VIX"
    assert set(chain.frame["settlement"]) == {"AM"}
    monthly = chain.frame.filter(chain.frame["root"] == "VIX")["settles"].unique().sort()
    assert monthly.to_list() == [
        monthly_settlement(year, month)
        for year, month in ((2019, 9), (2019, 10), (2019, 11), (2019, 12), (2020, 1), (2020, 2))
    ]
    quotes = chain.quotes()
    assert 15.0 < quotes.forwards.min() < quotes.forwards.max() < 20.0  # implied futures


def test_settlements_move_with_holidays() -> None:
    """Final settlement dates as published: a day earlier where SPX expires before Good Friday."""
    assert monthly_settlement(2019, 3) == dt.datetime(2019, 3, 19, 9, 30)  # Good Friday 19 April
    assert monthly_settlement(2022, 3) == dt.datetime(2022, 3, 15, 9, 30)  # Good Friday 15 April
    assert monthly_settlement(2023, 12) == dt.datetime(2023, 12, 20, 9, 30)


def test_futures_by_expiry(tmp_path: Path) -> None:
    path = tmp_path / "vx.csv"
    path.write_text("expiry,bid,ask\n2023-04-19,21.10,21.20\n2023-03-22,20.05,20.15\n")
    curve = ab.read_futures(path, as_of="2023-02-15T16:15")
    assert curve.mid == pytest.approx([20.10, 21.15])
    minutes = (dt.datetime(2023, 3, 22, 9, 30) - dt.datetime(2023, 2, 15, 16, 15)).total_seconds()
    assert curve.maturities[0] == pytest.approx(minutes / 60 / 525_600, rel=1e-14)
    assert curve.labels[0].startswith("2023-03-22")


def test_one_price_is_known_to_half_a_tick() -> None:
    curve = ab.read_futures({"expiry": ["2023-03-22"], "settle": [20.1]}, as_of="2023-02-15")
    assert curve.half_spread == pytest.approx([0.025])


def test_a_history_gives_one_day(data_dir: Path) -> None:
    path = data_dir / "futures" / "vix_futures_2007-2021_quantintell.csv"
    curve = ab.read_futures(path, as_of="2020-09-04")
    assert len(curve) == 8
    assert [label[:10] for label in curve.labels[:3]] == ["2020-09-16", "2020-10-21", "2020-11-18"]
    with pytest.raises(ChainError, match="0 rows of 2020-09-04"):
        ab.read_futures({"date": ["2020-09-03"], "VX1": [30.0]}, as_of="2020-09-04")


@pytest.mark.parametrize(
    ("table", "as_of", "message"),
    [
        ({"expiry": ["2023-03-22"]}, "2023-02-15", "no futures curve"),
        ({"expiry": ["2023-03-22"], "settle": [20.1]}, None, "give as_of"),
        ({"expiry": ["soon"], "settle": [20.1]}, "2023-02-15", "row 1: expiry = 'soon' is no date"),
        ({"expiry": ["2023-01-18"], "settle": [20.1]}, "2023-02-15", "no future with a price"),
        ({"expiry": ["2023-03-22"], "settle": [0.2]}, "2023-02-15", "20 and not 0.2"),
        ({"VX1": [20.0]}, "2023-02-15", "no column date"),
        ({"date": ["2023-02-15"], "VX1": [0.0]}, "2023-02-15", "no price on"),
    ],
)
def test_bad_curves_are_refused(table: dict[str, Any], as_of: str | None, message: str) -> None:
    with pytest.raises(ChainError, match=message):
        ab.read_futures(table, as_of=as_of)


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        (([0.1], [20.0, 21.0]), "one per future"),
        (([0.1, 0.1], [20.0, 21.0]), "two futures settle"),
        (([0.1], [21.0], [20.0]), "is above ask"),
        (([-0.1], [21.0]), "positive"),
        (([0.1], [np.nan]), "index points"),
    ],
)
def test_futures_that_are_none_are_refused(parts: tuple[list[float], ...], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        FuturesCurve.of(*parts)


def test_repr_of_a_curve() -> None:
    assert (
        repr(FuturesCurve.of([0.1], [20.0]))
        == "FuturesCurve(1 from 36.5 to 36.5 days, 20.00 to 20.00)"
    )
