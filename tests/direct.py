"""A direct optimisation over slopes: shows what the decoder can represent.

Gauss-Newton with a log barrier on the linear inequalities of the star order, dense and
unhurried, on noiseless volatilities. It knows nothing of bid and ask and is not the product's
fit.
"""

from __future__ import annotations

import torch
from torch import Tensor

from arbiter.pricing import black
from arbiter.pricing.mixture import Mixture

BARRIER = 1.0
STEEPEST = 4.0  # slopes that no quote sees would drift off under the barrier
SMOOTH = 3e-2  # bp per unit bend of log-slope: only fixes slopes that no quote sees


def star_order(components: int, maturities: int, knots: int) -> tuple[Tensor, Tensor]:
    """``A, a`` with ``A p + a > 0``: slopes (J, L, n) ordered in T and j, shares (J−1, L) too."""
    index = torch.arange(components * maturities * knots).reshape(components, maturities, knots)
    pairs = [torch.stack([index[:, 1:], index[:, :-1]], -1).reshape(-1, 2)]
    pairs.append(torch.stack([index[1:], index[:-1]], -1).reshape(-1, 2))
    share = index.numel() + torch.arange((components - 1) * maturities).reshape(-1, maturities)
    pairs.append(torch.stack([share[:, 1:], share[:, :-1]], -1).reshape(-1, 2))
    above = torch.cat(pairs)
    size = index.numel() + share.numel()
    rows = torch.zeros(above.shape[0], size, dtype=torch.float64)
    at = torch.arange(above.shape[0])
    rows[at, above[:, 0]], rows[at, above[:, 1]] = 1.0, -1.0
    eye = torch.eye(size, dtype=torch.float64)
    floors = torch.cat([eye[index[0, 0]], eye[share[:, 0]]])
    caps = -torch.cat([eye[index[-1, -1]], eye[share[0, -1:]] if components > 1 else eye[:0]])
    limits = torch.full((caps.shape[0],), STEEPEST, dtype=torch.float64)
    limits[knots:] = 1.0
    offset = torch.zeros(rows.shape[0] + floors.shape[0], dtype=torch.float64)
    return torch.cat([rows, floors, caps]), torch.cat([offset, limits])


class Problem:
    """Volatility residuals in units of ``precision``, and their Jacobian by blocks."""

    def __init__(
        self,
        knots: Tensor,
        T: Tensor,
        k: Tensor,
        iv: Tensor,
        components: int,
        precision: Tensor | float = 1e-4,
    ) -> None:
        self.knots, self.k = knots, k
        self.shape = (components, T.numel(), knots.numel())
        root = torch.sqrt(T)[:, None]
        self.target = black.otm(k, iv * root)
        self.unit = 1.0 / (black.vega(k, iv * root) * root * precision)
        level = torch.cummax(root[:, 0] * iv.mean(1), 0).values
        calm = 0.8 * (level + 1e-3 * torch.sqrt(T))[:, None].expand(self.shape[1:])
        # a second component starts as a crash: wider on the left, by a jump's worth
        crash = 0.1 * torch.sigmoid(-2.0 * (knots + 0.5)) + 0.01
        slopes = torch.stack([calm + j * (crash + calm) for j in range(components)])
        shares = -torch.expm1(-0.5 * T).repeat(components - 1)
        self.start = torch.cat([slopes.reshape(-1), shares])
        self.A, self.a = star_order(*self.shape)

    def unpack(self, p: Tensor) -> tuple[Tensor, Tensor]:
        """Slopes ``(J, L, n)`` and weights ``(J, L)``."""
        J, L, n = self.shape
        second = p[J * L * n :].reshape(J - 1, L)
        ones, zeros = torch.ones_like(p[:L])[None], torch.zeros_like(p[:L])[None]
        survival = torch.cat([ones, second, zeros])
        return p[: J * L * n].reshape(self.shape), survival[:-1] - survival[1:]

    def errors(self, slopes: Tensor, weights: Tensor) -> Tensor:
        return (Mixture(self.knots, slopes, weights).otm(self.k) - self.target) * self.unit

    def bends(self, p: Tensor) -> Tensor:
        return SMOOTH * torch.diff(torch.log(self.unpack(p)[0]), n=2, dim=-1).reshape(-1)

    def residual(self, p: Tensor) -> Tensor:
        return torch.cat([self.errors(*self.unpack(p)).reshape(-1), self.bends(p)])

    def jacobian(self, p: Tensor) -> Tensor:
        """Each slice sees its own slopes only, so one direction serves all maturities at once."""
        slopes, weights = self.unpack(p)
        J, L, n = self.shape
        basis = torch.eye(J * n, dtype=torch.float64).reshape(J * n, J, 1, n).expand(-1, J, L, n)
        by_knot = torch.func.vmap(
            lambda d: torch.func.jvp(lambda s: self.errors(s, weights), (slopes,), (d,))[1]
        )(basis)  # (J n, L, m)
        top = torch.zeros(L, self.k.shape[1], p.numel(), dtype=torch.float64)
        blocks = torch.zeros(L, self.k.shape[1], J, L, n, dtype=torch.float64)
        at = torch.arange(L)
        blocks[at, :, :, at] = by_knot.reshape(J, n, L, -1).permute(2, 3, 0, 1)
        top[..., : J * L * n] = blocks.reshape(L, -1, J * L * n)
        if J > 1:
            parts = Mixture(self.knots, slopes, weights).parts.otm(self.k.unsqueeze(-3))
            steps = torch.diff(parts, dim=0) * self.unit  # (J-1, L, m)
            shares = J * L * n + torch.arange((J - 1) * L).reshape(J - 1, L)
            for j in range(J - 1):
                top[at, :, shares[j]] = steps[j]
        bends = torch.func.jacrev(self.bends)(p)
        return torch.cat([top.reshape(-1, p.numel()), bends])


def represent(problem: Problem, steps: int) -> tuple[Tensor, Tensor, float]:
    """Slopes and weights that fit the volatilities, and the RMSE in units of the precision."""
    p, barrier, damping = problem.start, BARRIER, 1e-6

    def merit(q: Tensor) -> Tensor:
        slack = problem.A @ q + problem.a
        if slack.min() <= 0.0:
            return torch.tensor(torch.inf)
        return 0.5 * problem.residual(q).square().sum() - barrier * torch.log(slack).sum()

    for _ in range(steps):
        r, jacobian = problem.residual(p), problem.jacobian(p)
        slack = problem.A @ p + problem.a
        inverse = 1.0 / slack
        gradient = jacobian.T @ r - barrier * (problem.A.T @ inverse)
        curvature = jacobian.T @ jacobian
        curvature += problem.A.T @ (barrier * (inverse**2)[:, None] * problem.A)
        curvature += damping * torch.diag(torch.diagonal(curvature))
        step = -torch.linalg.solve(curvature, gradient)
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
    return slopes, weights, float(problem.errors(slopes, weights).square().mean().sqrt())
