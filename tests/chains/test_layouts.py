"""Readers: every layout gives the options that were listed, and says what it assumed."""

from __future__ import annotations

import datetime as dt
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pytest
from polars.testing import assert_frame_equal

import listed
from arbiter.chains import Chain, ChainError, read_chain
from arbiter.exclusions import Exclusion
from arbiter.files.limits import BYTES

MARKET = listed.market()
KEYS = ["root", "expiry", "settlement", "strike", "side"]
AS_OF = np.datetime64(listed.AS_OF, "s")


def assert_listed(chain: Chain, market: pl.DataFrame = MARKET) -> None:
    """The chain holds exactly the options of ``market``."""
    columns = [*KEYS, "bid", "ask"]
    assert_frame_equal(chain.frame.select(columns).sort(KEYS), market.select(columns).sort(KEYS))
    assert chain.set_aside.height == 0
    assert chain.as_of == AS_OF


TEXTS = {
    "new": listed.exchange(MARKET),
    "old": listed.exchange(MARKET, listed.OLD_TOP),
    "no blank line": listed.exchange(MARKET, listed.NEW_TOP.lstrip("\n")),
    "trailing commas": listed.exchange(MARKET).replace("\n", ",,,\n"),
    "byte order mark": "\ufeff" + listed.exchange(MARKET),
    "CRLF": listed.exchange(MARKET).replace("\n", "\r\n"),
    "CR": listed.exchange(MARKET).replace("\n", "\r"),
    "no names": listed.exchange(MARKET, header=""),
    "names in another language": listed.exchange(
        MARKET, header=listed.HEADER.replace("Bid", "Gebot")
    ),
    "Russian": listed.exchange(
        MARKET,
        listed.NEW_TOP.replace(
            "February 7, 2023 at 5:34 PM EST", "7 февраля 2023 г. в 17:34 GMT-5"
        ),
    ),
    "dates in another language": listed.exchange(MARKET).replace("Fri Feb", "пт февр."),
    "weekend": listed.exchange(MARKET).replace(
        "February 7, 2023 at 5:34 PM", "February 7, 2023 at 11:59 PM"
    ),
    "quoted": "\n".join(
        '"' + line.replace(",", '","') + '"' if "SPX2" in line or "SPXW2" in line else line
        for line in listed.exchange(MARKET).split("\n")
    ),
    "semicolons": listed.exchange(MARKET, listed.OLD_TOP)
    .replace(".", "·")
    .replace(",", ";")
    .replace("·", ","),
    "blank lines between": listed.exchange(MARKET).replace("Fri Mar", "\nFri Mar"),
    "yahoo": listed.yahoo(MARKET),
    "tidy": listed.tidy(MARKET),
}


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
def test_every_layout_gives_the_options_that_were_listed(text: str) -> None:
    assert_listed(read_chain(text.encode()))


@pytest.mark.parametrize("encoding", ["utf-16", "utf-8-sig"])
def test_other_encodings_are_read(encoding: str) -> None:
    assert_listed(read_chain(listed.exchange(MARKET).encode(encoding)))


@pytest.mark.parametrize(
    ("top", "spot"), [(listed.NEW_TOP, 4164.0), (listed.OLD_TOP, 4164.0), ("", None)]
)
def test_spot_comes_from_the_header(top: str, spot: float | None) -> None:
    chain = read_chain(listed.exchange(MARKET, top).encode(), as_of=listed.AS_OF)
    assert chain.spot == spot


def test_rows_are_the_lines_that_an_editor_shows() -> None:
    for text in (TEXTS["new"], TEXTS["CRLF"], TEXTS["tidy"], TEXTS["blank lines between"]):
        chain = read_chain(text.encode())
        lines = text.replace("\r\n", "\n").split("\n")
        for row, strike, expiry in (
            chain.frame.select("row", "strike", "expiry").sample(20, seed=1).iter_rows()
        ):
            assert f"{strike:g}" in lines[row - 1]
            assert f"{expiry:%d}" in lines[row - 1]


