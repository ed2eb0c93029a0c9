"""Cleaning: every option is used or has one reason, each reason is found where it was planted."""

from __future__ import annotations

import datetime as dt
import logging

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import listed
from arbiter.chains import Chain, ChainError, read_chain
from arbiter.exclusions import Exclusion
from arbiter.quotes import Quotes

MARKET = listed.market()
DENSE = listed.market(strikes=161)  # strikes near enough to contradict each other
EXPIRY = dt.date(2023, 3, 31)
LABEL = "2023-03-31 SPXW"


def chain_of(market: pl.DataFrame) -> Chain:
    return read_chain(market, as_of=listed.AS_OF)


def nth(side: str, n: int) -> pl.Expr:
    """The ``n``-th option of ``LABEL`` out of the money, counted from the money."""
    beyond = pl.col("strike") > listed.SPOT if side == "call" else pl.col("strike") < listed.SPOT
    wing = (pl.col("expiry") == EXPIRY) & (pl.col("side") == side) & beyond
    distance = pl.when(wing).then((pl.col("strike") - listed.SPOT).abs())
    return wing & (distance.rank("ordinal") == n + 1)


def plant(where: pl.Expr, market: pl.DataFrame = MARKET, **values: float | None) -> pl.DataFrame:
    """Give other ``values`` to the options ``where`` says."""
    changed = {
        name: pl.when(where).then(pl.lit(value, dtype=pl.Float64)).otherwise(name)
        for name, value in values.items()
    }
    return market.with_columns(**changed)


def reasons(quotes: Quotes, market: pl.DataFrame, where: pl.Expr) -> list[str]:
    """Reasons of the options ``where`` says, empty for those that are used."""
    rows = market.with_row_index("row", offset=1).filter(where)["row"].to_list()
    table = dict(quotes.exclusions.select("row", "reason").iter_rows())
    return [table.get(row, "") for row in rows]


def assert_complete(chain: Chain, quotes: Quotes) -> None:
    """Every option is used or excluded, and none twice."""
    assert len(quotes) + quotes.exclusions.height == chain.frame.height + chain.set_aside.height
    assert quotes.exclusions.select("row", "side").is_duplicated().sum() == 0
    assert set(quotes.exclusions["reason"]) <= {reason.value for reason in Exclusion}


def test_an_ordinary_chain_loses_only_what_nobody_bids_for() -> None:
    chain = chain_of(MARKET)
    quotes = chain.quotes()
    assert_complete(chain, quotes)
    assert set(quotes.exclusions["reason"]) == {"in the money", "zero bid"}
    assert quotes.labels == tuple(chain.forwards()["label"])
    assert np.all((quotes.iv_bid <= listed.VOLATILITY) & (quotes.iv_ask >= listed.VOLATILITY))


def test_quotes_are_in_forward_units_and_out_of_the_money() -> None:
    quotes = chain_of(MARKET).quotes()
    frame = (
        quotes.to_frame()
        .join(
            MARKET.select(
                "strike",
                "side",
                "bid",
                expiry=pl.col("expiry").cast(pl.String) + " " + pl.col("root"),
            ),
            on=["expiry", "side"],
            suffix="_listed",
        )
        .filter((pl.col("strike") - pl.col("strike_listed")).abs() < 1e-6)
    )
    assert frame.height == len(quotes)
    unit = frame["forward"] * frame["discount"]
    assert np.allclose(frame["bid"] * unit, frame["bid_listed"], rtol=1e-12)
    assert quotes.info["underlying"] == "SPX"
    assert quotes.info["notes"] == []


PLANTED = {
    Exclusion.ZERO_BID: {"bid": 0.0},
    Exclusion.NO_ASK: {"ask": 0.0},
    Exclusion.CROSSED: {"bid": 90.0, "ask": 80.0},
    Exclusion.LOCKED: {"bid": 80.0, "ask": 80.0},
    Exclusion.MISSING: {"ask": None},
    Exclusion.BOUNDS: {"ask": 50_000.0},
}
MISSING_TOO = [{"ask": float("nan")}, {"ask": -1.0}, {"bid": -1.0}, {"ask": float("inf")}]


