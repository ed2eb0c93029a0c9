"""The index rule on a surface: listed strikes, the log contract, and the gap between them."""

from __future__ import annotations

import logging

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from arbiter.chains import Chain, read_chain
from arbiter.data import example_chain_path
from arbiter.examples import example
from arbiter.quotes import Quotes
from arbiter.surface import Surface
from arbiter.vix.index_rule import sum_listed_expiry, vix
from arbiter.vix.replication import (
    HORIZON_DAYS,
    integrate_tail_variance,
    price_strips,
    replication,
    term_structure,
)

SPOT = 6842.37  # of the shipped chain
SURFACE = Surface.from_slopes(
    example().knots,
    example().maturities,
    example().slopes,
    forwards=SPOT * np.exp(0.025 * example().maturities),
    discounts=np.exp(-0.037 * example().maturities),
)


@pytest.fixture(scope="module")
def chain() -> Chain:
    return read_chain(example_chain_path())


def mixture() -> Surface:
    """Two components, so that W is a weighted sum."""
    wide = np.stack([SURFACE.slopes[0], 1.5 * SURFACE.slopes[0]])
    weights = np.tile([[0.8], [0.2]], (1, SURFACE.maturities.size))
    return Surface.from_slopes(SURFACE.knots, SURFACE.maturities, wide, weights=weights)


def strikes(surface: Surface, low: float, high: float, count: int) -> Quotes:
    """Quotes at ``count`` strikes from ``low`` to ``high`` deviations on every listed maturity."""
    T = surface.maturities[:, None]
    k = np.linspace(low, high, count) * np.sqrt(surface.variance_swap(T) * T)
    iv = surface.iv(k, T)
    at = np.broadcast_to(T, k.shape)
    return Quotes.from_frame(
        {
            "T": at.ravel(),
            "k": k.ravel(),
            "iv_bid": 0.99 * iv.ravel(),
            "iv_ask": 1.01 * iv.ravel(),
            "forward": surface.forward(at).ravel(),
            "discount": surface.discount(at).ravel(),
        }
    )


@pytest.mark.parametrize("surface", [SURFACE, mixture()], ids=["one", "mixture"])
def test_tails_from_the_forward_are_the_log_contract(surface: Surface) -> None:
    T = np.array([0.01, 0.1, 0.5, 2.0, 3.0])
    zero = np.zeros_like(T)
    W = surface.variance_swap(T) * T
    np.testing.assert_allclose(integrate_tail_variance(surface, T, zero, zero), W, rtol=1e-6)
    # Negative control: half the law is not all of it.
    half = integrate_tail_variance(surface, T, zero, np.full_like(T, 50.0))
    assert np.all(half < 0.9 * W)


def test_gap_is_truncation_and_discretisation() -> None:
    table = replication(SURFACE, strikes(SURFACE, -3.0, 2.0, 60))
    assert table["label"].len() == SURFACE.maturities.size
    np.testing.assert_allclose(
        table["gap"], table["truncation"] + table["discretisation"], atol=1e-12
    )
    np.testing.assert_allclose(table["gap"], table["listed"] - table["exact"], atol=1e-12)
    np.testing.assert_allclose(table["exact"] ** 2 * 1e-4, SURFACE.variance_swap(table["T"]))
    assert table["truncation"].max() <= 0.0  # type: ignore[operator]


def test_wider_strikes_cut_less_and_denser_ones_sum_better() -> None:
    narrow, base, wide, dense = (
        replication(SURFACE, strikes(SURFACE, low, 0.7 * -low, count))
        for low, count in ((-3.0, 100), (-4.0, 133), (-7.0, 233), (-4.0, 532))
    )
    cut = [np.abs(table["truncation"].to_numpy()) for table in (narrow, base, wide)]
    assert np.all(cut[0] > 1.5 * cut[1])
    assert np.all(cut[1] > 5.0 * cut[2])
    rough, fine = (np.abs(table["discretisation"].to_numpy()) for table in (base, dense))
    assert np.all(fine < 0.5 * rough)


@given(sigma=st.floats(0.08, 0.6), T=st.floats(0.02, 2.0))
def test_gap_vanishes_on_black_with_dense_wide_strikes(sigma: float, T: float) -> None:
    slope = sigma * np.sqrt(T)
    surface = Surface.from_slopes([-1.0, 1.0], [T], [[slope, slope]], [4000.0], [np.exp(-0.04 * T)])
    table = replication(surface, strikes(surface, -8.0, 8.0, 801))
    assert table["exact"][0] == pytest.approx(100.0 * sigma, rel=1e-9)
    assert abs(table["gap"][0]) < 1e-3 * 100.0 * sigma
    assert abs(table["truncation"][0]) < 1e-9


