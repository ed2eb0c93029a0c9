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

from arbiter.operators import slope_head
from arbiter.operators.prior import smile_to_slopes
from arbiter.pricing import black, normal

MIN_RELATIVE_IV_ERROR = 3e-3  # relative error that no volatility of a smile is known better than
MIN_ELASTICITY = 0.3  # of price to volatility
MIN_INFORMATIVE_PRICE, FULL_WEIGHT_PRICE = (
    1e-8,
    3e-8,
)  # of the forward: prices below say nothing, and all from there on
ROUNDS, MAX_EXTRA_ROUNDS = 1, 4  # of Gauss-Newton for all chains, and for those that are off then
MIN_MISS_FOR_MORE_ROUNDS, FULL_MISS_FOR_MORE_ROUNDS = (
    2.5e-3,
    3e-3,
)  # root mean square misses: more rounds count, and fully
ADMM_STEPS, ADMM_RELAXATION = 4, 1.6  # steps of ADMM in a round, and their relaxation
ADMM_PENALTY = 0.3  # its penalty, in units of what the smile says of a slope alone
ROBUST_LOSS_MISS, DAMPING_MISS = (
    0.1,
    0.03,
)  # misses from which on a robust loss grows slowly, and steps are shorter
MAX_LOG_SLOPE_STEP = 2.0  # step of a log-slope
_CURVATURE_COST, _VALUE_COST = 1e-3, 1e-4  # what second differences and values of a step cost
QUADRATURE_STEP, DERIVATIVE_STRIDE = (
    0.05,
    2,
)  # of the quadrature, and every how many points derivatives take
POSITIVE_FLOOR = 1e-200  # of a price, whose logarithm is taken
MIN_WEIGHT_SHARE = 1e-3  # of the largest weight, that every slope has
MIN_LARGEST_CURVATURE = 1e-6  # of the largest curvature of a slice


class Smile(NamedTuple):
    """Smiles to be priced.

    Attributes:
        u: ``(B, L, H)`` ``log(iv/σ)`` at the places.
        doubt: ``(B, L, H)`` logarithm of its standard error.
        place: ``(H,)`` of ``asinh z``, increasing.
        total: ``(B, L)`` ``log(σ√T)``.
        seen: ``(B, L)`` where anything is quoted: the others have to follow.
    """

    u: Tensor
    doubt: Tensor
    place: Tensor
    total: Tensor
    seen: Tensor

    @property
    def level(self) -> Tensor:
        """``(M, 1)`` ``σ√T``."""
        return torch.exp(self.total).flatten()[:, None]

    def of(self, chains: Tensor) -> Smile:
        """Some of the chains."""
        return Smile(
            self.u[chains], self.doubt[chains], self.place, self.total[chains], self.seen[chains]
        )


class PricedSmile(NamedTuple):
    """Smiles as prices, slice by slice.

    Attributes:
        log_price: ``(M, H)`` of the smile.
        elasticity: ``(M, H)`` of that price to volatility.
        says: ``(M, H)`` how far a price says anything, from 0 to 1.
        trust: ``(M, H)`` weights of squared misses: that, times what the smile knows.
    """

    log_price: Tensor
    elasticity: Tensor
    says: Tensor
    trust: Tensor

    def miss(self, price: Tensor) -> Tensor:
        """``(M, H)`` by how much the log-volatility of prices is short of the smile's."""
        return ((self.log_price - torch.log(price)) / self.elasticity).clamp(-1.0, 1.0)


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


