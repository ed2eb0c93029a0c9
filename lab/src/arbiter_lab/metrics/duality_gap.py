"""DualGap and its log-ratio, from the two sides of a saddle (docs/metrics/dual-gap.md).

`arbiter_lab.training.duality` measures the two sides on a network.
"""

from __future__ import annotations

import math

from arbiter_lab.metrics.metric import Metric


def dual_gap(primal: float, dual: float) -> Metric:
    """``sup over λ of L(θ, λ) − inf over θ of L(θ, λ)``, never negative.

    Args:
        primal: The supremum over the multipliers' box, exact.
        dual: What stands for the infimum. A network's is not to be had: the least L of a look-ahead
            is above it, and the gap then an **underestimate**.

    Example:
        >>> dual_gap(0.75, 0.5)
        DualGap = 0.25
    """
    if not (math.isfinite(primal) and math.isfinite(dual)):
        return Metric.undefined("DualGap", f"the sides are {primal} and {dual}, not both finite")
    if primal < dual:
        raise ValueError(
            f"primal {primal} is below dual {dual}: a supremum over λ is at least the infimum over "
            "θ; are the two swapped?"
        )
    return Metric("DualGap", primal - dual)


def ratio_log(primal: float, dual: float) -> Metric:
    """``log(primal / dual)``, the paper's diagnostic of bias.

    With multipliers of both signs L may be negative. No number is then made up.
    """
    if not (math.isfinite(primal) and math.isfinite(dual) and primal > 0.0 and dual > 0.0):
        reason = f"the sides are {primal} and {dual}, and a logarithm needs both positive"
        return Metric.undefined("ratio_log", reason)
    return Metric("ratio_log", math.log(primal / dual))
