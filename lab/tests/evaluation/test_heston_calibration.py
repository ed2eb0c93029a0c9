"""Heston's market from quotes: prices on fixed nodes, parameters that come back, folds."""

from __future__ import annotations

import warnings
from concurrent.futures import ThreadPoolExecutor
from dataclasses import astuple

import numpy as np
import pytest

from arbiter.conventions import Array
from arbiter.models.fourier_nodes import otm
from arbiter.models.heston import Heston
from arbiter.models.heston_calibration import (
    MAX_QUOTE_DEVIATIONS,
    atm_total_volatility,
    calibrate,
    coordinates_from_parameters,
    market_from_coordinates,
)
from arbiter.quotes import Quotes
from arbiter_lab.evaluation.heston_surfaces import draw_heston, heston_surface
from arbiter_lab.evaluation.known_surface import quotes_from_volatilities
from counts import count

T = np.array([7.0, 30.0, 91.0, 365.0, 730.0]) / 365.0
SHORT = np.array([0.1, 1.0, 2.0, 7.0, 91.0, 365.0]) / 365.0
HARSHEST = Heston(v0=0.012, kappa=0.8, theta=0.02, sigma=1.1, rho=-0.88)
MILDEST = Heston(v0=0.12, kappa=4.0, theta=0.10, sigma=0.3, rho=-0.5)


def exact(heston: Heston, T: Array = T, half: float = 0.002) -> Quotes:
    """Quotes about the truth, without noise."""
    k = np.linspace(-3.0, 2.0, 9) * (heston.reference_volatility(T) * np.sqrt(T))[:, None]
    iv = heston.iv(k, T)
    return quotes_from_volatilities(T, k, iv, half * np.ones_like(iv), np.ones(iv.shape, np.bool_))


def test_prices_on_fixed_nodes_are_those_of_adaptive_ones() -> None:
    rng = np.random.default_rng(0)
    markets = [HARSHEST, MILDEST, *(draw_heston(rng) for _ in range(count(20, 4)))]
    deviation = np.array([one.reference_volatility(T) * np.sqrt(T) for one in markets])
    z = np.linspace(-5.8, 4.0, 30)
    found = otm(markets, T, deviation, z)
    for i, one in enumerate(markets):
        for j, t in enumerate(T.tolist()):
            right = one.otm(z * deviation[i, j], t)
            np.testing.assert_allclose(found[i, j], right, rtol=0.0, atol=3e-8)


def test_prices_of_hours_and_days_are_as_good() -> None:
    calm = Heston(v0=0.01, kappa=2.0, theta=0.02, sigma=0.5, rho=-0.7)
    deviation = calm.reference_volatility(SHORT) * np.sqrt(SHORT)
    z = np.linspace(-3.0, 2.5, 12)
    found = otm([calm], SHORT, deviation[None], z)[0]
    right = np.array([calm.otm(z * v, t) for v, t in zip(deviation, SHORT.tolist(), strict=True)])
    np.testing.assert_allclose(found, right, rtol=1e-7, atol=1e-9 * float(deviation[0]))


def test_parameters_come_back_from_chains_with_hours_and_days() -> None:
    """Without a comparison with Black's prices, short expiries were off by several half-spreads."""
    calm = Heston(v0=0.01, kappa=2.0, theta=0.02, sigma=0.5, rho=-0.7)
    quotes = exact(calm, SHORT)
    found = calibrate(quotes, quotes.half_spread)
    assert found is not None
    np.testing.assert_allclose(astuple(found.heston), astuple(calm), rtol=0.02)


@pytest.mark.parametrize("seed", range(count(20, 4)))
def test_parameters_come_back_from_exact_quotes(seed: int) -> None:
    heston = draw_heston(np.random.default_rng(seed))
    quotes = exact(heston)
    found = calibrate(quotes, quotes.half_spread)
    assert found is not None
    np.testing.assert_allclose(astuple(found.heston), astuple(heston), rtol=0.02)
    # half-spreads: few nodes are a little off where a market is harsh and an option cheap
    assert np.abs(found.residuals).max() < 0.3
    assert np.median(np.abs(found.residuals)) < 0.02


@pytest.mark.parametrize("seed", range(count(30, 6)))
def test_noise_leaves_residuals_of_its_own_size(seed: int) -> None:
    surface = heston_surface(seed, hard=True)
    found = calibrate(surface.quotes, surface.quotes.half_spread)
    assert found is not None
    # uniform between bid and ask: a third, of so many quotes
    assert 0.2 < float(np.mean(found.residuals**2)) < 0.5
    error = found.heston.iv(surface.k, surface.T) - surface.iv_oracle
    assert float(np.sqrt(np.mean(error**2))) < 25e-4


def test_another_market_does_not_pass_for_hestons() -> None:
    """A smile with its lowest point at the money at all maturities, which Heston's has not."""
    z = np.linspace(-3.0, 2.0, 9)
    iv = 0.2 * (1.0 + 0.1 * z**2) * np.ones((T.size, 1))
    k = 0.2 * np.sqrt(T)[:, None] * z
    quotes = quotes_from_volatilities(
        T, k, iv, 0.002 * np.ones_like(iv), np.ones(iv.shape, np.bool_)
    )
    found = calibrate(quotes, quotes.half_spread)
    assert found is not None
    assert float(np.mean(found.residuals**2)) > 10.0


def test_threads_find_the_same_and_leave_warnings_alone() -> None:
    quotes = heston_surface(0, hard=True).quotes
    filters = list(warnings.filters)
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda _: calibrate(quotes, quotes.half_spread), range(8)))
    assert len({None if one is None else astuple(one.heston) for one in found}) == 1
    assert list(warnings.filters) == filters


def test_levels_that_are_no_numbers_are_not_calibrated_to() -> None:
    quotes = exact(MILDEST)
    vars(quotes)["iv_mid"] = np.full(len(quotes), np.nan)
    assert calibrate(quotes, quotes.half_spread) is None


def test_coordinates_are_those_of_a_market() -> None:
    np.testing.assert_allclose(
        astuple(market_from_coordinates(coordinates_from_parameters(astuple(HARSHEST)))),
        astuple(HARSHEST),
    )


def test_levels_are_read_at_the_money_and_between_expiries() -> None:
    quotes = exact(MILDEST)
    deviation = atm_total_volatility(quotes)
    np.testing.assert_allclose(deviation, MILDEST.reference_volatility(T) * np.sqrt(T), rtol=0.05)
    assert np.all(np.abs(quotes.k) < MAX_QUOTE_DEVIATIONS * deviation[quotes.expiry])
