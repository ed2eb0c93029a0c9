"""Characteristic functions of the lifted Heston model: one solution serves every state.

    log E[X_T^{iξ} | U] = constant(T, ξ) + Σ_i slope_i(T, ξ) U^i

so that every day of a path costs one matrix product.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from arbiter.conventions import Array
from arbiter.models.exact_prices import Complex
from arbiter.models.matrix_product import multiply
from arbiter.models.parameters import Parameters
from arbiter.models.riccati import FIRST_STEP_YEARS, STEP_GROWTH, mesh, solve_riccati
from arbiter.models.riccati_steps import Quadratic, RiccatiSolution

_NEWTON_ROUNDS = 3  # of Newton's method: a start far from rest is harder to extrapolate
_FIRST_STEP_SHARE = (
    0.05  # first step over the time in which the start of a state's transform decays
)


@dataclass(frozen=True, eq=False)
class Transform:
    """``log E[· | U] = constant + slope · U`` at maturities and frequencies.

    Attributes:
        constant: ``(M, Q)`` complex.
        slope: ``(M, n, Q)`` complex.
    """

    constant: Complex
    slope: Complex

    def at(self, maturity: int, states: Array) -> Complex:
        """``(D, Q)`` logarithms at one maturity, for states ``(D, n)``."""
        flat = np.ascontiguousarray(self.slope[maturity]).view(np.float64)  # (n, 2Q)
        linear = multiply(states, flat).view(np.complex128)
        return np.asarray(linear + self.constant[maturity])

    def nodes(self, part: slice) -> Transform:
        """This transform at a part of the frequencies."""
        return Transform(self.constant[:, part], self.slope[:, :, part])


def solve_index_transforms(
    sets: Sequence[Parameters],
    times: Array,
    xi: Complex,
    growth: float = STEP_GROWTH,
) -> list[Transform]:
    """``log E X_T^{iξ}`` of several parameter sets, one transform each.

    Args:
        sets: P parameter sets with equally many factors.
        times: ``(M,)`` maturities, increasing.
        xi: ``(P, Q)`` frequencies.
        growth: Ratio of neighbouring steps, above one; nearer to one is finer.
    """
    c, x = np.stack([p.c for p in sets]), np.stack([p.x for p in sets])
    quadratic, borders = build_index_quadratic(sets, xi), build_index_mesh(sets, times, xi, growth)
    psi = np.zeros((*c.shape, xi.shape[1]), dtype=np.complex128)
    transforms = _assemble_transforms(sets, solve_riccati(c, x, quadratic, psi, times, borders))
    for i, parameters in enumerate(sets):
        if parameters.jumps is not None:
            jumps = np.multiply.outer(times, parameters.jumps.log_cf(1j * xi[i]))
            transforms[i] = Transform(transforms[i].constant + jumps, transforms[i].slope)
    return transforms


def build_index_quadratic(sets: Sequence[Parameters], xi: Complex) -> Quadratic:
    """``R`` of ``E X_T^{iξ}`` at frequencies ``(P, Q)``."""
    z, nu = 1j * xi, parameter_column(sets, "nu")
    beta = parameter_column(sets, "rho") * nu * z - parameter_column(sets, "reversion")
    return Quadratic(np.asarray(0.5 * (z * z - z)), np.asarray(beta), nu[:, 0] ** 2)


def build_index_mesh(sets: Sequence[Parameters], times: Array, xi: Complex, growth: float) -> Array:
    """Borders of the steps for ``E X_T^{iξ}`` at frequencies ``(P, Q)``."""
    # V starts with the rate of Heston's, whose volatility of variance is the lift's at time zero
    kernel = np.array([[p.c.sum()] for p in sets])
    rate = float((kernel * parameter_column(sets, "nu") * np.abs(xi)).max())
    return mesh(float(times[-1]), growth, min(FIRST_STEP_YEARS, 1.0 / rate))


def solve_state_transform(
    parameters: Parameters,
    times: Array,
    start: Complex,
    growth: float = STEP_GROWTH,
) -> Transform:
    """``log E exp(Σ start_i U^i_T)`` for ``start`` of shape ``(Q, n)``."""
    p, V = parameters, start.sum(-1)
    alpha = np.zeros((1, V.size), dtype=np.complex128)
    quadratic = Quadratic(alpha, np.full_like(alpha, -p.reversion), np.array([p.nu**2]))
    # the start decays like 1/(1 + Σc ν² V t/2): the first step must see that
    finest = min(FIRST_STEP_YEARS, _FIRST_STEP_SHARE / float(p.c.sum() * p.nu**2 * np.abs(V).max()))
    psi = np.array((start / p.c).T[None], dtype=np.complex128, order="C")
    borders = mesh(float(times[-1]), growth, finest)
    c, x = np.stack([p.c]), np.stack([p.x])
    return _assemble_transforms(
        [p], solve_riccati(c, x, quadratic, psi, times, borders, _NEWTON_ROUNDS)
    )[0]


def _assemble_transforms(sets: Sequence[Parameters], found: RiccatiSolution) -> list[Transform]:
    c = np.stack([p.c for p in sets])
    pull = parameter_column(sets, "reversion") * parameter_column(sets, "theta")
    constant = parameter_column(sets, "v0") * found.power + pull * found.mass  # (M, P, Q)
    slope = found.psi * c[..., None]  # (M, P, n, Q)
    return [Transform(constant[:, i], slope[:, i]) for i in range(len(sets))]


def parameter_column(sets: Sequence[Parameters], name: str) -> Array:
    """``(P, 1)`` values of one parameter."""
    return np.array([[getattr(p, name)] for p in sets], dtype=np.float64)