def test_a_surface_is_summed_on_the_strikes_that_the_market_s_rule_takes(chain: Chain) -> None:
    ours = price_strips(SURFACE, chain)
    for label in ("2026-11-13 SPXW", "2027-02-19 SPX"):
        mine = pl.col("label") == label
        here, there = (
            sum_listed_expiry(table.filter(mine), 0.04).contributions["strike"].to_list()
            for table in (ours, chain.strips())
        )
        # The forward of the surface is another, so K0 is: the ends are the market's.
        assert (here[0], here[-1]) == (there[0], there[-1])


def test_priced_strips_hold_the_surface_s_prices_and_forward(chain: Chain) -> None:
    table = price_strips(SURFACE, chain).filter(pl.col("label") == "2027-01-15 SPX")
    T = table["minutes"][0] / 525_600
    bid = table.filter(pl.col("put_bid") > 0.0)
    np.testing.assert_allclose(bid["put_bid"], SURFACE.put(bid["strike"].to_numpy(), T))
    assert (bid["put_bid"] == bid["put_ask"]).all()
    market = chain.strips().filter(pl.col("label") == "2027-01-15 SPX")
    assert (table["put_bid"] == 0.0).sum() == (market["put_bid"] == 0.0).sum() > 0
    rate = float(-np.log(SURFACE.discount(T)) / T)
    assert sum_listed_expiry(table, rate).forward == pytest.approx(
        float(SURFACE.forward(T)), rel=1e-10
    )


def test_term_structure_adds_up(chain: Chain) -> None:
    table = term_structure(SURFACE, source=chain)
    T = np.array(HORIZON_DAYS) / 365.0
    assert table["days"].to_list() == list(HORIZON_DAYS)
    np.testing.assert_allclose(table["exact"], 100.0 * np.sqrt(SURFACE.variance_swap(T)))
    np.testing.assert_allclose(table["forward_variance"], SURFACE.forward_variance(T))
    np.testing.assert_allclose(
        table["forward_volatility"], 100.0 * np.sqrt(SURFACE.forward_variance(T))
    )
    np.testing.assert_allclose(
        table["listed"], table["exact"] + table["interpolation"] + table["gap"], rtol=1e-12
    )
    assert np.abs(table["gap"].to_numpy()).max() < 0.5


def test_quoted_is_the_index_of_the_chain(chain: Chain) -> None:
    quoted = term_structure(SURFACE, days=(30,), source=chain)["quoted"][0]
    at = np.array([strip.T for strip in vix(chain, rate=0.0).strips])
    near, after = -np.log(SURFACE.discount(at)) / at
    assert quoted == pytest.approx(vix(chain, rate=(float(near), float(after))), rel=1e-12)


def test_thirty_days_of_the_surface_itself() -> None:
    table = term_structure(SURFACE, days=(30,))
    assert table["exact"][0] == pytest.approx(float(SURFACE.vix()))
    assert table.select("listed", "gap", "interpolation", "quoted").null_count().row(0) == (1,) * 4


def test_horizon_without_expiries_around_it_is_null(chain: Chain) -> None:
    table = term_structure(SURFACE, days=(30, 2000), source=chain)
    assert table["listed"].is_null().to_list() == [False, True]
    assert table["exact"].null_count() == 0


def test_expiry_that_cannot_be_summed_is_null_and_said(
    chain: Chain, caplog: pytest.LogCaptureFixture
) -> None:
    broken = chain.strips().with_columns(
        call_bid=pl.when(pl.col("label") == "2026-10-30 SPXW").then(0.0).otherwise("call_bid")
    )
    with caplog.at_level(logging.WARNING, "arbiter"):
        table = replication(SURFACE, broken)
    row = table.row(by_predicate=pl.col("label") == "2026-10-30 SPXW", named=True)
    assert row["listed"] is row["quoted"] is row["truncation"] is None
    assert row["exact"] > 0.0
    assert "2026-10-30 SPXW: no strike has both" in caplog.text
    assert table["listed"].null_count() == 1


def test_quotes_without_dates_use_every_expiry() -> None:
    table = term_structure(SURFACE, days=(30, 365), source=strikes(SURFACE, -5.0, 3.5, 300))
    # 30 and 365 days are listed maturities of the example: nothing is interpolated.
    np.testing.assert_allclose(table["interpolation"], 0.0, atol=1e-9)
    assert table["quoted"].null_count() == 2
    assert np.abs(table["gap"].to_numpy()).max() < 0.1
