"""The direct fit: accuracy, determinism, symmetries, and clear refusals."""

from __future__ import annotations

import logging
from dataclasses import replace
from functools import lru_cache

import numpy as np
import polars as pl
import pytest
from numpy.typing import ArrayLike

from arbiter.conventions import Array
from arbiter.fitting import FitOptions, FitResult, FittedSurface, Roughness, Status, fit
from arbiter.quotes import Quotes
from arbiter.surface import Surface
from arbiter_lab.evaluation.heston_surfaces import HestonSurface, heston_surface, oracle_rmse_bp
from counts import count
from reference import BATES, DAYS


def table(T: ArrayLike, k: ArrayLike, mid: ArrayLike, half: ArrayLike) -> Quotes:
    """Quotes with volatilities ``mid ± half``; everything broadcasts."""
    T, k, mid, half = (np.ravel(a) for a in np.broadcast_arrays(T, k, mid, half))
    return Quotes.from_frame({"T": T, "k": k, "iv_bid": mid - half, "iv_ask": mid + half})


def report(surface: FittedSurface) -> FitResult:
    assert surface.result is not None
    return surface.result


def rmse_bp(surface: Surface, k: Array, T: Array, truth: Array) -> float:
    return float(np.sqrt(np.mean((surface.iv(k, T) - truth) ** 2)) * 1e4)


@lru_cache(maxsize=1)
def market() -> tuple[HestonSurface, FittedSurface]:
    """One benchmark surface and its fit with the defaults."""
    surface = heston_surface(620)
    return surface, fit(surface.quotes)


def test_a_surface_of_its_own_family_is_recovered() -> None:
    """From noiseless quotes with half-spreads of 1 bp, to 0.02 bp."""
    surface, known = market()
    T = surface.T[:, None]
    truth = known.iv(surface.k, T)
    found = fit(table(T, surface.k, truth, 1e-4))
    assert report(found).status is Status.CONVERGED
    assert rmse_bp(found, surface.k, T, truth) < 0.02
    assert rmse_bp(found, surface.k, T, truth + 1e-5) > 0.05


def test_heston_quotes_are_fitted_within_the_stated_error() -> None:
    """On the benchmark, seeds 2000 and up: 6 bp base, 26 bp hard, noise being 19 and 56 bp."""
    seeds = range(2000, 2000 + count(full=50, reduced=6))
    assert oracle_rmse_bp(fit, seeds) <= 6.0
    assert oracle_rmse_bp(fit, seeds, hard=True) <= 26.0
    stiff = FitOptions(roughness=Roughness(1e3, 1e4, 1e3))
    assert oracle_rmse_bp(lambda quotes: fit(quotes, options=stiff), seeds[:2]) > 12.0


def test_crashes_need_two_components() -> None:
    """Bates with heavy jumps breaks the star order: 4.7 bp with one component, 0.2 with two."""
    T, k = BATES.grid(33)
    truth = BATES.iv(k, DAYS)
    quotes = table(T[:, None], k, truth, 1e-3)
    one, two = (fit(quotes, options=FitOptions(components=j)) for j in (1, 2))
    assert rmse_bp(one, k, T[:, None], truth) > 3.0
    assert rmse_bp(two, k, T[:, None], truth) < 0.5
    assert two.slopes.shape[0] == 2
    assert two.certificate().passed
    assert report(two).status is Status.CONVERGED


