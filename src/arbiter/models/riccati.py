"""The Riccati system of the lifted Heston model, by exponential Radau collocation.

    ψ_i' = −x_i ψ_i + R(V),   V = Σ c_j ψ_j,   R(V) = α + β V + ½ ν² V²

The linear parts decay at speeds from 10⁻⁴ to 10⁴ a year and are integrated exactly; R, one
scalar, is a polynomial through the s Radau points of each step: stable for any frequency, of
order 2s − 1 = 9. The stages ``V_k = start_k + Σ_m A_km R(V_m)`` are s coupled quadratics per
Fourier node, solved by Newton's method from the extrapolated last step; with ``B = A⁻¹`` they read
``B V − R(V) = B start``, and Newton's matrix is ``B − diag(β + ν² V)``. The number of Newton steps
is fixed and judged once at the end. :mod:`arbiter.models.riccati_steps` takes the steps.

Batched over parameter sets and nodes. Shapes: P sets, n factors, Q nodes, M times, S steps.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from arbiter.conventions import Array
from arbiter.models.exact_prices import Complex
from arbiter.models.riccati_steps import Quadratic, RiccatiSolution, Steps, integrate_steps

S = TypeVar("S")


def _radau(stages: int) -> tuple[Array, Array]:
    """Right Radau nodes and weights on [0, 1], exact to degree 2s − 2."""
    lower, upper = np.polynomial.Legendre.basis(stages - 1), np.polynomial.Legendre.basis(stages)
    inner = (lower - upper) // np.polynomial.Legendre([-1.0, 1.0])
    nodes = 0.5 * (np.append(np.sort(inner.roots().real), 1.0) + 1.0)
    moments = 1.0 / np.arange(1.0, stages + 1.0)
    return nodes, np.asarray(np.linalg.solve(np.vander(nodes, increasing=True).T, moments))


RADAU_STAGES = 5
RADAU_NODES, RADAU_WEIGHTS = _radau(RADAU_STAGES)
FIRST_STEP_YEARS = 1e-6  # years: the first step, well inside the layer of the highest frequency
STEP_GROWTH = 1.3
# Newton steps: many on the first few steps, where there is little to extrapolate from, then two.
NEWTON_STEPS, _NEWTON_STEPS_EARLY, _NEWTON_STEPS_FIRST = 2, 4, 12
_FIRST_STEP_COUNT, _EARLY_STEP_COUNT = 3, 8
_MAX_NEWTON_CHANGE = 1e-5  # relative change by the last Newton step, which leaves its square
_MAX_SERIES_ARGUMENT = (
    5.0  # below this x·δ exponential weights are summed as series: the recursion cancels
)


def mesh(last: float, growth: float = STEP_GROWTH, finest: float = FIRST_STEP_YEARS) -> Array:
    """Borders of the steps, each ``finest + (growth − 1)·time`` long, to beyond the last time.

    Far from zero that is a geometric grid of ratio ``growth``. It does not depend on what is asked
    for, so that the solution at a time does not depend on which others are asked for with it.
    """
    borders = [0.0]
    while borders[-1] < last:
        borders.append(borders[-1] + finest + (growth - 1.0) * borders[-1])
    return np.array(borders)


def solve_riccati(
    c: Array,
    x: Array,
    r: Quadratic,
    psi: Complex,
    times: Array,
    borders: Array,
    newton: int = NEWTON_STEPS,
) -> RiccatiSolution:
    """Integrate from ``psi`` at time zero.

    Args:
        c: ``(P, n)`` weights.
        x: ``(P, n)`` speeds.
        r: The quadratic.
        psi: ``(P, n, Q)`` start.
        times: ``(M,)`` increasing; the solution is kept there, each by a step of its own from the
            border before it.
        borders: Borders of the steps, from :func:`mesh`.
        newton: Rounds of Newton's method per step; more are tried where they do not suffice.

    Raises:
        ArithmeticError: If a step's equations are not solved: the solution explodes before the
            last time, or the mesh is far too coarse.
    """
    starts, steps = build_steps(c, x, times, borders)
    M, (P, n, Q) = times.size, psi.shape
    found = RiccatiSolution(
        np.empty((M, P, n, Q), dtype=np.complex128),
        np.empty((M, P, Q), dtype=np.complex128),
        np.empty((M, P, Q), dtype=np.complex128),
    )

    def integrate(least: int) -> tuple[RiccatiSolution, float]:
        rounds = count_newton_steps(starts, least)
        return found, integrate_steps(steps, r, psi, c, rounds, found)

    return integrate_until_solved(integrate, newton)


def integrate_until_solved(integrate: Callable[[int], tuple[S, float]], newton: int) -> S:
    """The solution with so many rounds of Newton's method that the last one changes little.

    Args:
        integrate: From the least rounds of a step to the solution and to the largest relative
            change by a last round.
        newton: Rounds to begin with.

    Raises:
        ArithmeticError: If no number of rounds suffices.
    """
    for least in (newton, _NEWTON_STEPS_EARLY, _NEWTON_STEPS_FIRST):
        found, change = integrate(least)
        if change < _MAX_NEWTON_CHANGE:
            return found
    raise ArithmeticError(
        f"the Riccati system is not solved (last Newton change {change:.1e}): the moment asked for "
        "does not exist at the last maturity, or the mesh is too coarse"
    )


def count_newton_steps(starts: NDArray[np.int_], least: int) -> NDArray[np.int64]:
    """``(S,)`` rounds of Newton's method in steps that begin at these borders."""
    rounds = np.full(starts.size, least, dtype=np.int64)
    rounds[starts < _EARLY_STEP_COUNT] = max(least, _NEWTON_STEPS_EARLY)
    rounds[starts < _FIRST_STEP_COUNT] = max(least, _NEWTON_STEPS_FIRST)
    return rounds


