"""The normal law and lognormal option values of :mod:`arbiter.pricing.normal`, on tensors.

Choices between formulas are masks: arguments are clamped into each formula's own region, so that
the one not taken sends no NaN into a gradient.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from arbiter.pricing.normal import (
    INV_ROOT_2PI,
    MAX_SERIES_ARGUMENT,
    MAX_SERIES_WIDTH,
    MIN_SERIES_ARGUMENT,
)

ROOT_HALF = math.sqrt(0.5)
ROOT_HALF_PI = math.sqrt(0.5 * math.pi)
MIN_ASYMPTOTIC_ARGUMENT = 30.0  # arguments from which a quick Mills ratio is its asymptotic series


def pdf(x: Tensor) -> Tensor:
    """Standard normal density."""
    return INV_ROOT_2PI * torch.exp(-0.5 * x * x)


def scaled_pdf(k: Tensor, x: Tensor) -> Tensor:
    """``e^k φ(x)`` with the exponents joined, so that neither factor over- or underflows."""
    return INV_ROOT_2PI * torch.exp(k - 0.5 * x * x)


def cdf(x: Tensor) -> Tensor:
    """Standard normal distribution function, relatively accurate in the left tail."""
    tail: Tensor = torch.special.erfc(-ROOT_HALF * x)
    return 0.5 * tail


def quantile(u: Tensor) -> Tensor:
    """Inverse of :func:`cdf`, relatively accurate for small ``u``."""
    coordinate: Tensor = torch.special.ndtri(u)
    return coordinate


def mills(y: Tensor) -> Tensor:
    """Mills ratio ``R(y) = Φ(−y)/φ(y)``; overflows for ``y`` far below zero."""
    scaled: Tensor = torch.special.erfcx(ROOT_HALF * y)
    return ROOT_HALF_PI * scaled


def quick_mills(y: Tensor) -> Tensor:
    """Mills ratio to a relative 1e-9, several times faster than erfcx; ``y`` is not far below zero.

    ``e^{y²/2} Φ(−y)/φ(0)`` until that over- and underflows, then ``1/y − 1/y³ + 3/y⁵ − 15/y⁷``.
    """
    far = (y >= MIN_ASYMPTOTIC_ARGUMENT).to(y)
    x = ROOT_HALF * torch.clamp(y, max=MIN_ASYMPTOTIC_ARGUMENT)
    inner: Tensor = torch.special.erfc(x).mul_((x * x).exp_()).mul_(ROOT_HALF_PI)
    w = 1.0 / torch.clamp(y, min=MIN_ASYMPTOTIC_ARGUMENT)
    ww = w * w
    return inner + far * (w * (1.0 - ww * (1.0 - ww * (3.0 - 15.0 * ww))) - inner)


def narrow_series(h: Tensor, t: Tensor, near: Tensor) -> Tensor:
    """``(R(h − t) − R(h + t))/2t`` for small t, with ``near = R(h)``: five terms of its series."""
    hh, tt = torch.clamp(h * h, max=1e6), t * t
    carried: Tensor | float = 1.0
    term = 1.0 - h * near
    total = term
    for n in (1, 3, 5, 7):
        following = tt / ((n + 1) * (n + 2)) * ((hh + (2 * n + 1)) * term - carried)
        carried, term = tt * term, following
        total = total + term
    return total


def weighted_mills(k: Tensor, x: Tensor, y: Tensor, log_mass: Tensor | None = None) -> Tensor:
    """``e^k φ(x) R(y)``, finite wherever the product is, though ``R`` alone overflows.

    Left of zero it is ``e^{k+(y²−x²)/2} Φ(−y)``, an exponent that the caller may know better
    than its rounded parts and give as ``log_mass``.
    """
    right = y >= 0.0
    if log_mass is None:
        log_mass = k + 0.5 * (y - x) * (y + x)
    return torch.where(
        right,
        scaled_pdf(k, x) * mills(torch.where(right, y, 0.0)),
        torch.exp(torch.where(right, 0.0, log_mass)) * cdf(-torch.where(right, 0.0, y)),
    )


def excess_above(k: Tensor, x: Tensor, b: Tensor) -> Tensor:
    """``E[(e^{k+b(Z−x)} − e^k)+]``: a call on a lognormal piece, struck at coordinate ``x``.

    This is the Black call at log-strike ``k`` and total volatility ``b`` when
    ``x = k/b + b/2``, and the right tail of a transport slice for any ``x``.
    """
    return scaled_mills_difference(k, x, x - b, b)


def excess_below(k: Tensor, x: Tensor, b: Tensor) -> Tensor:
    """``E[(e^k − e^{k+b(Z−x)})+]``: a put on a lognormal piece, struck at coordinate ``x``."""
    return scaled_mills_difference(k, -x, -x, b)


def scaled_mills_difference(
    k: Tensor, x: Tensor, y: Tensor, b: Tensor, log_mass: Tensor | None = None
) -> Tensor:
    """``e^k φ(x) (R(y) − R(y+b))`` with ``y = x − b`` or ``y = x``, without cancellation.

    ``log_mass`` is ``k + (y²−x²)/2``, the same for every strike of a slice's right tail: given
    once, its rounding is common to all of them and bends no smile.
    """
    narrow = (b < MAX_SERIES_WIDTH) & (y > MIN_SERIES_ARGUMENT)
    middle = torch.clamp(torch.where(narrow, y + 0.5 * b, 0.0), max=MAX_SERIES_ARGUMENT)
    half = 0.5 * torch.where(narrow, b, MAX_SERIES_WIDTH)
    series = 2.0 * half * narrow_series(middle, half, mills(middle))
    wide = weighted_mills(k, x, y, log_mass) - weighted_mills(k, x, y + b)
    return torch.where(narrow, scaled_pdf(k, x) * series, wide)
