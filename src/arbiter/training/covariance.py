"""The covariance of surfaces over the training universe, which kriging rests on.

Batches are drawn as for training, and every surface of them is a function of ``ζ = asinh z`` and
``w = log(σ√T)``, seen where it has quotes or targets. Expectation maximisation gives the second
moment of the coefficients of such functions in the splines of :mod:`arbiter.operators.kriging`,
each surface known on a part of the plane only. A smooth covariance of the weight of a few surfaces
keeps corners tame that hardly any of them reaches.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from arbiter.operators.kriging import CLOCK, CLOCKS, STRIKES, ZETA, gram, splines
from arbiter.operators.ragged import Ragged
from arbiter.operators.reference import FARTHEST, scaled
from arbiter.training.batches import Batch, Layout, draw_batch
from arbiter.training.draws import seeded
from arbiter.training.laws import Laws

LAYOUTS = ((Layout(8, 16, 24), 0.15), (Layout(14, 33, 24), 0.3), (Layout(16, 41, 24), 0.3),
           (Layout(28, 64, 32), 0.2), (Layout(56, 96, 40), 0.05))  # fmt: skip
_EXACT = 1.5e-3  # relative error with which the splines are asked to follow
_FAMILIAR = 30.0  # surfaces that the smooth covariance weighs as much as
_SIZE, _LENGTH = 0.3, 2.0  # its deviation, and its length in splines
_LARGEST = 2.0  # coefficients beyond are unlikely, whatever the universe: none is seen that large
_FINEST = 1e-4  # deviation that every coefficient has at least
_TOGETHER = 128


def covariance_factor(
    laws: Laws,
    surfaces: int,
    rank: int = 96,
    iterations: int = 40,
    seed: int = 0,
    told: Callable[[int], None] = lambda _: None,
) -> Tensor:
    """``(NZ, NW, rank)`` F with ``F Fᵀ`` the second moment of coefficients, to its leading part.

    Args:
        laws: The universe.
        surfaces: How many are drawn.
        rank: Columns of F.
        iterations: Of expectation maximisation.
        seed: Of the draws.
        told: Called with the number of each iteration.
    """
    grams, sides = _seen(laws, surfaces, seed)
    moment = second_moment(grams, sides, smooth(grams.device), iterations, told)
    values, vectors = torch.linalg.eigh(moment)
    leading = vectors[:, -rank:] * values[-rank:].clamp(min=0.0).sqrt()
    found: Tensor = leading.flip(1).unflatten(0, (STRIKES, CLOCKS))
    return found


def second_moment(
    grams: Tensor,
    sides: Tensor,
    familiar: Tensor,
    iterations: int,
    told: Callable[[int], None] = lambda _: None,
) -> Tensor:
    """``(D, D)`` second moment of coefficients, from the normal equations of N partial views.

    Args:
        grams: ``(N, D, D)``.
        sides: ``(N, D)``.
        familiar: ``(D, D)`` where to start, and what a few surfaces' weight stays with.
        iterations: Of expectation maximisation.
        told: Called with the number of each iteration.
    """
    moment = familiar
    one = torch.eye(len(moment), dtype=moment.dtype, device=moment.device)
    for i in range(iterations):
        told(i)
        precision = torch.linalg.inv(moment) + one / _LARGEST**2
        total = _FAMILIAR * familiar
        for start in range(0, len(grams), _TOGETHER):
            part = slice(start, start + _TOGETHER)
            V = torch.cholesky_inverse(torch.linalg.cholesky(grams[part] + precision))
            mean = (V @ sides[part, :, None])[..., 0]
            total = total + V.sum(0) + mean.T @ mean
        moment = 0.5 * (total + total.T) / (len(grams) + _FAMILIAR) + _FINEST**2 * one
    return moment


def smooth(device: torch.device | str) -> Tensor:
    """``(D, D)`` the covariance that is assumed where nothing is seen."""

    def along(count: int) -> Tensor:
        at = torch.arange(count, dtype=torch.float64, device=device)
        return torch.exp(-0.5 * ((at[:, None] - at) / _LENGTH) ** 2)

    both = torch.kron(along(STRIKES), along(CLOCKS))
    return _SIZE**2 * (both + 1e-3 * torch.eye(len(both), dtype=both.dtype, device=device))


def _seen(laws: Laws, surfaces: int, seed: int) -> tuple[Tensor, Tensor]:
    """``(N, D, D)`` and ``(N, D)`` normal equations of every surface."""
    grams: list[Tensor] = []
    sides: list[Tensor] = []
    for kind, (layout, share) in enumerate(LAYOUTS):
        wanted = max(1, round(surfaces * share))
        for number, start in enumerate(range(0, wanted, _TOGETHER)):
            generator = seeded(laws.iv.device, seed, kind, number)
            batch = draw_batch(laws, layout, generator, min(_TOGETHER, wanted - start))
            one, side = normal_equations(batch)
            grams.append(one)
            sides.append(side)
    return torch.cat(grams), torch.cat(sides)


def normal_equations(batch: Batch) -> tuple[Tensor, Tensor]:
    """``ΦᵀWΦ`` and ``ΦᵀW u`` of the exact volatilities at quotes and targets."""
    chain = scaled(Ragged(batch.T, batch.k, batch.iv, batch.half, batch.quoted))
    root = (chain.sigma * torch.sqrt(batch.T))[..., None]
    k = torch.cat([batch.k, batch.target_k], -1)
    iv = torch.cat([batch.oracle_iv, batch.target_iv], -1)
    there = torch.cat([batch.quoted, batch.target], -1)
    u = torch.log(iv / chain.sigma[..., None]).clamp(-FARTHEST, FARTHEST).double()
    basis = splines(torch.asinh(k / root).double(), ZETA, STRIKES)
    clock = splines(chain.total.double(), CLOCK, CLOCKS)
    loaded = basis * (there / _EXACT**2)[..., None]
    by_slice = (u[..., None, :] @ loaded)[..., 0, :]  # (B, L, NZ)
    side = (by_slice.transpose(-1, -2) @ clock).flatten(1)
    return gram(basis, loaded, clock), side