def test_files_tables_and_bytes_are_the_same_chain(tmp_path: Path) -> None:
    csv, parquet = tmp_path / "chain.csv", tmp_path / "chain.parquet"
    csv.write_text(listed.tidy(MARKET), encoding="utf-8")
    parquet.write_bytes(listed.parquet(MARKET))
    table = MARKET.with_columns(as_of=pl.lit(listed.AS_OF))
    as_pandas = pd.DataFrame({name: table[name].to_list() for name in table.columns})
    sources = [csv, str(csv), parquet, table, table.lazy(), as_pandas, table.to_dict()]
    for given in sources:
        assert_listed(read_chain(given))
    assert read_chain(csv).name == "chain.csv"


def test_pandas_columns_of_every_kind_are_read() -> None:
    table = pd.DataFrame(
        {
            "expiry": pd.to_datetime(MARKET["expiry"].to_list()),
            "root": pd.array(MARKET["root"].to_list(), dtype="string"),
            "strike": pd.array(MARKET["strike"].to_list(), dtype="Float64"),
            "type": pd.Categorical(MARKET["side"].to_list()),
            "bid": MARKET["bid"].to_numpy(),
            "ask": MARKET["ask"].to_list(),
            "as_of": pd.Timestamp("2023-02-07T21:15", tz="UTC"),
        }
    )
    assert_listed(read_chain(table))
    table.loc[3, "strike"] = pd.NA
    assert read_chain(table).set_aside.select("row", "reason").rows() == [(4, "unreadable")]


def test_decimal_commas_are_read() -> None:
    columns = ["root", "expiry", "strike", "side", "bid", "ask"]
    text = MARKET.select(columns).write_csv(separator=";").replace(".", ",")
    assert_listed(read_chain(text.encode(), as_of=listed.AS_OF))


def test_settlement_and_minutes_are_exact() -> None:
    chain = read_chain(listed.exchange(MARKET).encode())
    for root, expiry in listed.SERIES:
        rows = chain.frame.filter((pl.col("root") == root) & (pl.col("expiry") == expiry))
        assert set(rows["label"]) == {f"{expiry} {root}"}
        minutes = rows["T"].to_numpy() * 525_600
        exact = (rows["settles"][0] - listed.AS_OF).total_seconds() / 60.0
        assert np.all(np.round(minutes) == exact)
        assert np.allclose(minutes, exact, rtol=1e-15)


def test_a_same_day_expiry_has_its_minutes_and_then_has_expired() -> None:
    day = listed.market((("SPXW", dt.date(2023, 2, 7)),), as_of=dt.datetime(2023, 2, 7, 11, 55))
    text = listed.exchange(day)
    live = read_chain(text.encode(), as_of="2023-02-07T11:55")
    assert live.strips()["minutes"].unique().to_list() == [245]
    gone = read_chain(text.encode())
    assert gone.strips().height == 0
    assert any("2023-02-07 SPXW had settled" in note for note in gone.notes)
    with pytest.raises(ChainError, match="82 expired"):
        gone.quotes()


def test_strips_put_calls_and_puts_side_by_side() -> None:
    chain = read_chain(listed.exchange(MARKET).encode())
    strips = chain.strips()
    assert strips.height * 2 == MARKET.height
    assert strips.columns[:6] == ["label", "root", "expiry", "settlement", "settles", "minutes"]
    assert strips.select("settles", "strike").is_duplicated().sum() == 0
    one = strips.filter(pl.col("label") == "2023-03-31 SPXW").row(3, named=True)
    for side in ("call", "put"):
        option = MARKET.filter(
            (pl.col("expiry") == one["expiry"])
            & (pl.col("strike") == one["strike"])
            & (pl.col("side") == side)
        )
        assert (one[f"{side}_bid"], one[f"{side}_ask"]) == option.select("bid", "ask").row(0)
    assert strips["settles"].is_sorted()


