"""The family outside the training universe: its oracle is right, and says so where it is not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import mpmath
import numpy as np
import pytest
import QuantLib as ql
from hypothesis import given
from hypothesis import strategies as st
from scipy.integrate import quad, solve_ivp

from arbiter.conventions import Array
from arbiter.markets import LiftedHeston
from arbiter.models.double_heston import (
    DoubleHeston,
    ExponentialJumps,
    HestonVariance,
    draw_double_heston,
)
from arbiter.models.lewis import lewis
from arbiter.pricing import black
from counts import count
from theorems import assert_convex_in_strike, assert_rises_in_maturity

FAST = HestonVariance(v0=0.02, reversion=6.0, theta=0.015, nu=1.1, rho=-0.85)
SLOW = HestonVariance(v0=0.015, reversion=0.4, theta=0.03, nu=0.3, rho=-0.4)
JUMPS = ExponentialJumps(intensity=1.5, upward=0.3, up=0.02, down=0.06)
MARKET = DoubleHeston(FAST, SLOW, JUMPS)
HALF = HestonVariance(v0=0.02, reversion=1.5, theta=0.025, nu=0.6, rho=-0.7)
HESTON = LiftedHeston.heston(v0=0.04, kappa=1.5, theta=0.05, sigma=0.6, rho=-0.7)
T = np.array([7.0, 30.0, 91.0, 365.0, 730.0]) / 365.0


def strikes(market: DoubleHeston, times: Array, low: float = -3.5, high: float = 2.0) -> Array:
    return np.asarray(np.linspace(low, high, 23) * np.sqrt(market.log_variance(times))[:, None])


def riccati(variance: HestonVariance, z: complex, time: float) -> complex:
    """``log E X^z`` by integrating the equations that the closed form solves."""
    p = variance

    def slope(_: float, y: Array) -> list[complex]:
        psi = y[0]
        lean = p.rho * p.nu * z - p.reversion
        return [0.5 * (z * z - z) + lean * psi + 0.5 * p.nu**2 * psi**2, psi]

    start = np.zeros(2, dtype=complex)
    end = solve_ivp(slope, (0.0, time), start, rtol=1e-11, atol=1e-17).y[:, -1]
    return complex(p.v0 * end[0] + p.reversion * p.theta * end[1])


@pytest.mark.parametrize("z", [0.5 + 3.0j, 0.5 - 40.0j, 0.9 + 11.0j, 0.2 + 0.1j])
@pytest.mark.parametrize("variance", [FAST, SLOW])
def test_each_variance_solves_its_riccati_equation(variance: HestonVariance, z: complex) -> None:
    point = np.array([z])
    for time in (7 / 365, 0.5, 2.0):
        exact = riccati(variance, z, time)
        assert abs(variance.log_cf(point, time)[0] - exact) < 1e-8 * abs(exact)
        wrong = replace(variance, v0=(1.0 + 1e-6) * variance.v0)
        assert abs(wrong.log_cf(point, time)[0] - exact) > 1e-8 * abs(exact)


def test_the_jumps_have_the_law_that_is_written() -> None:
    def mean(f: Callable[[float], float]) -> float:
        up = quad(lambda x: f(x) * np.exp(-x / JUMPS.up) / JUMPS.up, 0.0, 2.0)[0]
        down = quad(lambda x: f(-x) * np.exp(-x / JUMPS.down) / JUMPS.down, 0.0, 4.0)[0]
        return float(JUMPS.upward * up + (1.0 - JUMPS.upward) * down)

    def exact(z: float) -> float:
        return JUMPS.intensity * (mean(lambda x: np.expm1(z * x)) - z * mean(np.expm1))

    for z in (0.3, 0.8, -2.0):
        assert JUMPS.log_cf(np.array([z + 0j]))[0] == pytest.approx(exact(z), abs=1e-8)
        other = replace(JUMPS, upward=0.31)
        assert other.log_cf(np.array([z + 0j]))[0] != pytest.approx(exact(z), abs=1e-6)
    contract = 2.0 * JUMPS.intensity * mean(lambda x: np.expm1(x) - x)
    assert JUMPS.variance == pytest.approx(contract, rel=1e-7)


def mp_call(market: DoubleHeston, k: float, time: float) -> float:
    """Gil-Pelaez' two probabilities, in twenty digits and by adaptive quadrature."""
    mpmath.mp.dps = 20
    mp, jumps = mpmath, market.jumps

    def log_cf(z: mpmath.mpc) -> mpmath.mpc:
        total = mp.mpc(0)
        for p in (market.fast, market.slow):
            beta = p.reversion - p.rho * p.nu * z
            d = mp.sqrt(beta**2 + p.nu**2 * (z - z * z))
            # the solution by its zeros: another form than the one that is tested
            high, low = (beta + d) / p.nu**2, (beta - d) / p.nu**2
            fade = mp.exp(-d * time)
            total += p.v0 * low * high * (1 - fade) / (high - low * fade)
            total += (
                p.reversion
                * p.theta
                * (low * time - 2 / mp.mpf(p.nu) ** 2 * mp.log((high - low * fade) / (high - low)))
            )
        if jumps is not None:
            up = jumps.upward / (1 - z * jumps.up)
            down = (1 - jumps.upward) / (1 + z * jumps.down)
            total += time * (jumps.intensity * (up + down - 1) - z * jumps.drift)
        return total

    def share(shift: int) -> mpmath.mpf:
        def integrand(u: mpmath.mpf) -> mpmath.mpf:
            value = mp.exp(log_cf(mp.mpc(shift, u)) - 1j * u * k)
            return (value / (1j * u)).real

        edges = [mp.mpf(0), 2, 5, 10, 20, 40, 80, 160, 320, 640, 1280, 2560]
        return mp.mpf(1) / 2 + mp.quad(integrand, edges) / mp.pi

    return float(share(1) - mp.exp(k) * share(0))


