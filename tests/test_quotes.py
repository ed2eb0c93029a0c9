"""The input type: a table becomes quotes, and every row is used or has a reason."""

from __future__ import annotations

import datetime as dt
import logging

import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

from arbiter.exclusions import EXCLUSION_SCHEMA, Exclusion, count_exclusions, no_exclusions
from arbiter.pricing import black
from arbiter.quotes import MAX_LOG_MONEYNESS, Quotes

K = np.linspace(-0.3, 0.2, 11)


def table(**columns: object) -> dict[str, object]:
    """Two expiries of eleven quotes at a volatility of 20 %, one point wide."""
    base: dict[str, object] = {
        "T": np.repeat([0.25, 1.0], K.size),
        "k": np.tile(K, 2),
        "iv_bid": np.full(2 * K.size, 0.195),
        "iv_ask": np.full(2 * K.size, 0.205),
    }
    return base | columns


def test_volatilities_come_back() -> None:
    quotes = Quotes.from_frame(table())
    assert len(quotes) == 2 * K.size
    assert np.allclose(quotes.iv_bid, 0.195, rtol=1e-12)
    assert np.allclose(quotes.iv_ask, 0.205, rtol=1e-12)
    assert np.all((quotes.iv_mid > 0.195) & (quotes.iv_mid < 0.205))
    assert np.allclose(quotes.mid - quotes.half_spread, quotes.bid, rtol=1e-12)
    assert repr(quotes) == "Quotes(22 on 2 expiries, T 0.25 to 1, 0 excluded)"


def test_prices_are_those_of_the_side_out_of_the_money() -> None:
    quotes = Quotes.from_frame(table())
    assert np.allclose(quotes.bid, black.otm(quotes.k, 0.195 * np.sqrt(quotes.T)), rtol=1e-13)
    again = Quotes.from_frame({"T": quotes.T, "k": quotes.k, "bid": quotes.bid, "ask": quotes.ask})
    assert np.array_equal(again.bid, quotes.bid)


@given(st.permutations(range(22)))
def test_the_order_of_rows_does_not_matter(order: list[int]) -> None:
    rows = pl.DataFrame(table())
    a, b = Quotes.from_frame(rows), Quotes.from_frame(rows[order])
    for name in ("maturities", "expiry", "k", "bid", "ask"):
        assert np.array_equal(getattr(a, name), getattr(b, name))


def test_polars_pandas_and_mappings_are_the_same() -> None:
    given_tables = [table(), pl.DataFrame(table()), pl.LazyFrame(table()), pd.DataFrame(table())]
    bids = [Quotes.from_frame(given).bid for given in given_tables]
    assert all(np.array_equal(bids[0], bid) for bid in bids)


def test_a_table_goes_out_and_comes_back() -> None:
    forward = np.repeat([4000.0, 4100.0], K.size)
    names = ["a"] * K.size + ["b"] * K.size
    quotes = Quotes.from_frame(table(forward=forward, discount=forward / 5000.0, expiry=names))
    again = Quotes.from_frame(quotes.to_frame())
    assert_frame_equal(again.to_frame(), quotes.to_frame())
    assert quotes.labels == ("a", "b")
    assert np.allclose(quotes.to_frame()["strike"], forward * np.exp(quotes.k))


