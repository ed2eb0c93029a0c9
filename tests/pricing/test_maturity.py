"""Between listed maturities: nothing falls, nothing crosses, nothing jumps.

That such slopes exclude calendar arbitrage in prices is in `test_no_arbitrage.py`.
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from arbiter.conventions import Array
from arbiter.pricing import maturity
from arbiter.pricing.maturity import interpolate_slopes, slopes_at, weights_at

LISTED = np.array([0.02, 0.1, 0.25, 0.3, 1.0])
DENSE = np.linspace(0.01, 1.8, 600) ** 2
ROUNDING = 1e-14


def nested(seed: int, components: int, flat_share: float) -> tuple[Array, Array]:
    """Random slopes (J, L, n) and weights (J, L) that meet the conditions, ties included."""
    rng = np.random.default_rng(seed)
    raw = rng.random((components, 5, 7))
    steps = np.where(rng.random(raw.shape) < flat_share, 0.0, raw)
    slopes = np.maximum.accumulate(np.maximum.accumulate(0.01 + steps, axis=1), axis=0)
    shares = np.sort(np.sort(rng.random((components - 1, 5)), axis=1), axis=0)[::-1]
    survival = np.concatenate([np.ones((1, 5)), shares, np.zeros((1, 5))])
    return slopes, survival[:-1] - survival[1:]


@given(seed=st.integers(0, 10**6), components=st.integers(1, 4), flat=st.floats(0.0, 0.9))
def test_conditions_hold_at_every_maturity(seed: int, components: int, flat: float) -> None:
    slopes, weights = nested(seed, components, flat)
    b, w = slopes_at(LISTED, slopes, DENSE), weights_at(LISTED, weights, DENSE)
    assert (b > 0.0).all()
    assert np.diff(b, axis=-2).min() >= -ROUNDING
    assert (w >= -ROUNDING).all()
    assert np.abs(w.sum(axis=0) - 1.0).max() < ROUNDING
    survival = w[::-1].cumsum(axis=0)
    assert np.diff(survival, axis=-1).min() >= -ROUNDING
    if components > 1:
        assert np.diff(b, axis=0).min() >= -ROUNDING


@given(seed=st.integers(0, 10**6))
def test_listed_maturities_are_reproduced(seed: int) -> None:
    slopes, weights = nested(seed, 2, 0.3)
    np.testing.assert_allclose(slopes_at(LISTED, slopes, LISTED), slopes, rtol=1e-15)
    np.testing.assert_allclose(weights_at(LISTED, weights, LISTED), weights, rtol=0.0, atol=1e-15)


def test_constant_volatility_stays_constant() -> None:
    slopes = 0.2 * np.sqrt(LISTED)[None, :, None] * np.ones(3)
    volatility = slopes_at(LISTED, slopes, DENSE) / np.sqrt(DENSE)[:, None]
    np.testing.assert_allclose(volatility, 0.2, rtol=1e-14)


def test_one_maturity_scales_with_the_root_of_time() -> None:
    slopes = np.array([[[0.3, 0.1]]])
    at = slopes_at(LISTED[:1], slopes, 4.0 * LISTED[:1])
    np.testing.assert_allclose(at, 2.0 * slopes, rtol=1e-15)


def test_close_late_maturities_do_not_explode() -> None:
    """A jump over three days says nothing about years to come."""
    listed = np.array([0.5, 1.0, 1.003])
    slopes = np.array([0.14, 0.20, 0.21])[None, :, None]
    far = np.array([1.5, 10.0, 1000.0])
    volatility = slopes_at(listed, slopes, far)[0, :, 0] / np.sqrt(far)
    assert (volatility < 1.25 * 0.21).all()
    assert (volatility > 0.2).all()


def test_components_that_touch_keep_their_rate() -> None:
    """Equal up to a maturity and apart after it: the lower component must not notice."""
    base = 0.2 * np.sqrt(LISTED)
    upper = base + np.array([0.0, 0.0, 0.0, 0.05, 0.2])
    both = np.stack([base, upper])[..., None]
    alone = slopes_at(LISTED, both[:1], DENSE)
    together = slopes_at(LISTED, both, DENSE)
    inside = LISTED[2] >= DENSE
    np.testing.assert_allclose(together[0, inside], alone[0, inside], rtol=0.02)
    assert np.diff(together, axis=0).min() >= -ROUNDING


def test_rates_do_not_jump_at_listed_maturities() -> None:
    slopes, _ = nested(5, 2, 0.0)
    eps, cubics = 1e-9, interpolate_slopes(LISTED, slopes)
    before, after = cubics.rates_at(LISTED * (1 - eps)), cubics.rates_at(LISTED * (1 + eps))
    np.testing.assert_allclose(before, after, rtol=1e-6, atol=1e-6)


def test_rates_are_differences_of_slopes() -> None:
    cubics = interpolate_slopes(LISTED, nested(5, 2, 0.3)[0])
    step = 1e-6 * DENSE
    differences = (cubics.at(DENSE + step) - cubics.at(DENSE - step)) / (2.0 * step)[:, None]
    away = np.abs(DENSE[:, None] / LISTED - 1.0).min(axis=1) > 2e-6
    rates = cubics.rates_at(DENSE)
    np.testing.assert_allclose(rates[:, away], differences[:, away], rtol=1e-6, atol=1e-7)
    assert np.abs(1.001 * rates - differences)[:, away].max() > 1e-4


def test_straight_lines_would_jump() -> None:
    """Negative control for the test above: linear interpolation in √T has a kink."""
    u = np.sqrt(LISTED)
    slopes, _ = nested(5, 1, 0.0)
    secants = np.diff(slopes[0], axis=0) / np.diff(u)[:, None]
    assert np.abs(np.diff(secants, axis=0)).max() > 0.1


def test_unordered_tangents_would_cross() -> None:
    """Negative control: plain monotone cubics of ordered components do cross."""
    crossed = False
    for seed in range(200):
        slopes, _ = nested(seed, 3, 0.4)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(maturity, "limit_crossing_tangents", lambda u, values, tangent: tangent)
            plain = interpolate_slopes(LISTED, slopes).changes_at(DENSE)
        crossed |= bool(np.diff(plain, axis=0).min() < -1e-6)
    assert crossed
