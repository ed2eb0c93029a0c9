"""The index rule: the exchange's published examples, digit by digit, and what each step is for."""

from __future__ import annotations

import copy
import json
import logging
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import index_rule
from arbiter.pricing import black
from arbiter.vix.index_rule import Vix, bracket, interpolate, vix
from arbiter.vix.strip import QUOTE_COLUMNS, Strip, sum_strip
from index_rule import Rule

PAPER = Path(__file__).parents[1] / "data" / "vix-white-paper"
EXPECTED: dict[str, dict[str, Any]] = json.loads((PAPER / "expected.json").read_text())
COLUMNS_2009 = ("Strike", "Call Bid", "Call Ask", "Put Bid", "Put Ask")

# Edition, number of digits published, number.
EDITIONS = {
    "whitepaper_2014_2019": 13.685820538,
    "methodology_current": 13.927842,
    "whitepaper_2009": 61.217999,
}


def quotes(edition: str) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Near and next term of an edition's example."""
    if edition == "whitepaper_2009":
        table = pl.read_csv(PAPER / "2009-edition" / "options.csv")
        near, after = (table.filter(pl.col("Days") == days) for days in (9, 37))
        named = dict(zip(COLUMNS_2009, QUOTE_COLUMNS, strict=True))
        return near.rename(named), after.rename(named)
    table = pl.read_csv(PAPER / "cboe_vix_example_quotes.csv")
    return table.filter(pl.col("term") == "near"), table.filter(pl.col("term") == "next")


def strips(edition: str) -> tuple[Strip, Strip]:
    given = EXPECTED[edition]
    near, after = (
        sum_strip(*(table[name].to_numpy() for name in QUOTE_COLUMNS), minutes=minutes, rate=rate)
        for table, minutes, rate in zip(
            quotes(edition), given["minutes"], (given["R1"], given["R2"]), strict=True
        )
    )
    return near, after


def by_hand(edition: str, rule: Rule) -> float:
    given = EXPECTED[edition]
    terms = []
    for table, minutes, rate in zip(
        quotes(edition), given["minutes"], (given["R1"], given["R2"]), strict=True
    ):
        rows = list(table.select(QUOTE_COLUMNS).iter_rows())
        terms.append((minutes, index_rule.strip_variance(rows, minutes, rate, rule)))
    return index_rule.index(terms[0], terms[1])


@pytest.mark.parametrize("edition", EDITIONS)
def test_published_example_is_reproduced(edition: str) -> None:
    near, after = strips(edition)
    published = EXPECTED[edition]
    assert interpolate(near, after) == pytest.approx(EDITIONS[edition], abs=1e-6)
    assert near.forward == pytest.approx(published["F1"], abs=1e-5)
    assert after.forward == pytest.approx(published["F2"], abs=1e-5)
    assert near.k0 == after.k0 == published["K0"]


@pytest.mark.parametrize("edition", ["whitepaper_2014_2019", "methodology_current"])
def test_published_variances_are_reproduced(edition: str) -> None:
    near, after = strips(edition)
    published = EXPECTED[edition]
    assert near.variance == pytest.approx(published["sigma1_sq"], abs=6e-9)
    assert after.variance == pytest.approx(published["sigma2_sq"], abs=6e-9)


def test_all_published_contributions_are_reproduced() -> None:
    published = pl.read_csv(PAPER / "cboe_vix_example_contributions.csv")
    assert published.height == 268
    ours = pl.concat(
        [
            term.contributions.with_columns(term=pl.lit(name))
            for name, term in zip(("near", "next"), strips("methodology_current"), strict=True)
        ]
    )
    assert ours.height == 268
    for name in ("term", "type"):
        assert ours[name].to_list() == published[name].to_list()
    for name in ("strike", "dk", "mid"):
        np.testing.assert_allclose(ours[name], published[name], rtol=1e-12)
    # printed with ten decimals
    np.testing.assert_allclose(ours["contribution"], published["contribution"], atol=5.01e-11)


