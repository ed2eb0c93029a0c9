"""A primal-dual interior-point Gauss-Newton method for ordered unknowns.

Minimises a loss of residuals plus a quadratic penalty, subject to differences of unknowns being
nonnegative. The star order couples neighbours only, so that every step is one banded Cholesky
factorisation: its cost is linear in the number of expiries, and stays so when a few columns
couple unknowns across them. Predictor and corrector follow
Mehrotra (1992); the step is globalised by a line search on the barrier function.
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.linalg.lapack import dpbtrf, dpbtrs, dpotrf, dpotrs

from arbiter.conventions import Array

Indices = NDArray[np.int64]

_BOUNDARY_STEP_SHARE = 0.995  # share of the way to the nearest constraint that a step may go
RELATIVE_RIDGE = 1e-13  # of the largest diagonal: what no quote sees may be singular to rounding
_MAX_LOG_SLOPE_STEP = 1.0  # change of any unknown in one step: a factor e of a slope
_ARMIJO = 1e-4
_LAST_STEP_SHARE = 0.7  # a step on the quadratic model that gets this far is the last one
_MAX_HALVINGS = 12
_MIN_DAMPING, _MAX_DAMPING = 1e-7, 1e4
_BARRIER_SHARE_OF_DECREASE = (
    0.01  # the barrier falls no faster than the objective: else an iterate sticks to a wall
)
_MAX_DUAL_RATIO = 1e3  # duals stay within this factor of their centre


class Status(StrEnum):
    """How a fit ended."""

    CONVERGED = "converged"
    STALLED = "stalled"
    MAX_ITERATIONS = "max_iterations"

    def explain(self) -> str:
        """The ending as a sentence, with a remedy where one is needed."""
        return _STATUS_SENTENCES[self]


_STATUS_SENTENCES = {
    Status.CONVERGED: "no step promises a better fit",
    Status.STALLED: "no step improves the fit, though one should: try a larger roughness, or "
    "look for quotes in wrong units",
    Status.MAX_ITERATIONS: "the allowed steps ran out: raise FitOptions.iterations",
}


class OrderConstraints(NamedTuple):
    """Constraints ``z[high] − z[low] + offset ≥ 0``; an index of −1 stands for zero."""

    high: Indices  # (c,)
    low: Indices  # (c,)
    offset: Array  # (c,)


class Expansion(NamedTuple):
    """A quadratic model of the objective."""

    value: float
    gradient: Array  # (p,)
    matrix: Array  # (bandwidth+1, p) lower banded
    coupling: Array | None = None  # (p, r) few columns U whose U Uᵀ is added to the matrix


class Objective(Protocol):
    """What is minimised."""

    def value(self, z: Array) -> float:
        """The objective; infinite where it cannot be evaluated."""

    def expand(self, z: Array) -> Expansion:
        """The objective with gradient and Gauss-Newton matrix."""


class ConstraintOperator:
    """The constraints as a sparse operator."""

    def __init__(self, order: OrderConstraints, size: int) -> None:
        self.order, self.size = order, size
        both = np.flatnonzero((order.high >= 0) & (order.low >= 0))
        first = np.minimum(order.high, order.low)[both]
        apart = np.abs(order.high - order.low)[both]
        self._both, self._beside = both, apart * size + first

    def evaluate_slacks(self, z: Array) -> Array:
        """``A z + offset``."""
        return self.apply_matrix(z) + self.order.offset

    def apply_matrix(self, z: Array) -> Array:
        """``A z``."""
        padded = np.append(z, 0.0)
        return np.asarray(padded[self.order.high] - padded[self.order.low])

    def apply_transpose(self, weight: Array) -> Array:
        """``Aᵀ weight``."""
        up = np.bincount(self.order.high + 1, weight, self.size + 1)
        return np.asarray((up - np.bincount(self.order.low + 1, weight, self.size + 1))[1:])

    def add_weighted_gram(self, matrix: Array, weight: Array) -> None:
        """``matrix += Aᵀ diag(weight) A`` in lower banded form."""
        up = np.bincount(self.order.high + 1, weight, self.size + 1)
        matrix[0] += (up + np.bincount(self.order.low + 1, weight, self.size + 1))[1:]
        matrix.reshape(-1)[self._beside] -= weight[self._both]  # each pair occurs once


class InteriorPointSolver:
    """An iterate, its duals, and the steps that improve them.

    Args:
        objective: What is minimised.
        order: The constraints.
        z: ``(p,)`` a point strictly inside them.
        scale: Value below which the objective counts as zero.

    Attributes:
        inner: Steps on one quadratic model, where constraints block the way.
        expected: What the objective is expected to fall to, if that is known.
    """

    def __init__(
        self, objective: Objective, order: OrderConstraints, z: Array, scale: float
    ) -> None:
        self.objective, self.slack, self.z = objective, ConstraintOperator(order, z.size), z
        self.scale = scale
        self.y = self.slack.evaluate_slacks(z)
        if not self.y.min() > 0.0:
            raise ValueError("the starting point does not satisfy the constraints strictly")
        self.local = objective.expand(z)
        # duals in proportion to the loss: too small, and the first steps run into a wall
        self.duals = 0.1 * max(self.local.value, self.scale) / (self.y.size * self.y)
        self.expected = np.inf
        self.iterations = 0
        self.inner = 1
        self._damping = 0.0

    @property
    def gap(self) -> float:
        """Complementarity: what the constraints may still hide."""
        return float(self.y @ self.duals)

    def set_expected_value(self, value: float, share: float) -> None:
        """Choose the duals for an objective that will soon fall to ``value``.

        Else a start that is a few steps from the end waits for the constraints. ``share`` of
        the value is the complementarity.
        """
        self.expected = value
        self.duals = share * max(value, self.scale) / (self.y.size * self.y)

    def refresh(self) -> None:
        """Read the objective anew, after it was changed."""
        self.local = self.objective.expand(self.z)

    def matrix(self) -> Array:
        """The Gauss-Newton matrix with the constraints' stiffness, lower banded."""
        matrix = self.local.matrix.copy()
        self.slack.add_weighted_gram(matrix, self.duals / self.y)
        return matrix

    def run(self, tolerance: float, limit: int, centre: float = 0.0) -> Status:
        """Steps until one promises less than ``tolerance`` of the objective, or ``limit`` steps.

        ``centre`` keeps the products of slacks and duals from falling below it.
        """
        for _ in range(limit):
            promised = self._step(centre)
            if promised is None:
                if self._damping > _MAX_DAMPING:
                    return Status.STALLED
                continue
            enough = tolerance * max(self.local.value, self.scale)
            if promised < enough and self.gap < enough + 2.0 * centre * self.y.size:
                return Status.CONVERGED
        return Status.MAX_ITERATIONS

    def _step(self, centre: float) -> float | None:
        """One step; returns the decrease it promised, or None if none could be made."""
        self.iterations += 1
        found = self._solve(centre)
        if found is None:
            self._damping = max(10.0 * self._damping, 1e-4)
            return None
        dz, duals, mu = found
        dy = self.slack.apply_matrix(dz)
        fall = -float((self.local.gradient - self.slack.apply_transpose(mu / self.y)) @ dz)
        merit = self.local.value - mu * float(np.log(self.y).sum())
        whole = min(1.0, _MAX_LOG_SLOPE_STEP / float(np.abs(dz).max()))
        size = whole
        for _ in range(_MAX_HALVINGS):
            z, y = self.z + size * dz, self.y + size * dy
            value = self.objective.value(z)
            trial = value - mu * float(np.log(y).sum())
            if trial <= merit - _ARMIJO * size * fall + 1e-12 * abs(merit):
                break
            size *= 0.5
        else:
            self._damping = max(10.0 * self._damping, 1e-3)
            return None
        self.z, self.y = z, self.slack.evaluate_slacks(z)
        if not self.y.min() > 0.0:  # slacks as small as rounding
            self.y = np.maximum(self.y, 1e-300 + 1e-15 * np.abs(y))
        centred = mu / self.y
        self.duals = np.clip(duals, centred / _MAX_DUAL_RATIO, centred * _MAX_DUAL_RATIO)
        eased = self._damping / 10.0 if self._damping > _MIN_DAMPING else 0.0
        self._damping = max(10.0 * self._damping, 1e-4) if size < 0.3 * whole else eased
        self.local = self.objective.expand(z)
        return size * fall

    def _solve(self, centre: float) -> tuple[Array, Array, float] | None:
        """Change of the unknowns, the duals there, and the barrier; None if a matrix is singular.

        Works on the quadratic model, where a step costs one factorisation and no price: where a
        constraint blocks the way it goes on from there, up to ``inner`` times.
        """
        y, duals, gradient = self.y, self.duals, self.local.gradient
        dz = np.zeros_like(self.z)
        for _ in range(self.inner):
            stiffness = duals / y
            matrix = self.local.matrix.copy()
            matrix[0] *= 1.0 + self._damping
            self.slack.add_weighted_gram(matrix, stiffness)
            matrix[0] += RELATIVE_RIDGE * matrix[0].max()
            factor = _WoodburyFactor.from_matrix(matrix, self.local.coupling)
            if factor is None:
                return None
            gap, count = float(y @ duals), y.size
            step = self._direction(factor, (y, duals, gradient), 0.0)
            lag = _BARRIER_SHARE_OF_DECREASE * -float(gradient @ step.z)
            after = (y + _largest_feasible_step(y, step.y) * step.y) @ (
                duals + _largest_feasible_step(duals, step.duals) * step.duals
            )
            mu = min(1.0, float(after) / gap) ** 3 * gap
            mu = max(max(mu, lag) / count, centre, 1e-14)
            step = self._direction(factor, (y, duals, gradient), mu)
            size = min(1.0, _BOUNDARY_STEP_SHARE * _largest_feasible_step(y, step.y))
            dz = dz + size * step.z
            y = y + size * step.y
            gradient = gradient + size * (
                step.push - self.slack.apply_transpose(stiffness * step.y)
            )
            duals = (
                duals
                + min(1.0, _BOUNDARY_STEP_SHARE * _largest_feasible_step(duals, step.duals))
                * step.duals
            )
            duals = np.clip(duals, mu / y / _MAX_DUAL_RATIO, mu / y * _MAX_DUAL_RATIO)
            if size > _LAST_STEP_SHARE:
                break
        return dz, duals, mu

    def _direction(
        self, factor: _WoodburyFactor, at: tuple[Array, Array, Array], mu: float
    ) -> _NewtonDirection:
        """Change of unknowns, slacks and duals towards the point of the path at ``mu``."""
        y, duals, gradient = at
        force = self.slack.apply_transpose(mu / y) - gradient
        dz = factor.solve(force)
        dy = self.slack.apply_matrix(dz)
        return _NewtonDirection(dz, dy, (mu - duals * dy) / y - duals, force)


