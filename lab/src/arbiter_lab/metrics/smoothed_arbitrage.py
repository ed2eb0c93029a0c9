"""CNAS: the calibrated one of section 5.2 and the convolved one of section 2.3.

docs/metrics/cnas.md. The paper gives neither the hinge, nor the kernel, nor any of their
parameters; those here are ours, and fixed.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from arbiter.conventions import Array
from arbiter.scoring import TOLERANCE
from arbiter_lab.metrics.arbitrage import NOT_A_PRICE
from arbiter_lab.metrics.metric import Metric
from arbiter_lab.metrics.panels import Panel, build_panel, negative_mass, violations


@dataclass(frozen=True)
class Hinge:
    """ψ(x) = 1 − exp(−stiffness·((x/scale − tolerance)₊)²): smooth, zero up to the tolerance.

    Attributes:
        stiffness: κ, how fast it saturates at one.
        tolerance: τ, in units of the scale.
        scale: What counts as a violation of size one: of the forward, and as a mass.
    """

    stiffness: float = 1.0
    tolerance: float = 0.0
    scale: float = 0.01

    def __post_init__(self) -> None:
        if not (self.stiffness > 0.0 and self.scale > 0.0 and self.tolerance >= 0.0):
            raise ValueError(f"stiffness and scale must be positive, tolerance ≥ 0, got {self}")

    def __call__(self, x: Array) -> Array:
        """ψ at violations that are not negative."""
        past = np.maximum(x / self.scale - self.tolerance, 0.0)
        return np.asarray(-np.expm1(-self.stiffness * past**2))


@dataclass(frozen=True)
class Kernel:
    """Weights exp(−½((√T − √T')/bandwidth)²)·exp(−T'/horizon), from T' to T.

    Attributes:
        bandwidth: κ, in root years.
        horizon: τ, in years: later maturities fade.
    """

    bandwidth: float = 0.1
    horizon: float = 1.0

    def __post_init__(self) -> None:
        if not (self.bandwidth > 0.0 and self.horizon > 0.0):
            raise ValueError(f"bandwidth and horizon must be positive, got {self}")

    def weights(self, T: Array) -> Array:
        """``(L, L)`` rows that add up to one: what the smoothed score at T takes from each T'."""
        apart = (np.sqrt(T)[:, None] - np.sqrt(T)) / self.bandwidth
        log_weight = -0.5 * apart**2 - T / self.horizon
        weight = np.exp(log_weight - log_weight.max(axis=1, keepdims=True))
        return np.asarray(weight / weight.sum(axis=1, keepdims=True))


def cnas(
    calls: ArrayLike,
    kappa: ArrayLike,
    T: ArrayLike,
    hinge: Hinge | None = None,
    *,
    printed: bool = False,
) -> Metric:
    """Section 5.2, calibrated: one less the mean over the grid of a saturating hinge.

    At each node the three violations of `nas` (the rise to the next strike, the negative mass, the
    fall to the next maturity) are added before they saturate, which couples slope and curvature.

    Args:
        calls: ``(D, L, S)``, or ``(L, S)`` of one day, forward units.
        kappa: ``(S,)`` strikes over forward.
        T: ``(L,)`` years.
        hinge: Its three parameters.
        printed: The calendar's sign as printed (errata 47), under ``CNAS_as_printed``.
    """
    panel = build_panel(calls, kappa, T)
    found = violations(panel, 0.0 if printed else TOLERANCE, printed)
    mass = negative_mass(found.butterfly, panel.kappa)
    at_node = np.zeros(panel.calls.shape)
    at_node[..., :-1] += found.vertical
    at_node[..., 1:-1] += mass
    at_node[:, :-1] += found.calendar
    daily = 1.0 - (hinge or Hinge())(at_node).mean(axis=(1, 2))
    return Metric.from_days("CNAS_as_printed" if printed else "CNAS", daily, NOT_A_PRICE)


def cnas_convolved(
    calls: ArrayLike, kappa: ArrayLike, T: ArrayLike, kernel: Kernel | None = None
) -> Metric:
    """Section 2.3, convolved: scores of maturities, smoothed along them, then averaged.

    Args:
        calls: ``(D, L, S)``, or ``(L, S)`` of one day, forward units.
        kappa: ``(S,)`` strikes over forward.
        T: ``(L,)`` years.
        kernel: Bandwidth and horizon.
    """
    panel = build_panel(calls, kappa, T)
    weights = (kernel or Kernel()).weights(panel.T).mean(axis=0)  # (L,)
    # lost shares, not scores: weights that add up to one but for rounding leave one exact
    daily = 1.0 - (1.0 - _score_by_maturity(panel)) @ weights
    return Metric.from_days(
        "CNAS_convolved", daily, f"{NOT_A_PRICE}, or a maturity without time value on the grid"
    )


def nas_by_maturity(calls: ArrayLike, kappa: ArrayLike, T: ArrayLike) -> Array:
    """``(D, L)`` scores in [0, 1]: one less the mean over inequalities of size over scale, capped.

    Sizes are portfolio prices; the scale is the largest time value on the grid at that maturity,
    near σ√T/√(2π). A calendar spread counts for its earlier leg, which is the one too high. NaN
    where a price is not a number, or no option has time value.
    """
    return _score_by_maturity(build_panel(calls, kappa, T))


def cnas_frozen_drop(base: float | None, windows: ArrayLike) -> Metric:
    """CNAS of the base less the mean over windows with frozen parameters; a rise is negative.

    Args:
        base: On the base's own window.
        windows: ``(W,)`` on disjoint later ones.
    """
    name, later = "cnas_frozen_drop", np.atleast_1d(np.asarray(windows, dtype=np.float64))
    if base is None or not np.isfinite(base):
        return Metric.undefined(name, "the base has no CNAS")
    if not later.size or not np.isfinite(later).all():
        return Metric.undefined(name, "a window has no CNAS" if later.size else "no windows")
    return Metric(name, float(base - later.mean()), None, base - later)


def _score_by_maturity(panel: Panel) -> Array:
    found = violations(panel)
    time_value = panel.calls - np.maximum(1.0 - panel.kappa, 0.0)
    scale = time_value.max(axis=2)[..., None]  # (D, L, 1)
    scale = np.where(scale > TOLERANCE, scale, np.nan)  # less is rounding of intrinsic values
    sizes = [found.vertical / scale, found.butterfly / scale, found.calendar / scale[:, :-1]]
    lost = sum(np.minimum(s, 1.0).sum(axis=2) for s in sizes[:2])
    lost = np.asarray(lost)
    lost[:, :-1] += np.minimum(sizes[2], 1.0).sum(axis=2)
    S = panel.kappa.size
    count = np.full(panel.T.size, 2.0 * S - 3.0)
    count[:-1] += S
    return np.asarray(1.0 - lost / count)
