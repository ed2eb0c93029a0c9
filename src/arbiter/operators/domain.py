"""Is a chain like those that the operator was trained on?

A chain is described by a few numbers (:mod:`.domain_features`): its levels in the operator's own
clock, how its strikes and maturities are covered, its spreads, whether its quotes agree with each
other, and how far the operator's own surface misses them. The limits of each are quantiles over the
training universe and travel with the weights. A trait beyond its limits is an alarm: the surface is
free of arbitrage all the same, but nobody knows how good it is.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from arbiter.values import is_number, require_known_keys, shorten_repr

Limits = Mapping[str, tuple[float | None, float | None]]

VOLATILITY_SOFTENING = 5e-3  # of volatility: what the operator may miss however tight the spread
MIN_PRICE_SCALE = (
    1e-150  # of a price: far out there is no vega, and this is divided by, and squared
)
RARE_SHARE, FAT_TAIL_SHARE = 3e-4, 4e-3  # shares of training chains beyond a limit


class Trait(NamedTuple):
    """What one number means, on which sides it can be strange, and how rarely it is in training."""

    meaning: str
    low: bool = True
    high: bool = True
    tail: float = RARE_SHARE


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
        tail=FAT_TAIL_SHARE,
    ),
    "out_of_line": Trait(
        "miss of the worst expiry beyond its neighbours', in standard errors",
        low=False,
        tail=FAT_TAIL_SHARE,
    ),
    "misfit": Trait("median miss of the mids, in half-spreads", low=False, tail=FAT_TAIL_SHARE),
    "misfit_worst": Trait("miss that one mid in twenty exceeds", low=False, tail=FAT_TAIL_SHARE),
    "misfit_expiry": Trait("median miss of the worst expiry", low=False, tail=FAT_TAIL_SHARE),
    "moved": Trait(
        "what the network would change of log-slopes, over the prior's errors of log-volatility",
        low=False,
        tail=FAT_TAIL_SHARE,
    ),
    "prior_misfit": Trait(
        "median miss of the mids by the prior alone, in half-spreads",
        low=False,
        tail=FAT_TAIL_SHARE,
    ),
}


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

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> DomainReport:
        """The report of which :meth:`to_dict` gave the plain values."""
        alarms = tuple(Alarm(**alarm) for alarm in plain["alarms"])
        return cls(bool(plain["inside"]), alarms, read_traits(plain["traits"]))

    def __str__(self) -> str:
        if self.inside:
            return "like the training universe"
        return "unlike the training universe: " + "; ".join(a.sentence for a in self.alarms)


def read_traits(plain: Mapping[str, float | None]) -> Mapping[str, float]:
    """Traits from plain values, NaN where there was no number."""
    found = {name: math.nan if each is None else float(each) for name, each in plain.items()}
    return MappingProxyType(found)


def compare_with_limits(found: Mapping[str, float], limits: Limits) -> DomainReport:
    """Compare traits with their limits.

    Example:
        >>> compare_with_limits({"expiries": 1.0}, {"expiries": (2.0, 56.0)}).alarms[0].sentence
        'number of expiries is 1, in training 2 or more'
    """
    alarms = []
    for name, value in found.items():
        low, high = limits.get(name, (None, None))
        if low is not None and not value >= low:
            alarms.append(_make_alarm(name, value, low, "or more"))
        elif high is not None and not value <= high:
            alarms.append(_make_alarm(name, value, high, "or less"))
    return DomainReport(not alarms, tuple(alarms), dict(found))


def _make_alarm(name: str, value: float, limit: float, side: str) -> Alarm:
    sentence = f"{TRAITS[name].meaning} is {value:.3g}, in training {limit:.3g} {side}"
    return Alarm(name, value, limit, sentence)


def parse_limits(given: object) -> dict[str, tuple[float | None, float | None]]:
    """Limits as :func:`calibrate_limits` gave them and a file kept them; None are none.

    Raises:
        ValueError: If they are not pairs of numbers by the name of a trait.

    Example:
        >>> parse_limits({"expiries": [2.0, None]})
        {'expiries': (2.0, None)}
    """
    limits: dict[str, tuple[float | None, float | None]] = {}
    for name, pair in (
        {} if given is None else require_known_keys("domain", given, TRAITS)
    ).items():
        if (
            not isinstance(pair, list | tuple)
            or len(pair) != 2
            or not all(end is None or is_number(end) for end in pair)
        ):
            raise ValueError(
                f"domain: {name} = {shorten_repr(pair)} must be the lowest and the highest "
                "value, either "
                "of them null for none"
            )
        limits[name] = pair[0], pair[1]
    return limits


def calibrate_limits(sample: Sequence[Mapping[str, float]]) -> dict[str, list[float | None]]:
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