@pytest.mark.parametrize("edition", EDITIONS)
def test_the_rule_read_literally_agrees(edition: str) -> None:
    assert by_hand(edition, Rule()) == pytest.approx(EDITIONS[edition], abs=1e-6)


@pytest.mark.parametrize(
    "change",
    [
        {"stop_after": 1},
        {"stop_after": 3},
        {"skip_zero_bids": False},
        {"average_at_k0": False},
        {"forward_term": False},
        {"nearest_gap": False},
        {"below_forward": False},
        {"one_sided_ends": False},
        {"growth": False},
    ],
    ids=str,
)
def test_a_changed_rule_gives_another_number(change: dict[str, Any]) -> None:
    moved = [abs(by_hand(edition, Rule(**change)) - EDITIONS[edition]) for edition in EDITIONS]
    assert max(moved) > 1e-5, moved


def test_a_third_zero_bid_is_never_reached() -> None:
    # What lies beyond two zero bids does not count; what lies beyond one does.
    table = quotes("methodology_current")[0]
    near = strips("methodology_current")[0]
    lowest = near.contributions["strike"][0]
    beyond = table["strike"].to_numpy() < lowest
    columns = {name: table[name].to_numpy().astype(float) for name in QUOTE_COLUMNS}
    far = np.flatnonzero(beyond)[:-3]
    columns["put_bid"] = columns["put_bid"].copy()
    columns["put_bid"][far] = columns["put_ask"][far]
    same = sum_strip(*columns.values(), minutes=near.minutes, rate=near.rate)
    assert same.variance == near.variance
    columns["put_bid"][np.flatnonzero(beyond)[-1]] = 0.05
    assert (
        sum_strip(*columns.values(), minutes=near.minutes, rate=near.rate).variance > near.variance
    )


@st.composite
def chains(draw: st.DrawFn) -> tuple[np.ndarray[Any, Any], float, float]:
    """Rows of one expiry with holes in the wings, minutes, rate."""
    seed = draw(st.integers(0, 2**32 - 1))
    rng = np.random.default_rng(seed)
    strikes = np.unique(np.round(100.0 * np.exp(rng.uniform(-0.8, 0.5, rng.integers(8, 60))), 1))
    minutes, rate = float(rng.integers(1_000, 600_000)), float(rng.uniform(-0.02, 0.10))
    T = minutes / 525_600
    D, F = np.exp(-rate * T), 100.0
    k = np.log(strikes / F)
    v = rng.uniform(0.1, 0.9) * np.sqrt(T) * np.ones_like(k)
    call, put = D * F * black.call(k, v), D * F * black.put(k, v)
    half = 0.02 * rng.uniform(size=(2, strikes.size))
    sides = []
    for price, spread in zip((call, put), half, strict=True):
        bid = np.where((price < 0.5) & (rng.uniform(size=k.size) < 0.4), 0.0, price * (1 - spread))
        sides += [bid, price * (1 + spread) + 1e-6]
    return np.column_stack([strikes, *sides]), minutes, rate


@given(chains())
def test_any_chain_is_summed_as_the_literal_rule_does(
    case: tuple[np.ndarray[Any, Any], float, float],
) -> None:
    rows, minutes, rate = case
    shuffled = rows[np.random.default_rng(0).permutation(len(rows))]
    try:
        ours = sum_strip(*shuffled.T, minutes=minutes, rate=rate)
    except ValueError as error:
        # The rule has no answer: too few strikes around the forward.
        assert any(  # noqa: PT017 - the message names the reason
            text in str(error) for text in ("variance", "two-sided", "above the forward", "least")
        )
        return
    literal = index_rule.strip_variance([tuple(row) for row in rows.tolist()], minutes, rate)
    assert ours.variance == pytest.approx(literal, rel=1e-10)
    total = 2.0 / ours.T * ours.contributions["contribution"].to_numpy().sum()
    assert total - (ours.forward / ours.k0 - 1.0) ** 2 / ours.T == pytest.approx(ours.variance)


