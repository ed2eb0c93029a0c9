"""How good a fit is: counted as the design's section 10 says, for any model."""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.signal import find_peaks

from arbiter import scoring
from arbiter.conventions import Array
from arbiter.examples import example
from arbiter.pricing import black
from arbiter.quotes import Quotes
from arbiter.surface import Surface


@dataclass(frozen=True)
class Flat:
    """One volatility for every strike and maturity."""

    volatility: float

    def iv(self, k: Any, T: Any) -> Array:
        return np.full(np.broadcast_shapes(np.shape(k), np.shape(T)), self.volatility)

    def otm(self, k: Any, T: Any) -> Array:
        return np.asarray(black.otm(k, self.volatility * np.sqrt(T)))


def listed(days: dict[float, int], level: float = 0.2, half: float = 0.002) -> Quotes:
    """Quotes around one volatility; so many strikes for each number of days."""
    T = np.concatenate([np.full(n, d / 365.0) for d, n in days.items()])
    s = np.concatenate([np.linspace(-2.5, 2.5, n) for n in days.values()])
    iv = np.full(T.size, level)
    table = {"T": T, "k": s * level * np.sqrt(T), "iv_bid": iv - half, "iv_ask": iv + half}
    return Quotes.from_frame(table)


def test_expiries_under_two_days_or_eight_strikes_do_not_count() -> None:
    quotes = listed({1.99: 9, 2.0: 9, 30.0: 8, 60.0: 7})
    expected = np.isin(quotes.expiry, [1, 2])
    assert np.array_equal(scoring.find_counted_quotes(quotes), expected)


def test_two_days_in_minutes_count() -> None:
    quotes = listed({2880 / 1440: 9})
    shifted = Quotes.from_frame(quotes.to_frame().with_columns(T=np.full(9, 2880 / 525_600)))
    assert scoring.find_counted_quotes(shifted).all()


def test_locked_quotes_do_not_count_nor_make_up_eight_strikes() -> None:
    quotes = listed({30.0: 8})
    ask = np.array(quotes.ask)
    ask[3] = quotes.bid[3]
    table = {"T": quotes.T, "k": quotes.k, "bid": quotes.bid, "ask": ask}
    assert not scoring.find_counted_quotes(Quotes.from_frame(table)).any()
    assert scoring.find_counted_quotes(Quotes.from_frame(table), strikes=7).sum() == 7


def test_inside_admits_rounding_and_no_more() -> None:
    quotes = listed({30.0: 9})
    assert scoring.inside_bid_ask(quotes.ask + 0.9e-12, quotes) == 1.0
    assert scoring.inside_bid_ask(quotes.bid - 0.9e-12, quotes) == 1.0
    assert scoring.inside_bid_ask(quotes.ask + 1.1e-12, quotes) == 0.0
    assert scoring.inside_bid_ask(quotes.bid - 1.1e-12, quotes) == 0.0


@given(st.integers(0, 9))
def test_share_counts_the_quotes_outside(outside: int) -> None:
    quotes = listed({30.0: 9})
    price = quotes.mid.copy()
    price[:outside] = 2.0 * quotes.ask[:outside]
    assert scoring.inside_bid_ask(price, quotes) == pytest.approx(1.0 - outside / 9)


def test_a_price_that_is_not_a_number_is_outside() -> None:
    quotes = listed({30.0: 9})
    price = quotes.mid.copy()
    price[4] = np.nan
    assert scoring.inside_bid_ask(price, quotes) == pytest.approx(8 / 9)


def test_prices_of_the_wrong_shape_are_refused() -> None:
    with pytest.raises(ValueError, match=r"one out-of-the-money price per quote"):
        scoring.inside_bid_ask([0.1], listed({30.0: 9}))


@given(st.floats(-0.01, 0.01))
def test_a_parallel_shift_is_its_own_error(shift: float) -> None:
    quotes = listed({30.0: 21, 365.0: 21})
    # mid prices, so mid volatilities move with the curvature of Black's formula in the wings
    error = scoring.iv_rmse_bp(Flat(0.2 + shift), quotes)
    assert error == pytest.approx(abs(shift) * 1e4, abs=0.6)
    assert scoring.iv_rmse_half_spreads(Flat(0.2 + shift), quotes) == pytest.approx(
        error / 20.0, abs=0.05
    )


def test_errors_past_two_deviations_are_not_counted() -> None:
    quotes = listed({30.0: 41})

    class Broken(Flat):
        def iv(self, k: Any, T: Any) -> Array:
            far = np.abs(k) > self.limit * 0.2 * np.sqrt(T)
            return np.where(far, 9.0, super().iv(k, T))

        limit = 2.1

    assert scoring.iv_rmse_bp(Broken(0.2), quotes) < 1.0
    assert scoring.iv_rmse_bp(Broken(0.2), quotes, deviations=3.0) > 1000.0
    Broken.limit = 1.8
    assert scoring.iv_rmse_bp(Broken(0.2), quotes) > 1000.0


def test_a_missing_volatility_is_not_hidden(caplog: pytest.LogCaptureFixture) -> None:
    class Absent(Flat):
        def iv(self, k: Any, T: Any) -> Array:
            return np.where(np.abs(k) < 1e-9, np.nan, super().iv(k, T))

    with caplog.at_level(logging.WARNING):
        assert np.isnan(scoring.iv_rmse_bp(Absent(0.2), listed({30.0: 9})))
    assert "no volatility at 1 of" in caplog.text


