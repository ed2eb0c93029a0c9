"""Audit of the VIX side of a surface: futures, options, second moments and VVIX.

Only public methods are called. The VIX has no calendar order: its laws at two dates are those of
two different 30-day windows. It is tied to the surface: futures are at most the root of forward
variance, second moments equal forward variance, and VVIX is the strip of the VIX options.

Sizes are in units of the VIX future, or of the forward variance.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from arbiter.audit.audited_surface import VixSurface, has_vix
from arbiter.audit.grid import EPS, Mask
from arbiter.audit.inequalities import (
    Inequalities,
    bound_inequalities,
    butterfly_inequalities,
    mass_inequalities,
    mean_inequalities,
    parity_inequalities,
    vertical_inequalities,
)
from arbiter.audit.law_quadrature import reprice_by_quadrature
from arbiter.audit.price_range import PriceRange, PublicPrices
from arbiter.audit.sampling import build_price_grid, draw_log_strikes, draw_maturities
from arbiter.audit.structural_proof import (
    PRICE_TOLERANCE,
    ProofCheck,
    StructuralProof,
)
from arbiter.conventions import INDEX_POINTS, Array
from arbiter.pricing.vix_slices import MIN_FORWARD_VARIANCE, SLOPE_RANGE

_STRIP_STRIKES_PER_SIDE = 1601  # strikes on each side of a strip, denser towards the forward
# A strip is a sum for an integral of prices whose third derivative jumps at knots. Relative.
_STRIP_RELATIVE_ERROR = 1e-7
_MAX_STRIP_DOUBT = 1e-4


@dataclass(frozen=True)
class _VixOptions:
    """The VIX options of a surface as an audited surface: the future is the forward."""

    surface: VixSurface
    maturities: Array

    def forward(self, T: Array) -> Array:
        return np.asarray(self.surface.vix_future(T))

    def discount(self, T: Array) -> Array:
        return np.asarray(self.surface.discount(T))

    def call(self, K: Array, T: Array) -> Array:
        return np.asarray(self.surface.vix_option(K, T, "call"))

    def put(self, K: Array, T: Array) -> Array:
        return np.asarray(self.surface.vix_option(K, T, "put"))


def vix_inequalities(surface: object, seed: int) -> Iterator[Inequalities]:
    """Every inequality of the VIX, at its listed dates and at random ones between and beyond.

    There are none for a surface without VIX slices.
    """
    if not has_vix(surface):
        return
    rng = np.random.default_rng(seed)
    T = draw_maturities(np.asarray(surface.vix_slices.maturities), rng)
    variance = np.asarray(surface.forward_variance(T))
    future = np.asarray(surface.vix_future(T))
    yield from _variance_bound_inequalities(T, future, variance)
    alive = _has_law(future)  # no variance, no law: the future of zero is all there is to say
    T, variance, future = T[alive], variance[alive], future[alive]
    if not T.size:
        return
    market = PublicPrices(_VixOptions(surface, T))
    tails = PriceRange(market, T)
    k = draw_log_strikes(tails, rng)
    calls, puts = (market.price(k, T[:, None], side).ravel() for side in ("call", "put"))
    both = np.ones(calls.size, dtype=np.bool_)
    at, strike = np.repeat(T, k.size), np.tile(k, T.size)
    grid, broken = build_price_grid(market, tails, at, strike, calls, puts, both)
    static = [broken, *tails.tail_inequalities()]
    for family in (
        bound_inequalities,
        parity_inequalities,
        vertical_inequalities,
        butterfly_inequalities,
        mean_inequalities,
        mass_inequalities,
    ):
        static += family(grid)
    for batch in static:
        yield replace(batch, family="vix_static", legs=_describe_vix_legs(batch))
    yield from _strip_inequalities(surface, market, tails, (future, variance))


def extend_proof_to_vix(surface: object, proof: StructuralProof | None) -> StructuralProof | None:
    """``proof`` with the condition on VIX slopes and, if it holds, their prices compared."""
    if proof is None or not has_vix(surface):
        return proof
    slices = surface.vix_slices
    low, high = SLOPE_RANGE
    a = np.asarray(slices.slopes, dtype=np.float64)
    good = np.isfinite(a) & (a >= low) & (a <= high)
    name = "VIX slopes positive"
    if not good.all():
        date, knot = (int(i) for i in np.argwhere(~good)[0])
        detail = (
            f"the VIX slope at T={slices.maturities[date]:g}, knot x={slices.knots[knot]:g} is "
            f"{a[date, knot]}; it must lie in [{low:g}, {high:g}]"
        )
        return replace(proof, checks=(*proof.checks, ProofCheck(name, False, detail)))
    check = ProofCheck(name, True, f"VIX slopes lie in [{a.min():g}, {a.max():g}]")
    proof = replace(proof, checks=(*proof.checks, check))
    T = np.asarray(slices.maturities)
    if proof.price_gap is None or not _has_law(np.asarray(surface.vix_future(T))).all():
        return proof
    market = PublicPrices(_VixOptions(surface, T))
    k = np.array([-0.2, 0.0, 0.2])
    repriced = reprice_by_quadrature(slices.knots, a[None], np.ones((1, T.size)), np.exp(k))
    public = (market.price(k, T[:, None], "call"), market.price(k, T[:, None], "put"))
    gap = float(np.max(np.abs(np.subtract(public, repriced))))
    return replace(proof, price_gap=max(proof.price_gap, gap))


def _has_law(future: Array) -> Mask:
    """Whether a VIX future is large enough for options on it to be priced."""
    return np.asarray((future / INDEX_POINTS) ** 2 > MIN_FORWARD_VARIANCE)


def _describe_vix_legs(batch: Inequalities) -> Callable[[int], str]:
    return lambda row: f"on the VIX: {batch.legs(row)}"


def _variance_bound_inequalities(
    T: Array, future: Array, variance: Array
) -> Iterator[Inequalities]:
    """Forward variance is not negative, and ``F ≤ 100 √FV``."""
    none, one = np.full(T.shape, np.nan), np.ones(T.shape)
    yield Inequalities(
        "forward_variance", T, none, variance, EPS * one, np.abs(variance),
        lambda i: f"long 1 log contract 30 days after T={T[i]:.6g}, short 1 at T={T[i]:.6g}",
    )  # fmt: skip
    root = INDEX_POINTS * np.sqrt(np.maximum(variance, 0.0))
    scale = np.where(root > 0.0, root, 1.0)
    yield Inequalities(
        "vix_future", T, none, (root - future) / scale, 16.0 * EPS * one, one,
        lambda i: f"short 1 VIX future T={T[i]:.6g} at {future[i]:.10g}, above the root of forward "
        f"variance, {root[i]:.10g}; long the forward variance",
    )  # fmt: skip


def _price_strip_side(
    market: PublicPrices, tails: PriceRange, sign: float
) -> tuple[Array, Array, Array]:
    """Log-strikes, prices and ``dk`` of one side of the forward, each ``(L, m)``.

    Steps grow outwards, from a small share of a deviation: a wing may reach a hundred times as
    far as the body is wide, and at the forward itself the two sides meet in a kink.
    """
    reach = (tails.left if sign < 0.0 else tails.right)[:, None]
    near = np.minimum(0.3 * tails.scale[:, None], reach)
    t = np.linspace(0.0, 1.0, _STRIP_STRIKES_PER_SIDE)
    growth = np.log1p(reach / near)
    k = sign * near * np.expm1(growth * t)
    step = near * growth * np.exp(growth * t) / (_STRIP_STRIKES_PER_SIDE - 1)
    side = "put" if sign < 0.0 else "call"
    return k, market.price(k, np.broadcast_to(tails.T[:, None], k.shape), side), step


def _sum_simpson(value: Array) -> Array:
    """Simpson's rule over rows of an odd number of values, a step of one apart."""
    ends = value[:, 0] + value[:, -1]
    inner = 4.0 * value[:, 1:-1:2].sum(axis=1) + 2.0 * value[:, 2:-1:2].sum(axis=1)
    return np.asarray((ends + inner) / 3.0)


