"""Small dense matrices in compiled loops, each thread by itself.

Symmetric matrices are given by their upper half, and Cholesky's factor U with ``P = UᵀU`` takes its
place: rows are added to rows then, many numbers at a time and every sum in the order written. On
the diagonal of a factor are the reciprocals: a product is done sooner than a quotient.
"""

from __future__ import annotations

import math

from arbiter.compiled import compiled
from arbiter.conventions import Array


@compiled
def squares(A: Array, P: Array) -> None:
    """``AᵀA`` into P, both halves: whole rows are done sooner than what is left of them."""
    many, n = A.shape
    tiled = many - many % 4
    for i in range(n):
        row = P[i]
        for j in range(n):
            row[j] = 0.0
        for r in range(0, tiled, 4):
            e, f, g, h = A[r], A[r + 1], A[r + 2], A[r + 3]
            a, b, c, d = e[i], f[i], g[i], h[i]
            for j in range(n):
                row[j] += (a * e[j] + b * f[j]) + (c * g[j] + d * h[j])
        for r in range(tiled, many):
            e = A[r]
            a = e[i]
            for j in range(n):
                row[j] += a * e[j]


@compiled
def factorise(P: Array) -> None:
    """Cholesky's factor of a symmetric matrix, in place of its upper half; no other is read."""
    n = len(P)
    for i in range(n):
        row, k = P[i], 0
        while k + 4 <= i:
            e, f, g, h = P[k], P[k + 1], P[k + 2], P[k + 3]
            a, b, c, d = e[i], f[i], g[i], h[i]
            for j in range(i, n):
                row[j] -= (a * e[j] + b * f[j]) + (c * g[j] + d * h[j])
            k += 4
        for last in range(k, i):
            e = P[last]
            a = e[i]
            for j in range(i, n):
                row[j] -= a * e[j]
        scale = 1.0 / math.sqrt(row[i])
        for j in range(i + 1, n):
            row[j] *= scale
        row[i] = scale


@compiled
def forward(factor: Array, x: Array) -> None:
    """The linear system of ``Uᵀ``, in place."""
    n = x.size
    for i in range(n):
        row = factor[i]
        x[i] *= row[i]
        by = x[i]
        for j in range(i + 1, n):
            x[j] -= by * row[j]


@compiled
def solve(factor: Array, x: Array) -> None:
    """The linear system of a matrix so factorised, in place."""
    forward(factor, x)
    n = x.size
    for i in range(n - 1, -1, -1):
        row, a, b, c, d, j = factor[i], 0.0, 0.0, 0.0, 0.0, i + 1
        while j + 4 <= n:  # one sum would wait for its own last addition
            a += row[j] * x[j]
            b += row[j + 1] * x[j + 1]
            c += row[j + 2] * x[j + 2]
            d += row[j + 3] * x[j + 3]
            j += 4
        for last in range(j, n):
            a += row[last] * x[last]
        x[i] = row[i] * (x[i] - ((a + b) + (c + d)))


@compiled
def forward_all(factor: Array, X: Array) -> None:
    """The system of ``Uᵀ`` for every column of X, in place."""
    n, many = X.shape
    for i in range(n):
        row, k = X[i], 0
        while k + 4 <= i:
            a, b, c, d = factor[k, i], factor[k + 1, i], factor[k + 2, i], factor[k + 3, i]
            e, f, g, h = X[k], X[k + 1], X[k + 2], X[k + 3]
            for r in range(many):
                row[r] -= (a * e[r] + b * f[r]) + (c * g[r] + d * h[r])
            k += 4
        for last in range(k, i):
            a, e = factor[last, i], X[last]
            for r in range(many):
                row[r] -= a * e[r]
        scale = factor[i, i]
        for r in range(many):
            row[r] *= scale
