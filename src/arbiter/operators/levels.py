"""Linear regression in which every slice also has a level of its own.

A function is ``f = Φ a + δ`` with ``a ~ N(0, I)`` and one ``δ ~ N(0, s²)`` for each slice: the
clock of a listed market jumps over weekends and runs through reports, which moves the volatilities
of one expiry alone, and no smooth function of maturity follows. Under observations of given weights
the levels can be solved for slice by slice, which leaves a problem of the size of a (Schur's
complement): rows of a slice lose their weighted mean, and the slice's variance is added.

How far levels stray, s, is the chain's own: of a few sizes that is taken under which the
observations are likeliest. Model surfaces have none.

Shapes: B chains, L slices, N quotes of each chain, d coefficients, K sizes.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

import torch
from torch import Tensor

SIZES = (3e-4, 3e-3, 8e-3, 0.02, 0.06)  # of levels, in log-volatility


class Sums(NamedTuple):
    """What observations come to: W their weights, y their values.

    Attributes:
        gram: ``(B, d, d)`` ``ΦᵀWΦ``.
        side: ``(B, d)`` ``ΦᵀWy``.
        rows: ``(B, L, d)`` ``ΦᵀW1`` of each slice.
        mass: ``(B, L)`` ``1ᵀW1`` of each slice.
        level: ``(B, L)`` ``1ᵀWy`` of each slice.
    """

    gram: Tensor
    side: Tensor
    rows: Tensor
    mass: Tensor
    level: Tensor


class Belief(NamedTuple):
    """What is known of coefficients and levels.

    Attributes:
        mean: ``(B, d)`` of the coefficients.
        root: ``(B, d, d)`` R with covariance ``RᵀR``.
        level: ``(B, L)`` mean of the levels.
        lean: ``(B, L, d)`` by how much a level falls where a coefficient rises.
        loose: ``(B, L)`` variance of the levels, the coefficients given.
    """

    mean: Tensor
    root: Tensor
    level: Tensor
    lean: Tensor
    loose: Tensor


class Design(Protocol):
    """Φ: from coefficients to the quotes."""

    def sums(self, weight: Tensor, values: Tensor) -> Sums:
        """Of observations ``(B, N)``, new."""
        ...

    def at(self, belief: Belief) -> tuple[Tensor, Tensor]:
        """``(B, N)`` mean and variance of f at the quotes."""
        ...


class Rows(NamedTuple):
    """A design as it is, ``(B, L, S, d)``; quotes are in that order."""

    rows: Tensor

    def sums(self, weight: Tensor, values: Tensor) -> Sums:
        """Of observations ``(B, L·S)``, new."""
        shape = self.rows.shape[:3]
        loaded = self.rows * weight.view(*shape, 1)
        spoken = weight * values
        flat = self.rows.flatten(1, 2)
        return Sums(
            loaded.flatten(1, 2).mT @ flat,
            (flat.mT @ spoken[..., None])[..., 0],
            loaded.sum(2),
            weight.view(shape).sum(-1),
            spoken.view(shape).sum(-1),
        )

    def at(self, belief: Belief) -> tuple[Tensor, Tensor]:
        """``(B, L·S)`` and ``(B, L·S)``."""
        mean, variance = moments(self.rows, belief)
        return mean.flatten(1), variance.flatten(1)


def moments(rows: Tensor, belief: Belief) -> tuple[Tensor, Tensor]:
    """``(B, L, P)`` mean and variance of f where rows ``(B, L, P, d)`` are those of a slice."""
    mean = (rows @ belief.mean[:, None, :, None])[..., 0] + belief.level[..., None]
    freed = rows - belief.lean[..., None, :]
    variance = (freed @ belief.root.mT[:, None]).square().sum(-1)
    return mean, variance + belief.loose[..., None]


def believed(sums: Sums, size: Tensor) -> Belief:
    """Coefficients and levels after observations, for levels of size ``(B,)``."""
    left = _left(sums, size[:, None])
    one = torch.eye(sums.gram.shape[-1], dtype=size.dtype, device=size.device)
    root = torch.linalg.solve_triangular(left.factor, one.expand_as(sums.gram), upper=False)
    mean = (root.mT @ (root @ left.side[..., None]))[..., 0]
    level = (sums.level - (sums.rows @ mean[..., None])[..., 0]) / left.mass
    return Belief(mean, root, level, sums.rows / left.mass[..., None], 1.0 / left.mass)


def likeliest(sums: Sums) -> Tensor:
    """``(B,)`` the one of :data:`SIZES` under which observations are likeliest."""
    sizes = torch.tensor(SIZES, dtype=sums.mass.dtype, device=sums.mass.device)
    left = _left(sums, sizes[:, None, None])
    solved = torch.linalg.solve_triangular(left.factor, left.side[..., None], upper=False)
    explained = solved.square().sum((-2, -1)) + (sums.level**2 / left.mass).sum(-1)  # (K, B)
    volume = left.factor.diagonal(dim1=-2, dim2=-1).log().sum(-1)
    spread = torch.log(left.mass * sizes[:, None, None] ** 2).sum(-1)
    return sizes[(0.5 * (explained - spread) - volume).argmax(0)]


class _Left(NamedTuple):
    """What is left for the coefficients, levels solved for; a K before each shape, or none.

    Attributes:
        factor: ``(B, d, d)`` Cholesky factor of their precision.
        side: ``(B, d)``
        mass: ``(B, L)`` precision of the levels, the coefficients given.
    """

    factor: Tensor
    side: Tensor
    mass: Tensor


def _left(sums: Sums, size: Tensor) -> _Left:
    mass = sums.mass + size**-2.0
    lean = sums.rows / mass[..., None]
    precision = sums.gram - lean.mT @ sums.rows
    precision.diagonal(dim1=-2, dim2=-1).add_(1.0)
    side = sums.side - (lean.mT @ sums.level[..., None])[..., 0]
    return _Left(torch.linalg.cholesky_ex(precision).L, side, mass)
