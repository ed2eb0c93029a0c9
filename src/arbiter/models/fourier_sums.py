"""Fourier sums ``Σ_q e^{a_q + b_q k} cos(α_q − β_q k)``, compiled.

Sums are taken in one order, whatever the number of threads. Shapes: D days, Q nodes, m strikes.
"""

from __future__ import annotations

import math

import numpy as np

from arbiter.compiled import compiled, inlined
from arbiter.conventions import Array
from arbiter.models.exact_prices import Complex
from arbiter.models.matrix_product import add_product
from arbiter.pricing.elementary import exp

_PER_RIGHT_ANGLE = 2.0 / math.pi
# π/2 in three parts: the first two have 33 bits, so that their products with whole numbers below a
# million are exact (fdlibm)
_RIGHT_ANGLE = (1.57079632673412561417e00, 6.07710050630396597660e-11, 2.02226624879595063154e-21)
# of sin x/x and cos x in x² for |x| ≤ π/4 from the second term on, the highest power first (fdlibm)
_SIN = (
    1.58969099521155010221e-10,
    -2.50507602534068634195e-08,
    2.75573137070700676789e-06,
    -1.98412698298579493134e-04,
    8.33333333332248946124e-03,
    -1.66666666666666324348e-01,
)
_COS = (
    -1.13596475577881948265e-11,
    2.08757232129817482790e-09,
    -2.75573143513906633035e-07,
    2.48015872894767294178e-05,
    -1.38888888888741095749e-03,
    4.16666666666666019037e-02,
)


@inlined
def rotate(angle: float) -> tuple[float, float]:
    """Cosine and sine, to 2e-16 for angles below a million."""
    n = np.floor(angle * _PER_RIGHT_ANGLE + 0.5)  # right angles
    r = ((angle - n * _RIGHT_ANGLE[0]) - n * _RIGHT_ANGLE[1]) - n * _RIGHT_ANGLE[2]
    z = r * r
    p: float = _SIN[0]
    p = p * z + _SIN[1]
    p = p * z + _SIN[2]
    p = p * z + _SIN[3]
    p = p * z + _SIN[4]
    p = p * z + _SIN[5]
    sine = r + r * z * p
    p = _COS[0]
    p = p * z + _COS[1]
    p = p * z + _COS[2]
    p = p * z + _COS[3]
    p = p * z + _COS[4]
    p = p * z + _COS[5]
    cosine = 1.0 - (0.5 * z - z * z * p)
    half_turns = np.floor(0.5 * n)
    odd = n - 2.0 * half_turns
    sign = 1.0 - 2.0 * (half_turns - 2.0 * np.floor(0.5 * half_turns))
    return sign * (-sine if odd > 0.5 else cosine), sign * (cosine if odd > 0.5 else sine)


@compiled
def sum_waves(scaled: Complex, xi: Complex, points: Array, out: Array) -> None:
    """``Re Σ_q e^{scaled_q − i ξ_q k}`` into ``(D, m)``.

    Args:
        scaled: ``(D, ≥ Q)`` logarithms, one row per day.
        xi: ``(Q,)`` nodes.
        points: ``(D, m)`` log-strikes.
        out: ``(D, m)``.
    """
    Q = xi.size
    size, turn, decay, wave = np.empty(Q), np.empty(Q), np.empty(Q), np.empty(Q)
    term = np.empty(Q)
    for q in range(Q):
        decay[q], wave[q] = xi[q].imag, xi[q].real
    for d in range(len(points)):
        for q in range(Q):
            size[q], turn[q] = scaled[d, q].real, scaled[d, q].imag
        for m in range(points.shape[1]):
            k = points[d, m]
            for q in range(Q):
                term[q] = exp(size[q] + k * decay[q]) * rotate(turn[q] - k * wave[q])[0]
            out[d, m] = _sum(term)


@compiled
def sum_shared_waves(scaled: Complex, xi: Complex, points: Array, out: Array) -> None:
    """The same for log-strikes ``(m,)`` that all days share: one product of matrices."""
    Q = xi.size
    basis, parts = np.empty((2 * Q, points.size)), np.empty((1, 2 * Q))
    for q in range(Q):
        for m in range(points.size):
            far = exp(points[m] * xi[q].imag)
            cosine, sine = rotate(points[m] * xi[q].real)
            basis[q, m], basis[q + Q, m] = far * cosine, far * sine
    out.fill(0.0)
    for d in range(len(scaled)):
        for q in range(Q):
            size = exp(scaled[d, q].real)
            cosine, sine = rotate(scaled[d, q].imag)
            parts[0, q], parts[0, q + Q] = size * cosine, size * sine
        add_product(parts, basis, out[d : d + 1])


@inlined
def _sum(terms: Array) -> float:
    """The sum as four sums side by side, so that none waits for another."""
    a, b, c, d = 0.0, 0.0, 0.0, 0.0
    whole = terms.size - terms.size % 4
    for q in range(0, whole, 4):
        a, b, c, d = a + terms[q], b + terms[q + 1], c + terms[q + 2], d + terms[q + 3]
    for q in range(whole, terms.size):
        a += terms[q]
    return (a + b) + (c + d)
