"""Markets outside the training prior: they are outside, exact, and quoted as the unseen ones."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.integrate import quad

from arbiter.conventions import Array
from arbiter.models.double_heston import draw_double_heston
from arbiter.models.heston import Heston
from arbiter.models.parameters import Parameters
from arbiter.pricing import black
from arbiter_lab.evaluation import outside_markets
from arbiter_lab.evaluation.outside_markets import (
    OUTSIDE_BENCHES,
    ROUGH_MARKET_COUNT,
    SURFACE_COUNT,
    draw_rough_market,
    draw_two_sided,
    load_rough_truth,
    make_outside_case,
)
from arbiter_lab.evaluation.rough_bergomi import (
    STEPS_PER_MATURITY,
    RoughBergomi,
    Volatilities,
    build_times,
    log_variance_maps,
    simulate,
)
from arbiter_lab.evaluation.unseen_surfaces import (
    MIN_LISTED_PRICE,
    MIN_QUOTES_PER_SLICE,
    T,
    half_spread,
    list_strikes,
)
from arbiter_lab.training.parameter_prior import draw_sets
from counts import count

MARKET = RoughBergomi(v0=0.03, reversion=1.0, theta=0.05, nu=1.1, rho=-0.7, hurst=0.02)


@pytest.fixture(scope="module")
def trained() -> list[Parameters]:
    return draw_sets(count(200_000, 20_000), np.random.default_rng(1))


def test_parameters_are_outside_those_of_training(trained: list[Parameters]) -> None:
    """Beyond every draw of the prior, and beyond the limits that the module states."""
    lowest_hurst = min(p.hurst for p in trained if p.factors > 1)
    fastest = max(p.reversion for p in trained)
    highest_rho = max(p.rho for p in trained)
    most_jumps = max(p.jumps.intensity for p in trained if p.jumps is not None)
    assert outside_markets.TRAINING_MIN_HURST <= lowest_hurst < 0.031
    assert 5.9 < fastest <= outside_markets.TRAINING_MAX_REVERSION
    assert 0.19 < highest_rho <= outside_markets.TRAINING_MAX_CORRELATION
    assert 3.9 < most_jumps <= outside_markets.TRAINING_MAX_INTENSITY
    for number in range(ROUGH_MARKET_COUNT):
        assert draw_rough_market(number).hurst < outside_markets.TRAINING_MIN_HURST
    rng, other = np.random.default_rng(2), []
    for _ in range(200):
        found = draw_two_sided(rng)
        assert found.jumps is not None
        assert found.fast.reversion > outside_markets.TRAINING_MAX_REVERSION
        assert found.slow.rho > outside_markets.TRAINING_MAX_CORRELATION
        assert found.jumps.intensity > outside_markets.TRAINING_MAX_INTENSITY
        assert 0.25 < found.jumps.upward < 0.75
        other.append(draw_double_heston(rng))
    # the unseen surfaces' own double Heston markets would not pass
    assert all(one.slow.rho < outside_markets.TRAINING_MAX_CORRELATION for one in other)
    assert any(one.fast.reversion < outside_markets.TRAINING_MAX_REVERSION for one in other)


@pytest.mark.parametrize("bench", OUTSIDE_BENCHES)
def test_quotes_are_made_as_the_unseen_ones(bench: str) -> None:
    cases = [make_outside_case(bench, number) for number in range(count(SURFACE_COUNT, 13))]
    for case in cases:
        assert case.T is T
        assert case.quoted.sum(-1).min() >= MIN_QUOTES_PER_SLICE
        assert not (case.quoted & ~case.listed).any()
        wide = half_spread(case.deviations, case.iv)[case.quoted]
        off = 0.5 * (case.quotes.iv_bid + case.quotes.iv_ask) - case.iv[case.quoted]
        np.testing.assert_allclose(0.5 * (case.quotes.iv_ask - case.quotes.iv_bid), wide, atol=1e-9)
        assert np.abs(off / wide).max() < 1.0 + 1e-6
    share = np.mean([case.quoted.sum() / case.listed.sum() for case in cases])
    assert share == pytest.approx(0.8, abs=0.02)
    again = make_outside_case(bench, 1)
    assert np.array_equal(again.quotes.bid, cases[1].quotes.bid)
    assert not np.array_equal(again.quoted, cases[2].quoted)
    markets = {case.market for case in cases}
    one_each = bench == "double-heston"
    assert len(markets) == (len(cases) if one_each else min(len(cases), ROUGH_MARKET_COUNT))
    if not one_each:  # another quoting of the same market
        assert np.array_equal(cases[0].iv, cases[ROUGH_MARKET_COUNT].iv, equal_nan=True)
        assert not np.array_equal(cases[0].quoted, cases[ROUGH_MARKET_COUNT].quoted)


def test_stored_errors_are_small_at_every_listed_strike() -> None:
    truth = load_rough_truth()
    assert truth.iv.shape == (ROUGH_MARKET_COUNT, T.size, 33)
    assert np.array_equal(np.isnan(truth.iv), np.isnan(truth.error))
    assert np.nanmin(truth.error) > 0.0
    assert np.nanmax(truth.error) <= 0.3e-4
    for number in range(ROUGH_MARKET_COUNT):
        case = make_outside_case("rough-bergomi", number)
        assert np.array_equal(case.iv, truth.iv[number], equal_nan=True)


def simulated(market: RoughBergomi, paths: int, seed: int) -> tuple[Array, Volatilities]:
    k = list_strikes(market.log_variance(T))
    return k, simulate(market, T, k, MIN_LISTED_PRICE, 0.0, paths, seed)


def test_stored_volatilities_are_those_of_other_paths() -> None:
    """Within their errors; half a basis point more is found at the money."""
    truth = load_rough_truth()
    for number in range(count(ROUGH_MARKET_COUNT, 2)):
        _, found = simulated(draw_rough_market(number), 1 << count(22, 18), 77)
        spread = np.hypot(found.error, truth.error[number])
        z = (found.iv - truth.iv[number]) / spread
        assert np.nanmax(np.abs(z)) < 5.0
        assert np.sqrt(np.nanmean(z**2)) < 1.6  # strikes and maturities of a path go together
        shifted = (found.iv - truth.iv[number] - 0.02 * truth.iv[number]) / spread
        assert np.nanmax(np.abs(shifted)) > 20.0


def test_standard_errors_are_those_of_repetitions() -> None:
    found = [simulated(MARKET, 1 << 13, seed)[1] for seed in range(count(200, 40))]
    iv, stated = np.stack([one.iv for one in found]), np.stack([one.error for one in found])
    seen = np.isfinite(iv).all(0)
    ratio = (iv.std(0, ddof=1) / stated.mean(0))[seen]
    assert np.median(ratio) == pytest.approx(1.0, abs=0.12)
    assert 0.5 < ratio.min() < ratio.max() < 2.0


def test_without_volatility_of_variance_it_is_black() -> None:
    flat = replace(MARKET, nu=1e-6)
    right = np.sqrt(flat.log_variance(T) / T)[:, None]
    found, other = (simulated(market, 1 << 16, 3)[1] for market in (flat, MARKET))
    assert np.isfinite(found.iv).mean() > 0.9
    assert np.nanmax(np.abs(found.iv - right) / found.error) < 5.0
    assert np.nanmax(np.abs(other.iv - right) / other.error) > 50.0


def test_log_variance_has_the_law_of_the_kernel() -> None:
    """Covariances by adaptive quadrature; those of another roughness are not."""
    t, H = build_times(T[:2]), MARKET.hurst
    maps = log_variance_maps(MARKET, t)[0].astype(np.float64) / MARKET.nu
    found, power = maps.T @ maps, H - 0.5
    for early, late in ((1, 1), (1, 2), (3, 9), (8, 15)):
        s, after = t[early], t[late]
        if early == late:
            right = s ** (2.0 * H)
        else:  # the weight of the quadrature is singular at s
            right = (
                2.0
                * H
                * quad(
                    lambda u, after=after: (after - u) ** power,
                    0.0,
                    s,
                    weight="alg",
                    wvar=(0.0, power),
                )[0]
            )
        assert found[early, late] == pytest.approx(right, rel=1e-5)
        step = t[early + 1] - t[early]
        if late > early + 1:  # with a step of B
            own = quad(lambda u, after=after: (after - u) ** power, t[early], t[early + 1])[0]
            assert maps[early, late] == pytest.approx(np.sqrt(2.0 * H / step) * own, rel=1e-5)
    other = log_variance_maps(replace(MARKET, hurst=0.028), t)[0].astype(np.float64) / MARKET.nu
    assert np.abs(other.T @ other - found).max() > 0.01


def test_prices_are_those_of_plain_paths(rng: np.random.Generator) -> None:
    """Against Monte Carlo without conditioning, controls or tables."""
    k, found = simulated(MARKET, 1 << 17, 5)
    last = 3
    t = build_times(T)[: STEPS_PER_MATURITY * (last + 1) + 1]
    n, paths = t.size - 1, 1 << count(19, 16)
    maps, drift = log_variance_maps(MARKET, t)
    z = rng.standard_normal((paths, 2 * n))
    other = rng.standard_normal((paths, n))
    step = np.exp(z @ maps.astype(np.float64) + drift) * np.diff(t)

    def scores(rho: float) -> Array:
        own = rho * z[:, :n] + np.sqrt(1.0 - rho**2) * other
        end = np.exp((np.sqrt(step) * own - 0.5 * step).sum(1))
        some = []
        for s in range(4, 30, 6):
            kappa = np.exp(k[last, s])
            payoff = np.maximum(end - kappa if kappa >= 1.0 else kappa - end, 0.0)
            price = float(black.otm(k[last, s], found.iv[last, s] * np.sqrt(T[last])))
            some.append((payoff.mean() - price) / (payoff.std() / np.sqrt(paths)))
        return np.abs(some)

    assert scores(MARKET.rho).max() < 4.0
    assert scores(MARKET.rho + 0.4).max() > 8.0


def test_two_sided_jumps_are_not_hestons() -> None:
    """Calls far out are dear: no single Heston model with negative correlation has both wings."""
    case = make_outside_case("double-heston", 0)
    up = np.nanmax(np.where(case.deviations > 1.5, case.iv, np.nan), axis=1)
    money = np.nanmin(np.where(np.abs(case.deviations) < 1.0, case.iv, np.nan), axis=1)
    assert (up > money).any()
    heston = Heston(0.04, 1.5, 0.04, 0.3, -0.7)
    smile = heston.iv(np.array([[0.0, 0.04]]), np.array([0.08]))[0]
    assert smile[1] < smile[0]