wild = st.one_of(
    st.floats(-1.0, 1e6), st.sampled_from([0.0, 0.05, 100.0, float("nan"), float("inf")])
)


@given(
    rows=st.lists(st.tuples(st.floats(0.0, 1e6), wild, wild, wild, wild), max_size=12),
    minutes=st.floats(-1.0, 1e9),
    rate=st.floats(-2.0, 2.0),
)
def test_nonsense_is_summed_or_refused(
    rows: list[tuple[float, ...]], minutes: float, rate: float
) -> None:
    columns = np.array(rows, dtype=float).reshape(-1, 5).T
    try:
        found = sum_strip(*columns, minutes=minutes, rate=rate)
    except ValueError:
        return
    assert 0.0 < found.variance < np.inf
    assert found.contributions["contribution"].min() > 0.0  # type: ignore[operator]


@given(
    sigma=st.floats(0.05, 0.9),
    days=st.floats(5.0, 800.0),
    rate=st.floats(-0.02, 0.1),
    offset=st.floats(0.0, 1.0),
)
def test_dense_wide_strikes_give_the_volatility_of_black(
    sigma: float, days: float, rate: float, offset: float
) -> None:
    T = days / 365.0
    error = []
    for n in (400, 800):
        v = sigma * np.sqrt(T)
        k = (np.arange(-n, n + 1) + offset) * 10.0 * v / n
        K, D = 100.0 * np.exp(k), np.exp(-rate * T)
        call, put = (D * 100.0 * side(k, v) for side in (black.call, black.put))
        ours = sum_strip(K, call, call, put, put, minutes=days * 1440.0, rate=rate)
        error.append(abs(ours.volatility / (100.0 * sigma) - 1.0))
    assert error[0] < 2e-3
    assert error[1] < 0.5 * error[0] + 1e-9


@given(st.floats(0.5, 2.0), st.floats(0.5, 2.0), st.floats(0.01, 0.99))
def test_interpolation_is_linear_in_total_variance(a: float, b: float, share: float) -> None:
    near, after = strips("methodology_current")
    near, after = replace(near, variance=a), replace(after, variance=b)
    minutes = (1.0 - share) * near.minutes + share * after.minutes
    total = (interpolate(near, after, minutes) / 100.0) ** 2 * minutes
    line = (1.0 - share) * near.minutes * a + share * after.minutes * b
    assert total == pytest.approx(line, rel=1e-12)
    assert interpolate(near, after, near.minutes) == pytest.approx(100.0 * np.sqrt(a))


def example_columns() -> dict[str, np.ndarray[Any, Any]]:
    table = quotes("methodology_current")[0]
    return {name: table[name].to_numpy().astype(float) for name in QUOTE_COLUMNS}


def test_absent_bid_is_a_zero_bid() -> None:
    columns = example_columns()
    near = sum_strip(*columns.values(), minutes=34_484, rate=0.0)
    for name in ("call_bid", "put_bid"):
        columns[name] = np.where(columns[name] == 0.0, np.nan, columns[name])
    assert sum_strip(*columns.values(), minutes=34_484, rate=0.0).variance == near.variance


