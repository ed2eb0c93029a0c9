"""Is a chain like those that the operator was trained on?

A chain is described by a few numbers (*traits*): its levels in the operator's own clock, how its
strikes and maturities are covered, its spreads, and how far the operator's own surface misses the
quotes. The limits of each are quantiles over the training universe and travel with the weights. A
trait beyond its limits is an alarm: the surface is free of arbitrage all the same, but nobody
knows how good it is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Limits = Mapping[str, tuple[float | None, float | None]]

SOFTENING = 5e-3  # of volatility: what the operator may miss however tight the spread
_WORST = 0.95  # quantile of misses that says how bad the worst ones are
_FEW = 3  # quotes by which an expiry is judged


class Trait(NamedTuple):
    """What one number means, and on which sides it can be strange."""

    meaning: str
    low: bool = True
    high: bool = True


TRAITS = {
    "shortest_level": Trait("total volatility σ√T of the nearest expiry"),
    "longest_level": Trait("total volatility σ√T of the farthest expiry"),
    "term_structure": Trait("steepest change of log-volatility in log-maturity", low=False),
    "expiries": Trait("number of expiries"),
    "widest_gap": Trait("largest ratio of neighbouring maturities", low=False),
    "fewest_quotes": Trait("number of quotes of the expiry with fewest", high=False),
    "lower_reach": Trait("lowest strike of the median expiry, in deviations"),
    "upper_reach": Trait("highest strike of the median expiry, in deviations"),
    "money": Trait("deviations from the money to the nearest quote, worst expiry", low=False),
    "spread": Trait("median half-spread over volatility"),
    "misfit": Trait("median distance of the operator's surface from the mids", low=False),
    "misfit_worst": Trait("distance of the worst twentieth of quotes", low=False),
    "misfit_expiry": Trait("distance of the mids of the worst expiry, their median", low=False),
}  # fmt: skip


class Seen(NamedTuple):
    """A chain as the operator saw it, and by how much its surface misses the mids.

    Attributes:
        T: ``(L,)`` maturities.
        total: ``(L,)`` logarithm of the reference total volatility ``σ√T``.
        expiry: ``(m,)`` index of each quote's maturity, nondecreasing.
        k: ``(m,)`` log-moneyness.
        spread: ``(m,)`` half-spread over volatility.
        miss: ``(m,)`` model less mid, in half-spreads softened by :data:`SOFTENING`.
    """

    T: Array
    total: Array
    expiry: NDArray[np.int64]
    k: Array
    spread: Array
    miss: Array


def traits(seen: Seen) -> dict[str, float]:
    """The numbers that describe a chain, named as in :data:`TRAITS`."""
    count = np.bincount(seen.expiry, minlength=seen.T.size)
    start = np.cumsum(count) - count
    z = seen.k * np.exp(-seen.total)[seen.expiry]
    log_T = np.log(seen.T)
    gap = np.diff(log_T)
    level = np.diff(seen.total) - 0.5 * gap
    size = np.abs(seen.miss)
    judged = count >= _FEW
    by_expiry = _medians(size, start, count)[judged] if judged.any() else size
    return {
        "shortest_level": float(np.exp(seen.total[0])),
        "longest_level": float(np.exp(seen.total[-1])),
        # neighbours a day apart say little: their difference is taken over a tenth at least
        "term_structure": float(np.max(np.abs(level) / np.maximum(gap, 0.1), initial=0.0)),
        "expiries": float(seen.T.size),
        "widest_gap": float(np.exp(np.max(gap, initial=0.0))),
        "fewest_quotes": float(count.min()),
        "lower_reach": float(np.median(np.minimum.reduceat(z, start))),
        "upper_reach": float(np.median(np.maximum.reduceat(z, start))),
        "money": float(np.minimum.reduceat(np.abs(z), start).max()),
        "spread": float(np.median(seen.spread)),
        "misfit": float(np.median(size)),
        "misfit_worst": float(np.quantile(size, _WORST)),
        "misfit_expiry": float(by_expiry.max()),
    }


def _medians(values: Array, start: NDArray[np.int64], count: NDArray[np.int64]) -> Array:
    """Lower medians of consecutive groups, none of them empty."""
    group = np.repeat(np.arange(count.size), count)
    ordered = values[np.lexsort((values, group))]
    return np.asarray(ordered[start + (count - 1) // 2])


@dataclass(frozen=True)
class Alarm:
    """A trait beyond its limits.

    Attributes:
        name: Of the trait.
        value: Of this chain.
        limit: That it is beyond.
        sentence: The same in words.
    """

    name: str
    value: float
    limit: float
    sentence: str

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {
            "name": self.name,
            "value": self.value,
            "limit": self.limit,
            "sentence": self.sentence,
        }


@dataclass(frozen=True)
class DomainReport:
    """Whether a chain is like those that the operator was trained on.

    Attributes:
        inside: No trait is beyond its limits.
        alarms: Those that are.
        traits: All of them, as in :data:`TRAITS`.
    """

    inside: bool
    alarms: tuple[Alarm, ...]
    traits: Mapping[str, float]

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {
            "inside": self.inside,
            "alarms": [alarm.to_dict() for alarm in self.alarms],
            "traits": dict(self.traits),
        }

    def __str__(self) -> str:
        if self.inside:
            return "like the training universe"
        return "unlike the training universe: " + "; ".join(a.sentence for a in self.alarms)


def judge(found: Mapping[str, float], limits: Limits) -> DomainReport:
    """Compare traits with their limits.

    Example:
        >>> judge({"expiries": 1.0}, {"expiries": (2.0, 56.0)}).alarms[0].sentence
        'number of expiries is 1, in training 2 or more'
    """
    alarms = []
    for name, value in found.items():
        low, high = limits.get(name, (None, None))
        if low is not None and not value >= low:
            alarms.append(_alarm(name, value, low, "or more"))
        elif high is not None and not value <= high:
            alarms.append(_alarm(name, value, high, "or less"))
    return DomainReport(not alarms, tuple(alarms), dict(found))


def _alarm(name: str, value: float, limit: float, side: str) -> Alarm:
    sentence = f"{TRAITS[name].meaning} is {value:.3g}, in training {limit:.3g} {side}"
    return Alarm(name, value, limit, sentence)


def calibrate(sample: Sequence[Mapping[str, float]], tail: float) -> dict[str, list[float | None]]:
    """Limits of each trait: what all but a share ``tail`` of a sample keeps, on each side.

    Args:
        sample: Traits of chains of the training universe.
        tail: Share beyond each limit, 0.001 for instance.
    """
    if not tail * len(sample) > 0.0:
        raise ValueError(f"tail = {tail!r} of {len(sample)} chains: give a share, and some chains")
    limits: dict[str, list[float | None]] = {}
    for name, trait in TRAITS.items():
        values = np.array([found[name] for found in sample])
        low, high = np.quantile(values, [tail, 1.0 - tail])
        limits[name] = [float(low) if trait.low else None, float(high) if trait.high else None]
    return limits
