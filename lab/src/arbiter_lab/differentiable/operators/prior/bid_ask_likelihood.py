"""What quotes say: the truth is between bid and ask. Expectation propagation for that.

The torch version of :mod:`arbiter.operators.prior.bid_ask_likelihood`,
which has the reasons and the glossary.

Shapes: B chains, N quotes of each, K laws.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from arbiter.operators.prior.bid_ask_likelihood import (
    INITIAL_ERROR,
    MID_ERROR_LAWS,
    MID_VARIANCE_SHARE,
    MIN_CAVITY_PRECISION,
    MIN_DENSITY,
    MIN_ERROR,
    MIN_SITE_PRECISION,
    MIN_VARIANCE,
    ROUNDS,
    SHORT_INTERVAL_SD,
)
from arbiter_lab.differentiable.operators.prior.slice_offsets import (
    Belief,
    Prior,
    Rows,
    believed,
    likeliest,
    shares,
)
from arbiter_lab.differentiable.pricing import normal

_ALL_BELOW = -1e-14  # log-share of an upper tail that may lie below its interval, at most


class Posterior(NamedTuple):
    """What is known after the quotes.

    Attributes:
        belief: Of coefficients and levels.
        error: ``(B,)`` deviation of the Gaussian error that was taken.
        prior: What else was.
    """

    belief: Belief
    error: Tensor
    prior: Prior


def posterior(design: Rows, u: Tensor, half: Tensor, quoted: Tensor) -> Posterior:
    """What intervals say of coefficients and levels, in float64.

    Args:
        design: From coefficients to the quotes.
        u: ``(B, N)`` middles of the intervals.
        half: ``(B, N)`` half their lengths.
        quoted: ``(B, N)`` bool; the others are padding.
    """
    there = quoted.to(u.dtype)
    weight, centre = there / (MID_VARIANCE_SHARE * half * half + INITIAL_ERROR**2), u
    sums = design.sums(weight, centre)
    prior = likeliest(sums)
    belief = believed(sums, prior)
    value, variance = design.at(belief)
    beyond = ((u - value).abs() - half).clamp(min=0.0)
    error = torch.sqrt((there * beyond**2).sum(-1) / there.sum(-1).clamp(min=1.0) + MIN_ERROR**2)
    guess, alone = _cavity(value, variance, weight, centre)
    law = average_error_laws(u - guess, alone + error[:, None] ** 2, half, there)  # (B, 2)
    reach = law[:, :1] * half
    blur = (law[:, 1:] * half) ** 2 + error[:, None] ** 2
    for i in range(ROUNDS):
        if i > 0:
            guess, alone = _cavity(*design.at(belief), weight, centre)
        wide = alone + blur
        middle, spread = truncated(guess, wide, u - reach, u + reach)
        sharp = (1.0 / spread.clamp(min=MIN_VARIANCE) - 1.0 / wide).clamp(min=MIN_SITE_PRECISION)
        centre = (middle / spread.clamp(min=MIN_VARIANCE) - guess / wide) / sharp
        weight = there / (1.0 / sharp + blur)
        belief = believed(design.sums(weight, centre), prior)
    return Posterior(belief, error, prior)


def _cavity(
    value: Tensor, variance: Tensor, weight: Tensor, centre: Tensor
) -> tuple[Tensor, Tensor]:
    """``(B, N)`` mean and variance of f at each quote by what all others say."""
    variance = variance.clamp(min=MIN_VARIANCE)
    alone = 1.0 / (1.0 / variance - weight).clamp(min=MIN_CAVITY_PRECISION)
    return alone * (value / variance - weight * centre), alone


def average_error_laws(off: Tensor, variance: Tensor, half: Tensor, there: Tensor) -> Tensor:
    """``(B, 2)`` the mean of :data:`MID_ERROR_LAWS`, weighed by how well others predict quotes."""
    laws = torch.tensor(MID_ERROR_LAWS, dtype=off.dtype, device=off.device)
    reach, blur = (part[:, None, None] * half for part in laws.unbind(1))  # (K, B, N)
    scale = normal.ROOT_HALF * torch.rsqrt(variance + blur * blur)
    # from the side where a far quote is in the upper tail, which keeps its digits
    near, far = (torch.special.erfc((off.abs() + end) * scale) for end in (-reach, reach))
    density = (near - far) / (4.0 * reach)
    score = (there * torch.log(density.clamp(min=MIN_DENSITY))).sum(-1)  # (K, B)
    return shares(score).T @ laws


def truncated(mean: Tensor, variance: Tensor, low: Tensor, high: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and variance of normal variables between two ends, however far out these are."""
    deviation = torch.sqrt(variance)
    a, b = (low - mean) / deviation, (high - mean) / deviation
    turned = a + b > 0.0  # by symmetry the nearer end is the upper one
    a, b = torch.where(turned, -b, a), torch.where(turned, -a, b)
    below, above = torch.special.log_ndtr(a), torch.special.log_ndtr(b)
    mass = above + torch.log1p(-torch.exp((below - above).clamp(max=_ALL_BELOW)))
    start, end = (torch.exp(-0.5 * x * x - _LOG_ROOT - mass) for x in (a, b))
    moved = start - end
    left = 1.0 + a * start - b * end - moved * moved
    # far out the interval is all that is known, and differences of large numbers are noise
    width, at = b - a, 0.5 * (a + b)
    short = width * width / 12.0
    left = torch.minimum(left.clamp(min=MIN_VARIANCE), short)
    middle = torch.minimum(torch.maximum(moved, a), b)
    # across a short one the moments are series, and differences of near numbers noise
    few = width * (1.0 + at.abs()) < SHORT_INTERVAL_SD
    square, steep = width * width, (at * width) ** 2
    left = torch.where(few, short * (1.0 - square / 30.0 - steep / 20.0), left)
    pulled = short * (1.0 - square / 30.0 - steep / 60.0)
    middle = torch.where(few, at * (1.0 - pulled), middle)
    return mean + deviation * torch.where(turned, -middle, middle), variance * left


_LOG_ROOT = 0.5 * math.log(2.0 * math.pi)
