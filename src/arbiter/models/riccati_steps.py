"""The steps of the Riccati system, compiled: a block of Fourier nodes at a time.

Rows of a block are planes, the real parts of its nodes and then the imaginary ones. A real matrix
multiplies them as they are, and a loop over nodes takes as many at a time as the registers of the
processor hold. :mod:`arbiter.models.riccati` has the equations and the constants.
"""

from __future__ import annotations

import cmath
import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from arbiter.compiled import compiled
from arbiter.conventions import Array
from arbiter.models.exact_prices import Complex
from arbiter.models.matrix_product import add_product

_NODES = 32  # Fourier nodes in a block: its numbers stay in the nearest cache


class Steps(NamedTuple):
    """Constants of S steps for P parameter sets, n factors and s stages."""

    lands: NDArray[np.bool_]  # (S,) whether a step ends at a requested time
    extrapolates: NDArray[np.bool_]  # (S,) whether the stages start from those of the last step
    inverse: Array  # (S, P, s, s) B
    sums: Array  # (S, P, s) of the rows of A
    reach: Array  # (S, P, s, n) from the factors to the starts of the stages
    fade: Array  # (S, P, n) decay of the factors
    lead: Array  # (S, P, n, s) from the rates of the stages to the factors
    ahead: Array  # (S, s, s + 1) from the last border and its stages to the next stages
    radau: Array  # (S, 1, s) weights


class Quadratic(NamedTuple):
    """``R(V) = α + β V + ½ ν² V²``: α and β ``(P, Q)`` complex, ν² ``(P,)``."""

    alpha: Complex
    beta: Complex
    nu2: Array


class RiccatiSolution(NamedTuple):
    """The solution at the requested times.

    Attributes:
        psi: ``(M, P, n, Q)``.
        power: ``(M, P, Q)``, ``∫ R dt``.
        mass: ``(M, P, Q)``, ``∫ V dt``.
    """

    psi: Complex
    power: Complex
    mass: Complex


@compiled
def integrate_steps(
    steps: Steps,
    r: Quadratic,
    psi: Complex,
    c: Array,
    rounds: NDArray[np.int64],
    out: RiccatiSolution,
) -> float:
    """Fill ``out`` from the start ``psi`` ``(P, n, Q)``, with ``rounds`` of Newton in each step.

    Returns:
        The largest relative change by a last round; infinite where a number was not finite.
    """
    P, n, Q = psi.shape
    s = steps.radau.shape[2]
    quadratic = np.empty((2, 2 * _NODES))
    U, landed = np.empty((n, 2 * _NODES)), np.empty((n, 2 * _NODES))
    known = np.empty((s + 1, 2 * _NODES))  # V at the last border, and at the stages after it
    start, now, rate = (
        np.empty((s, 2 * _NODES)),
        np.empty((s, 2 * _NODES)),
        np.empty((s, 2 * _NODES)),
    )
    gains, total = np.empty((2, 2 * _NODES)), np.empty((2, 2 * _NODES))  # ∫ R and ∫ V
    system, worst = np.empty((s, s + 1, 2 * _NODES)), np.zeros(_NODES)
    for p in range(P):
        for first in range(0, Q, _NODES):
            count = min(_NODES, Q - first)
            _load(r, psi, p, first, quadratic, U)
            known.fill(0.0)
            gains.fill(0.0)
            add_product(c[p : p + 1], U, known[s:])
            land = 0
            for step in range(steps.lands.size):
                start.fill(0.0)
                add_product(steps.reach[step, p], U, start)
                if steps.extrapolates[step]:
                    now.fill(0.0)
                    add_product(steps.ahead[step], known, now)
                else:
                    _fill_euler(start, steps.sums[step, p], quadratic, r.nu2[p], now)
                for last in range(rounds[step] - 1, -1, -1):
                    _fill_system(steps.inverse[step, p], start, now, quadratic, r.nu2[p], system)
                    _solve_system(system)
                    _move_stages(system, now, worst, last == 0)
                for k in range(s):
                    _fill_rate(now[k], quadratic, r.nu2[p], rate[k])
                lands = steps.lands[step]
                if lands:
                    _copy(gains, total)
                there, sums = (landed, total) if lands else (U, gains)
                _lead_factors(steps.fade[step, p], steps.lead[step, p], rate, U, there)
                add_product(steps.radau[step], rate, sums[:1])
                add_product(steps.radau[step], now, sums[1:])
                if lands:
                    _keep(landed, total, out, land, p, first, count)
                    land += 1
                else:
                    _copy(known[s:], known)
                    _copy(now, known[1:])
    largest = 0.0
    for j in range(_NODES):
        largest = max(largest, worst[j])
    return largest


@compiled
def _load(r: Quadratic, psi: Complex, p: int, first: int, quadratic: Array, U: Array) -> None:
    """α, β and the start of a block; one that is not full repeats its last node."""
    for j in range(_NODES):
        q = min(first + j, psi.shape[2] - 1)
        quadratic[0, j], quadratic[0, j + _NODES] = r.alpha[p, q].real, r.alpha[p, q].imag
        quadratic[1, j], quadratic[1, j + _NODES] = r.beta[p, q].real, r.beta[p, q].imag
        for i in range(len(U)):
            U[i, j], U[i, j + _NODES] = psi[p, i, q].real, psi[p, i, q].imag


