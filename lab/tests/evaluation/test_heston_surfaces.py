"""The 50 Heston surfaces: their law, and an oracle that is right."""

from __future__ import annotations

import numpy as np
import pytest
import QuantLib as ql

from arbiter.conventions import Array
from arbiter.models.heston import Heston
from arbiter.pricing import black
from arbiter_lab.evaluation.heston_surfaces import (
    MATURITY_DAYS,
    STRIKE_DEVIATIONS,
    HestonSurface,
    draw_heston,
    heston_surface,
    oracle_rmse_bp,
)
from counts import count

HARSHEST = Heston(v0=0.012, kappa=0.8, theta=0.02, sigma=1.1, rho=-0.88)
MILDEST = Heston(v0=0.12, kappa=4.0, theta=0.10, sigma=0.3, rho=-0.5)


def quantlib_iv(heston: Heston, k: Array, days: int) -> Array:
    today = ql.Date(2, 1, 2026)
    ql.Settings.instance().evaluationDate = today
    flat = ql.YieldTermStructureHandle(ql.FlatForward(today, 0.0, ql.Actual365Fixed()))
    spot = ql.QuoteHandle(ql.SimpleQuote(1.0))
    parameters = (heston.v0, heston.kappa, heston.theta, heston.sigma, heston.rho)
    model = ql.HestonModel(ql.HestonProcess(flat, flat, spot, *parameters))
    engine = ql.AnalyticHestonEngine(model, 1e-12, 1_000_000)
    price = []
    for at in k.tolist():
        side = ql.Option.Call if at >= 0.0 else ql.Option.Put
        exercise = ql.EuropeanExercise(today + days)
        option = ql.VanillaOption(ql.PlainVanillaPayoff(side, float(np.exp(at))), exercise)
        option.setPricingEngine(engine)
        price.append(option.NPV())
    return np.asarray(
        black.implied_total_volatility(np.array(price), k).volatility / np.sqrt(days / 365.0)
    )


def gap_bp(heston: Heston, pricer: Heston) -> float:
    """Largest difference to QuantLib's adaptive engine over ends and middle of three slices."""
    T = MATURITY_DAYS / 365.0
    k = STRIKE_DEVIATIONS[::10] * (heston.reference_volatility(T) * np.sqrt(T))[:, None]
    ours = pricer.iv(k, T)
    places = [0, 5, 15]
    theirs = [quantlib_iv(heston, k[i], int(MATURITY_DAYS[i])) for i in places]
    return float(np.abs(ours[places] - theirs).max() * 1e4)


def test_the_oracle_agrees_with_quantlib() -> None:
    rng = np.random.default_rng(11)
    for heston in [HARSHEST, MILDEST, *(draw_heston(rng) for _ in range(count(40, 3)))]:
        assert gap_bp(heston, heston) < 1e-5


def test_the_comparison_sees_a_slightly_wrong_oracle() -> None:
    wrong = Heston(v0=0.012, kappa=0.8, theta=0.02, sigma=1.1, rho=-0.88 + 1e-6)
    assert gap_bp(HARSHEST, wrong) > 1e-3


def noise(surface: HestonSurface) -> tuple[Array, Array, Array]:
    """Return for each quote: error over half-spread, half-spread over exact volatility, |s|."""
    quotes = surface.quotes
    row = quotes.expiry
    column = np.abs(surface.k[row] - quotes.k[:, None]).argmin(axis=1)
    truth = surface.iv_oracle[row, column]
    half = 0.5 * (quotes.iv_ask - quotes.iv_bid)
    error = (0.5 * (quotes.iv_ask + quotes.iv_bid) - truth) / half
    return error, half / truth, np.abs(STRIKE_DEVIATIONS[column])


@pytest.mark.parametrize("hard", [False, True])
def test_quotes_follow_the_stated_law(hard: bool) -> None:
    drawn = [heston_surface(seed, hard) for seed in range(count(50, 10))]
    parts = [noise(surface) for surface in drawn]
    error, share, s = (np.concatenate([part[i] for part in parts]) for i in range(3))
    assert np.abs(error).max() <= 1.0 + 1e-6
    assert abs(error.mean()) < 4.0 / np.sqrt(3.0 * error.size)
    assert np.var(error) == pytest.approx(1.0 / 3.0, rel=0.1)
    expected = (0.005 + 0.015 * s / 3.5) * (3.0 if hard else 1.0)
    assert np.allclose(share, expected, rtol=1e-6)
    per_slice = np.concatenate(
        [np.bincount(surface.quotes.expiry, minlength=16) for surface in drawn]
    )
    kept = per_slice.sum() / (656 * len(drawn))
    assert per_slice.min() >= (6 if hard else 20)
    assert kept == pytest.approx(0.25 if hard else 0.85, abs=0.02)
    assert all(surface.quotes.exclusions.is_empty() for surface in drawn)


def test_strikes_and_maturities_are_the_stated_ones() -> None:
    surface = heston_surface(3)
    assert (
        surface.T.tolist() == (MATURITY_DAYS / 365.0).tolist() == surface.quotes.maturities.tolist()
    )
    assert surface.k.shape == surface.iv_oracle.shape == (16, 41)
    heston = draw_heston(np.random.default_rng(3))
    a = (1 - np.exp(-heston.kappa * surface.T)) / (heston.kappa * surface.T)
    reference = np.sqrt(heston.theta + (heston.v0 - heston.theta) * a)
    assert np.allclose(surface.k[:, 0], -3.5 * reference * np.sqrt(surface.T))
    assert np.allclose(surface.k[:, -1], 2.0 * reference * np.sqrt(surface.T))


def test_a_seed_fixes_the_surface_and_hard_shares_its_truth() -> None:
    first, again, hard = heston_surface(5), heston_surface(5), heston_surface(5, hard=True)
    assert np.array_equal(first.quotes.bid, again.quotes.bid)
    assert np.array_equal(first.iv_oracle, hard.iv_oracle)
    assert not np.array_equal(first.iv_oracle, heston_surface(6).iv_oracle)
    assert len(hard.quotes) < len(first.quotes) / 2


def test_the_error_of_a_known_answer_is_known() -> None:
    class Shifted:
        def __init__(self, surface: HestonSurface, by: float) -> None:
            self.surface, self.by = surface, by

        def iv(self, k: Array, T: Array) -> Array:
            assert np.array_equal(k, self.surface.k)
            assert np.broadcast_shapes(k.shape, T.shape) == k.shape
            return self.surface.iv_oracle + self.by

        def otm(self, k: Array, T: Array) -> Array:
            raise NotImplementedError

    answers = iter([Shifted(heston_surface(0), 3e-4), Shifted(heston_surface(1), -4e-4)])
    pooled = oracle_rmse_bp(lambda quotes: next(answers), seeds=range(2))
    assert pooled == pytest.approx(np.sqrt((9.0 + 16.0) / 2.0))
