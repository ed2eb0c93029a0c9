"""The paper on prices (setting, decoder, replication): each claim fails, the corrected one holds.

The order is that of docs/errata.md, which names these tests.
"""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import polars as pl
import pytest

from arbiter import Surface, audit, example
from arbiter.conventions import Array
from claims import QUARTER, assert_convex, black_call, calls, flat, largest_bump


def test_index_over_bank_account_is_no_martingale_with_dividends() -> None:
    """Paper: S/N is a martingale. With a dividend yield S/F is, and S/N loses e^{−qT}."""
    r, q, spot, T = 0.03, 0.02, 100.0, np.array([0.5, 2.0])
    surface = flat(0.2, T, spot * np.exp((r - q) * T), np.exp(-r * T))
    discounted_mean = surface.call(1e-9, T)  # the call struck at zero is E[S_T] discounted
    np.testing.assert_allclose(discounted_mean / spot, np.exp(-q * T), rtol=1e-9)
    assert np.all(discounted_mean < 0.995 * spot)
    np.testing.assert_allclose(
        discounted_mean / (surface.discount(T) * surface.forward(T)), 1.0, rtol=1e-9
    )


def test_strike_at_the_forward_counts_once() -> None:
    """Paper: puts with K ≤ F and calls with K ≥ F, so that a strike at F enters twice."""
    surface, step = example(), 0.005
    kappa = step * np.arange(20, 601)  # 0.1 to 3, with a strike at the forward
    k = np.log(kappa)
    once = 2.0 * np.sum(step / kappa**2 * surface.otm(k, QUARTER))
    twice = once + 2.0 * step * float(surface.otm(0.0, QUARTER))
    exact = float(surface.variance_swap(QUARTER)) * QUARTER
    assert abs(once / exact - 1.0) < 2e-3
    assert twice / exact - 1.0 > 0.02


def test_score_of_uncapped_residuals_leaves_the_unit_interval() -> None:
    """Paper: 1 − Σ w [r/s]₊ / Σ w lies in [0, 1]. It does when each residual is capped at 1."""
    residuals = np.array([0.0, 0.0, 5.0])
    assert 1.0 - residuals.mean() < 0.0
    assert 0.0 <= 1.0 - np.minimum(residuals, 1.0).mean() <= 1.0
    absurd = pl.DataFrame({"T": [1.0] * 3, "k": [-0.1, 0.0, 0.1], "call": [0.2, 50.0, 0.1]})
    assert 0.0 <= audit(absurd).nas < 1.0


def test_calendar_order_at_fixed_strike_is_not_no_arbitrage() -> None:
    """Paper: ∂_T C ≥ 0 at fixed K. Neither necessary nor sufficient; at fixed κ it is both."""
    T = np.array([0.5, 2.0])
    paying = flat(0.1, T, 100.0 * np.exp(-0.05 * T), np.ones(2))  # r = 0, q = 5 %
    assert np.diff(paying.call(60.0, T))[0] < -5.0
    assert np.all(np.diff(calls(paying, np.linspace(0.5, 1.5, 21), T), axis=0) >= 0.0)
    assert paying.certificate().passed
    T, total = np.array([0.5, 1.0]), np.sqrt([0.02, 0.0199])  # variance falls: an arbitrage
    F, D = 100.0 * np.exp(0.05 * T), np.exp(-0.05 * T)
    K = np.linspace(20.0, 400.0, 77)
    fixed_strike = black_call(F[:, None], K, total[:, None], D[:, None])
    assert np.all(np.diff(fixed_strike, axis=0) >= 0.0)
    found = audit(pl.DataFrame({"T": T, "k": [0.0, 0.0], "iv": total / np.sqrt(T)})).findings
    assert found["family"].to_list() == ["calendar"]


def test_convex_increments_with_fixed_ends_vanish() -> None:
    """Paper: prices convex in K, growing in T by a positive slope. Added convex pieces are 0."""
    assert largest_bump(41, convex=True) == pytest.approx(0.0, abs=1e-12)
    assert largest_bump(41, convex=False) == 39.0
    kappa, T = np.linspace(0.5, 1.6, 45), np.array([QUARTER, 1.0])
    price = calls(example(), kappa, T)
    for slice_ in price:
        assert_convex(kappa, slice_)
    rise = price[1] - price[0]
    assert rise.min() > 0.0
    with pytest.raises(AssertionError, match="butterfly"):
        assert_convex(kappa, rise)


