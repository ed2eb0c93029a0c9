"""Every listed expiry has an ending; asks without a bid stay beside the quotes."""

from __future__ import annotations

import copy
import datetime as dt
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest

import arbiter as ab
from arbiter.quotes import Ending, drop_expiries

SHARE = 0.25


@pytest.fixture(scope="module")
def chain() -> ab.Chain:
    return ab.example_chain()


@pytest.fixture(scope="module")
def quotes(chain: ab.Chain) -> ab.Quotes:
    return chain.quotes()


def endings_of(quotes: ab.Quotes) -> dict[str, Ending]:
    return {one.label: one.ending for one in quotes.endings}


def test_every_listed_expiry_has_one_ending(chain: ab.Chain, quotes: ab.Quotes) -> None:
    listed = set(chain.frame["label"])
    assert Counter(one.label for one in quotes.endings) == Counter(listed)
    used = {label for label, ending in endings_of(quotes).items() if ending is Ending.USED}
    assert used == set(quotes.labels)
    sizes = np.bincount(quotes.expiry)
    counts = {one.label: one.quotes for one in quotes.endings if one.ending is Ending.USED}
    assert [counts[label] for label in quotes.labels] == sizes.tolist()


def test_what_was_asked_for_is_the_reason(chain: ab.Chain, quotes: ab.Quotes) -> None:
    days = 1.0001 * 365.0 * quotes.maturities[0]
    short = chain.quotes(shortest_days=days)
    assert endings_of(short)[quotes.labels[0]] is Ending.TOO_SHORT
    most = int(np.bincount(quotes.expiry).min()) + 1
    thin = [one for one in chain.quotes(fewest_strikes=most).endings if one.ending is Ending.THIN]
    assert thin
    assert all(f"{one.quotes} usable quotes, and {most}" in one.why for one in thin)


