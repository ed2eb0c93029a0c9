"""Maturities of training surfaces: exchange calendars, the benchmarks' lists, random ones.

A table holds the candidate maturities of every calendar; each surface draws a row of it, or random
maturities, and then which of them are listed. Shapes: B surfaces, C candidates, L expiries.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor

from arbiter.conventions import DAYS_PER_YEAR

HESTON_DAYS = (7, 14, 21, 30, 45, 60, 91, 122, 152, 182, 273, 365, 456, 547, 639, 730)
TIMELINE_DAYS = (7, 14, 21, 30, 45, 60, 91, 122, 182, 273, 365, 456, 547, 730)
CANDIDATE_COUNT = 84
FIRST_DAY, LAST_DAY = 1.0, 2200.0  # days
_MIN_WINDOW_END_DAYS = 17.0  # days: where the nearest window ends, with an expiry in its last three
_INDEX_CALENDARS = 84  # calendars of an index, by weekday and time of the month
MORNING_LEAD_DAYS, _MORNING_MONTHLIES = (
    6.5 / 24.0,
    6,
)  # days before the close, and how many monthlies settle then too
_CALENDAR_SHARES = (0.4, 0.25, 0.2, 0.15)  # index, random, Heston benchmark, timeline
_PADDING_GROWTH = 1.02  # ratio of neighbouring padded maturities


class Maturities(NamedTuple):
    """Maturities of a batch.

    Attributes:
        T: ``(B, L)`` years, increasing over the padding too.
        listed: ``(B, L)`` whether a maturity is listed; the others are padding.
        exchange: ``(B,)`` whether the calendar is an exchange's.
    """

    T: Tensor
    listed: Tensor
    exchange: Tensor


def draw_maturities(size: int, expiries: int, generator: torch.Generator) -> Maturities:
    """Draw the maturities of ``size`` surfaces with at most ``expiries`` each."""
    device = generator.device

    def rand(*shape: int) -> Tensor:
        return torch.rand(*shape, generator=generator, device=device)

    kind = torch.bucketize(
        rand(size, 1), torch.tensor(_CALENDAR_SHARES, device=device).cumsum(0)[:-1]
    )
    index, random, benchmark = kind == 0, kind == 1, kind >= 2
    phase = (rand(size) * 2 * _INDEX_CALENDARS).long()
    row = torch.where(index[:, 0], phase, 2 * _INDEX_CALENDARS + kind[:, 0] - 2)
    days = _build_day_table(device)[torch.where(random[:, 0], 0, row)]  # (B, C)
    days = days + torch.where(index & (rand(size, 1) < 0.5), 0.5 * rand(size, 1), 0.0)
    days = torch.where(random, _log_uniform_days(size, rand), days)

    first = FIRST_DAY * torch.exp(rand(size, 1) ** 2 * 3.5)
    first = torch.where(rand(size, 1) < 0.5, FIRST_DAY, first)
    last = _MIN_WINDOW_END_DAYS * torch.exp(
        rand(size, 1).sqrt() * math.log(LAST_DAY / _MIN_WINDOW_END_DAYS)
    )
    last = torch.maximum(last, 2.0 * first)
    whole = (benchmark & (rand(size, 1) < 0.6)) | random
    inside = (days >= first) & (days <= last) | whole
    # at least the three nearest stay candidates, whatever the window
    inside = torch.isfinite(days) & (inside | (torch.arange(CANDIDATE_COUNT, device=device) < 3))

    least = torch.where(rand(size, 1) < 0.5, 2, max(2, (expiries + 1) // 2))
    wanted = least + (rand(size, 1) * (expiries + 1 - least)).long()
    wanted = torch.where(benchmark & whole, expiries, wanted)
    # half of the surfaces thin out their near expiries, as most lists of maturities do
    thinning = torch.where(rand(size, 1) < 0.5, 0.0, 0.5)
    key = rand(size, CANDIDATE_COUNT) - thinning * torch.log(days.clamp(1.0, LAST_DAY)) / 7.5
    # the farthest is listed: the window, not chance, says how far a surface reaches
    place = torch.arange(CANDIDATE_COUNT, device=device)
    key = torch.where(place == torch.where(inside, place, -1).amax(1, keepdim=True), -2.0, key)
    key = torch.where(inside, key, torch.inf)
    chosen = torch.topk(key, expiries, dim=1, largest=False)
    rank = torch.arange(expiries, device=device)
    kept = torch.isfinite(chosen.values) & (rank < wanted)
    T = torch.where(kept, days.gather(1, chosen.indices), torch.inf).sort(1).values
    listed = torch.isfinite(T)
    T = pad_maturities(T, listed) / DAYS_PER_YEAR
    return Maturities(T, listed, index[:, 0])


def pad_maturities(T: Tensor, listed: Tensor) -> Tensor:
    """Return maturities ``(B, L)`` with padding that grows geometrically after the last listed."""
    rank = torch.arange(T.shape[1], device=T.device)
    last = torch.where(listed, T, 0.0).amax(1, keepdim=True)
    beyond = (rank - listed.sum(1, keepdim=True) + 1).clamp(min=0)
    return torch.where(listed, T, last * _PADDING_GROWTH**beyond)


def _log_uniform_days(size: int, rand: Callable[..., Tensor]) -> Tensor:
    """``(B, C)`` log-uniform between a random first and a random last maturity, never equal."""
    near = math.log(60.0) * rand(size, 1) ** 1.5
    far = torch.maximum(near + 1.2, math.log(LAST_DAY) * (0.38 + 0.62 * rand(size, 1)))
    place = (
        torch.arange(CANDIDATE_COUNT, device=near.device) + 0.1 + 0.8 * rand(size, CANDIDATE_COUNT)
    )
    return torch.exp(near + (far - near) * place / CANDIDATE_COUNT)


@lru_cache(maxsize=4)
def _build_day_table(device: torch.device) -> Tensor:
    """``(calendars, C)`` candidate days, increasing, infinite where there are no more."""
    rows = [
        _index_days(phase % 7, phase // 7, twins)
        for twins in (0, _MORNING_MONTHLIES)
        for phase in range(_INDEX_CALENDARS)
    ]
    rows += [list(HESTON_DAYS), list(TIMELINE_DAYS)]
    padded = [(row + [torch.inf] * CANDIDATE_COUNT)[:CANDIDATE_COUNT] for row in rows]
    return torch.tensor(padded, dtype=torch.float32, device=device)


def _index_days(weekday: int, month: int, twins: int) -> list[float]:
    """Dailies, weeklies, month ends, monthlies, quarterlies and Decembers of one day.

    So many monthlies are two expiries, of the morning and of the close.
    """
    business = [d for d in range(1, 46) if (weekday + d) % 7 < 5]
    fridays = [d for d in range(1, 92) if (weekday + d) % 7 == 4]
    start = 2.5 * month  # of 30.4 days: how far the month has gone
    ends = [round(30.4 * i - start % 30.4) for i in range(1, 9)]
    third = [d for i in range(1, 14) for d in [round(30.4 * i - (start + 12) % 30.4)]]
    quarters = [round(91.3 * i - (3 * start) % 91.3) for i in range(1, 12)]
    years = [round(DAYS_PER_YEAR * i - (12 * start) % 365.0) for i in range(1, 6)]
    days = {*business, *fridays, *ends, *third, *quarters, *years}
    mornings = {d - MORNING_LEAD_DAYS for d in third[:twins]}
    return [float(d) for d in sorted(days | mornings) if FIRST_DAY <= d <= LAST_DAY]
