"""Products with a map's weights, in one order of sums, compiled.

A library of matrices splits a large product among threads of its own, which wait for each other
where chains are split among ours, and whose number may change last digits. Here four rows of the
inputs meet four of the weights at a time: that fills the widest registers, and is as quick as the
library or quicker.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from arbiter.compiled import compiled

Rough = NDArray[np.floating[Any]]  # in the precision of the maps


class LinearMap(NamedTuple):
    """A linear map as it is applied.

    Attributes:
        weight: ``(K, N)`` from inputs to outputs.
        bias: ``(N,)``
    """

    weight: Rough
    bias: Rough

    @staticmethod
    def from_weight(weight: Rough, bias: Rough | None = None) -> LinearMap:
        """A map from its matrix ``(N, K)``."""
        shift = np.zeros(len(weight), weight.dtype) if bias is None else bias
        return LinearMap(np.ascontiguousarray(weight.T), shift)

    def __call__(self, x: Rough) -> Rough:
        """``(…, N)`` of inputs ``(…, K)``."""
        out = np.empty((*x.shape[:-1], self.bias.size), x.dtype)
        rows = np.ascontiguousarray(x).reshape(-1, x.shape[-1])
        fill_product(rows, self.weight, self.bias, out.reshape(-1, self.bias.size))
        return out


def multiply(x: Rough, weight: Rough) -> Rough:
    """``(…, N)`` products of ``(…, K)`` and ``(K, N)``."""
    return LinearMap(np.ascontiguousarray(weight), np.zeros(weight.shape[1], x.dtype))(x)


@compiled
def fill_product(x: Rough, weight: Rough, bias: Rough, out: Rough) -> None:
    """The outputs ``(M, N)`` of a map of inputs ``(M, K)``."""
    (M, K), rows, terms = x.shape, len(x) - len(x) % 4, len(weight) - len(weight) % 4
    for i in range(M):
        p = out[i]
        for j in range(p.size):
            p[j] = bias[j]
    for i in range(0, rows, 4):
        p, q, r, s = out[i], out[i + 1], out[i + 2], out[i + 3]
        for k in range(0, terms, 4):
            pa, pb, pc, pd = x[i, k], x[i, k + 1], x[i, k + 2], x[i, k + 3]
            qa, qb, qc, qd = x[i + 1, k], x[i + 1, k + 1], x[i + 1, k + 2], x[i + 1, k + 3]
            ra, rb, rc, rd = x[i + 2, k], x[i + 2, k + 1], x[i + 2, k + 2], x[i + 2, k + 3]
            sa, sb, sc, sd = x[i + 3, k], x[i + 3, k + 1], x[i + 3, k + 2], x[i + 3, k + 3]
            e, f, g, h = weight[k], weight[k + 1], weight[k + 2], weight[k + 3]
            for j in range(p.size):
                a, b, c, d = e[j], f[j], g[j], h[j]
                p[j] += (pa * a + pb * b) + (pc * c + pd * d)
                q[j] += (qa * a + qb * b) + (qc * c + qd * d)
                r[j] += (ra * a + rb * b) + (rc * c + rd * d)
                s[j] += (sa * a + sb * b) + (sc * c + sd * d)
    for i in range(M):  # what is left of rows and terms
        p = out[i]
        for k in range(terms if i < rows else 0, K):
            a, e = x[i, k], weight[k]
            for j in range(p.size):
                p[j] += a * e[j]
