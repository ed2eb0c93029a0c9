"""The oracle of the lifted Heston model: prices, densities and means are those of the model."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import QuantLib as ql
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.integrate import solve_ivp
from scipy.special import ndtr

import arbiter as ab
from arbiter.conventions import Array
from arbiter.markets import Jumps, LiftedHeston, Parameters, draw, preset
from arbiter.markets.paths import simulate
from arbiter.models.characteristic_function import solve_index_transforms
from arbiter.models.fourier_pricing import CONTOUR_STEP, Contour, invert
from arbiter.models.parameters import PRESETS
from arbiter.models.riccati import (
    FIRST_STEP_YEARS,
    RADAU_NODES,
    RADAU_WEIGHTS,
    STEP_GROWTH,
    exponential_weights,
    mesh,
    solve_riccati,
)
from arbiter.models.riccati_steps import Quadratic
from arbiter.pricing import black
from counts import count

DAYS = np.array([2, 30, 182, 365, 1825])
HESTON = LiftedHeston.heston(v0=0.04, kappa=1.5, theta=0.05, sigma=0.7, rho=-0.75)


def random_heston(rng: np.random.Generator) -> LiftedHeston:
    """Calm to crash, with volatilities of variance that break Feller's condition."""
    return LiftedHeston.heston(
        v0=float(np.exp(rng.uniform(np.log(0.005), np.log(0.5)))),
        kappa=float(rng.uniform(0.1, 6.0)),
        theta=float(np.exp(rng.uniform(np.log(0.01), np.log(0.2)))),
        sigma=float(rng.uniform(0.1, 2.0)),
        rho=float(rng.uniform(-0.95, 0.3)),
    )


def strikes(market: LiftedHeston, T: Array, points: int = 9) -> Array:
    """``(L, points)`` log-strikes to 8 standard deviations on both sides."""
    return np.linspace(-8.0, 8.0, points) * np.sqrt(market.log_variance(T))[:, None]


def quantlib_process(market: LiftedHeston) -> ql.HestonProcess:
    today = ql.Date(2, 1, 2026)
    ql.Settings.instance().evaluationDate = today
    flat = ql.YieldTermStructureHandle(ql.FlatForward(today, 0.0, ql.Actual365Fixed()))
    spot = ql.QuoteHandle(ql.SimpleQuote(1.0))
    m = market
    return ql.HestonProcess(flat, flat, spot, m.v0, m.reversion, m.theta, m.nu, m.rho)


def quantlib(engine: ql.PricingEngine, k: Array, days: NDArray[np.int_]) -> Array:
    """Out-of-the-money prices of QuantLib at ``(L, m)`` log-strikes, NaN where it gives up."""
    today, prices = ql.Date(2, 1, 2026), np.empty(k.shape)
    for row, day in enumerate(days):
        exercise = ql.EuropeanExercise(today + int(day))
        for column, at in enumerate(k[row]):
            side = ql.Option.Call if at >= 0.0 else ql.Option.Put
            option = ql.VanillaOption(ql.PlainVanillaPayoff(side, float(np.exp(at))), exercise)
            option.setPricingEngine(engine)
            try:
                prices[row, column] = option.NPV()
            except RuntimeError:
                prices[row, column] = np.nan
    return prices


def analytic(market: LiftedHeston, k: Array, days: NDArray[np.int_]) -> Array:
    """QuantLib's adaptive integration, with a looser tolerance where it gives up.

    Its exponential fitting is not a reference to 1e-8: left to itself it can choose an asymptotic
    expansion that is off by 3e-7 where volatility of variance is large, and on the angled contour
    it has been off by 2e-6 at five years, against the adaptive engine.
    """
    model = ql.HestonModel(quantlib_process(market))
    prices = np.full(k.shape, np.nan)
    for tolerance in (1e-13, 1e-12, 1e-11, 1e-10):
        if np.isnan(prices).any():
            again = quantlib(ql.AnalyticHestonEngine(model, tolerance, 100_000), k, days)
            prices = np.where(np.isnan(prices), again, prices)
    return prices


