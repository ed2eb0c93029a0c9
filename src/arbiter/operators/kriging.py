"""Kriging: the best linear guess of a whole surface, from what surfaces of the universe are like.

Gaussian-process regression in a fixed basis. In the chain's own units a surface is a function
``u(ζ, w)`` of ``ζ = asinh z`` and ``w = log(σ√T)``, here a product spline with coefficients
``F a``: the factor F holds the covariance of such functions over the training universe
(:mod:`arbiter.training.covariance`), so that a has unit variances. Quotes with half-spreads ν weigh
``W = 1/(share·ν² + nugget²)``, and

    a = (I + FᵀΦᵀWΦF)⁻¹ FᵀΦᵀW u.

For given strikes, maturities and spreads this is linear in what the quotes say. The smile that it
guesses is the network's reference, and the slopes of a transport with that smile
(:mod:`arbiter.operators.start`) are where the network starts.

The value and slope of the guess at every head are rows of it; by Cauchy and Schwarz the absolute
sum of a row is at most ``√(ψᵀ(V − V²)ψ·ΣW)``, V the inverse above, and a row for which that exceeds
:data:`KRIGED_ROWS` is scaled down to it before a look hears it (docs/operator-architecture.md).
It all is geometry but for the last product: nothing here is trained by gradients.
"""

from __future__ import annotations

from functools import lru_cache
from importlib.resources import files
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from arbiter.operators import start
from arbiter.operators.reference import FARTHEST, Scaled

KRIGED_ROWS = 10.0  # how far a kriged number moves when all quotes move by one, at most
ZETA, CLOCK = (-3.8, 2.6), (-6.8, 0.5)  # ζ and w between which the basis lives
STRIKES, CLOCKS = 16, 17  # splines along each
_SHARE = 0.4  # of the squared half-spread: a mid is somewhere between bid and ask
_NUGGET = 5e-3  # relative error that no quote is better than: what the basis cannot follow


class Kriged(NamedTuple):
    """The best linear guess of B chains.

    All but the last two is decided by the geometry alone. The last two are the network's reference,
    which a Lipschitz constant holds fixed as it does σ.

    Attributes:
        loaded: ``(B, L, S, NZ)`` splines along strikes at the quotes, times their weights.
        clock: ``(B, L, NW)`` splines along the clock at the slices.
        solution: ``(B, d, d)`` V.
        scale: ``(B, L, 2H)`` what keeps each row within :data:`KRIGED_ROWS`.
        doubt: ``(B, L, H)`` logarithm of the standard error of the guess at each head.
        smile: ``(B, L, H)`` the guess of ``log(iv/σ)`` at each head.
        start: ``(B, L, n)`` logarithm of slope over ``σ√T`` of a transport with that smile.
    """

    loaded: Tensor
    clock: Tensor
    solution: Tensor
    scale: Tensor
    doubt: Tensor
    smile: Tensor
    start: Tensor


@lru_cache(maxsize=8)
def factor(device: torch.device) -> Tensor:
    """``(NZ, NW, d)`` F of the training universe, that the package ships."""
    with (files("arbiter.data") / "kernel.npy").open("rb") as file:
        try:
            array = np.load(file, allow_pickle=False)
        except ValueError as error:
            raise ValueError(f"kernel.npy of this installation is damaged: {error}") from error
    if array.ndim != 3 or array.shape[:2] != (STRIKES, CLOCKS) or not np.isfinite(array).all():
        raise ValueError(f"kernel.npy of this installation is {array.shape}, not a factor")
    with torch.inference_mode(False):  # whoever asks first, others may differentiate through it
        return torch.from_numpy(array.astype(np.float64)).to(device)


def splines(x: Tensor, ends: tuple[float, float], count: int) -> Tensor:
    """``(…, count)`` cubic B-splines on even knots at x, which is cut at the ends."""
    low, high = ends
    t = (x.clamp(low, high) - low) * ((count - 3) / (high - low))
    away = (t[..., None] + 1.0 - torch.arange(count, dtype=x.dtype, device=x.device)).abs()
    inner, outer = (1.0 - away).clamp(min=0.0), (2.0 - away).clamp(min=0.0)
    return (outer**3 - 4.0 * inner**3) / 6.0


def weights(chain: Scaled) -> Tensor:
    """``(B, L, S)`` precision of each quote, zero where there is none."""
    return chain.quoted / (_SHARE * torch.exp(2.0 * chain.noise) + _NUGGET**2)


