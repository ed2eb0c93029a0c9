"""Peers are good implementations: they recover what they can represent."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Protocol

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from arbiter import scoring
from arbiter.audit.certificate import Certificate, audit
from arbiter.chains import read_chain
from arbiter.conventions import Array
from arbiter.quotes import Quotes
from arbiter_lab.evaluation.heston_surfaces import heston_surface, oracle_rmse_bp
from arbiter_lab.peers import SSVI, SVI, Peer, fit_andreasen_huge, fit_ssvi, fit_svi
from arbiter_lab.peers.peer import volatility_targets
from arbiter_lab.peers.ssvi import LeastSquaresProblem
from arbiter_lab.peers.svi import SliceQuotes, raw_svi
from counts import count
from svi_slices import EXACT_SVI, RAW, T, quoted

EXACT_SSVI = SSVI(T, np.array([0.003, 0.018, 0.04]), rho=-0.6, eta=1.1, gamma=0.4)


def audited(model: Peer, farthest: float = 0.6) -> Certificate:
    """Audit a table of a model, between its maturities too."""
    ends = model.maturities[[0, -1]]
    times, k = np.meshgrid(
        np.linspace(ends[0], ends[1], 9), np.linspace(-farthest, farthest, 61), indexing="ij"
    )
    return audit(
        pl.DataFrame({"T": times.ravel(), "k": k.ravel(), "iv": model.iv(k, times).ravel()})
    )


def test_raw_svi_recovers_its_parameters() -> None:
    found = fit_svi(quoted(EXACT_SVI))
    assert np.abs(found.parameters - RAW).max() < 1e-6


@given(
    atm=st.floats(0.1, 0.6),
    skew=st.floats(-0.8, 0.3),
    centre=st.floats(-0.5, 0.5),
    width=st.floats(0.4, 2.0),
    slope=st.floats(0.2, 0.6),
)
def test_raw_svi_recovers_any_smile_of_its_own(
    atm: float, skew: float, centre: float, width: float, slope: float
) -> None:
    v = atm * np.sqrt(0.25)
    b, sigma = slope * v, width * v
    smallest = 0.7 * v * v
    a = smallest - b * sigma * np.sqrt(1 - skew * skew)
    exact = SVI(np.array([0.25]), np.array([[a, b, skew, centre * v, sigma]]))
    quotes = quoted(exact, half=0.002)
    error = np.abs(fit_svi(quotes).iv(quotes.k, quotes.T) - exact.iv(quotes.k, quotes.T))
    assert error.max() < 1e-6


def test_the_fit_notices_a_smile_that_is_not_svi() -> None:
    quotes = quoted(EXACT_SVI)
    bent = 0.02 * np.sin(18.0 * quotes.k / np.sqrt(quotes.T))
    table = quotes.to_frame().drop("bid", "ask")
    table = table.with_columns(pl.col("iv_bid") + bent, pl.col("iv_ask") + bent)
    assert scoring.score(fit_svi(quotes), quotes).inside_bid_ask == 1.0
    other = Quotes.from_frame(table)
    assert scoring.score(fit_svi(other), other).inside_bid_ask < 0.5


class Problem(Protocol):
    def residuals(self, x: Array) -> Array: ...
    def jacobian(self, x: Array) -> Array: ...


def jacobian_error(problem: Problem, x: Array) -> float:
    """Largest difference to central differences, of the largest derivative."""
    steps = 1e-6 * x * np.eye(x.size)
    rows = [(problem.residuals(x + s) - problem.residuals(x - s)) / (2 * s.sum()) for s in steps]
    exact = problem.jacobian(x)
    return float(np.abs(exact - np.array(rows).T).max() / np.abs(exact).max())


def test_jacobians_are_the_derivatives() -> None:
    quotes = quoted(EXACT_SSVI)
    iv, half = volatility_targets(quotes)
    first = quotes.expiry == 0
    one = SliceQuotes(quotes.k[first], 0.1, iv[first], half[first])
    every = LeastSquaresProblem(quotes, iv, half)
    assert jacobian_error(one, np.array([0.001, 0.02, 0.01, 0.01, 0.05])) < 1e-6
    assert jacobian_error(every, every.initial_point()) < 1e-6


def test_total_variance_is_linear_between_svi_slices_and_volatility_flat_beyond() -> None:
    k = np.linspace(-0.3, 0.2, 7)
    halfway = EXACT_SVI.total_variance(k, 0.3)
    ends = EXACT_SVI.total_variance(k, 0.1), EXACT_SVI.total_variance(k, 0.5)
    assert np.allclose(halfway, 0.5 * (ends[0] + ends[1]), rtol=1e-14)
    assert np.allclose(EXACT_SVI.iv(k, 0.01), EXACT_SVI.iv(k, 0.1), rtol=1e-14)
    assert np.allclose(EXACT_SVI.iv(k, 5.0), EXACT_SVI.iv(k, 1.0), rtol=1e-14)
    assert np.allclose(ends[0], raw_svi(RAW[0], k), rtol=1e-14)


def test_an_expiry_of_four_quotes_is_left_out_and_said(caplog: pytest.LogCaptureFixture) -> None:
    quotes = quoted(EXACT_SVI)
    few = (quotes.expiry != 1) | (np.cumsum(quotes.expiry == 1) <= 4)
    with caplog.at_level(logging.WARNING):
        found = fit_svi(quotes.select(few))
    assert found.maturities.tolist() == [0.1, 1.0]
    assert "T=0.5 has 4 quotes" in caplog.text
    with pytest.raises(ValueError, match="no expiry"):
        fit_svi(quotes.select(np.arange(len(quotes)) % 25 < 4))


def test_ssvi_recovers_its_parameters() -> None:
    found = fit_ssvi(quoted(EXACT_SSVI))
    assert np.abs(found.theta - EXACT_SSVI.theta).max() < 1e-6
    shape = np.array([found.rho - EXACT_SSVI.rho, found.eta - 1.1, found.gamma - 0.4])
    assert np.abs(shape).max() < 1e-6


@given(
    rho=st.floats(-0.95, 0.9), share=st.floats(0.05, 1.0), gamma=st.floats(0.0, 0.5),
    first=st.floats(1e-4, 0.1), steps=st.lists(st.floats(0.0, 0.1), min_size=2, max_size=2),
)  # fmt: skip
def test_ssvi_within_its_bounds_has_no_arbitrage(
    rho: float, share: float, gamma: float, first: float, steps: list[float]
) -> None:
    theta = np.cumsum([first, *steps])
    surface = SSVI(T, theta, rho, 2.0 * share / (1.0 + abs(rho)), gamma)
    assert audited(surface).passed


def test_ssvi_outside_its_bounds_is_caught() -> None:
    steep = SSVI(T, EXACT_SSVI.theta, rho=-0.7, eta=8.0, gamma=0.5)
    falling = SSVI(T, EXACT_SSVI.theta[::-1], rho=-0.6, eta=1.1, gamma=0.4)
    assert "butterfly" in audited(steep).findings["family"].to_list()
    assert "calendar" in audited(falling).findings["family"].to_list()


def test_ssvi_keeps_to_its_bounds_on_noisy_quotes() -> None:
    for seed in range(count(20, 2)):
        found = fit_ssvi(heston_surface(seed, hard=True).quotes)
        assert np.all(np.diff(found.theta) >= 0.0)
        assert found.eta * (1.0 + abs(found.rho)) <= 2.0 + 1e-12
        assert 0.0 <= found.gamma <= 0.5
        assert audited(found).passed


def test_ssvi_with_too_few_quotes_is_refused() -> None:
    quotes = quoted(EXACT_SSVI)
    with pytest.raises(ValueError, match="6 parameters on 3 expiries"):
        fit_ssvi(quotes.select(np.arange(75) % 25 == 0))


def test_andreasen_huge_reprices_quotes_without_arbitrage() -> None:
    quotes = quoted(EXACT_SSVI)
    found = fit_andreasen_huge(quotes)
    assert scoring.score(found, quotes).inside_bid_ask == 1.0
    assert scoring.score(found, quotes).iv_rmse_bp < 1.0
    between = found.iv(quotes.k, 0.75)
    assert np.abs(between - EXACT_SSVI.iv(quotes.k, 0.75)).max() < 0.02
    assert np.allclose(found.iv(0.05, 3.0), found.iv(0.05, 1.0), rtol=1e-12)
    assert np.allclose(found.otm(0.05, [0.5, 3.0])[0], found.otm(0.05, 0.5), rtol=1e-12)


def test_andreasen_huge_cannot_reprice_a_calendar_arbitrage() -> None:
    falling = quoted(SSVI(T, EXACT_SSVI.theta[::-1], rho=-0.6, eta=1.1, gamma=0.4))
    assert scoring.score(fit_andreasen_huge(falling), falling).inside_bid_ask < 0.6


def test_andreasen_huge_refuses_strikes_off_its_grid() -> None:
    found = fit_andreasen_huge(quoted(EXACT_SSVI))
    with pytest.raises(ValueError, match=r"k = 9\.0 lies off the grid"):
        found.iv([0.0, 9.0], 0.5)


@pytest.mark.parametrize("fit", [fit_svi, fit_ssvi, fit_andreasen_huge])
def test_peers_broadcast_like_a_surface(fit: object) -> None:
    assert callable(fit)
    model = fit(quoted(EXACT_SSVI))
    k, t = np.linspace(-0.1, 0.1, 5), np.array([0.2, 0.7])[:, None]
    for f in (model.iv, model.otm):
        assert f(k, t).shape == (2, 5)
        assert f(0.0, 0.5).shape == ()
        assert np.array_equal(f(k, t)[1, 2], f(k[2], 0.7))
    with pytest.raises(ValueError, match="positive year fraction"):
        model.iv(0.0, -1.0)


def test_a_locked_quote_does_not_outweigh_the_others() -> None:
    quotes = quoted(EXACT_SVI)
    bid, ask = np.array(quotes.bid), np.array(quotes.ask)
    bid[10] = ask[10] = 1.005 * ask[10]
    locked = Quotes.from_frame({"T": quotes.T, "k": quotes.k, "bid": bid, "ask": ask})
    _, half = volatility_targets(locked)
    assert half.min() >= 0.99e-4
    assert scoring.score(fit_svi(locked), quotes).inside_bid_ask > 0.9


# The references were measured with other implementations on other seeds of the same law.
@pytest.mark.parametrize(
    ("fit", "hard", "reference", "surfaces"),
    [
        (fit_svi, False, 14.0, count(50, 2)),
        (fit_svi, True, 133.0, count(50, 4)),
        (fit_ssvi, False, 146.0, count(50, 4)),
        (fit_andreasen_huge, False, 16.0, count(20, 1)),
    ],
)
def test_peers_are_as_good_as_others_have_measured(
    fit: object, hard: bool, reference: float, surfaces: int
) -> None:
    assert callable(fit)
    found = oracle_rmse_bp(fit, range(surfaces), hard)
    assert 1.0 < found < reference


def test_peers_fit_a_listed_chain(data_dir: Path) -> None:
    quotes = read_chain(data_dir / "chains" / "spx_2023-09-14_close.csv").quotes()
    quotes = quotes.select(scoring.find_counted_quotes(quotes))
    # one expiry in sixteen: QuantLib takes about a second for each
    some = quotes.select(quotes.expiry % 16 == 4)
    assert scoring.score(fit_svi(some), some).inside_bid_ask > 0.6
    assert scoring.score(fit_svi(some), some).iv_rmse_bp < 25.0
    assert scoring.score(fit_ssvi(some), some).iv_rmse_bp < 120.0
    assert scoring.score(fit_andreasen_huge(some), some).inside_bid_ask > 0.95
