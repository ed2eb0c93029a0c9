"""What the decoder can represent: Heston with one component, heavy jumps with two."""

from __future__ import annotations

import numpy as np
import pytest

from arbiter.surface import Surface
from direct import Problem, represent
from reference import BATES, DAYS, HESTON, Model

KNOTS = np.linspace(-5.5, 4.5, 31)


def fitted(model: Model, components: int, steps: int) -> tuple[Surface, float]:
    """The surface found from 14 × 33 noiseless volatilities, and its RMSE in basis points."""
    T, k = model.grid(33)
    iv = model.iv(k, DAYS)
    slopes, weights, _ = represent(Problem(KNOTS, T, k, iv, components), steps)
    surface = Surface.from_slopes(KNOTS, T, slopes, weights=weights)
    error = surface.iv(k, T[:, None]) - iv
    return surface, 1e4 * float(np.sqrt(np.mean(error**2)))


def test_heston_is_represented() -> None:
    """Promised: 0.3 bp. Measured: 0.008 bp after 20 steps."""
    surface, rmse = fitted(HESTON, components=1, steps=20)
    assert rmse < 0.3
    assert surface.certificate().passed


def test_heavy_jumps_are_represented_by_two_components() -> None:
    """Promised: 2.5 bp. Measured: 0.43 bp after 25 steps."""
    surface, rmse = fitted(BATES, components=2, steps=25)
    assert rmse < 2.5
    assert surface.certificate().passed


def test_heavy_jumps_need_the_second_component() -> None:
    """Negative control: with one component the star order costs more than two would."""
    _, rmse = fitted(BATES, components=1, steps=40)
    assert 3.0 < rmse < 10.0


def test_reference_prices_are_right() -> None:
    """QuantLib's Heston engine at small σ is Black with the average variance."""
    model = Model(v0=0.04, kappa=1.5, theta=0.05, sigma=5e-3, rho=0.0)
    T, k = model.grid(5)
    expected = model.deviation(T)[:, None] / np.sqrt(T)[:, None]
    np.testing.assert_allclose(model.iv(k, DAYS), np.broadcast_to(expected, k.shape), rtol=1e-4)
    with pytest.raises(AssertionError):
        np.testing.assert_allclose(HESTON.iv(k, DAYS), np.full(k.shape, 0.2), rtol=1e-3)