def test_heston_prices_are_those_of_quantlib(rng: np.random.Generator) -> None:
    T = DAYS / 365.0
    for _ in range(count(full=500, reduced=12)):
        market = random_heston(rng)
        k = strikes(market, T)
        gap = np.abs(market.otm(k, T[:, None]) - analytic(market, k, DAYS)).max()
        assert gap < 1e-9, market


def gauss_legendre(market: LiftedHeston, k: Array, T: float) -> Array:
    """Heston prices by panels on the straight line Im ξ = −½, from the textbook's transform."""
    x, w = np.polynomial.legendre.leggauss(64)
    edges = np.append(0.0, np.geomspace(1e-2, 4e6, 1200))
    u = (edges[:-1, None] + 0.5 * np.diff(edges)[:, None] * (x + 1.0)).ravel()
    weight = (0.5 * np.diff(edges)[:, None] * w).ravel()
    size = (
        weight
        * np.exp(closed_form(market, np.array([T]), np.asarray(0.5 + 1j * u, dtype=complex))[0])
        / (u * u + 0.25)
    )
    wave = np.exp(-1j * np.multiply.outer(k, u))
    call = 1.0 - np.exp(0.5 * k) / np.pi * (wave @ size).real
    return np.asarray(np.where(k >= 0.0, call, call - 1.0 + np.exp(k)))


@pytest.mark.parametrize("rho", [-0.999, -0.99, -0.97, 0.97, 0.999])
def test_strong_correlation_is_priced_as_well(rho: float, rng: np.random.Generator) -> None:
    T = DAYS / 365.0
    for _ in range(count(full=10, reduced=1)):
        market = replace(random_heston(rng), rho=rho)
        k = strikes(market, T, 5)
        for row, t in enumerate(T):
            at = k[row, np.abs(k[row]) < 16.0]
            assert np.abs(market.otm(at, t) - gauss_legendre(market, at, t)).max() < 1e-9, market


def test_quantlib_by_itself_is_off_where_volatility_of_variance_is_large() -> None:
    market = LiftedHeston.heston(v0=0.0183, kappa=1.3698, theta=0.0679, sigma=1.6296, rho=0.2546)
    days, k = np.array([182]), np.array([[0.1, 0.3]])
    model = ql.HestonModel(quantlib_process(market))
    own_choice = quantlib(ql.ExponentialFittingHestonEngine(model), k, days)
    adaptive = quantlib(ql.AnalyticHestonEngine(model, 1e-13, 100_000), k, days)
    ours = market.otm(k, 182.0 / 365.0)
    assert np.abs(own_choice - adaptive).max() > 1e-7
    assert np.abs(ours - adaptive).max() < 1e-12


def test_comparison_with_quantlib_sees_a_wrong_parameter() -> None:
    T = DAYS / 365.0
    k = strikes(HESTON, T)
    wrong = replace(HESTON, rho=HESTON.rho + 1e-6)
    assert np.abs(HESTON.otm(k, T[:, None]) - analytic(wrong, k, DAYS)).max() > 1e-9


def test_heston_with_jumps_is_the_bates_model_of_quantlib() -> None:
    jumps = Jumps(intensity=0.8, mean=-0.1, deviation=0.08)
    market, T = replace(HESTON, jumps=jumps), DAYS / 365.0
    process = quantlib_process(market)
    m = market
    curves = (process.riskFreeRate(), process.dividendYield(), process.s0())
    bates = ql.BatesProcess(
        *curves, m.v0, m.reversion, m.theta, m.nu, m.rho, 0.8, jumps.mean, jumps.deviation
    )
    k = strikes(market, T)
    reference = quantlib(ql.BatesEngine(ql.BatesModel(bates), 1e-13, 100_000), k, DAYS)
    solved = np.isfinite(reference)
    assert solved.mean() > 0.8
    assert np.abs(market.otm(k, T[:, None]) - reference)[solved].max() < 1e-9


