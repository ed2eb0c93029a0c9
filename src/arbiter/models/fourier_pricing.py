"""Out-of-the-money prices from a characteristic function, on contours bent for fast decay.

In forward units, with ``φ(ξ) = E X^{iξ}`` and a contour through ``ξ = −i/2``,

    call = 1 − κ I(k),   put = κ (1 − I(k)),   I(k) = (1/2π) ∫ e^{−iξk} φ(ξ) / (ξ (ξ + i)) dξ.

The contour ``ξ = iω₁ + b sinh(t + iω)`` bends down for calls and up for puts, so that ``e^{−iξk}``
falls off doubly exponentially, and the trapezoidal rule converges exponentially in 1/h
(Boyarchenko and Levendorskii 2019, "Sinh-acceleration"). The bend stays inside the cone where an
affine φ decays, which the correlation sets, and, on the side to which the index jumps, so shallow
that the transform of the jumps stays bounded on it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from arbiter.conventions import Array
from arbiter.models.exact_prices import Complex
from arbiter.models.fourier_sums import sum_shared_waves, sum_waves
from arbiter.models.parameters import Parameters

_CONTOUR_SCALE = 0.5  # distance of the contour from the poles at 0 and −i
_MAX_BEND_ANGLE = 0.4
_MAX_BEND_ANGLE_JUMPS = 0.18
_FULL_STEP_BEND_ANGLE = (
    0.22  # the bend at a correlation of 0.9: beyond, steps are shorter with the bend
)
CONTOUR_STEP = 0.06
CONTOUR_LENGTH = 14.0  # b sinh(14) = 3e5: enough for two days at 5 % volatility
_MAX_LOG_LAST_NODE = -23.0  # e^−23 = 1e-10: the last node may not be above this
_NEGLIGIBLE_LOG_SIZE = -41.0  # e^−41 = 2e-18: nodes beyond the last one above this are left out


@dataclass(frozen=True, eq=False)
class Contour:
    """Nodes and weights of ``I(k)`` on one side of the money.

    Attributes:
        calls: Whether the contour bends down, for strikes above the centre.
        xi: ``(Q,)`` nodes.
        weight: ``(Q,)`` weights, the factor ``1/(π ξ(ξ+i))`` included; the other half of the
            contour is the mirror image, so that only the real part of the sum counts.
        drift: Compensator of the jumps per year. Without a jump the log-index grows at this
            rate, which is the centre of the strikes.
    """

    calls: bool
    xi: Complex
    weight: Complex
    drift: float = 0.0

    @staticmethod
    def from_parameters(parameters: Parameters, calls: bool, step: float = CONTOUR_STEP) -> Contour:
        """The contour for calls or puts of a model."""
        sign = 1.0 if calls else -1.0
        steepest = min(0.5 * (0.5 * np.pi + sign * np.arcsin(parameters.rho)), _MAX_BEND_ANGLE)
        step *= min(
            1.0, steepest / _FULL_STEP_BEND_ANGLE
        )  # the rule's error depends on their ratio
        drift, jumps = 0.0, parameters.jumps
        if jumps is not None:
            drift = -jumps.intensity * float(np.expm1(jumps.mean + 0.5 * jumps.deviation**2))
            # frequent, large and narrow jumps: their transform grows fast off the contour
            step /= 1.0 if jumps.strength < 5.0 else 2.0 if jumps.strength < 20.0 else 3.0
            if sign * jumps.mean > 0.0:
                # on a ray at angle ω the exponent of the jumps' transform reaches (m sin ω/s)²/2
                steepest = min(steepest, _MAX_BEND_ANGLE_JUMPS, jumps.deviation / abs(jumps.mean))
        omega = -sign * steepest
        t = np.arange(0.0, CONTOUR_LENGTH + step, step)
        along = np.full(t.size, step)
        along[0] *= 0.5
        xi = 1j * (-0.5 - _CONTOUR_SCALE * np.sin(omega)) + _CONTOUR_SCALE * np.sinh(t + 1j * omega)
        weight = along * _CONTOUR_SCALE * np.cosh(t + 1j * omega) / (np.pi * xi * (xi + 1j))
        return Contour(calls, xi, weight, drift)

    def covers_strikes(self, k: Array, T: float) -> NDArray[np.bool_]:
        """Mask of the log-strikes at maturity T that are priced on this contour."""
        center = self.drift * T
        return np.asarray(k >= center if self.calls else k < center)

    @staticmethod
    def price(integral: Array, k: Array) -> Array:
        """The out-of-the-money price from ``I(k)``."""
        kappa = np.exp(k)
        return np.asarray(np.where(k >= 0.0, 1.0 - kappa * integral, kappa * (1.0 - integral)))


def invert(log_cf: Complex, xi: Complex, weight: Complex, k: Array) -> Array:
    """The Fourier sum ``Re Σ_q weight_q e^{log_cf_q − i ξ_q k}``.

    Args:
        log_cf: ``(D, Q)``, one row per state.
        xi: ``(Q,)`` nodes.
        weight: ``(Q,)`` weights.
        k: ``(m,)``, the same for all rows: one matrix product; or ``(D, m)``.

    Returns:
        ``(D, m)``.

    Raises:
        ArithmeticError: If the contour ends before the sum has converged.
    """
    days = len(log_cf)
    if k.size == 0:
        return np.zeros((days, k.shape[-1]))
    # seen from the strike nearest to the centre: φ alone may overflow where e^{−iξk} mends it
    nearest = float(k.min() if xi[-1].imag < 0.0 else k.max())
    scaled = log_cf + (np.log(weight) - 1j * nearest * xi)
    heard = np.flatnonzero((scaled.real > _NEGLIGIBLE_LOG_SIZE).any(0))
    if heard.size == 0:
        return np.zeros((days, k.shape[-1]))
    nodes = int(heard[-1]) + 1
    if nodes == xi.size and (scaled.real[:, -1] > _MAX_LOG_LAST_NODE).any():
        raise ArithmeticError(
            "the characteristic function has not decayed where the contour ends: variance is too "
            "small, or maturity too short, for so large a volatility of variance"
        )
    points, out = k - nearest, np.empty((days, k.shape[-1]))
    if k.ndim == 1 and days > 1:
        sum_shared_waves(scaled, xi[:nodes], points, out)
    else:
        sum_waves(scaled, xi[:nodes], points.reshape(days, -1), out)
    return out