@pytest.mark.parametrize("ask", [0.0, np.nan, 0.04])
def test_bid_without_an_ask_is_passed_over_and_counted(ask: float) -> None:
    columns = example_columns()
    at = int(np.flatnonzero(columns["strike"] == 1500.0)[0])
    columns["put_ask"][at] = ask
    near = sum_strip(*columns.values(), minutes=34_484, rate=0.0)
    assert near.unusable == 1
    assert 1500.0 not in near.contributions["strike"].to_list()
    assert strips("methodology_current")[0].unusable == 0


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"minutes": 0.0}, "minutes = 0.0"),
        ({"rate": 5.0}, "rate = 5.0: give a continuously compounded decimal"),
        ({"rate": float("nan")}, "rate = nan"),
        ({"rate": float("inf")}, "rate = inf"),
        ({"strike": [90.0, 95.0, 95.0, 105.0, 110.0]}, "strike 95: strike = 95; given twice"),
        ({"strike": [90.0, -95.0, 100.0, 105.0, 110.0]}, "strike -95"),
        ({"put_bid": [0.1, 0.6, -2.1, 5.4, 9.9]}, "strike 100: put_bid = -2.1"),
        ({"put_bid": [0.1, 0.6]}, r"put_bid has shape \(2,\)"),
        ({"put_bid": [0.0] * 5}, "no strike has both a call and a put"),
        ({"call_bid": [0.1] * 5, "call_ask": [0.2] * 5, "put_ask": [6.0] * 5}, "above the forward"),
        (
            {
                "strike": [78.0, 79.0, 80.0, 81.0, 82.0],
                "call_bid": [34.0, 33.0, 32.0, 31.0, 30.0],
                "call_ask": [34.0, 33.0, 32.0, 31.0, 30.0],
                "put_bid": [0.01] * 5,
                "put_ask": [0.02] * 5,
            },
            "sums to a variance of -",
        ),
        ({"call_bid": [10.1, 5.6, 2.2, 0.0, 0.0], "put_bid": [0.0, 0.0, 2.1, 5.4, 9.9]}, "only"),
        ({"call_ask": [10.3, 5.8, 0.0, 0.7, 0.3]}, "strike 100, the first below the forward"),
    ],
)
def test_what_cannot_be_summed_is_refused(change: dict[str, Any], message: str) -> None:
    case: dict[str, Any] = {
        "strike": [90.0, 95.0, 100.0, 105.0, 110.0],
        "call_bid": [10.1, 5.6, 2.2, 0.5, 0.1],
        "call_ask": [10.3, 5.8, 2.4, 0.7, 0.3],
        "put_bid": [0.1, 0.6, 2.1, 5.4, 9.9],
        "put_ask": [0.3, 0.8, 2.3, 5.6, 10.1],
        "minutes": 43_200.0,
        "rate": 0.0,
    }
    sum_strip(**case)
    with pytest.raises(ValueError, match=message):
        sum_strip(**{**case, **change})


def listing(as_of: str, *settles: str) -> pl.DataFrame:
    """A table of strips with two rows per expiry; prices play no part in choosing."""
    moments = np.array(settles, dtype="datetime64[m]")
    minutes = (moments - np.datetime64(as_of, "m")).astype(np.int64)
    return pl.DataFrame(
        {
            "label": np.repeat(np.array(settles), 2),
            "settles": np.repeat(moments.astype("datetime64[ms]"), 2),
            "minutes": np.repeat(minutes, 2),
            **{name: np.ones(2 * len(settles)) for name in QUOTE_COLUMNS},
        }
    )


# The five weeks around the third Friday of 2023-10-20; AM and PM series on it.
WEEKS = (
    "2023-09-22T16:00",
    "2023-09-29T16:00",
    "2023-10-06T16:00",
    "2023-10-12T16:00",
    "2023-10-13T16:00",
    "2023-10-16T16:00",
    "2023-10-20T09:30",
    "2023-10-20T16:00",
    "2023-10-27T16:00",
)