@pytest.mark.parametrize("name", ["calm", "rough", "jumpy"])
def test_transform_is_that_of_a_general_ode_solver(name: str) -> None:
    market, T = preset(name), np.array([0.02, 1.0])
    xi = np.array([[0.3 - 0.5j, 5.0 - 2.0j, 40.0 + 4.0j]])
    found = solve_index_transforms([market], T, xi)[0]
    for q, at in enumerate(1j * xi[0]):
        alpha, beta = 0.5 * (at * at - at), market.rho * market.nu * at - market.reversion

        def rate(
            _: float, y: NDArray[np.complex128], a: complex = alpha, b: complex = beta
        ) -> Array:
            V = market.c @ y[:-2]
            R = a + b * V + 0.5 * market.nu**2 * V * V
            return np.concatenate([R - market.x * y[:-2], [R, V]])

        start = np.zeros(market.factors + 2, dtype=np.complex128)
        path = solve_ivp(rate, (0.0, 1.0), start, "BDF", T, rtol=1e-10, atol=1e-14)
        for m, y in enumerate(path.y.T):
            jumps = 0.0 if market.jumps is None else T[m] * market.jumps.log_cf(np.array(at))
            constant = market.v0 * y[-2] + market.reversion * market.theta * y[-1] + jumps
            assert abs(complex(found.constant[m, q]) - constant) < 1e-7 * (1.0 + abs(constant))
            assert np.abs(found.slope[m, :, q] - market.c * y[:-2]).max() < 1e-6


def test_steps_converge_with_order_nine() -> None:
    z, T = np.array([[0.5 + 3.0j, 0.5 + 10.0j]]), np.array([1.0])
    quadratic = Quadratic(
        np.asarray(0.5 * (z * z - z)),
        np.asarray(HESTON.rho * HESTON.nu * z - HESTON.reversion),
        np.array([HESTON.nu**2]),
    )
    exact, errors = closed_form(HESTON, T, z[0])[0], []
    for steps in (4, 8):
        zero, borders = np.zeros((1, 1, 2), dtype=np.complex128), np.linspace(0.0, 1.0, steps + 1)
        found = solve_riccati(HESTON.c[None], HESTON.x[None], quadratic, zero, T, borders)
        log_cf = HESTON.v0 * found.power + HESTON.reversion * HESTON.theta * found.mass
        errors.append(np.abs(log_cf[0, 0] - exact))
    orders = np.log2(np.array(errors[:-1]) / np.array(errors[1:]))
    assert orders.min() > 8.5, orders


def test_nodes_converge_exponentially() -> None:
    T = np.array([0.25])
    k = strikes(HESTON, T)[0]
    fine = HESTON.otm(k, 0.25)
    errors = []
    for step in (0.36, 0.24, 0.16):
        contours = [Contour.from_parameters(HESTON, calls, step) for calls in (True, False)]
        price = np.empty(k.size)
        for contour in contours:
            log_cf = solve_index_transforms([HESTON], T, contour.xi[None])[0].at(
                0, np.zeros((1, 1))
            )
            side = contour.covers_strikes(k, 0.25)
            integral = invert(log_cf, contour.xi, contour.weight, k[side])[0]
            price[side] = contour.price(integral, k[side])
        errors.append(np.abs(price - fine).max())
    assert CONTOUR_STEP < 0.16
    # equal ratios of step, so that log error must fall faster than any power
    first, second = np.log(errors[0] / errors[1]), np.log(errors[1] / errors[2])
    assert second > 1.2 * first, errors


