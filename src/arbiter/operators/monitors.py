"""Monitors of the paper's assumptions A1 to A4 on one answer of the operator.

A flag is a sentence on the surface. None of them changes a price: a switch that depends on values
would make the surface jump in the quotes. What each number is:

* **A1, Novikov to Kazamaki.** ``log E e^{V/2}`` and ``log E e^{M/2}`` of the decoded law, with V
  about the variance of a path to each percentile, of the log contract's mean, and M its martingale.
  Both are finite, since slopes are bounded; a condition is said to hold where at most half of its
  moment comes from beyond three deviations, where few quotes are.
* **A2, smoothness.** The local Hölder order of the smile of each expiry, in Gaussian percentiles
  within three deviations: 2 with two derivatives, 1 at a kink, 0 for noise. Theorem T1 speaks of
  orders up to 1, so a typical expiry below 1 is rougher than any of its rates.
* **A3, memory.** χ of a typical state of the scans, at its nominal step: what is left of an input
  decays in the distance of log-maturities with a power a, and χ = 1 − a, within 0 and 1. Above ½
  sums over maturities grow faster than errors average out.
* **A4, coverage.** The share of −3.5 to 2 deviations near a quote, mean over expiries, against the
  paper's 0.75. It depends on where the quotes are, not on what they say.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

import numpy as np

from arbiter.conventions import Array, Indices
from arbiter.operators.law.green_scan import dense
from arbiter.operators.law.weights import Weights
from arbiter.operators.monitor_sums import (
    RELATIVE_ROUNDING,
    covered_shares,
    decay_power,
    exponential_moments,
    mean_slopes,
    patch_orders,
    scan_decays,
)

logger = logging.getLogger(__name__)

MIN_COVERAGE = 0.75  # the paper's section 2.4
_REACH = 3.0  # deviations, and percentiles
_MAX_TAIL_SHARE = 0.5  # of a moment that holds
_MIN_ORDER = 1.0
_MAX_CHI = 0.5
_MIN_PATCH = 9  # points that an order needs
_RATE, _RANK = "raw", "U"  # of a scan's weights


@dataclass(frozen=True)
class Monitors:
    """The four assumptions of the paper on one surface.

    Attributes:
        novikov: ``log E e^{V/2}`` of the expiry where its tails matter most.
        kazamaki: ``log E e^{M/2}`` of that expiry.
        novikov_tail: Largest share of the first moment beyond three deviations, over expiries.
        kazamaki_tail: The same of the second.
        order: Local Hölder order of the median expiry.
        lowest_order: Of the roughest expiry.
        chi: Long memory of the network's scans along these maturities; None with fewer than
            three, or where there is no scan.
        coverage: Mean share of the window of deviations that quotes cover, over expiries.
        lowest_coverage: Of the expiry that is covered least.
    """

    novikov: float
    kazamaki: float
    novikov_tail: float
    kazamaki_tail: float
    order: float
    lowest_order: float
    chi: float | None
    coverage: float
    lowest_coverage: float

    @property
    def condition(self) -> str:
        """Which condition of A1 holds: ``"novikov"``, ``"kazamaki"`` or ``"neither"``."""
        if self.novikov_tail <= _MAX_TAIL_SHARE:
            return "novikov"
        return "kazamaki" if self.kazamaki_tail <= _MAX_TAIL_SHARE else "neither"

    @property
    def gap(self) -> float:
        """Kazamaki's exponent over a quarter of Novikov's, less one; 0 for Black's law."""
        return kazamaki_gap(self.novikov, self.kazamaki)

    @cached_property
    def flags(self) -> Mapping[str, str]:
        """A sentence for each assumption that does not hold, by its name."""
        found = {}
        if self.condition != "novikov":
            kept = "Kazamaki's condition holds" if self.condition == "kazamaki" else "neither holds"
            found["A1"] = (
                f"{100.0 * self.novikov_tail:.0f} % of Novikov's moment comes from beyond "
                f"{_REACH:g} deviations; {kept}"
            )
        if self.order < _MIN_ORDER:
            found["A2"] = (
                f"the smile of the median expiry has Hölder order {self.order:.2f}, below "
                f"{_MIN_ORDER:g}: rates for smooth surfaces do not apply"
            )
        if self.chi is not None and self.chi > _MAX_CHI:
            found["A3"] = (
                f"χ is {self.chi:.2f}, above {_MAX_CHI:g}: along these maturities the scan hardly "
                "forgets, and an error of one expiry reaches the others"
            )
        if self.coverage < MIN_COVERAGE:
            found["A4"] = (
                f"quotes cover {100.0 * self.coverage:.0f} % of the strikes from −3.5 to 2 "
                f"deviations, below {100.0 * MIN_COVERAGE:g} %: much of the surface is the prior's"
            )
        return found

    def to_dict(self) -> dict[str, Any]:
        """The numbers, what holds of A1, and the flags, as plain values."""
        return {
            **asdict(self),
            "condition": self.condition,
            "gap": self.gap,
            "flags": dict(self.flags),
        }

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any] | None) -> Monitors | None:
        """The monitors of which :meth:`to_dict` gave the plain values; None of None."""
        if plain is None:
            return None
        rest = {name: plain[name] for name in cls.__dataclass_fields__ if name != "chi"}
        # a file has null for what was no finite number
        found = {name: math.nan if each is None else float(each) for name, each in rest.items()}
        return cls(**found, chi=None if plain["chi"] is None else float(plain["chi"]))


