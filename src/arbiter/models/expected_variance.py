"""Expected variance of the lifted Heston model in closed form, by matrix exponentials."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from arbiter.conventions import Array
from arbiter.models.matrix_product import exponentiate
from arbiter.models.parameters import Parameters


@dataclass(frozen=True, eq=False)
class ExpectedVariance:
    """``E v_t = a(t) + β(t)·U`` and its integral, from ``dE U = (−x U + λ(θ − v0 − c·U)) dt``."""

    parameters: Parameters

    @staticmethod
    def from_parameters(parameters: Parameters) -> ExpectedVariance:
        """The expected variance of the model with these parameters."""
        return ExpectedVariance(parameters)

    def variance(self, t: Array, U: Array) -> Array:
        """``E v_t`` for states ``(…, n)``; shape of ``t`` after the state's leading axes."""
        return self._evaluate_rows(t, U, 0)

    def integral(self, t: Array, U: Array) -> Array:
        """Integrated expected variance ``∫_0^t E v`` for states ``(…, n)``."""
        return self._evaluate_rows(t, U, 1)

    def affine(self, t: float) -> tuple[float, Array]:
        """``a, β`` with ``∫_0^t E v = a + β·U``."""
        row = _affine_rows(self.parameters, float(t))[1]
        return float(row[-1]), row[:-1]

    def _evaluate_rows(self, t: Array, U: Array, which: int) -> Array:
        times, where = np.unique(np.asarray(t, dtype=np.float64), return_inverse=True)
        rows = np.stack(
            [_affine_rows(self.parameters, float(at))[which] for at in times]
        )  # (M, n+1)
        # not a linear algebra library's sum, which may depend on the number of threads
        value = np.einsum("...n,mn->...m", U, rows[:, :-1]) + rows[:, -1]  # (…, M)
        return np.asarray(value[..., where.reshape(np.shape(t))])


def drift(p: Parameters) -> Array:
    """``(n+1, n+1)`` matrix of the mean's equation ``d(E U, 1) = A (E U, 1) dt``."""
    n = p.factors
    system = np.zeros((n + 1, n + 1))
    system[:n, :n] = -np.diag(p.x) - p.reversion * np.outer(np.ones(n), p.c)
    system[:n, n] = p.reversion * (p.theta - p.v0)
    return system


@lru_cache(maxsize=4096)
def _affine_rows(p: Parameters, t: float) -> tuple[Array, Array]:
    """Rows that turn ``(U, 1)`` into ``E v_t`` and into ``∫_0^t E v``."""
    n = p.factors
    # y = (E U, 1, ∫ E v): one exponential for all three
    system = np.zeros((n + 2, n + 2))
    system[: n + 1, : n + 1] = drift(p)
    system[n + 1, :n], system[n + 1, n] = p.c, p.v0
    flow = exponentiate(system * t)
    now = np.append(p.c @ flow[:n, :n], p.v0 + p.c @ flow[:n, n])
    total = np.append(flow[n + 1, :n], flow[n + 1, n])
    for row in (now, total):
        row.setflags(write=False)
    return now, total
