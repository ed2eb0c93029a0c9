"""The volatility index of the oracle: closed forms, coupling to the index, simulation."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

import numpy as np
import pytest
from scipy.stats import ncx2

from arbiter.conventions import THIRTY_DAYS, Array
from arbiter.markets import Jumps, LiftedHeston, preset
from arbiter.markets.paths import simulate
from arbiter.models.parameters import PRESETS
from arbiter.models.vix_oracle import IndexLaw, largest_moment, squared_index
from counts import count

MODELS = {
    "ordinary": LiftedHeston.heston(v0=0.04, kappa=1.5, theta=0.04, sigma=0.5, rho=-0.7),
    "wild": LiftedHeston.heston(v0=0.02, kappa=1.37, theta=0.068, sigma=1.63, rho=0.25),
    "narrow": LiftedHeston.heston(v0=0.09, kappa=4.0, theta=0.05, sigma=0.3, rho=0.25),
}


class ChiSquare:
    """VIX of the Heston model from the noncentral chi-square law of its variance."""

    def __init__(self, m: LiftedHeston, T: float) -> None:
        share = -np.expm1(-m.reversion * THIRTY_DAYS) / (m.reversion * THIRTY_DAYS)
        scale = -(m.nu**2) * np.expm1(-m.reversion * T) / (4.0 * m.reversion)
        self.freedom = 4.0 * m.reversion * m.theta / m.nu**2
        self.center = m.v0 * np.exp(-m.reversion * T) / scale
        self.floor, self.slope = m.theta * (1.0 - share), share * scale
        self.explosion = 1.0 / (2.0 * self.slope)  # of E exp(w VIX²)
        # x = z^power smooths the density's singularity at zero
        self.power = max(1.0, 4.0 / min(self.freedom, 2.0))

    def mean(self, payoff: str, strike: float = 0.0) -> float:
        start = max(((strike / 100.0) ** 2 - self.floor) / self.slope, 0.0)
        spread = np.sqrt(2.0 * (self.freedom + 2.0 * self.center))
        stop = self.freedom + self.center + 40.0 * spread + 200.0
        x, w = np.polynomial.legendre.leggauss(200)
        edges = np.linspace(start ** (1.0 / self.power), stop ** (1.0 / self.power), 41)
        width = np.diff(edges)[:, None]
        z = edges[:-1, None] + 0.5 * (x + 1.0) * width
        density = ncx2.pdf(z**self.power, self.freedom, self.center)
        mass = density * self.power * z ** (self.power - 1.0) * 0.5 * w * width
        index = 100.0 * np.sqrt(self.floor + self.slope * z**self.power)
        value = np.log(index) if payoff == "log" else index - strike
        return float((mass * value).sum())


@pytest.mark.parametrize("T", [2.0 / 365.0, 30.0 / 365.0, 1.0, 3.0])
@pytest.mark.parametrize("name", MODELS)
def test_one_factor_is_the_chi_square_law(name: str, T: float) -> None:
    market, exact = MODELS[name], ChiSquare(MODELS[name], T)
    future = exact.mean("index")
    assert float(market.vix_future(T)) == pytest.approx(future, abs=1e-7)
    vvix = 100.0 * np.sqrt(2.0 * (np.log(future) - exact.mean("log")) / T)
    assert float(market.vvix(T)) == pytest.approx(vvix, abs=2e-4)
    K = future * np.array([0.5, 0.8, 0.95, 1.0, 1.3, 2.0])
    calls = np.array([exact.mean("index", strike) for strike in K])
    assert np.abs(market.vix_call(K, T) - calls).max() < 1e-7
    assert np.abs(market.vix_put(K, T) - (calls - future + K)).max() < 1e-7


def test_comparison_with_the_chi_square_law_sees_a_wrong_parameter() -> None:
    other = LiftedHeston.heston(v0=0.04, kappa=1.5, theta=0.04, sigma=0.50001, rho=-0.7)
    exact = ChiSquare(other, 1.0).mean("index")
    assert abs(float(MODELS["ordinary"].vix_future(1.0)) - exact) > 1e-6


@pytest.mark.parametrize("T", [2.0 / 365.0, 1.0])
@pytest.mark.parametrize("name", MODELS)
def test_search_for_moments_stops_before_they_explode(name: str, T: float) -> None:
    market = MODELS[name]
    found = largest_moment(market, T, squared_index(market)[1])
    assert 0.5 < found / ChiSquare(market, T).explosion < 1.0


@pytest.mark.parametrize("name", PRESETS)
def test_squared_index_has_the_forward_variance_for_its_mean(name: str) -> None:
    market, T = LiftedHeston.of(preset(name)), np.array([0.05, 0.4])
    ahead = (market.log_variance(T + THIRTY_DAYS) - market.log_variance(T)) / THIRTY_DAYS
    assert market.forward_variance(T) == pytest.approx(ahead, rel=1e-12)
    # E VIX² = 2 ∫ E(VIX − K)⁺ dK over all strikes: the law itself, not its mean, is asked
    for t, variance in zip(T, ahead, strict=True):
        x, w = np.polynomial.legendre.leggauss(500)
        top = 1200.0 * np.sqrt(variance)
        K = top * (0.5 * (x + 1.0)) ** 2
        total = (market.vix_call(K, t) * 2.0 * w * 0.5 * top * (x + 1.0)).sum()
        assert total / 1e4 == pytest.approx(variance, rel=1e-6)
        future = float(market.vix_future(t))
        assert future < 100.0 * np.sqrt(variance)
        # parity at strikes on both sides
        K = future * np.array([0.8, 1.0, 1.5])
        gap = market.vix_call(K, t) - market.vix_put(K, t) - (future - K)
        assert np.abs(gap).max() < 1e-9


def test_index_now_is_its_thirty_day_variance_swap() -> None:
    for name in PRESETS:
        market = LiftedHeston.of(preset(name))
        assert float(market.vix()) == pytest.approx(
            100.0 * np.sqrt(market.variance_swap(THIRTY_DAYS))
        )
        U = np.linspace(0.0, 0.004, 20)
        swap = market.variance_swap(THIRTY_DAYS, U)
        assert market.vix(np.stack([U, 0.0 * U])) == pytest.approx(
            100.0 * np.sqrt([float(swap), float(market.variance_swap(THIRTY_DAYS))])
        )


def test_future_tends_to_the_index_and_state_moves_it() -> None:
    market = LiftedHeston.of(preset("calm"))
    U = np.linspace(0.0, 0.004, 20)
    for state in (np.zeros(20), U):
        # the index moves by its own volatility times √T, the mean by less
        assert market.vix_future(1e-5, state) == pytest.approx(float(market.vix(state)), rel=2e-3)
    assert market.vix_future(0.1, U) > market.vix_future(0.1) + 0.2


def test_calls_are_convex_and_decrease_in_strike() -> None:
    market = LiftedHeston.of(preset("rough"))
    K = np.linspace(5.0, 60.0, 111)
    call = market.vix_call(K, 0.15)
    assert np.diff(call).max() <= 1e-9
    assert np.diff(call, 2).min() >= -1e-9
    iv = market.vix_iv(np.array([14.0, 17.0, 25.0, 40.0]), 0.15)
    assert (np.diff(iv) > 0.0).all()  # the upward skew of options on volatility


def test_laws_of_many_days_are_the_days_one_by_one(rng: np.random.Generator) -> None:
    market, T = LiftedHeston.of(preset("stressed")), 0.1
    states = simulate(market, np.arange(1, 5) / 52.0, seed=4).states[0]
    law = IndexLaw.from_parameters(market, T)
    K = np.array([15.0, 25.0, 40.0])
    for strikes in (K, K + rng.uniform(0.0, 2.0, (4, 1))):
        found = law.calls(states, strikes)
        each = np.broadcast_to(strikes, (4, 3))
        apart = [market.vix_call(row, T, U) for row, U in zip(each, states, strict=True)]
        assert np.abs(found - np.stack(apart)).max() < 1e-10
    apart = [market.vix_future(T, U) for U in states]
    assert law.future(states) == pytest.approx(np.stack(apart), rel=1e-13)


def test_caller_mistakes_are_named() -> None:
    market = LiftedHeston.of(preset("calm"))
    with pytest.raises(ValueError, match="positive strikes in index points"):
        market.vix_call(-1.0, 0.1)
    with pytest.raises(ValueError, match="positive year fractions"):
        market.vix_future(0.0)
    with pytest.raises(ValueError, match="states has shape"):
        market.vix(np.zeros(3))
    still = LiftedHeston.heston(v0=0.04, kappa=0.0, theta=0.04, sigma=0.5, rho=-0.7)
    with pytest.raises(ValueError, match="too near zero"):
        still.vix_future(0.1)
    for K in (np.inf, np.nan):
        with pytest.raises(ValueError, match="positive strikes in index points"):
            market.vix_call(K, 0.1)


@pytest.mark.parametrize(("kappa", "theta"), [(1e-3, 1e-3), (0.01, 1e-6), (1.0, 1e-6)])
def test_index_that_may_come_near_zero_is_refused(kappa: float, theta: float) -> None:
    """Contours end before the transform has decayed: futures were off by up to 2.5e-3 points."""
    market = LiftedHeston.heston(v0=0.04, kappa=kappa, theta=theta, sigma=0.5, rho=-0.7)
    with pytest.raises(ValueError, match="too near zero"):
        market.vix_future(3.0)


def test_low_index_that_is_not_refused_is_right() -> None:
    market = LiftedHeston.heston(v0=0.04, kappa=0.2, theta=0.03, sigma=0.5, rho=-0.7)
    exact = ChiSquare(market, 3.0).mean("index")
    assert float(market.vix_future(3.0)) == pytest.approx(exact, abs=1e-7)


def test_unreachable_state_has_no_index() -> None:
    market, U = LiftedHeston.of(preset("calm")), np.zeros(20)
    U[5] = -5.0
    refused = pytest.raises(ValueError, match="no path leads to it")
    with refused:
        market.vix(U)
    for at in (market.vix_future, market.vvix, market.variance_curve, market.forward_variance):
        with refused:
            at(0.1, U)
    for option in (market.vix_call, market.vix_put, market.vix_iv):
        with refused:
            option(20.0, 0.1, U)


# Far from zero variance, where Euler steps are biased: on the calm presets puts on low levels of
# the index come out 10 % too dear with 1,600 steps, and converge with their square root.
QUIET = replace(preset("inverted"), nu=0.4)
SIMULATED = {
    "diffusion": QUIET,
    "jumps": replace(QUIET, jumps=Jumps(intensity=2.0, mean=-0.08, deviation=0.06)),
}


@lru_cache
def simulated(name: str, paths: int, steps: int) -> tuple[Array, Array]:
    """``X_T`` and ``U_T`` at a quarter of a year, by Euler steps with variance cut at zero.

    Independent of the package's own paths; fast factors are exact in their decay.
    """
    market, T = SIMULATED[name], 0.25
    rng = np.random.default_rng(8)
    h = T / steps
    decay = np.exp(-market.x * h)
    push = np.where(market.x * h > 1e-12, -np.expm1(-market.x * h) / market.x, h)
    U, log_x = np.zeros((paths, market.factors)), np.zeros(paths)
    for _ in range(steps):
        v = np.maximum(market.v0 + U @ market.c, 0.0)
        b, w = rng.standard_normal((2, paths))
        shock = np.sqrt(v / h)
        drift = market.reversion * (market.theta - v) + market.nu * shock * b
        U = U * decay + drift[:, None] * push
        both = market.rho * b + np.sqrt(1.0 - market.rho**2) * w
        log_x += -0.5 * v * h + np.sqrt(v * h) * both
    if market.jumps is not None:
        j = market.jumps
        number = rng.poisson(j.intensity * T, paths)
        log_x += number * j.mean + np.sqrt(number) * j.deviation * rng.standard_normal(paths)
        log_x -= j.intensity * T * np.expm1(j.mean + 0.5 * j.deviation**2)
    return np.exp(log_x), U


def worst_deviation(name: str, market: LiftedHeston) -> float:
    """Largest gap of oracle and simulation, in standard errors, over options, futures and y."""
    T, paths = 0.25, count(full=20_000, reduced=4_000)
    X, U = simulated(name, paths, count(full=1_600, reduced=400))
    V = LiftedHeston.of(SIMULATED[name]).vix(U)
    deviation, future = float(np.sqrt(market.log_variance(T))), float(market.vix_future(T))
    k = deviation * np.array([-2.0, -1.0, 0.0, 1.0])
    samples = [np.maximum(np.sign(at + 1e-9) * (X - np.exp(at)), 0.0) for at in k]
    expected = [*market.otm(k, T)]
    samples += [X, V, (V / 100.0) ** 2]
    expected += [1.0, future, float(market.forward_variance(T))]
    for K in (0.9 * future, future, 1.5 * future):
        samples += [np.maximum(V - K, 0.0), np.maximum(K - V, 0.0)]
        expected += [float(market.vix_call(K, T)), float(market.vix_put(K, T))]
    gaps = [
        abs(s.mean() - e) / (s.std() / np.sqrt(paths))
        for s, e in zip(samples, expected, strict=True)
    ]
    return float(max(gaps))


@pytest.mark.parametrize("name", SIMULATED)
def test_simulation_of_the_model_agrees_within_three_standard_errors(name: str) -> None:
    assert worst_deviation(name, LiftedHeston.of(SIMULATED[name])) < 3.0


def test_simulation_rejects_another_volatility_of_variance() -> None:
    other = LiftedHeston.of(replace(QUIET, nu=0.5))
    assert worst_deviation("diffusion", other) > 3.0
