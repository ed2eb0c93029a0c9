"""The index rule once more, option by option as the exchange describes it, with each step a switch.

It shares no line with the package. A switch turned off is a mistake somebody could make, and the
tests see the number move.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

Row = tuple[float, float, float, float, float]  # strike, call bid, call ask, put bid, put ask


@dataclass(frozen=True)
class Rule:
    """The steps of the rule; the defaults are the exchange's."""

    stop_after: int = 2  # consecutive zero bids
    skip_zero_bids: bool = True
    average_at_k0: bool = True
    forward_term: bool = True
    nearest_gap: bool = True  # forward from the smallest call-put gap, else the middle strike
    below_forward: bool = True  # K0 at or below the forward, else the strike above
    one_sided_ends: bool = True  # ΔK at the ends is the whole distance, else half of it
    growth: bool = True


def strip_variance(rows: list[Row], minutes: float, rate: float, rule: Rule | None = None) -> float:
    """Variance of one expiry, with plain loops."""
    rule = rule or Rule()
    rows = sorted(rows)
    T = minutes / 525_600
    growth = math.exp(rate * T) if rule.growth else 1.0

    def mid(bid: float, ask: float) -> float:
        return (bid + ask) / 2

    pairs = [row for row in rows if row[1] > 0 and row[3] > 0]
    gaps = [(abs(mid(*row[1:3]) - mid(*row[3:5])), row) for row in pairs]
    row = min(gaps)[1] if rule.nearest_gap else pairs[len(pairs) // 2]
    forward = row[0] + growth * (mid(*row[1:3]) - mid(*row[3:5]))
    at = max(i for i, row in enumerate(rows) if row[0] <= forward) + (not rule.below_forward)
    k0 = rows[at][0]

    used: dict[float, float] = {}
    for side, walk in (
        (3, range(at - 1, -1, -1)),  # puts, downwards
        (1, range(at + 1, len(rows))),  # calls, upwards
    ):
        zeros = 0
        for i in walk:
            bid, ask = rows[i][side], rows[i][side + 1]
            zeros = zeros + 1 if bid == 0 else 0
            if zeros == rule.stop_after:
                break
            if bid > 0 or not rule.skip_zero_bids:
                used[rows[i][0]] = mid(bid, ask)
    call, put = mid(*rows[at][1:3]), mid(*rows[at][3:5])
    used[k0] = (call + put) / 2 if rule.average_at_k0 else call

    strikes = sorted(used)
    total = 0.0
    for i, strike in enumerate(strikes):
        low, high = strikes[max(i - 1, 0)], strikes[min(i + 1, len(strikes) - 1)]
        end = i in (0, len(strikes) - 1)
        dk = high - low if end and rule.one_sided_ends else (high - low) / 2
        total += dk / strike**2 * growth * used[strike]
    correction = (forward / k0 - 1) ** 2 / T if rule.forward_term else 0.0
    return 2 / T * total - correction


def index(near: tuple[float, float], after: tuple[float, float], target: float = 43_200) -> float:
    """Index points from (minutes, variance) of two expiries, as printed in the white paper."""
    (n1, v1), (n2, v2) = near, after
    T1, T2 = n1 / 525_600, n2 / 525_600
    first = T1 * v1 * (n2 - target) / (n2 - n1)
    second = T2 * v2 * (target - n1) / (n2 - n1)
    return 100 * math.sqrt((first + second) * 525_600 / target)