def _strip_inequalities(
    surface: VixSurface,
    market: PublicPrices,
    tails: PriceRange,
    future_and_variance: tuple[Array, Array],
) -> Iterator[Inequalities]:
    """Second moments and VVIX against strips of public option prices, and against each other."""
    T, (future, variance) = tails.T, future_and_variance
    none, one = np.full(T.shape, np.nan), np.ones(T.shape)
    sides = [_price_strip_side(market, tails, sign) for sign in (-1.0, 1.0)]

    def strip(power: float) -> tuple[Array, Array]:
        """``2 ∫ price · κ^power dk`` and by how much half as many strikes change it."""
        fine, coarse = np.zeros(T.size), np.zeros(T.size)
        for k, price, step in sides:
            value = 2.0 * price * np.exp(power * k) * step
            fine += _sum_simpson(value)
            coarse += 2.0 * _sum_simpson(value[:, ::2])
        return fine, np.abs(fine - coarse)

    square, doubt = strip(1.0)  # E(VIX/F)² − 1 = 2 ∫ otm dκ
    moment = (future / INDEX_POINTS) ** 2 * (1.0 + square)
    error = _STRIP_RELATIVE_ERROR * one + np.minimum(doubt / (1.0 + square), _MAX_STRIP_DOUBT)
    for value, doubtful, name in (
        (moment, error, "the strip of VIX options"),
        (
            np.asarray(surface.vix_second_moment(T)),
            0.25 * PRICE_TOLERANCE * one,
            "vix_second_moment",
        ),
    ):

        def words(i: int, value: Array = value, name: str = name) -> str:
            return (
                f"E[(VIX/100)²] at T={T[i]:.6g} is {value[i]:.12g} by {name}, and forward variance "
                f"is {variance[i]:.12g}"
            )

        yield Inequalities(
            "vix_coupling", T, none, -np.abs(value / variance - 1.0), doubtful, one, words
        )
    contract, doubt = strip(-1.0)  # −2 E log(VIX/F)
    stated = (np.asarray(surface.vvix(T)) / INDEX_POINTS) ** 2 * T
    error = _STRIP_RELATIVE_ERROR * one + np.minimum(doubt / contract, _MAX_STRIP_DOUBT)
    yield Inequalities(
        "vvix", T, none, -np.abs(stated / contract - 1.0), error, one,
        lambda i: f"VVIX² T at T={T[i]:.6g} is {stated[i]:.12g}, and {contract[i]:.12g} by the "
        "strip of VIX options",
    )  # fmt: skip
