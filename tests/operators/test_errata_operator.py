"""The paper on its operator (Green kernel, Q-Align, guard): each claim fails, ours holds.

The order is that of docs/errata.md, which names these tests.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest

from arbiter import example
from arbiter.conventions import Array
from claims import QUARTER, spectral_norm, spectral_radius
from counts import count


def test_green_expansion_of_the_recursion(rng: np.random.Generator) -> None:
    """Paper: y_ℓ = Σ_{s≤ℓ} A_{ℓ−1}…A_s B_s u_s. The recursion gives Q_ℓ Σ_{s<ℓ} A_{ℓ−1}…A_{s+1}."""
    A, B, Q = rng.normal(size=(3, 6, 3, 3))
    u, last = rng.normal(size=(6, 3)), 5
    h = np.zeros(3)
    for s in range(last):
        h = A[s] @ h + B[s] @ u[s]

    def expansion(first: int, end: int) -> Array:
        total = np.zeros(3)
        for s in range(end):
            term = B[s] @ u[s]
            for j in range(s + first, last):
                term = A[j] @ term
            total += term
        return total

    np.testing.assert_allclose(Q[last] @ expansion(1, last), Q[last] @ h, rtol=1e-12)
    assert np.abs(expansion(0, last + 1) - Q[last] @ h).max() > 0.1


def test_normalised_gate_need_not_price_the_forward() -> None:
    """Paper: normalising the gate makes the discounted asset a martingale, and back."""
    kappa = np.linspace(0.5, 1.0, 501)
    gate = np.full(501, 2.0)
    assert np.trapezoid(gate, kappa) == pytest.approx(1.0)
    assert np.trapezoid(kappa * gate, kappa) == pytest.approx(0.75)  # the martingale defect: −1/4
    surface = example()
    x = np.linspace(-12.0, 12.0, 4001)
    k = surface.log_strike(x, QUARTER)
    density = surface.density(k, QUARTER)
    assert np.trapezoid(density, np.exp(k)) == pytest.approx(1.0, abs=1e-5)
    assert np.trapezoid(np.exp(k) * density, np.exp(k)) == pytest.approx(1.0, abs=1e-5)


def test_spectral_radius_does_not_bound_the_green_sum() -> None:
    """Paper: ρ(A)Δ ≤ 1 − ε is enough. AΔ = ½ gives R = 2, and products of R explode."""
    resolvent = 1.0 / (1.0 - 0.5)
    assert resolvent == 2.0
    assert sum(resolvent**s * 0.1 for s in range(60)) > 1e16
    A, step = 2.0, 0.1  # read as h ↦ Ah, the first recursion of section 3.1: no better
    assert A * step <= 0.9
    assert A**60 > 1e18
    # Its proof takes one norm for all steps; radii say nothing about products of two matrices.
    raising, lowering = np.array([[0.0, 2.0], [0.0, 0.0]]), np.array([[0.0, 0.0], [2.0, 0.0]])
    assert spectral_radius(raising) == spectral_radius(lowering) == 0.0
    assert spectral_radius(raising @ lowering) == 4.0
    R = [np.linalg.inv(np.eye(2) - M) for M in (raising, lowering)]
    assert spectral_radius(R[0] @ R[1]) > 5.0


def test_dissipative_steps_bound_the_green_sum(rng: np.random.Generator) -> None:
    """Symmetric part of A below −μ and ‖B_s‖ ≤ bΔ_s: ‖R‖ ≤ 1/(1+Δμ), sum ≤ b(1+μΔ̄)/μ."""
    for _ in range(count(full=200, reduced=20)):
        mu, b, steps = rng.uniform(0.1, 3.0), rng.uniform(0.1, 2.0), rng.uniform(0.001, 1.0, 40)
        total, product = 0.0, np.eye(5)
        for step in steps[::-1]:
            G = rng.normal(size=(5, 5))
            A = 5.0 * (G - G.T) - rng.uniform(0.0, 1.0) * G @ G.T - mu * np.eye(5)
            R = np.linalg.inv(np.eye(5) - step * A)
            assert spectral_norm(R) <= (1.0 + 1e-12) / (1.0 + step * mu)
            B = rng.normal(size=(5, 5))
            total += spectral_norm(product @ B) * b * step / spectral_norm(B)
            product = product @ R
        assert total <= b * (1.0 + mu * steps.max()) / mu


def test_a_gate_that_reads_its_input_is_not_lipschitz() -> None:
    """Paper: the product of the norms bounds the layer. A gate multiplies two inputs."""

    def gated(gate: float, value: float) -> float:
        return value / (1.0 + math.exp(-gate))

    quotients = [(gated(0.1, u) - gated(-0.1, u)) / 0.2 for u in (1.0, 100.0, 10_000.0)]
    assert quotients[2] > 1000.0
    assert all(s <= u / 4.0 for s, u in zip(quotients, (1.0, 100.0, 10_000.0), strict=True))


def test_bounded_states_need_injections_of_order_the_step() -> None:
    """Paper, A.2: ‖B‖ ≤ b and a nonexpansive φ are enough. The bound belongs to ‖B‖ ≤ bΔ."""
    mu = 1.0

    def state(injection: Callable[[float], float], n: int) -> float:
        step, h = 10.0 / n, 0.0
        for _ in range(n):
            h = (h + injection(step)) / (1.0 + mu * step)
        return h

    assert state(lambda _: 1.0, 10_000) > 900.0
    for n in (10, 100, 10_000):
        assert state(lambda step: step, n) <= (1.0 + mu * 10.0 / n) / mu
    assert math.log1p(math.exp(0.0)) > 0.69  # softplus is nonexpansive, and yet |φ(0)| > |0|


def clipped(matrix: Array) -> Array:
    """The projection onto the spectral unit ball: singular values clipped at one."""
    U, s, Vt = np.linalg.svd(matrix)
    return np.asarray((U * np.minimum(s, 1.0)) @ Vt)


def scaled(matrix: Array) -> Array:
    """The paper's rule: the whole matrix divided by its norm."""
    return matrix / max(spectral_norm(matrix), 1.0)


