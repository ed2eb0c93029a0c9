"""A transport that prices a smile: the step, the star order, and what is missed."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import isotonic_regression
from torch import Tensor

from arbiter.operators.prior.star_order_projection import MIN_MISS_FOR_MORE_ROUNDS, ROBUST_LOSS_MISS
from arbiter.operators.prior.transport_prices import MIN_RELATIVE_IV_ERROR
from arbiter_lab.differentiable.operators import slope_head
from arbiter_lab.differentiable.operators.network.measure_gate import places
from arbiter_lab.differentiable.operators.prior import (
    smile_to_slopes,
    star_order_projection,
    transport_prices,
)
from arbiter_lab.differentiable.pricing import black
from arbiter_lab.differentiable.pricing.transport import Transport

KNOTS = torch.tensor(slope_head.KNOTS, dtype=torch.float64)
PLACE = places(44, (3.7, 2.4)).double()
TOTAL = torch.log(torch.tensor([[0.02, 0.06, 0.15, 0.4]], dtype=torch.float64))
LEVEL = torch.exp(TOTAL)[..., None]
NEAR = torch.sinh(PLACE).abs() < 3.0
seeds = st.integers(0, 2**31)


def volatility(g: Tensor) -> Tensor:
    """``(1, 4, H)`` ``log(iv/σ)`` of star-ordered slopes, priced exactly."""
    k = torch.sinh(PLACE) * LEVEL
    law = Transport(KNOTS, slope_head.slopes(g, TOTAL))
    return torch.log(black.implied_total_volatility(law.otm(k), k).volatility) - TOTAL[..., None]


def smile(u: Tensor, doubt: float = -6.0) -> transport_prices.Smile:
    seen = torch.ones_like(TOTAL, dtype=torch.bool)
    return transport_prices.Smile(u, torch.full_like(u, doubt), PLACE, TOTAL, seen)


def skewed(skew: float, curve: float) -> Tensor:
    """``(1, 4, n)`` log-slopes of smooth laws, the same at all maturities."""
    x = KNOTS / 2.0
    g = -skew * torch.tanh(x) + curve * x**2 / (1.0 + 0.3 * x**2)
    return g.expand(1, 4, -1)


@given(skew=st.floats(-0.2, 0.9), curve=st.floats(0.0, 0.12))
def test_the_step_brings_prices_to_the_smile(skew: float, curve: float) -> None:
    u = volatility(skewed(skew, curve))
    g, _ = star_order_projection.transport(smile(u))
    before = smile_to_slopes.log_slopes(u, PLACE, TOTAL)
    off, first = ((volatility(x) - u)[..., NEAR].abs().max() for x in (g, before))
    assert float(off) < 2.5e-3
    assert float(off) < float(first) + 1e-3


def test_prices_along_the_quadrature_are_the_transports() -> None:
    g = skewed(0.6, 0.05)
    k = torch.sinh(PLACE) * LEVEL
    exact = Transport(KNOTS, torch.exp(g) * LEVEL).otm(k).flatten(0, 1)
    laid = transport_prices.lay_transports(
        torch.exp(g).flatten(0, 1), torch.sinh(PLACE), LEVEL.flatten(0, 1)
    )
    told = exact > 1e-9
    error = (torch.log(laid.prices() / exact))[told].abs()
    assert float(error.max()) < 1e-2
    assert float(error.median()) < 1e-3


def test_derivatives_are_those_of_prices() -> None:
    g = skewed(0.4, 0.05).flatten(0, 1)
    z, level, step = torch.sinh(PLACE), LEVEL.flatten(0, 1), 1e-4

    def prices(g: Tensor) -> Tensor:
        return transport_prices.lay_transports(torch.exp(g), z, level).prices()

    found = transport_prices.lay_transports(torch.exp(g), z, level).derivatives(torch.exp(g))
    unit = step * torch.eye(len(KNOTS), dtype=torch.float64)
    wanted = torch.stack([(prices(g + e) - prices(g - e)) / (2.0 * step) for e in unit], -1)
    assert float((found - wanted).abs().max()) < 0.02 * float(wanted.abs().max())
    assert float((found.flip(-1) - wanted).abs().max()) > 0.2 * float(wanted.abs().max())


@given(seed=seeds)
def test_isotonic_regression_is_that_of_the_textbook(seed: int) -> None:
    g = torch.Generator().manual_seed(seed)
    y = torch.randn(2, 9, 3, generator=g, dtype=torch.float64).cumsum(1)
    weight = torch.exp(3.0 * torch.randn(2, 9, 3, generator=g, dtype=torch.float64))
    found = star_order_projection.isotonic(y, weight)
    for b in range(2):
        for n in range(3):
            wanted = isotonic_regression(y[b, :, n].numpy(), weights=weight[b, :, n].numpy()).x
            np.testing.assert_allclose(found[b, :, n], wanted, rtol=0.0, atol=1e-8)
    assert float(found.diff(dim=1).min()) >= -1e-9


@given(seed=seeds)
def test_what_weighs_nothing_follows_and_moves_nobody(seed: int) -> None:
    g = torch.Generator().manual_seed(seed)
    y = torch.randn(1, 9, 3, generator=g, dtype=torch.float64).cumsum(1)
    weight = torch.exp(torch.randn(1, 9, 3, generator=g, dtype=torch.float64))
    there = torch.tensor([0, 1, 3, 6, 7])
    blind = torch.zeros_like(weight).index_copy(1, there, weight[:, there])
    found = star_order_projection.isotonic(y, blind)
    alone = star_order_projection.isotonic(y[:, there], weight[:, there])
    torch.testing.assert_close(found[:, there], alone, rtol=0.0, atol=1e-12)
    assert float(found.diff(dim=1).min()) >= 0.0
    heard = star_order_projection.isotonic(y, torch.where(blind > 0.0, blind, 1.0))
    assert not torch.equal(heard, found) or bool((y.diff(dim=1) >= 0.0).all())


def crashing() -> transport_prices.Smile:
    """Smiles of a market that may crash tomorrow: no star order has them."""
    k = torch.sinh(PLACE) * LEVEL
    mild = Transport(KNOTS, (LEVEL * torch.ones_like(KNOTS)).contiguous())
    fall, chance = 0.08, 0.03
    up = torch.tensor(-np.log((1.0 - chance * np.exp(-fall)) / (1.0 - chance)))
    calls = (1.0 - chance) * torch.exp(-up) * mild.call(k + up) + chance * np.exp(
        -fall
    ) * mild.call(k + fall)
    price = torch.where(k >= 0.0, calls, calls - 1.0 + torch.exp(k)).clamp(min=1e-30)
    total = black.implied_total_volatility(price, k).volatility
    u = torch.log(total / LEVEL)
    return smile(torch.where(torch.isfinite(u), u, 0.0).clamp(-2.0, 2.0))


def missed(made: transport_prices.Smile, miss: Tensor) -> float:
    weight = transport_prices.price_smile(made).trust.view_as(miss)
    loss = ROBUST_LOSS_MISS**2 * torch.log1p((miss / ROBUST_LOSS_MISS) ** 2)
    return float(((weight * loss).sum() / weight.sum()).sqrt())


def test_where_the_order_binds_slices_give_way_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """Near the best that the order allows, which one projection after free steps is far from."""
    made = crashing()
    _, found = star_order_projection.transport(made)
    monkeypatch.setattr(star_order_projection, "ADMM_STEPS", 60)
    monkeypatch.setattr(star_order_projection, "MAX_EXTRA_ROUNDS", 60)
    _, best = star_order_projection.transport(made)
    monkeypatch.setattr(star_order_projection, "ADMM_STEPS", 0)
    monkeypatch.setattr(star_order_projection, "MAX_EXTRA_ROUNDS", 4)
    _, once = star_order_projection.transport(made)
    assert missed(made, best) > 1e-3  # the order does bind
    assert missed(made, found) < 1.25 * missed(made, best)
    assert missed(made, once) > 1.5 * missed(made, best)


def test_slopes_that_fall_are_shared_out_by_what_is_known() -> None:
    """A short slice with fat tails: the order holds, and what is known better moves less."""
    u = volatility(skewed(0.3, 0.02))
    fat = u.clone()
    fat[0, 0] = volatility(skewed(0.9, 0.12))[0, 0] + 2.0  # slopes that the others do not reach
    flat, _ = star_order_projection.transport(smile(fat))
    assert float((flat + TOTAL[..., None]).diff(dim=1).min()) >= -1e-9
    doubted = smile(fat)
    doubt = doubted.doubt.clone()
    doubt[0, 0] = 0.0
    trusting, _ = star_order_projection.transport(doubted._replace(doubt=doubt))
    assert float((trusting - skewed(0.3, 0.02))[0, 1:].abs().mean()) < float(
        (flat - skewed(0.3, 0.02))[0, 1:].abs().mean()
    )


def test_a_slice_without_quotes_overrules_none() -> None:
    u = volatility(skewed(0.3, 0.02))
    fat = u.clone()
    fat[0, 3] = u[0, 3] - 2.0  # far below its neighbours, and nothing is quoted there
    blind = smile(fat)
    seen = blind.seen.clone()
    seen[0, 3] = False
    alone, _ = star_order_projection.transport(blind._replace(seen=seen))
    heard, _ = star_order_projection.transport(blind)
    clean, _ = star_order_projection.transport(smile(u))
    assert float((alone - clean)[0, :3].abs().max()) < 1e-3
    assert float((heard - clean)[0, :3].abs().max()) > 0.1


def test_what_is_missed_is_said() -> None:
    u = volatility(skewed(0.5, 0.05))
    _, little = star_order_projection.transport(smile(u))
    assert float(little[..., NEAR].abs().max()) < 5e-3
    bent = u + 0.05 * torch.sin(6.0 * PLACE)  # no law has this smile
    g, missed = star_order_projection.transport(smile(bent))
    left = (bent - volatility(g))[..., NEAR]
    assert float(left.abs().max()) > 0.02
    # to first order in what is missed
    assert float((missed[..., NEAR] - left).abs().max()) < 0.25 * float(left.abs().max())


def largest_step(way: Tensor) -> float:
    """Of log-slopes, between smiles along a way 1e-8 apart or less: zoomed in on the largest."""
    low, high = 0.0, 1.0
    for _ in range(6):
        part = torch.linspace(low, high, 33, dtype=torch.float64)
        u = volatility(skewed(0.5, 0.05)) + part[:, None, None] * way
        many = smile(u)._replace(total=TOTAL.expand(33, -1), seen=torch.ones(33, 4) > 0.0)
        steps = star_order_projection.transport(many)[0].diff(dim=0).abs().flatten(1).amax(1)
        at = int(steps.argmax())
        low, high = float(part[at]), float(part[at + 1])
    return float(steps[at])


def test_more_rounds_begin_to_count_with_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where they count fully at once, slopes jump."""
    way = 0.05 * torch.sin(6.0 * PLACE)  # ever farther from any law
    assert largest_step(way) < 1e-6
    monkeypatch.setattr(
        star_order_projection,
        "FULL_MISS_FOR_MORE_ROUNDS",
        MIN_MISS_FOR_MORE_ROUNDS * (1.0 + 1e-12),
    )
    assert largest_step(way) > 1e-2


