"""The interior-point method, on problems whose solution is known."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import isotonic_regression

from arbiter.conventions import Array
from arbiter.fitting.interior_point import Expansion, InteriorPoint, Status
from arbiter.fitting.order_constraints import OrderConstraints


class MonotonePoint(NamedTuple):
    problem: Monotone
    z: Array

    @property
    def value(self) -> float:
        return self.problem.value(self.z)

    @property
    def expansion(self) -> Expansion:
        return self.problem.expand(self.z)


class Monotone:
    """``½ Σ w (z − y)²``, and a record of all points at which it was expanded."""

    def __init__(self, y: Array, w: Array, lie: float = 1.0) -> None:
        self.y, self.w, self.lie = y, w, lie
        self.visited: list[Array] = []

    def evaluate(self, z: Array) -> MonotonePoint:
        return MonotonePoint(self, z)

    def value(self, z: Array) -> float:
        return float(0.5 * np.sum(self.w * (z - self.y) ** 2))

    def expand(self, z: Array) -> Expansion:
        self.visited.append(z)
        matrix = np.zeros((z.size, 2))
        matrix[:, 0] = self.w
        return Expansion(self.value(z), self.lie * self.w * (z - self.y), matrix)


def chain(size: int) -> OrderConstraints:
    """Each unknown at least the one before; the first above −9, the last below 9."""
    index = np.arange(size)
    high = np.concatenate([index[1:], [0, -1]])
    low = np.concatenate([index[:-1], [-1, size - 1]])
    return OrderConstraints(high, low, np.concatenate([np.zeros(size - 1), [9.0, 9.0]]))


def start(size: int) -> Array:
    return np.linspace(-3.0, 3.0, size)


def slacks(order: OrderConstraints, z: Array) -> Array:
    padded = np.append(z, 0.0)
    return np.asarray(padded[order.high] - padded[order.low] + order.offset)


@given(st.integers(0, 10_000), st.integers(2, 60))
def test_monotone_least_squares_is_that_of_pool_adjacent_violators(seed: int, size: int) -> None:
    rng = np.random.default_rng(seed)
    y, w = rng.normal(0.0, 1.0, size), rng.uniform(0.2, 5.0, size)
    problem, order = Monotone(y, w), chain(size)
    interior = InteriorPoint.start_at(problem, order, start(size), scale=1e-3)
    interior, status = interior.run(1e-8, 100)
    exact = isotonic_regression(y, weights=w).x
    assert status is Status.CONVERGED
    assert np.abs(interior.z - exact).max() < 1e-3
    best = problem.value(exact)
    assert problem.value(interior.z) <= best * (1.0 + 1e-7) + 1e-10
    # every iterate is strictly inside, and the unconstrained minimum would not be
    assert all(slacks(order, z).min() > 0.0 for z in problem.visited)
    assert slacks(order, y).min() < 0.0 or np.all(np.diff(y) > 0.0)


def test_a_wall_does_not_hold_an_iterate_that_ran_into_it() -> None:
    """Far from the solution and with one constraint: a barrier that fell too fast would stick."""
    y, w = np.array([2.04, -2.56]), np.array([4.0, 3.0])
    problem = Monotone(y, w)
    interior = InteriorPoint.start_at(problem, chain(2), start(2), scale=1e-3)
    interior, status = interior.run(1e-4, 100)
    assert status is Status.CONVERGED
    best = problem.value(isotonic_regression(y, weights=w).x)
    assert problem.value(interior.z) < best * (1.0 + 1e-3)


def test_steps_do_not_grow_with_the_size_of_the_problem() -> None:
    rng = np.random.default_rng(1)
    steps = []
    for size in (20, 200, 2000):
        y = np.sin(np.linspace(0.0, 9.0, size)) + rng.normal(0.0, 0.5, size)
        interior = InteriorPoint.start_at(
            Monotone(y, np.ones(size)), chain(size), start(size), scale=1e-9
        )
        interior, status = interior.run(1e-6, 100)
        assert status is Status.CONVERGED
        steps.append(interior.iterations)
    assert max(steps) <= 30


def test_running_out_of_steps_has_a_name() -> None:
    y = np.array([3.0, -2.0, 1.0, 0.5])
    interior = InteriorPoint.start_at(Monotone(y, np.ones(4)), chain(4), start(4), scale=1e-9)
    stopped, status = interior.run(1e-10, 2)
    assert status is Status.MAX_ITERATIONS
    assert stopped.iterations == 2
    assert stopped.run(1e-10, 50)[1] is Status.CONVERGED  # it goes on where it stopped
    assert interior.iterations == 0
    assert "FitOptions.iterations" in Status.MAX_ITERATIONS.explain()


def test_an_objective_that_lies_about_its_gradient_stalls() -> None:
    y = np.array([3.0, -2.0, 1.0, 0.5])
    interior = InteriorPoint.start_at(
        Monotone(y, np.ones(4), lie=-1.0), chain(4), start(4), scale=1e-9
    )
    assert interior.run(1e-10, 200)[1] is Status.STALLED
    assert "try a larger roughness" in Status.STALLED.explain()


def test_a_start_outside_the_constraints_is_refused() -> None:
    y = np.zeros(4)
    with pytest.raises(ValueError, match="does not satisfy the constraints strictly"):
        InteriorPoint.start_at(Monotone(y, np.ones(4)), chain(4), np.zeros(4), scale=1e-9)


def test_a_matrix_too_narrow_for_the_constraints_is_refused() -> None:
    problem, order = Monotone(np.zeros(9), np.ones(9)), chain(9)
    InteriorPoint.start_at(problem, order, start(9), scale=1e-9)
    far = order._replace(high=np.array([8]), low=np.array([0]), offset=np.zeros(1))
    with pytest.raises(ValueError, match="a matrix of 9 rows and 2 diagonals has no room"):
        InteriorPoint.start_at(problem, far, start(9), scale=1e-9)
