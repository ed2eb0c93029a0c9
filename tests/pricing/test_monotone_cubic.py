"""Between listed maturities slopes do not fall by one unit in the last place, nor do they cross."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest

from arbiter.conventions import Array
from arbiter.pricing import maturity
from arbiter.pricing.maturity import interpolate_slopes, interpolate_survival
from arbiter.pricing.monotone_cubic import Hermite, multiply_exactly, rise_early, rise_midway
from counts import count

SURFACES = count(full=2000, reduced=100)
NEIGHBOURS = 12  # next larger and next smaller maturities of every one that is drawn


def draw_listed(seed: int) -> tuple[Array, Array, Array]:
    """Maturities ``(L,)``, slopes ``(J, L, 9)``, weights ``(J, L)``: ordered, wild, with ties."""
    rng = np.random.default_rng(seed)
    J, L = int(rng.integers(1, 4)), int(rng.integers(1, 8))
    T = np.cumsum(10.0 ** rng.uniform(-4, 1, L))
    size = (J, L, 9)
    steps = np.where(rng.random(size) < 0.4, 0.0, 10.0 ** rng.uniform(-8, 0, size))
    slopes = np.maximum.accumulate(1e-3 + np.cumsum(steps, axis=1), axis=0)
    shares = np.sort(np.sort(rng.random((J - 1, L)), axis=1), axis=0)[::-1]
    survival = np.concatenate([np.ones((1, L)), shares, np.zeros((1, L))])
    return T, slopes, survival[:-1] - survival[1:]


def draw_neighbours(T: Array, seed: int) -> Array:
    """Maturities between, before and past the listed ones, each with its next float64 numbers."""
    rng = np.random.default_rng(seed)
    beside = T * rng.uniform(0.999, 1.001, T.size)
    early = T[0] * 10.0 ** rng.uniform(-12, 0, 10)
    row = np.concatenate([rng.uniform(0.01 * T[0], 1.3 * T[-1], 30), T, beside, early])
    rows = [row]
    for end in (np.inf, 0.0):
        at = row
        for _ in range(NEIGHBOURS):
            at = np.nextafter(at, end)
            rows.append(at)
    return np.unique(np.concatenate(rows))


def test_slopes_and_weights_never_fall_and_never_cross() -> None:
    for seed in range(SURFACES):
        T, slopes, weights = draw_listed(seed)
        at = draw_neighbours(T, seed)
        for cubic in (interpolate_slopes(T, slopes), interpolate_survival(T, weights)):
            if cubic is None:
                continue
            values = cubic.at(at[at >= cubic.u[0] ** 2])
            assert (np.diff(values, axis=1) >= 0.0).all(), seed
            assert (np.diff(values, axis=0) >= 0.0).all(), seed
            assert (values > 0.0).all(), seed
        np.testing.assert_array_equal(interpolate_slopes(T, slopes).at(T), slopes)


@pytest.mark.parametrize("form", ["bernstein", "rises"])
def test_the_usual_forms_of_the_same_cubic_fall(form: str) -> None:
    """Negative control: equal to a few units in the last place, and not monotone."""
    falls = 0
    for seed in range(20):
        T, slopes, _ = draw_listed(seed)
        at = draw_neighbours(T, seed)
        at = at[at < T[-1]]
        cubic = interpolate_slopes(T, slopes)
        plain = sum_bernstein(cubic, at) if form == "bernstein" else cubic.changes_at(at)
        np.testing.assert_allclose(plain, cubic.at(at), rtol=1e-13)
        falls += int((np.diff(plain, axis=1) < 0.0).any())
    assert falls > 10


def sum_bernstein(cubic: Hermite, T: Array) -> Array:
    root = np.sqrt(T)
    i = np.minimum(np.searchsorted(cubic.u, root, side="right"), cubic.u.size - 1) - 1
    width = np.diff(cubic.u)[i][:, None]
    t = (root - cubic.u[i])[:, None] / width
    s, left, right = 1.0 - t, cubic.values[:, i], cubic.values[:, i + 1]
    first = left + cubic.tangent[:, i] * width / 3.0
    second = right - cubic.tangent[:, i + 1] * width / 3.0
    found: Array = s * s * (s * left + 3.0 * t * first) + t * t * (3.0 * s * second + t * right)
    return found


@pytest.mark.parametrize("rise", [rise_early, rise_midway])
def test_shares_of_rises_are_the_nearest_numbers_and_do_not_fall(
    rise: Callable[[float], float],
) -> None:
    function: Callable[[float], float] = getattr(rise, "py_func", rise)
    rng = np.random.default_rng(3)
    drawn = np.concatenate([rng.random(300), 10.0 ** rng.uniform(-100, 0, 100), [0.5, 1.0]])
    for start in drawn:
        t, before = start, -1.0
        for _ in range(NEIGHBOURS):
            value, exact = function(t), Fraction(float(t))
            wanted = exact * exact * (3 - 2 * exact)
            if rise is rise_early:
                wanted = 1 - (1 - exact) ** 3
            assert abs(value / float(wanted) - 1.0) < 4e-16
            assert before <= value <= 1.0
            t, before = min(np.nextafter(t, 2.0), 1.0), value


def test_products_are_exact() -> None:
    rng = np.random.default_rng(4)
    multiply = getattr(multiply_exactly, "py_func", multiply_exactly)
    lossy = 0
    for a, b in rng.uniform(0.0, 3.0, (500, 2)).tolist():
        product, lost = multiply(a, b)
        assert Fraction(product) + Fraction(lost) == Fraction(a) * Fraction(b)
        lossy += lost != 0.0
    assert lossy > 400


def test_plain_arithmetic_of_a_share_falls() -> None:
    """Negative control of the two sums in :func:`rise_midway`."""
    start = np.random.default_rng(5).random(2000)
    t = np.array([start, np.nextafter(start, 1.0)])
    assert (np.diff(t * t * (3.0 - 2.0 * t), axis=0) < 0.0).any()


@pytest.mark.parametrize("components", [1, 2])
def test_sensitivities_are_those_of_the_cubics(components: int) -> None:
    """Against central differences, between inner maturities alone and among those at the ends."""
    rng = np.random.default_rng(components)
    T = np.sort(rng.uniform(0.02, 2.0, 9))
    calm = np.sort(rng.uniform(0.05, 0.5, (9, 4)), axis=0)
    calm[5, 0] = calm[4, 0]  # flat there, where the tangent is zero
    slopes = np.stack([calm, 1.5 * calm])[:components]
    inner = np.concatenate([T[2:5] + 1e-3, 0.5 * (T[1:6] + T[2:7]), T[3:5]])
    for at in (inner, np.concatenate([[0.01, 1.2 * T[-1]], inner])):
        found = maturity.slope_derivatives_at(T, slopes, at)  # (U, J, J, L, n)
        for j, i in np.ndindex(components, T.size):
            step = np.zeros_like(slopes)
            step[j, i] = 1e-7 * np.arange(slopes.shape[2]).astype(bool)  # the flat knot has a kink
            moved = [maturity.slopes_at(T, slopes + sign * step, at) for sign in (1, -1)]
            change = ((moved[0] - moved[1]) / 2e-7).transpose(1, 0, 2)
            np.testing.assert_allclose(found[:, :, j, i, 1:], change[:, :, 1:], atol=1e-6)
        # negative control: a tenth of a share more is seen
        assert np.abs(1.1 * found - found).max() > 1e-2
    again = maturity.slope_derivatives_at(T, slopes, np.append(inner, 1.2 * T[-1]))[:-1]
    flat = maturity.slope_derivatives_at(T, slopes, inner)
    np.testing.assert_allclose(flat, again, atol=1e-14)  # closed forms and complex steps


def test_sensitivities_are_linear() -> None:
    """Complex steps go through the same cubics without the limits of ordered ones."""
    T, slopes, _ = draw_listed(7)
    at = draw_neighbours(T, 7)
    cubic = interpolate_slopes(T, slopes)
    turned = Hermite(cubic.u, -cubic.values, -cubic.tangent)
    np.testing.assert_array_equal(turned.changes_at(at), -cubic.changes_at(at))
    step = 1e-6 * np.ones_like(slopes)
    moved = interpolate_slopes(T, slopes + step)
    change = moved.at(at) - cubic.at(at)
    linear = Hermite(cubic.u, moved.values - cubic.values, moved.tangent - cubic.tangent)
    np.testing.assert_allclose(linear.changes_at(at), change, atol=1e-14 * slopes.max())
    assert maturity.slope_derivatives_at(T, slopes, T).shape[0] == T.size