def build_steps(c: Array, x: Array, times: Array, borders: Array) -> tuple[NDArray[np.int_], Steps]:
    """The first border of each step, and constants of all steps to the times."""
    starts, sizes, lands = _order_steps(times, borders)
    decay, push = exponential_weights(x, sizes)
    pull = (push * c[:, None, None, :]).sum(-1)  # (S, P, s, s): A
    steps = Steps(
        lands=lands,
        extrapolates=starts >= _FIRST_STEP_COUNT,
        inverse=np.linalg.inv(pull),
        sums=pull.sum(-1),
        reach=decay * c[:, None, :],
        fade=decay[:, :, -1].copy(),
        lead=np.swapaxes(push[:, :, -1], -1, -2).copy(),
        ahead=_extrapolation(borders, starts, sizes),
        radau=(sizes[:, None] * RADAU_WEIGHTS)[:, None],
    )
    return starts, steps


def _order_steps(times: Array, borders: Array) -> tuple[NDArray[np.int_], Array, NDArray[np.bool_]]:
    """The steps in order: index of their first border, length, and whether they end at a time.

    A step to a requested time is extra: the next step starts from the same border.
    """
    before = np.searchsorted(borders, times * (1.0 - 1e-13)) - 1  # a time at a border lands on it
    march = np.arange(before[-1])
    starts = np.concatenate([before, march])
    lands = np.arange(starts.size) < times.size
    sizes = np.concatenate([times - borders[before], np.diff(borders)[march]])
    order = np.lexsort((~lands, starts))  # from one border: land first, then march
    return starts[order], sizes[order], lands[order]


def _extrapolation(borders: Array, starts: NDArray[np.int_], sizes: Array) -> Array:
    """``(S, s, s + 1)``: from border and stages of the last step to the next stages, in log time.

    In log time because the steps grow geometrically and V starts like a power of time.
    """
    out = np.zeros((sizes.size, RADAU_STAGES, RADAU_STAGES + 1))
    late = starts >= _FIRST_STEP_COUNT
    if late.any():
        last = borders[starts[late] - 1, None]
        stages = last + (borders[starts[late], None] - last) * RADAU_NODES
        seen = np.log(np.concatenate([last, stages], axis=1))
        ahead = borders[starts[late], None] + sizes[late, None] * RADAU_NODES
        out[late] = _lagrange(seen, np.log(ahead))
    return out


def _lagrange(nodes: Array, at: Array) -> Array:
    """``(S, a, b)`` values at ``at`` ``(S, a)`` of the Lagrange polynomials of ``(S, b)`` nodes."""
    parts = []
    for m in range(nodes.shape[1]):
        others = np.delete(nodes, m, axis=1)
        above = np.prod(at[:, :, None] - others[:, None, :], axis=-1)
        parts.append(above / np.prod(nodes[:, m, None] - others, axis=-1)[:, None])
    return np.stack(parts, axis=-1)


def exponential_weights(x: Array, sizes: Array) -> tuple[Array, Array]:
    """Constants of the steps: decay ``(S, P, s, n)`` and push ``(S, P, s, s, n)``.

    ``decay[k] = e^{−x τ_k δ}`` and ``push[k, m] = ∫_0^{τ_k δ} e^{−x(τ_k δ − s)} L_m(s/δ) ds``, with
    L the Lagrange polynomials of the Radau nodes τ.
    """
    top = sizes[:, None, None, None] * RADAU_NODES[:, None]  # (S, 1, s, 1)
    z = top * x[:, None, :]  # (S, P, s, n)
    moments = _exponential_moments(z)  # p → (S, P, s, n), in units of top^{p+1}
    push = np.zeros((*z.shape[:3], RADAU_STAGES, z.shape[3]))
    for m in range(RADAU_STAGES):
        basis = np.polynomial.Polynomial.fromroots(np.delete(RADAU_NODES, m))
        for p, coefficient in enumerate(basis.coef / basis(RADAU_NODES[m])):
            # s/δ = τ_k · (s/top)
            push[:, :, :, m] += coefficient * RADAU_NODES[:, None] ** p * moments[p] * top
    return np.exp(-z), push


def _exponential_moments(z: Array) -> list[Array]:
    """``∫_0^1 e^{−z(1−s)} s^p ds`` for p below the number of stages."""
    small = z < _MAX_SERIES_ARGUMENT
    far, near = np.where(small, 1.0, z), np.where(small, z, 0.0)
    out = []
    direct = -np.expm1(-far) / far
    for p in range(RADAU_STAGES):
        if p:
            direct = (1.0 - p * direct) / far
        term = np.full_like(z, 1.0 / (p + 1.0))  # p! Σ_j (−z)^j / (j+p+1)!
        series = term
        for j in range(1, 40):
            term = term * (-near) / (j + p + 1)
            series = series + term
        out.append(np.where(small, series, direct))
    return out
