"""Synthetic quotes: what is listed, what noise and spreads do, and the way back through a chain."""

import datetime as dt
from functools import cache

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import arbiter as ab
from arbiter.chains import read_chain
from arbiter.conventions import Array
from arbiter.exclusions import Exclusion
from arbiter.markets.exchange_file import exchange_text
from arbiter.markets.frictions import ExactPrices, Frictions, QuotedPrices, quote, round_to_ticks
from arbiter.markets.listing import (
    SPARSE_LISTING,
    Board,
    Curves,
    Listing,
    last_quote_time,
    list_strikes,
    series,
    sessions,
)
from arbiter.markets.quoted_chain import QuotedChain
from arbiter.markets.seeds import Purpose, derive_seed
from arbiter.markets.snapshots import Snapshot, Venue, observe
from arbiter.markets.timelines import timeline
from arbiter.markets.vix_listing import (
    QuotedVolatilityChain,
    VolatilityVenue,
    list_volatility_series,
    quote_volatility,
)
from arbiter.models.lifted_heston import LiftedHeston
from arbiter.models.parameters import preset
from arbiter.pricing import black
from arbiter.scoring import inside_bid_ask, score
from counts import count


@cache
def day(name: str = "stressed", frictions: Frictions | None = None, number: int = 30) -> Snapshot:
    venue = Venue(SPARSE_LISTING, frictions=frictions or Frictions())
    market = timeline(preset(name), 31, seed=2, venue=venue, steps_per_day=2)
    return market.days([number])[0]


def listed(date: str, listing: Listing | None = None, volatility: float = 0.2) -> Board:
    as_of = last_quote_time(dt.date.fromisoformat(date))
    return list_strikes(as_of, 5000.0, volatility, listing or Listing(), Curves())


def test_series_are_those_of_the_calendar() -> None:
    labels = listed("2024-03-01").labels
    assert "2024-03-15 SPX" in labels  # a third Friday, at the open
    assert "2024-03-15 SPXW" in labels  # and at the close
    assert "2024-03-28 SPXW" in labels  # Good Friday's weekly, and the end of the month
    assert "2024-03-29 SPXW" not in labels
    assert "2024-03-16 SPXW" not in labels  # a Saturday
    assert "2026-06-18 SPX" in labels  # Juneteenth moves June's quarterly


def test_series_that_settle_on_one_day_are_two_maturities() -> None:
    found = listed("2024-03-01")
    T = dict(zip(found.labels, found.maturities, strict=True))
    gap = 525_600 * (T["2024-03-15 SPXW"] - T["2024-03-15 SPX"])
    assert gap == pytest.approx(6.5 * 60.0)
    assert (np.diff(found.maturities) > 0.0).all()


@given(st.integers(0, 2500))
def test_series_stays_listed_until_it_expires(ahead: int) -> None:
    today, tomorrow = sessions(dt.date(2015, 1, 2) + dt.timedelta(days=ahead), 2)
    listing = Listing(shortest_days=0.0)
    before, after = (
        set(zip(*series(last_quote_time(d), listing)[:2], strict=True)) for d in (today, tomorrow)
    )
    expired = {(root, expiry) for root, expiry in before if expiry <= tomorrow}
    assert before - expired <= after


@given(st.floats(0.05, 1.2), st.sampled_from(["2020-03-16", "2024-03-01"]))
def test_strikes_widen_into_the_wings(volatility: float, date: str) -> None:
    found = listed(date, volatility=volatility)
    for i in range(found.maturities.size):
        strikes = found.strikes[found.series == i]
        gaps = np.diff(strikes)
        assert (gaps > 0.0).all()
        assert (np.mod(strikes, 5.0) == 0.0).all()
        assert strikes[0] < found.forwards[i] < strikes[-1]
        middle = np.searchsorted(strikes, found.forwards[i])
        if strikes.size > 12:
            inner = gaps[max(middle - 3, 0) : middle + 3].mean()
            assert gaps[0] >= inner
            assert gaps[-1] >= inner


def test_far_expiries_have_wider_steps() -> None:
    found = listed("2024-03-01")
    finest = [
        np.diff(found.strikes[found.series == i]).min() for i in (0, found.maturities.size - 1)
    ]
    assert finest == [5.0, 50.0]