def test_the_surface_that_made_the_quotes_scores_perfectly() -> None:
    surface = example()
    T = np.repeat(surface.maturities, 21)
    k = (np.linspace(-3, 2, 21) * 0.15 * np.sqrt(surface.maturities)[:, None]).ravel()
    price = surface.otm(k, T)
    quotes = Quotes.from_frame({"T": T, "k": k, "bid": 0.99 * price, "ask": 1.01 * price})
    found = scoring.score(surface, quotes)
    assert (found.expiries, found.quotes, found.inside_bid_ask) == (14, 14 * 21, 1.0)
    assert found.iv_rmse_bp < 1e-6
    assert found.iv_max_bp < 1e-6
    assert 0 < found.near < found.quotes
    worse = scoring.score(Flat(0.15), quotes)
    assert worse.inside_bid_ask < 0.5
    assert worse.iv_rmse_half_spreads > 1.0


def test_held_out_quotes_are_scored_on_the_expiries_that_count_with_all_of_them() -> None:
    quotes = listed({30.0: 9, 60.0: 7})
    among = quotes.held_out(0.5, seed=1)
    found = scoring.score(Flat(0.2), quotes, among=among)
    assert found.quotes == int((among & (quotes.expiry == 0)).sum()) > 0
    with pytest.raises(ValueError, match="one boolean per quote"):
        scoring.score(Flat(0.2), quotes, among=among[:-1])


def test_a_score_of_nothing_is_null_in_json() -> None:
    found = scoring.score(Flat(0.2), listed({30.0: 3}))
    assert found.quotes == 0
    assert json.loads(json.dumps(found.to_dict(), allow_nan=False))["inside_bid_ask"] is None


@dataclass(frozen=True)
class Bumps:
    """A law of log S with normal bumps, as the density of S; its log-strikes are Gaussian."""

    centres: tuple[float, ...]
    heights: tuple[float, ...]
    width: float = 0.05

    @property
    def maturities(self) -> Array:
        return np.array([0.5, 1.0])

    def log_strike(self, z: Any, T: Any) -> Array:
        return np.asarray(0.15 * z + 0.0 * T)

    def density(self, k: Any, T: Any) -> Array:
        bumps = [
            h * np.exp(-0.5 * ((k - c) / self.width) ** 2)
            for c, h in zip(self.centres, self.heights, strict=True)
        ]
        return np.asarray(np.sum(bumps, axis=0) + 0.0 * T)


@pytest.mark.parametrize(
    ("law", "expected"),
    [
        (Bumps((0.0,), (1.0,)), 1),
        (Bumps((-0.2, 0.1), (0.5, 1.0)), 2),
        (Bumps((-0.3, 0.0, 0.3), (0.2, 1.0, 0.02)), 3),
        (Bumps((-0.3, 0.0), (0.009, 1.0)), 1),  # under 1 % of the peak
        (Bumps((-0.3, 0.0), (0.011, 1.0)), 2),
        (Bumps((-0.05, 0.05), (1.0, 1.0)), 1),  # one deviation apart each way: a flat top
    ],
)
def test_modes_of_known_densities(law: Bumps, expected: int) -> None:
    assert scoring.count_modes(law).tolist() == [expected, expected]


def test_ripples_count_from_a_thousandth_of_the_peak() -> None:
    class Rippled(Bumps):
        size = 0.0

        def density(self, k: Any, T: Any) -> Array:
            # a plateau, on which a ripple's prominence is its own height
            plateau = 1.0 / (1.0 + np.exp((np.abs(k) - 0.5) / 0.02))
            return np.asarray(plateau * (1.0 + self.size * np.cos(60.0 * k)) + 0.0 * T)

    law = Rippled((), ())
    Rippled.size = 0.0004
    assert scoring.count_modes(law).max() == 1
    Rippled.size = 0.002
    assert scoring.count_modes(law).min() > 5


@given(
    st.lists(st.integers(0, 6) | st.floats(-2.0, 6.0), min_size=1, max_size=30),
    st.floats(-1.0, 6.0),
    st.floats(0.01, 4.0),
)
def test_peaks_are_those_of_scipy(values: list[float], height: float, prominence: float) -> None:
    line = np.array(values, dtype=np.float64)
    expected, _ = find_peaks(line, height=height, prominence=prominence)
    assert scoring.count_peaks(line, height, prominence) == expected.size


def test_the_example_has_one_mode_and_a_dip_in_the_slopes_makes_two() -> None:
    surface = example()
    assert scoring.count_modes(surface).tolist() == [1] * 14
    x = np.linspace(-5.5, 4.5, 201)
    steep = 0.1 * (1.0 + 5.0 * np.exp(-0.5 * (x / 0.4) ** 2))  # little mass where slopes are steep
    split = Surface.from_slopes(x, [1.0], [steep])
    assert scoring.count_modes(split).tolist() == [2]


def test_black_scholes_has_one_mode_even_where_it_lies_at_the_end_of_the_window() -> None:
    vols = np.array([1e-3, 0.2, 3.0, 7.0])
    surface = Surface.from_slopes([-1.0, 1.0], vols**2, np.tile(vols[:, None], 2))
    assert scoring.count_modes(surface).tolist() == [1, 1, 1, 1]
    assert scoring.count_modes(surface, 0.5).tolist() == [1]