@pytest.mark.parametrize(
    ("reason", "values"),
    [
        (Exclusion.ZERO_BID, {"bid": 0.0}),
        (Exclusion.ZERO_BID, {"bid": float("nan")}),
        (Exclusion.MISSING, {"ask": float("nan")}),
        (Exclusion.MISSING, {"bid": -0.01}),
        (Exclusion.MISSING, {"bid": float("inf")}),
        (Exclusion.NO_ASK, {"ask": 0.0}),
        (Exclusion.CROSSED, {"bid": 0.05, "ask": 0.04}),
        (Exclusion.BOUNDS, {"ask": 1.2}),
    ],
)
def test_a_planted_fault_is_excluded_with_its_reason(
    reason: Exclusion, values: dict[str, float], caplog: pytest.LogCaptureFixture
) -> None:
    good = Quotes.from_frame(table())
    columns = {"T": good.T, "k": good.k, "bid": good.bid.copy(), "ask": good.ask.copy()}
    for name, value in values.items():
        columns[name][7] = value
    with caplog.at_level(logging.WARNING):
        quotes = Quotes.from_frame(columns)
    assert quotes.exclusions.select("row", "reason").rows() == [(8, reason.value)]
    assert len(quotes) == len(good) - 1
    assert "1 of 22 quotes are not used" in caplog.text


def test_a_repeated_quote_counts_once() -> None:
    rows = pl.DataFrame(table())
    quotes = Quotes.from_frame(pl.concat([rows, rows[[3]]]))
    assert quotes.exclusions.select("row", "reason").rows() == [(23, "duplicate")]
    assert len(quotes) == 22


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"T": np.zeros(22)}, "row 1: T = 0.0; maturities are positive"),
        ({"k": np.full(22, 4000.0)}, r"row 1: k = 4000.0; k is log\(strike/forward\)"),
        ({"k": np.full(22, np.nan)}, "row 1: k = nan"),
        ({"k": ["x"] * 22}, "column k is not numeric"),
        ({"k": K}, "column k has 11 rows and T has 22"),
        (
            {"iv_ask": np.full(22, 20.5), "iv_bid": np.full(22, 19.5)},
            "row 1, column iv_bid: 19.5 would be 1950%.*Divide percentages by 100",
        ),
        ({"forward": np.full(22, -1.0)}, "row 1: forward = -1.0; must be positive"),
        ({"forward": np.arange(1.0, 23.0)}, "row 2: forward = 2.0; differs within one maturity"),
    ],
)
def test_a_table_that_makes_no_sense_is_refused_with_row_and_remedy(
    changed: dict[str, object], words: str
) -> None:
    with pytest.raises(ValueError, match=words):
        Quotes.from_frame(table(**changed))


def test_percentages_that_are_said_to_be_are_divided() -> None:
    plain = table()
    given = {name: 100.0 * np.asarray(plain[name]) for name in ("iv_bid", "iv_ask")}
    quotes = Quotes.from_frame(table(**given), percent=True)
    np.testing.assert_allclose(quotes.bid, Quotes.from_frame(plain).bid, rtol=1e-12)
    high = Quotes.from_frame(table(iv_bid=np.full(22, 3.9), iv_ask=np.full(22, 4.1)), percent=False)
    assert np.median(high.iv_ask) == pytest.approx(4.1)