def closed_form(
    market: LiftedHeston, T: Array, z: NDArray[np.complex128]
) -> NDArray[np.complex128]:
    """``log E X^z`` of the Heston model, from the textbook."""
    b = market.reversion - market.rho * market.nu * z
    d = np.sqrt(b * b - market.nu**2 * (z * z - z))
    g, decay = (b - d) / (b + d), np.exp(-np.multiply.outer(T, d))
    C = (b - d) * T[:, None] - 2.0 * np.log((1.0 - g * decay) / (1.0 - g))
    D = (b - d) * (1.0 - decay) / (1.0 - g * decay)
    return np.asarray((market.reversion * market.theta * C + market.v0 * D) / market.nu**2)


@pytest.mark.parametrize("name", PRESETS)
def test_error_estimate_stays_below_the_promise(name: str) -> None:
    market = LiftedHeston.of(preset(name))
    T = DAYS / 365.0
    assert market.error_estimate(strikes(market, T), T[:, None]) < 1e-9


@pytest.mark.parametrize("jumps", [(2.0, -0.2, 0.02), (2.0, 0.2, 0.03), (2.0, -0.2, 0.05)])
def test_error_stays_below_the_promise_under_strong_jumps(jumps: tuple[float, ...]) -> None:
    market = LiftedHeston.of(replace(preset("calm"), jumps=Jumps(*jumps)))
    T = DAYS / 365.0
    assert market.error_estimate(strikes(market, T), T[:, None]) < 1e-9


def test_error_stays_below_the_promise_over_the_prior(rng: np.random.Generator) -> None:
    T = DAYS / 365.0
    for _ in range(count(full=200, reduced=3)):
        market = LiftedHeston.of(draw(rng))
        assert market.error_estimate(strikes(market, T), T[:, None]) < 1e-9, market


@pytest.mark.parametrize(("name", "value"), [("STEP_GROWTH", 2.2), ("CONTOUR_STEP", 0.3)])
def test_error_estimate_sees_coarse_steps(
    monkeypatch: pytest.MonkeyPatch, name: str, value: float
) -> None:
    monkeypatch.setattr(f"arbiter.models.lifted_heston.{name}", value)
    T = DAYS / 365.0
    assert HESTON.error_estimate(strikes(HESTON, T), T[:, None]) > 1e-9


@pytest.mark.parametrize("name", PRESETS)
def test_index_is_a_martingale_and_parity_holds(name: str) -> None:
    market = LiftedHeston.of(preset(name))
    T = np.array([0.01, 0.3, 3.0])
    mean = solve_index_transforms([market], T, np.array([[-1j, 0.0]]))[0].constant
    assert np.abs(mean).max() < 1e-12
    K = np.array([0.7, 0.95, 1.0, 1.2])
    gap = market.call(K, T[:, None]) - market.put(K, T[:, None]) - (1.0 - K)
    assert np.abs(gap).max() < 1e-12
    # the put contour and the call contour price the same option
    k, U = np.array([-1e-3, 1e-3]), np.zeros((1, market.factors))
    for calls in (True, False):
        contour = Contour.from_parameters(market, calls)
        log_cf = solve_index_transforms([market], T, contour.xi[None])[0].at(1, U)
        integral = invert(log_cf, contour.xi, contour.weight, k)[0]
        call = contour.price(integral, k) + np.maximum(-np.expm1(k), 0.0)
        assert np.abs(call - market.call(np.exp(k), 0.3)).max() < 1e-11


@pytest.mark.parametrize("name", PRESETS)
@pytest.mark.parametrize("T", [7.0 / 365.0, 1.0])
def test_density_is_the_curvature_of_prices_and_a_law_of_mean_one(name: str, T: float) -> None:
    market = LiftedHeston.of(preset(name))
    deviation = float(np.sqrt(market.log_variance(T)))
    k = np.linspace(-20.0 * deviation, 12.0 * deviation, 4001)
    density, kappa = market.density(k, T), np.exp(k)
    assert (density * kappa).min() > -1e-8
    assert np.trapezoid(density * kappa, k) == pytest.approx(1.0, abs=1e-6)
    assert np.trapezoid(density * kappa**2, k) == pytest.approx(1.0, abs=1e-6)
    at, h = np.array([0.99, 1.01]), 2e-3 * deviation
    curvature = (market.call(at + h, T) - 2.0 * market.call(at, T) + market.call(at - h, T)) / h**2
    assert curvature == pytest.approx(market.density(np.log(at), T), rel=1e-4)
    slope = (market.call(at - h, T) - market.call(at + h, T)) / (2.0 * h)
    assert slope == pytest.approx(market.digital(np.log(at), T), rel=1e-4)


