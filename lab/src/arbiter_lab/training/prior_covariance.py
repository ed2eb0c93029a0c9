"""The covariance of surfaces over the training universe, which kriging rests on.

Batches are drawn as for training, and every surface of them is a function of ``ζ = asinh z`` and
``w = log(σ√T)``, seen where it has quotes or targets. Expectation maximisation gives the second
moment of the coefficients of such functions in the splines of
:mod:`arbiter.operators.prior.gaussian_process`, each surface known on a part of the plane only. A
smooth covariance of the weight of a few surfaces keeps corners tame that hardly any of them
reaches.

A universe is no Gaussian: a few surfaces are far wilder than the rest, and make everything look
likelier than it is. So it is taken for a mixture of a few Gaussians, and the one that most surfaces
belong to is kept.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from arbiter.operators.prior.gaussian_process import CLOCK, CLOCKS, STRIKES, ZETA
from arbiter.operators.prior.reference_volatility import MAX_LOG_VOLATILITY_RATIO
from arbiter_lab.differentiable.operators.prior.gaussian_process import splines
from arbiter_lab.differentiable.operators.prior.reference_volatility import scaled
from arbiter_lab.differentiable.operators.quote_tensors import Ragged
from arbiter_lab.training.batch_stream import make_generator
from arbiter_lab.training.batches import Batch, BatchLayout, draw_batch
from arbiter_lab.training.law_pool import Laws

LAYOUT_SHARES = (
    (BatchLayout(8, 16, 24), 0.15),
    (BatchLayout(14, 33, 24), 0.3),
    (BatchLayout(16, 41, 24), 0.3),
    (BatchLayout(28, 64, 32), 0.2),
    (BatchLayout(56, 96, 40), 0.05),
)
MIXTURE_COMPONENTS = 4  # Gaussians of the mixture
_SPLINE_RELATIVE_ERROR = 1.5e-3  # relative error with which the splines are asked to follow
_SMOOTH_PRIOR_SURFACES = 30.0  # surfaces that the smooth covariance weighs as much as
_SMOOTH_DEVIATION, _SMOOTH_LENGTH_SPLINES = 0.3, 2.0  # its deviation, and its length in splines
MAX_COEFFICIENT = (
    2.0  # coefficients beyond are unlikely, whatever the universe: none is seen that large
)
_MIN_COEFFICIENT_DEVIATION = 1e-4  # deviation that every coefficient has at least
_COMMON_PRIOR_SURFACES = (
    60.0  # surfaces that the covariance of all weighs as much as, in that of one kind
)
_CLUSTER_DIRECTIONS, _CLUSTER_ROUNDS = (
    24,
    25,
)  # directions and rounds of the first division into kinds
_SURFACES_PER_CHUNK = 128


class NormalEquations(NamedTuple):
    """Partial views of N surfaces, as normal equations of their d coefficients."""

    grams: Tensor
    """``(N, d, d)``"""
    sides: Tensor
    """``(N, d)``"""


def covariance_factor(
    laws: Laws,
    surfaces: int,
    rank: int = 96,
    iterations: int = 40,
    seed: int = 0,
    told: Callable[[int], None] = lambda _: None,
) -> Tensor:
    """``(NZ, NW, rank)`` F with ``F Fᵀ`` the second moment of the coefficients of most surfaces.

    Args:
        laws: The universe.
        surfaces: Number of surfaces drawn.
        rank: Number of columns of F.
        iterations: Iterations of expectation maximisation.
        seed: Seed of the draws.
        told: Called with the number of each iteration.
    """
    views = _draw_normal_equations(laws, surfaces, seed)
    moment = second_moment(views, smooth_covariance(views.grams.device), iterations, told)
    values, vectors = torch.linalg.eigh(moment)
    leading = vectors[:, -rank:] * values[-rank:].clamp(min=0.0).sqrt()
    leading = leading.flip(1)
    inside = NormalEquations(leading.T @ views.grams @ leading, views.sides @ leading)
    bound = leading.T @ leading / MAX_COEFFICIENT**2
    usual = dominant_second_moment(inside, bound, MIXTURE_COMPONENTS, max(1, iterations // 4), seed)
    values, vectors = torch.linalg.eigh(usual)
    usual = leading @ (vectors * values.clamp(min=0.0).sqrt())
    directions, sizes, _ = torch.linalg.svd(usual, full_matrices=False)  # the same F Fᵀ, in order
    found: Tensor = (directions * sizes).unflatten(0, (STRIKES, CLOCKS))
    return found


def second_moment(
    views: NormalEquations,
    familiar: Tensor,
    iterations: int,
    told: Callable[[int], None] = lambda _: None,
) -> Tensor:
    """``(D, D)`` second moment of coefficients, from partial views.

    Args:
        views: Normal equations of all surfaces.
        familiar: ``(D, D)`` initial moment, which is also a prior with the weight of a few
            surfaces.
        iterations: Iterations of expectation maximisation.
        told: Called with the number of each iteration.
    """
    moment, everyone = familiar, torch.ones_like(views.sides[:, 0])
    one = torch.eye(len(moment), dtype=moment.dtype, device=moment.device)
    for i in range(iterations):
        told(i)
        precision = torch.linalg.inv(moment) + one / MAX_COEFFICIENT**2
        total = _SMOOTH_PRIOR_SURFACES * familiar + _sum_second_moments(views, precision, everyone)
        moment = (
            0.5 * (total + total.T) / (len(views.grams) + _SMOOTH_PRIOR_SURFACES)
            + _MIN_COEFFICIENT_DEVIATION**2 * one
        )
    return moment


def dominant_second_moment(
    views: NormalEquations, bound: Tensor, kinds: int, iterations: int, seed: int = 0
) -> Tensor:
    """Return the ``(d, d)`` second moment of the largest component of the mixture.

    Args:
        views: Normal equations of coefficients whose overall second moment is the identity.
        bound: ``(d, d)`` smallest precision of every component, for directions without data.
        kinds: Number of Gaussians of the mixture.
        iterations: Iterations of expectation maximisation.
        seed: Seed of the initial clusters.
    """
    grams, sides = views
    one = torch.eye(sides.shape[-1], dtype=sides.dtype, device=sides.device)
    moments = one.expand(kinds, -1, -1)
    share = _cluster_surfaces(_posterior(views, one)[0], kinds, seed)  # (N, kinds)
    for _ in range(iterations):
        both = zip(moments, share.T, strict=True)
        totals = torch.stack(
            [_sum_second_moments(views, torch.linalg.inv(m) + bound, weight) for m, weight in both]
        )
        count = share.sum(0)
        common = totals.sum(0) / len(grams)
        moments = (totals + _COMMON_PRIOR_SURFACES * common) / (count + _COMMON_PRIOR_SURFACES)[
            :, None, None
        ]
        evidence = torch.stack([_posterior(views, each)[1] for each in moments], 1)
        share = torch.softmax(evidence + torch.log(count + 1.0), 1)
    found: Tensor = torch.linalg.inv(torch.linalg.inv(moments[int(share.sum(0).argmax())]) + bound)
    return found


def _cluster_surfaces(means: Tensor, kinds: int, seed: int) -> Tensor:
    """``(N, kinds)`` ones where a surface belongs, by Lloyd's rounds on leading coefficients."""
    points = means[:, :_CLUSTER_DIRECTIONS]
    order = torch.randperm(len(points), generator=torch.Generator().manual_seed(seed))
    centres = points[order[:kinds].to(points.device)]
    for _ in range(_CLUSTER_ROUNDS):
        near = torch.nn.functional.one_hot(torch.cdist(points, centres).argmin(1), kinds)
        near = near.to(points.dtype)
        centres = (near.T @ points) / near.sum(0).clamp(min=1.0)[:, None]
    return near


