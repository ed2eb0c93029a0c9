"""The duality gap of a saddle problem and the log-ratio of its two sides.

    DualGap = sup over λ of L(θ, λ) − inf over θ of L(θ, λ)

The supremum over the box is exact. The infimum over the parameters of a network is not to be had:
what stands for it is the least L that a few look-ahead steps from θ meet, θ itself included. It is
above the infimum, so the gap reported is an **underestimate** of the gap, and never negative.
Compare gaps only at equal look-ahead, on the same held-out batch.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import NamedTuple

import torch
from torch import Tensor

from arbiter_lab.metrics import duality_gap
from arbiter_lab.training.duals import Duals
from arbiter_lab.training.saddle import Evaluation, ExtraGradient, Lagrangian, Rates


class DualityGap(NamedTuple):
    """The two sides of the duality gap at one point."""

    primal: float
    """sup over the box of L(θ, ·), exact."""
    value: float
    """L(θ, λ)."""
    dual: float
    """Least L(·, λ) met by the look-ahead: at least the infimum."""

    @property
    def gap(self) -> float:
        """The duality gap; an underestimate, since the dual side is above the infimum."""
        return self.primal - self.dual

    @property
    def ratio_log(self) -> float:
        """log(primal / dual); see `ratio_log`."""
        return estimate_ratio_log(self.primal, self.dual)


def estimate_ratio_log(primal: float, dual: float) -> float:
    """log(primal / dual), the paper's diagnostic of bias; NaN unless both are positive.

    With multipliers of both signs L may be negative. No number is then made up.
    """
    value = duality_gap.ratio_log(primal, dual).value
    return math.nan if value is None else value


def estimate_dual_gap(
    lagrangian: Lagrangian,
    params: Iterable[Tensor],
    duals: Duals,
    *,
    steps: int = 20,
    lr: float = 1e-3,
    project: Callable[[], object] | None = None,
) -> DualityGap:
    """Measure the gap at the current point; parameters are restored bit for bit.

    Args:
        lagrangian: As for `ExtraGradient`, on one fixed held-out batch.
        params: The parameters; they are moved during the look-ahead and put back.
        duals: The multipliers; they stay.
        steps: Look-ahead steps of Adam. More of them raise the gap; none compares the worst
            multipliers with the current ones.
        lr: Their rate.
        project: As for `ExtraGradient`: the infimum is over the same feasible set.

    Raises:
        FloatingPointError: If L at the current point is not finite. A look-ahead that runs into
            numbers that are not finite ends there, and its least value so far counts.
    """
    if steps < 0:
        raise ValueError(f"steps must not be negative, got {steps}")
    params = list(params)
    with torch.no_grad():
        value, defects, _ = Evaluation(*lagrangian(duals))
        here = float(value)
        primal = here + float(duals.box_supremum(defects) - duals.inner_product(defects))
    if not (math.isfinite(here) and math.isfinite(primal)):
        raise FloatingPointError(f"L is {here}, its supremum {primal}: there is no gap to measure")
    before = [p.detach().clone() for p in params]
    rates = Rates(lr=lr, betas=(0.9, 0.999), mode="simultaneous")
    # No multipliers: they are held, and the look-ahead is a plain minimisation.
    look_ahead = ExtraGradient(params, Duals({}), rates, project)

    def held(_: Duals) -> Evaluation:
        seen = Evaluation(*lagrangian(duals))
        return Evaluation(seen.value, {}, seen.gradients)

    met = [here]
    try:
        met.extend(float(look_ahead.step(held).value) for _ in range(steps))
        if steps:
            with torch.no_grad():
                met.append(float(Evaluation(*lagrangian(duals)).value))
    except FloatingPointError:
        pass
    finally:
        with torch.no_grad():
            torch._foreach_copy_(params, before)
    dual = min(value for value in met if math.isfinite(value))
    # At the worst multipliers the two sums are equal but for rounding.
    return DualityGap(max(primal, here), here, dual)
