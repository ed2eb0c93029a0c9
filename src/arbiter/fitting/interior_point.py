"""A primal-dual interior-point Gauss-Newton method for ordered unknowns.

Minimises a loss of residuals plus a quadratic penalty, subject to differences of unknowns being
nonnegative. The star order couples neighbours only, so that every step is one banded Cholesky
factorisation: its cost is linear in the number of expiries, and stays so when a few columns
couple unknowns across them. Predictor and corrector follow Mehrotra (1992); the step is globalised
by a line search on the barrier function. An iterate never changes: a step returns the next one.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Generic, NamedTuple, Protocol, TypeVar

import numpy as np

from arbiter.conventions import Array
from arbiter.fitting import banded
from arbiter.fitting.order_constraints import (
    ConstraintOperator,
    OrderConstraints,
    largest_feasible_step,
)
from arbiter.values import ExplainedCode

_BOUNDARY_STEP_SHARE = 0.995  # share of the way to the nearest constraint that a step may go
RELATIVE_RIDGE = 1e-13  # of the largest diagonal: beyond the quotes a matrix may be singular
_MAX_LOG_SLOPE_STEP = 1.0  # change of any unknown in one step: a factor e of a slope
_ARMIJO = 1e-4
_LAST_STEP_SHARE = 0.7  # a step on the quadratic model that gets this far is the last one
_MAX_HALVINGS = 12
_MIN_DAMPING, _MAX_DAMPING = 1e-7, 1e4
# The barrier falls no faster than this share of the objective: else an iterate sticks to a wall.
_BARRIER_SHARE_OF_DECREASE = 0.01
_MAX_DUAL_RATIO = 1e3  # duals stay within this factor of their centre


class Status(ExplainedCode):
    """How a fit ended. The value is the code, :meth:`explain` the sentence."""

    CONVERGED = "converged", "no step promises a better fit"
    STALLED = (
        "stalled",
        "no step improves the fit, though one should: try a larger roughness, or "
        "look for quotes in wrong units",
    )
    MAX_ITERATIONS = (
        "max_iterations",
        "the allowed steps ran out: raise FitOptions.iterations",
    )


class Expansion(NamedTuple):
    """A quadratic model of the objective."""

    value: float
    gradient: Array  # (p,)
    matrix: Array  # (p, w) banded
    coupling: Array | None = None  # (p, r) few columns U whose U Uᵀ is added to the matrix


class EvaluatedPoint(Protocol):
    """An objective at one set of unknowns."""

    @property
    def value(self) -> float:
        """The objective; infinite where it cannot be evaluated."""

    @property
    def expansion(self) -> Expansion:
        """The objective with gradient and Gauss-Newton matrix."""


Point = TypeVar("Point", bound=EvaluatedPoint)
Point_co = TypeVar("Point_co", bound=EvaluatedPoint, covariant=True)


class Objective(Protocol[Point_co]):
    """A function to be minimised."""

    def evaluate(self, z: Array) -> Point_co:
        """The function at the unknowns ``z`` ``(p,)``."""


def add_ridge(matrix: Array, least: float = 0.0) -> Array:
    """The banded matrix with a small share of its largest diagonal entry added to all of them.

    Args:
        matrix: The banded matrix.
        least: The least that is added.
    """
    ridged = matrix.copy()
    ridged[:, 0] += max(least, RELATIVE_RIDGE * ridged[:, 0].max())
    return ridged


@dataclass(frozen=True, eq=False)
class InteriorPoint(Generic[Point]):
    """An iterate strictly inside the constraints, with its duals; steps return better ones.

    Attributes:
        objective: What is minimised.
        constraints: The constraints.
        scale: Value below which the objective counts as zero.
        z: ``(p,)`` the unknowns.
        point: The objective there.
        slacks: ``(c,)`` of the constraints, positive.
        duals: ``(c,)`` of the constraints, positive.
        expected: Value that the objective is expected to fall to, infinite if unknown.
        inner: Most steps on one quadratic model, where constraints block the way.
        iterations: Steps so far.
        damping: Relative increase of the matrix' diagonal in the next step.
    """

    objective: Objective[Point]
    constraints: ConstraintOperator
    scale: float
    z: Array
    point: Point
    slacks: Array
    duals: Array
    expected: float = np.inf
    inner: int = 1
    iterations: int = 0
    damping: float = 0.0

    @classmethod
    def start_at(
        cls, objective: Objective[Point], order: OrderConstraints, z: Array, scale: float
    ) -> InteriorPoint[Point]:
        """The first iterate.

        Args:
            objective: What is minimised.
            order: The constraints.
            z: ``(p,)`` a point strictly inside them.
            scale: Value below which the objective counts as zero.

        Raises:
            ValueError: If ``z`` is not strictly inside the constraints.
        """
        constraints = ConstraintOperator(order, z.size)
        slacks = constraints.evaluate_slacks(z)
        if not slacks.min() > 0.0:
            raise ValueError("the starting point does not satisfy the constraints strictly")
        point = objective.evaluate(z)
        rows, room = point.expansion.matrix.shape
        if rows != z.size or order.bandwidth > room:
            raise ValueError(
                f"a matrix of {rows} rows and {room} diagonals has no room for {z.size} unknowns "
                "and their constraints"
            )
        # duals in proportion to the loss: too small, and the first steps run into a wall
        duals = 0.1 * max(point.expansion.value, scale) / (slacks.size * slacks)
        return cls(objective, constraints, scale, z, point, slacks, duals)

    @property
    def gap(self) -> float:
        """Complementarity: bound of what the constraints may still hide."""
        return float(self.slacks @ self.duals)

    def with_objective(self, objective: Objective[Point], point: Point) -> InteriorPoint[Point]:
        """The same iterate for another objective, of which ``point`` is the value at ``z``."""
        return replace(self, objective=objective, point=point)

    def with_expected_value(
        self, value: float, share: float, known: Array | None = None
    ) -> InteriorPoint[Point]:
        """The same iterate with duals for an objective that will soon fall to ``value``.

        Without them a start that is a few steps from the end takes more steps, until the
        constraints allow for it. ``share`` of the value is the complementarity. ``known`` are
        ``(c,)`` duals near those of the end, if there are any.
        """
        centred = share * max(value, self.scale) / (self.slacks.size * self.slacks)
        return replace(
            self, expected=value, duals=centred if known is None else _hold(known, centred)
        )

    def with_inner_steps(self, inner: int) -> InteriorPoint[Point]:
        """The same iterate with up to ``inner`` steps on one quadratic model."""
        return replace(self, inner=inner)

    def matrix(self) -> Array:
        """The Gauss-Newton matrix with the constraints' stiffness, banded."""
        matrix = self.point.expansion.matrix.copy()
        self.constraints.add_weighted_gram(matrix, self.duals / self.slacks)
        return matrix

    def run(
        self, tolerance: float, limit: int, centre: float = 0.0
    ) -> tuple[InteriorPoint[Point], Status]:
        """Steps until one promises less than ``tolerance`` of the objective, or ``limit`` steps.

        Args:
            tolerance: Share of the objective.
            limit: Most steps.
            centre: Products of slacks and duals do not fall below it.

        Returns:
            The last iterate, and how the steps ended.
        """
        here = self
        for _ in range(limit):
            here, promised = here._step(centre)
            if promised is None:
                if here.damping > _MAX_DAMPING:
                    return here, Status.STALLED
                continue
            enough = tolerance * max(here.point.value, here.scale)
            if promised < enough and here.gap < enough + 2.0 * centre * here.slacks.size:
                return here, Status.CONVERGED
        return here, Status.MAX_ITERATIONS

    def _step(self, centre: float) -> tuple[InteriorPoint[Point], float | None]:
        """The next iterate, and the decrease it promised; None if no step could be made."""
        found = self._solve(centre)
        if found is None:
            return self._damp_more(1e-4), None
        dz, duals, mu = found
        local = self.point.expansion
        dy = self.constraints.apply_matrix(dz)
        fall = -float((local.gradient - self.constraints.apply_transpose(mu / self.slacks)) @ dz)
        merit = local.value - mu * float(np.log(self.slacks).sum())
        whole = min(1.0, _MAX_LOG_SLOPE_STEP / float(np.abs(dz).max()))
        size = whole
        for _ in range(_MAX_HALVINGS):
            z, y = self.z + size * dz, self.slacks + size * dy
            point = self.objective.evaluate(z)
            trial = point.value - mu * float(np.log(y).sum())
            if trial <= merit - _ARMIJO * size * fall + 1e-12 * abs(merit):
                break
            size *= 0.5
        else:
            return self._damp_more(1e-3), None
        slacks = self.constraints.evaluate_slacks(z)
        if not slacks.min() > 0.0:  # slacks as small as rounding
            slacks = np.maximum(slacks, 1e-300 + 1e-15 * np.abs(y))
        centred = mu / slacks
        eased = self.damping / 10.0 if self.damping > _MIN_DAMPING else 0.0
        moved = replace(
            self,
            z=z,
            point=point,
            slacks=slacks,
            duals=_hold(duals, centred),
            iterations=self.iterations + 1,
            damping=max(10.0 * self.damping, 1e-4) if size < 0.3 * whole else eased,
        )
        return moved, size * fall

    def _damp_more(self, least: float) -> InteriorPoint[Point]:
        """The same point after a step that failed."""
        damping = max(10.0 * self.damping, least)
        return replace(self, iterations=self.iterations + 1, damping=damping)

    def _solve(self, centre: float) -> tuple[Array, Array, float] | None:
        """Change of the unknowns, the duals there, and the barrier; None if a matrix is singular.

        Works on the quadratic model, where a step costs one factorisation and no price: where a
        constraint blocks the way it goes on from there, up to ``inner`` times.
        """
        local = self.point.expansion
        y, duals, gradient = self.slacks, self.duals, local.gradient
        dz = np.zeros_like(self.z)
        for _ in range(self.inner):
            stiffness = duals / y
            matrix = local.matrix.copy()
            matrix[:, 0] *= 1.0 + self.damping
            self.constraints.add_weighted_gram(matrix, stiffness)
            matrix[:, 0] += RELATIVE_RIDGE * matrix[:, 0].max()
            factor = WoodburyFactor.from_matrix(matrix, local.coupling)
            if factor is None:
                return None
            gap, count = float(y @ duals), y.size
            step = self._direction(factor, (y, duals, gradient), 0.0)
            lag = _BARRIER_SHARE_OF_DECREASE * -float(gradient @ step.z)
            after = (y + largest_feasible_step(y, step.y) * step.y) @ (
                duals + largest_feasible_step(duals, step.duals) * step.duals
            )
            mu = min(1.0, float(after) / gap) ** 3 * gap
            mu = max(max(mu, lag) / count, centre, 1e-14)
            step = self._direction(factor, (y, duals, gradient), mu)
            size = min(1.0, _BOUNDARY_STEP_SHARE * largest_feasible_step(y, step.y))
            dz = dz + size * step.z
            y = y + size * step.y
            if size <= _LAST_STEP_SHARE:
                gradient = gradient + size * (
                    step.push - self.constraints.apply_transpose(stiffness * step.y)
                )
            duals = (
                duals
                + min(1.0, _BOUNDARY_STEP_SHARE * largest_feasible_step(duals, step.duals))
                * step.duals
            )
            duals = _hold(duals, mu / y)
            if size > _LAST_STEP_SHARE:
                break
        return dz, duals, mu

    def _direction(
        self, factor: WoodburyFactor, at: tuple[Array, Array, Array], mu: float
    ) -> _NewtonDirection:
        """Change of unknowns, slacks and duals towards the point of the path at ``mu``."""
        y, duals, gradient = at
        force = self.constraints.apply_transpose(mu / y) - gradient
        dz = factor.solve(force)
        dy = self.constraints.apply_matrix(dz)
        return _NewtonDirection(dz, dy, (mu - duals * dy) / y - duals, force)


