"""Is a chain like those that the operator was trained on?

A chain is described by a few numbers (*traits*): its levels in the operator's own clock, how its
strikes and maturities are covered, its spreads, whether its quotes agree with each other, and how
far the operator's own surface misses them. The limits of each are quantiles over the training
universe and travel with the weights. A trait beyond its limits is an alarm: the surface is free of
arbitrage all the same, but nobody knows how good it is.
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
RARE, RATHER_RARE = 3e-4, 4e-3  # shares of training chains beyond a limit
_WORST = 0.95  # quantile of misses that says how bad the worst ones are
_FEW = 3  # quotes by which an expiry is judged
_NEIGHBOURS = 1.0  # deviations within which three quotes should lie on a line
_BEND = 0.5  # second derivative of log-volatility over deviations that is no surprise
_NEAR = 2.5  # deviations within which an expiry's level is judged
_LEVEL = 1e-2  # what it may be off however tight its spreads


class Trait(NamedTuple):
    """What one number means, on which sides it can be strange, and how rarely it is in training."""

    meaning: str
    low: bool = True
    high: bool = True
    tail: float = RARE


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
    "skew": Trait("median slope at the money of log-volatility over deviations"),
    # these have fat tails: limits that hardly any training chain exceeds would find nothing
    "jagged": Trait(
        "distance of one mid in twenty from its neighbours' line, in half-spreads",
        low=False,
        tail=RATHER_RARE,
    ),
    "out_of_line": Trait(
        "miss of the worst expiry beyond its neighbours', in standard errors",
        low=False,
        tail=RATHER_RARE,
    ),
    "misfit": Trait("median miss of the mids, in half-spreads", low=False, tail=RATHER_RARE),
    "misfit_worst": Trait("miss that one mid in twenty exceeds", low=False, tail=RATHER_RARE),
    "misfit_expiry": Trait("median miss of the worst expiry", low=False, tail=RATHER_RARE),
    "moved": Trait(
        "what the network would change, in standard errors of its reference",
        low=False,
        tail=RATHER_RARE,
    ),
}


class Seen(NamedTuple):
    """A chain as the operator saw it, and by how much its surface misses the mids.

    Attributes:
        T: ``(L,)`` maturities.
        total: ``(L,)`` logarithm of the reference total volatility ``σ√T``.
        expiry: ``(m,)`` index of each quote's maturity, nondecreasing.
        k: ``(m,)`` log-moneyness.
        iv: ``(m,)`` volatility of the mids.
        spread: ``(m,)`` half-spread over volatility.
        miss: ``(m,)`` model less mid, in half-spreads softened by :data:`SOFTENING`.
        moved: ``(C,)`` of each chain, what the network would have changed, in standard errors of
            its reference.
    """

    T: Array
    total: Array
    expiry: NDArray[np.int64]
    k: Array
    iv: Array
    spread: Array
    miss: Array
    moved: Array


def traits(seen: Seen) -> dict[str, float]:
    """The numbers that describe a chain, named as in :data:`TRAITS`."""
    return traits_of(seen, np.array([0, seen.T.size]), np.array([0, seen.k.size]))[0]


def traits_of(
    seen: Seen, slices: NDArray[np.int64], quotes: NDArray[np.int64]
) -> list[dict[str, float]]:
    """The traits of several chains, one behind the other.

    Args:
        seen: All of them; ``expiry`` counts through.
        slices: ``(C + 1,)`` where the maturities of each chain begin, and the end of the last.
        quotes: ``(C + 1,)`` where its quotes do.
    """
    count = np.bincount(seen.expiry, minlength=seen.T.size)
    start = np.cumsum(count) - count
    z = seen.k * np.exp(-seen.total)[seen.expiry]
    log_T = np.log(seen.T)
    gap = np.diff(log_T)
    # neighbours a day apart say little: their difference is taken over a tenth at least
    steep = np.abs(np.diff(seen.total) - 0.5 * gap) / np.maximum(gap, 0.1)
    size = np.abs(seen.miss)
    u = np.log(seen.iv) - (seen.total - 0.5 * log_T)[seen.expiry]
    reach = np.exp(seen.total)
    first, last = slices[:-1], slices[1:] - 1
    # what lies between the last expiry of a chain and the first of the next is nobody's
    steep[last[:-1]] = gap[last[:-1]] = 0.0
    steep, gap = np.append(steep, 0.0), np.append(gap, 0.0)
    middle = [
        _quantiles(values, slices, 0.5)
        for values in (
            np.minimum.reduceat(z, start),
            np.maximum.reduceat(z, start),
            _skews(seen, z, u),
        )
    ]
    misses, most = _rows(size, quotes), np.diff(quotes) - 1
    medians = _rows(size, np.append(start, size.size))[np.arange(count.size), (count - 1) // 2]
    worst = np.maximum.reduceat(np.where(count >= _FEW, medians, -np.inf), first)
    largest = misses[np.arange(most.size), most]
    found = {
        "shortest_level": reach[first],
        "longest_level": reach[last],
        "term_structure": np.maximum.reduceat(steep, first),
        "expiries": np.diff(slices),
        "widest_gap": np.exp(np.maximum.reduceat(gap, first)),
        "fewest_quotes": np.minimum.reduceat(count, first),
        "lower_reach": middle[0],
        "upper_reach": middle[1],
        "money": np.maximum.reduceat(np.minimum.reduceat(np.abs(z), start), first),
        "spread": _quantiles(seen.spread, quotes, 0.5),
        "skew": middle[2],
        "jagged": _jagged(seen, z, u, quotes),
        "out_of_line": _out_of_line(seen, z, log_T, slices),
        "misfit": _at(misses, most, 0.5),
        "misfit_worst": _at(misses, most, _WORST),
        "misfit_expiry": np.where(np.isfinite(worst), worst, largest),
        "moved": seen.moved,
    }
    return [
        dict(zip(found, map(float, each), strict=True))
        for each in zip(*found.values(), strict=True)
    ]


def _skews(seen: Seen, z: Array, u: Array) -> Array:
    """``(L,)`` slopes of local lines of ``u = log(iv/σ)`` at the money."""

    def total(values: Array) -> Array:
        return np.asarray(np.bincount(seen.expiry, values, minlength=seen.T.size), np.float64)

    w = np.exp(-0.5 * z * z) + 1e-6 / (1.0 + z * z)  # wings alone have a slope too
    mass = total(w)
    off = z - (total(w * z) / mass)[seen.expiry]
    return np.asarray(total(w * off * u) / (total(w * off * off) + 1e-2 * mass))


def _jagged(seen: Seen, z: Array, u: Array, quotes: NDArray[np.int64]) -> Array:
    """How far a chain's worst quotes lie from their neighbours' line, in half-spreads."""
    i = np.arange(1, seen.k.size - 1)
    i = i[seen.expiry[:-2] == seen.expiry[2:]]
    wide = z[i + 1] - z[i - 1]
    near = wide <= _NEIGHBOURS
    i, wide = i[near], wide[near]
    right = (z[i] - z[i - 1]) / np.maximum(wide, 1e-12)
    off = u[i] - (1.0 - right) * u[i - 1] - right * u[i + 1]
    soft = seen.spread**2 + SOFTENING**2
    bend = 0.5 * _BEND * right * (1.0 - right) * wide**2
    size = soft[i] + (1.0 - right) ** 2 * soft[i - 1] + right**2 * soft[i + 1] + bend**2
    return _quantiles(np.abs(off) / np.sqrt(size), np.searchsorted(i, quotes), _WORST)


def _out_of_line(seen: Seen, z: Array, log_T: Array, slices: NDArray[np.int64]) -> Array:
    """How far an expiry is missed by more than its neighbours are, over what its spreads allow."""
    size = np.hypot(seen.spread, SOFTENING)
    w = (np.abs(z) < _NEAR) / size**2
    mass = np.bincount(seen.expiry, w, minlength=seen.T.size)
    some = np.flatnonzero(mass > 0.0)
    level = np.bincount(seen.expiry, w * seen.miss * size, minlength=seen.T.size)[some] / mass[some]
    noise, at = 1.0 / mass[some] + _LEVEL**2, log_T[some]
    chain = np.searchsorted(slices, some, side="right") - 1
    i = np.flatnonzero(chain[:-2] == chain[2:]) + 1  # between two neighbours of its own chain
    right = (at[i] - at[i - 1]) / (at[i + 1] - at[i - 1])
    off = level[i] - (1.0 - right) * level[i - 1] - right * level[i + 1]
    known = noise[i] + (1.0 - right) ** 2 * noise[i - 1] + right**2 * noise[i + 1]
    worst = np.zeros(slices.size - 1)
    np.maximum.at(worst, chain[i], np.abs(off) / np.sqrt(known))
    return worst


def _quantiles(values: Array, ends: NDArray[np.int64], share: float) -> Array:
    """A quantile, interpolated, of each group of values, which begin and end there; 0 of none."""
    return _at(_rows(values, ends), np.diff(ends) - 1, share)


def _at(ordered: Array, last: NDArray[np.int64], share: float) -> Array:
    """Quantiles of rows in order, each with so many numbers less one."""
    last = np.maximum(last, 0)
    place = share * last
    low = place.astype(np.int64)
    row = np.arange(last.size)
    left, right = ordered[row, low], ordered[row, np.minimum(low + 1, last)]
    return np.asarray(left + (place - low) * (right - left))


def _rows(values: Array, ends: NDArray[np.int64]) -> Array:
    """Each group in its own row, in order, then infinities; a zero where there is none."""
    count = np.diff(ends)
    wide = max(int(count.max()), 1)
    # sorting rows beats one long sort
    inside = np.arange(wide) < count[:, None]
    table = np.full(inside.shape, np.inf)
    table[inside] = values
    table[count == 0, 0] = 0.0
    table.sort(axis=1)
    return table


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


def calibrate(sample: Sequence[Mapping[str, float]]) -> dict[str, list[float | None]]:
    """Limits of each trait: quantiles of a sample, as far out as the trait's tail says.

    Args:
        sample: Traits of chains of the training universe; some thousands.
    """
    if not sample:
        raise ValueError("sample is empty: give traits of chains of the training universe")
    limits: dict[str, list[float | None]] = {}
    for name, trait in TRAITS.items():
        values = np.array([found[name] for found in sample])
        low, high = np.quantile(values, [trait.tail, 1.0 - trait.tail])
        limits[name] = [float(low) if trait.low else None, float(high) if trait.high else None]
    return limits
