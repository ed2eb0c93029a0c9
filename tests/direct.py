"""A direct optimisation over slopes: shows what the decoder can represent.

Gauss-Newton with a log barrier on the linear inequalities of the star order, dense and
unhurried, on noiseless volatilities. It knows nothing of bid and ask and is not the product's
fit.
"""

from __future__ import annotations

import numpy as np

from arbiter.conventions import Array
from arbiter.pricing import black
from arbiter.pricing.mixture import Mixture
from arbiter.pricing.price_derivatives import KnotQuadrature, OtmPricer

BARRIER = 1.0
STEEPEST = 4.0  # slopes that no quote sees would drift off under the barrier
SMOOTH = 3e-2  # bp per unit bend of log-slope: only fixes slopes that no quote sees


def star_order(components: int, maturities: int, knots: int) -> tuple[Array, Array]:
    """``A, a`` with ``A p + a > 0``: slopes (J, L, n) ordered in T and j, shares (J−1, L) too."""
    index = np.arange(components * maturities * knots).reshape(components, maturities, knots)
    share = index.size + np.arange((components - 1) * maturities).reshape(-1, maturities)
    above = np.concatenate(
        [
            np.stack([high, low], axis=-1).reshape(-1, 2)
            for high, low in (
                (index[:, 1:], index[:, :-1]),
                (index[1:], index[:-1]),
                (share[:, 1:], share[:, :-1]),
            )
        ]
    )
    eye = np.eye(index.size + share.size)
    rows = eye[above[:, 0]] - eye[above[:, 1]]
    floors = np.concatenate([eye[index[0, 0]], eye[share[:, 0]]])
    caps = -np.concatenate([eye[index[-1, -1]], eye[share[:1, -1]]])
    limits = np.where(np.arange(len(caps)) < knots, STEEPEST, 1.0)
    offset = np.concatenate([np.zeros(len(rows) + len(floors)), limits])
    return np.concatenate([rows, floors, caps]), offset


class Problem:
    """Volatility residuals in units of ``precision``, and their Jacobian by blocks."""

    def __init__(
        self,
        knots: Array,
        T: Array,
        k: Array,
        iv: Array,
        components: int,
        precision: Array | float = 1e-4,
    ) -> None:
        self.knots, self.k = knots, k
        self.shape = (components, T.size, knots.size)
        root = np.sqrt(T)[:, None]
        self.target = black.otm(k, iv * root)
        self.unit = 1.0 / (black.vega(k, iv * root) * root * precision)
        slice_of = np.repeat(np.arange(T.size), k.shape[1])
        self.pricer = OtmPricer(KnotQuadrature.from_knots(knots), slice_of, k.ravel())
        level = np.maximum.accumulate(root[:, 0] * iv.mean(axis=1))
        calm = 0.8 * (level + 1e-3 * np.sqrt(T))[:, None] * np.ones(knots.size)
        # a second component starts as a crash: wider on the left, by a jump's worth
        crash = 0.1 / (1.0 + np.exp(2.0 * (knots + 0.5))) + 0.01
        slopes = np.stack([calm + j * (crash + calm) for j in range(components)])
        shares = np.tile(-np.expm1(-0.5 * T), components - 1)
        self.start = np.concatenate([slopes.ravel(), shares])
        self.A, self.a = star_order(*self.shape)

    def unpack(self, p: Array) -> tuple[Array, Array]:
        """Slopes ``(J, L, n)`` and weights ``(J, L)``."""
        J, L, n = self.shape
        second = p[J * L * n :].reshape(J - 1, L)
        survival = np.concatenate([np.ones((1, L)), second, np.zeros((1, L))])
        return p[: J * L * n].reshape(self.shape), survival[:-1] - survival[1:]

    def errors(self, slopes: Array, weights: Array) -> Array:
        priced = Mixture(self.knots, slopes, weights).otm(self.k)
        return np.asarray((priced - self.target) * self.unit)

    def residual(self, p: Array) -> Array:
        slopes, weights = self.unpack(p)
        bends = SMOOTH * np.diff(np.log(slopes), n=2, axis=-1)
        return np.concatenate([self.errors(slopes, weights).ravel(), bends.ravel()])

    def jacobian(self, p: Array) -> Array:
        """Each slice sees its own slopes only."""
        slopes, weights = self.unpack(p)
        J, L, n = self.shape
        m, at = self.k.shape[1], np.arange(L)
        by_slope, by_share = np.zeros((L, m, J, L, n)), np.zeros((L, m, J - 1, L))
        for j in range(J):
            slices = self.pricer.integrate_slices(slopes[j])
            scale = (weights[j][:, None] * self.unit).ravel()
            rows = self.pricer.jacobian(slices, self.pricer.price_quotes(slices), scale)
            by_slope[at, :, j, at] = rows.reshape(L, m, n)
        parts = [part.otm(self.k) for part in Mixture(self.knots, slopes, weights).parts]
        for j in range(J - 1):
            by_share[at, :, j, at] = (parts[j + 1] - parts[j]) * self.unit
        top = np.concatenate([by_slope.reshape(L * m, -1), by_share.reshape(L * m, -1)], axis=1)
        bends = np.kron(np.eye(J * L), SMOOTH * np.diff(np.eye(n), n=2, axis=0)) / slopes.ravel()
        rest = np.zeros((len(bends), p.size - slopes.size))
        return np.concatenate([top, np.concatenate([bends, rest], axis=1)])


def represent(problem: Problem, steps: int) -> tuple[Array, Array, float]:
    """Slopes and weights that fit the volatilities, and the RMSE in units of the precision."""
    p, barrier, damping = problem.start, BARRIER, 1e-6

    def merit(q: Array) -> float:
        slack = problem.A @ q + problem.a
        if slack.min() <= 0.0:
            return float("inf")
        return float(0.5 * np.sum(problem.residual(q) ** 2) - barrier * np.log(slack).sum())

    for _ in range(steps):
        r, jacobian = problem.residual(p), problem.jacobian(p)
        slack = problem.A @ p + problem.a
        inverse = 1.0 / slack
        gradient = jacobian.T @ r - barrier * (problem.A.T @ inverse)
        curvature = jacobian.T @ jacobian
        curvature += problem.A.T @ (barrier * (inverse**2)[:, None] * problem.A)
        curvature += damping * np.diag(np.diagonal(curvature))
        step = -np.linalg.solve(curvature, gradient)
        pace = problem.A @ step
        falling = pace < 0.0
        limit = float((slack[falling] / -pace[falling]).min()) if falling.any() else 1.0
        size, now = min(1.0, 0.98 * limit), merit(p)
        while size > 1e-8 and not merit(p + size * step) < now:
            size *= 0.5
        if size > 1e-8:
            p = p + size * step
        if size > 0.5 or size <= 1e-8:
            barrier = max(barrier * 0.15, 1e-9)
    slopes, weights = problem.unpack(p)
    return slopes, weights, float(np.sqrt(np.mean(problem.errors(slopes, weights) ** 2)))
