"""Differences between methods on the same surfaces, with intervals and p-values.

The difference is that of the RMSE of a surface, method minus reference, in basis points. Surfaces
of one market are not independent of each other: their differences are averaged first, and Student's
paired t-test takes the markets (``scipy.stats.ttest_1samp``).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.stats import ttest_1samp

from arbiter_lab.evaluation.known_surface import Case
from arbiter_lab.evaluation.scores import CaseScore, surface_rmse_bp

REFERENCE_METHODS = ("operator", "prior")
"""The first is compared with the second, and all others with the first."""
LEVEL = 0.95  # of the intervals


def paired_differences(
    cases: Sequence[Case], answers: Mapping[str, Sequence[CaseScore]]
) -> list[dict[str, Any]]:
    """Return the operator against the prior, and every other method against the operator.

    Args:
        cases: Cases of the benchmark.
        answers: Scores by name of the method, in the order of the cases.

    Returns:
        One entry a pair, with the mean difference, its interval and p-value; None in their place
        where a method has no error on some surface, or there are fewer than two markets.
    """
    markets = [case.market or case.name for case in cases]
    return [
        {"method": name, "against": other}
        | compare_pair(_each(answers[name]), _each(answers[other]), markets)
        for name, other in reference_pairs(list(answers))
    ]


def reference_pairs(names: Sequence[str]) -> list[tuple[str, str]]:
    """Return the pairs of methods that are compared, each with its reference."""
    first, second = REFERENCE_METHODS
    if first not in names:
        return []
    others = [(name, first) for name in names if name not in REFERENCE_METHODS]
    return [(first, second), *others] if second in names else others


def compare_pair(first: ArrayLike, second: ArrayLike, markets: Sequence[str]) -> dict[str, Any]:
    """Return the paired comparison of two rows of errors, first minus second.

    Args:
        first: ``(N,)`` errors of the first method by surface.
        second: ``(N,)`` those of the second.
        markets: The market of each surface; surfaces of one market count once.

    Example:
        >>> found = compare_pair([1.0, 2.0, 3.0], [2.0, 3.5, 4.5], ["a", "b", "b"])
        >>> found["difference_bp"], found["markets"], found["better"]
        (-1.25, 2, 1.0)
    """
    gap = np.asarray(first, dtype=np.float64) - np.asarray(second, dtype=np.float64)
    names, group = np.unique(np.asarray(markets), return_inverse=True)
    found: dict[str, Any] = {
        "markets": names.size, "difference_bp": None, "low_bp": None, "high_bp": None,
        "p_value": None, "better": None,
    }  # fmt: skip
    if not np.isfinite(gap).all():
        return found
    by_market = np.bincount(group, gap) / np.bincount(group)
    found |= {"difference_bp": float(by_market.mean()), "better": float(np.mean(gap < 0.0))}
    if names.size < 2 or np.ptp(by_market) == 0.0:  # no scatter to judge by
        return found
    test = ttest_1samp(by_market, 0.0)
    interval = test.confidence_interval(LEVEL)
    low, high, p = float(interval.low), float(interval.high), float(test.pvalue)
    return found | {"low_bp": low, "high_bp": high, "p_value": p if math.isfinite(p) else None}


def _each(answers: Sequence[CaseScore]) -> list[float]:
    return [surface_rmse_bp(answer) for answer in answers]