def _posterior(views: NormalEquations, moment: Tensor) -> tuple[Tensor, Tensor]:
    """``(N, d)`` means of coefficients, and ``(N,)`` the log-evidence of a moment."""
    precision = torch.linalg.inv(moment)
    means, evidence = [], []
    for start in range(0, len(views.grams), _SURFACES_PER_CHUNK):
        part = slice(start, start + _SURFACES_PER_CHUNK)
        L = torch.linalg.cholesky(views.grams[part] + precision)
        side = views.sides[part]
        mean = torch.cholesky_solve(side[..., None], L)[..., 0]
        means.append(mean)
        half = L.diagonal(dim1=-2, dim2=-1).log().sum(-1)
        evidence.append(0.5 * (side * mean).sum(-1) - half)
    return torch.cat(means), torch.cat(evidence) - 0.5 * torch.linalg.slogdet(moment)[1]


def _sum_second_moments(views: NormalEquations, precision: Tensor, share: Tensor) -> Tensor:
    """``(d, d)`` sum of second moments of surfaces under a prior, each by its share ``(N,)``."""
    total = torch.zeros_like(precision)
    for start in range(0, len(share), _SURFACES_PER_CHUNK):
        part = slice(start, start + _SURFACES_PER_CHUNK)
        V = torch.cholesky_inverse(torch.linalg.cholesky(views.grams[part] + precision))
        mean = (V @ views.sides[part, :, None])[..., 0]
        total = total + (share[part, None, None] * V).sum(0) + (share[part, None] * mean).T @ mean
    return 0.5 * (total + total.T)


