"""Products and factors of small matrices are those of the library of matrices."""

from __future__ import annotations

import numpy as np
import pytest

from arbiter.operators import matrix_products
from arbiter.operators.prior import small_matrices


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5, 7, 12, 31])
def test_small_matrices_are_those_of_the_library(size: int, rng: np.random.Generator) -> None:
    A = rng.normal(size=(2 * size + 3, size))
    whole = A.T @ A
    upper = np.full((size, size), np.nan)
    small_matrices.squares(A, upper)
    np.testing.assert_allclose(np.triu(upper), np.triu(whole), rtol=1e-12, atol=1e-12)

    factor = upper.copy()
    small_matrices.factorise(factor)
    at = np.arange(size)
    plain = np.triu(factor)
    plain[at, at] = 1.0 / factor[at, at]
    np.testing.assert_allclose(plain, np.linalg.cholesky(whole).T, rtol=1e-9, atol=1e-9)
    b = rng.normal(size=(size, 9))
    every, half, found = b.copy(), b[:, 0].copy(), b[:, 0].copy()
    small_matrices.forward_all(factor, every)
    np.testing.assert_allclose(plain.T @ every, b, rtol=0.0, atol=1e-9)
    small_matrices.forward(factor, half)
    np.testing.assert_allclose(half, every[:, 0], rtol=1e-9, atol=1e-12)
    small_matrices.solve(factor, found)
    np.testing.assert_allclose(whole @ found, b[:, 0], rtol=0.0, atol=1e-7)
    assert np.abs(plain.T @ found - b[:, 0]).max() > 1e-4  # the factor alone is another system


@pytest.mark.parametrize(
    "shape",
    [(1, 3, 2), (16, 224, 1500), (37, 299, 224), (700, 5, 48), (5, 48, 46), (96, 200, 96)],
    ids=str,
)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_products_in_pieces_are_products(
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


def test_no_piece_is_large_enough_to_be_split_among_threads(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sizes = []
    matmul = np.matmul

    def record(x: np.ndarray, y: np.ndarray, out: np.ndarray) -> None:
        sizes.append(x.shape[-2] * x.shape[-1] * y.shape[-1])
        matmul(x, y, out=out)

    monkeypatch.setattr(np, "matmul", record)
    for shape in ((16, 224, 1500), (700, 5, 48), (500, 960, 200), (3, 299, 224), (96, 200, 96)):
        matrix_products.multiply(np.ones(shape[:2]), np.ones(shape[1:]))
    assert 0 < max(sizes) <= 2**18
    matrix_products.multiply(np.ones((100, 2000)), np.ones((2000, 300)))  # no network is so wide
    assert max(sizes) > 2**18
