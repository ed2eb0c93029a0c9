"""Sums and products of the Fourier integrals: to rounding, in one order."""

from __future__ import annotations

import numpy as np
import pytest

from arbiter.compiled import compiled
from arbiter.conventions import Array
from arbiter.models.exact_prices import Complex
from arbiter.models.fourier_sums import rotate, sum_shared_waves, sum_waves
from arbiter.models.matrix_product import multiply, multiply_real_part


@compiled
def fill_rotations(angles: Array, cosine: Array, sine: Array) -> None:
    for i in range(angles.size):
        cosine[i], sine[i] = rotate(angles[i])


@pytest.mark.parametrize("size", [1e-3, 1.0, 1e3, 1e6])
def test_rotations_are_cosine_and_sine(size: float, rng: np.random.Generator) -> None:
    near = 0.5 * np.pi * np.arange(-8, 9)
    angles = np.concatenate([[0.0, -0.0], near, size * rng.uniform(-1.0, 1.0, 20_000)])
    cosine, sine = np.empty((2, angles.size))
    fill_rotations(angles, cosine, sine)
    assert np.abs(cosine - np.cos(angles)).max() < 3e-16
    assert np.abs(sine - np.sin(angles)).max() < 3e-16
    fill_rotations(np.nextafter(angles, np.inf) + 1e-15, cosine, sine)  # the control
    assert np.abs(sine - np.sin(angles)).max() > 3e-16


def test_angles_that_are_no_numbers_stay_so() -> None:
    cosine, sine = np.empty((2, 2))
    fill_rotations(np.array([np.nan, np.inf]), cosine, sine)
    assert np.isnan([cosine, sine]).all()


def random_waves(rng: np.random.Generator, days: int, nodes: int) -> tuple[Complex, Complex]:
    size, turn = rng.uniform(-3.0, 1.0, (days, nodes)), rng.uniform(-400.0, 400.0, (days, nodes))
    xi = rng.uniform(0.0, 300.0, nodes) - 1j * rng.uniform(0.0, 3.0, nodes)
    return np.asarray(size + 1j * turn), np.asarray(xi)


@pytest.mark.parametrize("nodes", [1, 2, 3, 4, 5, 235])
def test_sums_are_those_of_complex_exponentials(nodes: int, rng: np.random.Generator) -> None:
    days, strikes = 3, 7
    scaled, xi = random_waves(rng, days, nodes + 2)
    xi = xi[:nodes]  # the last nodes are left out
    points = rng.uniform(0.0, 1.0, strikes)
    wanted = np.exp(scaled[:, None, :nodes] - 1j * points[:, None] * xi).real.sum(-1)
    shared, apart = np.empty((2, days, strikes))
    sum_shared_waves(scaled, xi, points, shared)
    sum_waves(scaled, xi, np.tile(points, (days, 1)), apart)
    for found in (shared, apart):
        assert np.abs(found - wanted).max() < 1e-13 * nodes
    sum_waves(scaled, xi, np.tile(points + 1e-9, (days, 1)), apart)  # the control
    assert np.abs(apart - wanted).max() > 1e-13 * nodes


@pytest.mark.parametrize("terms", [1, 3, 4, 9, 20])
def test_products_are_those_of_matrices(terms: int, rng: np.random.Generator) -> None:
    left, right = rng.standard_normal((6, terms)), rng.standard_normal((terms, 11))
    assert np.abs(multiply(left, right) - left @ right).max() < 1e-14
    other = rng.standard_normal((6, terms)) + 1j * left
    wanted = (other @ (right + 2j * right)).real
    assert np.abs(multiply_real_part(other, right + 2j * right) - wanted).max() < 1e-13
    # one column does not depend on the others, nor on how arrays lie in memory
    left.setflags(write=False)
    assert (multiply(left, right[:, 3:4])[:, 0] == multiply(left, right)[:, 3]).all()
    assert (multiply(np.asfortranarray(left), right) == multiply(left, right)).all()