@pytest.mark.parametrize("n", [2, 4, 16])
def test_scaling_onto_the_spectral_ball_expands_distances(n: int, rng: np.random.Generator) -> None:
    """Paper: scaling is a (firmly) nonexpansive projection. It expands by up to √n."""
    identity, first = np.eye(n), np.zeros((n, n))
    first[0, 0] = 1.0
    direction = math.sqrt((n - 1) / n) * first - (identity - first) / math.sqrt(n * (n - 1))
    moved = identity + 1e-4 * direction
    distance = np.linalg.norm(moved - identity)
    assert np.linalg.norm(scaled(moved) - scaled(identity)) > 0.999 * math.sqrt(n) * distance
    assert np.linalg.norm(clipped(moved) - clipped(identity)) <= distance
    for _ in range(20):
        V, W = rng.normal(size=(2, n, n))
        assert np.linalg.norm(clipped(V) - clipped(W)) <= np.linalg.norm(V - W) + 1e-12
        assert spectral_norm(clipped(V)) <= 1.0 + 1e-12
        assert np.linalg.norm(V - clipped(V)) <= np.linalg.norm(V - scaled(V)) + 1e-12


def test_one_power_iteration_underestimates_the_norm(rng: np.random.Generator) -> None:
    """Paper: one power iteration gives ‖W‖. It gives a lower bound, and W stays outside."""
    W = rng.normal(size=(64, 64))
    v = rng.normal(size=64)
    v = W.T @ (W @ v)
    estimate = float(np.linalg.norm(W @ v) / np.linalg.norm(v))
    assert estimate < spectral_norm(W)
    assert spectral_norm(W / estimate) > 1.1
    assert spectral_norm(clipped(W)) <= 1.0 + 1e-12


def test_guard_scaling_is_not_the_nearest_correction() -> None:
    """Paper: scaling A is the smallest Frobenius correction. Not for diag(2, ½), bound 1."""
    A = np.diag([2.0, 0.5])
    by_scaling, by_clipping = A / spectral_radius(A), np.diag([1.0, 0.5])
    assert spectral_radius(by_scaling) == spectral_radius(by_clipping) == 1.0
    assert np.linalg.norm(A - by_clipping) < np.linalg.norm(A - by_scaling)