def price_smile(smile: Smile) -> PricedSmile:
    """Prices of a smile at its places, with their weights and elasticities."""
    level = smile.level
    v = level * torch.exp(
        smile.u.flatten(0, 1).clamp(
            -smile_to_slopes.MAX_WING_LOG_RATIO, smile_to_slopes.MAX_WING_LOG_RATIO
        )
    )
    k = torch.sinh(smile.place) * level
    price = black.otm(k, v).clamp(min=POSITIVE_FLOOR)
    elasticity = (v * black.vega(k, v) / price).clamp(min=MIN_ELASTICITY)
    known = torch.exp(2.0 * smile.doubt.flatten(0, 1)) + MIN_RELATIVE_IV_ERROR**2
    says = ((price - MIN_INFORMATIVE_PRICE) / (FULL_WEIGHT_PRICE - MIN_INFORMATIVE_PRICE)).clamp(
        0.0, 1.0
    )
    says = says * smile.seen.flatten()[:, None]
    return PricedSmile(torch.log(price), elasticity, says, says / known)


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


def _told(g: Tensor, laid: _Laid, priced: PricedSmile) -> _Told:
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


class _Laid(NamedTuple):
    """Transports along a quadrature, to be priced at given places.

    A put is worth ``∫ Φ(x) dX(x)`` up to its strike and a call ``∫ Φ(−x) dX(x)`` from there: sums
    of positive terms, good to a thousandth in the far tails too.

    Attributes:
        share: ``(M, G)`` Gaussian weight times X, of mean one.
        put: ``(M, G)`` integrands.
        call: ``(M, G)``
        at: ``(M, H)`` the point of the quadrature above each place.
        between: ``(M, H)`` where it lies between that and the point below.
        level: ``(M, 1)`` ``σ√T``.
        above: ``(H,)`` whether a place is above the money.
    """

    share: Tensor
    put: Tensor
    call: Tensor
    at: Tensor
    between: Tensor
    level: Tensor
    above: Tensor

    def prices(self) -> Tensor:
        """``(M, H)`` out-of-the-money prices over the forward."""
        t, half = self.between, 0.5 * QUADRATURE_STEP
        puts, calls = _trapezoid(self.put), _trapezoid(self.call.flip(1)).flip(1)

        def part(integrand: Tensor, whole: Tensor, near: Tensor, far: Tensor, t: Tensor) -> Tensor:
            first = integrand.gather(1, near)
            here = torch.lerp(first, integrand.gather(1, far), t)
            return whole.gather(1, near) + half * t * (first + here)

        below, above = self.at - 1, self.at
        put = part(self.put, puts, below, above, t)
        call = part(self.call, calls, above, below, 1.0 - t)
        return torch.where(self.above, call, put).clamp(min=POSITIVE_FLOOR)

    def derivatives(self, b: Tensor) -> Tensor:
        """``(M, H, n)`` of the prices to log-slopes, which for a step may be coarser."""
        hats = build_quadrature(b.device).risen[::DERIVATIVE_STRIDE]  # (G/2, n)
        share = self.share[:, ::DERIVATIVE_STRIDE] * DERIVATIVE_STRIDE
        moved = share[..., None] * (hats - (share @ hats)[:, None])
        below = moved.cumsum(1) - 0.5 * moved
        place = (self.at - 1 + self.between) / DERIVATIVE_STRIDE
        first = place.long().clamp(max=len(hats) - 2)
        wide = first[..., None].expand(-1, -1, b.shape[-1])
        inside = (place - first)[..., None]
        part = torch.lerp(below.gather(1, wide), below.gather(1, wide + 1), inside)
        return -self.level[..., None] * part * b[:, None]


