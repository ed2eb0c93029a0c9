"""Banded matrices against dense linear algebra."""

from __future__ import annotations

import numpy as np
import pytest

from arbiter.conventions import Array
from arbiter.fitting import banded
from dense_matrices import write_out

SIZES = [(1, 1), (5, 1), (7, 3), (40, 12), (61, 34), (9, 9)]


def random_band(rng: np.random.Generator, size: int, width: int) -> Array:
    """A positive definite band; entries past the last row are zero, as everywhere."""
    band = 0.3 * rng.normal(size=(size, width))
    band[:, 0] = 2.0 + width
    for j in range(size):
        band[j, size - j :] = 0.0
    return band


@pytest.mark.parametrize(("size", "width"), SIZES)
def test_banded_algebra_is_dense_algebra(size: int, width: int, rng: np.random.Generator) -> None:
    band = random_band(rng, size, width)
    other = random_band(rng, size, width)
    full, factor = write_out(band), banded.factorise(band)
    x, X = rng.normal(size=size), rng.normal(size=(size, 5))
    assert np.allclose(banded.solve(factor, x), np.linalg.solve(full, x), atol=1e-13)
    assert np.allclose(banded.solve(factor, X), np.linalg.solve(full, X), atol=1e-13)
    assert np.allclose(banded.multiply(band, x), full @ x, atol=1e-12)
    assert banded.inner_product(band, other) == pytest.approx(np.sum(full * write_out(other)))
    assert banded.half_log_determinant(factor) == pytest.approx(0.5 * np.linalg.slogdet(full)[1])
    inverse = np.linalg.inv(full)
    found = write_out(banded.invert_within_band(factor))
    inside = np.abs(np.subtract.outer(np.arange(size), np.arange(size))) < width
    assert np.allclose(found[inside], inverse[inside], atol=1e-13)
    assert not np.allclose(found[inside], 1.01 * inverse[inside], atol=1e-13)  # negative control


@pytest.mark.parametrize(("size", "width"), SIZES)
def test_halves_of_a_solve_are_triangular(size: int, width: int, rng: np.random.Generator) -> None:
    """Columns that begin late, end early, or are zero, as those that couple two markets."""
    band = random_band(rng, size, width)
    factor, lower = banded.factorise(band), np.linalg.cholesky(write_out(band))
    X = rng.normal(size=(size, 5))
    X[: size // 2, 1:3] = 0.0
    X[size // 3 :, 3] = X[:, 4] = 0.0
    for force in (X, X[:, 0]):
        assert np.allclose(banded.solve_lower(factor, force), np.linalg.solve(lower, force))
        assert np.allclose(banded.solve_upper(factor, force), np.linalg.solve(lower.T, force))
    assert width == 1 or not np.allclose(banded.solve_lower(factor, X), np.linalg.solve(lower.T, X))


def test_what_is_given_stays_as_it_is(rng: np.random.Generator) -> None:
    """Whatever its layout: a solve in place of a transposed view once overwrote its owner."""
    band = random_band(rng, 20, 4)
    factor, rows = banded.factorise(band), rng.normal(size=(3, 20))
    kept = band.copy(), rows.copy()
    solved = banded.solve(factor, rows.T)
    banded.solve(factor, rows[0])
    assert np.array_equal(band, kept[0])
    assert np.array_equal(rows, kept[1])
    for row, column in zip(rows, solved.T, strict=True):
        assert np.allclose(banded.solve(factor, row), column, atol=1e-14)


@pytest.mark.parametrize("fault", [-1.0, 0.0, np.nan])
def test_a_matrix_that_is_not_positive_definite_is_refused(
    fault: float, rng: np.random.Generator
) -> None:
    band = random_band(rng, 12, 4)
    banded.factorise(band)
    band[7, 0] = fault
    with pytest.raises(banded.SingularMatrixError, match="not positive definite"):
        banded.factorise(band)
