"""Sources that could be read in a wrong way without a word: they are read right, or refused."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import polars as pl
import pytest

from arbiter.chains import Chain, read_chain
from arbiter.data import example_chain_path as example_path
from arbiter.pricing import black
from arbiter.vix.index_rule import vix

AS_OF = "2023-02-15T16:00"
STRIKES = np.arange(3600.0, 4801.0, 25.0)


def table(forward: float = 4200.0, days: float = 30.0, **constant: Any) -> pl.DataFrame:
    """Calls and puts at 20 %, discount factor 0.99, half-spread 0.4."""
    root = 0.2 * np.sqrt(days / 365.0)
    out = black.otm(np.log(STRIKES / forward), np.full(STRIKES.size, root)) * 0.99 * forward
    call = out + np.maximum(0.99 * (forward - STRIKES), 0.0)
    put = out + np.maximum(0.99 * (STRIKES - forward), 0.0)
    price = np.concatenate([call, put])
    columns: Mapping[str, Any] = {
        "strike": np.tile(STRIKES, 2),
        "side": ["call"] * STRIKES.size + ["put"] * STRIKES.size,
        "bid": np.maximum(price - 0.4, 0.0),
        "ask": price + 0.4,
    }
    named = {"expiry": "2023-03-17", "root": "SPXW", **constant}
    return pl.DataFrame(columns).with_columns(**{name: pl.lit(v) for name, v in named.items()})


def read(frame: pl.DataFrame) -> Chain:
    return read_chain(frame, as_of=AS_OF)


def test_volatilities_in_the_place_of_prices_are_refused() -> None:
    assert len(read(table()).quotes()) == 47  # the control: prices
    for level in (0.2, 20.0):
        smile = pl.lit(level) * (1.0 + 0.1 * (pl.col("strike") / 4200.0 - 1.0) ** 2)
        frame = table().with_columns(bid=smile * 0.99, ask=smile * 1.01)
        with pytest.raises(ValueError, match="volatilities in the place of prices"):
            read(frame).quotes()


def test_what_settles_twice_on_one_day_is_two_series() -> None:
    early = table(4200.0, settles="2023-03-17 15:00").drop("root", "expiry")
    late = table(4210.0, settles="2023-03-17 16:00").drop("root", "expiry")
    quotes = read(pl.concat([early, late])).quotes()
    assert quotes.maturities.size == 2
    assert "duplicate" not in quotes.exclusions["reason"]
    assert quotes.forwards == pytest.approx([4200.0, 4210.0], abs=0.5)
    assert quotes.labels == ("2023-03-17 PM 03-17 15:00", "2023-03-17 PM 03-17 16:00")
    assert read(early).quotes().labels == ("2023-03-17 PM",)  # alone it needs no time


def test_dates_with_the_day_first_are_refused_and_not_half_read() -> None:
    both = pl.concat([table(expiry="03/04/2023"), table(expiry="17/04/2023")])
    with pytest.raises(ValueError, match=r"row 99: expiry = '17/04/2023' has the day first"):
        read(both)
    american = pl.concat([table(expiry="04/03/2023"), table(expiry="04/17/2023")])
    assert set(read(american).frame["expiry"].dt.month()) == {4}


@pytest.mark.parametrize("zone", ["Europe/Berlin", "Asia/Tokyo", "America/New_York", "UTC"])
def test_an_expiry_with_a_time_zone_is_the_day_that_it_says(zone: str) -> None:
    midnight = pl.lit("2023-03-17").str.to_datetime().dt.replace_time_zone(zone)
    frame = read(table().with_columns(expiry=midnight)).frame
    assert str(frame["expiry"][0]) == "2023-03-17"


def test_a_decimal_comma_is_not_a_mark_of_thousands() -> None:
    rows = [
        f'2023-03-17,SPXW,{strike:g},{side},"{bid:,.2f}","{ask:,.2f}"'
        for strike, side, bid, ask in table()
        .select("strike", "side", pl.col("bid") + 900.0, pl.col("ask") + 900.0)
        .iter_rows()
    ]
    head = "expiry,root,strike,side,bid,ask\n"
    marked = read_chain((head + "\n".join(rows)).encode(), as_of=AS_OF)
    most = float(table()["bid"].to_numpy().max()) + 900.0
    assert marked.frame["bid"].max() == pytest.approx(most, abs=0.006)
    foreign = head + '2023-03-17,SPXW,4200,call,"0,05","12,35"\n2023-03-17,SPXW,4200,put,1.5,1.75'
    frame = read_chain(foreign.encode(), as_of=AS_OF).frame
    assert frame.select("bid", "ask").rows() == [(None, None), (1.5, 1.75)]


def test_a_negative_price_far_out_costs_the_index_that_option_alone() -> None:
    near, far = table(days=23.0, expiry="2023-03-10"), table(days=37.0, expiry="2023-03-24")
    clean = pl.concat([near, far])
    lowest = (pl.col("strike") == 3600.0) & (pl.col("side") == "put")
    bad = clean.with_columns(
        ask=pl.when(lowest).then(-1.5).otherwise("ask"),
        bid=pl.when(lowest).then(0.3).otherwise("bid"),
    )
    assert float(vix(read(bad))) == pytest.approx(float(vix(read(clean))), abs=0.1)
    assert (read(bad).quotes().exclusions["reason"] == "missing").sum() == 2


def test_a_chain_that_has_expired_says_when_and_what_that_means() -> None:
    chain = read_chain(table(), as_of="2024-03-15T16:00")
    with pytest.raises(ValueError, match=r"98 expired \(the option has settled.*2024-03-15T16:00"):
        chain.quotes()


def test_a_line_whose_strike_is_not_that_of_its_symbols_is_not_used() -> None:
    lines = example_path().read_text().splitlines()
    place = next(i for i, line in enumerate(lines) if "SPXW261113C06800000" in line)
    lines[place] = lines[place].replace(",6800.00,", ",6850.00,")
    chain = read_chain("\n".join(lines).encode())
    assert chain.set_aside["row"].to_list() == [place + 1, place + 1]
    assert set(chain.set_aside["reason"]) == {"unreadable"}
    assert read_chain(example_path()).set_aside.height == 0  # the control
