"""Whether a fit explains its quotes, told from its residuals expiry by expiry.

The optimiser may have converged on a surface that misses what is quoted: because no surface
without arbitrage fits, or because the law has a shape that ordered transport slopes lack.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import numpy as np
from numpy.typing import NDArray

from arbiter.conventions import Array, Indices
from arbiter.values import ExplainedCode

MIN_INSIDE_SHARE = 0.9  # share inside bid-ask below which a fit does not explain its quotes
_INSIDE = 1.0 + 1e-9  # half-spreads from the mid
_MIN_PROBABILITY = 1e-3  # of so few inside by chance, where MIN_INSIDE_SHARE is true
_MIN_RUNS_SCORE = -3.0  # deviations: fewer runs of one sign than that are not chance
_MAX_NAMED = 3  # expiries in the sentence


class FitQuality(ExplainedCode):
    """Whether a surface explains the quotes that it was fitted to."""

    EXPLAINED = "explained", "the surface lies inside bid-ask, in every expiry but for chance"
    SCATTERED = (
        "scattered",
        "the quotes scatter around the surface by more than their spreads: look for stale or wrong "
        "prices, or widen the spreads",
    )
    MISSED = (
        "missed",
        "the surface misses the shape of its quotes over whole ranges of strikes: look at the "
        "residuals, at prices, strikes and dates, and for an event with two outcomes, whose law an "
        "ordered surface cannot have",
    )


@dataclass(frozen=True)
class FitVerdict:
    """The verdict on a fit.

    Attributes:
        quality: Its name; ``quality.explain()`` is a sentence.
        inside: Share of the quotes inside bid-ask.
        missed: Labels of the expiries with significantly fewer than nine tenths inside, or with a
            range of strikes outside on one side; the fewest inside first.
    """

    quality: FitQuality
    inside: float
    missed: tuple[str, ...] = ()

    @property
    def warning(self) -> str | None:
        """The verdict as a sentence; None where the quotes are explained."""
        if self.quality is FitQuality.EXPLAINED:
            return None
        named = ", ".join(self.missed[:_MAX_NAMED])
        more = len(self.missed) - _MAX_NAMED
        where = f", fewest in {named}" if named else ""
        others = f" and {more} more" if more > 0 else ""
        return (
            f"{100.0 * self.inside:.1f} % of the quotes are inside bid-ask{where}{others}: "
            f"{self.quality.explain()}"
        )

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any] | None) -> FitVerdict | None:
        """The verdict from plain values; None where an older file has none."""
        if plain is None:
            return None
        missed = tuple(str(label) for label in plain["missed"])
        return cls(FitQuality(plain["quality"]), float(plain["inside"]), missed)


def judge_residuals(
    residuals: Array, expiry: Indices, labels: Sequence[str], weights: Array | None = None
) -> FitVerdict:
    """The verdict on residuals in half-spreads.

    An expiry is missed if so few of its quotes inside bid-ask would be chance in one of a thousand
    cases, were nine tenths inside; or if so many neighbours outside on one side would be. What is
    missed is systematic if there are such neighbours, or if signs of residuals come in fewer runs
    over strikes than chance makes (Wald and Wolfowitz), over all that is judged.

    Args:
        residuals: ``(m,)`` (model − mid) / half-spread, in order of expiry and strike.
        expiry: ``(m,)`` expiry of each.
        labels: Of the expiries.
        weights: ``(m,)``; a quote with weight zero is not judged.
    """
    if weights is not None:
        used = weights > 0.0
        residuals, expiry = residuals[used], expiry[used]
    near = np.abs(residuals) <= _INSIDE
    inside = np.count_nonzero(near) / near.size if near.size else 1.0
    starts = np.searchsorted(expiry, np.arange(len(labels) + 1))
    sizes, counts = np.diff(starts), np.bincount(expiry[near], minlength=len(labels))
    side = np.where(near, 0.0, np.sign(residuals))
    ranges = {
        at
        for at in np.flatnonzero(counts < sizes).tolist()
        if _chance_of_neighbours(side[starts[at] : starts[at + 1]]) < _MIN_PROBABILITY
    }
    few = np.flatnonzero(counts < MIN_INSIDE_SHARE * sizes).tolist()
    shares = {
        at: float(counts[at] / sizes[at])
        for at in {*few, *ranges}
        if at in ranges or _chance_of_at_most(int(counts[at]), int(sizes[at])) < _MIN_PROBABILITY
    }
    worst = sorted(shares, key=lambda at: shares[at])
    if not worst and inside >= MIN_INSIDE_SHARE:
        return FitVerdict(FitQuality.EXPLAINED, inside)
    if worst:
        judged = np.isin(expiry, worst)
        residuals, expiry = residuals[judged], expiry[judged]
    systematic = bool(ranges) or _score_runs(residuals > 0.0, expiry) < _MIN_RUNS_SCORE
    quality = FitQuality.MISSED if systematic else FitQuality.SCATTERED
    return FitVerdict(quality, inside, tuple(labels[at] for at in worst))


def _chance_of_at_most(count: int, size: int) -> float:
    """Probability of at most ``count`` of ``size``, each with ``MIN_INSIDE_SHARE``."""
    if count >= MIN_INSIDE_SHARE * size:
        return 1.0
    p = MIN_INSIDE_SHARE
    logs = [
        math.lgamma(size + 1) - math.lgamma(i + 1) - math.lgamma(size - i + 1)
        + i * math.log(p) + (size - i) * math.log1p(-p)
        for i in range(count + 1)
    ]  # fmt: skip
    return math.fsum(math.exp(log) for log in logs)


def _chance_of_neighbours(side: Array) -> float:
    """How many stretches of quotes outside on one side, as long as the longest, chance makes.

    Args:
        side: ``(n,)`` of the quotes of an expiry, in order of strike: the sign of a residual
            outside, 0 inside.
    """
    longest = max((len(list(group)) for sign, group in groupby(side.tolist()) if sign), default=0)
    return float(side.size * (1.0 - MIN_INSIDE_SHARE) ** longest)


def _score_runs(above: NDArray[np.bool_], expiry: Indices) -> float:
    """Runs of one sign, less those that chance makes, in deviations; all expiries together.

    Residuals of one sign alone have one run and no chance of more: each quote but the first counts
    as a run that is lacking, of deviation one half.
    """
    lacking, variance = 0.0, 0.0
    for at in np.unique(expiry):
        own = above[expiry == at]
        size, high = own.size, int(own.sum())
        runs = 1 + int(np.count_nonzero(own[1:] != own[:-1]))
        if 0 < high < size:
            mean = 1.0 + 2.0 * high * (size - high) / size
            variance += (mean - 1.0) * (mean - 2.0) / (size - 1)
        else:
            mean = 1.0 + 0.5 * (size - 1)
            variance += 0.25 * (size - 1)
        lacking += runs - mean
    return lacking / math.sqrt(variance) if variance > 0.0 else 0.0
