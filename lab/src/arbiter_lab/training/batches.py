"""Training batches: random laws of a pool with random maturities, strikes, spreads and noise.

Nothing is stored: a batch takes a few hundred operations on the device of the pool.

Shapes: B surfaces, L expiries, S strikes, P targets. What is not listed or quoted is padding at the
end of its axis: finite, and marked false.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from arbiter_lab.differentiable.pricing import black
from arbiter_lab.training.calendars import draw_maturities, pad_maturities
from arbiter_lab.training.law_pool import Laws
from arbiter_lab.training.noise import Friction, draw_friction, draw_noise, make_quotes
from arbiter_lab.training.strikes import draw_kept_quotes, draw_strikes
from arbiter_lab.training.training_clocks import draw_clock

MIN_TARGET_PRICE = 1e-8  # of the forward: targets are worth more
TARGET_WINDOW = (-3.5, 2.0)  # deviations that targets always cover
MIN_QUOTES_PER_EXPIRY = 3  # quotes of a listed expiry
_OVERSAMPLING = 1.15  # surfaces drawn for each one kept: some have too few expiries with quotes
_PADDING_STRIKE_STEP = 0.01  # distance of padded strikes
_EVEN_TARGET_DEVIATIONS = 3.0  # deviations within which targets are about even
# of surfaces that no exchange lists: the share whose quotes are poor, few and far from the truth
_POOR_QUOTE_SHARE = 0.35
# that whose law is Heston's, of the others and of the poor, and that of any model's own
HESTON_SHARE, POOR_HESTON_SHARE, MODEL_LAW_SHARE = 0.2, 0.7, 0.85
_RESCALED_SHARE, _RESCALING_FACTORS = 0.3, (0.6, 2.2)  # share of rescaled surfaces, and the factors


class BatchLayout(NamedTuple):
    """The padded size of a batch: expiries, strikes of each, targets of each."""

    expiries: int
    strikes: int
    targets: int


class Batch(NamedTuple):
    """Noisy quotes and exact volatilities of B surfaces.

    Attributes:
        T: ``(B, L)`` years, increasing.
        listed: ``(B, L)`` bool; the others are padding.
        k: ``(B, L, S)`` log-strikes, increasing.
        iv: ``(B, L, S)`` volatilities of the quoted mid prices, noisy.
        half: ``(B, L, S)`` half the difference of the volatilities of ask and bid.
        quoted: ``(B, L, S)`` bool; the others are padding.
        oracle_iv: ``(B, L, S)`` the exact volatility of the quotes.
        target_k: ``(B, L, P)`` log-strikes, quoted or not.
        target_iv: ``(B, L, P)`` exact volatilities there.
        target: ``(B, L, P)`` bool; the others are padding.
        rows: ``(B,)`` which laws of the pool these are.
        clock: ``(B, L)`` the laws' own time at each maturity: the truth is
            ``laws.volatility_at(rows, clock, k)·√(clock/T)``.
    """

    T: Tensor
    listed: Tensor
    k: Tensor
    iv: Tensor
    half: Tensor
    quoted: Tensor
    oracle_iv: Tensor
    target_k: Tensor
    target_iv: Tensor
    target: Tensor
    rows: Tensor
    clock: Tensor


def default_batch_layouts() -> list[tuple[BatchLayout, int]]:
    """Return padded sizes with their numbers of surfaces, chosen for similar numbers of quotes."""
    return [
        (BatchLayout(8, 16, 16), 2048),
        (BatchLayout(14, 33, 24), 704),
        (BatchLayout(16, 41, 24), 512),
        (BatchLayout(28, 64, 24), 192),
        (BatchLayout(60, 160, 32), 38),
    ]


def draw_batch(laws: Laws, layout: BatchLayout, generator: torch.Generator, size: int) -> Batch:
    """Draw a batch; the same state of the generator gives the same batch.

    Args:
        laws: The pool.
        layout: The padded size.
        generator: Random number generator on the device of the pool.
        size: Number of surfaces.
    """
    if min(layout) < 1 or layout.expiries < 2 or layout.strikes < MIN_QUOTES_PER_EXPIRY or size < 1:
        raise ValueError(
            f"{layout}, size = {size}: give at least 2 expiries, {MIN_QUOTES_PER_EXPIRY} "
            "strikes, one target and "
            "one surface"
        )
    if generator.device.type != laws.iv.device.type:
        raise ValueError(
            f"the generator is on {generator.device}, the pool on {laws.iv.device}: make it with "
            f"torch.Generator({str(laws.iv.device)!r})"
        )
    drawn = int(_OVERSAMPLING * size) + 4
    T, listed, exchange = draw_maturities(drawn, layout.expiries, generator)
    poor = ~exchange & (torch.rand(drawn, generator=generator, device=T.device) < _POOR_QUOTE_SHARE)
    rows = draw_law_rows(laws, exchange, poor, generator)
    clock = draw_clock(T, exchange, generator)
    clock = clock * _draw_rescaling(clock, listed, laws, generator) ** 2
    scale = laws.reference_at(rows, clock) * torch.sqrt(clock)  # (B, L)
    friction = draw_friction(drawn, generator, poor)
    reach = laws.lower_reach(rows, clock, friction.floor[..., 0])
    k, offered = draw_strikes(scale, reach, layout.strikes, generator)
    total = laws.volatility_at(rows, clock, k) * torch.sqrt(clock)[..., None]
    offered &= listed[..., None] & torch.isfinite(total)
    total = torch.where(offered, total, 0.1)
    offered &= black.otm(k, total) > friction.floor
    quoted = draw_kept_quotes(offered, MIN_QUOTES_PER_EXPIRY, generator, poor)
    listed = quoted.sum(-1) >= MIN_QUOTES_PER_EXPIRY
    quoted &= listed[..., None]

    chosen = _choose_surfaces(listed, size)
    rows, listed, quoted = rows[chosen], listed[chosen], quoted[chosen]
    slices = torch.argsort((~listed).to(torch.int8), dim=1, stable=True)  # (B, L)
    strikes = torch.argsort(torch.where(quoted, k[chosen], torch.inf), dim=-1)  # (B, L, S)

    def arranged(x: Tensor) -> Tensor:
        within = x.gather(-1, strikes)
        return within.gather(1, slices[..., None].expand_as(within))

    k, total, quoted = arranged(k[chosen]), arranged(total[chosen]), arranged(quoted)
    scale, listed = scale[chosen].gather(1, slices), listed.gather(1, slices)
    T = pad_maturities(T[chosen].gather(1, slices), listed)
    clock = pad_maturities(clock[chosen].gather(1, slices), listed)
    root = torch.sqrt(T)[..., None]
    k, truth = _pad_strikes(k, total / root, quoted)
    friction = Friction(*(part[chosen] for part in friction)).vary_by_maturity(
        T[..., None], generator
    )
    half = friction.half_spread(k, truth, root, scale[..., None], generator)
    seen = make_quotes(k, truth, half, draw_noise(half.shape, friction, generator), root)
    mid, half = (torch.where(quoted, a, b) for a, b in zip(seen, (truth, half), strict=True))

    target_k = _draw_targets(k, quoted, scale, layout.targets, generator)
    target_iv = laws.volatility_at(rows, clock, target_k) * torch.sqrt(clock / T)[..., None]
    target = listed[..., None] & torch.isfinite(target_iv)
    target_iv = torch.where(target, target_iv, 0.2)
    target &= black.otm(target_k, target_iv * root) > MIN_TARGET_PRICE
    return Batch(T, listed, k, mid, half, quoted, truth, target_k, target_iv, target, rows, clock)


def draw_law_rows(laws: Laws, exchange: Tensor, poor: Tensor, generator: torch.Generator) -> Tensor:
    """Draw ``(B,)`` laws of the pool.

    Surfaces that no exchange lists mostly follow a model's law, often Heston's. With poor quotes
    they mostly follow Heston's: such quotes do not identify the law, and the simplest model is the
    best guess. Surfaces of an exchange follow any law but the leading Heston ones.
    """
    u = torch.rand(2, len(exchange), generator=generator, device=exchange.device)
    share = torch.where(poor, POOR_HESTON_SHARE, HESTON_SHARE)
    textbook = torch.where(u[0] < share, laws.heston_law_count, laws.model_law_count).clamp(min=1)
    textbook = torch.where(u[0] < MODEL_LAW_SHARE, textbook, len(laws))
    first = torch.where(exchange, laws.heston_law_count, 0)
    among = torch.where(exchange, len(laws), textbook) - first
    return first + torch.minimum((u[1] * among).long(), among - 1)


def _draw_rescaling(T: Tensor, listed: Tensor, laws: Laws, generator: torch.Generator) -> Tensor:
    """Draw ``(B, 1)`` factors of volatility: one, or a random one within the pool's maturities.

    A market whose clock runs λ² times as fast has exactly λ times the volatility, at maturities
    λ² times as short.
    """
    u = torch.rand(2, T.shape[0], 1, generator=generator, device=T.device)
    low, high = math.log(_RESCALING_FACTORS[0]), math.log(_RESCALING_FACTORS[1])
    factor = torch.where(u[0] < _RESCALED_SHARE, torch.exp(low + (high - low) * u[1]), 1.0)
    longest = torch.where(listed, T, 0.0).amax(1, keepdim=True)
    factor = torch.minimum(factor, torch.sqrt(laws.T[-1] / longest))
    return torch.maximum(factor, torch.sqrt(laws.T[0] / T[:, :1]))


def _choose_surfaces(listed: Tensor, size: int) -> Tensor:
    """Return ``(size,)`` surfaces with at least two expiries, with repeats if there are too few."""
    good = listed.sum(1) >= 2
    order = torch.argsort((~good).to(torch.int8), stable=True)
    several = good.sum().clamp(min=1)
    return order[torch.arange(size, device=listed.device) % several]


def _pad_strikes(k: Tensor, iv: Tensor, quoted: Tensor) -> tuple[Tensor, Tensor]:
    """Pad after the last quote: strikes continue in even steps, volatility is flat."""
    count = quoted.sum(-1, keepdim=True)
    last = (count - 1).clamp(min=0)
    beyond = torch.arange(k.shape[-1], device=k.device) - last
    some = count > 0
    end = torch.where(some, k.gather(-1, last), 0.0)
    flat = torch.where(some, iv.gather(-1, last), 0.2)
    return torch.where(quoted, k, end + _PADDING_STRIKE_STEP * beyond), torch.where(
        quoted, iv, flat
    )


def _draw_targets(
    k: Tensor, quoted: Tensor, scale: Tensor, targets: int, generator: torch.Generator
) -> Tensor:
    """Draw ``(B, L, P)`` targets: 60 % over window and quoted range, the rest over the window."""
    z = k / scale[..., None]
    low = (
        torch.where(quoted, z, TARGET_WINDOW[0]).amin(-1, keepdim=True).clamp(max=TARGET_WINDOW[0])
    )
    high = (
        torch.where(quoted, z, TARGET_WINDOW[1]).amax(-1, keepdim=True).clamp(min=TARGET_WINDOW[1])
    )
    u = torch.rand(2, *scale.shape, targets, generator=generator, device=k.device)
    wide = u[0] < 0.6
    low, high = torch.where(wide, low, TARGET_WINDOW[0]), torch.where(wide, high, TARGET_WINDOW[1])
    # even in deviations near the money, and ever fewer far out, where quotes are few as well
    low, high = (
        torch.asinh(low / _EVEN_TARGET_DEVIATIONS),
        torch.asinh(high / _EVEN_TARGET_DEVIATIONS),
    )
    return _EVEN_TARGET_DEVIATIONS * torch.sinh(low + (high - low) * u[1]) * scale[..., None]
