"""GenGap_p95, in the paper's two definitions (docs/metrics/gen-gap.md)."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from arbiter.conventions import Array
from arbiter_lab.metrics.metric import Metric

GAP_QUANTILE = 0.95


def gen_gap_p95(model: ArrayLike, oracle: ArrayLike) -> Metric:
    """Section 5.2: 95th percentile over windows of the mean of ``|ĉ − c*|`` over the grid.

    Args:
        model: ``(D, L, S)`` out-of-sample calls in forward units, a window a row.
        oracle: The same of the truth; NaN where nothing is listed.
    """
    found, truth = np.asarray(model, dtype=np.float64), np.asarray(oracle, dtype=np.float64)
    if found.shape != truth.shape or found.ndim != 3:
        raise ValueError(
            f"model has shape {found.shape} and oracle {truth.shape}: give (windows, maturities, "
            "strikes) of both"
        )
    listed = ~np.isnan(truth)
    off = np.where(listed, np.abs(found - truth), 0.0).sum(axis=(1, 2))
    with np.errstate(invalid="ignore"):
        daily = off / listed.sum(axis=(1, 2))
    return _percentile("GenGap_p95", daily, "have a price that is not a number, or none at all")


def gen_gap_p95_score(train: ArrayLike, out_of_sample: ArrayLike) -> Metric:
    """Section 2.3: 95th percentile of the absolute difference of a score, training to unseen.

    Args:
        train: ``(W,)`` score on each window's training days: NAS, or the objective.
        out_of_sample: ``(W,)`` the same on the days after.
    """
    one = np.atleast_1d(np.asarray(train, dtype=np.float64))
    two = np.atleast_1d(np.asarray(out_of_sample, dtype=np.float64))
    if one.shape != two.shape or one.ndim != 1:
        raise ValueError(f"{one.shape} scores of training and {two.shape} unseen: give pairs")
    return _percentile("GenGap_p95_score", np.abs(one - two), "have no score")


def _percentile(name: str, daily: Array, why: str) -> Metric:
    mean = Metric.from_days(name, daily, why)
    if mean.value is None:
        return mean
    return Metric(name, float(np.quantile(daily, GAP_QUANTILE)), None, daily)