@compiled
def _copy(rows: Array, out: Array) -> None:
    """Copy rows to the first ones of ``out``."""
    for i in range(len(rows)):
        for j in range(2 * _NODES):
            out[i, j] = rows[i, j]


@compiled
def _fill_euler(start: Array, sums: Array, quadratic: Array, nu2: float, now: Array) -> None:
    """Stages by an implicit step with R constant: ``V = start + sum·R(V)``, the damped root.

    First order only, but in the right half plane at any frequency: from elsewhere Newton's
    method can go to the other root.
    """
    for k in range(sums.size):
        for j in range(_NODES):
            alpha = complex(quadratic[0, j], quadratic[0, j + _NODES])
            beta = 1.0 - sums[k] * complex(quadratic[1, j], quadratic[1, j + _NODES])
            push = complex(start[k, j], start[k, j + _NODES]) + sums[k] * alpha
            root = cmath.sqrt(beta * beta - 2.0 * sums[k] * nu2 * push)
            if (root.conjugate() * beta).real < 0.0:
                root = -root
            V = 2.0 * push / (beta + root)
            now[k, j], now[k, j + _NODES] = V.real, V.imag


@compiled
def _fill_rate(V: Array, quadratic: Array, nu2: float, rate: Array) -> None:
    """``R(V)`` of one stage."""
    alpha, beta = quadratic[0], quadratic[1]
    for j in range(_NODES):
        re, im = V[j], V[j + _NODES]
        across, up = beta[j] + 0.5 * nu2 * re, beta[j + _NODES] + 0.5 * nu2 * im
        rate[j] = alpha[j] + (re * across - im * up)
        rate[j + _NODES] = alpha[j + _NODES] + (re * up + im * across)


@compiled
def _fill_system(
    B: Array, start: Array, now: Array, quadratic: Array, nu2: float, system: Array
) -> None:
    """Newton's equations ``(B − diag(β + ν² V)) change = B (start − V) + R(V)``, ``(s, s + 1)``."""
    s = len(B)
    for k in range(s):
        right = system[k, s]
        _fill_rate(now[k], quadratic, nu2, right)
        for m in range(s):
            weight, entry, V, from_start = B[k, m], system[k, m], now[m], start[m]
            for j in range(2 * _NODES):
                right[j] += weight * (from_start[j] - V[j])
            for j in range(_NODES):
                entry[j], entry[j + _NODES] = weight, 0.0
        entry, V, beta = system[k, k], now[k], quadratic[1]
        for j in range(2 * _NODES):
            entry[j] -= beta[j] + nu2 * V[j]


@compiled
def _solve_system(system: Array) -> None:
    """Solve by elimination in all nodes at once; the last column becomes the solution."""
    s = len(system)
    for k in range(s):
        pivot = system[k, k]
        for j in range(_NODES):
            re, im = pivot[j], pivot[j + _NODES]
            per_square = 1.0 / (re * re + im * im)
            pivot[j], pivot[j + _NODES] = re * per_square, -im * per_square
        for m in range(k + 1, s + 1):
            row = system[k, m]
            for j in range(_NODES):
                re, im = row[j], row[j + _NODES]
                row[j] = re * pivot[j] - im * pivot[j + _NODES]
                row[j + _NODES] = re * pivot[j + _NODES] + im * pivot[j]
        for i in range(k + 1, s):
            for m in range(k + 1, s + 1):
                _subtract_product(system[i, k], system[k, m], system[i, m])
    for k in range(s - 2, -1, -1):
        for m in range(k + 1, s):
            _subtract_product(system[k, m], system[m, s], system[k, s])


@compiled
def _subtract_product(a: Array, b: Array, out: Array) -> None:
    for j in range(_NODES):
        re, im = out[j], out[j + _NODES]
        out[j] = re - (a[j] * b[j] - a[j + _NODES] * b[j + _NODES])
        out[j + _NODES] = im - (a[j] * b[j + _NODES] + a[j + _NODES] * b[j])


@compiled
def _move_stages(system: Array, now: Array, worst: Array, judged: bool) -> None:
    """Add the changes to the stages; ``worst`` is widened by the size of those that are judged."""
    s = len(now)
    for k in range(s):
        change, V = system[k, s], now[k]
        for j in range(2 * _NODES):
            V[j] += change[j]
        if judged:
            for j in range(_NODES):
                moved = math.sqrt(change[j] ** 2 + change[j + _NODES] ** 2)
                size = moved / (1.0 + math.sqrt(V[j] ** 2 + V[j + _NODES] ** 2))
                size = size if size < math.inf else math.inf  # NaN too
                worst[j] = size if size > worst[j] else worst[j]


@compiled
def _lead_factors(fade: Array, lead: Array, rate: Array, U: Array, there: Array) -> None:
    """The factors at the end of a step, which may take the place of those at its start."""
    for i in range(len(U)):
        before, after = U[i], there[i]
        for j in range(2 * _NODES):
            after[j] = fade[i] * before[j]
    add_product(lead, rate, there)


@compiled
def _keep(
    landed: Array, total: Array, out: RiccatiSolution, land: int, p: int, first: int, count: int
) -> None:
    """Put the solution of a block at a requested time where it belongs."""
    for j in range(count):
        q = first + j
        out.power[land, p, q] = complex(total[0, j], total[0, j + _NODES])
        out.mass[land, p, q] = complex(total[1, j], total[1, j + _NODES])
        for i in range(len(landed)):
            out.psi[land, p, i, q] = complex(landed[i, j], landed[i, j + _NODES])