def test_the_long_layout_tells_series_apart_where_prices_prove_it() -> None:
    chain = read_chain(listed.long(MARKET).encode(), as_of=listed.AS_OF, underlying="SPX")
    assert any("told apart by their order" in note for note in chain.notes)
    together = MARKET.filter(pl.len().over("expiry", "strike", "side") == 2)
    alone = MARKET.filter(pl.len().over("expiry", "strike", "side") == 1)
    lost = alone.filter(pl.col("expiry") == dt.date(2023, 2, 17))
    kept = pl.concat([together, alone.filter(pl.col("expiry") != dt.date(2023, 2, 17))])
    columns = [*KEYS, "bid", "ask"]
    assert_frame_equal(chain.frame.select(columns).sort(KEYS), kept.select(columns).sort(KEYS))
    assert set(chain.set_aside["reason"]) <= {Exclusion.AMBIGUOUS.value}
    assert chain.set_aside.height == lost.height


def test_the_long_layout_sets_aside_what_it_cannot_tell_apart() -> None:
    twice = MARKET.filter((pl.col("expiry") == dt.date(2023, 2, 17)) & (pl.col("root") == "SPX"))
    text = listed.long(
        pl.concat([twice, twice, MARKET.filter(pl.col("expiry") != twice["expiry"][0])])
    )
    chain = read_chain(text.encode(), as_of=listed.AS_OF, underlying="SPX")
    assert chain.set_aside.height == 2 * twice.height
    assert set(chain.set_aside["reason"]) == {Exclusion.AMBIGUOUS.value}
    assert any("prices do not tell which is which" in note for note in chain.notes)
    quotes = chain.quotes()
    assert (
        quotes.exclusions.filter(pl.col("reason") == Exclusion.AMBIGUOUS.value).height
        == 2 * twice.height
    )


def test_the_long_layout_needs_an_underlying() -> None:
    text = listed.long(MARKET).encode()
    with pytest.raises(ChainError, match="underlying='SPX'"):
        read_chain(text, as_of=listed.AS_OF)
    with pytest.raises(ChainError, match="American"):
        read_chain(text, as_of=listed.AS_OF, underlying="SPY")


def test_the_long_layout_takes_the_underlying_from_the_files_name(tmp_path: Path) -> None:
    path = tmp_path / "spx_2023-02-07_long.csv"
    path.write_text(listed.long(MARKET), encoding="utf-8")
    with pytest.raises(ChainError, match="as_of='2023-02-07T16:15'"):
        read_chain(path)
    assert read_chain(path, as_of="2023-02-07").underlying == "SPX"


def test_a_file_without_a_time_asks_for_it() -> None:
    text = listed.exchange(MARKET, top="").encode()
    with pytest.raises(ChainError, match="does not say when it was quoted: give as_of"):
        read_chain(text)
    assert_listed(read_chain(text, as_of="2023-02-07T16:15"))


def test_an_index_level_is_not_taken_for_a_year() -> None:
    top = listed.NEW_TOP.replace(
        "Standard & Poors 500 Index,Last: 4164", "Mar 500 Index 12,Last: 2022"
    )
    assert read_chain(listed.exchange(MARKET, top).encode()).as_of == AS_OF


def test_as_of_within_a_day_is_used_and_the_header_is_named_in_a_warning() -> None:
    chain = read_chain(listed.exchange(MARKET).encode(), as_of="2023-02-07T10:00")
    assert chain.as_of == np.datetime64("2023-02-07T10:00", "s")
    warning = (
        "bytes: as_of is 2023-02-07T10:00, and the file says 2023-02-07T16:15: 6 h 15 min apart; "
        "as_of is used"
    )
    assert chain.warnings == (warning,)
    assert warning in chain.quotes().warnings
    # the same moment, or its day alone, says nothing new
    for same in (listed.AS_OF, "2023-02-07"):
        assert read_chain(listed.exchange(MARKET).encode(), as_of=same).warnings == ()