@pytest.mark.parametrize("name", PRESETS)
def test_log_contract_is_the_slope_of_the_transform(name: str) -> None:
    market = LiftedHeston.of(preset(name))
    U = np.linspace(0.001, 0.003, market.factors)
    T, h = np.array([0.1, 2.0]), 1e-4
    both = solve_index_transforms([market], T, np.array([[h, -h]]))[0]
    for m in range(2):
        up, down = both.at(m, U[None])[0]
        mean = ((up - down) / (2j * h)).real  # E log X
        assert market.log_variance(T[m], U) == pytest.approx(-2.0 * mean, rel=1e-5)


def test_means_solve_their_differential_equation() -> None:
    market = LiftedHeston.of(preset("inverted"))
    T, h = np.array([0.02, 0.5]), 1e-5
    slope = (market.log_variance(T + h) - market.log_variance(T - h)) / (2.0 * h)
    assert slope == pytest.approx(market.variance_curve(T), rel=1e-6)
    heston = HESTON.variance_curve(T)
    assert heston == pytest.approx(0.05 + (0.04 - 0.05) * np.exp(-1.5 * T), rel=1e-13)


def merton(variance: float, jumps: Jumps, T: float, k: Array) -> Array:
    """Calls of Merton's model: a Poisson mixture of Black's formula."""
    total, weight = np.zeros(k.shape), np.exp(-jumps.intensity * T)
    drift = -jumps.intensity * np.expm1(jumps.mean + 0.5 * jumps.deviation**2) * T
    for n in range(60):
        v = np.sqrt(variance * T + n * jumps.deviation**2)
        shift = drift + n * (jumps.mean + 0.5 * jumps.deviation**2)
        d = (shift - k) / v + 0.5 * v
        total += weight * (np.exp(shift) * ndtr(d) - np.exp(k) * ndtr(d - v))
        weight *= jumps.intensity * T / (n + 1.0)
    return total


@pytest.mark.parametrize(
    ("mean", "deviation"), [(-0.1, 0.07), (-0.2, 0.02), (0.1, 0.011), (-0.01, 0.12), (0.0, 0.05)]
)
def test_jumps_are_mertons_where_variance_stands_still(mean: float, deviation: float) -> None:
    jumps = Jumps(intensity=1.5, mean=mean, deviation=deviation)
    market = replace(
        LiftedHeston.heston(v0=0.01, kappa=0.5, theta=0.01, sigma=1e-5, rho=0.0), jumps=jumps
    )
    for T in (2.0 / 365.0, 0.25, 2.0):
        k = strikes(market, np.array([T]))[0]
        call = market.otm(k, T) + np.maximum(-np.expm1(k), 0.0)
        assert np.abs(call - merton(0.01, jumps, T, k)).max() < 2e-9


@pytest.mark.parametrize("name", ["stressed", "jumpy"])
def test_days_are_the_days_one_by_one(name: str, rng: np.random.Generator) -> None:
    market = LiftedHeston.of(preset(name))
    T = np.array([0.02, 0.1, 0.7])
    k = np.linspace(-2.0, 2.0, 7) * np.sqrt(market.log_variance(T))[:, None]
    states = simulate(market, np.arange(1, 6) / 52.0, seed=4).states[0]
    apart = np.stack([market.otm(k, T[:, None], U) for U in states])
    assert np.abs(market.days(states, k, T) - apart).max() < 1e-14
    moved = k + 0.1 * rng.standard_normal((5, 1, 1))
    apart = np.stack([market.otm(at, T[:, None], U) for at, U in zip(moved, states, strict=True)])
    assert np.abs(market.days(states, moved, T) - apart).max() < 1e-14