@pytest.mark.parametrize(
    ("k", "time"),
    [(0.05, 0.25), (-0.3, 1.0), (0.02, 7 / 365), (0.4, 2.0), (-0.1, 30 / 365)][: count(5, 2)],
)
def test_prices_agree_with_quadrature_in_more_digits(k: float, time: float) -> None:
    exact = mp_call(MARKET, k, time)
    ours = float(MARKET.otm(k, time)) + max(-float(np.expm1(k)), 0.0)
    assert abs(ours - exact) < 1e-12
    near = DoubleHeston(replace(FAST, rho=FAST.rho + 1e-6), SLOW, JUMPS)
    assert abs(float(near.otm(k, time)) + max(-float(np.expm1(k)), 0.0) - exact) > 1e-11


def test_two_equal_variances_are_one_heston_variance() -> None:
    """Independent square-root processes with the same speed and volatility add up to one."""
    k = strikes(DoubleHeston(HALF, HALF), T)
    gap = DoubleHeston(HALF, HALF).otm(k, T[:, None]) - HESTON.otm(k, T[:, None])
    assert np.abs(gap).max() < 1e-10
    other = DoubleHeston(HALF, replace(HALF, rho=-0.69))
    assert np.abs(other.otm(k, T[:, None]) - HESTON.otm(k, T[:, None])).max() > 1e-6


def quantlib_otm(k: Array, days: int, rho: float = -0.7) -> Array:
    """QuantLib's Heston; it has no double-exponential jumps for Python, quadrature checks those."""
    today = ql.Date(2, 1, 2026)
    ql.Settings.instance().evaluationDate = today
    flat = ql.YieldTermStructureHandle(ql.FlatForward(today, 0.0, ql.Actual365Fixed()))
    spot = ql.QuoteHandle(ql.SimpleQuote(1.0))
    model = ql.HestonModel(ql.HestonProcess(flat, flat, spot, 0.04, 1.5, 0.05, 0.6, rho))
    engine = ql.AnalyticHestonEngine(model, 1e-12, 1_000_000)
    price = []
    for at in k.tolist():
        side = ql.Option.Call if at >= 0.0 else ql.Option.Put
        payoff = ql.PlainVanillaPayoff(side, float(np.exp(at)))
        option = ql.VanillaOption(payoff, ql.EuropeanExercise(today + days))
        option.setPricingEngine(engine)
        price.append(option.NPV())
    return np.array(price)


