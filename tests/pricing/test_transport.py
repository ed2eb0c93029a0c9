"""The decoder: exact against 34 digits.

That its prices cannot be arbitraged is in `test_no_arbitrage.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import theorems
from arbiter.conventions import Array
from arbiter.pricing import black, normal
from arbiter.pricing.mixture import Mixture
from arbiter.pricing.transport import Transport
from counts import count
from index_slopes import KNOTS, skewed
from oracle import Slice


def points(*values: float) -> Array:
    return np.array(values)


def wild(rng: np.random.Generator, n: int, low: float = -6.0, high: float = 1.3) -> Array:
    """Slopes log-uniform between 1e-6 and 20, independent from knot to knot."""
    return np.asarray(10.0 ** rng.uniform(low, high, n))


def slices(rng: np.random.Generator) -> list[tuple[str, int, Array]]:
    cases = [("index smile", n, skewed(n)) for n in (31, 41)]
    for i in range(count(full=24, reduced=1)):
        n = (31, 41, 5)[i % 3]
        cases.append(("wild", n, wild(rng, n)))
        cases.append(("moderate", n, wild(rng, n, -1.5, 0.2)))
    cases += [("flat", 31, np.full(31, b)) for b in (1e-6, 0.2, 20.0)]
    return cases


def conditioning(ours: Transport, k: Array) -> float:
    """What rounding of k and log M, a few ulps, does to a price: no formula can be better."""
    sides = (ours.digital(k), ours.call(k)) if k.item() >= 0.0 else (ours.cdf(k), ours.put(k))
    elasticity = (np.exp(k) * sides[0] / sides[1]).item()
    return 32.0 * 2.0**-53 * (abs(k.item()) + abs(ours.log_mean.item())) * elasticity


def test_far_wings_keep_relative_accuracy(rng: np.random.Generator) -> None:
    """Prices at |z| up to 12 against mpmath: to 1e-9, or to the rounding of the strike itself.

    The second only matters where an end slope is near 1e-6, so that one ulp of k is a part in
    1e-9 of a deviation; everywhere else 1e-12 holds.
    """
    smallest = 1.0
    for _, n, slopes in slices(rng):
        exact, ours = Slice(KNOTS[n].tolist(), slopes.tolist()), Transport(KNOTS[n], slopes)
        for z in (-12.0, -0.7, 3.1, 12.0):
            k = ours.log_strike(points(z))
            reference = exact.call(k.item()) if k.item() >= 0.0 else exact.put(k.item())
            error = float(abs(ours.otm(k).item() / reference - 1))
            limit = conditioning(ours, k)
            assert error < max(1e-12, limit)
            assert error < 1e-9 or limit > 1e-9
            smallest = min(smallest, float(reference))
    assert smallest < 1e-40


def test_ordinary_smiles_are_exact_to_rounding(rng: np.random.Generator) -> None:
    """No allowance for conditioning: slopes within a factor of twenty of each other."""
    for slopes in (skewed(), wild(rng, 31, -1.3, 0.0)):
        exact, ours = Slice(KNOTS[31].tolist(), slopes.tolist()), Transport(KNOTS[31], slopes)
        for z in (-12.0, -6.0, -1.0, 0.5, 5.0, 12.0):
            k = ours.log_strike(points(z))
            reference = exact.call(k.item()) if k.item() >= 0.0 else exact.put(k.item())
            assert abs(ours.otm(k).item() / reference - 1) < 2e-13


def test_prices_down_to_1e_300() -> None:
    ours = Transport(KNOTS[31], skewed())
    exact = Slice(KNOTS[31].tolist(), skewed().tolist())
    for z in (-36.5, 36.5):
        k = ours.log_strike(points(z))
        reference = exact.call(k.item()) if z > 0 else exact.put(k.item())
        assert 1e-303 < reference < 1e-285
        assert abs(ours.otm(k).item() / reference - 1) < 1e-9


def test_the_comparison_can_fail() -> None:
    """One slope moved by a part in a million moves the wing past the tolerance."""
    slopes = skewed()
    exact = Slice(KNOTS[31].tolist(), slopes.tolist())
    slopes[0] *= 1.0 + 1e-6
    k = Transport(KNOTS[31], slopes).log_strike(points(-12.0))
    ours = Transport(KNOTS[31], slopes).otm(k).item()
    assert abs(ours / exact.put(k.item()) - 1) > 1e-7


@pytest.mark.parametrize("total", [1e-6, 1e-3, 0.2, 3.0, 9.0, 20.0])
def test_one_slope_is_black(total: float) -> None:
    flat = Transport(KNOTS[31], np.full(31, total))
    k = total * np.linspace(-8.0, 8.0, 33)
    np.testing.assert_allclose(flat.otm(k), black.otm(k, total), rtol=1e-11)
    np.testing.assert_allclose(flat.log_variance(), total**2, rtol=1e-9)


def test_log_variance_against_quadrature(rng: np.random.Generator) -> None:
    for slopes in (skewed(), wild(rng, 31), wild(rng, 31, -1.5, 0.2)):
        exact = Slice(KNOTS[31].tolist(), slopes.tolist()).log_variance()
        ours = Transport(KNOTS[31], slopes).log_variance().item()
        assert abs(ours / exact - 1) < 1e-12


def test_cutting_segments_changes_nothing() -> None:
    """Slopes are linear between knots, so a coarse and a refined knot vector are one surface."""
    coarse = points(-5.0, -1.0, 2.5)
    slopes = points(0.35, 0.2, 0.12)
    fine = np.linspace(-5.0, 2.5, 61)
    refined = np.interp(fine, coarse, slopes)
    k = np.linspace(-2.0, 1.0, 31)
    np.testing.assert_allclose(
        Transport(coarse, slopes).otm(k), Transport(fine, refined).otm(k), rtol=1e-12
    )


def test_mean_one_is_exact() -> None:
    """E X = 1: the call struck at zero, and ∫ κ f dκ through the Lorenz curve's end."""
    for slopes in (skewed(), wild(np.random.default_rng(3), 31, -3.0, 0.5)):
        ours = Transport(KNOTS[31], slopes)
        assert ours.call(points(-700.0)).item() == 1.0
        assert abs(ours.dual(points(1.0 - 1e-14)).item() - 1.0) < 1e-13