def test_as_of_outside_of_quoting_hours_is_used_with_a_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    table = MARKET.drop("quote_time", strict=False)
    evening = "2023-02-07T20:30"
    chain = read_chain(table, as_of=evening)
    assert chain.as_of == np.datetime64(evening)
    (warning,) = chain.warnings
    assert "outside of the quoting hours of NYSE" in warning
    assert "as_of='2023-02-07'" in warning
    assert warning in caplog.messages
    assert warning in chain.quotes().warnings
    # the controls: futures are quoted then, and the day alone means the close
    assert read_chain(table, as_of=evening, calendar="CME").warnings == ()
    assert read_chain(table, as_of=evening, calendar="24/7").as_of == chain.as_of
    close = read_chain(table, as_of="2023-02-07")
    assert (close.as_of, close.warnings) == (AS_OF, ())
    with pytest.raises(ChainError, match="calendar = 'NASDAQ'"):
        read_chain(table, as_of=evening, calendar="NASDAQ")


def test_a_stamp_in_a_file_outside_of_quoting_hours_means_the_last_quotes() -> None:
    evening = MARKET.with_columns(as_of=pl.lit("2023-02-07T20:30"))
    moved = read_chain(evening)
    assert (moved.as_of, moved.warnings) == (AS_OF, ())
    assert any("after the close: taken as 2023-02-07T16:15" in note for note in moved.notes)
    stays = read_chain(evening, calendar="24/7")
    assert stays.as_of == np.datetime64("2023-02-07T20:30")


@pytest.mark.parametrize(
    ("content", "as_of", "apart"),
    [
        (listed.exchange(MARKET), "2023-02-06T10:00", "1 day apart; leave as_of out"),
        (listed.exchange(MARKET), "2021-02-08T16:15", "729 days apart"),
        (listed.tidy(MARKET), "2024-02-07T16:15", "365 days apart"),
        (listed.yahoo(MARKET), "2023-01-31T16:15", "7 days apart"),
    ],
)
def test_as_of_of_another_day_is_refused(content: str, as_of: str, apart: str) -> None:
    with pytest.raises(ChainError, match=apart):
        read_chain(content.encode(), as_of=as_of)


def test_as_of_may_be_days_after_the_latest_trade() -> None:
    """Negative control: a trade is no stamp, and nothing need have traded since."""
    chain = read_chain(listed.yahoo(MARKET).encode(), as_of="2023-02-08T16:15")
    assert chain.as_of == np.datetime64("2023-02-08T16:15", "s")
    assert "the file says 2023-02-07T16:15: 1 day apart; as_of is used" in chain.warnings[0]


def test_yahoos_moment_is_that_of_the_latest_trade() -> None:
    close = read_chain(listed.yahoo(MARKET).encode())
    assert close.as_of == AS_OF
    assert any("latest trade" in note for note in close.notes)
    noon = read_chain(listed.yahoo(MARKET, "2023-02-07 17:00:01+00:00").encode())
    assert noon.as_of == np.datetime64("2023-02-07T12:00", "s")


def test_a_tidy_table_of_two_moments_is_refused() -> None:
    moments = ["2023-02-07T16:15"] * (MARKET.height - 1) + ["2023-02-08T16:15"]
    with pytest.raises(ChainError, match="as_of has 2 different values"):
        read_chain(MARKET.with_columns(as_of=pl.Series(moments)))


def test_tidy_tables_may_give_settlement_times_and_no_root() -> None:
    chain = read_chain(
        MARKET.drop("root", "expiry", "settlement")
        .with_columns(settles=pl.Series([dt.datetime(2023, 3, 31, 16)] * MARKET.height))
        .head(82),
        as_of=listed.AS_OF,
    )
    assert chain.frame["label"].unique().to_list() == ["2023-03-31 PM"]
    assert chain.underlying == "unknown"
    assert any("taken as European" in note for note in chain.notes)


