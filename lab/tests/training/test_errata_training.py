"""The paper on training and its theorems: each statement fails, the corrected one holds.

The order is that of docs/errata.md, which names these tests.
"""

from __future__ import annotations

import math
from itertools import combinations, pairwise

import numpy as np
import pytest
import torch
from scipy.optimize import linprog

import theorems
from arbiter import example
from arbiter.conventions import Array
from claims import (
    QUARTER,
    Field,
    assert_convex,
    calls,
    largest_bump,
    spectral_norm,
    spectral_radius,
)


def test_signed_residuals_need_signed_multipliers() -> None:
    """Paper: λ ≥ 0 throughout. A negative residual then costs nothing, a positive one ∞."""

    def worst(residual: float, low: float, high: float) -> float:
        return max(low * residual, high * residual)

    assert worst(-1.0, 0.0, 10.0) == 0.0
    assert worst(-1.0, -10.0, 10.0) == worst(1.0, -10.0, 10.0) == 10.0
    assert worst((-1.0) ** 2, 0.0, 10.0) == 10.0
    unbounded = linprog([-0.001], bounds=[(0.0, None)], method="highs")
    assert unbounded.status == 3  # sup over λ ≥ 0, at a residual of 0.001


def extragradient(field: Field, project: Field, z: Array, step: float, steps: int) -> list[Array]:
    path = [z]
    for _ in range(steps):
        y = project(z - step * field(z))
        z = project(z - step * field(y))
        path.append(z)
    return path


def natural_residual(field: Field, project: Field, z: Array, step: float) -> float:
    return float(np.linalg.norm(z - project(z - step * field(z)))) / step


def test_extragradient_residual_is_the_natural_one(rng: np.random.Generator) -> None:
    """Paper: min ‖F(z)‖² ≤ O(L²D²/K). F ≡ 1 on [0, 1] has its solution at 0, where ‖F‖ = 1."""

    def one(z: Array) -> Array:
        return np.ones_like(z)

    def unit(z: Array) -> Array:
        return np.clip(z, 0.0, 1.0)

    path = extragradient(one, unit, np.ones(1), 0.1, 100)
    assert path[-1][0] == 0.0
    assert min(float(np.linalg.norm(one(z))) for z in path) == 1.0
    assert natural_residual(one, unit, path[-1], 0.1) == 0.0
    # A bilinear game on a box, and the bound D²/(η²(1 − η²L²)K) on the natural residual.
    M = rng.normal(size=(4, 4))

    def game(z: Array) -> Array:
        return np.concatenate([M @ z[4:] + 0.3, -M.T @ z[:4] + 0.2])

    step = 0.5 / spectral_norm(M)
    path = extragradient(game, unit, rng.uniform(size=8), step, 4000)
    solution = path[-1]
    assert natural_residual(game, unit, solution, step) < 1e-6
    for K in (10, 100, 1000):
        best = min(natural_residual(game, unit, z, step) ** 2 for z in path[:K])
        apart = float(np.sum((path[0] - solution) ** 2))
        assert best <= apart / (step**2 * 0.75 * K)
    assert float(np.linalg.norm(game(solution))) > 0.1


def test_projection_errors_of_order_the_step_leave_a_floor() -> None:
    """Paper: ‖e‖ = O(η) does not show in the rate. F(z) = z with e = η stays at ‖F‖ = 1."""
    step, z = 0.5, 1.0
    for _ in range(1000):
        y = z - step * z + step
        z = z - step * y + step
    assert z == 1.0
    for _ in range(1000):
        z -= step * (z - step * z)
    assert abs(z) < 1e-100


def test_noise_that_the_step_does_not_multiply_leaves_a_floor(rng: np.random.Generator) -> None:
    """Paper: the floor is O(σ²). With F = Lz and the theorem's step it is O(L²σ²)."""

    def floor(L: float, multiplied: bool) -> float:
        step, z = 0.5 / L, np.zeros(4000)
        size = step if multiplied else 1.0
        for _ in range(40):
            first, second = size * rng.normal(size=(2, 4000))
            y = z - step * L * z + first
            z = z - step * L * y + second
        return float(np.mean((L * z) ** 2))

    assert floor(100.0, multiplied=False) > 5000.0 * floor(1.0, multiplied=False)
    assert floor(100.0, multiplied=True) < 1.2 * floor(1.0, multiplied=True)