@pytest.mark.parametrize(
    ("given_table", "words"),
    [
        ({"T": [1.0], "k": [0.0]}, "are not enough: give T, k and either"),
        ({"T": [], "k": [], "bid": [], "ask": []}, "has no rows"),
        (7, "int is not a table"),
    ],
)
def test_what_is_no_table_of_quotes_is_refused(given_table: object, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        Quotes.from_frame(given_table)


def test_the_farthest_strike_is_taken() -> None:
    bid, ask = 1e-30, 2e-30
    edge = Quotes.from_frame({"T": [1.0], "k": [MAX_LOG_MONEYNESS], "bid": [bid], "ask": [ask]})
    assert len(edge) == 1


def test_selecting_quotes_drops_expiries_without_any() -> None:
    quotes = Quotes.from_frame(table())
    part = quotes.select(quotes.T > 0.5)
    assert part.labels == ("T=1",)
    assert np.array_equal(part.expiry, np.zeros(K.size))
    assert np.array_equal(part.bid, quotes.bid[K.size :])
    everything = quotes.select(np.ones(len(quotes), dtype=bool))
    assert np.array_equal(everything.k, quotes.k)


@given(share=st.floats(0.01, 0.9), seed=st.integers(0, 100))
def test_held_out_quotes_are_inside_their_expiry(share: float, seed: int) -> None:
    quotes = Quotes.from_frame(table())
    mask = quotes.held_out(share, seed)
    assert not mask[[0, K.size - 1, K.size, 2 * K.size - 1]].any()
    assert mask.sum() == min(round(share * 22), 18)
    assert np.array_equal(mask, quotes.held_out(share, seed))


@pytest.mark.parametrize("share", [0.0, 1.0, -0.2, float("nan")])
def test_holding_out_nothing_or_all_is_refused(share: float) -> None:
    with pytest.raises(ValueError, match="share = "):
        Quotes.from_frame(table()).held_out(share)


def test_every_reason_has_a_sentence() -> None:
    for reason in Exclusion:
        assert len(reason.explain()) > 15
        assert reason.explain()[0].islower()
    assert len({reason.explain() for reason in Exclusion}) == len(Exclusion)


def test_counts_name_each_reason_once_most_frequent_first() -> None:
    reasons = ["zero bid", "crossed", "zero bid", "stale"]
    rows = pl.DataFrame(
        {name: [None] * 4 for name in EXCLUSION_SCHEMA if name != "reason"} | {"reason": reasons},
        schema=EXCLUSION_SCHEMA,
    )
    found = count_exclusions(rows)
    assert found.select("reason", "quotes").rows() == [
        ("zero bid", 2),
        ("crossed", 1),
        ("stale", 1),
    ]
    assert found["meaning"][0] == Exclusion.ZERO_BID.explain()
    assert count_exclusions(no_exclusions()).height == 0
    assert no_exclusions().schema == pl.Schema(EXCLUSION_SCHEMA)


def test_prices_in_currency_are_refused_and_not_half_used() -> None:
    k = [-0.5, -0.3, -0.1, 0.0, 0.1, 0.2, 0.3]
    bid, ask = [0.05, 1.2, 40.0, 120.0, 30.0, 2.0, 0.1], [0.1, 1.4, 41.0, 121.0, 31.0, 2.2, 0.2]
    with pytest.raises(ValueError, match=r"row 2: ask = 1\.4, and 5 of 7 asks.*discount times"):
        Quotes.from_frame({"T": [0.5] * 7, "k": k, "bid": bid, "ask": ask})
    units = {"bid": [b / 4000.0 for b in bid], "ask": [a / 4000.0 for a in ask]}
    assert len(Quotes.from_frame({"T": [0.5] * 7, "k": k, **units})) == 7
    units["ask"][3] = 1.5  # one wrong quote is excluded, as ever
    assert len(Quotes.from_frame({"T": [0.5] * 7, "k": k, **units})) == 6


def test_days_in_the_place_of_years_are_refused() -> None:
    table = {"T": [30.0, 60.0], "k": [0.0, 0.0], "iv_bid": [0.19, 0.19], "iv_ask": [0.2, 0.2]}
    with pytest.raises(ValueError, match="divide days by 365"):
        Quotes.from_frame(table)
    years = Quotes.from_frame({**table, "T": [30 / 365, 60 / 365]})
    assert (len(years), years.warnings) == (2, ())
    # between what is listed and what nobody can mean a warning says so
    near = Quotes.from_frame({**table, "T": [7.0, 30.0]})
    assert near.warnings == ("a maturity is 30 years: if it is in days, divide all by 365",)


def test_dates_in_the_place_of_years_are_refused_with_the_remedy() -> None:
    table = {"k": [0.0], "iv_bid": [0.19], "iv_ask": [0.2]}
    for T in ("2026-12-18", dt.date(2026, 12, 18)):
        with pytest.raises(ValueError, match=r"column T is not numeric: .*; give minutes to settl"):
            Quotes.from_frame({**table, "T": [T]}, as_of="2026-10-15")
