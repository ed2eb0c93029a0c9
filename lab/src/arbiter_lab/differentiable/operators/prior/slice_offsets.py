"""Linear regression in which every slice also has a level of its own.

The torch version of :mod:`arbiter.operators.prior.slice_offsets`,
which has the reasons and the glossary.

Shapes: B chains, L slices, N quotes of each chain, d coefficients, K values that are compared.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from arbiter.operators.prior.slice_offsets import (
    INITIAL_PRIOR_SCALE,
    MIN_LIKELIHOOD_SHARE,
    OFFSET_DEVIATIONS,
    PRIOR_SCALES,
)


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


class Rows(NamedTuple):
    """Φ, from coefficients to the quotes: ``(B, L, S, d)``, quotes in that order."""

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


def at_splines(slices: Tensor, belief: Belief) -> tuple[Tensor, Tensor]:
    """``(B, L, NZ)`` means and ``(B, L, NZ, NZ)`` covariances of f by the splines of each slice.

    Args:
        slices: ``(B, L, NZ, d)`` from coefficients to splines that add up to one.
        belief: What is known.
    """
    shape, flat = slices.shape, slices.flatten(1, 2)
    mean = (flat @ belief.mean[..., None]).view(shape[:3]) + belief.level[..., None]
    freed = (slices - belief.lean[..., None, :]).flatten(1, 2)
    halves = (freed @ belief.root.mT).view(-1, *shape[2:])
    covariance = torch.baddbmm(belief.loose.view(-1, 1, 1), halves, halves.mT)
    return mean, covariance.view(*shape[:3], shape[2])


class Prior(NamedTuple):
    """What is assumed of a chain.

    Attributes:
        uneven: ``(B,)`` s, the deviation of levels.
        wild: ``(B,)`` τ, the deviation of coefficients.
    """

    uneven: Tensor
    wild: Tensor


def believed(sums: Sums, prior: Prior) -> Belief:
    """Coefficients and levels after observations."""
    left = _left(sums, prior)
    one = torch.eye(sums.gram.shape[-1], dtype=left.mass.dtype, device=left.mass.device)
    root = torch.linalg.solve_triangular(left.factor, one.expand_as(sums.gram), upper=False)
    mean = (root.mT @ (root @ left.side[..., None]))[..., 0]
    level = (sums.level - (sums.rows @ mean[..., None])[..., 0]) / left.mass
    return Belief(mean, root, level, left.lean, 1.0 / left.mass)


def likeliest(sums: Sums) -> Prior:
    """Means of :data:`OFFSET_DEVIATIONS` and :data:`PRIOR_SCALES`, weighed by likelihood."""
    mass = sums.mass
    sizes, wilds = (
        torch.tensor(x, dtype=mass.dtype, device=mass.device)
        for x in (OFFSET_DEVIATIONS, PRIOR_SCALES)
    )
    each, undecided = (
        sizes[:, None].expand(-1, len(mass)),
        torch.full_like(mass[:1, 0], INITIAL_PRIOR_SCALE),
    )
    height = evidence(sums, Prior(each, undecided.expand_as(each)))
    uneven = torch.exp(torch.log(sizes) @ shares(height))
    each = wilds[:, None].expand(-1, len(mass))
    height = evidence(sums, Prior(uneven.expand_as(each), each))
    return Prior(uneven, torch.exp(torch.log(wilds) @ shares(cut_beyond_unlikely(height))))


def shares(score: Tensor) -> Tensor:
    """``(K, B)`` what each counts for, of log-likelihoods ``(K, B)``; they add up to one.

    Likelihoods less :data:`MIN_LIKELIHOOD_SHARE` of the largest: what is far from likely need not
    be looked at, and nothing jumps.
    """
    weight = (torch.exp(score - score.amax(0)) - MIN_LIKELIHOOD_SHARE).clamp(min=0.0)
    return weight / weight.sum(0)


def cut_beyond_unlikely(height: Tensor) -> Tensor:
    """Heights ``(K, B)``, and none of values that lie beyond one that counts for nothing.

    Seen from the middle, down and up: so one need not look any farther.
    """
    middle = min(range(len(PRIOR_SCALES)), key=lambda i: abs(PRIOR_SCALES[i] - INITIAL_PRIOR_SCALE))
    found, most = height.clone(), height[middle]
    for way in (range(middle - 1, -1, -1), range(middle + 1, len(PRIOR_SCALES))):
        on = torch.ones_like(most, dtype=torch.bool)
        for i in way:
            found[i] = torch.where(on, height[i], -torch.inf)
            most = torch.maximum(most, found[i])
            on = on & (height[i] - most > math.log(MIN_LIKELIHOOD_SHARE))
    return found


def evidence(sums: Sums, prior: Prior) -> Tensor:
    """``(K, B)`` log-likelihood of observations under priors ``(K, B)``, but for a constant."""
    left = _left(sums, prior)
    solved = torch.linalg.solve_triangular(left.factor, left.side[..., None], upper=False)
    explained = solved.square().sum((-2, -1)) + (sums.level**2 / left.mass).sum(-1)
    volume = left.factor.diagonal(dim1=-2, dim2=-1).log().sum(-1)
    volume = volume + sums.side.shape[-1] * torch.log(prior.wild)
    spread = torch.log(left.mass * prior.uneven[..., None] ** 2).sum(-1)
    found: Tensor = 0.5 * (explained - spread) - volume
    return found


class _Left(NamedTuple):
    """What is left for the coefficients, levels solved for; a K before each shape, or none.

    Attributes:
        factor: ``(B, d, d)`` Cholesky factor of their precision.
        side: ``(B, d)``
        mass: ``(B, L)`` precision of the levels, the coefficients given.
        lean: ``(B, L, d)`` by how much a level falls where a coefficient rises.
    """

    factor: Tensor
    side: Tensor
    mass: Tensor
    lean: Tensor


def _left(sums: Sums, prior: Prior) -> _Left:
    mass = sums.mass + prior.uneven[..., None] ** -2.0
    lean = sums.rows / mass[..., None]
    precision = sums.gram - lean.mT @ sums.rows
    precision.diagonal(dim1=-2, dim2=-1).add_(prior.wild[..., None] ** -2.0)
    side = sums.side - (lean.mT @ sums.level[..., None])[..., 0]
    return _Left(torch.linalg.cholesky_ex(precision).L, side, mass, lean)