def smooth_covariance(device: torch.device | str) -> Tensor:
    """``(D, D)`` the covariance that is assumed where nothing is seen."""

    def along(count: int) -> Tensor:
        at = torch.arange(count, dtype=torch.float64, device=device)
        return torch.exp(-0.5 * ((at[:, None] - at) / _SMOOTH_LENGTH_SPLINES) ** 2)

    both = torch.kron(along(STRIKES), along(CLOCKS))
    return _SMOOTH_DEVIATION**2 * (
        both + 1e-3 * torch.eye(len(both), dtype=both.dtype, device=device)
    )


def _draw_normal_equations(laws: Laws, surfaces: int, seed: int) -> NormalEquations:
    """Normal equations of every surface."""
    grams: list[Tensor] = []
    sides: list[Tensor] = []
    for kind, (layout, share) in enumerate(LAYOUT_SHARES):
        wanted = max(1, round(surfaces * share))
        for number, start in enumerate(range(0, wanted, _SURFACES_PER_CHUNK)):
            generator = make_generator(laws.iv.device, seed, kind, number)
            batch = draw_batch(laws, layout, generator, min(_SURFACES_PER_CHUNK, wanted - start))
            one, side = build_normal_equations(batch)
            grams.append(one)
            sides.append(side)
    return NormalEquations(torch.cat(grams), torch.cat(sides))


def build_normal_equations(batch: Batch) -> NormalEquations:
    """``ΦᵀWΦ`` and ``ΦᵀW u`` of the exact volatilities at quotes and targets, by the law's clock.

    The effect of an uneven clock on single expiries is not part of the surface; it is modelled in
    :mod:`arbiter_lab.differentiable.operators.prior.slice_offsets`.
    """
    faster = torch.sqrt(batch.T / batch.clock)[..., None]
    chain = scaled(
        Ragged(batch.clock, batch.k, batch.iv * faster, batch.half * faster, batch.quoted)
    )
    root = (chain.sigma * torch.sqrt(batch.clock))[..., None]
    k = torch.cat([batch.k, batch.target_k], -1)
    iv = torch.cat([batch.oracle_iv, batch.target_iv], -1) * faster
    there = torch.cat([batch.quoted, batch.target], -1)
    u = (
        torch.log(iv / chain.sigma[..., None])
        .clamp(-MAX_LOG_VOLATILITY_RATIO, MAX_LOG_VOLATILITY_RATIO)
        .double()
    )
    basis = splines(torch.asinh(k / root).double(), ZETA, STRIKES)
    clock = splines(chain.total.double(), CLOCK, CLOCKS)
    loaded = basis * (there / _SPLINE_RELATIVE_ERROR**2)[..., None]
    by_slice = (u[..., None, :] @ loaded)[..., 0, :]  # (B, L, NZ)
    side = (by_slice.transpose(-1, -2) @ clock).flatten(1)
    return NormalEquations(gram(basis, loaded, clock), side)


def gram(basis: Tensor, loaded: Tensor, clock: Tensor) -> Tensor:
    """``(B, NZ·NW, NZ·NW)`` ``ΦᵀWΦ``, slice by slice a product of the two directions."""
    each = loaded.transpose(-1, -2) @ basis  # (B, L, NZ, NZ)
    pairs = (clock[..., :, None] * clock[..., None, :]).flatten(-2)  # (B, L, NW²)
    both = each.flatten(-2).transpose(-1, -2) @ pairs  # (B, NZ², NW²)
    size = basis.shape[-1], basis.shape[-1], clock.shape[-1], clock.shape[-1]
    split: Tensor = both.unflatten(-2, size[:2]).unflatten(-1, size[2:])  # (B, NZ, NZ, NW, NW)
    return split.transpose(-3, -2).flatten(-2).flatten(-3, -2)
