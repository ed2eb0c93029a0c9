"""The fit's fast prices and derivatives agree with the decoder, which has every digit."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from arbiter.conventions import Array
from arbiter.pricing.knots import DEFAULT_KNOTS
from arbiter.pricing.price_derivatives import KnotQuadrature, OtmPricer
from arbiter.pricing.transport import Transport
from counts import count

FITTED = np.array(DEFAULT_KNOTS)  # no segment is cut
COARSE = np.array([-4.0, -1.0, 0.5, 1.0, 3.0])  # every segment is cut, and zero is no knot
KINDS = ["index", "flat", "steep"]


def slopes(kind: str, knots: Array, rng: np.random.Generator, count: int = 4) -> Array:
    """``(count, n)`` slopes: skewed like an index, Black-Scholes, or between 0.05 and 3."""
    if kind == "flat":
        return np.broadcast_to(rng.uniform(0.02, 1.5, (count, 1)), (count, knots.size)).copy()
    if kind == "steep":
        return np.exp(rng.uniform(np.log(0.05), np.log(3.0), (count, knots.size)))
    tilt = rng.uniform(0.1, 0.5, (count, 1))
    level = rng.uniform(0.02, 0.3, (count, 1))
    wiggle = rng.uniform(-0.1, 0.1, (count, knots.size))
    return np.asarray(level * np.exp(-tilt * knots + wiggle))


def setting(
    knots: Array, table: Array, far: float = 7.0
) -> tuple[OtmPricer, Array, NDArray[np.int64]]:
    """Strikes at Gaussian coordinates from −far to far: beyond the end knots on both sides."""
    line = Transport(torch.from_numpy(knots), torch.from_numpy(table))
    z = torch.linspace(-far, far, 29, dtype=torch.float64).expand(table.shape[0], -1)
    k = line.log_strike(z.contiguous()).numpy()
    slice_of = np.repeat(np.arange(table.shape[0]), k.shape[1])
    return OtmPricer(KnotQuadrature.from_knots(knots), slice_of, k.ravel()), k, slice_of


def decoded(knots: Array, table: Array, k: Array) -> Array:
    with torch.no_grad():
        law = Transport(torch.from_numpy(knots), torch.from_numpy(table))
        return np.asarray(law.otm(torch.from_numpy(k)).numpy())


def gap(knots: Array, table: Array) -> float:
    """Largest difference to the decoder, relative, down to prices of 1e-9 of the forward."""
    kernel, k, _ = setting(knots, table)
    ours = kernel.price_quotes(kernel.integrate_slices(table)).price
    theirs = decoded(knots, table, k).ravel()
    return float(np.max(np.abs(ours - theirs) / np.maximum(theirs, 1e-9)))


@pytest.mark.parametrize("knots", [FITTED, COARSE], ids=["fitted", "coarse"])
@pytest.mark.parametrize("kind", KINDS)
def test_prices_are_the_decoders(kind: str, knots: Array, rng: np.random.Generator) -> None:
    for _ in range(count(full=200, reduced=5)):
        assert gap(knots, slopes(kind, knots, rng)) < 1e-6


@pytest.mark.parametrize("knots", [FITTED, COARSE], ids=["fitted", "coarse"])
def test_prices_that_are_not_tiny_have_ten_digits(knots: Array, rng: np.random.Generator) -> None:
    for kind in ("index", "flat"):
        for _ in range(count(full=200, reduced=5)):
            table = slopes(kind, knots, rng)
            kernel, k, _ = setting(knots, table, far=3.0)
            ours = kernel.price_quotes(kernel.integrate_slices(table)).price
            theirs = decoded(knots, table, k).ravel()
            seen = theirs > 1e-5
            assert np.max(np.abs(ours - theirs)[seen] / theirs[seen]) < 1e-10


def test_the_comparison_sees_one_slope_that_is_slightly_off(rng: np.random.Generator) -> None:
    table = slopes("index", FITTED, rng)
    kernel, k, _ = setting(FITTED, table)
    off = table.copy()
    off[2, 10] *= 1.0 + 1e-6
    theirs = decoded(FITTED, table, k)
    ours = kernel.price_quotes(kernel.integrate_slices(off)).price.reshape(theirs.shape)
    worst = np.max(np.abs(ours - theirs) / np.maximum(theirs, 1e-9), axis=1)
    assert worst[2] > 1e-8
    assert np.delete(worst, 2).max() < 1e-9


def derivatives(knots: Array, table: Array, k: Array) -> Array:
    """``(m, n)`` derivatives of the decoder's prices by the slopes of their own slice."""
    b = torch.from_numpy(table).requires_grad_()
    price = Transport(torch.from_numpy(knots), b).otm(torch.from_numpy(k))
    rows = [torch.autograd.grad(p, b, retain_graph=True)[0] for p in price.ravel()]
    return np.stack([row.sum(0).numpy() for row in rows])


@pytest.mark.parametrize("knots", [FITTED, COARSE], ids=["fitted", "coarse"])
@pytest.mark.parametrize("kind", KINDS)
def test_derivatives_are_the_decoders(kind: str, knots: Array, rng: np.random.Generator) -> None:
    for _ in range(count(full=20, reduced=1)):
        table = slopes(kind, knots, rng, count=2)
        kernel, k, slice_of = setting(knots, table)
        slices = kernel.integrate_slices(table)
        scale = rng.uniform(0.5, 2.0, k.size)
        ours = kernel.jacobian(slices, kernel.price_quotes(slices), scale)
        theirs = scale[:, None] * derivatives(knots, table, k)
        assert np.max(np.abs(ours - theirs)) < 1e-8
        # the scaled rows of another slice are not those of this one
        assert slice_of.size == len(ours)
        assert np.max(np.abs(np.roll(ours, 29, axis=0) - theirs)) > 1e-4 or kind == "flat"


def test_derivatives_are_central_differences(rng: np.random.Generator) -> None:
    table = slopes("index", FITTED, rng, count=3)
    kernel, k, slice_of = setting(FITTED, table, far=4.0)
    slices = kernel.integrate_slices(table)
    ours = kernel.jacobian(slices, kernel.price_quotes(slices), np.ones(k.size))
    differences = np.empty_like(ours)
    for i in range(FITTED.size):
        step = np.zeros_like(table)
        step[:, i] = 1e-4 * table[:, i]
        up, down = (
            kernel.price_quotes(kernel.integrate_slices(table + s)).price for s in (step, -step)
        )
        differences[:, i] = (up - down) / (2.0 * step[slice_of, i])
    assert np.max(np.abs(ours - differences)) < 1e-7
    # a row of derivatives that is off by a thousandth would be seen
    assert np.max(np.abs(1.001 * ours - differences)) > 1e-5
