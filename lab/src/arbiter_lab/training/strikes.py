"""Strikes of training surfaces: even in deviations, or multiples of a step in currency.

Shapes: B surfaces, L expiries, S strikes.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

_EVEN_SHARE, _MANY_STRIKES, _EVEN_SHARE_OF_MANY = (
    0.5,
    64,
    0.15,
)  # share with strikes even in deviations
_BENCHMARK_SHARE = 0.3  # share of those with exactly the window of the Heston benchmark
_STRIKE_STEPS = (1.0, 5.0, 10.0, 25.0, 50.0, 100.0, 250.0)
_SPOT_RANGE = (1000.0, 8000.0)
_COMMON_RANGE_SHARE = 0.8  # share of listed surfaces with one range in currency for all expiries
_PRICE_CUT_SHARE = 0.75  # share of those cut by price alone
_REACH_SLACK = 0.2  # by how much puts may be worth listing beyond the given reach
_MIN_KEPT_SHARE, _MAX_POOR_KEPT_SHARE = (
    0.2,
    0.45,
)  # share of quotes kept: the least of all, the most where they are poor


def draw_strikes(
    scale: Tensor, reach: Tensor, strikes: int, generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    """Draw log-strikes ``(B, L, S)``, nondecreasing, and a mask of the listed ones.

    Args:
        scale: ``(B, L)`` one deviation, ``reference·√T``.
        reach: ``(B, L)`` deviations, below zero, down to which puts are worth listing.
        strikes: S.
        generator: Random numbers.
    """
    B, L = scale.shape
    device = scale.device

    def rand(*shape: int) -> Tensor:
        return torch.rand(*shape, generator=generator, device=device)

    slot = torch.arange(strikes, device=device)
    # the more strikes, the more it looks like an exchange
    even = rand(B, 1, 1) < (_EVEN_SHARE if strikes < _MANY_STRIKES else _EVEN_SHARE_OF_MANY)
    benchmark = even & (rand(B, 1, 1) < _BENCHMARK_SHARE)
    # how many: all slots, or fewer, and then each expiry its own number
    few = strikes * (0.25 + 0.75 * rand(B, 1, 1)) * (1.0 - 0.4 * rand(B, 1, 1) * rand(B, L, 1))
    full = benchmark | (rand(B, 1, 1) < 0.5)
    count = torch.where(full, float(strikes), few).round().clamp(3, strikes)
    share = (slot / (count - 1.0)).clamp(max=1.0)  # (B, L, S)

    low = -(1.5 + 6.5 * rand(B, 1, 1) ** 2) * (1.0 - 0.3 * rand(B, 1, 1) * rand(B, L, 1))
    high = (0.8 + 3.2 * rand(B, 1, 1) ** 1.5) * (1.0 - 0.3 * rand(B, 1, 1) * rand(B, L, 1))
    low, high = torch.where(benchmark, -3.5, low), torch.where(benchmark, 2.0, high)
    jitter = torch.where(rand(B, 1, 1) < 0.3, 0.9, 0.0) * (rand(B, L, strikes) - 0.5)
    jitter = torch.where(benchmark, 0.0, jitter) * (slot > 0) * (slot < count - 1)
    z = low + (high - low) * (share + jitter / (count - 1.0))
    k_even = z * scale[..., None]

    k_listed, apart = _draw_listed_strikes(scale, reach, share, (low, high), rand)
    k = torch.where(even, k_even, k_listed)
    return k, (slot < count) & (even | apart)


def _draw_listed_strikes(
    scale: Tensor,
    reach: Tensor,
    share: Tensor,
    window: tuple[Tensor, Tensor],
    rand: Callable[..., Tensor],
) -> tuple[Tensor, Tensor]:
    """Multiples of a step between two strikes in currency: fine at the money, coarse far out."""
    B, L = scale.shape
    wide = scale[..., None]
    spot = _SPOT_RANGE[0] * torch.exp(rand(B, 1, 1) * math.log(_SPOT_RANGE[1] / _SPOT_RANGE[0]))
    # a range of strikes for all expiries, cut to what is worth something, or a window of its own
    lowest = torch.log(0.03 + 0.8 * rand(B, 1, 1).square())
    highest = torch.log(1.05 + 0.6 * rand(B, 1, 1))
    common = rand(B, 1, 1) < _COMMON_RANGE_SHARE
    # reach is rough: beyond it lie strikes that may or may not be worth listing
    beyond = reach[..., None] * (1.0 + _REACH_SLACK * rand(B, L, 1))
    deep = torch.where(rand(B, 1, 1) < _PRICE_CUT_SHARE, beyond, -4.0 - 6.5 * rand(B, 1, 1))
    low = torch.where(common, torch.maximum(lowest, deep * wide), window[0] * wide)
    above = torch.minimum(highest, (2.0 + 3.0 * rand(B, 1, 1)) * wide)
    high = torch.where(common, above, window[1] * wide)
    bend = wide * (0.4 + 5.0 * rand(B, 1, 1) ** 2)
    left, right = torch.asinh(low / bend), torch.asinh(high / bend)
    k = bend * torch.sinh(left + (right - left) * share)
    strike = spot * torch.exp(k)
    room = torch.diff(strike, dim=-1)
    room = torch.cat([room[..., :1], room], -1)
    steps = torch.tensor(_STRIKE_STEPS, device=scale.device)
    step = steps[(torch.bucketize(room, steps, right=True) - 1).clamp(min=0)]
    strike = torch.round(strike / step) * step
    apart = torch.ones_like(strike, dtype=torch.bool)
    apart[..., 1:] = strike[..., 1:] > torch.cummax(strike, -1).values[..., :-1]
    return torch.log(strike.clamp(min=1.0) / spot), apart


def draw_kept_quotes(
    offered: Tensor, fewest: int, generator: torch.Generator, poor: Tensor | None = None
) -> Tensor:
    """Return a mask of the quotes that are kept: random shares, gaps, nearly empty expiries.

    Surfaces with ``poor`` ``(B,)`` keep few. Every expiry keeps at least ``fewest`` quotes if it
    was offered as many.
    """
    B, L, S = offered.shape
    device = offered.device

    def rand(*shape: int) -> Tensor:
        return torch.rand(*shape, generator=generator, device=device)

    share = _MIN_KEPT_SHARE + (1.0 - _MIN_KEPT_SHARE) * rand(B, 1, 1)
    share = torch.where(rand(B, 1, 1) < 0.25, 1.0, share)
    if poor is not None:
        most = _MIN_KEPT_SHARE + (_MAX_POOR_KEPT_SHARE - _MIN_KEPT_SHARE) * rand(B, 1, 1)
        share = torch.where(poor[:, None, None], most, share)
    share = torch.where((rand(B, 1, 1) < 0.3) & (rand(B, L, 1) < 0.3), 0.1, share)
    # a gap anywhere in one expiry of eight
    slot = (torch.arange(S, device=device) + 0.5) / S
    start, width = rand(B, L, 1) * 1.2 - 0.2, 0.35 * rand(B, L, 1)
    gap = (slot > start) & (slot < start + width) & (rand(B, L, 1) < 0.125)
    key = rand(B, L, S) + gap.float()
    key = torch.where(offered, key, 2.0 + key)
    least = fewest + (6.0 * rand(B, 1, 1)).long()
    bar = key.sort(-1).values.gather(-1, (least - 1).clamp(max=S - 1).expand(B, L, 1))
    return offered & ((key <= share) | (key <= bar))
