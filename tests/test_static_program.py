"""What static arbitrage leaves possible: planted contradictions are found, and no others."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from arbiter.conventions import Array
from arbiter.maturity_scores import describe_asks, score_by_maturity
from arbiter.pricing import black
from arbiter.quotes import AskBounds, Quotes, find_contradictory_asks, static_program
from arbiter.quotes.static_program import StaticProgram
from static_arbitrage import find_smallest_error

MONTH, QUARTER = 30.0 / 365.0, 90.0 / 365.0
FORWARDS = {MONTH: 5000.0, QUARTER: 5100.0}


def price(T: Array, k: Array) -> Array:
    """Out-of-the-money prices of a skewed market."""
    v = (0.2 - 0.15 * np.tanh(k / 0.2)) * np.sqrt(T)
    return np.asarray(black.otm(k, v))


def market(half: float = 0.01, count: int = 21) -> Quotes:
    """Two smiles; spreads are a share of the price, so that far puts are quoted at 1e-8."""
    T, k = (a.ravel() for a in np.meshgrid([MONTH, QUARTER], np.linspace(-0.5, 0.2, count)))
    order = np.lexsort([k, T])
    T, k = T[order], k[order]
    mid = price(T, k)
    table = {"T": T, "k": k, "bid": mid * (1.0 - half), "ask": mid * (1.0 + half)}
    return Quotes.from_frame({**table, "forward": [FORWARDS[t] for t in T.tolist()]})


def with_asks(quotes: Quotes, *asks: tuple[int, float, float]) -> Quotes:
    """The quotes with asks without a bid: expiry, k and price."""
    expiry, k, ask = (np.array(part) for part in zip(*sorted(asks), strict=True))
    return replace(quotes, bounds=AskBounds(expiry.astype(np.int64), k, ask))


def everything(program: StaticProgram) -> NDArray[np.bool_]:
    return np.ones(program.bounds.size, dtype=np.bool_)


def test_prices_of_a_market_need_no_repair() -> None:
    program = StaticProgram.from_quotes(market(), 0, 1)
    assert program.find_least_violation(everything(program)) == 0.0
    assert (program.repair(everything(program)) == 0.0).all()


@pytest.mark.parametrize("scale", [1.0, 1e-7])
def test_a_planted_butterfly_is_repaired_by_what_it_is_worth(scale: float) -> None:
    """Three puts of which the middle one is too dear, at 1e-2 and at 1e-9 of the forward."""
    kappa, mid = np.array([0.7, 0.8, 0.9]), scale * np.array([0.001, 0.009, 0.012])
    half = scale * np.array([1e-4, 3e-4, 5e-4])
    table = {"T": [0.1] * 3, "k": np.log(kappa), "bid": mid - half, "ask": mid + half}
    program = StaticProgram.from_quotes(Quotes.from_frame(table), 0, 0)
    none, weight = np.zeros(0, dtype=bool), np.array([0.5, 1.0, 0.5]) * half
    excess = mid[1] - 0.5 * (mid[0] + mid[2])
    least = program.find_least_violation(none)
    assert least == pytest.approx(excess / weight.sum() - 1.0, rel=1e-6)
    assert least > 1.0
    repair = program.repair(none)  # all of it where a half-spread counts most
    expected = [0.0, (excess - weight.sum()) / weight[1], 0.0]
    np.testing.assert_allclose(repair, expected, rtol=1e-6, atol=1e-9)
    wide = {**table, "bid": mid - 4.0 * half, "ask": mid + 4.0 * half}  # the control
    loose = StaticProgram.from_quotes(Quotes.from_frame({**wide, "bid": 0.1 * mid}), 0, 0)
    assert loose.find_least_violation(none) == 0.0


def test_the_least_violation_is_that_of_a_dense_program() -> None:
    """The same number by the program of the tests, which allows one error on every call price."""
    rng = np.random.default_rng(4)
    near = market(count=41)
    near = near.select((near.k > -0.2) & (near.k < 0.1) & (near.expiry == 0))
    for _ in range(5):
        mid = near.mid * np.exp(rng.normal(0.0, 0.1, len(near)))
        unit = 0.5 * float(mid.min())  # one error for all, as there
        shaken = replace(near, bid=mid - unit, ask=mid + unit)
        found = StaticProgram.from_quotes(shaken, 0, 0).find_least_violation(np.zeros(0, bool))
        call = mid + np.where(near.k < 0.0, 1.0 - np.exp(near.k), 0.0)
        expected = find_smallest_error(near.T, np.exp(near.k), call)
        assert found > 0.0
        assert (found + 1.0) * unit == pytest.approx(expected, rel=1e-4)


def test_an_ask_below_the_line_through_bids_is_contradictory() -> None:
    """A put whose neighbours are bid cannot cost less than their prices imply, at any size."""
    quotes = market()
    own = quotes.k[quotes.expiry == 0]
    for at in (2, 8):
        k = float(0.5 * (own[at] + own[at + 1]))
        least = quotes.bid[at]  # a put further out is bid at this
        asks = with_asks(quotes, (0, k, 0.9 * least), (1, -0.6, 1e-3))
        (found,) = find_contradictory_asks(asks, np.array([True, False]))
        assert (found.expiry, found.k, found.ask) == (quotes.labels[0], k, 0.9 * least)
        assert found.strike == pytest.approx(5000.0 * np.exp(k))
        assert found.lowest >= least
        assert any(name.endswith("put (bid)") for name in found.against)
        # the control: an ask above what the market itself charges is met by it
        fair = float(price(np.array([MONTH]), np.array([k]))[0])
        assert find_contradictory_asks(with_asks(quotes, (0, k, fair)), np.array([True])) == ()


def test_an_ask_below_an_earlier_bid_is_contradictory() -> None:
    """At one strike over forward a later put costs no less."""
    quotes = market()
    k, bid = float(quotes.k[0]), float(quotes.bid[0])
    later = quotes.select((quotes.expiry == 0) | (quotes.k > -0.3))
    (found,) = find_contradictory_asks(with_asks(later, (1, k, 0.5 * bid)), np.array([True]))
    assert found.expiry == quotes.labels[1]
    assert found.lowest == pytest.approx(bid, rel=1e-6)
    assert found.against == (f"{quotes.labels[0]} {5000.0 * np.exp(k):.10g} put (bid)",)
    alone = later.select(later.expiry == 1)
    assert find_contradictory_asks(with_asks(alone, (0, k, 0.5 * bid)), np.array([True])) == ()


def test_what_contradicts_an_ask_may_be_an_ask_that_is_met() -> None:
    """A lower put at no more than its ask and a higher one at its bid leave little between."""
    quotes = market()
    own = quotes.select((quotes.expiry == 0) & (quotes.k > -0.2))
    bid = float(own.bid[0])
    low, k = float(own.k[0]) - 0.1, float(own.k[0]) + 0.001
    ask = 1.002 * bid  # a line from zero through the bid asks for 1.001 of it
    tight = replace(own, ask=np.where(np.arange(len(own)) == 0, 1.0001 * bid, own.ask))
    both = with_asks(tight, (0, low, 0.1 * bid), (0, k, ask))
    (found,) = find_contradictory_asks(both, np.array([False, True]))
    assert any(name.endswith("put (ask, no bid)") for name in found.against)
    assert find_contradictory_asks(with_asks(tight, (0, k, ask)), np.array([True])) == ()


def test_of_asks_that_contradict_only_together_one_is_listed() -> None:
    """Two asks on both sides of a bid: each alone can be met, and both lie below the line."""
    quotes = market()
    at = int(np.flatnonzero((quotes.expiry == 0) & (quotes.k < -0.1))[-1])
    sides = (at - 1, at + 1)
    rest = quotes.select(~np.isin(np.arange(len(quotes)), sides))
    asks = [(0, float(quotes.k[i]), 0.7 * float(quotes.mid[i])) for i in sides]
    # the lower one stays above what is bid further out, the higher one needs no bid below it
    rest = rest.select((rest.expiry == 1) | (rest.k >= quotes.k[at]))
    both = with_asks(rest, *asks)
    (found,) = find_contradictory_asks(both, np.array([True, True]))
    assert any(name.endswith("put (ask, no bid)") for name in found.against)
    for one in asks:
        assert find_contradictory_asks(with_asks(rest, one), np.array([True])) == ()


def test_asks_of_an_expiry_without_two_sided_quotes_are_judged() -> None:
    quotes = market()
    alone = quotes.select(quotes.expiry == 1)
    bid, k = float(alone.bid[3]), float(alone.k[3])
    earlier = replace(
        alone,
        expiry=np.ones(len(alone), dtype=np.int64),
        maturities=quotes.maturities,
        forwards=quotes.forwards,
        discounts=quotes.discounts,
    )
    for ask, judged in ((0.5 * bid, 0), (2.0 * bid, 0)):  # earlier prices may be as low as nothing
        found = find_contradictory_asks(with_asks(earlier, (0, k, ask)), np.array([True]))
        assert len(found) == judged


def test_quotes_that_contradict_each_other_are_granted_what_they_need() -> None:
    """Asks elsewhere are judged all the same."""
    quotes = market()
    bid, ask = quotes.bid.copy(), quotes.ask.copy()
    bid[14], ask[14] = 1.5 * bid[14], 1.5 * ask[14]
    broken = replace(quotes, bid=bid, ask=ask)
    k = float(0.5 * (quotes.k[1] + quotes.k[2]))
    fair = float(price(np.array([MONTH]), np.array([k]))[0])
    low = 0.2 * float(quotes.bid[0])
    for charged, count in ((fair, 0), (low, 1)):
        asks = with_asks(broken, (0, k, charged))
        assert len(find_contradictory_asks(asks, np.array([True]))) == count
    program = StaticProgram.from_quotes(asks, 0, 0)
    assert program.find_least_violation(~everything(program)) > 1.0
    with pytest.raises(ArithmeticError, match="linear program"):  # the control: nothing is granted
        program.find_lowest_price(0, ~everything(program), 0.0)


def test_an_expiry_of_one_quote_is_judged() -> None:
    quotes = market().select(np.arange(42) == 3)
    asks = with_asks(quotes, (0, float(quotes.k[0]) + 0.1, 0.5 * float(quotes.bid[0])))
    assert len(find_contradictory_asks(asks, np.array([True]))) == 1
    lone = with_asks(quotes, (0, float(quotes.k[0]) - 0.1, 0.5 * float(quotes.bid[0])))
    assert find_contradictory_asks(lone, np.array([True])) == ()  # the control
    program = StaticProgram.from_quotes(quotes, 0, 0)
    assert program.find_least_violation(everything(program)) == 0.0


def test_a_program_that_is_not_solved_finds_nothing_and_says_so(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    quotes = market()
    asks = with_asks(quotes, (0, -0.45, 0.2 * float(quotes.bid[0])))
    assert len(find_contradictory_asks(asks, np.array([True]))) == 1  # the control
    monkeypatch.setattr(static_program, "SOLVER_METHODS", ())
    assert find_contradictory_asks(asks, np.array([True])) == ()
    assert "were not judged" in caplog.text


class Priced:
    """The market itself, raised at the asks without a bid."""

    def __init__(self, raised: float) -> None:
        self.raised = raised

    def otm(self, k: Any, T: Any) -> Array:
        return np.asarray(price(np.asarray(T), np.asarray(k)) * self.raised)

    def iv(self, k: Any, T: Any) -> Array:
        return np.full(np.broadcast_shapes(np.shape(k), np.shape(T)), 0.2)


def test_a_score_counts_an_exceeded_ask_as_violated_or_lists_it() -> None:
    quotes = market()
    k = float(0.5 * (quotes.k[4] + quotes.k[5]))
    fair = float(price(np.array([MONTH]), np.array([k]))[0])
    quotes = with_asks(quotes, (0, k, 0.5 * fair), (0, -0.52, 1e-4), (1, -0.55, 1e-12))
    found = score_by_maturity(Priced(1.0), quotes)
    assert (found.one_sided, found.one_sided_violated) == (3, 1)
    (one,) = found.contradictory
    plain = json.loads(json.dumps(found.to_dict(), allow_nan=False))["one_sided"]
    assert plain["contradictory"] == [one.to_dict()]
    assert describe_asks(plain).startswith("1 of 3 asks without a bid violated, 1 exceeded that")
    assert f"{one.expiry} {one.strike:.10g}" in describe_asks(plain)
    met = with_asks(quotes, (0, k, 2.0 * fair))
    clean = score_by_maturity(Priced(1.0), met).to_dict()["one_sided"]
    assert clean == {"quotes": 1, "violated": 0, "contradictory": []}
    assert describe_asks(clean) == "0 of 1 asks without a bid violated"
