"""Symmetric banded matrices: factor, solve, multiply, and the inverse within the band, compiled.

A matrix ``(p, w)`` holds its lower triangle column by column: row j has the entries
``A[j, j], A[j+1, j], …, A[j+w−1, j]``. All sums are taken in one order, so that results do not
depend on the number of threads or on a linear algebra library.
"""

from __future__ import annotations

import math

import numpy as np

from arbiter.compiled import compiled
from arbiter.conventions import Array

LANES = 8  # numbers that a processor takes at a time, at most
_PADDING = 2 * LANES  # zeros beside every row of a factor, so that loops run in whole vectors


class SingularMatrixError(ValueError):
    """A matrix that is not positive definite."""


def factorise(matrix: Array) -> Array:
    """The Cholesky factor of a banded matrix, for :func:`solve` and :func:`invert_within_band`.

    Raises:
        SingularMatrixError: If the matrix is not positive definite.
    """
    size, width = matrix.shape
    factor = np.zeros((size, width + _PADDING))
    factor[:, :width] = matrix
    if not factorise_in_place(factor, width):
        raise SingularMatrixError("the matrix is not positive definite")
    return factor


@compiled
def factorise_in_place(factor: Array, width: int) -> bool:
    """Overwrite a padded matrix by its Cholesky factor; False if it is not positive definite.

    Four columns at a time: a row below them is read and written once for all four.
    """
    size, whole = len(factor), len(factor) // 4 * 4
    for first in range(0, whole, 4):
        for j in range(first, first + 4):
            if not _finish_column(factor, width, j):
                return False
            for i in range(j + 1, min(first + 4, j + width)):
                share, row, after = factor[j, i - j], factor[i], factor[j, i - j :]
                for t in range(width):
                    row[t] -= share * after[t]
        for i in range(first + 4, min(first + 3 + width, size)):
            row, off = factor[i], i - first
            one, two = factor[first, off:], factor[first + 1, off - 1 :]
            three, four = factor[first + 2, off - 2 :], factor[first + 3, off - 3 :]
            a, b, c, d = one[0], two[0], three[0], four[0]
            for t in range((width - off + 3 + LANES - 1) // LANES * LANES):
                row[t] -= (a * one[t] + b * two[t]) + (c * three[t] + d * four[t])
    for j in range(whole, size):
        if not _finish_column(factor, width, j):
            return False
        for i in range(j + 1, min(size, j + width)):
            share, row, after = factor[j, i - j], factor[i], factor[j, i - j :]
            for t in range(width):
                row[t] -= share * after[t]
    return True


@compiled
def _finish_column(factor: Array, width: int, j: int) -> bool:
    """Divide a column by the root of its pivot; False if there is none."""
    own = factor[j]
    if not own[0] > 0.0:
        return False
    root = math.sqrt(own[0])
    per = 1.0 / root
    own[0] = root
    for i in range(1, width):
        own[i] *= per
    return True


def cut_out(matrix: Array, own: slice) -> Array:
    """The matrix of some unknowns that follow each other, as a copy."""
    found = matrix[own].copy()
    rows, width = found.shape
    for row in range(max(rows - width + 1, 0), rows):
        found[row, rows - row :] = 0.0
    return found


def half_log_determinant(factor: Array) -> float:
    """Half the logarithm of the determinant."""
    return float(np.log(factor[:, 0]).sum())


def solve(factor: Array, force: Array) -> Array:
    """The solution of ``A x = force`` for a vector ``(p,)`` or columns ``(p, r)``."""
    return _overwrite(factor, force, (_LOWER, _UPPER))


def solve_lower(factor: Array, force: Array) -> Array:
    """``L⁻¹ force`` for a vector ``(p,)`` or columns ``(p, r)``, where ``A = L Lᵀ``."""
    return _overwrite(factor, force, (_LOWER,))


def solve_upper(factor: Array, force: Array) -> Array:
    """``L⁻ᵀ force`` for a vector ``(p,)`` or columns ``(p, r)``, where ``A = L Lᵀ``."""
    return _overwrite(factor, force, (_UPPER,))


def _overwrite(factor: Array, force: Array, sides: tuple[int, ...]) -> Array:
    width, out = factor.shape[1] - _PADDING, np.array(force, order="C")
    for side in sides:
        (_VECTOR_SOLVERS if out.ndim == 1 else _COLUMN_SOLVERS)[side](factor, width, out)
    return out


@compiled
def solve_lower_in_place(factor: Array, width: int, x: Array) -> None:
    """Overwrite a force by ``L⁻¹`` times it."""
    size = len(factor)
    for j in range(size):
        own, reach = factor[j], min(width, size - j)
        here = x[j] / own[0]
        x[j] = here
        after = x[j : j + reach]
        for i in range(1, reach):
            after[i] -= own[i] * here


@compiled
def solve_upper_in_place(factor: Array, width: int, x: Array) -> None:
    """Overwrite a force by ``L⁻ᵀ`` times it."""
    size = len(factor)
    for j in range(size - 1, -1, -1):
        own, reach = factor[j], min(width, size - j)
        after = x[j : j + reach]
        x[j] = (x[j] - _dot_after_first(own, after, reach)) / own[0]


@compiled
def _solve_lower_columns_in_place(factor: Array, width: int, X: Array) -> None:
    """The same for every column of ``X`` ``(p, r)``, side by side; rows of zeros cost nothing."""
    size, many = X.shape
    for j in range(size):
        own, here = factor[j], X[j]
        first, last = 0, many
        while first < last and here[first] == 0.0:
            first += 1
        while last > first and here[last - 1] == 0.0:
            last -= 1
        per, part = 1.0 / own[0], here[first:last]
        for c in range(last - first):
            part[c] *= per
        if first < last:
            for i in range(1, min(width, size - j)):
                share, after = own[i], X[j + i, first:last]
                for c in range(last - first):
                    after[c] -= share * part[c]


@compiled
def _solve_upper_columns_in_place(factor: Array, width: int, X: Array) -> None:
    size, many = X.shape
    for j in range(size - 1, -1, -1):
        own, here = factor[j], X[j]
        for i in range(1, min(width, size - j)):
            share, after = own[i], X[j + i]
            for c in range(many):
                here[c] -= share * after[c]
        per = 1.0 / own[0]
        for c in range(many):
            here[c] *= per


_LOWER, _UPPER = 0, 1
_VECTOR_SOLVERS = (solve_lower_in_place, solve_upper_in_place)
_COLUMN_SOLVERS = (_solve_lower_columns_in_place, _solve_upper_columns_in_place)


@compiled
def _dot_after_first(a: Array, b: Array, count: int) -> float:
    """``Σ a_i b_i`` from 1 on, in four sums side by side."""
    one = two = three = four = 0.0
    i = 1
    while i + 3 < count:
        one += a[i] * b[i]
        two += a[i + 1] * b[i + 1]
        three += a[i + 2] * b[i + 2]
        four += a[i + 3] * b[i + 3]
        i += 4
    while i < count:
        one += a[i] * b[i]
        i += 1
    return (one + two) + (three + four)


def multiply(matrix: Array, x: Array) -> Array:
    """``A x``."""
    out = np.zeros(len(matrix))
    _add_product(matrix, x, out)
    return out


@compiled
def _add_product(matrix: Array, x: Array, out: Array) -> None:
    size, width = matrix.shape
    for j in range(size):
        own, reach = matrix[j], min(width, size - j)
        here, after, results = x[j], x[j : j + reach], out[j : j + reach]
        results[0] += own[0] * here + _dot_after_first(own, after, reach)
        for i in range(1, reach):
            results[i] += own[i] * here


def inner_product(a: Array, b: Array) -> float:
    """``tr(A B)`` of two matrices of one shape, of which entries beyond the band count as zero."""
    return float(2.0 * np.einsum("pw,pw->", a, b) - np.einsum("p,p->", a[:, 0], b[:, 0]))


def invert_within_band(factor: Array) -> Array:
    """The entries ``(p, w)`` of the inverse that lie within the band."""
    width = factor.shape[1] - _PADDING
    whole = np.zeros((len(factor) + width, 2 * width + LANES))
    out = np.zeros((len(factor), width))
    _fill_inverse(factor, width, whole, out)
    return out


@compiled
def _fill_inverse(factor: Array, width: int, whole: Array, out: Array) -> None:
    """The recursion of Takahashi, Fagan and Chin (1973), from the last column to the first.

    Row r of ``whole`` has the entries from column ``r − w + 1`` to ``r + w − 1``, so that every
    sum adds rows to rows.
    """
    reach = width - 1
    sums = np.empty(width + LANES)
    vectors = (reach + LANES - 1) // LANES * LANES
    for j in range(len(factor) - 1, -1, -1):
        own = factor[j]
        per = 1.0 / own[0]
        for i in range(vectors):
            sums[i] = 0.0
        tiled = 1 + reach // 4 * 4
        for t in range(1, tiled, 4):
            a, b, c, d = own[t], own[t + 1], own[t + 2], own[t + 3]
            one, two = whole[j + t, width - t :], whole[j + t + 1, width - t - 1 :]
            three, four = whole[j + t + 2, width - t - 2 :], whole[j + t + 3, width - t - 3 :]
            for i in range(vectors):
                sums[i] += (a * one[i] + b * two[i]) + (c * three[i] + d * four[i])
        for t in range(tiled, width):
            share, row = own[t], whole[j + t, width - t :]
            for i in range(vectors):
                sums[i] += share * row[i]
        corner = per
        for i in range(1, width):
            entry = -per * sums[i - 1]
            whole[j, reach + i], whole[j + i, reach - i], out[j, i] = entry, entry, entry
            corner -= own[i] * entry
        whole[j, reach] = out[j, 0] = corner * per