def test_tidy_tables_without_root_and_settlement_settle_at_the_close() -> None:
    table = MARKET.filter(pl.col("expiry") == dt.date(2023, 3, 31)).drop("root", "settlement")
    chain = read_chain(table, as_of=listed.AS_OF)
    assert chain.frame["settles"].unique().to_list() == [dt.datetime(2023, 3, 31, 16)]
    assert any("taken as settled at the close" in note for note in chain.notes)
    assert chain.strips().height * 2 == table.height
    truth = listed.curve("SPXW", dt.date(2023, 3, 31))
    assert chain.forwards()["forward"][0] == pytest.approx(truth.forward, abs=0.05)
    named = read_chain(table, as_of=listed.AS_OF, underlying="SPX")
    assert named.underlying == "SPX"
    assert len(named.quotes()) == len(chain.quotes()) > 20


def test_symbols_are_enough() -> None:
    names = [
        listed.symbol(*row) for row in MARKET.select("root", "expiry", "side", "strike").iter_rows()
    ]
    table = MARKET.select("bid", "ask").with_columns(symbol=pl.Series(names))
    assert_listed(read_chain(table, as_of=listed.AS_OF))


def test_unknown_roots_need_a_declaration() -> None:
    table = MARKET.filter(pl.col("root") == "SPX").with_columns(root=pl.lit("OESX"))
    with pytest.raises(ChainError, match="not known to be European"):
        read_chain(table, as_of=listed.AS_OF)
    declared = table.with_columns(exercise=pl.lit("European"))
    assert read_chain(declared, as_of=listed.AS_OF).underlying == "OESX"
    with pytest.raises(ChainError, match="nothing says when root 'OESX' settles"):
        read_chain(declared.drop("settlement"), as_of=listed.AS_OF)
    with pytest.raises(ChainError, match="exercise is American"):
        read_chain(table.with_columns(exercise=pl.lit("American")), as_of=listed.AS_OF)


@pytest.mark.parametrize("root", ["SPY", "QQQ", "OEX", "AAPL"])
def test_american_options_are_refused_with_a_sentence(root: str) -> None:
    text = listed.exchange(MARKET.filter(pl.col("root") == "SPX")).replace("SPX2", f"{root}2")
    with pytest.raises(ChainError, match=f"{root}.*American"):
        read_chain(text.encode())


def test_two_underlyings_are_refused() -> None:
    text = listed.exchange(MARKET).replace("SPXW2302", "XSP2302")
    with pytest.raises(ChainError, match="options on SPX, XSP: give one underlying at a time"):
        read_chain(text.encode())
    with pytest.raises(ChainError, match="underlying = 'VIX', but the options are on SPX"):
        read_chain(listed.exchange(MARKET).encode(), underlying="VIX")


def test_an_unknown_file_says_what_was_tried_and_what_was_missing() -> None:
    with pytest.raises(ChainError) as caught:
        read_chain(b"date,open,high,low,close\n2023-02-07,1,2,0.5,1.5\n")
    message = str(caught.value)
    for part in (
        "exchange: no line",
        "yahoo: no column",
        "long: no column",
        "tidy: no column bid, ask",
    ):
        assert part in message


def test_a_forced_layout_is_tried_alone() -> None:
    with pytest.raises(ChainError, match="is not in the layout yahoo: no column contractsymbol"):
        read_chain(listed.tidy(MARKET).encode(), layout="yahoo")
    assert_listed(read_chain(listed.tidy(MARKET).encode(), layout="tidy"))
    with pytest.raises(
        ChainError, match="layout = 'cboe' is not one of exchange, yahoo, long, tidy"
    ):
        read_chain(listed.tidy(MARKET).encode(), layout="cboe")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "empty"),
        (b"  \n\n", "empty"),
        (b"\x00\x01\x02" * 50, "binary"),
        (b"\x1f\x8b\x08rest", "gzip"),
        (b"PK\x03\x04rest", "Excel"),
        (b"PAR1 but not really", "Parquet"),
        (b"<!DOCTYPE html><html></html>", "web page"),
        (b"x" * 30_000, "line of 30,000 characters"),
    ],
)
def test_what_is_not_a_table_is_refused_by_name(content: bytes, words: str) -> None:
    with pytest.raises(ChainError, match=words):
        read_chain(content)


