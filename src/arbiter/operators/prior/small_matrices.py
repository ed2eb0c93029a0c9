"""Small dense matrices, compiled, each thread by itself.

A library for large ones hands its products to threads of its own, which wait for each other where
chains are split among ours. These keep several sums at a time in registers, and are about as quick.
"""

from __future__ import annotations

import math

import numpy as np

from arbiter.compiled import compiled
from arbiter.conventions import Array


@compiled
def products(A: Array, B: Array, C: Array) -> None:
    """The lower half of ``A Bᵀ``, which is symmetric, into C."""
    n, many = A.shape
    tiled = n - n % 4
    for i in range(0, tiled, 4):
        for j in range(0, i + 4, 4):
            aa = ab = ac = ad = ba = bb = bc = bd = 0.0
            ca = cb = cc = cd = da = db = dc = dd = 0.0
            for r in range(many):
                a, b, c, d = A[i, r], A[i + 1, r], A[i + 2, r], A[i + 3, r]
                e, f, g, h = B[j, r], B[j + 1, r], B[j + 2, r], B[j + 3, r]
                aa, ab, ac, ad = aa + a * e, ab + a * f, ac + a * g, ad + a * h
                ba, bb, bc, bd = ba + b * e, bb + b * f, bc + b * g, bd + b * h
                ca, cb, cc, cd = ca + c * e, cb + c * f, cc + c * g, cd + c * h
                da, db, dc, dd = da + d * e, db + d * f, dc + d * g, dd + d * h
            C[i, j], C[i, j + 1], C[i, j + 2], C[i, j + 3] = aa, ab, ac, ad
            C[i + 1, j], C[i + 1, j + 1], C[i + 1, j + 2], C[i + 1, j + 3] = ba, bb, bc, bd
            C[i + 2, j], C[i + 2, j + 1], C[i + 2, j + 2], C[i + 2, j + 3] = ca, cb, cc, cd
            C[i + 3, j], C[i + 3, j + 1], C[i + 3, j + 2], C[i + 3, j + 3] = da, db, dc, dd
    for i in range(tiled, n):
        for j in range(i + 1):
            a = 0.0
            for r in range(many):
                a += A[i, r] * B[j, r]
            C[i, j] = a


@compiled
def squares(A: Array, P: Array) -> None:
    """The lower half of ``AᵀA`` into P."""
    turned = np.ascontiguousarray(A.T)
    products(turned, turned, P)


@compiled
def factorise(P: Array) -> None:
    """Cholesky's factor of a symmetric matrix, in place of its lower half; no other is read.

    On the diagonal are the reciprocals: a product is done sooner than a quotient.
    """
    n = len(P)
    for i in range(0, n, 4):
        last = min(i + 4, n)
        full = last - i == 4
        for j in range(i if full else 0):  # four rows at a time, to the left of their own square
            a, b, c, d = P[i, j], P[i + 1, j], P[i + 2, j], P[i + 3, j]
            for k in range(j):
                by = P[j, k]
                a -= P[i, k] * by
                b -= P[i + 1, k] * by
                c -= P[i + 2, k] * by
                d -= P[i + 3, k] * by
            by = P[j, j]
            P[i, j], P[i + 1, j], P[i + 2, j], P[i + 3, j] = a * by, b * by, c * by, d * by
        for row in range(i, last):
            for j in range(i if full else 0, row + 1):
                rest = P[row, j]
                for k in range(j):
                    rest -= P[row, k] * P[j, k]
                P[row, j] = 1.0 / math.sqrt(rest) if row == j else rest * P[j, j]


@compiled
def solve(factor: Array, x: Array) -> None:
    """The linear system of a matrix so factorised, in place."""
    forward(factor, x)
    for i in range(x.size - 1, -1, -1):
        x[i] *= factor[i, i]
        by = x[i]
        for k in range(i):
            x[k] -= factor[i, k] * by


@compiled
def forward(factor: Array, x: Array) -> None:
    """That of the factor alone, in place."""
    for i in range(x.size):
        rest = x[i]
        for k in range(i):
            rest -= factor[i, k] * x[k]
        x[i] = rest * factor[i, i]


@compiled
def forward_all(factor: Array, X: Array) -> None:
    """The same for every column of X, in place."""
    n, many = X.shape
    for i in range(0, n - 1, 2):  # two rows at a time, four of those above them
        for k in range(0, i - i % 4, 4):
            a, b, c, d = factor[i, k], factor[i, k + 1], factor[i, k + 2], factor[i, k + 3]
            below = factor[i + 1]
            e, f, g, h = below[k], below[k + 1], below[k + 2], below[k + 3]
            for r in range(many):
                x, y, z, w = X[k, r], X[k + 1, r], X[k + 2, r], X[k + 3, r]
                X[i, r] -= a * x + b * y + c * z + d * w
                X[i + 1, r] -= e * x + f * y + g * z + h * w
        for k in range(i - i % 4, i):
            a, e = factor[i, k], factor[i + 1, k]
            for r in range(many):
                X[i, r] -= a * X[k, r]
                X[i + 1, r] -= e * X[k, r]
        a, e, h = factor[i, i], factor[i + 1, i], factor[i + 1, i + 1]
        for r in range(many):
            X[i, r] *= a
            X[i + 1, r] = h * (X[i + 1, r] - e * X[i, r])
    if n % 2 == 1:
        for k in range(n - 1):
            for r in range(many):
                X[n - 1, r] -= factor[n - 1, k] * X[k, r]
        for r in range(many):
            X[n - 1, r] *= factor[n - 1, n - 1]