@pytest.mark.parametrize(
    ("as_of", "near", "after"),
    [
        # From the methodology: on Tuesdays 24 and 31 days, on Wednesdays 30 and 37.
        ("2023-09-12T16:15", "2023-10-06T16:00", "2023-10-13T16:00"),
        ("2023-09-13T10:00", "2023-10-13T16:00", "2023-10-20T09:30"),
        ("2023-09-13T16:15", "2023-10-13T16:00", "2023-10-20T09:30"),
        ("2023-09-14T16:15", "2023-10-13T16:00", "2023-10-20T09:30"),
        ("2023-09-19T16:15", "2023-10-13T16:00", "2023-10-20T09:30"),
        ("2023-09-20T10:00", "2023-10-20T09:30", "2023-10-27T16:00"),
    ],
)
def test_near_and_next_term_roll_on_wednesdays(as_of: str, near: str, after: str) -> None:
    assert bracket(listing(as_of, *WEEKS), 30.0) == (near, after)


def test_holiday_fridays_move_to_thursday() -> None:
    # Good Friday of 2022 was the third Friday of April.
    table = listing("2022-03-15T16:15", "2022-04-08T16:00", "2022-04-14T09:30", "2022-04-22T16:00")
    assert bracket(table, 30.0) == ("2022-04-14T09:30", "2022-04-22T16:00")
    assert bracket(table, 25.0) == ("2022-04-08T16:00", "2022-04-14T09:30")


def test_cycles_choose_among_the_expiries() -> None:
    table = listing(
        "2023-08-18T16:15",
        "2023-10-20T09:30",
        "2023-11-17T09:30",
        "2023-11-17T16:00",
        "2023-11-30T16:00",
        "2023-12-15T09:30",
    )
    assert bracket(table, 93.0) == ("2023-11-17T09:30", "2023-11-30T16:00")
    assert bracket(table, 93.0, "monthly") == ("2023-11-17T09:30", "2023-12-15T09:30")
    assert bracket(table, 93.0, "weekly") == ("2023-11-17T09:30", "2023-12-15T09:30")
    with pytest.raises(ValueError, match="use 'weekly', 'monthly' or 'listed'"):
        bracket(table, 93.0, "daily")  # type: ignore[arg-type]


@pytest.mark.parametrize("days", [1.0, 400.0])
def test_horizon_outside_the_expiries_is_refused(days: float) -> None:
    with pytest.raises(ValueError, match=r"lie outside .*2023-10-20T09:30 \(38 days\)"):
        bracket(listing("2023-09-12T16:15", *WEEKS), days, "weekly")


def test_settled_expiries_do_not_count() -> None:
    table = listing("2023-09-25T16:15", *WEEKS)
    assert bracket(table, 7.0) == ("2023-09-29T16:00", "2023-10-06T16:00")
    with pytest.raises(ValueError, match="outside"):
        bracket(table, 2.0)


def test_without_dates_every_expiry_counts() -> None:
    table = listing("2023-09-12T16:15", *WEEKS).drop("settles")
    assert bracket(table, 32.0) == ("2023-10-13T16:00", "2023-10-16T16:00")
    with pytest.raises(ValueError, match="needs dates"):
        bracket(table, 32.0, "weekly")


def paper_strips() -> pl.DataFrame:
    """The example as the table that a chain gives: 9:46 on Tuesday 2014-09-23."""
    near, after = (
        table.select(QUOTE_COLUMNS).cast(pl.Float64) for table in quotes("whitepaper_2014_2019")
    )
    settles = [np.datetime64("2014-10-18T09:30", "ms"), np.datetime64("2014-10-25T16:00", "ms")]
    minutes = EXPECTED["whitepaper_2014_2019"]["minutes"]
    return pl.concat(
        [
            table.with_columns(
                label=pl.lit(name), settles=pl.lit(when), minutes=pl.lit(m, dtype=pl.Int64)
            )
            for table, name, when, m in zip(
                (near, after), ("near", "next"), settles, minutes, strict=True
            )
        ]
    )


def paper_vix() -> Vix:
    given = EXPECTED["whitepaper_2014_2019"]
    return vix(paper_strips(), rate=(given["R1"], given["R2"]), cycle="listed")


