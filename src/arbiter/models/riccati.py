"""The Riccati system of the lifted Heston model, by exponential Radau collocation.

    ψ_i' = −x_i ψ_i + R(V),   V = Σ c_j ψ_j,   R(V) = α + β V + ½ ν² V²

The linear parts decay at speeds from 10⁻⁴ to 10⁴ a year and are integrated exactly; R, one
scalar, is a polynomial through the s Radau points of each step: stable for any frequency, of
order 2s − 1 = 9. The stages ``V_k = start_k + Σ_m A_km R(V_m)`` are s coupled quadratics per
Fourier node, solved by Newton's method from the extrapolated last step; with ``B = A⁻¹`` they read
``B V − R(V) = B start``, and Newton's matrix is ``B − diag(β + ν² V)``. The number of Newton steps
is fixed and judged once at the end, so that a GPU is never waited for.

Batched over parameter sets and nodes. Shapes: P sets, n factors, Q nodes, M times, S steps.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from arbiter.conventions import Array


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
_NEWTON_STEPS, _NEWTON_STEPS_EARLY, _NEWTON_STEPS_FIRST = 2, 4, 12
_FIRST_STEP_COUNT, _EARLY_STEP_COUNT = 3, 8
_MAX_NEWTON_CHANGE = 1e-5  # relative change by the last Newton step, which leaves its square
_MAX_SERIES_ARGUMENT = (
    5.0  # below this x·δ exponential weights are summed as series: the recursion cancels
)


@dataclass(frozen=True, eq=False)
class Quadratic:
    """``R(V) = α + β V + ½ ν² V²``: α and β ``(P, Q)`` complex, ν² ``(P, 1)``."""

    alpha: Tensor
    beta: Tensor
    nu2: Tensor


@dataclass(frozen=True, eq=False)
class RiccatiSolution:
    """The solution at the requested times.

    Attributes:
        psi: ``(M, P, n, Q)``.
        power: ``(M, P, Q)``, ``∫ R dt``.
        mass: ``(M, P, Q)``, ``∫ V dt``.
    """

    psi: Tensor
    power: Tensor
    mass: Tensor


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
    psi: Tensor,
    times: Array,
    borders: Array,
    newton: int = _NEWTON_STEPS,
) -> RiccatiSolution:
    """Integrate from ``psi`` at time zero.

    Args:
        c: ``(P, n)`` weights.
        x: ``(P, n)`` speeds.
        r: The quadratic.
        psi: ``(P, n, Q)`` start, complex.
        times: ``(M,)`` increasing; the solution is kept there, each by a step of its own from the
            border before it.
        borders: Borders of the steps, from :func:`mesh`.
        newton: Rounds of Newton's method per step; more are tried where they do not suffice.

    Raises:
        ArithmeticError: If a step's equations are not solved: the solution explodes before the
            last time, or the mesh is far too coarse.
    """
    for rounds in (newton, _NEWTON_STEPS_EARLY, _NEWTON_STEPS_FIRST):
        found, change = _integrate_steps(c, x, r, psi, times, borders, rounds)
        if change < _MAX_NEWTON_CHANGE:
            return found
    raise ArithmeticError(
        f"the Riccati system is not solved (last Newton change {change:.1e}): the moment asked for "
        "does not exist at the last maturity, or the mesh is too coarse"
    )


def _integrate_steps(
    c: Array, x: Array, r: Quadratic, psi: Tensor, times: Array, borders: Array, newton: int
) -> tuple[RiccatiSolution, float]:
    """The solution, and the largest relative change of the last Newton steps."""
    device = psi.device
    starts, sizes, lands = _order_steps(times, borders)
    decay, push = exponential_weights(x, sizes)
    pull = (push * c[:, None, None, :]).sum(-1)  # (S, P, s, s): A
    inverse = torch.as_tensor(np.linalg.inv(pull), device=device)
    sums = torch.as_tensor(pull.sum(-1, keepdims=True), device=device)  # (S, P, s, 1)
    reach = torch.as_tensor(decay * c[:, None, :], device=device)  # (S, P, s, n)
    fade = torch.as_tensor(decay[:, :, -1, :, None], device=device)  # (S, P, n, 1)
    lead = torch.as_tensor(
        np.swapaxes(push[:, :, -1], -1, -2).copy(), device=device
    )  # (S, P, n, s)
    ahead = torch.as_tensor(_extrapolation(borders, starts, sizes), device=device)  # (S, s, s + 1)
    radau = torch.as_tensor(sizes[:, None] * RADAU_WEIGHTS, device=device)[:, None, :]
    alpha, beta, nu2 = r.alpha[:, None], r.beta[:, None], r.nu2[:, None]

    V = _multiply_complex(torch.tensor(c, device=device)[:, None], psi)  # (P, 1, Q)
    known = V.expand(-1, RADAU_STAGES + 1, -1)
    power, mass = torch.zeros_like(V), torch.zeros_like(V)
    worst = torch.zeros((), dtype=torch.float64, device=device)
    kept: list[tuple[Tensor, Tensor, Tensor]] = []
    for i, s in enumerate(starts.tolist()):
        B = inverse[i]
        start = _multiply_complex(reach[i], psi)  # (P, s, Q)
        target = _multiply_complex(B, start)
        now = (
            _multiply_complex(ahead[i], known)
            if s >= _FIRST_STEP_COUNT
            else _euler(start, sums[i], r)
        )  # (P, s, Q)
        rounds = (
            _NEWTON_STEPS_FIRST
            if s < _FIRST_STEP_COUNT
            else _NEWTON_STEPS_EARLY
            if s < _EARLY_STEP_COUNT
            else newton
        )
        for _ in range(max(rounds, newton)):
            rate = alpha + now * (beta + 0.5 * nu2 * now)
            change = _newton(B, beta + nu2 * now, target + rate - _multiply_complex(B, now))
            now = now + change
        worst = torch.maximum(worst, (change.abs() / (1.0 + now.abs())).max())
        rate = alpha + now * (beta + 0.5 * nu2 * now)
        there = psi * fade[i] + _multiply_complex(lead[i], rate)
        gains = _multiply_complex(radau[i], rate), _multiply_complex(radau[i], now)
        if lands[i]:
            kept.append((there, (power + gains[0])[:, 0], (mass + gains[1])[:, 0]))
        else:
            psi, power, mass = there, power + gains[0], mass + gains[1]
            known = torch.cat([known[:, -1:], now], 1)
    return RiccatiSolution(*(torch.stack(parts) for parts in zip(*kept, strict=True))), float(worst)


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


def _multiply_complex(matrix: Tensor, to: Tensor) -> Tensor:
    """A real ``(…, a, b)`` matrix times complex ``(P, b, Q)``, without a complex product."""
    return torch.view_as_complex(
        torch.matmul(matrix, torch.view_as_real(to).flatten(-2)).unflatten(-1, (-1, 2))
    )


def _newton(B: Tensor, slope: Tensor, y: Tensor) -> Tensor:
    """``(B − diag(slope))⁻¹ y`` by elimination in all nodes at once; y and slope ``(P, s, Q)``."""
    s = B.shape[-1]
    system = B[..., None].to(y.dtype).expand(-1, -1, -1, y.shape[-1]).clone()  # (P, s, s, Q)
    torch.diagonal(system, dim1=1, dim2=2).sub_(slope.swapaxes(1, 2))
    rest = torch.cat([system, y[:, :, None]], 2)
    for k in range(s):
        column = rest[:, :, 0]
        row = rest[:, k, 1:] / column[:, k, None]
        column[:, k] -= 1.0  # so that row k becomes the scaled row
        rest = rest[:, :, 1:] - column[:, :, None] * row[:, None]
    return rest[:, :, 0]


def _euler(start: Tensor, size: Tensor, r: Quadratic) -> Tensor:
    """Stages by an implicit step with R constant: ``V = start + size·R(V)``, the damped root.

    First order only, but in the right half plane at any frequency: from elsewhere Newton's
    method can go to the other root.
    """
    beta = 1.0 - size * r.beta[:, None]
    push = start + size * r.alpha[:, None]
    root = torch.sqrt(beta * beta - 2.0 * size * r.nu2[:, None] * push)
    return 2.0 * push / (beta + torch.where((root.conj() * beta).real < 0.0, -root, root))


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