@pytest.mark.parametrize(
    ("reason", "values"),
    [*PLANTED.items(), *[(Exclusion.MISSING, values) for values in MISSING_TOO]],
)
@pytest.mark.parametrize("side", ["call", "put"])
def test_a_planted_fault_is_found_and_named(
    reason: Exclusion, values: dict[str, float | None], side: str
) -> None:
    where = nth(side, 3)
    market = plant(where, MARKET, **values)
    chain = chain_of(market)
    quotes = chain.quotes()
    assert reasons(quotes, market, where) == [reason.value]
    assert reasons(chain_of(MARKET).quotes(), MARKET, where) == [""]
    assert len(quotes) == len(chain_of(MARKET).quotes()) - 1
    assert_complete(chain, quotes)


def test_an_absent_bid_is_nobodys_bid() -> None:
    where = nth("call", 3)
    market = plant(where, bid=None)
    assert reasons(chain_of(market).quotes(), market, where) == [Exclusion.ZERO_BID.value]


def test_an_option_listed_twice_counts_once() -> None:
    again = MARKET.filter(nth("put", 2))
    market = pl.concat([MARKET, again.with_columns(bid=pl.col("bid") - 1.0)])
    chain = chain_of(market)
    quotes = chain.quotes()
    assert quotes.exclusions.filter(pl.col("reason") == "duplicate")["row"].to_list() == [
        market.height
    ]
    assert_complete(chain, quotes)
    assert np.array_equal(quotes.bid, chain_of(MARKET).quotes().bid)


@pytest.mark.parametrize("shift", [-6.0, 6.0])
@pytest.mark.parametrize("side", ["call", "put"])
def test_a_quote_that_contradicts_its_neighbours_is_found(side: str, shift: float) -> None:
    """Both sides of the strike disagree with it: outside parity bounds; alone: stale."""
    where = nth(side, 12)
    old = DENSE.filter(where).row(0, named=True)
    market = plant(where, DENSE, bid=old["bid"] + shift, ask=old["ask"] + shift)
    assert reasons(chain_of(market).quotes(), market, where) == [Exclusion.PARITY.value]
    other = (
        (pl.col("strike") == old["strike"])
        & (pl.col("expiry") == EXPIRY)
        & (pl.col("side") != side)
    )
    alone = plant(other, market, bid=0.0)
    assert reasons(chain_of(alone).quotes(), alone, where) == [Exclusion.STALE.value]
    for planted in (market, alone):
        found = chain_of(planted).quotes().exclusions["reason"].to_list()
        assert sum(found.count(code.value) for code in (Exclusion.PARITY, Exclusion.STALE)) == 1


def test_two_wrong_neighbours_do_not_hide_each_other() -> None:
    where = nth("call", 12) | nth("call", 13)
    market = DENSE.with_columns(
        bid=pl.when(where).then(pl.col("bid") + 8.0).otherwise("bid"),
        ask=pl.when(where).then(pl.col("ask") + 8.0).otherwise("ask"),
    )
    assert reasons(chain_of(market).quotes(), market, where) == [Exclusion.PARITY.value] * 2


def test_a_wrong_quote_in_the_money_costs_nothing() -> None:
    """The control: the same shift on the side that is not used leaves all quotes in."""
    strike = DENSE.filter(nth("call", 12))["strike"][0]
    where = (pl.col("strike") == strike) & (pl.col("expiry") == EXPIRY) & (pl.col("side") == "put")
    old = DENSE.filter(where).row(0, named=True)
    market = plant(where, DENSE, bid=old["bid"] + 6.0, ask=old["ask"] + 6.0)
    assert len(chain_of(market).quotes()) == len(chain_of(DENSE).quotes())


def test_wide_quotes_are_not_called_wrong() -> None:
    where = nth("put", 4)
    old = MARKET.filter(where).row(0, named=True)
    market = plant(where, bid=0.2 * old["bid"], ask=2.0 * old["ask"])
    assert len(chain_of(market).quotes()) == len(chain_of(MARKET).quotes())


def test_what_lies_beyond_two_zero_bids_is_left_out_unless_asked_for() -> None:
    two = nth("call", 5) | nth("call", 6)
    market = plant(two, bid=0.0)
    usable = len(chain_of(MARKET).quotes())
    chain = chain_of(market)
    quotes = chain.quotes()
    beyond = quotes.exclusions.filter(pl.col("reason") == Exclusion.BEYOND_ZERO_BIDS.value)
    assert set(beyond["expiry"]) == {LABEL}
    assert set(beyond["side"]) == {"call"}
    assert beyond["strike"].min() > market.filter(nth("call", 6))["strike"][0]
    assert len(quotes) == usable - 2 - beyond.height
    assert_complete(chain, quotes)
    assert len(chain.quotes(stop_after_zero_bids=False)) == usable - 2
    one = chain_of(plant(nth("call", 5) | nth("call", 7), bid=0.0))
    assert len(one.quotes()) == usable - 2  # single gaps do not stop anything