def test_steps_follow_the_level_of_the_index() -> None:
    as_of = last_quote_time(dt.date(2024, 3, 1))
    sizes = [
        list_strikes(as_of, s, 0.2, Listing(), Curves()).strikes.size
        for s in (500.0, 5000.0, 50000.0)
    ]
    assert max(sizes) < 1.2 * min(sizes)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"borders": (1.0,)}, "one fewer"),
        ({"deviations": (0.0, 1.0)}, "positive"),
        ({"daily": 0, "weekly": 0, "month_end": 0, "monthly": 0, "quarterly": 0}, "no series"),
    ],
)
def test_listing_mistakes_are_named(fields: dict[str, object], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        Listing(**fields)  # type: ignore[arg-type]


def share_inside(snapshot: QuotedChain) -> float:
    return inside_bid_ask(snapshot.oracle.price, snapshot.quotes)


def test_exact_price_lies_between_bid_and_ask() -> None:
    assert share_inside(day()) == 1.0


def test_noise_beyond_the_spread_puts_it_outside() -> None:
    assert share_inside(day(frictions=Frictions(noise=2.0))) < 0.8


def on_ticks(price: Array) -> bool:
    step = np.where(price < 3.0, 0.05, 0.10)
    return bool((np.abs(price / step - np.round(price / step)) < 1e-6).all())


def test_quotes_are_on_ticks() -> None:
    quoted = day().quoted
    assert on_ticks(quoted.bid)
    assert on_ticks(quoted.ask)
    assert not on_ticks(np.array([3.05]))


@given(st.floats(0.0, 500.0))
def test_ticks_round_outwards(price: float) -> None:
    low, high = (float(round_to_ticks(np.array([price]), up=up)[0]) for up in (False, True))
    assert low <= price + 1e-9
    assert high >= price - 1e-9
    assert high - low <= 0.1 + 1e-9


def many_quotes(frictions: Frictions, size: int) -> tuple[ExactPrices, QuotedPrices]:
    """Independent quotes on a flat smile; the index is so high that ticks are nothing."""
    rng = np.random.default_rng(1)
    iv, T = np.full(size, 0.2), np.full(size, 0.5)
    k = rng.uniform(-0.35, 0.3, size)
    exact = ExactPrices(black.otm(k, iv * np.sqrt(T)), iv, k, T, np.full(size, 1e8))
    return exact, quote(exact, frictions, rng)


def test_noise_has_mean_zero_and_the_stated_size() -> None:
    frictions = Frictions(noise=0.3)
    exact, quoted = many_quotes(frictions, count(full=400_000, reduced=40_000))
    half = exact.unit * frictions.half_spread(exact.k, exact.T, exact.iv)
    error = (0.5 * (quoted.bid + quoted.ask) - exact.unit * exact.price) / half
    assert abs(error.mean()) < 3.5 * error.std() / np.sqrt(error.size)
    assert error.std() == pytest.approx(0.3, rel=0.03)  # cut off at 2.5 deviations: 1.3 % less
    assert np.abs(error).max() <= 0.3 * 2.5 + 1e-3


def wing_over_middle(frictions: Frictions) -> tuple[float, float]:
    """Spread and noise of volatility near two deviations over those at the money."""
    exact, quoted = many_quotes(frictions, 4000)
    bid, mid, ask = (
        black.implied_total_volatility(price / exact.unit, exact.k).volatility
        for price in (quoted.bid, 0.5 * (quoted.bid + quoted.ask), quoted.ask)
    )
    z = np.abs(exact.k) / (exact.iv * np.sqrt(exact.T))
    middle, wing = z < 0.5, (z > 1.7) & (z < 2.1)
    off = np.abs(mid - exact.iv * np.sqrt(exact.T))
    return (
        float(np.median((ask - bid)[wing]) / np.median((ask - bid)[middle])),
        float(np.median(off[wing]) / np.median(off[middle])),
    )


def test_spreads_of_volatility_widen_in_the_wings_and_noise_with_them() -> None:
    assert min(wing_over_middle(Frictions())) > 1.5
    assert max(wing_over_middle(Frictions(wings=0.0))) < 1.2


def test_nobody_bids_below_the_liquidity_floor() -> None:
    snapshot = day(frictions=Frictions(floor=1e-3))
    floor = Frictions(floor=1e-3).liquidity_floor(snapshot.exact.k, snapshot.exact.T)
    below = snapshot.exact.price < floor
    assert below.any()
    assert (snapshot.quoted.bid[below] == 0.0).all()
    assert (snapshot.quoted.bid[~below] > 0.0).all()
    assert (day().quoted.bid[below] > 0.0).any()  # the default floor lets them be bid for


@given(st.floats(-0.8, 0.8), st.floats(0.01, 3.0))
def test_floor_rises_with_maturity_and_moneyness(k: float, T: float) -> None:
    def floor(at: float, t: float) -> float:
        return float(Frictions().liquidity_floor(np.array([at]), np.array([t]))[0])

    assert floor(k, T) < floor(k, 1.1 * T)
    assert floor(k, T) < floor(k + 0.1 * np.copysign(1.0, k), T)


@pytest.mark.parametrize("share", [0.3, 0.5, 0.75])
def test_coverage_is_what_was_asked_for(share: float) -> None:
    snapshot = day(frictions=Frictions(coverage=share, missing=0.1))
    assert snapshot.coverage == pytest.approx(share, abs=0.01)
    assert day().coverage > 0.8


def test_missing_strikes_are_listed_as_missing() -> None:
    snapshot = day(frictions=Frictions(missing=0.3))
    missing = snapshot.quotes.exclusions.filter(reason=Exclusion.MISSING.value)
    assert missing.height == pytest.approx(0.3 * snapshot.board.strikes.size, rel=0.2)
    assert missing["bid"].null_count() == missing.height


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"noise": -0.1}, "noise = -0.1"),
        ({"spread": np.nan}, "spread = nan"),
        ({"coverage": 75.0}, "coverage = 75.0 is a share"),
        ({"missing": 1.0}, "missing = 1.0"),
        ({"coverage": 0.9, "missing": 0.3}, "cannot be reached"),
        ({"noise": np.nan}, "noise = nan"),
    ],
)
def test_friction_mistakes_are_named(fields: dict[str, float], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        Frictions(**fields)


def test_prices_of_a_block_are_those_of_the_oracle() -> None:
    market = timeline(preset("jumpy"), 12, seed=2, venue=Venue(SPARSE_LISTING), steps_per_day=2)
    for snapshot in market.days([3, 11]):
        exact = snapshot.exact
        direct = snapshot.market.otm(exact.k, exact.T, snapshot.state)
        assert np.abs(direct - exact.price).max() < 1e-10
        elsewhere = snapshot.market.otm(exact.k, exact.T)  # the state matters
        assert np.abs(elsewhere - exact.price).max() > 1e-5


def test_day_is_the_same_alone_and_among_others() -> None:
    market = timeline(preset("calm"), 10, seed=5, venue=Venue(SPARSE_LISTING), steps_per_day=2)
    alone, (_, among, among_next) = market.days([6])[0], market.days([5, 6, 7])
    assert (alone.quoted.bid == among.quoted.bid).all()
    assert (alone.exact.price == among.exact.price).all()
    assert market.days([]) == []
    assert not np.array_equal(alone.quoted.bid, among_next.quoted.bid)


def test_every_listed_strike_is_a_quote_or_has_a_reason() -> None:
    snapshot = day(frictions=Frictions(missing=0.2))
    quotes = snapshot.quotes
    assert len(quotes) + quotes.exclusions.height == snapshot.board.strikes.size
    assert set(quotes.counts()["reason"]) <= {"missing", "zero bid", "outside price bounds"}
    assert (snapshot.oracle.k == quotes.k).all()
    assert np.isfinite(snapshot.oracle.iv).all()


def test_quotes_are_of_the_type_that_chains_give() -> None:
    quotes = day().quotes
    again = ab.Quotes.from_frame(quotes.to_frame(), as_of=quotes.as_of)
    assert (again.k == quotes.k).all()
    assert (again.bid == quotes.bid).all()
    assert again.as_of == quotes.as_of
    assert np.allclose(again.forwards, quotes.forwards, rtol=1e-12)


@pytest.fixture(scope="module")
def full_day() -> Snapshot:
    """A day with the full listing."""
    return timeline(preset("stressed"), 25, seed=7, steps_per_day=2).days([24])[0]


@pytest.fixture(scope="module")
def chain(full_day: Snapshot) -> ab.Chain:
    return read_chain(exchange_text(full_day, derive_seed(7, Purpose.CHAIN, 24)).encode())


def bids(quotes: ab.Quotes) -> dict[tuple[str, float, bool], float]:
    """Bids in currency, by series, strike and side: one at the forward may change sides."""
    unit = (quotes.forwards * quotes.discounts)[quotes.expiry]
    strikes = np.round(quotes.forwards[quotes.expiry] * np.exp(quotes.k), 3)
    labels = (quotes.labels[i] for i in quotes.expiry)
    keys = zip(labels, strikes.tolist(), (quotes.k >= 0.0).tolist(), strict=True)
    return dict(zip(keys, (quotes.bid * unit).tolist(), strict=True))


def test_file_says_what_was_quoted(full_day: Snapshot, chain: ab.Chain) -> None:
    assert chain.layout == "exchange (new)"
    assert chain.as_of == full_day.board.as_of
    assert chain.frame["label"].n_unique() == full_day.board.maturities.size
    quotes = chain.quotes(shortest_days=0.0, fewest_strikes=0, stop_after_zero_bids=False)
    theirs, ours = bids(quotes), bids(full_day.quotes)
    both = theirs.keys() & ours.keys()
    assert len(both) > 0.99 * len(ours)
    assert max(abs(theirs[key] - ours[key]) for key in both) < 1e-6


def standardised(chain: ab.Chain, truth: Snapshot) -> Array:
    """Errors of the forwards from parity, in standard errors, on expiries of two days or more."""
    table = chain.forwards()
    exact = dict(zip(truth.board.labels, truth.board.forwards, strict=True))
    known = [
        (row["forward"] - exact[row["label"]]) / row["forward_error"]
        for row in table.iter_rows(named=True)
        if row["T"] > 2.0 / 365.0
    ]
    return np.array(known)


def test_forwards_come_back_within_the_errors_of_parity(
    full_day: Snapshot, chain: ab.Chain
) -> None:
    z = np.abs(standardised(chain, full_day))
    assert np.median(z) < 1.5
    assert np.mean(z < 3.0) > 0.85
    shifted = Curves(dividend=0.014)  # a tenth of a percent of yield is noticed
    other = list_strikes(full_day.board.as_of, full_day.board.spot, 0.3, Listing(), shifted)
    moved = np.interp(full_day.board.maturities, other.maturities, other.forwards)
    far = np.abs(moved - full_day.board.forwards)[-5:]
    assert (far / chain.forwards()["forward_error"].to_numpy()[-5:] > 3.0).all()


def test_chain_is_fitted_inside_the_spreads_and_near_the_oracle(
    full_day: Snapshot, chain: ab.Chain
) -> None:
    """Against the oracle within two deviations: 1.9 bp where mid prices are 11 bp off."""
    quotes = chain.quotes()
    surface = ab.fit(quotes)
    assert surface.certificate().passed
    assert score(surface, quotes).inside_bid_ask >= 0.99
    exact = dict(zip(full_day.board.labels, full_day.board.forwards, strict=True))
    forward = np.array([exact[label] for label in quotes.labels])[quotes.expiry]
    k = quotes.k + np.log(quotes.forwards[quotes.expiry] / forward)
    truth = full_day.market.iv(k, quotes.T, full_day.state)
    near = np.abs(k) <= 2.0 * truth * np.sqrt(quotes.T)

    def off(iv: Array) -> float:
        return float(1e4 * np.sqrt(np.mean((iv - truth)[near] ** 2)))

    assert off(surface.iv(quotes.k, quotes.T)) < 3.0
    assert off(surface.iv(quotes.k, quotes.T)) < 0.4 * off(quotes.iv_mid)
    elsewhere = full_day.market.iv(k, quotes.T)  # the start of the path is another day
    assert off(elsewhere) > 50.0


@pytest.mark.parametrize("spot", [3.0, 1e6])
def test_strikes_that_the_layout_cannot_hold_are_refused(spot: float) -> None:
    market = LiftedHeston.of(preset("calm"))
    moments = [(last_quote_time(dt.date(2024, 3, 1)), spot)]
    state, seeds = np.zeros((1, 20)), [derive_seed(1, Purpose.QUOTES)]
    snapshot = observe(market, state, moments, seeds, Venue(SPARSE_LISTING))[0]
    with pytest.raises(ValueError, match="does not fit the exchange's layout"):
        exchange_text(snapshot, 1)


def test_observing_without_an_index_level_or_a_moment_is_refused() -> None:
    market, as_of = LiftedHeston.of(preset("calm")), last_quote_time(dt.date(2024, 3, 1))
    seeds = [derive_seed(1, Purpose.QUOTES)]
    for spot in (-5.0, np.nan):
        with pytest.raises(ValueError, match="level of the index"):
            observe(market, np.zeros((1, 20)), [(as_of, spot)], seeds)
    with pytest.raises(ValueError, match="2 states, 1 moments"):
        observe(market, np.zeros((2, 20)), [(as_of, 5000.0)], seeds)
    with pytest.raises(ValueError, match="rate = nan"):
        Curves(rate=np.nan)


def test_missing_strikes_are_not_in_the_file() -> None:
    snapshot = day(frictions=Frictions(missing=0.3))
    text = exchange_text(snapshot, 1)
    assert len(text.splitlines()) - 4 == int(snapshot.quoted.present.sum())
    assert exchange_text(snapshot, 1) == text
    assert exchange_text(snapshot, 2) != text


@pytest.fixture(scope="module")
def volatile() -> Snapshot:
    venue = Venue(SPARSE_LISTING, volatility=VolatilityVenue(monthly=3))
    return timeline(preset("stressed"), 31, seed=2, venue=venue, steps_per_day=2).days([30])[0]


def sheet_of(snapshot: Snapshot) -> QuotedVolatilityChain:
    assert snapshot.volatility is not None
    return snapshot.volatility


def test_volatility_series_are_those_of_the_calendar() -> None:
    """The exchange's expiries of 2024; Juneteenth moves June's to a Tuesday."""
    as_of = last_quote_time(dt.date(2024, 2, 1))
    roots, expiries, T = list_volatility_series(as_of, VolatilityVenue(weekly=21))
    monthly = [f"{day:%m-%d}" for root, day in zip(roots, expiries, strict=True) if root == "VIX"]
    assert monthly == ["02-14", "03-20", "04-17", "05-22", "06-18", "07-17"]
    weekly = [f"{day:%m-%d}" for root, day in zip(roots, expiries, strict=True) if root == "VIXW"]
    assert weekly == ["02-07", "02-21"]
    assert (np.diff(T) > 0.0).all()


def test_volatility_index_leaves_the_index_options_alone(volatile: Snapshot) -> None:
    assert (volatile.quoted.bid == day().quoted.bid).all()
    assert day().volatility is None


def test_futures_and_their_options_surround_the_exact_price(volatile: Snapshot) -> None:
    sheet = sheet_of(volatile)
    assert share_inside(sheet) == 1.0
    assert (sheet.future_bid <= sheet.board.forwards).all()
    assert (sheet.future_ask >= sheet.board.forwards).all()
    assert (sheet.future_ask - sheet.future_bid >= 0.05 - 1e-9).all()
    exact = volatile.market.vix_future(sheet.board.maturities, volatile.state)
    assert (sheet.board.forwards == exact).all()
    elsewhere = volatile.market.vix_future(sheet.board.maturities)
    assert ((elsewhere < sheet.future_bid) | (elsewhere > sheet.future_ask)).all()


def test_future_above_the_root_of_forward_variance_is_refused(
    volatile: Snapshot, monkeypatch: pytest.MonkeyPatch
) -> None:
    exact = LiftedHeston.vix_future
    monkeypatch.setattr(LiftedHeston, "vix_future", lambda *a: 1.2 * exact(*a))
    venue, as_of = VolatilityVenue(monthly=1), volatile.board.as_of
    seed = derive_seed(1, Purpose.QUOTES)
    with pytest.raises(ArithmeticError, match="the oracle fails"):
        quote_volatility(volatile.market, volatile.state, as_of, venue, Curves(), seed)


def test_exact_volatilities_are_those_of_the_oracle(volatile: Snapshot) -> None:
    sheet = sheet_of(volatile)
    quotes, oracle = sheet.quotes, sheet.oracle
    strikes = quotes.forwards[quotes.expiry] * np.exp(quotes.k)
    exact = volatile.market.vix_iv(strikes, quotes.T, volatile.state)
    assert np.abs(oracle.iv - exact).max() < 1e-6
    assert quotes.info["underlying"] == "VIX"


def test_options_on_the_volatility_index_are_read_back(volatile: Snapshot) -> None:
    sheet = sheet_of(volatile)
    chain = read_chain(exchange_text(sheet, 3).encode())
    assert chain.underlying == "VIX"
    table = chain.forwards()
    off = np.abs(table["forward"].to_numpy() - sheet.board.forwards)
    assert (off < 0.05).all()  # a tick
    read = chain.quotes(shortest_days=0.0, fewest_strikes=0)
    assert len(read) > 0.95 * sheet.used.sum()


@pytest.mark.parametrize(
    ("fields", "words"),
    [({"monthly": 0}, "monthly = 0"), ({"future_spread": -1.0}, "future_spread = -1.0")],
)
def test_volatility_venue_mistakes_are_named(fields: dict[str, object], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        VolatilityVenue(**fields)  # type: ignore[arg-type]