def test_price_and_dual_potential_are_conjugate() -> None:
    ours = Transport(KNOTS[31], skewed())
    q = normal.cdf_of(np.linspace(-6.0, 6.0, 24001))
    kappa = np.exp(np.linspace(-0.8, 0.5, 27))
    theorems.assert_conjugate(q, ours.dual(q), kappa, ours.call(np.log(kappa)), slack=1e-8)
    with pytest.raises(AssertionError, match="conjugate"):
        theorems.assert_conjugate(
            q, ours.dual(q) + 1e-7, kappa, ours.call(np.log(kappa)), slack=1e-8
        )
    # the maximiser is the digital, and there G − qκ is the price to rounding
    q_star = ours.digital(np.log(kappa))
    value = ours.dual(q_star) - q_star * kappa
    np.testing.assert_allclose(value, ours.call(np.log(kappa)), rtol=0.0, atol=1e-14)


def difference(f: Callable[[Array], Array], x: Array, step: float = 1e-3) -> Array:
    """The derivative of ``f`` by differences of sixth order."""
    one, two, three = (f(x + n * step) - f(x - n * step) for n in (1, 2, 3))
    return np.asarray((45.0 * one - 9.0 * two + three) / (60.0 * step))


def test_law_is_consistent() -> None:
    """Digital, delta, density and quantile are the derivatives and inverses they claim to be."""
    ours = Transport(KNOTS[31], skewed())
    kappa = np.linspace(0.5, 1.6, 23)
    k = np.log(kappa)
    slope = difference(lambda x: ours.call(np.log(x)), kappa)
    bend = -difference(lambda x: ours.digital(np.log(x)), kappa)
    np.testing.assert_allclose(-slope, ours.digital(k), rtol=1e-10, atol=1e-11)
    np.testing.assert_allclose(bend, ours.density(k), rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(
        ours.call(k) + kappa * ours.digital(k), ours.delta(k), rtol=1e-12, atol=1e-15
    )
    np.testing.assert_allclose(kappa**2 * ours.density(k), ours.gamma(k), rtol=1e-13)
    u = points(1e-12, 1e-3, 0.2, 0.5, 0.9, 0.999999)
    np.testing.assert_allclose(ours.cdf(np.log(ours.quantile(u))), u, rtol=1e-12)
    z = points(-20.0, -6.0, -5.5, 0.0, 1e-9, 4.5, 11.0)
    np.testing.assert_allclose(ours.z(ours.log_strike(z)), z, rtol=1e-12, atol=1e-14)


def test_cvar_is_the_mean_of_its_tail() -> None:
    ours = Transport(KNOTS[31], skewed())
    node, weight = np.polynomial.legendre.leggauss(400)
    for q in (0.01, 0.25):
        u, w = 0.5 * q * (node + 1.0), 0.5 * weight
        lower = (w * ours.quantile(u)).sum().item()
        upper = (w * np.exp(ours.log_strike(-normal.quantile_of(u)))).sum().item()
        assert ours.cvar(points(q), "lower").item() == pytest.approx(lower, rel=1e-5)
        assert ours.cvar(points(q), "upper").item() == pytest.approx(upper, rel=1e-5)
    with pytest.raises(ValueError, match="sideways"):
        ours.cvar(points(0.1), "sideways")


def test_batches_are_the_slices_one_by_one(rng: np.random.Generator) -> None:
    slopes = np.stack([wild(rng, 31, -2.0, 0.0) for _ in range(24)]).reshape(2, 3, 4, 31)
    k = rng.normal(0.0, 0.3, (2, 3, 4, 7))
    batched = Transport(KNOTS[31], slopes).otm(k)
    assert batched.shape == (2, 3, 4, 7)
    alone = Transport(KNOTS[31], slopes[1, 2, 3]).otm(k[1, 2, 3])
    np.testing.assert_allclose(batched[1, 2, 3], alone, rtol=1e-14)
    of = rng.integers(0, 24, 50)
    mixed = Transport(KNOTS[31], slopes.reshape(24, 31)).otm(k.reshape(24, 7)[of, 0], of)
    np.testing.assert_array_equal(mixed, batched.reshape(24, 7)[of, 0])


def test_layout_of_the_arguments_makes_no_difference(rng: np.random.Generator) -> None:
    """Read-only, strided, of single precision where they have no more digits, or empty."""
    slopes = np.stack([wild(rng, 31, -2.0, 0.0) for _ in range(2)])
    k = np.linspace(-0.5, 0.5, 6)
    expected = Transport(KNOTS[31], slopes).otm(k)
    wide = np.repeat(slopes, 2, axis=1)[:, ::2]
    locked = slopes.copy()
    locked.setflags(write=False)
    for given in (wide, locked, np.asfortranarray(slopes)):
        ours = Transport(KNOTS[31], given)
        np.testing.assert_array_equal(ours.otm(k), expected)
        np.testing.assert_array_equal(ours.otm(np.repeat(k, 2)[::2]), expected)
        np.testing.assert_array_equal(ours.otm(k.tolist()), expected)
        assert ours.otm(np.empty(0)).shape == (2, 0)
        assert ours.otm(np.empty(0), np.empty(0, dtype=np.int64)).shape == (0,)


def test_limits_at_infinite_strikes() -> None:
    ours = Transport(KNOTS[31], skewed())
    k = points(-np.inf, np.inf, np.nan)
    for name, low, high in (
        ("otm", 0.0, 0.0),
        ("call", 1.0, 0.0),
        ("put", 0.0, np.inf),
        ("cdf", 0.0, 1.0),
        ("digital", 1.0, 0.0),
        ("density", 0.0, 0.0),
        ("gamma", 0.0, 0.0),
        ("delta", 1.0, 0.0),
        ("z", -np.inf, np.inf),
    ):
        np.testing.assert_array_equal(getattr(ours, name)(k), [low, high, np.nan], err_msg=name)
    np.testing.assert_array_equal(ours.quantile(points(0.0, 1.0)), [0.0, np.inf])
    np.testing.assert_array_equal(ours.dual(points(0.0, 1.0)), [0.0, 1.0])


@pytest.mark.parametrize("knots", [[0.0, 0.0], [1.0, -1.0], [float("nan"), 1.0]])
def test_bad_knots_are_refused(knots: list[float]) -> None:
    with pytest.raises(ValueError, match="knots must be finite and strictly increasing"):
        Transport(knots, np.ones(2))


def test_results_do_not_depend_on_threads(rng: np.random.Generator) -> None:
    slopes = np.stack([wild(rng, 31, -2.0, 0.0) for _ in range(2000)])
    k = np.linspace(-0.5, 0.5, 41)

    def evaluate(_: int) -> Array:
        ours = Transport(KNOTS[31], slopes)
        parts = [ours.otm(k), ours.density(k), ours.log_variance()[:, None]]
        return np.concatenate(parts, axis=1)

    with ThreadPoolExecutor(4) as pool:
        for found in pool.map(evaluate, range(4)):
            np.testing.assert_array_equal(found, evaluate(0))


def crash_mixture() -> Mixture:
    calm = 0.1 * np.exp(-0.05 * KNOTS[31])
    crash = calm + 0.3 * np.exp(-0.4 * (KNOTS[31] + 2.0))
    return Mixture(KNOTS[31], np.stack([calm, crash])[:, None], np.array([[0.9], [0.1]]))


def test_mixture_quantities_agree_with_each_other() -> None:
    ours = crash_mixture()
    z = points(-8.0, -2.0, 0.0, 1.0, 5.0)[None]
    np.testing.assert_allclose(ours.z(ours.log_strike(z)), z, rtol=0.0, atol=1e-10)
    q = normal.cdf_of(np.linspace(-6.0, 6.0, 4001))[None]
    kappa = np.exp(np.linspace(-0.5, 0.3, 9))[None]
    call = ours.call(np.log(kappa))
    theorems.assert_conjugate(q, ours.dual(q), kappa, call, slack=3e-7)
    q_star = ours.digital(np.log(kappa))
    np.testing.assert_allclose(ours.dual(q_star) - q_star * kappa, call, rtol=0.0, atol=1e-14)
    u = points(0.05, 0.5)[None]
    assert (ours.cvar(u, "lower") < ours.quantile(u)).all()
    assert (ours.cvar(u, "upper") > 1.0).all()
    whole = u * ours.cvar(u, "lower") + (1.0 - u) * ours.cvar(1.0 - u, "upper")
    np.testing.assert_allclose(whole, 1.0, rtol=0.0, atol=1e-13)


def test_mixture_needs_weights() -> None:
    with pytest.raises(ValueError, match="2 components need weights"):
        Mixture(KNOTS[31], np.ones((2, 1, 31)))
