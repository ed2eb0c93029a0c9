"""The lift is the rough Heston model: published prices, and the kernel it stands for."""

from __future__ import annotations

from dataclasses import replace
from math import gamma

import numpy as np
import pytest
import QuantLib as ql

from arbiter.conventions import Array
from arbiter.markets import LiftedHeston
from arbiter.models.fractional_kernel import kernel, lift

# Callegaro, Grasselli and Pagès (2021), "Fast hybrid schemes for fractional Riccati equations
# (rough is not so tough)", Mathematics of Operations Research 46(1), table 3, rows "Hybrid": calls
# on an index at 100, parameters of El Euch and Rosenbaum (2019). Their volatility of variance
# is γν. A day is 1/252. Four decimals are printed, some cut and some rounded.
CALIBRATED = LiftedHeston(0.0392, 0.1, 0.3156, 0.1 * 0.331, -0.681, hurst=0.12)
STRIKES = np.arange(80.0, 121.0, 5.0)
PRINTED = 1e-4
TABLE = {
    5 / 252: [20, 15, 10.0002, 5.0491, 1.1347, 0.04113, 9.22e-5, 6.82e-9, 1.80e-13],
    1 / 12: [20.0005, 15.0108, 10.1144, 5.6723, 2.3896, 0.6809, 0.1205, 0.0124, 7.32e-4],
    1 / 2: [20.6112, 16.2807, 12.3948, 9.0636, 6.3497, 4.2550, 2.7251, 1.6680, 0.9761],
    1.0: [22.1366, 18.3529, 14.9672, 12.0059, 9.4737, 7.3563, 5.6234, 4.2343, 3.1424],
    2.0: [25.4301, 22.2091, 19.2898, 16.6676, 14.3319, 12.2676, 10.4562, 8.8773, 7.5093],
}
# Of the day's column only strikes up to the money: calls 5 to 20 % above it are printed as 6e-5 to
# 1e-5, which is what the paper's Fourier sum leaves of 3e-6 and of less than 1e-15.
DAY = [20, 15, 10]

# Test suite of QuantLib (2026), RoughHestonModelTests, testKnownReferenceValues: "a from-scratch
# NumPy/SciPy reimplementation, independent of this engine's C++ code, converged to ~1e-4". Calls on
# an index at 100, rate 3 %: maturity, strike, price.
REFERENCE = LiftedHeston(0.04, 0.3, 0.04, 0.4, -0.7, hurst=0.1)
CONVERGED = 1e-4
VALUES = np.array(
    [
        [0.25, 75.0, 25.762400],
        [0.25, 100.0, 3.793313],
        [0.25, 130.0, 0.001586],
        [1.00, 75.0, 28.394103],
        [1.00, 100.0, 8.336634],
        [1.00, 130.0, 0.202295],
        [2.00, 75.0, 31.520600],
        [2.00, 100.0, 12.722717],
        [2.00, 130.0, 1.285820],
    ]
)


def off_table(market: LiftedHeston) -> float:
    """Largest distance from the printed prices of the hybrid scheme."""
    gaps = [100.0 * market.call(STRIKES / 100.0, T) - row for T, row in TABLE.items()]
    gaps.append(100.0 * market.call(STRIKES[:3] / 100.0, 1 / 252) - DAY)
    return float(max(np.abs(gap).max() for gap in gaps))


def off_values(market: LiftedHeston) -> float:
    """Largest distance from QuantLib's reference values."""
    T, strike, price = VALUES.T
    return float(np.abs(100.0 * market.call(strike / (100.0 * np.exp(0.03 * T)), T) - price).max())


@pytest.mark.parametrize("factors", [20, 80])
def test_prices_of_callegaro_grasselli_and_pages(factors: int) -> None:
    assert off_table(replace(CALIBRATED, factors=factors)) < PRINTED


@pytest.mark.parametrize("factors", [20, 80])
def test_reference_values_of_quantlib(factors: int) -> None:
    assert off_values(replace(REFERENCE, factors=factors)) < 0.05 * CONVERGED


def test_published_prices_reject_another_roughness_and_another_volatility() -> None:
    for change in ({"hurst": 0.121}, {"nu": 1.01 * CALIBRATED.nu}, {"factors": 5}):
        assert off_table(replace(CALIBRATED, **change)) > PRINTED
    for change in ({"hurst": 0.101}, {"nu": 1.01 * REFERENCE.nu}, {"factors": 5}):
        assert off_values(replace(REFERENCE, **change)) > CONVERGED