def test_index_from_a_table_of_strips() -> None:
    found = paper_vix()
    assert found == pytest.approx(13.685820538, abs=1e-6)
    assert list(found.minutes) == [35_924.0, 46_394.0]
    assert found.near.label == "near"


def test_the_index_is_a_float_that_remembers() -> None:
    found = paper_vix()
    assert isinstance(found, float)
    assert f"{found:.2f}" == "13.69"
    assert json.loads(json.dumps(found)) == float(found)
    table = json.loads(json.dumps(found.to_dict()))
    assert table["vix"] == float(found)
    assert {"near", "next", "minutes", "forwards"} <= set(table)
    again = copy.deepcopy(found)
    assert again == found
    assert again.near.k0 == found.near.k0
    assert repr(found) == "Vix(13.6858 at 30 days from near and next)"


def test_rate_is_asked_for_where_there_is_no_chain() -> None:
    with pytest.raises(ValueError, match="give a chain or a rate"):
        vix(paper_strips(), cycle="listed")


def test_what_has_no_listed_options_is_refused() -> None:
    with pytest.raises(ValueError, match="float has no listed options"):
        vix(13.69)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"lacks the columns \['put_ask'\]"):
        vix(paper_strips().drop("put_ask"))


def test_error_names_the_expiry() -> None:
    broken = paper_strips().with_columns(
        put_bid=pl.when(pl.col("label") == "next").then(0.0).otherwise("put_bid")
    )
    with pytest.raises(ValueError, match="next: no strike has both"):
        vix(broken, rate=0.0, cycle="listed")


def test_passed_over_options_are_said(caplog: pytest.LogCaptureFixture) -> None:
    gone = (pl.col("label") == "next") & (pl.col("strike") == 1800.0)
    table = paper_strips().with_columns(put_ask=pl.when(gone).then(0.0).otherwise("put_ask"))
    with caplog.at_level(logging.WARNING, "arbiter"):
        vix(table, rate=0.0, cycle="listed")
    assert "next: 1 options with a bid but no ask above it are passed over" in caplog.text


@dataclass(frozen=True)
class Parity:
    """A chain as far as the index sees it."""

    forward: float
    discount: float = 0.999

    def strips(self) -> pl.DataFrame:
        return paper_strips()

    def forwards(self) -> pl.DataFrame:
        return pl.DataFrame(
            {
                "label": ["next", "near"],  # in no order
                "T": [46_394 / 525_600, 35_924 / 525_600],
                "forward": [self.forward] * 2,
                "discount": [self.discount] * 2,
            }
        )


def test_rates_come_from_the_chain_s_discounts() -> None:
    found = vix(Parity(1962.6), cycle="listed")  # type: ignore[arg-type]
    near, after = (-np.log(0.999) / strip.T for strip in found.strips)
    assert found == vix(paper_strips(), rate=(near, after), cycle="listed")
    with pytest.raises(ValueError, match="near: put-call parity gives no discount factor"):
        vix(Parity(1962.6, float("nan")), cycle="listed")  # type: ignore[arg-type]


def test_forward_that_parity_contradicts_is_said(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "arbiter"):
        vix(Parity(1962.6), cycle="listed")  # type: ignore[arg-type]
    assert caplog.text == ""
    with caplog.at_level(logging.WARNING, "arbiter"):
        vix(Parity(1990.0), cycle="listed")  # type: ignore[arg-type]
    assert "near: the index rule takes the forward 1962.9 from one strike" in caplog.text


def test_extrapolation_is_the_callers_choice() -> None:
    # The 2009 edition's index went on outside its two months; so does the line, until it
    # would mean a negative variance.
    near, after = strips("whitepaper_2009")
    assert interpolate(near, after, 40 * 1440) > 0.0
    with pytest.raises(ValueError, match="too far"):
        interpolate(replace(near, variance=0.01), replace(after, variance=1.0), 1440)
    with pytest.raises(ValueError, match="earlier one first"):
        interpolate(after, near)