def test_parameter_sets_in_one_batch_are_the_sets_one_by_one(rng: np.random.Generator) -> None:
    sets = [draw(rng) for _ in range(4)]
    xi = np.stack([Contour.from_parameters(p, calls=False).xi[:120] for p in sets])
    T = np.array([0.05, 1.0])
    for i, together in enumerate(solve_index_transforms(sets, T, xi)):
        alone = solve_index_transforms([sets[i]], T, xi[i : i + 1])[0]
        assert np.abs(together.constant - alone.constant).max() < 1e-9
        assert np.abs(together.slope - alone.slope).max() < 1e-7


def test_arrays_of_a_market_cannot_be_changed() -> None:
    market = LiftedHeston.of(preset("calm"))
    for array in (market.c, market.x):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 2.0


def test_later_state_of_a_quiet_market_prices_the_same_market() -> None:
    # Where nothing is random the state follows its mean, and prices an option of the rest.
    market = LiftedHeston(0.04, 0.8, 0.09, 1e-6, 0.0, hurst=0.2, factors=6)
    t, T = 0.4, 1.0
    U = np.zeros(market.factors)
    steps = 20_000
    for _ in range(steps):
        v = market.v0 + market.c @ U
        U = U + t / steps * (-market.x * U + market.reversion * (market.theta - v))
    rest = market.log_variance(T - t, U)
    assert rest == pytest.approx(market.log_variance(T) - market.log_variance(t), rel=1e-4)


def test_step_weights_integrate_polynomials_against_the_decay() -> None:
    assert RADAU_NODES.size == 5
    for power in range(2 * RADAU_NODES.size - 1):
        assert RADAU_WEIGHTS @ RADAU_NODES**power == pytest.approx(1.0 / (power + 1.0), rel=1e-12)
    x, delta = np.array([[0.0, 1e-3, 3.0, 40.0, 900.0]]), 0.3
    _, push = exponential_weights(x, np.array([delta]))
    s, w = np.polynomial.legendre.leggauss(60)
    for k, node in enumerate(RADAU_NODES):
        at = 0.5 * node * (s + 1.0)  # s/δ
        for power in range(RADAU_NODES.size):
            decay = np.exp(-np.multiply.outer(x[0], (node - at) * delta))
            exact = 0.5 * node * delta * (decay * at**power * w).sum(-1)
            found = (push[0, 0, k] * RADAU_NODES[:, None] ** power).sum(0)
            assert found == pytest.approx(exact, rel=1e-9, abs=1e-15)


@given(st.floats(2e-3, 9.0), st.floats(1.05, 2.0))
def test_mesh_increases_to_beyond_the_last_maturity(last: float, growth: float) -> None:
    borders = mesh(last, growth)
    assert borders[-2] < last <= borders[-1]
    assert (np.diff(borders) > 0.0).all()
    assert (
        np.diff(borders) <= (growth - 1.0) * borders[:-1] + FIRST_STEP_YEARS * (1.0 + 1e-6)
    ).all()
    longer = mesh(2.0 * last, growth)
    assert (longer[: borders.size] == borders).all()


@given(st.lists(st.floats(2e-3, 5.0), min_size=1, max_size=6, unique=True), st.data())
@settings(max_examples=count(full=60, reduced=10))
def test_solution_at_a_maturity_does_not_depend_on_the_others(
    times: list[float], data: st.DataObject
) -> None:
    market, T = preset("jumpy"), np.sort(np.array(times))
    one = data.draw(st.integers(0, T.size - 1))
    xi = Contour.from_parameters(market, calls=False).xi[None, ::20]
    together, alone = (solve_index_transforms([market], at, xi)[0] for at in (T, T[one : one + 1]))
    assert (together.constant[one] == alone.constant[0]).all()
    assert (together.slope[one] == alone.slope[0]).all()


