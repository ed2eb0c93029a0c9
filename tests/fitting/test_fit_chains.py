"""Full SPX chains as the exchange published them: certified, inside bid-ask, also unseen."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import pytest
from scipy.optimize import nnls

from arbiter.chains import read_chain
from arbiter.conventions import Array
from arbiter.fitting import FitOptions, FittedSurface, Roughness, Status, fit
from arbiter.pricing import black
from arbiter.quotes import Quotes
from arbiter.scoring import count_modes, find_counted_quotes, iv_rmse_bp, score

CHAINS = {
    "2023-02-07": "spx_2023-02-07_close.csv",
    "2023-09-14": "spx_2023-09-14_close.csv",
    "2023-08-18": "spx_2023-08-18_close.csv",
    "2020-09-04": "spx_2020-09-04_close.dat",
    "2022-02-04": "spx_2022-02-04_close.csv",
    "2022-07-12": "spx_2022-07-12_1155ET.csv",
}
DAYS = list(CHAINS)
CALM = ["2023-02-07", "2023-08-18", "2023-09-14"]


@cache
def fitted(folder: Path, day: str) -> tuple[Quotes, FittedSurface]:
    quotes = read_chain(folder / "chains" / CHAINS[day]).quotes()
    return quotes, fit(quotes)


@pytest.mark.parametrize("day", DAYS)
def test_a_real_chain_is_fitted_inside_its_spreads_and_certified(day: str, data_dir: Path) -> None:
    quotes, surface = fitted(data_dir, day)
    assert surface.result is not None
    assert surface.result.status is Status.CONVERGED
    certificate = surface.certificate()
    assert certificate.passed
    assert certificate.findings.is_empty()
    found = score(surface, quotes)
    assert found.inside_bid_ask >= 0.995
    assert found.iv_rmse_half_spreads <= 0.5
    assert count_modes(surface).mean() <= 1.1


@pytest.mark.parametrize("day", DAYS)
def test_quotes_that_were_not_shown_are_met(day: str, data_dir: Path) -> None:
    quotes, _ = fitted(data_dir, day)
    hidden = quotes.held_out(0.2, seed=11)
    surface = fit(quotes.select(~hidden))
    assert score(surface, quotes, among=hidden).inside_bid_ask >= 0.99
    stiff = fit(quotes.select(~hidden), options=FitOptions(roughness=Roughness(1e5, 1e5, 1e5)))
    assert score(stiff, quotes, among=hidden).inside_bid_ask < 0.9


@pytest.mark.parametrize("day", [day for day in DAYS if day in CALM])
def test_errors_of_volatility_are_a_few_basis_points(day: str, data_dir: Path) -> None:
    quotes, surface = fitted(data_dir, day)
    short = quotes.select(find_counted_quotes(quotes) & (quotes.T <= 2.6))
    assert iv_rmse_bp(surface, short) <= 2.5
    overall = score(surface, quotes).iv_rmse_bp
    assert overall <= (8.5 if day == "2023-08-18" else 5.0)  # see the next test


def uniform_puts(strikes: Array, mode: float, end: Array) -> Array:
    """``(m, p)`` puts on laws that are uniform between ``mode`` and each ``end``."""
    low, high = np.minimum(mode, end), np.maximum(mode, end)
    within = np.clip(strikes[:, None], low, high) - low
    width = np.maximum(high - low, 1e-12)
    return np.asarray(within**2 / (2.0 * width) + np.maximum(strikes[:, None] - high, 0.0))


def least_error_bp(quotes: Quotes, expiry: int) -> tuple[float, int]:
    """The least RMSE of volatility that a law with one mode can have, and on how many quotes.

    A law with its mode at m is a mixture of uniform laws with one end at m (Khintchine 1938), and
    puts are linear in the mixture: nonnegative least squares, scanned over m. Errors of
    price are over vega.
    """
    T = float(quotes.maturities[expiry])
    near = (quotes.expiry == expiry) & (np.abs(quotes.k) <= 2.0 * quotes.iv_mid * np.sqrt(quotes.T))
    k, iv = quotes.k[near], quotes.iv_mid[near]
    strikes = np.exp(k)
    put = np.where(k < 0.0, quotes.mid[near], quotes.mid[near] - 1.0 + strikes)
    vega = np.asarray(black.vega(k, iv * np.sqrt(T))) * np.sqrt(T)
    end = np.concatenate([np.linspace(0.0, 1.2 * strikes[-1], 200), np.geomspace(3.0, 30.0, 20)])
    heavy = 1e4  # total mass one and mean one
    least = np.inf
    for mode in np.linspace(0.0, 2.0, 41):
        rows = uniform_puts(strikes, mode, end) / vega[:, None]
        rows = np.concatenate([rows, [np.full(end.size, heavy), heavy * 0.5 * (mode + end)]])
        _, error = nnls(rows, np.concatenate([put / vega, [heavy, heavy]]), maxiter=100_000)
        least = min(least, error)
    return float(least / np.sqrt(k.size) * 1e4), int(k.size)


def bound_bp(quotes: Quotes) -> float:
    """Lower bound of the overall error, all other expiries met exactly."""
    quotes = quotes.select(find_counted_quotes(quotes))
    near = np.abs(quotes.k) <= 2.0 * quotes.iv_mid * np.sqrt(quotes.T)
    error, size = least_error_bp(quotes, quotes.maturities.size - 1)
    return float(error * np.sqrt(size / np.count_nonzero(near)))


def test_the_longest_expiry_of_one_day_contradicts_itself(data_dir: Path) -> None:
    """2023-08-18: 6.4 bp overall is the least, if the density of 2028-12-15 has one mode.

    Its mids are 300 bp from bid and ask, and no convex curve passes near them all.
    """
    crooked, _ = fitted(data_dir, "2023-08-18")
    assert 6.0 < bound_bp(crooked) < 7.0
    straight, surface = fitted(data_dir, "2023-02-07")
    assert bound_bp(straight) < 2.0
    # the bound is one: our own slice, nearly of one mode, does not beat it
    last = straight.select(find_counted_quotes(straight))
    last = last.select(last.expiry == last.maturities.size - 1)
    assert iv_rmse_bp(surface, last) > 0.95 * least_error_bp(last, 0)[0]


def test_the_hump_of_forward_volatility_is_one_put_of_one_expiry(data_dir: Path) -> None:
    """2023-09-14, between 2024-10-18 and 2025-01-17: docs/notebook/fit.md."""
    quotes = read_chain(data_dir / "chains" / "spx_2023-09-14_close.csv").quotes()
    own = quotes.expiry == list(quotes.labels).index("2024-12-20 SPX")
    lowest = own & (quotes.k == quotes.k[own].min())
    T = np.arange(0.9, 1.5, 0.01)

    def highest_forward_volatility(part: Quotes) -> float:
        return float(np.sqrt(fit(part).forward_variance(T).max()))

    assert highest_forward_volatility(quotes) > 0.29
    assert highest_forward_volatility(quotes.select(~lowest)) < 0.27
    assert highest_forward_volatility(quotes.select(~own)) < 0.245
    neighbour = quotes.expiry == quotes.expiry[own][0] - 1
    other = neighbour & (quotes.k == quotes.k[neighbour].min())
    assert highest_forward_volatility(quotes.select(~other)) > 0.29  # another put is not it
