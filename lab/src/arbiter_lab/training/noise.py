"""Frictions of training surfaces: bid-ask spreads in volatility, and the noise inside them.

Shapes: B surfaces, L expiries, S strikes; parts of :class:`Friction` are ``(B, 1, 1)``, and of one
that :meth:`Friction.vary_by_maturity` returns ``(B, L, 1)``.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from arbiter_lab.differentiable.pricing import black

MAX_RELATIVE_HALF_SPREAD = 0.2  # half-spread over volatility, before the tick
_MAX_RELATIVE_HALF_SPREAD_WITH_TICK = 0.5
_PRICE_FLOORS = (1e-6, 3e-4)
_BASE_HALF_SPREADS, _POOR_BASE_HALF_SPREADS = (5e-4, 0.05), (6e-3, 0.05)
_PRICE_TICKS = (3e-7, 3e-5)
_NOISE_KIND_SHARES = (0.45, 0.15, 0.25, 0.1, 0.05)  # of the kinds of noise
UNIFORM, GAUSSIAN, SMALLER, SMOOTH, NONE = range(5)
_GAUSSIAN_HALF_SPREADS = 0.35  # half-spreads
_NEAR_MONEY_DEVIATIONS = 3.0  # deviations
PRICE_NOISE_STRIDE = 3  # one surface of so many has its noise in price
_MIN_BID_OVER_PRICE = 0.04  # bid over the true price, at least, where noise is in price
_UNEVEN_SPREAD_SHARE = 0.6  # share of surfaces whose expiries have spreads of their own
_TREND_ORIGIN_YEARS = 0.25  # years where trends begin on both sides
_SPREAD_TRENDS = (-0.35, 0.15)  # of log-spreads in log-maturity
_FAR_ONSET_YEARS, _FAR_ONSET_WIDTHS = (
    (0.5, 5.0),
    (0.05, 0.8),
)  # years where far expiries begin; width in log-maturity
_MAX_FAR_SPREAD_FACTOR = 50.0  # how many times as wide they may be
_MAX_EXPIRY_DEVIATION = 0.4  # largest deviation of log-spreads from one expiry to the next
_STEADY_MID_SHARE = 0.5  # share whose mids are steadier where spreads are wide


class Friction(NamedTuple):
    """Spreads and noise of the surfaces of a batch.

    Attributes:
        floor: Least price over the forward.
        base: Half-spread over volatility at the money.
        slope: Growth of the half-spread with deviations from the money.
        power: Power of the deviations in that growth.
        tick: Half-spread in price, at least.
        rough: Deviation of log half-spreads from one quote to the next.
        kind: Kind of the noise.
        size: Size of the noise, relative to its kind.
        trend: Slope of log-spreads in log-maturity.
        onset: Logarithm of the maturity where spreads of far expiries begin to rise.
        width: Width of that rise, in log-maturity.
        rise: Logarithm of the factor by which they widen.
        alone: Deviation of log-spreads from one expiry to the next.
        calm: Power of the width by which noise is smaller in wide spreads.
    """

    floor: Tensor
    base: Tensor
    slope: Tensor
    power: Tensor
    tick: Tensor
    rough: Tensor
    kind: Tensor
    size: Tensor
    trend: Tensor
    onset: Tensor
    width: Tensor
    rise: Tensor
    alone: Tensor
    calm: Tensor

    def vary_by_maturity(self, T: Tensor, generator: torch.Generator) -> Friction:
        """The friction with a base and a size of its own for each maturity ``(B, L, 1)``.

        Listed spreads fall with maturity for some months, and at years without trade they are up
        to fifty times as wide, about mids that a model holds steady.
        """
        age = torch.log(T)
        far = self.rise * torch.sigmoid((age - self.onset) / self.width)
        alone = torch.randn(T.shape, generator=generator, device=T.device).clamp(-2.0, 2.0)
        wider = self.trend * (age - math.log(_TREND_ORIGIN_YEARS)) + far + self.alone * alone
        return self._replace(
            base=self.base * torch.exp(wider),
            size=self.size * torch.exp(-self.calm * wider.clamp(min=0.0)),
        )

    def half_spread(
        self, k: Tensor, iv: Tensor, root: Tensor, scale: Tensor, generator: torch.Generator
    ) -> Tensor:
        """Half-spreads in volatility of strikes ``(B, L, S)``; ``root`` is √T."""
        # like deviations near the money, and growing slower far out, as spreads in volatility do
        z = _NEAR_MONEY_DEVIATIONS * torch.asinh((k / scale).abs() / _NEAR_MONEY_DEVIATIONS)
        relative = self.base * (1.0 + self.slope * z**self.power)
        shake = torch.randn(k.shape, generator=generator, device=k.device).clamp(-2.0, 2.0)
        relative = (relative * torch.exp(self.rough * shake)).clamp(max=MAX_RELATIVE_HALF_SPREAD)
        vega = black.vega(k, iv * root) * root
        tick = self.tick / vega.clamp(min=1e-12)
        return torch.minimum(
            torch.hypot(relative * iv, tick), _MAX_RELATIVE_HALF_SPREAD_WITH_TICK * iv
        )


def draw_friction(size: int, generator: torch.Generator, poor: Tensor | None = None) -> Friction:
    """Draw frictions of ``size`` surfaces; those with ``poor`` ``(size,)`` have wide spreads."""
    device = generator.device

    def rand() -> Tensor:
        return torch.rand(size, 1, 1, generator=generator, device=device)

    def log_uniform(low: float, high: float) -> Tensor:
        return low * torch.exp(rand() * math.log(high / low))

    base = log_uniform(*_BASE_HALF_SPREADS)
    if poor is not None:
        base = torch.where(poor[:, None, None], log_uniform(*_POOR_BASE_HALF_SPREADS), base)
    edges = torch.tensor(_NOISE_KIND_SHARES, device=device).cumsum(0)[:-1]
    kind = torch.bucketize(rand(), edges)
    uneven = (rand() < _UNEVEN_SPREAD_SHARE).float()
    return Friction(
        floor=log_uniform(*_PRICE_FLOORS),
        base=base,
        slope=2.0 * rand(),
        power=0.6 + 1.2 * rand(),
        tick=torch.where(rand() < 0.4, 0.0, log_uniform(*_PRICE_TICKS)),
        rough=torch.where(rand() < 0.5, 0.0, 0.4 * rand()),
        kind=kind,
        size=torch.where(kind == SMALLER, rand(), torch.where(kind == NONE, 0.0, 1.0)),
        trend=uneven * (_SPREAD_TRENDS[0] + (_SPREAD_TRENDS[1] - _SPREAD_TRENDS[0]) * rand()),
        onset=torch.log(log_uniform(*_FAR_ONSET_YEARS)),
        width=log_uniform(*_FAR_ONSET_WIDTHS),
        rise=uneven * math.log(_MAX_FAR_SPREAD_FACTOR) * rand(),
        alone=uneven * _MAX_EXPIRY_DEVIATION * rand(),
        calm=torch.where(rand() < _STEADY_MID_SHARE, rand(), 0.0),
    )


def draw_noise(shape: torch.Size, friction: Friction, generator: torch.Generator) -> Tensor:
    """Noise ``(B, L, S)`` in half-spreads, of mean zero and within one half-spread."""
    B, L, S = shape
    device = generator.device
    even = 2.0 * torch.rand(shape, generator=generator, device=device) - 1.0
    white = torch.randn(B, L, S + 8, generator=generator, device=device)
    bell = torch.exp(-0.5 * (torch.arange(-4.0, 5.0, device=device) / 1.7) ** 2)
    bell = bell / bell.square().sum().sqrt()
    smooth = white.unfold(-1, bell.numel(), 1) @ bell
    normal = torch.where(friction.kind == SMOOTH, smooth, white[..., :S])
    normal = (_GAUSSIAN_HALF_SPREADS * normal).clamp(-1.0, 1.0)
    wild = (friction.kind == GAUSSIAN) | (friction.kind == SMOOTH)
    return torch.where(wild, normal, even) * friction.size


def make_quotes(
    k: Tensor, truth: Tensor, half: Tensor, noise: Tensor, root: Tensor
) -> tuple[Tensor, Tensor]:
    """Return the volatility of the mid price and the half-spread of volatility of each quote.

    Two of three surfaces are quoted in volatility: bid and ask are the prices of
    ``truth + half·(noise ∓ 1)``. The others in price: a half-spread is half the difference of the
    prices of ``truth ± half``, and noise is in units of it. In both the truth lies between bid and
    ask, and the volatility of the mid price is not the middle of theirs: it lies above, where
    price is convex in volatility, as in the wings.

    Args:
        k: ``(B, L, S)`` log-strikes.
        truth: Exact volatilities.
        half: Half-spreads in volatility, at most half of it.
        noise: Between minus one and one.
        root: √T, which broadcasts.

    Returns:
        Volatilities of the mid prices and halves of the differences of those of ask and bid; NaN
        where prices are too small to have a volatility.
    """
    k, v, h = k.double(), truth.double() * root, half.double() * root
    noise = noise.double()
    # interleaved, since batches are cut out of longer ones
    priced = slice(None, None, PRICE_NOISE_STRIDE)
    middle = v + h * noise
    middle[priced] = v[priced]
    bid, ask = black.otm(k, torch.stack([middle - h, middle + h]).clamp(min=0.0))
    fair = black.otm(k[priced], v[priced])
    width = torch.minimum(
        0.5 * (ask[priced] - bid[priced]), 0.5 * (1.0 - _MIN_BID_OVER_PRICE) * fair
    )
    centre = fair + width * noise[priced]
    mid = 0.5 * (bid + ask)
    mid[priced] = centre
    # all at once: on a GPU the number of operations is what takes time
    prices = torch.cat([mid, centre - width, centre + width])
    at = torch.cat([k, k[priced], k[priced]])
    found, low, high = black.implied_total_volatility(prices, at).volatility.split(
        [len(k), *[len(centre)] * 2]
    )
    h[priced] = 0.5 * (high - low)
    return (found / root).to(truth.dtype), (h / root).to(truth.dtype)
