"""Clocks of training surfaces: weekends, events and uneven weeks.

A deterministic, uneven clock leaves a market free of arbitrage: the laws are those at the clock's
times. Listed markets have such clocks: a weekend counts for a fraction of its days, and a day with
an announcement for several. Without it a network learns that volatilities of neighbouring expiries
lie on a smooth line, which those of real dailies do not. Surfaces that no exchange lists have an
even clock.

Shapes: B surfaces, L expiries.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from arbiter.conventions import DAYS_PER_YEAR

UNEVEN_CLOCK_SHARE = 0.7  # share of exchanges' surfaces whose clock is
_CLOCK_DAYS = 2300  # beyond, days are alike
_WEEKEND_DAY_WORTH = (0.05, 0.9)  # what a day of a weekend is worth, of a weekday
_EVENT_CANDIDATES = 8  # candidates; each happens to half of the surfaces at most
_EVENT_HORIZON_DAYS = 150.0  # days within which events are known
_EVENT_WORTH_DAYS = (0.1, 3.0)  # days that an event is worth
_MAX_WEEKLY_DEVIATION = 0.15  # largest deviation of log rates from week to week


def draw_clock(T: Tensor, exchange: Tensor, generator: torch.Generator) -> Tensor:
    """Return ``(B, L)`` years of each surface's own clock at calendar years ``(B, L)``.

    Args:
        T: Calendar years.
        exchange: ``(B,)`` which surfaces are listed on an exchange: the others' clocks are even.
        generator: Random numbers.
    """
    B = T.shape[0]
    device = T.device

    def rand(*shape: int) -> Tensor:
        return torch.rand(*shape, generator=generator, device=device, dtype=torch.float64)

    day = torch.arange(_CLOCK_DAYS, device=device)
    weekend = (day + (7.0 * rand(B, 1)).long()) % 7 >= 5
    low, high = _WEEKEND_DAY_WORTH
    worth = low + (high - low) * rand(B, 1)
    weeks = torch.randn(B, _CLOCK_DAYS // 7 + 1, generator=generator, device=device).double()
    rate = torch.exp(_MAX_WEEKLY_DEVIATION * rand(B, 1) * weeks).repeat_interleave(7, 1)[
        :, :_CLOCK_DAYS
    ]
    rate = torch.where(weekend, worth, 1.0) * rate
    rate = rate / rate.mean(1, keepdim=True)
    # events: anywhere in the months ahead, nearer ones as likely as later ones
    when = torch.exp(rand(B, _EVENT_CANDIDATES) * math.log(_EVENT_HORIZON_DAYS)) - 1.0
    size = _EVENT_WORTH_DAYS[0] * (_EVENT_WORTH_DAYS[1] / _EVENT_WORTH_DAYS[0]) ** rand(
        B, _EVENT_CANDIDATES
    )
    size = size * (rand(B, _EVENT_CANDIDATES) < 0.5 * rand(B, 1))
    rate = rate.scatter_add(1, when.long(), size)

    ends = torch.nn.functional.pad(rate.cumsum(1), (1, 0))  # (B, D + 1)
    days = T.double() * DAYS_PER_YEAR
    within = days.clamp(max=_CLOCK_DAYS - 1.0).long()
    gone = ends.gather(1, within) + (days - within) * rate.gather(1, within)
    uneven = exchange[:, None] & (rand(B, 1) < UNEVEN_CLOCK_SHARE)
    return torch.where(uneven, gone / DAYS_PER_YEAR, T.double()).to(T.dtype)