def findings_above(frame: dict[str, Array], size: float) -> int:
    found = ab.audit(frame).findings["size"].to_numpy()
    return int((found > size).sum())


TENORS = np.array([7, 14, 21, 30, 45, 60, 91, 122, 182, 273, 365, 456, 547, 730]) / 365.0


def surface_frames(market: LiftedHeston, states: Array) -> list[dict[str, Array]]:
    variance = np.stack([market.log_variance(TENORS, U) for U in states])
    k = np.linspace(-3.5, 2.0, 33) * np.sqrt(variance)[..., None]  # (D, M, m)
    call = market.days(states, k, TENORS) + np.maximum(-np.expm1(k), 0.0)
    return [
        {"T": np.repeat(TENORS, 33), "k": k[d].ravel(), "call": call[d].ravel()}
        for d in range(states.shape[0])
    ]


def test_surfaces_pass_the_audit(rng: np.random.Generator) -> None:
    surfaces, days = count(full=10_000, reduced=10), count(full=40, reduced=2)
    presets = [*PRESETS.values()]
    for i in range(surfaces // days):
        market = LiftedHeston.of(presets[i] if i < len(presets) else draw(rng))
        times = np.arange(days) * 14.0 / 365.0
        states = simulate(market, times, seed=i, steps_per_day=1).states[0]
        for frame in surface_frames(market, states):
            assert findings_above(frame, 1e-9) == 0, market


def test_planted_arbitrage_of_two_billionths_fails_the_audit() -> None:
    frame = surface_frames(LiftedHeston.of(preset("calm")), np.zeros((1, 20)))[0]
    middle = 5 * 33 + 16
    butterfly = frame["call"][middle - 1 : middle + 2]
    kappa = np.exp(frame["k"][middle - 1 : middle + 2])
    share = (kappa[2] - kappa[1]) / (kappa[2] - kappa[0])
    frame["call"][middle] = share * butterfly[0] + (1.0 - share) * butterfly[2] + 4e-9
    assert findings_above(frame, 1e-9) > 0


def test_volatility_is_nan_below_resolution_and_inverts_above() -> None:
    iv = HESTON.iv(np.array([0.0, 5.0]), 0.1)
    assert np.isnan(iv[1])
    assert black.implied_total_volatility(
        HESTON.otm(0.0, 0.1), np.array(0.0)
    ).volatility == pytest.approx(iv[0] * np.sqrt(0.1))
    assert HESTON.iv(0.1, 0.5).shape == ()
    assert HESTON.iv([[0.1], [0.2]], [0.5, 1.0, 2.0]).shape == (2, 3)
    assert HESTON.otm(np.zeros(0), 0.5).shape == (0,)


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"v0": -0.1}, "v0"),
        ({"v0": float("nan")}, "v0"),
        ({"v0": 20.0 * 20.0}, "v0"),
        ({"rho": -1.0}, "rho"),
        ({"rho": 0.9995}, "rho"),
        ({"nu": 0.0}, "nu"),
        ({"nu": 1e-12}, "nu"),
        ({"factors": 20.0}, "factors"),
        ({"v0": "a"}, "v0 = 'a' is not a number"),
        ({"rho": None}, "rho = None is not a number"),
        ({"jumps": (1.0, -0.1, 0.1)}, "is not None or Jumps"),
        ({"theta": -0.01}, "theta"),
        ({"reversion": -1.0}, "reversion"),
        ({"hurst": 0.5}, "hurst"),
        ({"hurst": 0.0}, "hurst"),
        ({"factors": 0}, "factors"),
    ],
)
def test_impossible_parameters_are_refused_by_name(change: dict[str, float], word: str) -> None:
    with pytest.raises(ValueError, match=word):
        replace(preset("calm"), **change)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("jump", "word"),
    [
        ((-1.0, 0.0, 0.1), "intensity"),
        ((1.0, float("inf"), 0.1), "mean"),
        ((1.0, -0.2, 0.01), "deviation"),
        ((5.0, -0.3, 0.05), "too strong"),
    ],
)
def test_impossible_jumps_are_refused_by_name(jump: tuple[float, ...], word: str) -> None:
    with pytest.raises(ValueError, match=word):
        Jumps(*jump)