def lay_transports(b: Tensor, z: Tensor, level: Tensor) -> _Laid:
    """Transports with slopes ``(M, n)`` over ``σ√T``, and where places ``(H,)`` of z lie."""
    known = build_quadrature(b.device)
    along = b @ known.risen.T  # (M, G) log-moneyness over level, but for a constant
    along = along - along[:, along.shape[1] // 2, None]
    share = torch.exp(level * along) * known.weight
    mass = share.sum(-1, keepdim=True)
    share, along = share / mass, along - torch.log(mass) / level
    at = torch.searchsorted(along, z.expand(len(b), -1).contiguous()).clamp(1, along.shape[1] - 1)
    low, high = along.gather(-1, at - 1), along.gather(-1, at)
    between = ((z - low) / (high - low)).clamp(0.0, 1.0)
    rising = level * torch.exp(level * along) * (b @ known.hats.T)
    return _Laid(share, rising * known.below, rising * known.above, at, between, level, z >= 0.0)


def _trapezoid(integrand: Tensor) -> Tensor:
    """``(M, G)`` integrals up to each point."""
    sums = integrand.cumsum(1)
    return QUADRATURE_STEP * (sums - 0.5 * (integrand + integrand[:, :1]))


def isotonic(y: Tensor, weight: Tensor) -> Tensor:
    """Weighted least squares ``(B, L, n)`` among what does not fall along L: the min-max formula.

    ``max over i ≤ l of min over j ≥ l`` of the weighted mean of ``y_i … y_j``. What does not fall
    stays as it is; what weighs nothing stays too, as far as the others let it.
    """
    columns = y.mT.flatten(0, 1)  # (B·n, L)
    falling = (columns.diff(dim=-1) < 0.0).any(-1).nonzero()[:, 0]
    if len(falling) == 0:
        return y
    some, load = columns[falling], weight.mT.flatten(0, 1)[falling]
    sums, mass = (torch.nn.functional.pad(x.cumsum(1), (1, 0)) for x in (load * some, load))
    within = mass[:, None, 1:] - mass[:, :-1, None]
    mean = (sums[:, None, 1:] - sums[:, :-1, None]) / within
    speaks = (within > 0.0) & torch.ones_like(mean[0], dtype=torch.bool).triu()
    mean = torch.where(speaks, mean, torch.inf).flip(2).cummin(2).values.flip(2)
    mean = torch.where(speaks, mean, -torch.inf).cummax(1).values.diagonal(dim1=1, dim2=2)
    there = load > 0.0
    low = torch.where(there, mean, -torch.inf).cummax(1).values
    high = torch.where(there, mean, torch.inf).flip(1).cummin(1).values.flip(1)
    ordered = torch.where(there, mean, torch.clamp(some, low, high)).cummax(1).values
    found = columns.index_copy(0, falling, ordered)
    return found.view(len(y), -1, y.shape[1]).mT


class _Quadrature(NamedTuple):
    """Points of a Gaussian coordinate.

    Attributes:
        weight: ``(G,)`` Gaussian weights.
        below: ``(G,)`` Φ(x).
        above: ``(G,)`` Φ(−x).
        hats: ``(G, n)`` the hats at the knots, the outermost flat beyond.
        risen: ``(G, n)`` their integrals.
    """

    weight: Tensor
    below: Tensor
    above: Tensor
    hats: Tensor
    risen: Tensor


@lru_cache(maxsize=8)
def build_quadrature(device: torch.device) -> _Quadrature:
    """Gaussian quadrature nodes with the hats of the knots and their integrals."""
    with torch.inference_mode(False):
        x = torch.arange(-7.2, 6.4, QUADRATURE_STEP, dtype=torch.float64, device=device)
        knots = smile_to_slopes.knots(device)
        inside = x.clamp(knots[0], knots[-1])[:, None]
        hats = (1.0 - (inside - knots).abs() / (knots[1] - knots[0])).clamp(min=0.0)
        weight, risen = normal.pdf(x) * QUADRATURE_STEP, smile_to_slopes.integrals(x, knots)
        return _Quadrature(weight, normal.cdf(x), normal.cdf(-x), hats, risen)


@lru_cache(maxsize=8)
def build_step_cost(device: torch.device) -> Tensor:
    """The matrix that keeps a step smooth along the knots."""
    with torch.inference_mode(False):
        one = torch.eye(len(slope_head.KNOTS), dtype=torch.float64, device=device)
        second = one.diff(n=2, dim=0)
        return _CURVATURE_COST * second.T @ second + _VALUE_COST * one
