"""The proposal: its prices are integrals over its density, and the decoder moves it little."""

from __future__ import annotations

import numpy as np
import pytest

from arbiter.conventions import Array
from arbiter.operators.law.proposal import (
    Law,
    decode,
    integrate_laws,
    martingale_defect,
    price_law,
    prior_law,
)
from arbiter.operators.slope_head import KNOTS
from arbiter.pricing.transport import Transport
from counts import count

NODES, WEIGHTS = np.polynomial.legendre.leggauss(40)
DEVIATIONS = np.array([-3.0, -1.2, -0.4, 0.0, 0.7, 1.5])


def random_law(seed: int, maturities: int = 4) -> tuple[Law, Array]:
    """Rough laws that miss the forward and the order, and their ``log(σ√T)``."""
    rng = np.random.default_rng(seed)
    ratio = rng.normal(0.0, 0.12, (1, maturities, len(KNOTS))).cumsum(-1)
    total = np.log(rng.uniform(0.03, 0.5, (1, maturities)))
    shift = rng.normal(0.0, 0.05, total.shape) * np.exp(total)
    return Law(ratio - ratio.mean(-1, keepdims=True), shift), total


def integrate_payoffs(law: Law, total: Array, at: int, k: Array) -> Array:
    """``∫ φ w dκ`` of out-of-the-money options over the density, piece by piece."""
    transport = Transport(np.array(KNOTS), law.slopes(total)[0, at])
    log_mean = law.shift[0, at] + float(transport.log_mean)
    pieces = np.unique(np.r_[np.linspace(-14.0, 14.0, 1200), KNOTS])
    ends = np.asarray(transport.log_strike(pieces)) + log_mean
    found = []
    for strike in k:
        side = ends[ends >= strike] if strike >= 0.0 else ends[ends <= strike]
        cut = np.unique(np.r_[side, strike])
        half, middle = 0.5 * np.diff(cut), 0.5 * (cut[1:] + cut[:-1])
        place = middle[:, None] + half[:, None] * NODES
        # w per unit of κ is that of the normalised law at strikes moved by the mean
        w = np.asarray(transport.density((place - log_mean).ravel())).reshape(place.shape)
        w = w * np.exp(-log_mean)
        paid = np.abs(np.exp(place) - np.exp(strike)) * np.exp(place)  # dκ = κ dk
        found.append(float(((w * paid) @ WEIGHTS) @ half))
    return np.array(found)


@pytest.mark.parametrize("seed", range(count(full=20, reduced=3)))
def test_prices_are_integrals_over_the_density(seed: int) -> None:
    law, total = random_law(seed)
    k = DEVIATIONS * np.exp(total)[0][:, None]
    row = np.repeat(np.arange(len(k)), DEVIATIONS.size)
    slices = integrate_laws(law.log_ratio, total)
    price = price_law(law, slices, row, k.ravel()).price.reshape(k.shape)
    moved = Law(law.log_ratio, law.shift + 1e-6)  # the control: another law's prices
    for at, strikes in enumerate(k):
        np.testing.assert_allclose(
            integrate_payoffs(law, total, at, strikes), price[at], rtol=0.0, atol=1e-10
        )
        assert np.abs(integrate_payoffs(moved, total, at, strikes) - price[at]).max() > 1e-10


def test_the_prior_has_mean_one_and_a_shift_is_its_defect() -> None:
    law, total = random_law(7)
    slices = integrate_laws(law.log_ratio, total)
    own = prior_law(law.log_ratio, slices)
    k, row = np.zeros(total.size), np.arange(total.size)
    assert np.abs(price_law(own, slices, row, k).log_mean).max() < 1e-12
    off = Law(own.log_ratio, own.shift + 1e-3 * np.exp(total))
    defect = martingale_defect(price_law(off, slices, row, k).log_mean, total)
    np.testing.assert_allclose(defect, 1e-3, rtol=1e-3)


@pytest.mark.parametrize("seed", range(count(full=50, reduced=5)))
def test_the_decoder_orders_slopes_and_widens_no_distance(seed: int) -> None:
    law, total = random_law(seed, maturities=6)
    rng = np.random.default_rng([seed, 1])
    seen = rng.uniform(size=total.shape) < 0.8
    seen[0, 0] = True
    slopes = decode(law, total, seen)
    assert (np.diff(slopes, axis=1) >= 0.0).all()
    assert (np.diff(law.slopes(total), axis=1) < 0.0).any()  # the control: it had work
    again = Law(np.log(slopes) - total[..., None], law.shift)
    np.testing.assert_allclose(decode(again, total, seen), slopes, rtol=1e-12)
    nudge = 1e-3 * rng.uniform(-1.0, 1.0, law.log_ratio.shape)
    near = decode(Law(law.log_ratio + nudge, law.shift), total, seen)
    assert np.abs(np.log(near / slopes)).max() <= 1e-3 * (1.0 + 1e-9)