def kazamaki_gap(novikov: float, kazamaki: float) -> float:
    """Kazamaki's exponent over a quarter of Novikov's, less one; 0 without any variance."""
    return 4.0 * kazamaki / novikov - 1.0 if novikov > 0.0 else 0.0


def decay_index(power: float) -> float:
    """χ of the power with which a scan forgets, within 0 and 1."""
    return min(max(1.0 - power, 0.0), 1.0)


def typical_rate(weights: Weights) -> float | None:
    """The median rate at which states of the scans forget, per unit of log-maturity.

    None without a scan.
    """
    scans = [name.removesuffix(_RATE) for name in weights if name.endswith(f".{_RATE}")]
    if not scans:
        return None
    parts = [{name: weights[one + name] for name in (_RATE, _RANK)} for one in scans]
    return float(np.median([-np.linalg.eigvalsh(dense(part)) for part in parts]))


def watch(
    knots: Array, slopes: Array, zeta: Array, expiry: Indices, T: Array, rate: float | None
) -> Monitors:
    """The monitors of one answer; flags are logged.

    Args:
        knots: ``(n,)`` Gaussian percentiles, evenly spaced.
        slopes: ``(L, n)`` of the decoded surface.
        zeta: ``(m,)`` asinh of the deviations of the quotes.
        expiry: ``(m,)`` maturity of each quote.
        T: ``(L,)`` maturities on the operator's own clock.
        rate: From :func:`typical_rate`.
    """
    means = mean_slopes(knots, slopes)
    moments = exponential_moments(knots, slopes, means, _REACH)
    worst = moments[moments[:, 2].argmax()]
    first, last = np.searchsorted(knots, (-_REACH - 1e-9, _REACH + 1e-9))
    orders = _measure_orders(np.log(means[:, first:last]))
    covered = covered_shares(zeta, expiry, T.size)
    power = math.nan if rate is None or T.size < 3 else decay_power(*scan_decays(T, rate))
    found = Monitors(
        novikov=float(worst[0]),
        kazamaki=float(worst[1]),
        novikov_tail=float(worst[2]),
        kazamaki_tail=float(moments[:, 3].max()),
        order=float(orders[(orders.size - 1) // 2]),
        lowest_order=float(orders[0]),
        chi=None if math.isnan(power) else decay_index(power),
        coverage=float(covered.mean()),
        lowest_coverage=float(covered.min()),
    )
    for name, sentence in found.flags.items():
        logger.info("%s: %s", name, sentence)
    return found


def _measure_orders(values: Array) -> Array:
    """``(L,)`` local orders of rows ``(L, m)``, sorted; 2 of rows too short to tell."""
    if values.shape[1] < _MIN_PATCH:
        return np.full(len(values), 2.0)
    floor = RELATIVE_ROUNDING * np.abs(values).max() + np.finfo(np.float64).tiny
    return np.sort(patch_orders(values, values.shape[1], floor)[:, 0])
