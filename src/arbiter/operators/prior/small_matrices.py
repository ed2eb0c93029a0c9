"""Small dense matrices in compiled loops, S of one size behind each other.

A symmetric matrix is given by its upper half, and Cholesky's factor U with ``P = UᵀU`` takes its
place; below the diagonal is anything. On the diagonal of a factor are the reciprocals: a product is
done sooner than a quotient. Four rows meet four others at a time, in slices as wide as registers,
and every sum is in one order. The number of rows is a multiple of four.
"""

from __future__ import annotations

import math

from arbiter.compiled import compiled, inlined
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
            if factors:
                _finish_rows(C, i, at)
            for own in range(i, i if factors else i + 4):
                p = C[own, at:]
                for k in range(terms - terms % 4, terms):
                    a, e = A[k, own], B[k, at:]
                    for j in range(p.size):
                        p[j] += a * e[j]


@inlined
def _finish_rows(C: Array, i: int, at: int) -> None:
    """Four rows of a factor, once what is above them is taken off: the triangle, then the rest."""
    p, q, r, s = C[i, i:], C[i + 1, i:], C[i + 2, i:], C[i + 3, i:]
    one = 1.0 / math.sqrt(p[0])
    b, c, d = p[1] * one, p[2] * one, p[3] * one
    two = 1.0 / math.sqrt(q[1] - b * b)
    e, f = (q[2] - b * c) * two, (q[3] - b * d) * two
    three = 1.0 / math.sqrt((r[2] - c * c) - e * e)
    g = ((r[3] - c * d) - e * f) * three
    four = 1.0 / math.sqrt(((s[3] - d * d) - f * f) - g * g)
    p, q, r, s = C[i, at:], C[i + 1, at:], C[i + 2, at:], C[i + 3, at:]
    for j in range(p.size):
        w = p[j] * one
        x = (q[j] - b * w) * two
        y = ((r[j] - c * w) - e * x) * three
        z = (((s[j] - d * w) - f * x) - g * y) * four
        p[j], q[j], r[j], s[j] = w, x, y, z
    C[i, i], C[i + 1, i + 1], C[i + 2, i + 2], C[i + 3, i + 3] = one, two, three, four


def diagonals(P: Array) -> Array:
    """``(S, n)`` the diagonals of matrices, a view."""
    return P.reshape(len(P), -1)[:, :: P.shape[2] + 1]


@compiled
def solve(factor: Array, x: Array) -> None:
    """The linear systems of matrices so factorised, ``(S, n)``, in place."""
    n = x.shape[1]
    for each in range(len(x)):
        U, y = factor[each], x[each]
        for i in range(0, n, 4):
            e, f, g, h = U[i, i:], U[i + 1, i:], U[i + 2, i:], U[i + 3, i:]
            a = y[i] * e[0]
            b = (y[i + 1] - a * e[1]) * f[1]
            c = ((y[i + 2] - a * e[2]) - b * f[2]) * g[2]
            d = (((y[i + 3] - a * e[3]) - b * f[3]) - c * g[3]) * h[3]
            y[i], y[i + 1], y[i + 2], y[i + 3] = a, b, c, d
            left = y[i + 4 :]
            for j in range(left.size):
                left[j] -= (a * e[j + 4] + b * f[j + 4]) + (c * g[j + 4] + d * h[j + 4])
        for i in range(n - 4, -1, -4):
            e, f, g, h = U[i, i:], U[i + 1, i:], U[i + 2, i:], U[i + 3, i:]
            a, b, c, d, known = y[i], y[i + 1], y[i + 2], y[i + 3], y[i:]
            for j in range(4, known.size):  # four sums: none waits for another
                a -= e[j] * known[j]
                b -= f[j] * known[j]
                c -= g[j] * known[j]
                d -= h[j] * known[j]
            d *= h[3]
            c = (c - g[3] * d) * g[2]
            b = ((b - f[3] * d) - f[2] * c) * f[1]
            a = (((a - e[3] * d) - e[2] * c) - e[1] * b) * e[0]
            y[i], y[i + 1], y[i + 2], y[i + 3] = a, b, c, d


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