class _WoodburyFactor(NamedTuple):
    """A factorised banded matrix with few columns added: ``A + U Uᵀ``, by Woodbury's identity."""

    band: Array  # Cholesky factor of A
    coupling: Array | None  # (p, r) U
    spread: Array | None  # (p, r) A⁻¹ U
    inner: Array | None  # (r, r) Cholesky factor of 1 + Uᵀ A⁻¹ U

    @staticmethod
    def from_matrix(matrix: Array, coupling: Array | None) -> _WoodburyFactor | None:
        """The factor of a lower banded matrix, which is overwritten; None if it is singular."""
        band, failed = dpbtrf(matrix, lower=1, overwrite_ab=1)
        if failed:
            return None
        if coupling is None:
            return _WoodburyFactor(band, None, None, None)
        spread, _ = dpbtrs(band, coupling, lower=1)
        inner, failed = dpotrf(np.eye(coupling.shape[1]) + coupling.T @ spread, lower=1)
        return None if failed else _WoodburyFactor(band, coupling, spread, inner)

    def solve(self, force: Array) -> Array:
        """The solution of ``(A + U Uᵀ) z = force``."""
        z, _ = dpbtrs(self.band, force, lower=1)
        if self.coupling is None or self.spread is None:
            return np.asarray(z)
        share, _ = dpotrs(self.inner, self.coupling.T @ z, lower=1)
        return np.asarray(z - self.spread @ share)


class _NewtonDirection(NamedTuple):
    z: Array
    y: Array
    duals: Array
    push: Array  # right-hand side of the system that z solves


def _largest_feasible_step(y: Array, dy: Array) -> float:
    """The largest step up to 1 that keeps ``y + step · dy`` from turning negative."""
    steepest = float(np.max(-dy / y))
    return 1.0 if steepest <= 1.0 else 1.0 / steepest