def test_old_quotes_are_stale_if_the_source_dates_them() -> None:
    where = nth("put", 2)
    age = pl.when(where).then(pl.lit(dt.datetime(2023, 2, 3, 15))).otherwise(pl.lit(listed.AS_OF))
    market = MARKET.with_columns(quote_time=age)
    assert reasons(chain_of(market).quotes(), market, where) == [Exclusion.STALE.value]
    patient = chain_of(market).quotes(stale_after_hours=24.0 * 7)
    assert reasons(patient, market, where) == [""]


def test_short_and_thin_expiries_are_left_out_as_asked() -> None:
    chain = chain_of(MARKET)
    days = chain.quotes(shortest_days=20.0)
    assert days.labels == ("2023-03-31 SPXW", "2023-12-15 SPX")
    assert Exclusion.TOO_SHORT.value in set(days.exclusions["reason"])
    strikes = chain.quotes(fewest_strikes=39)
    counts = np.bincount(strikes.expiry)
    assert np.all(counts >= 39)
    assert Exclusion.TOO_FEW.value in set(strikes.exclusions["reason"])
    for quotes in (days, strikes):
        assert_complete(chain, quotes)


def test_two_days_to_the_minute_are_two_days() -> None:
    exact = read_chain(
        listed.market((("SPXW", dt.date(2023, 2, 9)),), as_of=dt.datetime(2023, 2, 7, 16)),
        as_of="2023-02-07T16:00",
    )
    assert exact.quotes(shortest_days=2.0).labels == ("2023-02-09 SPXW",)
    with pytest.raises(ChainError, match="too short"):
        exact.quotes(shortest_days=2.001)


@pytest.mark.parametrize("name", ["shortest_days", "fewest_strikes", "stale_after_hours"])
@pytest.mark.parametrize("value", [-1, float("nan")])
def test_rules_that_make_no_sense_are_refused(name: str, value: float) -> None:
    with pytest.raises(ValueError, match=f"{name} = .* must be zero or more"):
        chain_of(MARKET).quotes(**{name: value})  # type: ignore[arg-type]


def test_losing_more_than_two_percent_is_a_warning_that_says_why(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.INFO, logger="arbiter.chains"):
        chain_of(MARKET).quotes()
    assert [r.levelname for r in caplog.records] == ["INFO"]
    assert "in the money" in caplog.text
    caplog.clear()
    market = plant((pl.col("expiry") == EXPIRY) & (pl.col("side") == "call"), bid=0.0)
    with caplog.at_level(logging.WARNING, logger="arbiter.chains"):
        chain_of(market).quotes()
    assert "two-sided out-of-the-money quotes" in caplog.text
    assert "no forward" in caplog.text
    caplog.clear()
    with caplog.at_level(logging.WARNING, logger="arbiter.chains"):
        chain_of(MARKET).quotes(shortest_days=20.0)  # asked for
    assert caplog.text == ""


def test_a_chain_without_a_usable_quote_says_where_they_went() -> None:
    with pytest.raises(ChainError, match=r"no option can be used: \d+ no forward"):
        chain_of(plant(pl.lit(True), bid=0.0)).quotes()


@given(
    rows=st.lists(st.integers(0, MARKET.height - 1), min_size=1, max_size=40, unique=True),
    bid=st.sampled_from([0.0, -1.0, 1e-3, 5.0, 1e9, float("nan"), float("inf")]),
    ask=st.sampled_from([0.0, -1.0, 1e-3, 5.0, 1e9, float("nan"), float("inf")]),
)
def test_whatever_is_planted_the_counts_add_up(rows: list[int], bid: float, ask: float) -> None:
    hit = pl.Series(np.isin(np.arange(MARKET.height), rows))
    market = MARKET.with_columns(
        bid=pl.when(hit).then(bid).otherwise("bid"), ask=pl.when(hit).then(ask).otherwise("ask")
    )
    chain = chain_of(market)
    quotes = chain.quotes()
    assert_complete(chain, quotes)
    assert np.all((quotes.bid > 0.0) & (quotes.ask > quotes.bid))
    assert np.all(np.isfinite(quotes.iv_ask))
