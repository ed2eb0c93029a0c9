"""Reading quotes through a law: conditional expectations of what they are off.

In the Gaussian percentile x a law is the standard normal one. A head weighs it by a fixed positive
function of Gaussian decay, so that head times law is a Gaussian of its own place and width. A quote
stands for the cell between the middles to its neighbours, cut at the end quotes, and its weight is
the mass of that cell. The law enters through the percentiles of the strikes.

Shapes: B chains, L maturities, S quotes, H heads.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from arbiter.operators.law.config import MIN_READ_VEGA, WIDTH_OVER_GAP
from arbiter_lab.differentiable.pricing import normal


class Heads(nn.Module):
    """Places and widths of the heads.

    Args:
        count: H.
        reach: Farthest places, in standard deviations below and above the median.
    """

    def __init__(self, count: int, reach: tuple[float, float]) -> None:
        super().__init__()
        self.place = nn.Parameter(torch.linspace(-reach[0], reach[1], count))
        gap = sum(reach) / (count - 1)
        self.log_width = nn.Parameter(torch.full((count,), math.log(WIDTH_OVER_GAP * gap)))

    def masses(self, x: Tensor, quoted: Tensor) -> Tensor:
        """``(B, L, S, H)`` masses of the cells of quotes at ``x``, which rise along S.

        Args:
            x: ``(B, L, S)`` percentiles, the quoted ones first.
            quoted: ``(B, L, S)``.
        """
        pad = nn.functional.pad
        middle = 0.5 * (x[..., 1:] + x[..., :-1])
        right = torch.where(pad(quoted[..., 1:], (0, 1)), pad(middle, (0, 1)), x)
        left = torch.where(pad(quoted[..., :-1], (1, 0)), pad(middle, (1, 0)), x)
        width = torch.exp(self.log_width)
        above, below = (normal.cdf((end[..., None] - self.place) / width) for end in (right, left))
        return (above - below).clamp(min=0.0) * quoted[..., None]


def misfit(mid: Tensor, price: Tensor, vega: Tensor, quoted: Tensor, largest: float) -> Tensor:
    """``(B, L, S)`` what mids are off in log-volatility, cut at ``largest``; zero off the quotes.

    Args:
        mid: ``(B, L, S)`` mid prices.
        price: ``(B, L, S)`` prices of the law.
        vega: ``(B, L, S)`` of the law, per unit of log-volatility.
        quoted: ``(B, L, S)``.
        largest: Size at which it is cut.
    """
    vega = torch.where(quoted, vega, 0.0)
    told = (vega / MIN_READ_VEGA - 1.0).clamp(0.0, 1.0)  # a step would be a jump in the quotes
    off = told * torch.where(quoted, mid - price, 0.0) / vega.clamp(min=MIN_READ_VEGA)
    return off.clamp(-largest, largest)


def law_vega(k: Tensor, x: Tensor, total: Tensor) -> Tensor:
    """``(B, L, S)`` what a relative change of volatility is worth at a percentile: ``κ φ(x) σ√T``.

    Black's vega where the law is lognormal. It weighs misfits and has no gradient.
    """
    return (normal.scaled_pdf(k, x) * torch.exp(total)[..., None]).detach()


def read(mass: Tensor, values: Tensor, least: float) -> Tensor:
    """``(B, L, H)`` conditional expectations of values ``(B, L, S)``, less where little is seen.

    Args:
        mass: From :meth:`Heads.masses`.
        values: At the quotes.
        least: Mass that halves a reading: a head that sees no quotes says little.
    """
    return (mass * values[..., None]).sum(-2) / (mass.sum(-2) + least)