def test_five_usable_quotes_are_enough_and_four_are_thin(
    chain: ab.Chain, quotes: ab.Quotes
) -> None:
    label = quotes.labels[0]
    strikes = quotes.to_frame().filter(pl.col("expiry") == label)["strike"].to_numpy()
    for count, ending in ((5, Ending.USED), (4, Ending.THIN)):
        middle = strikes[strikes.size // 2 :][:count]
        near = pl.col("strike").is_between(middle[0] - 0.5, middle[-1] + 0.5)
        bid = pl.when((pl.col("label") == label) & ~near).then(None).otherwise(pl.col("bid"))
        cut = replace(chain, frame=chain.frame.with_columns(bid=bid))
        assert endings_of(cut.quotes())[label] is ending, count


def test_dropped_expiries_are_listed_and_not_fitted(chain: ab.Chain, quotes: ab.Quotes) -> None:
    gone = (quotes.labels[1], float(quotes.maturities[2]))
    kept = drop_expiries(quotes, gone)
    assert len(kept) + kept.exclusions.height == chain.frame.height + chain.set_aside.height
    assert endings_of(kept)[quotes.labels[1]] is Ending.DROPPED
    assert endings_of(kept)[quotes.labels[2]] is Ending.DROPPED
    assert kept.labels == (quotes.labels[0], *quotes.labels[3:])
    prices = kept.exclusions.filter(pl.col("reason") == "dropped")
    source = chain.frame.join(
        prices.select(label="expiry", strike=pl.col("strike").round(6), side="side"),
        on=["label", "strike", "side"],
    )
    assert source.height == prices.height
    assert prices["ask"].sum() == pytest.approx(source["ask"].sum())


@pytest.mark.parametrize(("asked", "near"), [("2031-01-01 SPX", 0), (3.0, -1)])
def test_an_expiry_that_is_not_listed_is_refused_with_those_that_are_near(
    quotes: ab.Quotes, asked: str | float, near: int
) -> None:
    with pytest.raises(ValueError, match=f"{quotes.labels[near]}.* and 20 others"):
        ab.fit(quotes, drop=[asked])
    with pytest.raises(ValueError, match="drop has None"):
        drop_expiries(quotes, [None])  # type: ignore[list-item]


def test_expiries_of_a_surface_can_be_dropped(quotes: ab.Quotes) -> None:
    surface = ab.fit(quotes)
    for asked in (surface.expiries[1], [surface.expiries[1]], [surface.expiries[1].label]):
        assert quotes.labels[1] not in drop_expiries(quotes, asked).labels
    # what is left out already needs no dropping
    thin = drop_expiries(quotes, quotes.labels[1])
    assert drop_expiries(thin, quotes.labels[1]) is thin
    with pytest.raises(ValueError, match=rf"give labels such as {quotes.labels[0]}$"):
        drop_expiries(quotes.select(quotes.expiry == 0), "2031-01-01 SPX")
    with pytest.raises(ValueError, match=r"drop has datetime.date\(2026, 10, 16\)"):
        drop_expiries(quotes, dt.date(2026, 10, 16))  # type: ignore[arg-type]


def test_what_settles_between_the_quotes_and_as_of_has_settled() -> None:
    strikes = [float(strike) for strike in range(90, 111, 2)] * 4
    sides = (["call"] * 11 + ["put"] * 11) * 2
    price = [max(0.4, (100.0 - K if side == "call" else K - 100.0)) + 1.0 for K, side in
             zip(strikes, sides, strict=True)]  # fmt: skip
    table = {
        "expiry": ["2024-03-15"] * 22 + ["2024-04-19"] * 22,
        "root": ["SPXW"] * 44,
        "strike": strikes,
        "side": sides,
        "bid": price,
        "ask": [one + 0.2 for one in price],
        "quote_time": ["2024-03-15T15:30"] * 44,
    }
    now, later = ab.read_chain(table), ab.read_chain(table, as_of="2024-03-15T16:10")
    first = "2024-03-15 SPXW"
    assert endings_of(now.quotes())[first] is not Ending.EXPIRED  # the control
    assert endings_of(later.quotes())[first] is Ending.EXPIRED
    assert f"{first} had settled by then" in later.notes
    assert "as_of is 2024-03-15T16:10, and the file says 2024-03-15T15:30" in later.warnings[0]


def test_a_fit_that_drops_is_the_fit_of_the_others(quotes: ab.Quotes) -> None:
    label = quotes.labels[1]
    some = quotes.select(quotes.expiry != 1)
    dropped, plain = ab.fit(quotes, drop=label), ab.fit(some)
    assert (dropped.slopes == plain.slopes).all()
    assert dropped.source is not None
    assert endings_of(dropped.source.quotes)[label] is Ending.DROPPED
    weights = np.linspace(1.0, 2.0, len(quotes))
    weighed = ab.fit(quotes, drop=label, weights=weights)
    assert (weighed.slopes == ab.fit(some, weights=weights[quotes.expiry != 1]).slopes).all()
    with pytest.raises(ValueError, match="0 usable quotes"):
        ab.fit(quotes, drop=quotes.labels)


def test_asks_without_a_bid_are_kept_as_bounds(chain: ab.Chain, quotes: ab.Quotes) -> None:
    bounds = quotes.bounds
    assert len(bounds) > 0
    zero = quotes.exclusions.filter(
        (pl.col("reason") == "zero bid") & (pl.col("ask") > 0.0) & (pl.col("T") > 0.0)
    )
    assert len(bounds) == zero.filter(pl.col("expiry").is_in(quotes.labels)).height
    forward, discount = quotes.forwards[bounds.expiry], quotes.discounts[bounds.expiry]
    strikes = forward * np.exp(bounds.k)
    first = zero.filter(pl.col("expiry") == quotes.labels[bounds.expiry[0]]).sort("strike")
    assert strikes[0] == pytest.approx(first["strike"][0])
    assert (bounds.ask * forward * discount)[0] == pytest.approx(first["ask"][0])
    used = set(zip(quotes.expiry.tolist(), quotes.k.tolist(), strict=True))
    assert not used & set(zip(bounds.expiry.tolist(), bounds.k.tolist(), strict=True))


def test_bounds_and_endings_follow_a_choice_of_quotes(quotes: ab.Quotes) -> None:
    some = quotes.select(quotes.expiry > 0)
    assert len(some.bounds) == np.count_nonzero(quotes.bounds.expiry > 0)
    assert some.bounds.expiry.min() >= 0
    assert endings_of(some)[quotes.labels[0]] is Ending.DROPPED
    half = quotes.select(~quotes.held_out(SHARE))
    assert sum(one.quotes for one in half.endings if one.ending is Ending.USED) == len(half)
    again = copy.deepcopy(quotes)
    assert again.endings == quotes.endings
    assert not again.bounds.ask.flags.writeable


def test_settled_series_and_series_without_a_forward_say_so(data_dir: Path) -> None:
    folder = data_dir / "chains"
    settled = ab.read_chain(folder / "spx_2023-09-14_close.csv").quotes()
    assert endings_of(settled)["2023-09-14 SPXW"] is Ending.EXPIRED
    vix = ab.read_chain(folder / "vix_2019-08-29_0928ET_premarket.dat").quotes()
    found = Counter(endings_of(vix).values())
    assert found == {Ending.USED: 6, Ending.THIN: 3, Ending.NO_FORWARD: 1}
