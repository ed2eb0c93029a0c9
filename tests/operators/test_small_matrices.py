"""Products and factors of small matrices are those of the library of matrices."""

from __future__ import annotations

import numpy as np
import pytest

from arbiter.operators import matrix_products
from arbiter.operators.prior import small_matrices


@pytest.mark.parametrize("size", [4, 8, 12, 28, 32])
@pytest.mark.parametrize("beside", [0, 1, 8, 21])
def test_small_matrices_are_those_of_the_library(
    size: int, beside: int, rng: np.random.Generator
) -> None:
    A = rng.normal(size=(3, 2 * size + 3, size))
    B = rng.normal(size=(3, 2 * size + 3, beside))
    whole, side = np.swapaxes(A, 1, 2) @ A, np.swapaxes(A, 1, 2) @ B
    system = np.full((3, size, size + beside), 0.5)
    small_matrices.add_products(A, np.concatenate([A, B], 2), system)
    system -= 0.5
    wanted = np.triu(np.concatenate([whole, side], 2))
    np.testing.assert_allclose(np.triu(system), wanted, rtol=0.0, atol=1e-12 * np.abs(whole).max())

    small_matrices.factorise(system)
    factor, at = np.triu(system[:, :, :size]), np.arange(size)
    np.testing.assert_array_equal(small_matrices.diagonals(system), system[:, at, at])
    factor[:, at, at] = 1.0 / factor[:, at, at]
    wanted = np.swapaxes(np.linalg.cholesky(whole), 1, 2)
    np.testing.assert_allclose(factor, wanted, rtol=1e-9, atol=1e-9)
    below = np.swapaxes(factor, 1, 2)
    np.testing.assert_allclose(below @ system[:, :, size:], side, rtol=0.0, atol=1e-9)
    b = rng.normal(size=(3, size))
    found = b.copy()
    small_matrices.solve(system, found)
    np.testing.assert_allclose((whole @ found[:, :, None])[..., 0], b, rtol=0.0, atol=1e-7)
    # the factor alone is another system
    assert np.abs((below @ found[:, :, None])[..., 0] - b).max() > 1e-4


@pytest.mark.parametrize("first", [-3, 0, 2])
def test_rows_are_combined_from_the_first_on(first: int, rng: np.random.Generator) -> None:
    rows, share, out = rng.normal(size=(9, 5)), rng.normal(size=(2, 8)), np.zeros((2, 7))
    at = first + np.arange(8)
    there = (at >= 0) & (at < 9)
    share[:, ~there] = 0.0
    small_matrices.combine(rows, np.full(2, first), share, out)
    np.testing.assert_allclose(out[:, :5], share[:, there] @ rows[at[there]], atol=1e-12)
    assert not out[:, 5:].any()
    small_matrices.combine(rows, np.full(2, first + 1), share, out)
    assert np.abs(out[:, :5] - share[:, there] @ rows[at[there]]).max() > 0.1


@pytest.mark.parametrize(
    "shape",
    [(1, 3, 2), (16, 224, 1500), (37, 299, 224), (700, 5, 48), (5, 48, 46), (96, 200, 96)],
    ids=str,
)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_maps_are_products(
    shape: tuple[int, int, int], dtype: type[np.floating], rng: np.random.Generator
) -> None:
    M, K, N = shape
    x, W = rng.normal(size=(M, K)).astype(dtype), rng.normal(size=(N, K)).astype(dtype)
    wanted = x.astype(np.float64) @ W.T.astype(np.float64)
    error = 1e-4 if dtype is np.float32 else 1e-12
    for weight in (W.T, np.ascontiguousarray(W.T)):  # in either order of memory
        found = matrix_products.multiply(x, weight)
        assert found.dtype == dtype
        np.testing.assert_allclose(found, wanted, rtol=0.0, atol=error)
    map_of = matrix_products.LinearMap.from_weight(W, np.ones(N, dtype))
    np.testing.assert_allclose(map_of(x), wanted + 1.0, rtol=0.0, atol=error)
    assert np.abs(map_of(x) - wanted).min() > 0.5
