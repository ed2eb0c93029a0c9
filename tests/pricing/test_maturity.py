"""Between listed maturities: nothing falls, nothing crosses, nothing jumps.

That such slopes exclude calendar arbitrage in prices is in `test_no_arbitrage.py`.
"""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from arbiter.pricing import maturity
from arbiter.pricing.maturity import slopes_at, weights_at

LISTED = torch.tensor([0.02, 0.1, 0.25, 0.3, 1.0], dtype=torch.float64)
DENSE = torch.linspace(0.01, 1.8, 600, dtype=torch.float64) ** 2
ROUNDING = 1e-14


def nested(seed: int, components: int, flat_share: float) -> tuple[Tensor, Tensor]:
    """Random slopes (J, L, n) and weights (J, L) that meet the conditions, ties included."""
    generator = torch.Generator().manual_seed(seed)
    raw = torch.rand(components, 5, 7, generator=generator, dtype=torch.float64)
    ties = torch.rand(raw.shape, generator=generator, dtype=torch.float64) < flat_share
    steps = torch.where(ties, 0.0, raw)
    slopes = torch.cummax(torch.cummax(0.01 + steps, 1).values, 0).values
    shares = torch.rand(components - 1, 5, generator=generator, dtype=torch.float64)
    shares = torch.sort(torch.sort(shares, 1).values, 0, descending=True).values
    ones, zeros = torch.ones(1, 5).double(), torch.zeros(1, 5).double()
    survival = torch.cat([ones, shares, zeros])
    return slopes, survival[:-1] - survival[1:]


@given(seed=st.integers(0, 10**6), components=st.integers(1, 4), flat=st.floats(0.0, 0.9))
def test_conditions_hold_at_every_maturity(seed: int, components: int, flat: float) -> None:
    slopes, weights = nested(seed, components, flat)
    b, w = slopes_at(LISTED, slopes, DENSE), weights_at(LISTED, weights, DENSE)
    assert (b > 0.0).all()
    assert torch.diff(b, dim=-2).min() >= -ROUNDING
    assert (w >= -ROUNDING).all()
    assert (w.sum(0) - 1.0).abs().max() < ROUNDING
    survival = w.flip(0).cumsum(0)
    assert torch.diff(survival, dim=-1).min() >= -ROUNDING
    if components > 1:
        assert torch.diff(b, dim=0).min() >= -ROUNDING


@given(seed=st.integers(0, 10**6))
def test_listed_maturities_are_reproduced(seed: int) -> None:
    slopes, weights = nested(seed, 2, 0.3)
    torch.testing.assert_close(slopes_at(LISTED, slopes, LISTED), slopes, rtol=1e-15, atol=0.0)
    torch.testing.assert_close(weights_at(LISTED, weights, LISTED), weights, rtol=0.0, atol=1e-15)


def test_constant_volatility_stays_constant() -> None:
    slopes = 0.2 * torch.sqrt(LISTED)[None, :, None].expand(1, 5, 3)
    volatility = slopes_at(LISTED, slopes, DENSE) / torch.sqrt(DENSE)[:, None]
    torch.testing.assert_close(volatility, torch.full_like(volatility, 0.2), rtol=1e-14, atol=0)


def test_one_maturity_scales_with_the_root_of_time() -> None:
    slopes = torch.tensor([[[0.3, 0.1]]], dtype=torch.float64)
    at = slopes_at(LISTED[:1], slopes, 4.0 * LISTED[:1])
    torch.testing.assert_close(at, 2.0 * slopes, rtol=1e-15, atol=0.0)


def test_close_late_maturities_do_not_explode() -> None:
    """A jump over three days says nothing about years to come."""
    listed = torch.tensor([0.5, 1.0, 1.003], dtype=torch.float64)
    slopes = torch.tensor([0.14, 0.20, 0.21], dtype=torch.float64)[None, :, None]
    far = torch.tensor([1.5, 10.0, 1000.0], dtype=torch.float64)
    volatility = slopes_at(listed, slopes, far)[0, :, 0] / torch.sqrt(far)
    assert (volatility < 1.25 * 0.21).all()
    assert (volatility > 0.2).all()


def test_components_that_touch_keep_their_rate() -> None:
    """Equal up to a maturity and apart after it: the lower component must not notice."""
    base = 0.2 * torch.sqrt(LISTED)
    upper = base + torch.tensor([0.0, 0.0, 0.0, 0.05, 0.2], dtype=torch.float64)
    both = torch.stack([base, upper])[..., None]
    alone = slopes_at(LISTED, both[:1], DENSE)
    together = slopes_at(LISTED, both, DENSE)
    inside = LISTED[2] >= DENSE
    torch.testing.assert_close(together[0, inside], alone[0, inside], rtol=0.02, atol=0.0)
    assert torch.diff(together, dim=0).min() >= -ROUNDING


def test_rates_do_not_jump_at_listed_maturities() -> None:
    slopes, _ = nested(5, 2, 0.0)
    eps = 1e-9

    def rate(at: Tensor) -> Tensor:
        ones = torch.ones_like(at)
        moved: Tensor = torch.func.jvp(lambda t: slopes_at(LISTED, slopes, t), (at,), (ones,))[1]
        return moved

    before, after = rate(LISTED * (1 - eps)), rate(LISTED * (1 + eps))
    torch.testing.assert_close(before, after, rtol=1e-6, atol=1e-6)


def test_straight_lines_would_jump() -> None:
    """Negative control for the test above: linear interpolation in √T has a kink."""
    u = torch.sqrt(LISTED)
    slopes, _ = nested(5, 1, 0.0)
    secants = torch.diff(slopes[0], dim=0) / torch.diff(u)[:, None]
    assert torch.diff(secants, dim=0).abs().max() > 0.1


def test_unordered_tangents_would_cross() -> None:
    """Negative control: plain monotone cubics of ordered components do cross."""
    crossed = False
    for seed in range(200):
        slopes, _ = nested(seed, 3, 0.4)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(maturity, "limit_crossing_tangents", lambda u, values, tangent: tangent)
            plain = slopes_at(LISTED, slopes, DENSE)
        crossed |= bool(torch.diff(plain, dim=0).min() < -1e-6)
    assert crossed
