"""From the slopes of a smile to those of a transport that prices it, in the star order.

:mod:`arbiter.operators.prior.smile_to_slopes` reads slopes off a smile by its coordinates. Here
follow a few Gauss-Newton steps towards the smile's prices under the star order: slopes must not
fall along maturities, and the running maximum of the head would have one slice's tail overrule all
later ones. Each step is a quadratic program that couples slices by the order alone. The alternating
direction method of multipliers solves it: slices one by one, then isotonic regression knot by knot.

Shapes: M slices, B chains of L, H places of ``asinh z``, n knots, G points of a quadrature.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor

from arbiter.operators.prior.smile_to_slopes import build_smoothness_cost
from arbiter.operators.prior.star_order_projection import (
    ADMM_PENALTY,
    ADMM_RELAXATION,
    ADMM_STEPS,
    DAMPING_MISS,
    FULL_MISS_FOR_MORE_ROUNDS,
    MAX_EXTRA_ROUNDS,
    MAX_LOG_SLOPE_STEP,
    MIN_LARGEST_CURVATURE,
    MIN_MISS_FOR_MORE_ROUNDS,
    MIN_WEIGHT_SHARE,
    ROBUST_LOSS_MISS,
    ROUNDS,
)
from arbiter.operators.prior.transport_prices import (
    CURVATURE_COST,
    MIN_INFORMATIVE_PRICE,
    POSITIVE_FLOOR,
    VALUE_COST,
)
from arbiter_lab.differentiable.operators import slope_head
from arbiter_lab.differentiable.operators.prior import smile_to_slopes
from arbiter_lab.differentiable.operators.prior.transport_prices import (
    LaidTransports,
    PricedSmile,
    Smile,
    lay_transports,
    price_smile,
)


def transport(smile: Smile) -> tuple[Tensor, Tensor]:
    """``(B, L, n)`` log-slopes over ``σ√T`` and ``(B, L, H)`` what they miss of the smile."""
    priced = price_smile(smile)
    g = smile_to_slopes.log_slopes(smile.u, smile.place, smile.total)
    g, miss = _descended(g, smile, priced, ROUNDS)
    weight = priced.trust.view_as(miss)
    off = (weight * miss**2).flatten(1).sum(-1) / weight.flatten(1).sum(-1).clamp(
        min=POSITIVE_FLOOR
    )
    part = (
        (torch.sqrt(off) - MIN_MISS_FOR_MORE_ROUNDS)
        / (FULL_MISS_FOR_MORE_ROUNDS - MIN_MISS_FOR_MORE_ROUNDS)
    ).clamp(0.0, 1.0)
    far = (part > 0.0).nonzero()[:, 0]
    if len(far) > 0:  # some chains need more than the rest
        some, deep = smile.of(far), miss.shape[1]
        rows = (far[:, None] * deep + torch.arange(deep, device=far.device)).flatten()
        again = PricedSmile(*(worth[rows] for worth in priced))
        better, _ = _descended(g[far], some, again, MAX_EXTRA_ROUNDS)
        better = torch.lerp(g[far], better, part[far, None, None])  # in order, as both are
        g, miss = g.index_copy(0, far, better), miss.index_copy(0, far, _miss(better, some, again))
    return g, miss


def missed(g: Tensor, smile: Smile) -> tuple[Tensor, Tensor]:
    """``(B, L, H)`` what log-slopes ``(B, L, n)`` miss, and how far prices say anything."""
    priced = price_smile(smile)
    return _miss(g, smile, priced), priced.says.view_as(smile.u)


def _miss(g: Tensor, smile: Smile, priced: PricedSmile) -> Tensor:
    level = smile.level
    slopes = slope_head.slopes(g, smile.total).flatten(0, 1) / level
    return priced.miss(lay_transports(slopes, torch.sinh(smile.place), level).prices()).view_as(
        smile.u
    )


def _descended(g: Tensor, smile: Smile, priced: PricedSmile, rounds: int) -> tuple[Tensor, Tensor]:
    """Log-slopes ``(B, L, n)`` in the star order after rounds, and what they miss."""
    clock, level, z = smile.total[..., None], smile.level, torch.sinh(smile.place)
    force = torch.zeros_like(g)  # ADMM's scaled dual variable
    laid = lay_transports(torch.exp(g.flatten(0, 1)), z, level)
    for _ in range(rounds):
        told = _told(g, laid, priced)
        weight = told.weight.view_as(g) * smile.seen[..., None]
        pull = ADMM_PENALTY * weight.flatten(0, 1)
        inverse = torch.cholesky_inverse(
            torch.linalg.cholesky_ex(told.curvature + torch.diag_embed(pull)).L
        )
        free = told.target[..., None]
        begun = ordered = isotonic(g + clock, weight) - clock
        for _ in range(ADMM_STEPS):
            drawn = (pull * (ordered - force).flatten(0, 1))[..., None]
            x = (inverse @ (free + drawn)).view_as(g)
            x = ordered + ADMM_RELAXATION * (x - ordered)
            ordered = isotonic(x + force + clock, weight) - clock
            force = force + x - ordered
        # between two that are in order all are: the whole chain takes the same share of the step
        step = ordered - begun
        longest = step.abs().flatten(1).amax(1).clamp(min=MAX_LOG_SLOPE_STEP)[:, None, None]
        g = (begun + step * (MAX_LOG_SLOPE_STEP / longest)).clamp(
            slope_head.MIN_LOG_RATIO, slope_head.MAX_LOG_RATIO
        )
        slopes = slope_head.slopes(g, smile.total).flatten(0, 1) / level
        laid = lay_transports(slopes, z, level)
    return g, priced.miss(laid.prices()).view_as(smile.u)


class _Told(NamedTuple):
    """A quadratic model of the weighted misses around log-slopes.

    Attributes:
        curvature: ``(M, n, n)``
        target: ``(M, n)`` the curvature times where it is least.
        weight: ``(M, n)`` what the smile says of each log-slope alone.
    """

    curvature: Tensor
    target: Tensor
    weight: Tensor


def _told(g: Tensor, laid: LaidTransports, priced: PricedSmile) -> _Told:
    at = g.flatten(0, 1)
    b = torch.exp(at)
    price = laid.prices()
    off = priced.miss(price)
    weight = priced.trust / (1.0 + (off / ROBUST_LOSS_MISS) ** 2)
    # prices that say nothing weigh nothing: only that they must not overflow
    steep = (
        laid.derivatives(b)
        / (price.clamp(min=MIN_INFORMATIVE_PRICE) * priced.elasticity)[..., None]
    )
    loaded = (steep * weight[..., None]).mT  # (M, n, H)
    P = loaded @ steep
    alone = P.diagonal(dim1=-2, dim2=-1)
    most = alone.amax(-1, keepdim=True).clamp(min=MIN_LARGEST_CURVATURE)
    mean = (weight * off**2).sum(-1) / weight.sum(-1).clamp(min=POSITIVE_FLOOR)
    stiff = (1.0 + mean / DAMPING_MISS**2)[:, None] * most
    P = P + build_step_cost(b.device) * stiff[..., None]
    target = (loaded @ off[..., None] + P @ at[..., None])[..., 0]
    return _Told(P, target, alone + MIN_WEIGHT_SHARE * most)


def isotonic(y: Tensor, weight: Tensor) -> Tensor:
    """Weighted least squares ``(B, L, n)`` among what does not fall along L: the min-max formula.

    ``max over i ≤ l of min over j ≥ l`` of the weighted mean of ``y_i … y_j``. What does not fall
    stays as it is; what weighs nothing stays too, as far as the others let it.
    """
    columns = y.mT.flatten(0, 1)  # (B·n, L)
    falling = (columns.diff(dim=-1) < 0.0).any(-1).nonzero()[:, 0]
    if len(falling) == 0:
        return y
    ordered = min_max(columns[falling], weight.mT.flatten(0, 1)[falling])
    found = columns.index_copy(0, falling, ordered)
    return found.view(len(y), -1, y.shape[1]).mT


def min_max(columns: Tensor, load: Tensor) -> Tensor:
    """The formula of :func:`isotonic` for columns ``(N, L)`` with weights ``(N, L)``."""
    sums, mass = (torch.nn.functional.pad(x.cumsum(1), (1, 0)) for x in (load * columns, load))
    within = mass[:, None, 1:] - mass[:, :-1, None]
    mean = (sums[:, None, 1:] - sums[:, :-1, None]) / within
    speaks = (within > 0.0) & torch.ones_like(mean[0], dtype=torch.bool).triu()
    mean = torch.where(speaks, mean, torch.inf).flip(2).cummin(2).values.flip(2)
    mean = torch.where(speaks, mean, -torch.inf).cummax(1).values.diagonal(dim1=1, dim2=2)
    there = load > 0.0
    low = torch.where(there, mean, -torch.inf).cummax(1).values
    high = torch.where(there, mean, torch.inf).flip(1).cummin(1).values.flip(1)
    return torch.where(there, mean, torch.clamp(columns, low, high)).cummax(1).values


@lru_cache(maxsize=8)
def build_step_cost(device: torch.device) -> Tensor:
    """The matrix that keeps a step smooth along the knots."""
    with torch.inference_mode(False):
        return torch.from_numpy(build_smoothness_cost(CURVATURE_COST, VALUE_COST)).to(device)