def gram(basis: Tensor, loaded: Tensor, clock: Tensor) -> Tensor:
    """``(B, NZ·NW, NZ·NW)`` ``ΦᵀWΦ``, slice by slice a product of the two directions."""
    each = loaded.transpose(-1, -2) @ basis  # (B, L, NZ, NZ)
    pairs = (clock[..., :, None] * clock[..., None, :]).flatten(-2)  # (B, L, NW²)
    both = each.flatten(-2).transpose(-1, -2) @ pairs  # (B, NZ², NW²)
    size = basis.shape[-1], basis.shape[-1], clock.shape[-1], clock.shape[-1]
    split: Tensor = both.unflatten(-2, size[:2]).unflatten(-1, size[2:])  # (B, NZ, NZ, NW, NW)
    return split.transpose(-3, -2).flatten(-2).flatten(-3, -2)


def readers(place: Tensor) -> Tensor:
    """``(2H, NZ)`` from coefficients along strikes to values at heads, and slopes times spacing."""
    place = place.double()
    spacing, step = place[1] - place[0], 1e-3
    at = splines(place, ZETA, STRIKES)
    ahead, behind = (splines(place + s, ZETA, STRIKES) for s in (step, -step))
    return torch.cat([at, (ahead - behind) * (spacing / (2.0 * step))])


@torch.no_grad()
def kriged(chain: Scaled, place: Tensor) -> Kriged:
    """What kriging is for chains, at heads ``(H,)`` of ζ."""
    zeta, total = chain.zeta.double(), chain.total.double()
    F = factor(zeta.device)
    basis, clock = splines(zeta, ZETA, STRIKES), splines(total, CLOCK, CLOCKS)
    weight = weights(chain).double()
    loaded = basis * weight[..., None]
    flat = F.flatten(0, 1)  # (D, d)
    P = flat.T @ gram(basis, loaded, clock) @ flat
    P.diagonal(dim1=-2, dim2=-1).add_(1.0)
    V = torch.cholesky_inverse(torch.linalg.cholesky_ex(P).L)
    read = readers(place.to(zeta.device))
    heads = len(place)
    variance = _diagonal(flat @ V @ flat.T, clock, read[:heads])
    moved = _diagonal(flat @ (V - V @ V) @ flat.T, clock, read)
    most = torch.sqrt(moved.clamp(min=1e-300) * weight.sum((1, 2))[:, None, None])
    scale = (KRIGED_ROWS / most).clamp(max=1.0)
    doubt = 0.5 * torch.log(variance.clamp(min=1e-12))
    smile = (_smiles(loaded, clock, V, chain.u) @ read[:heads].T).clamp(-FARTHEST, FARTHEST)
    begun = start.log_slopes(smile, place.to(zeta.device), total)
    return Kriged(loaded, clock, V, scale, doubt, smile.to(chain.u.dtype), begun.to(chain.u.dtype))


def _diagonal(matrix: Tensor, clock: Tensor, read: Tensor) -> Tensor:
    """``(B, L, R)`` quadratic forms of the readers' rows at each slice."""
    NZ, NW = read.shape[-1], clock.shape[-1]
    pairs = (clock[..., :, None] * clock[..., None, :]).flatten(-2)  # (B, L, NW²)
    split = matrix.unflatten(-2, (NZ, NW)).unflatten(-1, (NZ, NW)).transpose(-3, -2)
    each: Tensor = pairs @ split.flatten(-4, -3).flatten(-2).transpose(-1, -2)  # (B, L, NZ²)
    squares = (read[:, :, None] * read[:, None, :]).flatten(1)  # (R, NZ²)
    return each @ squares.T


def krige(found: Kriged, values: Tensor, place: Tensor) -> Tensor:
    """``(B, L, 2H)`` values and slopes of the guess from values ``(B, L, S)`` at the quotes."""
    smiles = _smiles(found.loaded, found.clock, found.solution, values)
    return smiles @ readers(place).T * found.scale


def _smiles(loaded: Tensor, clock: Tensor, solution: Tensor, values: Tensor) -> Tensor:
    """``(B, L, NZ)`` coefficients along strikes of each slice of the guess."""
    flat = factor(values.device).flatten(0, 1)
    by_slice = (values.double()[..., None, :] @ loaded)[..., 0, :]  # (B, L, NZ)
    moments = by_slice.transpose(-1, -2) @ clock  # (B, NZ, NW)
    a = (moments.flatten(1) @ flat)[:, None] @ solution  # (B, 1, d)
    surface: Tensor = (a @ flat.T).unflatten(-1, moments.shape[1:])[:, 0]  # (B, NZ, NW)
    return clock @ surface.transpose(-1, -2)


def rows(found: Kriged, place: Tensor) -> Tensor:
    """``(B, L, 2H, L, S)`` the matrix of :func:`krige`."""
    F = factor(found.clock.device)
    read = torch.einsum("rz,zwd->rwd", readers(place), F)
    out = torch.einsum("blw,rwd->blrd", found.clock, read) * found.scale[..., None]
    enter = torch.einsum("blsz,blw,zwd->blsd", found.loaded, found.clock, F)
    return torch.einsum("blrd,bde,bmse->blrms", out, found.solution, enter)