def test_two_equal_variances_agree_with_quantlib() -> None:
    market = DoubleHeston(HALF, HALF)
    for days in (30, 365):
        k = strikes(market, np.array([days / 365.0]))[0, ::4]
        ours = market.otm(k, days / 365.0)
        assert np.abs(ours - quantlib_otm(k, days)).max() < 1e-10
        assert np.abs(ours - quantlib_otm(k, days, rho=-0.70001)).max() > 1e-9


def test_the_integral_is_good_to_the_stated_error_on_the_stated_range() -> None:
    rng = np.random.default_rng(5)
    times = np.array([2.0, 30.0, 365.0, 1825.0]) / 365.0
    for _ in range(count(200, 8)):
        market = draw_double_heston(rng)
        k = np.clip(strikes(market, times, -8.0, 8.0), -8.0, 8.0)
        assert market.error_estimate(k, times[:, None]) < 1e-12


def test_the_estimate_sees_an_integral_that_is_too_coarse() -> None:
    k = strikes(MARKET, np.array([0.02]))[0]
    exact = MARKET.otm(k, 0.02)
    coarse = lewis(lambda u: MARKET.transform(u, 0.02), k, 0.0, radians=200.0)
    assert np.abs(coarse - exact).max() > 1e-9


def test_the_index_is_a_martingale_with_the_stated_log_contract() -> None:
    for time in T.tolist():
        assert MARKET.transform(np.array([-1j]), time)[0] == pytest.approx(1.0, abs=1e-13)
        step = 1e-4
        ends = MARKET.transform(np.array([step + 0j, -step + 0j]), time)
        mean = (np.log(ends[0]) - np.log(ends[1])).imag / (2.0 * step)
        assert -2.0 * mean == pytest.approx(float(MARKET.log_variance(time)), rel=1e-6)
        without = DoubleHeston(FAST, SLOW)
        assert -2.0 * mean != pytest.approx(float(without.log_variance(time)), rel=1e-3)
    assert float(MARKET.vix()) == pytest.approx(
        100.0 * float(np.sqrt(MARKET.variance_swap(30 / 365)))
    )


@given(seed=st.integers(0, 10**6))
def test_drawn_markets_have_no_arbitrage_and_look_like_an_index(seed: int) -> None:
    market = draw_double_heston(np.random.default_rng(seed))
    times = np.array([7.0, 182.0]) / 365.0
    level = np.sqrt(market.variance_swap(times))
    assert level.min() > 0.05
    assert level.max() < 0.7
    kappa = np.exp(np.linspace(-0.3, 0.2, 41))
    call = market.otm(np.log(kappa), times[:, None]) + np.maximum(1.0 - kappa, 0.0)
    assert_convex_in_strike(kappa, call)
    assert_rises_in_maturity(call)
    with pytest.raises(AssertionError):
        assert_rises_in_maturity(call[::-1])


def test_volatilities_are_those_of_the_prices_and_absent_where_there_is_none() -> None:
    k = np.linspace(-0.2, 0.1, 7)
    iv = MARKET.iv(k, 0.25)
    assert np.allclose(black.otm(k, iv * 0.5), MARKET.otm(k, 0.25), atol=1e-14)
    assert iv.shape == (7,)
    assert MARKET.iv(k[:, None], T).shape == (7, 5)
    assert np.isnan(MARKET.iv(3.0, 7 / 365))
    assert np.isfinite(iv).all()


@pytest.mark.parametrize(
    ("make", "names"),
    [
        (lambda: replace(FAST, v0=-0.1), "v0 = -0.1"),
        (lambda: replace(FAST, rho=1.0), "rho = 1.0"),
        (lambda: replace(FAST, nu=float("nan")), "nu = nan"),
        (lambda: replace(JUMPS, upward=1.2), "upward = 1.2"),
        (lambda: replace(JUMPS, up=1.0), "up = 1.0"),
        (lambda: MARKET.iv(0.0, -1.0), "T must be positive"),
        (lambda: MARKET.iv(float("nan"), 1.0), "k = nan"),
    ],
)
def test_what_makes_no_sense_is_refused_by_name(make: Callable[[], object], names: str) -> None:
    with pytest.raises(ValueError, match=names):
        make()
