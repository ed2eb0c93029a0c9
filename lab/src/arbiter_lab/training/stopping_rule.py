"""Stopping rule of training: convergence, budgets and plateaus (paper, section 3.4).

The paper's rule: |ΔGap| and the dual residual below 1e-3 for 1,000 consecutive steps, and the
randomised martingale test passes. Nothing proves that a network ever meets it (errata 32), so a
budget ends training otherwise, and the ending says which it was. The dual residual is the natural
one, `Duals.residual` (errata 27). Both measures should come from a fixed held-out batch: on
training batches their noise alone is above the thresholds.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from enum import StrEnum


class Ending(StrEnum):
    """Reasons for which training ends."""

    CONVERGED = "converged"
    BUDGET = "budget"
    TIME = "time"
    PLATEAU = "plateau"
    INTERRUPTED = "interrupted"
    DIVERGED = "diverged"

    @property
    def sentence(self) -> str:
        """The meaning of the ending and the remedy, as a sentence."""
        return _SENTENCES[self]


_SENTENCES = {
    Ending.CONVERGED: "Gap and dual residual stayed below their thresholds, and the martingale "
    "test passed.",
    Ending.BUDGET: "The budget of steps ended before the thresholds were met: resume with more.",
    Ending.TIME: "The budget of time ended before the thresholds were met: resume with more.",
    Ending.PLATEAU: "The held-out score stopped falling: more steps of this kind gain little.",
    Ending.INTERRUPTED: "It was interrupted: resume from the last checkpoint.",
    Ending.DIVERGED: "A loss or gradient was not finite: lower the rates or clip, and resume from "
    "the last checkpoint.",
}


@dataclass(frozen=True)
class Thresholds:
    """Thresholds of the stopping rule.

    Attributes:
        gap_change: Bound on |ΔGap| between one measurement and the next.
        dual_residual: Bound on the natural residual of the multipliers.
        patience: Number of consecutive steps that have to meet both.
        gap: Bound on the gap itself. The paper has none, and a gap that is stuck high then counts
            as converged; infinite by default, to follow it.
        max_steps: Budget of steps.
        max_seconds: Budget of seconds.
    """

    gap_change: float = 1e-3
    dual_residual: float = 1e-3
    patience: int = 1000
    gap: float = math.inf
    max_steps: float = math.inf
    max_seconds: float = math.inf

    def __post_init__(self) -> None:
        for field in fields(self):
            if not getattr(self, field.name) > 0:
                raise ValueError(
                    f"{field.name} must be positive, got {getattr(self, field.name)}: a threshold "
                    "of zero is never met"
                )


class StoppingRule:
    """Counts how long the thresholds have been met.

    >>> rule = StoppingRule(Thresholds(patience=3, max_steps=100))
    >>> for step in range(1, 100):
    ...     ending = rule.update(step, gap=0.5, dual_residual=0.0, martingale=lambda: True)
    ...     if ending:
    ...         break
    >>> step, str(ending)
    (4, 'converged')
    """

    def __init__(self, thresholds: Thresholds | None = None) -> None:
        self.thresholds = thresholds or Thresholds()
        self.gap: float | None = None
        self.gap_change: float | None = None
        self.dual_residual: float | None = None
        self.since: int | None = None
        self.failed_tests = 0

    def update(
        self,
        step: int,
        *,
        gap: float | None = None,
        dual_residual: float | None = None,
        seconds: float = 0.0,
        martingale: Callable[[], bool] | None = None,
    ) -> Ending | None:
        """Update with the measurements after a step; return the ending, or None to continue.

        Measures are dear, and need not be taken every step: one that is left out keeps its last
        value, and convergence is only declared at a step that measured both. A measure that is
        not finite meets no threshold. After a failed martingale test the patience starts anew, so
        that a gate that fails cannot wait for a lucky draw.

        Args:
            step: Number of steps done.
            gap: DualGap.
            dual_residual: Natural residual of the multipliers.
            seconds: Time used, over all legs of the training.
            martingale: Runs the randomised test; only called when all else is met. None fails.
        """
        if gap is not None:
            if self.gap is not None:
                self.gap_change = abs(gap - self.gap)
            self.gap = gap
        if dual_residual is not None:
            self.dual_residual = dual_residual
        if not self._thresholds_met():
            self.since = None
        elif self.since is None:
            self.since = step
        measured = gap is not None and dual_residual is not None
        if measured and self.patience_reached(step):
            if martingale is not None and martingale():
                return Ending.CONVERGED
            self.failed_tests += 1
            self.since = None
        if step >= self.thresholds.max_steps:
            return Ending.BUDGET
        if seconds >= self.thresholds.max_seconds:
            return Ending.TIME
        return None

    def patience_reached(self, step: int) -> bool:
        """Whether the thresholds have been met for long enough."""
        return self.since is not None and step - self.since + 1 >= self.thresholds.patience

    def state_dict(self) -> dict[str, float | int | None]:
        """Return the counters that a resumed run needs, as plain JSON values."""
        state = {name: getattr(self, name) for name in _STATE_KEYS}
        return {
            name: None if isinstance(value, float) and not math.isfinite(value) else value
            for name, value in state.items()
        }

    def load_state_dict(self, state: Mapping[str, float | int | None]) -> None:
        """Restore the counters of `state_dict`."""
        if set(state) != set(_STATE_KEYS):
            raise ValueError(f"the state of a stopping rule has {_STATE_KEYS}, got {sorted(state)}")
        for name in _STATE_KEYS:
            setattr(self, name, state[name])

    def _thresholds_met(self) -> bool:
        bounds = self.thresholds
        pairs = (
            (self.gap, bounds.gap),
            (self.gap_change, bounds.gap_change),
            (self.dual_residual, bounds.dual_residual),
        )
        return all(x is not None and math.isfinite(x) and x < bound for x, bound in pairs)


_STATE_KEYS = ("gap", "gap_change", "dual_residual", "since", "failed_tests")


class Plateau:
    """Whether a score that should fall has fallen by less than a share over a span.

    Args:
        share: The least fall that counts, as a share of the score.
        span: Over how long, in whatever unit ``at`` has: seconds or steps.
    """

    def __init__(self, share: float = 0.01, span: float = 300.0) -> None:
        if not (0.0 < share < 1.0 and span > 0.0):
            raise ValueError(f"share must lie in (0, 1) and span be positive, got {share}, {span}")
        self.share, self.span = share, span
        self.best: list[tuple[float, float]] = []

    def update(self, at: float, score: float) -> bool:
        """Update with a score; return whether the best fell by less than the share in a span."""
        previous = self.best[-1] if self.best else (-math.inf, math.inf)
        if at < previous[0]:
            raise ValueError(f"scores come in order: {at} after {previous[0]}")
        now = min(score, previous[1]) if math.isfinite(score) else previous[1]
        self.best.append((at, now))
        before = [best for when, best in self.best if when <= at - self.span]
        return bool(before) and now > (1.0 - self.share) * before[-1]
