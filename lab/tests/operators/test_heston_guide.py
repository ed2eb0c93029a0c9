"""A second guide: taken where Heston's market is true, left where it is not."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import polars as pl
import pytest
from benchmarks.second_guide import sparse

from arbiter.examples import example_chain
from arbiter.fitting import FitOptions
from arbiter.fitting.cross_validation import folds
from arbiter.models.heston import Heston
from arbiter.models.heston_calibration import calibrate
from arbiter.operators import heston_guide, slope_head
from arbiter.operators.heston_guide import Guides, consulted, market_slopes
from arbiter.operators.pretrained import Operator
from arbiter.quotes import Quotes
from arbiter.surface import Surface
from arbiter_lab.evaluation.heston_surfaces import HestonSurface, draw_heston, heston_surface
from arbiter_lab.evaluation.known_surface import Case
from arbiter_lab.evaluation.unseen_surfaces import make_unseen_surfaces
from counts import count


@cache
def operator() -> Operator:
    return Operator.pretrained()


def guides(quotes: Quotes) -> Guides:
    guide = operator()(quotes, components=1)
    return consulted(quotes, guide, operator().fold_guides(quotes), FitOptions())


def squares(surface: Surface, made: HestonSurface) -> float:
    error = surface.iv(made.k, made.T[:, None]) - made.iv_oracle
    return float(np.mean((1e4 * error) ** 2))


@cache
def outsiders() -> list[Case]:
    """Markets of another family, each with few and wide quotes."""
    return [
        sparse(make_unseen_surfaces(1, first=3 * i + 2).build_case(0), i)
        for i in range(count(12, 4))
    ]


def test_transports_price_their_markets() -> None:
    T = heston_surface(0).T
    markets = [draw_heston(np.random.default_rng(seed)) for seed in range(count(20, 5))]
    found = market_slopes(markets, T)
    assert found is not None
    for seed, logs in enumerate(found):
        made = heston_surface(seed)
        surface = Surface.from_slopes(slope_head.KNOTS, T, np.exp(logs))  # and its order is checked
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
    quotes = make_unseen_surfaces(1, first=number).build_case(0).quotes
    guide, held = operator()(quotes), operator().fold_guides(quotes)
    found = consulted(quotes, guide, held, FitOptions())
    assert found.guide is guide
    assert found.held is held
    assert found.to_dict() == {"weight": 0.0}


def test_guides_are_means_of_both_in_log_slopes() -> None:
    quotes = heston_surface(0, hard=True).quotes
    guide, held = operator()(quotes), operator().fold_guides(quotes)
    found = consulted(quotes, guide, held, FitOptions())
    assert found.heston is not None
    assert found.weight > heston_guide.MIN_WEIGHT
    market = market_slopes([found.heston], quotes.maturities)
    assert market is not None
    mean = (1.0 - found.weight) * np.log(guide.slopes[0]) + found.weight * market[0]
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
        for fold in operator().fold_guides(case.quotes):
            unseen_squares += float(np.sum(found.refit_without(fold.out)[1] ** 2))
        seen.append(float(np.sum(found.residuals**2)) / unseen_squares)
    assert max(seen) < 1.0


@pytest.mark.parametrize(
    ("squares", "low", "high"),
    [((30.0, 30.0), 0.01, 0.03), ((60.0, 30.0), 0.99, 1.0), ((30.0, 60.0), 0.0, 1e-6)],
)
def test_odds_are_against_it_and_quotes_decide(
    squares: tuple[float, float], low: float, high: float
) -> None:
    assert low <= heston_guide.weigh_second_guide(np.array(squares), 100) <= high


@pytest.mark.parametrize("off", [5.0, 20.0, 100.0])
def test_one_bad_quote_does_not_make_a_market(off: float) -> None:
    """Both priors miss the bad quote, Heston's by less, but Heston's misses all others too."""
    for case in outsiders():
        quotes = case.quotes
        bad = len(quotes) // 2
        half = np.minimum(quotes.half_spread, 0.2 * quotes.mid)[bad]
        bid, ask = quotes.bid.copy(), quotes.ask.copy()
        bid[bad], ask[bad] = bid[bad] + off * half, ask[bad] + off * half
        wrong = replace(quotes, bid=bid, ask=ask)
        assert guides(wrong).weight < 0.5
        assert np.isfinite(operator().refine(wrong).slopes).all()


def test_a_market_that_misses_by_more_than_spreads_has_no_weight() -> None:
    assert heston_guide.weigh_second_guide(np.array([1000.0, 59.0]), 100) > 0.99
    assert heston_guide.weigh_second_guide(np.array([1000.0, 61.0]), 100) == 0.0


@pytest.mark.parametrize("squares", [(np.nan, 1.0), (1.0, np.inf), (0.0, 0.0)])
def test_what_is_no_number_has_no_weight(squares: tuple[float, float]) -> None:
    assert heston_guide.weigh_second_guide(np.array(squares), 100) == 0.0


def test_few_quotes_are_not_asked() -> None:
    quotes = heston_surface(0, hard=True).quotes
    few = quotes.select(np.arange(len(quotes)) % 8 == 0)
    assert len(few) < heston_guide.MIN_QUOTES
    guide, held = operator()(few), operator().fold_guides(few)
    assert consulted(few, guide, held, FitOptions()) == Guides(guide, held)


def test_many_quotes_are_asked_in_part() -> None:
    quotes = example_chain().quotes()
    asked = heston_guide.select_asked_quotes(quotes)
    assert 0 < np.count_nonzero(asked) <= heston_guide.MAX_QUOTES
    listed = np.unique(quotes.expiry[asked])
    assert listed.size <= heston_guide.MAX_EXPIRIES
    # no expiry is held out whole: each has its quotes in all folds, but for the smallest ones
    whole = [
        min(np.count_nonzero(asked & out & (quotes.expiry == one)) for out in folds(quotes))
        for one in listed.tolist()
    ]
    assert np.median(whole) > 0


@pytest.mark.parametrize("T", [1e-5, 1e-4])
def test_an_expiry_of_minutes_does_no_harm(T: float) -> None:
    made = heston_surface(0, hard=True)
    few = {"T": T, "k": [-0.01, 0.0, 0.01], "iv_bid": 0.2, "iv_ask": 0.3}
    rows = made.quotes.to_frame().select("T", "k", "iv_bid", "iv_ask")
    quotes = Quotes.from_frame(pl.concat([pl.DataFrame(few), rows]))
    fitted = operator().refine(quotes)
    assert np.isfinite(fitted.slopes).all()
    assert fitted.certificate().passed


def test_markets_with_gaps_in_what_is_resolved_have_slopes_or_none() -> None:
    """In such markets the upper wing falls below rounding, and noise rises above it again."""
    stuck = Heston(v0=0.003, kappa=0.457, theta=0.002, sigma=0.977, rho=-0.98)
    for T in (np.array([1.0, 2.0, 5.0, 10.0]), np.array([1e-9, 1.0])):
        found = market_slopes([stuck], T)
        assert found is None or np.isfinite(found).all()
    harsh = market_slopes([stuck], np.array([0.02, 0.1]))
    assert harsh is not None


def test_guides_keep_their_own_knots() -> None:
    quotes = heston_surface(0, hard=True).quotes
    guide = operator()(quotes)
    knots = np.linspace(-5.0, 4.5, 81)
    finer = np.stack([np.interp(knots, guide.knots, row) for row in guide.slopes[0]])
    surface = Surface.from_slopes(knots, guide.maturities, finer)
    found = consulted(quotes, surface, operator().fold_guides(quotes), FitOptions())
    assert found.weight > heston_guide.MIN_WEIGHT
    np.testing.assert_array_equal(found.guide.knots, knots)


def test_guides_of_several_components_are_refused() -> None:
    quotes = heston_surface(0, hard=True).quotes
    guide = operator()(quotes)
    slopes, weights = np.repeat(guide.slopes, 3, axis=0), np.full((3, len(guide.maturities)), 1 / 3)
    three = Surface.from_slopes(guide.knots, guide.maturities, slopes, weights=weights)
    with pytest.raises(ValueError, match="prior has 3 components"):
        operator().refine(quotes, three)
