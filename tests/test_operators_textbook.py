"""A second guide: taken where Heston's market is true, left where it is not."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from benchmarks.second_guide import sparse
from numpy.typing import NDArray

from arbiter.evaluation.cases import Case
from arbiter.evaluation.heston import HestonSurface, draw_heston, heston_surface
from arbiter.evaluation.unseen import unseen
from arbiter.examples import example_chain
from arbiter.fitting import FitOptions
from arbiter.markets.calibration import calibrate
from arbiter.operators import head, textbook
from arbiter.operators.pretrained import Operator
from arbiter.operators.textbook import Guides, consulted, market_slopes
from arbiter.quotes import Quotes
from arbiter.surface import Surface
from counts import count

Array = NDArray[np.float64]


@cache
def operator() -> Operator:
    return Operator.pretrained()


def guides(quotes: Quotes) -> Guides:
    return consulted(quotes, operator()(quotes), operator()._folds(quotes), FitOptions())


def squares(surface: Surface, made: HestonSurface) -> float:
    error = surface.iv(made.k, made.T[:, None]) - made.iv_oracle
    return float(np.mean((1e4 * error) ** 2))


@cache
def outsiders() -> list[Case]:
    """Markets of another family, each with few and wide quotes."""
    return [sparse(unseen(1, first=3 * i + 2).case(0), i) for i in range(count(12, 4))]


def test_transports_price_their_markets() -> None:
    T = heston_surface(0).T
    markets = [draw_heston(np.random.default_rng(seed)) for seed in range(count(20, 5))]
    for seed, logs in enumerate(market_slopes(markets, T)):
        made = heston_surface(seed)
        surface = Surface.from_slopes(head.KNOTS, T, np.exp(logs))  # and its order is checked
        assert squares(surface, made) < 1.5**2


def test_hestons_market_is_taken_where_it_is_true() -> None:
    seeds = range(count(20, 6))
    alone, both, weights = [], [], []
    for seed in seeds:
        made = heston_surface(seed, hard=True)
        guide = operator()(made.quotes)
        plain = operator().refine(made.quotes, guide, heston=False)
        fitted = operator().refine(made.quotes, guide)
        assert plain.info["heston"] == {"weight": 0.0}
        assert fitted.certificate().passed
        alone.append(squares(plain, made))
        both.append(squares(fitted, made))
        weights.append(fitted.info["heston"]["weight"])
    assert np.mean(weights) > 0.5
    assert np.sqrt(np.mean(both)) < 0.9 * np.sqrt(np.mean(alone))


def test_it_is_left_where_another_market_is_true() -> None:
    weights = [guides(case.quotes).weight for case in outsiders()]
    assert np.median(weights) == 0.0
    assert np.mean(weights) < 0.2


@pytest.mark.parametrize("number", range(3))  # one of each family
def test_good_quotes_of_another_market_have_none_of_it(number: int) -> None:
    quotes = unseen(1, first=number).case(0).quotes
    guide, held = operator()(quotes), operator()._folds(quotes)
    found = consulted(quotes, guide, held, FitOptions())
    assert found.guide is guide
    assert found.held is held
    assert found.to_dict() == {"weight": 0.0}


def test_guides_are_means_of_both_in_log_slopes() -> None:
    quotes = heston_surface(0, hard=True).quotes
    guide, held = operator()(quotes), operator()._folds(quotes)
    found = consulted(quotes, guide, held, FitOptions())
    assert found.heston is not None
    assert found.weight > textbook._LEAST
    market = market_slopes([found.heston], quotes.maturities)[0]
    mean = (1.0 - found.weight) * np.log(guide.slopes[0]) + found.weight * market
    np.testing.assert_allclose(np.log(found.guide.slopes[0]), mean, atol=1e-12)
    assert [fold.out.tolist() for fold in found.held] == [fold.out.tolist() for fold in held]
    for fold in found.held:
        assert np.diff(fold.guide.slopes, axis=1).min() >= 0.0


def test_folds_are_predicted_without_their_quotes() -> None:
    """Judged by residuals of the calibration itself the market would seem better than it is."""
    cases, seen = outsiders(), []
    for case in cases:
        found = calibrate(case.quotes, case.quotes.half_spread)
        assert found is not None
        unseen_squares = 0.0
        for fold in operator()._folds(case.quotes):
            unseen_squares += float(np.sum(found.without(fold.out)[1] ** 2))
        seen.append(float(np.sum(found.residuals**2)) / unseen_squares)
    assert max(seen) < 1.0


@pytest.mark.parametrize(
    ("squares", "low", "high"),
    [((100.0, 100.0), 0.01, 0.03), ((200.0, 100.0), 0.99, 1.0), ((100.0, 200.0), 0.0, 1e-6)],
)
def test_odds_are_against_it_and_quotes_decide(
    squares: tuple[float, float], low: float, high: float
) -> None:
    assert low <= textbook._weight(np.array(squares), 100) <= high


@pytest.mark.parametrize("squares", [(np.nan, 1.0), (1.0, np.inf), (0.0, 0.0)])
def test_what_is_no_number_has_no_weight(squares: tuple[float, float]) -> None:
    assert textbook._weight(np.array(squares), 100) == 0.0


def test_few_quotes_are_not_asked() -> None:
    quotes = heston_surface(0, hard=True).quotes
    few = quotes.select(np.arange(len(quotes)) % 8 == 0)
    assert len(few) < textbook._FEWEST
    guide, held = operator()(few), operator()._folds(few)
    assert consulted(few, guide, held, FitOptions()) == Guides(guide, held)


def test_many_quotes_are_asked_in_part() -> None:
    quotes = example_chain().quotes()
    asked = textbook._asked(quotes)
    assert 0 < np.count_nonzero(asked) <= textbook._MOST
    assert np.unique(quotes.expiry[asked]).size <= textbook._EXPIRIES