def test_bilinear_games_are_not_cocoercive(rng: np.random.Generator) -> None:
    """Paper, A.5: ⟨F(y)−F(z), y−z⟩ ≥ ‖F(y)−F(z)‖²/L, and ⟨F(z), y−z⟩ ≥ 0 at y = z − ηF(z)."""
    J = np.array([[0.0, 1.0], [-1.0, 0.0]])  # L = θλ, monotone and 1-Lipschitz
    d = rng.normal(size=2)
    assert d @ J @ d == pytest.approx(0.0, abs=1e-15)
    assert np.sum((J @ d) ** 2) > 0.0
    z, step = np.array([1.0, 2.0]), 0.5
    assert (J @ z) @ ((z - step * J @ z) - z) < 0.0
    G = rng.normal(size=(3, 3))
    H = G @ G.T  # gradients of convex functions are cocoercive
    x = rng.normal(size=3)
    assert x @ H @ x >= np.sum((H @ x) ** 2) / spectral_norm(H) - 1e-12


def test_small_residual_is_near_only_by_strong_monotonicity() -> None:
    """Paper: ‖z − z*‖ ≤ r/L (and, in B.3, a Lipschitz map bounds its inverse). It is r/μ."""
    slope = np.array([1.0, 0.01])  # F(z) = slope·z: L = 1, μ = 0.01, z* = 0
    z = np.array([0.0, 1.0])
    r, distance = float(np.linalg.norm(slope * z)), float(np.linalg.norm(z))
    assert distance > 50.0 * r / slope.max()
    assert r / slope.max() <= distance <= r / slope.min()


def test_gradient_of_a_network_is_not_monotone() -> None:
    """Paper: F is the monotone saddle operator. Two weights and one quote suffice: (ab − 1)²."""

    def gradient(w: Array) -> Array:
        return np.asarray(2.0 * (w[0] * w[1] - 1.0) * w[::-1])

    a, b = np.array([0.1, 0.1]), np.zeros(2)
    assert (gradient(a) - gradient(b)) @ (a - b) < 0.0
    first_layer_only = np.array([2.0, 0.0])  # with b fixed at 1 the loss is convex
    assert (first_layer_only * (a - b)) @ (a - b) > 0.0


def test_conditioning_bound_is_zero_where_nothing_propagates() -> None:
    """Paper, T1: κ(J) ≤ C‖A‖L_g m. A = 0 makes it 0, while the derivative in B is not."""
    A, gate_lipschitz, rank, u = 0.0, 1.0, 3, np.array([0.3, 0.5, 0.7])
    h = 0.0
    for value in u:  # the derivative in B of h ↦ e^{ΔA} h + B u
        h = math.exp(0.1 * A) * h + value
    assert h == pytest.approx(1.5)
    assert abs(A) * gate_lipschitz * rank == 0.0
    jacobian = np.diag([1.0, 1e-3])  # and a bound on ‖J‖ is none on its condition number
    assert spectral_norm(jacobian) == 1.0
    assert np.linalg.cond(jacobian) == pytest.approx(1000.0)


def test_information_bound_falls_with_the_sample(rng: np.random.Generator) -> None:
    """Paper, T2: E‖θ̂ − θ‖² ≥ tr I⁻¹ for n samples. The mean of n normals has 1/n of it."""
    n, information = 100, 1.0
    means = rng.normal(size=(2000, n)).mean(axis=1)
    assert float(np.mean(means**2)) < 0.02 / information
    assert float(np.mean(means**2)) == pytest.approx(1.0 / (n * information), rel=0.15)


def test_coverage_factor_points_the_wrong_way() -> None:
    """Paper, T2′ and T5: error ∝ (1 − cov)⁻¹. It is infinite where nothing is missing."""
    k = np.linspace(-0.3, 0.2, 65)
    smile = example().iv(k, QUARTER)
    errors, shortfalls = [], []
    for stride in (1, 2, 4, 8, 16):
        filled = np.interp(k, k[::stride], smile[::stride])
        errors.append(float(np.abs(filled - smile).max()))
        shortfalls.append(1.0 - k[::stride].size / k.size)
    assert errors[0] == shortfalls[0] == 0.0
    assert all(a < b for a, b in pairwise(errors))
    factors = [1.0 / s for s in shortfalls[1:]]
    assert all(a > b for a, b in pairwise(factors))  # falls while the error rises
    assert all(a < b for a, b in pairwise(shortfalls))  # section 7.2's factor rises with it