def _hold(duals: Array, centred: Array) -> Array:
    """Duals within a factor of where they are centred."""
    return np.minimum(np.maximum(duals, centred / _MAX_DUAL_RATIO), centred * _MAX_DUAL_RATIO)


class WoodburyFactor(NamedTuple):
    """A factorised banded matrix with few columns added: ``A + U Uᵀ``, by Woodbury's identity.

    With ``A = L Lᵀ`` and ``V = L⁻¹ U`` its inverse is ``L⁻ᵀ (1 − V (1 + VᵀV)⁻¹ Vᵀ) L⁻¹``.
    """

    band: Array  # Cholesky factor L of A
    columns: Array | None = None  # (p, r) V
    inner: Array | None = None  # (r, r) inverse of 1 + VᵀV

    @staticmethod
    def from_matrix(matrix: Array, coupling: Array | None) -> WoodburyFactor | None:
        """The factor of a banded matrix; None if it is singular."""
        try:
            band = banded.factorise(matrix)
        except banded.SingularMatrixError:
            return None
        if coupling is None:
            return WoodburyFactor(band)
        columns = banded.solve_lower(band, coupling)
        try:
            inner = np.asarray(
                np.linalg.inv(np.eye(coupling.shape[1]) + columns.T @ columns), dtype=np.float64
            )
        except np.linalg.LinAlgError:
            return None
        return WoodburyFactor(band, columns, inner)

    def solve(self, force: Array) -> Array:
        """The solution of ``(A + U Uᵀ) z = force``."""
        z = banded.solve_lower(self.band, force)
        if self.columns is not None and self.inner is not None:
            z -= self.columns @ (self.inner @ (self.columns.T @ z))
        return banded.solve_upper(self.band, z)


class _NewtonDirection(NamedTuple):
    z: Array
    y: Array
    duals: Array
    push: Array  # right-hand side of the system that z solves