def test_outliers_pull_with_a_bounded_force() -> None:
    """One quote in fifty off by half its volatility: the error grows by less than one half."""
    surface, clean = market()
    quotes = surface.quotes
    mid, half = 0.5 * (quotes.iv_ask + quotes.iv_bid), 0.5 * (quotes.iv_ask - quotes.iv_bid)
    bad = np.random.default_rng(5).choice(len(quotes), len(quotes) // 50, replace=False)
    errors = []
    for factor in (1.0, 1.5, 3.0):
        moved = mid.copy()
        moved[bad] *= factor
        found = fit(table(quotes.T, quotes.k, moved, half))
        errors.append(rmse_bp(found, surface.k, surface.T[:, None], surface.iv_oracle))
        assert (np.abs(report(found).residuals[bad]).min() > 5.0) == (factor > 1.0)
    assert errors[0] == pytest.approx(
        rmse_bp(clean, surface.k, surface.T[:, None], surface.iv_oracle), rel=1e-3
    )
    assert errors[1] < 1.5 * errors[0]
    assert errors[2] < 1.5 * errors[0]


def test_a_fit_that_runs_out_of_steps_says_so(caplog: pytest.LogCaptureFixture) -> None:
    quotes = heston_surface(621).quotes
    for roughness in ("likelihood", "gcv", Roughness(1.0, 10.0)):
        caplog.clear()
        with caplog.at_level(logging.WARNING):
            found = fit(quotes, options=FitOptions(iterations=2, roughness=roughness))
        assert report(found).status is Status.MAX_ITERATIONS
        assert report(found).iterations == 2
        assert "max_iterations" in caplog.text
        assert "raise FitOptions.iterations" in caplog.text
        assert found.certificate().passed  # every iterate is free of arbitrage
    caplog.clear()
    assert report(fit(quotes)).status is Status.CONVERGED
    assert not caplog.records


def test_the_result_describes_the_surface() -> None:
    surface, found = market()
    quotes, result = surface.quotes, report(found)
    half = np.maximum(quotes.half_spread, 1e-300)
    residuals = (found.otm(quotes.k, quotes.T) - quotes.mid) / half
    assert result.residuals == pytest.approx(residuals, abs=1e-6)
    assert np.std(result.residuals) > 0.3
    assert 20.0 < result.freedom < 200.0
    assert not result.residuals.flags.writeable
    plain = result.to_dict()
    assert plain["status"] == "converged"
    assert "residuals" not in plain
    assert found.info["fit"]["iterations"] == result.iterations


def test_a_saved_fit_is_a_surface_with_a_summary(tmp_path: object) -> None:
    _, found = market()
    path = f"{tmp_path}/fit.npz"
    found.save(path)
    loaded = Surface.load(path)
    assert np.array_equal(loaded.slopes, found.slopes)
    assert loaded.info["fit"]["status"] == "converged"
    assert loaded.info["fit"]["roughness"]["maturity"] == report(found).roughness.maturity


def test_the_order_of_the_rows_changes_nothing(rng: np.random.Generator) -> None:
    quotes = heston_surface(622, hard=True).quotes
    frame = quotes.to_frame().select("T", "k", "bid", "ask")
    shuffled = frame[rng.permutation(frame.height).tolist()]
    first, again, mixed = (fit(Quotes.from_frame(f)) for f in (frame, frame, shuffled))
    assert np.array_equal(first.slopes, again.slopes)
    assert np.array_equal(first.slopes, mixed.slopes)
    other = frame.with_columns(pl.col("ask") * 1.0001)
    assert not np.array_equal(first.slopes, fit(Quotes.from_frame(other)).slopes)


@pytest.mark.parametrize("factor", [0.25, 3.0])
def test_a_faster_clock_at_a_lower_level_is_the_same_market(factor: float) -> None:
    """Volatilities times λ, maturities over λ²: the same slopes."""
    surface, found = market()
    quotes = surface.quotes
    mid, half = 0.5 * (quotes.iv_ask + quotes.iv_bid), 0.5 * (quotes.iv_ask - quotes.iv_bid)
    options = FitOptions(finest=0.5e-4 * factor)
    scaled = fit(
        table(quotes.T / factor**2, quotes.k, factor * mid, factor * half), options=options
    )
    assert np.abs(np.log(scaled.slopes / found.slopes)).max() < 1e-4
    slower = fit(table(quotes.T / factor, quotes.k, factor * mid, factor * half), options=options)
    assert np.abs(np.log(slower.slopes / found.slopes)).max() > 1e-2


def test_a_warm_start_reaches_the_same_optimum_in_fewer_steps(rng: np.random.Generator) -> None:
    surface, yesterday = market()
    quotes = surface.quotes
    mid, half = 0.5 * (quotes.iv_ask + quotes.iv_bid), 0.5 * (quotes.iv_ask - quotes.iv_bid)
    today = table(quotes.T, quotes.k, mid + 0.3 * half * rng.uniform(-1.0, 1.0, mid.size), half)
    options = FitOptions(roughness=report(yesterday).roughness)
    cold, warm = report(fit(today, options=options)), fit(today, options=options, start=yesterday)
    assert report(warm).objective == pytest.approx(cold.objective, rel=1e-4)
    assert report(warm).iterations < cold.iterations
    far = fit(heston_surface(641).quotes)  # another market altogether
    slow = report(fit(today, options=options, start=far))
    assert slow.objective == pytest.approx(cold.objective, rel=1e-4)


def test_a_warm_start_may_have_other_knots_expiries_and_components() -> None:
    surface, found = market()
    part = surface.quotes.select(np.isin(surface.quotes.expiry, [1, 4, 9]))
    knots = tuple(np.linspace(-4.0, 4.0, 17))
    for components in (1, 2):
        options = FitOptions(components=components, knots=knots)
        assert report(fit(part, options=options, start=found)).status is Status.CONVERGED
    double = fit(part, options=FitOptions(components=2))
    again = fit(part, options=FitOptions(components=2), start=double)
    assert report(again).objective <= 1.05 * report(double).objective
    assert report(fit(part, start=double)).status is Status.CONVERGED


def test_a_quote_of_weight_zero_is_ignored(rng: np.random.Generator) -> None:
    surface, _ = market()
    quotes = surface.quotes
    mid, half = 0.5 * (quotes.iv_ask + quotes.iv_bid), 0.5 * (quotes.iv_ask - quotes.iv_bid)
    ignored = rng.choice(len(quotes), 20, replace=False)
    weights = np.ones(len(quotes))
    weights[ignored] = 0.0
    wrong = mid.copy()
    wrong[ignored] *= 1.5
    without = fit(quotes.select(weights > 0.0))
    found = fit(table(quotes.T, quotes.k, wrong, half), weights=weights)
    T = surface.T[:, None]
    assert rmse_bp(found, surface.k, T, without.iv(surface.k, T)) < 0.1
    heard = fit(table(quotes.T, quotes.k, wrong, half))
    assert rmse_bp(heard, surface.k, T, without.iv(surface.k, T)) > 1.0


def test_a_heavier_quote_is_met_more_closely() -> None:
    quotes = heston_surface(623).quotes
    residuals = report(fit(quotes)).residuals
    worst = int(np.abs(residuals).argmax())
    weights = np.ones(len(quotes))
    weights[worst] = 100.0
    assert abs(report(fit(quotes, weights=weights)).residuals[worst]) < 0.7 * abs(residuals[worst])


def test_too_few_quotes_are_refused_with_the_remedy() -> None:
    quotes = table(0.5, np.array([-0.1, 0.1]), 0.2, 0.01)
    with pytest.raises(ValueError, match=r"2 usable quotes: .* at least 3; quotes.counts\(\)"):
        fit(quotes)
    assert report(fit(table(0.5, np.array([-0.1, 0.0, 0.1]), 0.2, 0.01))).status


@pytest.mark.parametrize("bid", [0.2, np.nan])
def test_quotes_that_are_crossed_or_no_numbers_are_named(bid: float) -> None:
    quotes = table(0.5, np.array([-0.1, 0.0, 0.1]), 0.2, 0.01)
    wrong = replace(quotes, bid=np.where(np.arange(3) == 1, bid, quotes.bid))
    with pytest.raises(ValueError, match=r"quote 2 has bid = (0\.2|nan) and ask = 0\.05"):
        fit(wrong)


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ([1.0, 1.0], "3 finite numbers"),
        ([[1.0, 1.0, 1.0]], "3 finite numbers"),
        ([1.0, -1.0, 1.0], "not negative"),
        ([1.0, np.nan, 1.0], "finite"),
        ([1.0, 0.0, 1.0], "fewer than 3 quotes have a positive weight"),
    ],
)
def test_weights_that_do_not_fit_are_refused(weights: list[float], message: str) -> None:
    quotes = table(0.5, np.array([-0.1, 0.0, 0.1]), 0.2, 0.01)
    with pytest.raises(ValueError, match=message):
        fit(quotes, weights=weights)


def test_a_table_is_asked_to_become_quotes() -> None:
    with pytest.raises(ValueError, match=r"Quotes\.from_frame"):
        fit({"T": [0.5], "k": [0.0]})  # type: ignore[arg-type]


def test_a_saved_fit_remembers_no_clock() -> None:
    quotes = heston_surface(3).quotes
    first, second = (fit(quotes) for _ in range(2))
    assert first.info == second.info
    assert "seconds" not in first.info["fit"]
