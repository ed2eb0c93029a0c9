"""Where the network starts: slopes of a transport whose smile is a given one.

Black's formula gives every strike its Gaussian coordinate: with total volatility ``v(k)`` and
``y = k/v + v/2``, the law below the strike weighs ``Φ(y) + φ(y) v'(k)``, and x is the Gaussian
quantile of that. Through the pairs ``(x_j, z_j)`` of a few strikes goes a transport, ``z(x)`` being
the integral of slopes that are linear between knots: a small linear least-squares problem, one for
each slice. The first guess is a local average of the secant slopes, and what is solved for are its
relative corrections, held to be smooth.

A smile may be arbitraged, or run into the tails, where coordinates are a matter of a few parts in a
million: no tail loses more than all but :data:`_SHARE` of its lognormal mass, and no secant slope
exceeds its lognormal one by more than ``1/_FLATTEST``.
"""

from __future__ import annotations

from functools import lru_cache

import torch
from torch import Tensor

from arbiter import normal
from arbiter.operators.head import KNOTS

_SHARE = 0.07
_FLATTEST = 0.1
_FARTHEST = 2.0  # of log-volatility over reference: no smile is steeper in its wings
_BLUR = 0.8  # width of the local average, in knots
_FAR = 1e-12  # weight of far secants, for knots that none is near
_BEND, _CHANGE = 1e-2, 1e-4  # what second differences and values of corrections cost
_CORE = 1.5  # coordinates within which strikes count in full
_LEAST, _MOST = -0.6, 1.0  # relative corrections


def log_slopes(u: Tensor, place: Tensor, total: Tensor) -> Tensor:
    """Logarithms ``(…, n)`` of slope over ``σ√T`` at the knots, float64.

    Args:
        u: ``(…, H)`` smiles ``log(iv/σ)`` at the places.
        place: ``(H,)`` of ``asinh z``, increasing.
        total: ``(…)`` ``log(σ√T)``.
    """
    u, zeta = u.double().clamp(-_FARTHEST, _FARTHEST), place.double()
    z = torch.sinh(zeta)
    x = coordinates(u, zeta, total.double())
    run, rise = x.diff(dim=-1), z.diff()
    knots, bend = _knots(u.device)
    middle = 0.5 * (x[..., 1:] + x[..., :-1])
    away = (knots[:, None] - middle[..., None, :]) / (knots[1] - knots[0])  # (…, n, H − 1)
    near = torch.exp(-0.5 * (away / _BLUR) ** 2) + _FAR * torch.exp(-away.abs())
    mean = (near @ rise) / (near @ run[..., None])[..., 0]  # of secants rise/run, weighed by run
    A = integrals(x, knots) * mean[..., None, :]
    off = z - A.sum(-1)
    A = torch.cat([A, torch.ones_like(A[..., :1])], -1)  # and where the transport is at zero
    wide = torch.cat([run[..., :1], 0.5 * (run[..., 1:] + run[..., :-1]), run[..., -1:]], -1)
    weight = torch.exp(-2.0 * u) * wide / (1.0 + (x / _CORE) ** 2) ** 2
    loaded = (A * weight[..., None]).transpose(-1, -2)
    P = loaded @ A + bend
    found = torch.cholesky_solve(loaded @ off[..., None], torch.linalg.cholesky_ex(P).L)
    return torch.log(mean) + torch.log1p(found[..., :-1, 0].clamp(_LEAST, _MOST))


def coordinates(u: Tensor, zeta: Tensor, total: Tensor) -> Tensor:
    """``(…, H)`` Gaussian coordinates x of the strikes, increasing."""
    z, level = torch.sinh(zeta), torch.exp(u)
    y = z / level + 0.5 * level * torch.exp(total)[..., None]
    inner = (u[..., 2:] - u[..., :-2]) / (zeta[2:] - zeta[:-2]) / torch.cosh(zeta[1:-1])
    lean = level * torch.cat([inner[..., :1], inner, inner[..., -1:]], -1)
    bell = normal.pdf(y) * lean
    below, above = normal.cdf(y), normal.cdf(-y)
    below, above = (
        torch.maximum(side + sign * bell, _SHARE * side).clamp(min=1e-300)
        for side, sign in ((below, 1.0), (above, -1.0))
    )
    x = torch.where(
        below < above,
        normal.quantile(below.clamp(max=0.5)),
        -normal.quantile(above.clamp(max=0.5)),
    )
    run = torch.maximum(x.diff(dim=-1), _FLATTEST * z.diff() / level[..., 1:])
    rising = torch.nn.functional.pad(run.cumsum(-1), (1, 0))
    money = int(zeta.abs().argmin())
    return rising - rising[..., money, None] + x[..., money, None]


def integrals(x: Tensor, knots: Tensor) -> Tensor:
    """``(…, n)`` integrals from the left of the hats at the knots, the outermost flat beyond.

    But for a constant: that of the first hat is from its knot.
    """
    spacing = knots[1] - knots[0]
    t = (x[..., None] - knots) / spacing
    up, down = t.clamp(-1.0, 0.0), t.clamp(0.0, 1.0)
    hats = 0.5 * (1.0 + up) ** 2 + down * (1.0 - 0.5 * down)
    first, last = t[..., 0], t[..., -1]
    hats[..., 0] += first.clamp(max=0.0) - 0.5 * (1.0 + up[..., 0]) ** 2
    hats[..., -1] += last.clamp(min=0.0) - down[..., -1] * (1.0 - 0.5 * down[..., -1])
    return hats * spacing


@lru_cache(maxsize=8)
def _knots(device: torch.device) -> tuple[Tensor, Tensor]:
    """Knots ``(n,)``, and what corrections cost, ``(n + 1, n + 1)``: the constant nothing."""
    with torch.inference_mode(False):
        knots = torch.tensor(KNOTS, dtype=torch.float64, device=device)
        one = torch.eye(len(knots), dtype=torch.float64, device=device)
        second = one.diff(n=2, dim=0)
        cost = _BEND * second.T @ second + _CHANGE * one
        return knots, torch.nn.functional.pad(cost, (0, 1, 0, 1)) + 1e-9 * torch.eye(
            len(knots) + 1, dtype=torch.float64, device=device
        )
