"""Expiries of minutes to two days: near a known law, and at next to no cost to the others."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import pytest

import arbiter as ab
from arbiter.conventions import MINUTES_PER_YEAR, Array
from arbiter.maturity_scores import score_by_maturity
from arbiter.quotes import Quotes
from listed_days import DAYS, VOLATILITY, as_quotes, list_quotes, true_price

SHORT_CHAINS = {  # expiries nearer than two days
    "spx_2019-05-13_0447ET_gth.dat": 1,
    "spx_2022-07-12_1155ET.csv": 2,
    "spx_2023-02-07_close.csv": 2,
    "spx_2023-09-14_close.csv": 2,
    "xsp_2023-09-14_close.csv": 1,
}


@cache
def later_quotes() -> Array:
    rng = np.random.default_rng(1)
    rows = [list_quotes(day / 365.0, rng, 5.0 if day < 30 else 25.0) for day in DAYS]
    return np.concatenate(rows, axis=1)


@cache
def fit_later() -> tuple[Quotes, ab.FittedSurface]:
    quotes = as_quotes(later_quotes())
    return quotes, ab.fit(quotes)


def cost_to_others(quotes: Quotes, surface: ab.Surface, without: ab.Surface) -> float:
    """RMS of what the volatilities at quotes move, within two deviations, basis points."""
    near = np.abs(quotes.k) <= 2.0 * quotes.iv_mid * np.sqrt(quotes.T)
    k, T = quotes.k[near], quotes.T[near]
    moved = 1e4 * (surface.iv(k, T) - without.iv(k, T))
    return float(np.sqrt(np.mean(moved**2)))


@pytest.mark.parametrize(
    ("minutes", "step", "most"),
    [
        (1, 0.5, 5),
        (5, 1.0, 9),
        (15, 5.0, 3),
        (75, 5.0, 5),
        (75, 5.0, 17),
        (210, 5.0, 17),
        (360, 5.0, 2),
    ],
)
def test_the_last_minutes_are_near_the_law_that_was_quoted(
    minutes: int, step: float, most: int
) -> None:
    others, without = fit_later()
    T = minutes / MINUTES_PER_YEAR
    short = list_quotes(T, np.random.default_rng(2), step, most)
    assert 2 <= short.shape[1] <= most
    quotes = as_quotes(np.concatenate([short, later_quotes()], axis=1))
    surface = ab.fit(quotes)
    assert surface.result.status.value == "converged"
    own = quotes.expiry == 0
    assert (np.abs(surface.result.residuals[own]) <= 1.0).all()
    k = quotes.k[own]
    miss = surface.otm(k, np.full(k.size, T)) - true_price(k, T)
    assert (np.abs(miss) < 0.6 * quotes.half_spread[own]).all()
    assert (surface.iv_error(k, T) > 0.0).all()
    wide = np.linspace(-8.0, 6.0, 29) * VOLATILITY * np.sqrt(T)
    assert np.isfinite(surface.otm(wide, np.full(29, T))).all()
    assert np.isfinite(surface.density(wide, np.full(29, T))).all()
    assert cost_to_others(others, surface, without) < 0.05
    assert surface.certificate().passed


def test_quotes_of_another_law_would_be_far_from_it() -> None:
    """The control: the same strikes at 1.2 times their prices."""
    T = 75 / MINUTES_PER_YEAR
    short = list_quotes(T, np.random.default_rng(2), 5.0, 9)
    short[2:] *= 1.2
    quotes = as_quotes(np.concatenate([short, later_quotes()], axis=1))
    surface, own = ab.fit(quotes), quotes.expiry == 0
    k = quotes.k[own]
    miss = surface.otm(k, np.full(k.size, T)) - true_price(k, T)
    assert (np.abs(miss) > 0.6 * quotes.half_spread[own]).any()


@pytest.mark.parametrize("name", SHORT_CHAINS)
def test_short_expiries_of_real_chains_are_fitted_and_cost_the_others_little(
    data_dir: Path, name: str
) -> None:
    chain = ab.read_chain(data_dir / "chains" / name)
    quotes = chain.quotes()
    later = quotes.select(quotes.T >= 2.0 / 365.0)
    short = quotes.maturities.size - later.maturities.size
    assert short == SHORT_CHAINS[name]
    surface, without = ab.fit(quotes), ab.fit(later)
    assert surface.result.status.value == "converged"
    busiest = "spx_2023-09-14" in name  # two next-day series with 400 asks without a bid
    assert cost_to_others(later, surface, without) < (0.15 if busiest else 0.1)
    under = score_by_maturity(surface, quotes.select(quotes.T < 2.0 / 365.0)).overall
    assert under.inside_bid_ask > (0.95 if busiest else 0.99)
    assert surface.certificate().passed