def test_twenty_factors_are_the_fractional_adams_scheme() -> None:
    """Parameters of Abi Jaber (2019), "Lifting the Heston model"; the scheme is good to 1e-6."""
    today, days = ql.Date(2, 1, 2026), (30, 182, 365)
    ql.Settings.instance().evaluationDate = today
    flat = ql.YieldTermStructureHandle(ql.FlatForward(today, 0.0, ql.Actual365Fixed()))
    spot = ql.QuoteHandle(ql.SimpleQuote(1.0))
    process = ql.HestonProcess(flat, flat, spot, 0.02, 0.3, 0.02, 0.3, -0.7)
    engine = ql.AnalyticRoughHestonEngine(ql.RoughHestonModel(process, 0.1), 128, 512)
    market = LiftedHeston(0.02, 0.3, 0.02, 0.3, -0.7, hurst=0.1)
    gaps = []
    for day in days:
        for k in np.array([-0.2, -0.1, 0.0, 0.05]) * np.sqrt(day / 365.0):
            side = ql.Option.Call if k >= 0.0 else ql.Option.Put
            payoff = ql.PlainVanillaPayoff(side, float(np.exp(k)))
            option = ql.VanillaOption(payoff, ql.EuropeanExercise(today + day))
            option.setPricingEngine(engine)
            gaps.append(option.NPV() - float(market.otm(k, day / 365.0)))
    assert np.abs(gaps).max() < 2e-6


def off_kernel(hurst: float, c: Array, x: Array) -> float:
    """Largest relative error of the kernel from a day to five years."""
    t = np.geomspace(1.0 / 365.0, 5.0, 60)
    return float(np.abs(kernel(t, c, x) * t ** (0.5 - hurst) * gamma(hurst + 0.5) - 1.0).max())


@pytest.mark.parametrize("hurst", [0.03, 0.12, 0.3, 0.45])
def test_sum_of_exponentials_is_the_kernel_and_converges_fast(hurst: float) -> None:
    gaps = [off_kernel(hurst, *lift(hurst, n)) for n in (5, 10, 20, 40)]
    orders = np.log2(np.array(gaps[:-1]) / gaps[1:])
    assert orders[1:].min() > 6.0, orders
    assert gaps[2] < 1e-4
    assert gaps[3] < 1e-6


@pytest.mark.parametrize("hurst", [0.03, 0.12, 0.3, 0.45])
def test_masses_and_means_of_cells_are_some_percent_off(hurst: float) -> None:
    """The lift of Abi Jaber (2019) on the same grid: what the kernel's test must tell apart."""
    n, r, a = 20, 2.5, hurst + 0.5
    edge = r ** (np.arange(n + 1) - 0.5 * n)
    mass = np.diff(edge ** (1.0 - a)) / (gamma(a) * gamma(2.0 - a))
    mean = (1.0 - a) / (2.0 - a) * np.diff(edge ** (2.0 - a)) / np.diff(edge ** (1.0 - a))
    assert off_kernel(hurst, mass, mean) > 0.05


def test_grid_is_the_published_one_and_its_ends_stand_for_what_lies_beyond() -> None:
    c, x = lift(0.1, 20)
    assert x[2:-1] / x[1:-2] == pytest.approx(np.full(17, 2.5), rel=1e-12)
    assert np.sqrt(x[9] * x[10]) == pytest.approx(1.0)
    wide_c, wide_x = lift(0.1, 120, ratio=2.5)  # the same grid, 50 factors longer at each end
    assert c[1:-1] == pytest.approx(wide_c[51:69], rel=1e-12)
    slow, fast = slice(0, 51), slice(69, 120)
    for power in (0, 1):
        assert c[0] * x[0] ** power == pytest.approx((wide_c * wide_x**power)[slow].sum())
    for power in (-1, -2):
        assert c[-1] * x[-1] ** power == pytest.approx((wide_c * wide_x**power)[fast].sum())


@pytest.mark.parametrize("hurst", [0.01, 0.25, 0.49])
@pytest.mark.parametrize("factors", [2, 7, 20, 200])
def test_weights_are_positive_and_speeds_increase(hurst: float, factors: int) -> None:
    c, x = lift(hurst, factors)
    assert c.min() > 0.0
    assert x.min() > 0.0
    assert (np.diff(x) > 0.0).all()


def test_kernel_near_one_half_is_the_heston_model() -> None:
    heston = LiftedHeston.heston(v0=0.04, kappa=1.5, theta=0.05, sigma=0.5, rho=-0.7)
    k, T = np.linspace(-0.3, 0.2, 6), np.array([[0.02], [0.5], [2.0]])
    near = replace(heston, factors=20, hurst=0.5 - 1e-7)
    assert np.abs(near.otm(k, T) - heston.otm(k, T)).max() < 1e-7
    rougher = replace(heston, factors=20, hurst=0.45)
    assert np.abs(rougher.otm(k, T) - heston.otm(k, T)).max() > 1e-4
