"""Small dense matrices in compiled loops, S of one size behind each other.

A symmetric matrix is given by its upper half, and Cholesky's factor U with ``P = UᵀU`` takes its
place; below the diagonal is anything. On the diagonal of a factor are the reciprocals: a product is
done sooner than a quotient. Four rows meet four others at a time, in slices as wide as registers,
and every sum is in one order. The number of rows is a multiple of four.
"""

from __future__ import annotations

import math

from arbiter.compiled import compiled
from arbiter.conventions import Array, Indices


def add_products(left: Array, right: Array, out: Array) -> None:
    """Add the upper halves of ``AᵀB``, ``(S, n, m)``, of ``(S, r, ≥n)`` and ``(S, r, m)``."""
    _sweep(left, right, out, False)


def factorise(P: Array) -> None:
    """Cholesky's factors of ``(S, n, n)``, in place; columns beside are solved for under ``Uᵀ``."""
    _sweep(P, P, P, True)


@compiled
def _sweep(left: Array, right: Array, out: Array, factors: bool) -> None:
    """Four rows after four: products are added, or those of the rows above taken off."""
    (S, n, _), whole, sign = out.shape, left.shape[1], -1.0 if factors else 1.0
    for each in range(S):
        A, B, C = left[each], right[each], out[each]
        for i in range(0, n, 4):
            at, terms = i - i % 8, i if factors else whole
            p, q, r, s = C[i, at:], C[i + 1, at:], C[i + 2, at:], C[i + 3, at:]
            for k in range(0, terms - 3, 4):
                e, f, g, h = A[k], A[k + 1], A[k + 2], A[k + 3]
                pa, pb, pc, pd = sign * e[i], sign * f[i], sign * g[i], sign * h[i]
                qa, qb, qc, qd = sign * e[i + 1], sign * f[i + 1], sign * g[i + 1], sign * h[i + 1]
                ra, rb, rc, rd = sign * e[i + 2], sign * f[i + 2], sign * g[i + 2], sign * h[i + 2]
                sa, sb, sc, sd = sign * e[i + 3], sign * f[i + 3], sign * g[i + 3], sign * h[i + 3]
                e, f, g, h = B[k, at:], B[k + 1, at:], B[k + 2, at:], B[k + 3, at:]
                for j in range(p.size):
                    a, b, c, d = e[j], f[j], g[j], h[j]
                    p[j] += (pa * a + pb * b) + (pc * c + pd * d)
                    q[j] += (qa * a + qb * b) + (qc * c + qd * d)
                    r[j] += (ra * a + rb * b) + (rc * c + rd * d)
                    s[j] += (sa * a + sb * b) + (sc * c + sd * d)
            for own in range(i, i + 4):
                p = C[own, at:]
                for k in range(terms - terms % 4, own if factors else terms):
                    a, e = sign * A[k, own], B[k, at:]
                    for j in range(p.size):
                        p[j] += a * e[j]
                if factors:
                    scale = 1.0 / math.sqrt(C[own, own])
                    for j in range(p.size):
                        p[j] *= scale
                    C[own, own] = scale


def diagonals(P: Array) -> Array:
    """``(S, n)`` the diagonals of matrices, a view."""
    return P.reshape(len(P), -1)[:, :: P.shape[2] + 1]


@compiled
def solve(factor: Array, x: Array) -> None:
    """The linear systems of matrices so factorised, ``(S, n)``, in place."""
    n = x.shape[1]
    for each in range(len(x)):
        U, y = factor[each], x[each]
        for i in range(n):
            row = U[i]
            y[i] *= row[i]
            by = y[i]
            for j in range(i + 1, n):
                y[j] -= by * row[j]
        for i in range(n - 1, -1, -1):
            row, a, b, c, d, j = U[i], 0.0, 0.0, 0.0, 0.0, i + 1
            while j + 4 <= n:  # one sum would wait for its own last addition
                a += row[j] * y[j]
                b += row[j + 1] * y[j + 1]
                c += row[j + 2] * y[j + 2]
                d += row[j + 3] * y[j + 3]
                j += 4
            for last in range(j, n):
                a += row[last] * y[last]
            y[i] = row[i] * (y[i] - ((a + b) + (c + d)))


@compiled
def combine(rows: Array, first: Indices, share: Array, out: Array) -> None:
    """Rows that are sums of neighbours ``(…, n)``, from the first on, by shares ``(M, 4·…)``.

    They are put in the first n columns. Where there is no such neighbour its share is zero.
    """
    last, n = len(rows) - 1, rows.shape[1]
    for m in range(len(out)):
        row = out[m, :n]
        for j in range(row.size):
            row[j] = 0.0
        for i in range(0, share.shape[1], 4):
            a, b, c, d = share[m, i], share[m, i + 1], share[m, i + 2], share[m, i + 3]
            at = first[m] + i
            e, f = rows[min(max(at, 0), last)], rows[min(max(at + 1, 0), last)]
            g, h = rows[min(max(at + 2, 0), last)], rows[min(max(at + 3, 0), last)]
            for j in range(row.size):
                row[j] += (a * e[j] + b * f[j]) + (c * g[j] + d * h[j])
