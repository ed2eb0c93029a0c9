"""Kriging of quotes in one row: as :mod:`arbiter.operators.kriging`, to rounding, and quicker.

Of the cubic splines at a quote four are not zero, so that sums over the quotes of a slice are those
of a few products, E of each slice. With ``G = ΦF`` at its nodes, ``(NZ, d)``, and the Cholesky
factor C of ``P = I + Σ GᵀEG``, the two quadratic forms of the scale are sums of squares of
``G C⁻ᵀ`` and of ``G V``, which are known for all slices once they are for the splines of the clock
that are not zero at any of them.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from arbiter.operators import kriging, start
from arbiter.operators.flat import Flat
from arbiter.operators.kriging import CLOCK, CLOCKS, KRIGED_ROWS, STRIKES, ZETA
from arbiter.operators.reference import FARTHEST

Array = NDArray[np.float64]


class Guess(NamedTuple):
    """The best linear guess of B chains; but for the last three, what the geometry decides.

    Attributes:
        node: ``(4N,)`` of each quote's slice: the four splines that are not zero there.
        loaded: ``(4, N)`` these splines times the quote's weight.
        there: ``(B, L·NZ, d)`` G.
        answered: ``(B, L·NZ, d)`` GV.
        scale: ``(B, L, 2H)`` what keeps each row within its bound.
        doubt: ``(B, L, H)`` logarithm of the standard error of the guess at each head.
        rows: ``(B, L, 2H)`` the guess of u at each head and its slopes, as :meth:`Kriging.krige`.
        smile: ``(B, L, H)`` the guess at each head.
        start: ``(B, L, n)`` logarithm of slope over ``σ√T`` of a transport with that smile.
    """

    node: NDArray[np.int64]
    loaded: Array
    there: Tensor
    answered: Tensor
    scale: Tensor
    doubt: Tensor
    rows: Tensor
    smile: Tensor
    start: Tensor


class Kriging:
    """All that is known before any quote.

    Args:
        place: ``(H,)`` of the heads.
    """

    def __init__(self, place: Tensor) -> None:
        self.place, self.heads = place, len(place)
        F = kriging.factor(torch.device("cpu"))  # (NZ, NW, d)
        self.by_clock = F.transpose(0, 1).contiguous()  # (NW, NZ, d)
        self.read = kriging.readers(place)  # (2H, NZ)
        self.squares = (self.read[:, :, None] * self.read[:, None, :]).flatten(1).T.contiguous()
        self.one = torch.eye(F.shape[-1], dtype=torch.float64)

    def __call__(self, batch: Flat) -> Guess:
        """What kriging is for a batch."""
        chain = batch.chain
        B, L = chain.total.shape
        M, d = B * L, self.one.shape[0]
        left, basis = near_splines(batch.zeta.numpy(), ZETA, STRIKES)  # (N,), (4, N)
        noise = torch.exp(2.0 * batch.noise).numpy()
        weight = 1.0 / (kriging._SHARE * noise + kriging._NUGGET**2)
        loaded = basis * weight
        first = batch.row.numpy() * STRIKES + left
        each = torch.from_numpy(_products(first, basis, loaded, M))  # (M, NZ, NZ)
        clock = kriging.splines(chain.total, CLOCK, CLOCKS)  # (B, L, NW)
        G = (clock.view(M, CLOCKS) @ self.by_clock.flatten(1)).view(M, STRIKES, d)
        there = G.view(B, L * STRIKES, d)
        P = torch.baddbmm(self.one, there.mT, (each @ G).view(B, L * STRIKES, d))
        factor = torch.linalg.cholesky_ex(P).L
        ones = self.one.expand_as(factor)
        inverse = torch.linalg.solve_triangular(factor, ones, upper=False).contiguous()
        ticks = (clock != 0.0).flatten(0, 1).any(0).nonzero()[:, 0]  # not zero somewhere
        first_tick, end = int(ticks[0]), int(ticks[-1]) + 1
        clock = clock[..., first_tick:end]
        half = self.by_clock[first_tick:end].flatten(0, 1) @ inverse.mT  # (B, ticks·NZ, d)
        halves, wholes = (
            (clock @ part.view(B, end - first_tick, -1)).view(M, STRIKES, d)
            for part in (half, half @ inverse)
        )
        squares = halves @ halves.mT, wholes @ wholes.mT  # (M, NZ, NZ) of V and of V²
        variance = squares[0].flatten(1) @ self.squares[:, : self.heads]
        moved = (squares[0] - squares[1]).flatten(1) @ self.squares  # (M, 2H)
        total = np.bincount(batch.row.numpy() // L, weight, minlength=B)
        most = torch.sqrt(
            moved.clamp_(min=1e-300).view(B, L, -1) * torch.from_numpy(total)[:, None, None]
        )
        scale = (KRIGED_ROWS / most).clamp_(max=1.0)
        doubt = 0.5 * torch.log(variance.clamp_(min=1e-12)).view(B, L, -1)
        node = (first + np.arange(4)[:, None]).ravel()
        answered = wholes.view(B, L * STRIKES, d)
        spoken = _smiles(node, loaded, there, answered, batch.u) @ self.read.T
        smile = spoken[..., : self.heads].clamp(-FARTHEST, FARTHEST)
        begun = start.log_slopes(smile, self.place, chain.total)
        rows = spoken.mul_(scale)
        return Guess(node, loaded, there, answered, scale, doubt, rows, smile, begun)

    def krige(self, guess: Guess, values: Tensor) -> Tensor:
        """``(B, L, 2H)`` values and slopes of the guess from values ``(N,)`` at the quotes."""
        smiles = _smiles(guess.node, guess.loaded, guess.there, guess.answered, values)
        return smiles @ self.read.T * guess.scale


def _smiles(
    node: NDArray[np.int64], loaded: Array, there: Tensor, answered: Tensor, values: Tensor
) -> Tensor:
    """``(B, L, NZ)`` coefficients along strikes of each slice of the guess."""
    B, nodes, _ = there.shape
    spoken = (loaded * values.numpy()).ravel()
    sums = np.bincount(node, spoken, minlength=B * nodes)
    moments = torch.from_numpy(sums).view(B, 1, nodes) @ there  # (B, 1, d)
    return (answered @ moments.mT).view(B, -1, STRIKES)


def near_splines(
    x: Array, ends: tuple[float, float], count: int
) -> tuple[NDArray[np.int64], Array]:
    """The first of the four cubic B-splines that are not zero at x ``(N,)``, and all ``(4, N)``."""
    low, high = ends
    t = (np.clip(x, low, high) - low) * ((count - 3) / (high - low))
    left = np.fmin(np.fmax(t, 0.0), count - 4.0).astype(np.int64)  # a NaN is left to the values
    f = t - left
    g, ff = 1.0 - f, f * f
    basis = np.empty((4, x.size))
    basis[0] = g * g * g / 6.0
    basis[3] = ff * f / 6.0
    basis[1] = 2.0 / 3.0 - ff * (1.0 - 0.5 * f)
    basis[2] = 2.0 / 3.0 - g * g * (1.0 - 0.5 * g)
    return left, basis


def _products(first: NDArray[np.int64], basis: Array, loaded: Array, slices: int) -> Array:
    """``(M, NZ, NZ)`` sums over the quotes of each slice of weighted products of splines."""
    each = loaded[:, None] * basis  # (4, 4, N)
    corner = first // STRIKES * STRIKES**2 + first % STRIKES * (STRIKES + 1)
    at = corner + (STRIKES * np.arange(4)[:, None, None] + np.arange(4)[:, None])
    sums = np.bincount(at.ravel(), each.ravel(), minlength=slices * STRIKES**2)
    return np.asarray(sums, np.float64).reshape(slices, STRIKES, STRIKES)