def test_files_that_cannot_be_a_chain_are_not_read_into_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    big = tmp_path / "big.csv"
    with big.open("wb") as file:
        file.truncate(BYTES.default + 1)  # sparse: takes no room
    monkeypatch.setattr(Path, "read_bytes", lambda _: pytest.fail("the file was read"))
    with pytest.raises(ChainError, match="67,108,865 bytes, more than the 67,108,864 allowed"):
        read_chain(big)


def test_missing_files_and_folders_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ChainError, match="cannot be read"):
        read_chain(tmp_path / "absent.csv")
    with pytest.raises(ChainError, match="is not a file"):
        read_chain(tmp_path)
    with pytest.raises(ChainError, match="int is not a chain"):
        read_chain(7)


def test_strikes_in_thousandths_are_found_where_symbols_tell() -> None:
    lines = listed.exchange(MARKET).split("\n")
    body = [i for i, line in enumerate(lines) if line.count(",") == 21 and "Strike" not in line]
    for i in body:
        fields = lines[i].split(",")
        fields[11] = str(float(fields[11]) * 1000.0)
        lines[i] = ",".join(fields)
    with pytest.raises(
        ChainError, match=r"row 5: the strike column says 3.76e\+06 .* factor of 1000"
    ):
        read_chain("\n".join(lines).encode())


def test_strikes_of_another_scale_than_spot_are_found() -> None:
    thousandths = MARKET.with_columns(strike=pl.col("strike") * 1000.0)
    with pytest.raises(ChainError, match=r"median strike is .* and spot is 4164"):
        read_chain(thousandths, as_of=listed.AS_OF, spot=4164.0)
    with pytest.raises(ChainError, match="different units"):
        read_chain(thousandths, as_of=listed.AS_OF).quotes()


@pytest.mark.parametrize("factor", [0.01, 100.0])
def test_prices_of_another_scale_than_strikes_are_found(factor: float) -> None:
    scaled = MARKET.with_columns(pl.col("bid", "ask") * factor)
    with pytest.raises(ChainError, match=r"prices and strikes are in different units"):
        read_chain(scaled, as_of=listed.AS_OF).quotes()


def test_exchanged_sides_are_found() -> None:
    other = {"call": "put", "put": "call"}
    swapped = MARKET.with_columns(side=pl.col("side").replace_strict(other))
    with pytest.raises(ChainError, match="calls and puts are exchanged"):
        read_chain(swapped, as_of=listed.AS_OF).quotes()


@pytest.mark.parametrize("spot", [0.0, -1.0, float("nan"), "high"])
def test_spot_that_is_no_level_is_refused(spot: float) -> None:
    with pytest.raises(ChainError, match="spot = "):
        read_chain(listed.tidy(MARKET).encode(), spot=spot)


def test_a_spot_of_another_moment_is_noted() -> None:
    text = listed.exchange(MARKET).replace("Last: 4164", "Last: 4214").encode()
    assert any(
        "spot 4214 and the forward of 2023-02-10 SPXW" in note for note in read_chain(text).notes
    )
    assert not any("spot" in note for note in read_chain(listed.exchange(MARKET).encode()).notes)


def test_rows_that_cannot_be_read_are_set_aside_with_their_line() -> None:
    lines = listed.exchange(MARKET).split("\n")
    lines[9] = "a footnote of the exchange"
    lines[20] = lines[20][: lines[20].index("P0") - 3]  # cut off before the put's symbol ends
    chain = read_chain("\n".join(lines).encode())
    table = chain.set_aside.select("row", "side", "reason").rows()
    assert sorted(table) == [
        (10, "call", "unreadable"),
        (10, "put", "unreadable"),
        (21, "put", "unreadable"),
    ]
    quotes = chain.quotes()
    assert len(quotes) + quotes.exclusions.height == MARKET.height
