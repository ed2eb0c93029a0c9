"""Quotes next to each other give surfaces that are: no choice on the way is all or nothing.

Along a segment of quotes the largest gap between neighbouring surfaces is looked for, and then
looked into, again and again. Where a surface is a steep function of its quotes the gap shrinks with
the segment; where it jumps, the gap stays.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn.functional import one_hot

from arbiter.operators.pretrained import Operator
from arbiter.operators.slope_head import KNOTS as SHIPPED_KNOTS
from arbiter.quotes import Quotes
from arbiter_lab.differentiable.operators.prior import bid_ask_likelihood, slice_offsets
from arbiter_lab.differentiable.operators.quote_tensors import Ragged, pad_chains
from arbiter_lab.differentiable.pricing import black
from arbiter_lab.differentiable.pricing.transport import Transport
from arbiter_lab.evaluation.first_design import FirstDesign
from arbiter_lab.evaluation.heston_surfaces import heston_surface
from counts import count

ENDS = 0.01  # quotes move by that, up or down, from one end of a segment to the other
FIRST, ZOOMS, POINTS = 65, 5, 17
CHAINS = [(seed, hard) for seed in range(1000, 1000 + count(250, 2)) for hard in (False, True)]
Slopes = Callable[[Ragged], Tensor]


class Gap(NamedTuple):
    """Between two surfaces next to each other.

    Attributes:
        quotes: How far apart their quotes are, in log-volatility.
        volatility: Largest difference at the quotes, in basis points.
        slope: Largest difference of log-slopes.
    """

    quotes: float
    volatility: float
    slope: float


def along(chain: Ragged, way: Tensor, low: float, high: float, points: int) -> Ragged:
    """Points of a segment, each a chain of a batch."""
    part = torch.linspace(low, high, points, dtype=torch.float64)
    times = torch.exp(part[:, None, None] * way)
    many = Ragged(*(x.expand(points, *x.shape[1:]) for x in chain))
    return many._replace(iv=many.iv * times, half=many.half * times)


def to_quotes(chains: Ragged) -> list[Quotes]:
    """The chains of a batch, each by itself."""
    found = []
    for T, k, iv, half, quoted in zip(*(part.numpy() for part in chains), strict=True):
        columns = {"T": T[:, None] + 0.0 * k, "k": k, "iv_bid": iv - half, "iv_ask": iv + half}
        found.append(Quotes.from_frame({name: part[quoted] for name, part in columns.items()}))
    return found


KNOTS = torch.tensor(SHIPPED_KNOTS, dtype=torch.float64)


def largest_gap(slopes: Slopes, seed: int, hard: bool) -> Gap:
    """The one that zooming in on the largest gap of volatilities ends at."""
    chain = pad_chains([heston_surface(seed, hard).quotes])
    rng = np.random.default_rng([seed, hard])
    way = ENDS * torch.from_numpy(rng.choice([-1.0, 1.0], chain.iv.shape[1:]))
    low, high, points = 0.0, 1.0, FIRST
    for _ in range(1 + ZOOMS):
        made = slopes(along(chain, way, low, high, points))
        price = Transport(KNOTS, made).otm(chain.k)
        iv = (
            black.implied_total_volatility(price, chain.k).volatility
            / torch.sqrt(chain.T)[..., None]
        )
        gaps = (1e4 * iv.diff(dim=0).abs() * chain.quoted).flatten(1).amax(1)
        at, step = int(gaps.argmax()), (high - low) / (points - 1)
        low, points = low + at * step, POINTS
        high = low + step
    slope = made.log().diff(dim=0).abs().flatten(1).amax(1)
    return Gap(ENDS * step, float(gaps[at]), float(slope[at]))


def test_surfaces_of_quotes_next_to_each_other_are_next_to_each_other() -> None:
    """The whole call is continuous, in single precision inside."""
    operator = Operator.pretrained()

    def slopes(chains: Ragged) -> Tensor:
        surfaces = operator.many(to_quotes(chains))
        return torch.from_numpy(np.concatenate([surface.slopes for surface in surfaces]))

    for chain in CHAINS:
        gap = largest_gap(slopes, *chain)
        assert 0.0 < gap.quotes < 2e-10
        assert gap.volatility < 0.1, chain
        assert gap.slope < 0.01, chain


def test_the_likeliest_alone_would_make_surfaces_jump(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same search on the torch network, since parts of the compiled pass cannot be replaced."""
    network, some = FirstDesign.load().network, CHAINS[1:4:2]

    @torch.no_grad()
    def slopes(chains: Ragged) -> Tensor:
        found: Tensor = network(chains).slopes
        return found

    assert max(largest_gap(slopes, *chain).volatility for chain in some) < 0.3

    def likeliest(score: Tensor) -> Tensor:
        return one_hot(score.argmax(0), len(score)).T.to(score)

    for module in (slice_offsets, bid_ask_likelihood):
        monkeypatch.setattr(module, "shares", likeliest)
    assert min(largest_gap(slopes, *chain).volatility for chain in some) > 3.0
