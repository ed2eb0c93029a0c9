"""Failure thresholds: the severity of stress at which half of the cases fail, with intervals.

Shares of failures are made nondecreasing in the severity (isotonic regression, Barlow and Brunk).
The estimate is the severity at which they cross one half, by linear interpolation.

The exact interval tests the severities from the mildest whether fewer than half of the cases fail,
and stops at the first without a rejection; from the hardest down it tests for more than half. A
fixed order needs no correction for multiple tests, and the binomial test is exact. The coverage is
therefore at least nominal, if failures become likelier with the severity. Its ends are severities
that were tried, and with fewer than six cases it has none. The bootstrap interval resamples cases,
all severities of a case together; it is shorter and approximate.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import isotonic_regression

from arbiter.conventions import Array
from arbiter_lab.protocol.inference import CONFIDENCE_LEVEL, clopper_pearson_interval

BOOTSTRAP_RESAMPLES = 2_000


@dataclass(frozen=True)
class FailureThreshold:
    """The severity of stress at which half of the cases fail.

    Attributes:
        estimate: The threshold; None where it lies outside the severities tried.
        low: Lower end of the exact interval; None where no severity rejects.
        high: Upper end of the exact interval; None where no severity rejects.
        bootstrap_low: Lower end of the bootstrap interval; None where it is out of range.
        bootstrap_high: Upper end of the bootstrap interval; None where it is out of range.
        levels: Severities tried; the name is that of the results file.
        shares: Shares of failures at them, made nondecreasing.
        cases: Number of cases.
        reason: Why there is no estimate; None if there is one.
    """

    estimate: float | None
    low: float | None
    high: float | None
    bootstrap_low: float | None
    bootstrap_high: float | None
    levels: tuple[float, ...]
    shares: tuple[float, ...]
    cases: int
    reason: str | None

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as plain JSON values."""
        return asdict(self)


def estimate_failure_threshold(
    severities: ArrayLike,
    failed: ArrayLike,
    *,
    level: float = CONFIDENCE_LEVEL,
    resamples: int = BOOTSTRAP_RESAMPLES,
    seed: int = 0,
) -> FailureThreshold:
    """Estimate the failure threshold along an axis of stress.

    Args:
        severities: ``(n,)`` severities, increasing.
        failed: ``(n, m)`` whether each of m cases fails at each severity; ``(n,)`` for one case.
        level: Confidence level of both intervals.
        resamples: Number of resamples of the bootstrap.
        seed: Seed of the bootstrap.

    Example:
        >>> found = estimate_failure_threshold(
        ...     [0.0, 1.0, 2.0], [[0] * 8, [0] * 6 + [1] * 2, [1] * 8]
        ... )
        >>> round(found.estimate, 9), found.low, found.high
        (1.333333333, 0.0, 2.0)
    """
    at = np.asarray(severities, dtype=np.float64)
    fails = np.asarray(failed)
    fails = fails[:, None] if fails.ndim == 1 else fails
    if at.ndim != 1 or fails.ndim != 2 or fails.shape[0] != at.size or 0 in fails.shape:
        raise ValueError(
            f"severities has shape {at.shape} and failed {np.shape(failed)}: give n severities, "
            "and for each the outcomes of at least one case"
        )
    if not np.isin(fails, (0, 1)).all():
        raise ValueError("failed holds something else than true and false: say which cases fail")
    if not (np.isfinite(at).all() and (np.diff(at) > 0.0).all()):
        raise ValueError(f"severities = {at.tolist()}: they must be finite and increase")
    outcomes = fails.astype(np.float64)
    shares = _fit_isotonic(outcomes.mean(1))
    found = _find_half_crossing(at, shares)
    low, high = _exact_interval(at, fails.sum(1).astype(int), fails.shape[1], level)
    ends = _bootstrap_interval(at, outcomes, level, resamples, seed)
    reason = None
    if math.isinf(found):
        end, what = (at[-1], "fewer") if found > 0.0 else (at[0], "more")
        reason = (
            f"{what} than half of the cases fail at {end:g}, the {_END_NAMES[what]} level tried"
        )
    return FailureThreshold(
        _none_if_infinite(found), low, high, ends[0], ends[1],
        tuple(at.tolist()), tuple(shares.tolist()), fails.shape[1], reason,
    )  # fmt: skip


def bisect_to_failure(
    fails: Callable[[float], bool], first: float, most: float, *, steps: int = 8
) -> tuple[float, float] | None:
    """Levels that one case passes and fails at: doubled until it fails, then bisected.

    Args:
        fails: Whether the case fails at a severity.
        first: The first severity tried above zero.
        most: The largest severity tried.
        steps: Number of bisections.

    Returns:
        The largest severity passed and the smallest failed. ``(0, 0)`` if the case fails without
        stress; None if it does not fail at ``most``.
    """
    if not 0.0 < first <= most < math.inf:
        raise ValueError(f"first = {first!r}, most = {most!r}: give 0 < first ≤ most")
    if fails(0.0):
        return 0.0, 0.0
    passed, tried = 0.0, first
    while not fails(tried):
        if tried >= most:
            return None
        passed, tried = tried, min(2.0 * tried, most)
    for _ in range(steps):
        middle = 0.5 * (passed + tried)
        if fails(middle):
            tried = middle
        else:
            passed = middle
    return passed, tried


_END_NAMES = {"fewer": "hardest", "more": "mildest"}


def _fit_isotonic(shares: Array) -> Array:
    return np.asarray(isotonic_regression(shares).x, dtype=np.float64)


def _find_half_crossing(at: Array, shares: Array) -> float:
    """Return where nondecreasing shares reach one half; ±∞ if they never do or start above."""
    if shares[0] > 0.5:
        return -math.inf
    reached = np.flatnonzero(shares >= 0.5)
    if not reached.size:
        return math.inf
    i = int(reached[0])
    if i == 0 or shares[i] == 0.5:
        # a flat stretch at one half: its middle
        flat = reached[shares[reached] == 0.5]
        return float(0.5 * (at[flat[0]] + at[flat[-1]]))
    along = (0.5 - shares[i - 1]) / (shares[i] - shares[i - 1])
    return float(at[i - 1] + along * (at[i] - at[i - 1]))


def _exact_interval(
    at: Array, fails: NDArray[np.int_], cases: int, level: float
) -> tuple[float | None, float | None]:
    bounds = [clopper_pearson_interval(int(count), cases, level) for count in fails]
    low = high = None
    for here, bound in zip(at.tolist(), bounds, strict=True):
        if bound.high >= 0.5:
            break
        low = here
    for here, bound in zip(at[::-1].tolist(), bounds[::-1], strict=True):
        if bound.low <= 0.5:
            break
        high = here
    return low, high


def _bootstrap_interval(
    at: Array, outcomes: Array, level: float, resamples: int, seed: int
) -> tuple[float | None, float | None]:
    rng = np.random.default_rng(seed)
    cases = outcomes.shape[1]
    found = [
        _find_half_crossing(at, _fit_isotonic(outcomes[:, rng.integers(0, cases, cases)].mean(1)))
        for _ in range(resamples)
    ]
    tail = 0.5 * (1.0 - level)
    # no interpolation between order statistics: some of them are infinite
    low, high = np.quantile(found, [tail, 1.0 - tail], method="inverted_cdf").tolist()
    return _none_if_infinite(low), _none_if_infinite(high)


def _none_if_infinite(value: float) -> float | None:
    return value if math.isfinite(value) else None
