"""Stability, in the paper's two definitions (docs/metrics/stability.md)."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

from arbiter.conventions import Array
from arbiter_lab.metrics.metric import Metric

MIN_NAS = 0.9  # below it section 5.4 calls a surface failed
MAX_RHO_DT = 1.0  # largest ρ(A)Δ of a stable step: above it the scan can diverge


def stability(max_rho_dt: ArrayLike, martingale: ArrayLike, converged: ArrayLike) -> Metric:
    """Share of runs with ρ(A)Δ ≤ 1 at every step that passed the martingale test and converged.

    This is the definition of section 5.2. The series of the metric has one entry per run, 1 or 0.

    Args:
        max_rho_dt: ``(R,)`` largest ρ(A)Δ of each run, over all steps and maturities.
        martingale: ``(R,)`` whether the randomised martingale test passed at the end.
        converged: ``(R,)`` whether the run ended by the stopping rule and not by its budget.

    Example:
        >>> stability([0.9, 0.9, 1.1], [True, True, True], [True, False, True])
        Stability = 0.333333
    """
    rho = _check_column("max_rho_dt", max_rho_dt)
    passed = rho <= MAX_RHO_DT  # not a number is not safe
    passed &= _check_flags("martingale", martingale, rho.size) & _check_flags(
        "converged", converged, rho.size
    )
    return _share_metric("Stability", passed, "runs")


def stability_windows(
    nas: ArrayLike,
    max_rho_dt: ArrayLike,
    projection_distance: ArrayLike,
    stalled: ArrayLike,
    *,
    least_nas: float = MIN_NAS,
    farthest: float = math.inf,
) -> Metric:
    """Share of seeds and windows with a high NAS, ρ(A)Δ ≤ 1 and a converged saddle.

    This is the definition of section 2.3, which states neither the threshold on NAS nor the bound
    on the distance.

    Args:
        nas: ``(N,)`` no-arbitrage score of each seed and window.
        max_rho_dt: ``(N,)`` largest ρ(A)Δ.
        projection_distance: ``(N,)`` sum of the distances of Spec-Guard's projections.
        stalled: ``(N,)`` whether gap and dual residual stayed below their thresholds.
        least_nas: Smallest NAS that passes.
        farthest: Largest distance that passes; any finite distance by default.
    """
    scores = _check_column("nas", nas)
    rho, distance = (
        _check_column("max_rho_dt", max_rho_dt),
        _check_column("distance", projection_distance),
    )
    if not scores.size == rho.size == distance.size:
        raise ValueError(
            f"{scores.size} scores, {rho.size} radii and {distance.size} distances: give one of "
            "each for every seed and window"
        )
    passed = (scores >= least_nas) & (rho <= MAX_RHO_DT)
    passed &= np.isfinite(distance) & (distance <= farthest)
    passed &= _check_flags("stalled", stalled, scores.size)
    return _share_metric("Stability_windows", passed, "seeds or windows")


def _share_metric(name: str, passed: NDArray[np.bool_], what: str) -> Metric:
    if not passed.size:
        return Metric.undefined(name, f"there are no {what}")
    return Metric(name, float(passed.mean()), None, passed.astype(np.float64))


def _check_column(name: str, values: ArrayLike) -> Array:
    column = np.atleast_1d(np.asarray(values, dtype=np.float64))
    if column.ndim != 1:
        raise ValueError(f"{name} has shape {column.shape}: give one number a run")
    return column


def _check_flags(name: str, values: ArrayLike, count: int) -> NDArray[np.bool_]:
    flags = np.atleast_1d(np.asarray(values))
    if flags.size == 0:
        flags = flags.astype(np.bool_)
    if flags.dtype != np.bool_ or flags.shape != (count,):
        raise ValueError(
            f"{name} is {flags.dtype} of shape {flags.shape}: give {count} booleans, one a run"
        )
    return flags