def test_prices_begin_to_say_something_with_nothing() -> None:
    """From a hundred-millionth of the forward on, all from three: misses weigh that much."""
    times = torch.linspace(-0.3, 0.3, 2001, dtype=torch.float64)[:, None, None]
    u = (volatility(skewed(0.5, 0.05)) + times).flatten(0, 1)[:, None]  # one slice each
    total = TOTAL.repeat(2001, 1).view(-1, 1)
    many = smile(u)._replace(total=total, seen=torch.ones_like(total) > 0.0)
    k = torch.sinh(PLACE) * torch.exp(total)[..., None]
    price = black.otm(k, torch.exp(u + total[..., None]))
    g = torch.zeros(len(u), 1, len(KNOTS), dtype=torch.float64)
    says = star_order_projection.missed(g, many)[1]
    wanted = torch.from_numpy(np.interp(price, [1e-8, 3e-8], [0.0, 1.0]))
    torch.testing.assert_close(says, wanted, rtol=0.0, atol=1e-9)
    assert int(((says > 0.1) & (says < 0.9)).sum()) > 100
    assert float((says - (price > 1e-8).double()).abs().max()) > 0.9  # not all or nothing
    trust = transport_prices.price_smile(many).trust.view_as(says)
    torch.testing.assert_close(trust, says / (np.exp(-12.0) + MIN_RELATIVE_IV_ERROR**2))