def test_strike_derivative_is_minus_the_digital() -> None:
    """Paper: ∂_K C is the delta. It is −D times the digital; the delta is c − κ ∂_κ c."""
    surface, h = example(), 0.05
    D, F = float(surface.discount(QUARTER)), float(surface.forward(QUARTER))
    for K in (4500.0, 6000.0, 6600.0):
        slope = float(surface.call(K + h, QUARTER) - surface.call(K - h, QUARTER)) / (2.0 * h)
        digital = float(surface.digital(math.log(K / F), QUARTER))
        delta = float(surface.delta(K, QUARTER))
        assert slope == pytest.approx(-D * digital, abs=1e-7)
        assert abs(slope - D * delta) > 0.04
        assert (float(surface.call(K, QUARTER)) - K * slope) / (D * F) == pytest.approx(
            delta, abs=1e-6
        )


def strip(surface: Surface, T: float, split: float) -> float:
    """2∫Q/κ² dκ with puts below ``split`` (in moneyness) and calls above."""
    node, weight = np.polynomial.legendre.leggauss(400)
    total = 0.0
    for low, high in pairwise([-4.0, math.log(split), 0.0, 2.0]):
        k = low + 0.5 * (high - low) * (node + 1.0)
        kappa = np.exp(k)
        call = surface.otm(k, T) + np.where(k < 0.0, 1.0 - kappa, 0.0)
        price = np.where(kappa < split, call - 1.0 + kappa, call)
        total += (high - low) * float(np.sum(weight * price / kappa))
    return total


def test_forward_term_belongs_to_the_split_at_k0() -> None:
    """Paper: split at F and subtract (F/K0 − 1)²/T. Only the split at K0 needs the term."""
    surface, T, below = example(), QUARTER, 0.98
    exact = float(surface.variance_swap(T)) * T
    term = (1.0 / below - 1.0) ** 2
    assert strip(surface, T, 1.0) == pytest.approx(exact, rel=1e-6)
    assert abs(strip(surface, T, 1.0) - term - exact) > 0.9 * term
    assert abs(strip(surface, T, below) - term - exact) < 0.02 * term


def test_out_of_the_money_price_is_not_convex_across_the_money() -> None:
    """Paper: K ↦ Q convex. Q is 0 at both ends, so that a convex Q is 0; each side is convex."""
    assert largest_bump(61, convex=True) == pytest.approx(0.0, abs=1e-12)
    kappa = np.linspace(0.5, 1.5, 101)
    price = example().otm(np.log(kappa), QUARTER)
    assert price.min() > 0.0
    assert_convex(kappa[:51], price[:51])
    assert_convex(kappa[50:], price[50:])
    with pytest.raises(AssertionError, match="butterfly"):
        assert_convex(kappa, price)


def test_puts_of_order_strike_have_an_infinite_strip() -> None:
    """Paper: P ≲ K makes ∫P/K² converge at 0. An atom at 0 has P = pK, and it diverges."""
    ends = [1e-2, 1e-4, 1e-8]

    def integral(power: float, end: float) -> float:
        t = np.linspace(math.log(end), 0.0, 20_001)
        return float(np.trapezoid(np.exp((power - 1.0) * t), t))

    atom = [0.01 * integral(1.0, end) for end in ends]
    np.testing.assert_allclose(atom, [-0.01 * math.log(end) for end in ends], rtol=1e-9)
    steeper = [integral(1.25, end) for end in ends]
    assert abs(steeper[2] - 4.0) < 0.05
    assert steeper[2] - steeper[1] < steeper[1] - steeper[0]


def test_one_sided_ends_add_half_a_cell() -> None:
    """Paper: the error is at most TV·ΔK/2. A constant has TV = 0, and is off by half a cell."""
    K = np.linspace(1.0, 2.0, 11)
    middle = 0.5 * (K[2:] - K[:-2])
    one_sided = np.array([K[1] - K[0], *middle, K[-1] - K[-2]])
    halved = np.array([0.5 * (K[1] - K[0]), *middle, 0.5 * (K[-1] - K[-2])])
    assert one_sided.sum() - 1.0 == pytest.approx(0.1)
    assert halved.sum() - 1.0 == pytest.approx(0.0)
    f = 1.0 / K**2
    assert abs(np.sum(halved * f) - 0.5) <= 0.5 * (f[0] - f[-1]) * 0.1