def test_caller_mistakes_are_named() -> None:
    with pytest.raises(ValueError, match="positive year fractions"):
        HESTON.iv(0.0, 0.0)
    for k in (np.nan, np.inf, -np.inf, 16.1, 800.0):
        for price in (HESTON.otm, HESTON.iv, HESTON.density, HESTON.digital):
            with pytest.raises(ValueError, match="finite and within ±16"):
                price(k, 0.1)
        for grid in (np.array([[k, 0.0]]), np.full((2, 1, 1), k)):
            with pytest.raises(ValueError, match="finite and within ±16"):
                HESTON.days(np.zeros((2, 1)), grid, [0.1])
    with pytest.raises(ValueError, match="within ±16"):
        HESTON.call(1e305, 1.0)
    with pytest.raises(ValueError, match="positive strikes"):
        HESTON.call(-1.0, 0.1)
    with pytest.raises(ValueError, match="state has shape"):
        HESTON.iv(0.0, 0.1, np.zeros(3))
    with pytest.raises(ValueError, match="increasing"):
        HESTON.days(np.zeros((2, 1)), np.zeros((2, 3)), [0.2, 0.1])
    with pytest.raises(ValueError, match="k has shape"):
        HESTON.days(np.zeros((2, 1)), np.zeros((4, 3)), [0.1, 0.2])
    with pytest.raises(ValueError, match="k has shape"):
        HESTON.days(np.zeros((2, 1)), 0.0, [0.1])
    with pytest.raises(ValueError, match="at least one"):
        HESTON.days(np.zeros((2, 1)), np.zeros((0, 3)), [])
    with pytest.raises(ValueError, match="states has shape"):
        HESTON.days(np.zeros((2, 5)), np.zeros((2, 3)), [0.1, 0.2])
    rough = LiftedHeston.of(preset("rough"))
    for unreachable in (np.full(20, -1.0), np.array([-1.0] * 19 + [9.0])):
        for question in (rough.log_variance, lambda t, U: rough.otm(0.0, t, U)):
            with pytest.raises(ValueError, match="point of a path"):
                question(0.5, unreachable)
        with pytest.raises(ValueError, match="point of a path"):
            rough.days(unreachable[None], np.zeros((1, 1)), [0.5])
    with pytest.raises(ValueError, match="not one of calm"):
        preset("quiet")


def test_transform_that_does_not_decay_is_an_error_not_a_number() -> None:
    for v0, sigma in ((1e-6, 0.5), (1e-5, 1.0), (1e-4, 10.0)):
        frozen = LiftedHeston.heston(v0=v0, kappa=0.0, theta=0.0, sigma=sigma, rho=-0.5)
        with pytest.raises(ArithmeticError, match="has not decayed"):
            frozen.otm(0.0, 2.0 / 365.0)


def test_moment_that_explodes_is_an_error_not_a_number() -> None:
    wild = LiftedHeston.heston(v0=0.04, kappa=0.1, theta=0.04, sigma=2.0, rho=0.2)
    with pytest.raises(ArithmeticError, match="not solved"):
        solve_index_transforms([wild], np.array([10.0]), np.array([[-40j]]))


def test_names_are_public_and_lazy() -> None:
    from arbiter import markets

    assert {"Jumps", "LiftedHeston", "Parameters", "draw", "preset"} <= set(dir(markets))
    assert markets.Parameters is Parameters
    with pytest.raises(AttributeError, match="no attribute"):
        _ = markets.Nonsense
    assert STEP_GROWTH > 1.0
