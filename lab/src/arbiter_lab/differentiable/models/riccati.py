"""The Riccati system of :mod:`arbiter.models.riccati`, in torch.

Mesh, constants of the steps and rounds of Newton's method are the library's. The number of rounds
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
from arbiter.models.riccati import (
    NEWTON_STEPS,
    RADAU_STAGES,
    build_steps,
    count_newton_steps,
    integrate_until_solved,
)
from arbiter.models.riccati_steps import Steps


@dataclass(frozen=True, eq=False)
class Quadratic:
    """``R(V) = α + β V + ½ ν² V²``: α and β ``(P, Q)`` complex, ν² ``(P,)``."""

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


def solve_riccati(
    c: Array,
    x: Array,
    r: Quadratic,
    psi: Tensor,
    times: Array,
    borders: Array,
    newton: int = NEWTON_STEPS,
) -> RiccatiSolution:
    """Integrate from ``psi`` at time zero, on its device.

    Args:
        c: ``(P, n)`` weights.
        x: ``(P, n)`` speeds.
        r: The quadratic.
        psi: ``(P, n, Q)`` start, complex.
        times: ``(M,)`` increasing; the solution is kept there, each by a step of its own from the
            border before it.
        borders: Borders of the steps, from :func:`arbiter.models.riccati.mesh`.
        newton: Rounds of Newton's method per step; more are tried where they do not suffice.

    Raises:
        ArithmeticError: If a step's equations are not solved: the solution explodes before the
            last time, or the mesh is far too coarse.
    """
    starts, steps = build_steps(c, x, times, borders)
    return integrate_until_solved(
        lambda least: _integrate_steps(steps, r, psi, c, count_newton_steps(starts, least)), newton
    )


def _integrate_steps(
    steps: Steps, r: Quadratic, psi: Tensor, c: Array, rounds: NDArray[np.int64]
) -> tuple[RiccatiSolution, float]:
    """The solution, and the largest relative change of the last Newton steps."""
    device = psi.device
    inverse, reach, lead, ahead = (
        torch.as_tensor(part, device=device)
        for part in (steps.inverse, steps.reach, steps.lead, steps.ahead)
    )
    sums = torch.as_tensor(steps.sums[..., None], device=device)  # (S, P, s, 1)
    fade = torch.as_tensor(steps.fade[..., None], device=device)  # (S, P, n, 1)
    radau = torch.as_tensor(steps.radau, device=device)
    alpha, beta, nu2 = r.alpha[:, None], r.beta[:, None], r.nu2[:, None, None]

    V = _multiply_complex(torch.tensor(c, device=device)[:, None], psi)  # (P, 1, Q)
    known = V.expand(-1, RADAU_STAGES + 1, -1)
    power, mass = torch.zeros_like(V), torch.zeros_like(V)
    worst = torch.zeros((), dtype=torch.float64, device=device)
    kept: list[tuple[Tensor, Tensor, Tensor]] = []
    for i, extrapolates in enumerate(steps.extrapolates.tolist()):
        B = inverse[i]
        start = _multiply_complex(reach[i], psi)  # (P, s, Q)
        target = _multiply_complex(B, start)
        now = (
            _multiply_complex(ahead[i], known) if extrapolates else _euler(start, sums[i], r)
        )  # (P, s, Q)
        for _ in range(int(rounds[i])):
            rate = alpha + now * (beta + 0.5 * nu2 * now)
            change = _newton(B, beta + nu2 * now, target + rate - _multiply_complex(B, now))
            now = now + change
        worst = torch.maximum(worst, (change.abs() / (1.0 + now.abs())).max())
        rate = alpha + now * (beta + 0.5 * nu2 * now)
        there = psi * fade[i] + _multiply_complex(lead[i], rate)
        gains = _multiply_complex(radau[i], rate), _multiply_complex(radau[i], now)
        if steps.lands[i]:
            kept.append((there, (power + gains[0])[:, 0], (mass + gains[1])[:, 0]))
        else:
            psi, power, mass = there, power + gains[0], mass + gains[1]
            known = torch.cat([known[:, -1:], now], 1)
    return RiccatiSolution(*(torch.stack(parts) for parts in zip(*kept, strict=True))), float(worst)


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
    root = torch.sqrt(beta * beta - 2.0 * size * r.nu2[:, None, None] * push)
    return 2.0 * push / (beta + torch.where((root.conj() * beta).real < 0.0, -root, root))
