"""Slopes of a smile: where the network starts."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from arbiter_lab.differentiable.operators import slope_head
from arbiter_lab.differentiable.operators.network.measure_gate import places
from arbiter_lab.differentiable.operators.prior.smile_to_slopes import (
    coordinates,
    integrals,
    log_slopes,
)
from arbiter_lab.differentiable.pricing import black, normal
from arbiter_lab.differentiable.pricing.transport import Transport

KNOTS = torch.tensor(slope_head.KNOTS, dtype=torch.float64)
PLACE = places(44, (3.7, 2.4)).double()
TOTAL = torch.log(torch.tensor([0.02, 0.06, 0.15, 0.4], dtype=torch.float64))
NEAR = torch.sinh(PLACE).abs() < 3.0


def shapes(skew: float, curve: float) -> Tensor:
    """``(4, n)`` log-slopes of smooth laws over ``σ√T``."""
    x = KNOTS / 2.0
    g = -skew * torch.tanh(x) + curve * x**2 / (1.0 + 0.3 * x**2)
    return g.expand(len(TOTAL), -1)


def smile(g: Tensor) -> Tensor:
    """``(4, H)`` what a transport's volatilities are, ``log(iv/σ)`` at the places."""
    level = torch.exp(TOTAL)[:, None]
    k = torch.sinh(PLACE) * level
    law = Transport(KNOTS, torch.exp(g) * level)
    return torch.log(black.implied_total_volatility(law.otm(k), k).volatility / level)


def read_off(u: Tensor) -> Tensor:
    """To first order, ``g = u + z ∂u/∂z`` at z equal to the knot."""
    steep = torch.gradient(u, spacing=float(PLACE[1] - PLACE[0]), dim=-1)[0]
    g = u + torch.tanh(PLACE) * steep
    at = (torch.asinh(KNOTS) - PLACE[0]) / (PLACE[1] - PLACE[0])
    left = at.clamp(0, len(PLACE) - 1.001).long()
    return torch.lerp(g[:, left], g[:, left + 1], at - left)


def off(start: Tensor, u: Tensor) -> float:
    """Largest error of volatility, relative, near the money."""
    return float((smile(start) - u)[:, NEAR].abs().max())


def test_a_flat_smile_has_flat_slopes() -> None:
    u = torch.full((4, len(PLACE)), 0.3, dtype=torch.float64)
    torch.testing.assert_close(
        log_slopes(u, PLACE, TOTAL), torch.full((4, len(KNOTS)), 0.3).double(), rtol=0, atol=2e-3
    )


@given(skew=st.floats(-0.2, 0.9), curve=st.floats(0.0, 0.12))
def test_the_smile_of_a_law_gives_its_slopes_back(skew: float, curve: float) -> None:
    """To half a percent of a volatility, and better than to first order where that is wrong."""
    u = smile(shapes(skew, curve))
    found = off(log_slopes(u, PLACE, TOTAL), u)
    assert found < 5e-3
    assert skew < 0.4 or found < 0.2 * off(read_off(u), u)


def test_coordinates_are_gaussian_quantiles_of_the_law() -> None:
    g = shapes(0.5, 0.05)
    level = torch.exp(TOTAL)[:, None]
    exact = Transport(KNOTS, torch.exp(g) * level).z(torch.sinh(PLACE) * level)
    found = coordinates(smile(g), PLACE, TOTAL)
    assert float((found - exact)[:, NEAR].abs().max()) < 0.02
    # without the smile's own slope they are those of lognormal laws, which are others
    flat = torch.sinh(PLACE) / torch.exp(smile(g)) + 0.5 * level * torch.exp(smile(g))
    assert float((flat - exact)[:, NEAR].abs().max()) > 0.1


def test_integrals_of_hats() -> None:
    x = torch.linspace(-7.0, 7.0, 57, dtype=torch.float64)
    fine = torch.linspace(-8.0, 7.0, 60_001, dtype=torch.float64)
    away = (fine[:, None] - KNOTS) / (KNOTS[1] - KNOTS[0])
    hats = (1.0 - away.abs()).clamp(min=0.0)
    hats[:, 0] = torch.where(away[:, 0] < 0.0, 1.0, hats[:, 0])
    hats[:, -1] = torch.where(away[:, -1] > 0.0, 1.0, hats[:, -1])
    sums = torch.cumulative_trapezoid(hats, fine, dim=0)
    at = torch.searchsorted(fine, x).clamp(1) - 1
    apart = integrals(x, KNOTS) - sums[at]
    assert float((apart - apart[:1]).abs().max()) < 1e-3  # but for a constant


@given(seed=st.integers(0, 2**31), size=st.floats(0.0, 5.0))
def test_any_smile_gives_finite_slopes_and_rising_coordinates(seed: int, size: float) -> None:
    """Arbitraged ones too: most of these are."""
    g = torch.Generator().manual_seed(seed)
    u = size * torch.randn(4, len(PLACE), generator=g, dtype=torch.float64)
    total = 1.5 * torch.randn(4, generator=g, dtype=torch.float64) - 2.5
    assert bool((coordinates(u.clamp(-2.0, 2.0), PLACE, total).diff(dim=-1) > 0.0).all())
    found = log_slopes(u, PLACE, total)
    assert bool(torch.isfinite(found).all())
    slopes = slope_head.slopes(found[None], total[None])
    assert bool(torch.isfinite(Transport(KNOTS, slopes).otm(torch.zeros(1, 4, 1).double())).all())


def test_without_the_floors_an_arbitraged_smile_has_falling_coordinates() -> None:
    u = torch.zeros(1, len(PLACE), dtype=torch.float64)
    u[0, 20:24] = torch.tensor([0.6, -0.6, 0.6, -0.6])
    level = torch.exp(u)
    y = torch.sinh(PLACE) / level
    steep = torch.gradient(u, spacing=float(PLACE[1] - PLACE[0]), dim=-1)[0] / torch.cosh(PLACE)
    below = normal.cdf(y) + normal.pdf(y) * level * steep
    assert float(below.diff(dim=-1).min()) < 0.0
    assert float(coordinates(u, PLACE, TOTAL[:1]).diff(dim=-1).min()) > 0.0
