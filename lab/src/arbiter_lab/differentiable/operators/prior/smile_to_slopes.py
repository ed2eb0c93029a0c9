"""Where the network starts: slopes of a transport whose smile is a given one.

The torch version of :mod:`arbiter.operators.prior.smile_to_slopes`,
which has the reasons and the glossary.
"""

from __future__ import annotations

from functools import lru_cache

import torch
from torch import Tensor

from arbiter.operators.prior.smile_to_slopes import (
    CORE_COORDINATE,
    CURVATURE_COST,
    FAR_SECANT_WEIGHT,
    MAX_RELATIVE_CORRECTION,
    MAX_WING_LOG_RATIO,
    MIN_RELATIVE_CORRECTION,
    MIN_RELATIVE_RUN,
    MIN_TAIL_PROBABILITY,
    MIN_TAIL_SHARE,
    SECANT_BANDWIDTH_KNOTS,
    VALUE_COST,
    build_smoothness_cost,
)
from arbiter.operators.slope_head import KNOTS
from arbiter_lab.differentiable.pricing import normal


def log_slopes(u: Tensor, place: Tensor, total: Tensor) -> Tensor:
    """Logarithms ``(…, n)`` of slope over ``σ√T`` at the knots, float64.

    Args:
        u: ``(…, H)`` smiles ``log(iv/σ)`` at the places.
        place: ``(H,)`` of ``asinh z``, increasing.
        total: ``(…)`` ``log(σ√T)``.
    """
    u, zeta = u.double().clamp(-MAX_WING_LOG_RATIO, MAX_WING_LOG_RATIO), place.double()
    z = torch.sinh(zeta)
    x = coordinates(u, zeta, total.double())
    run, rise = x.diff(dim=-1), z.diff()
    knots, count, bend = build_knot_tables(u.device)
    spacing = knots[1] - knots[0]
    t = (x - knots[0]) / spacing
    near = _nearness(0.5 * (t[..., 1:] + t[..., :-1]), count[:-1])
    risen, along = (near @ torch.stack([rise.expand_as(run), run], -1)).unbind(-1)
    mean = risen / along  # of secants rise/run, weighed by run
    wide = torch.cat([run[..., :1], 0.5 * (run[..., 1:] + run[..., :-1]), run[..., -1:]], -1)
    weight = torch.exp(-2.0 * u) * wide / (1.0 + (x / CORE_COORDINATE) ** 2) ** 2
    A, root = _integrals(t, count), torch.sqrt(weight)[..., None]  # (…, H, n + 1)
    guess = torch.nn.functional.pad(mean * spacing, (0, 1))[..., None]  # no constant yet
    off = root * (z[:, None] - A @ guess)
    A.mul_(root)
    unit = guess + count[:, None].lt(0.0)  # of each correction: the guess, for the constant one
    P = (A.mT @ A).mul_(unit).mul_(unit.mT).add_(bend)
    found = torch.cholesky_solve((A.mT @ off).mul_(unit), torch.linalg.cholesky_ex(P).L)
    return torch.log(mean) + torch.log1p(
        found[..., :-1, 0].clamp(MIN_RELATIVE_CORRECTION, MAX_RELATIVE_CORRECTION)
    )


def coordinates(u: Tensor, zeta: Tensor, total: Tensor) -> Tensor:
    """``(…, H)`` Gaussian coordinates x of the strikes, increasing."""
    z, level = torch.sinh(zeta), torch.exp(u)
    y = z / level + 0.5 * level * torch.exp(total)[..., None]
    inner = (u[..., 2:] - u[..., :-2]) / (zeta[2:] - zeta[:-2]) / torch.cosh(zeta[1:-1])
    lean = level * torch.cat([inner[..., :1], inner, inner[..., -1:]], -1)
    bell = normal.pdf(y) * lean
    below, above = normal.cdf(y), normal.cdf(-y)
    below, above = (
        torch.maximum(side + sign * bell, MIN_TAIL_SHARE * side).clamp(min=MIN_TAIL_PROBABILITY)
        for side, sign in ((below, 1.0), (above, -1.0))
    )
    low = below < above
    tail = normal.quantile(torch.where(low, below, above).clamp(max=0.5))
    x = torch.where(low, tail, -tail)
    run = torch.maximum(x.diff(dim=-1), MIN_RELATIVE_RUN * z.diff() / level[..., 1:])
    rising = torch.nn.functional.pad(run.cumsum(-1), (1, 0))
    money = int(zeta.abs().argmin())
    return rising - rising[..., money, None] + x[..., money, None]


def integrals(x: Tensor, knots: Tensor) -> Tensor:
    """``(…, n)`` integrals from the left of the hats at the knots, the outermost flat beyond.

    But for a constant: that of the first hat is from its knot.
    """
    spacing = knots[1] - knots[0]
    return _integrals((x - knots[0]) / spacing, _counted(len(knots), x))[..., :-1] * spacing


def _integrals(t: Tensor, count: Tensor) -> Tensor:
    """``(…, n + 1)`` the same at places t, in knots, for a spacing of one; the last are ones.

    In place, since memory costs more than arithmetic here.
    """
    away = (t[..., None] - count).clamp_(-1.0, 1.0)
    hats = away.addcmul_(away, away.abs(), value=-0.5).add_(0.5)
    last = t - count[-2]
    hats[..., 0] = torch.where(t < 0.0, t, hats[..., 0] - 0.5)
    hats[..., -2] = torch.where(last < 0.0, hats[..., -2], last + 0.5)
    return hats


def _nearness(t: Tensor, count: Tensor) -> Tensor:
    """``(…, n, H)`` weights of secants at places t ``(…, H)``, in knots, for each knot."""
    away = count[:, None] - t[..., None, :]
    near = away.square().mul_(-0.5 / SECANT_BANDWIDTH_KNOTS**2).exp_()
    return near.add_(away.abs_().neg_().exp_(), alpha=FAR_SECANT_WEIGHT)


def knots(device: torch.device) -> Tensor:
    """``(n,)`` the knots, float64."""
    return build_knot_tables(device)[0]


@lru_cache(maxsize=8)
def build_knot_tables(device: torch.device) -> tuple[Tensor, Tensor, Tensor]:
    """Knots ``(n,)``, numbers ``(n + 1,)``, and what corrections cost, ``(n + 1, n + 1)``.

    The last correction is that of where the transport is at zero, which costs nothing.
    """
    with torch.inference_mode(False):
        knots = torch.tensor(KNOTS, dtype=torch.float64, device=device)
        cost = torch.from_numpy(build_smoothness_cost(CURVATURE_COST, VALUE_COST)).to(device)
        return (
            knots,
            _counted(len(knots), knots),
            torch.nn.functional.pad(cost, (0, 1, 0, 1))
            + 1e-9 * torch.eye(len(knots) + 1, dtype=torch.float64, device=device),
        )


def _counted(size: int, like: Tensor) -> Tensor:
    """Numbers of knots, and of a hat so far left that its integral is one at every place."""
    return torch.tensor([*range(size), -1e6], dtype=like.dtype, device=like.device)