def test_filling_out_of_the_money_prices_across_the_forward_is_an_arbitrage() -> None:
    """Paper: linear filling of Q keeps convexity. Across F it does not; filling calls does."""
    surface = example()
    kappa = np.array([0.90, 0.93, 0.96, 0.99, 1.01, 1.04, 1.07, 1.10])
    listed = np.abs(kappa - 1.0) > 0.02
    Q = surface.otm(np.log(kappa), QUARTER)
    intrinsic = np.maximum(1.0 - kappa, 0.0)
    by_q = np.interp(kappa, kappa[listed], Q[listed]) + intrinsic
    by_call = np.interp(kappa, kappa[listed], (Q + intrinsic)[listed])
    with pytest.raises(AssertionError, match="butterfly"):
        assert_convex(kappa, by_q)
    assert_convex(kappa, by_call)


def test_breeden_litzenberger_has_one_discount_and_no_strike_factor() -> None:
    """Paper, three ways: Q'' = e^{−rT} f/K², C'' = e^{rT} f, and a mass of C'(0) − C'(∞)."""
    surface, T, K, h = example(), 2.0, 6000.0, 3.0
    D, F = float(surface.discount(T)), float(surface.forward(T))
    bend = float(np.sum(np.array([1.0, -2.0, 1.0]) * surface.call(K + h * np.arange(-1, 2), T)))
    density = float(surface.density(math.log(K / F), T)) / F  # of S_T, per unit of currency
    assert bend / h**2 == pytest.approx(D * density, rel=1e-4)
    assert bend / h**2 < 0.9 * density / D
    assert bend / h**2 > 1e6 * D * density / K**2
    at_zero = float(surface.call(2.0, T) - surface.call(1.0, T))
    assert (at_zero - 0.0) / D == pytest.approx(-1.0, abs=1e-9)  # the paper's order
    assert (0.0 - at_zero) / D == pytest.approx(1.0, abs=1e-9)


def test_plain_second_differences_misjudge_uneven_strikes() -> None:
    """Paper: convexity makes C₋ − 2C + C₊ ≥ 0. On uneven strikes only the weighted one is."""
    surface, kappa = example(), np.array([0.90, 0.95, 1.05])
    price = calls(surface, kappa, np.array([QUARTER]))[0]
    assert price[0] - 2.0 * price[1] + price[2] < -0.005
    assert_convex(kappa, price)
    frame = pl.DataFrame({"T": [QUARTER] * 3, "k": np.log(kappa), "call": price})
    assert audit(frame).passed


def test_calendar_pooling_then_convex_projection_is_not_enough() -> None:
    """Paper: PAVA in T, then a QP in K. The second step undoes the first."""
    early, late = np.array([4.0, 3.0, 0.0]), np.array([4.0, 3.0, 2.0])
    assert np.all(early <= late)  # pooling in T has nothing to do

    def convex_projection(c: Array) -> Array:
        normal = np.array([1.0, -2.0, 1.0])
        return np.asarray(c - min(float(normal @ c), 0.0) * normal / 6.0)

    first, second = convex_projection(early), convex_projection(late)
    assert first[0] - second[0] == pytest.approx(1.0 / 3.0)
    # Dykstra's alternation keeps a memory of each step and ends at the joint projection.
    C, convex_memory, calendar_memory = np.array([early, late]), np.zeros((2, 3)), np.zeros((2, 3))
    for _ in range(200):
        convex = np.array([convex_projection(c) for c in C + convex_memory])
        convex_memory += C - convex
        wanted = convex + calendar_memory
        C = np.where(wanted[0] > wanted[1], wanted.mean(axis=0), wanted)
        calendar_memory = wanted - C
    assert np.diff(C, axis=0).min() >= -1e-12
    assert np.diff(C, n=2, axis=1).min() >= -1e-9