def test_lipschitz_functions_are_a_richer_class_than_parameters(rng: np.random.Generator) -> None:
    """Paper, T4: R_n ≤ CΛ√(d/n). Draws from a lattice in d = 3 need n^{−1/3}.

    Any signs times half a cell are 1-Lipschitz on the lattice, hence in the class. The signs
    that agree with the Rademacher sums at the points give a lower bound on the supremum.
    """
    axis = np.linspace(0.0, 1.0, 4)
    points = np.stack(np.meshgrid(axis, axis, axis), axis=-1).reshape(-1, 3)
    value = rng.choice([-1.0, 1.0], size=64) / 6.0
    for i, j in combinations(range(64), 2):
        assert abs(value[i] - value[j]) <= np.linalg.norm(points[i] - points[j]) + 1e-12
    claimed, true = [], []
    for N in (8, 16, 32, 64):
        n = N**3
        signs, drawn = rng.choice([-1.0, 1.0], size=n), rng.integers(0, n, size=n)
        supremum = 0.5 / (N - 1) * np.abs(np.bincount(drawn, weights=signs)).sum() / n
        claimed.append(supremum / math.sqrt(3.0 / n))
        true.append(supremum * n ** (1.0 / 3.0))
    assert all(b > 1.25 * a for a, b in pairwise(claimed))  # no constant C will do
    assert max(true) < 1.3 * min(true)


def test_guarded_explicit_step_need_not_contract() -> None:
    """Paper, T6: ρ(A)Δ ≤ 1 − ε makes the step contract. A = 0 keeps it, W = I doubles it."""
    A, W, step, mu = np.zeros((2, 2)), np.eye(2), 0.5, 0.8
    assert spectral_radius(A) * step <= 0.9
    assert spectral_norm(W) <= 1.0
    assert spectral_norm(np.eye(2) + step * A) == 1.0
    assert spectral_norm(np.eye(2) + step * A + W) == 2.0
    dissipative = np.array([[-mu, 3.0], [-3.0, -mu]])
    implicit = np.asarray(np.linalg.inv(np.eye(2) - step * dissipative), dtype=np.float64)
    assert spectral_norm(implicit) <= 1.0 / (1.0 + step * mu)


def test_averages_of_plain_descent_ascent_diverge() -> None:
    """Paper, B.7: their gap falls like 1/K. On θλ they grow; extragradient steps converge."""
    J, step = np.array([[0.0, 1.0], [-1.0, 0.0]]), 0.5
    z, total = np.array([1.0, 0.0]), np.zeros(2)
    sizes = []
    for k in range(1, 201):
        z = z - step * J @ z
        total += z
        if k % 50 == 0:
            sizes.append(float(np.linalg.norm(total / k)))
    assert all(b > 10.0 * a for a, b in pairwise(sizes))
    path = extragradient(lambda v: J @ v, lambda v: v, np.array([1.0, 0.0]), step, 200)
    assert float(np.linalg.norm(path[-1])) < 1e-6


def test_calls_that_fall_with_maturity_are_an_arbitrage() -> None:
    """Paper, T7 and C: calls nonincreasing in T. With no arbitrage they rise, here strictly."""
    surface, kappa = example(), np.linspace(0.6, 1.4, 41)
    price = calls(surface, kappa, surface.maturities)
    theorems.assert_rises_in_maturity(price)
    assert np.diff(price, axis=0).min() > 0.0
    with pytest.raises(AssertionError, match="calendar"):
        theorems.assert_rises_in_maturity(price[::-1])


def test_discretised_vix_sees_grid_prices_only() -> None:
    """Paper, T7, C.1, C.2: a convex bump between strikes moves the discretised VIX².

    Convex, nonnegative and zero at both ends is zero. A bump that the density can carry
    changes the log contract; calls on the grid and the discretised VIX² both miss it.
    """
    assert largest_bump(25, convex=True) == pytest.approx(0.0, abs=1e-12)
    surface, strikes = example(), np.arange(16, 25) / 20.0
    left, right = 0.95, 1.0
    fine = np.linspace(left, right, 401)

    def bump(x: Array) -> Array:
        return np.asarray(np.maximum((x - left) * (right - x), 0.0) ** 3)

    def discretised(price: Array) -> float:
        otm = price - np.maximum(1.0 - strikes, 0.0)
        return float(2.0 / QUARTER * np.sum(0.05 / strikes**2 * otm))

    curvature = np.abs(np.gradient(np.gradient(bump(fine), fine), fine)).max()
    size = 0.5 * surface.density(np.log(fine), QUARTER).min() / curvature
    between, listed = (calls(surface, x, np.array([QUARTER]))[0] for x in (fine, strikes))
    for sign in (-1.0, 1.0):
        assert_convex(fine, between + sign * size * bump(fine))
        moved = listed + sign * size * bump(strikes)
        assert np.array_equal(moved, listed)
        assert discretised(moved) == discretised(listed)
    change = 2.0 / QUARTER * np.trapezoid(size * bump(fine) / fine**2, fine)
    assert change > 1e-4 * float(surface.variance_swap(QUARTER))
