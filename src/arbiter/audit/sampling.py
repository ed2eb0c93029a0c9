"""Sampling of a surface for its audit: a random grid of public prices, refined where needed.

Only public methods are called, so that a peer, or a surface whose prices were tampered with,
is checked like any other. The strikes and maturities are random: no fit has used them.

Glossary: ``κ = K/F``, ``k = log κ``; a table of prices is (maturities, strikes).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.random import Generator

from arbiter.audit import jump_search
from arbiter.audit.audited_surface import AuditedSurface, has_log_contract, has_transport
from arbiter.audit.grid import EPS, Grid, Mask, Places, assemble_grid
from arbiter.audit.inequalities import Inequalities, describe_leg
from arbiter.audit.law_quadrature import reprice_by_quadrature
from arbiter.audit.price_range import (
    PRICING_ROUNDINGS,
    PriceRange,
    PublicPrices,
    estimate_price_rounding,
)
from arbiter.audit.structural_proof import StructuralProof, check_structure
from arbiter.conventions import Array
from arbiter.pricing.knots import MAX_SLOPE
from arbiter.pricing.maturity import slopes_at, weights_at

_MIN_RANDOM_STRIKES = 320  # drawn at random, at least
_MAX_SCALE_MATURITIES = 24  # maturities whose scales are used for that
_MAX_MATURITIES_BETWEEN = 16  # random maturities between listed ones
_STRIKE_CLUSTERS = 24  # of four close strikes each
_MAX_REFINED_PLACES = 24  # places refined, four strikes each, by curvature and by calendar spread
_CALENDAR_STRIKES = 15  # strikes at which calendars are scanned densely
_STRIKES_PER_SMILE = 81
_MIN_CALENDAR_PRICE = 1e-60  # smaller prices are left to the grid


@dataclass(frozen=True)
class SurfaceSample:
    """Prices and inequalities sampled from a surface.

    Attributes:
        grid: Prices on the random grid.
        extra: Inequalities that need more than prices on that grid.
        smiles: Prices of the listed maturities on even strikes, for Durrleman's function.
    """

    grid: Grid
    extra: tuple[Inequalities, ...]
    smiles: Grid


def sample_surface(surface: AuditedSurface, seed: int) -> SurfaceSample:
    """Price a surface on a random grid that covers 12 standard deviations of every maturity."""
    rng = np.random.default_rng(seed)
    market = PublicPrices(surface)
    tails = PriceRange(market, draw_maturities(market.maturities, rng))
    T = tails.T  # (L,)
    k = draw_log_strikes(tails, rng)  # (m,)
    k = np.union1d(k, _draw_strikes_near_dips(k, market.otm(k, T[:, None]), rng))
    calls, puts = (market.price(k, T[:, None], side) for side in ("call", "put"))
    listed = np.flatnonzero(np.isin(T, market.maturities))
    rows = rng.permutation(listed)[: jump_search.MAX_SCANNED_MATURITIES]
    jump_T, jump_k = jump_search.search_across_strikes(
        market.otm, T[rows], tails.left[rows], tails.right[rows], rng
    )
    jump = market.otm(jump_k, jump_T)
    columns = (
        np.append(np.repeat(T, k.size), jump_T),
        np.append(np.tile(k, T.size), jump_k),
        np.append(calls.ravel(), np.where(jump_k < 0.0, np.nan, jump)),
        np.append(puts.ravel(), np.where(jump_k < 0.0, jump, np.nan)),
    )
    both = np.arange(columns[0].size) < calls.size  # a jump was priced on one side only
    grid, broken = build_price_grid(market, tails, *columns, both)
    strikes = tails.draw_calendar_strikes(_CALENDAR_STRIKES, rng)
    contracts = surface if has_log_contract(surface) else None

    def curves(t: Array) -> Array:
        """Prices at fixed strikes, and of the log contract ``W(T)/2``, for maturities ``t``."""
        prices = market.otm(strikes, t[:, None]).T
        half = np.zeros(t.size)
        if contracts is not None:
            half = 0.5 * t * np.asarray(contracts.variance_swap(t))
        return np.concatenate([prices, half[None]])

    dense, values = jump_search.search_across_maturities(
        curves, np.union1d(market.maturities, T[[0, -1]]), rng
    )
    extra = [broken, *tails.tail_inequalities()]
    extra += _calendar_inequalities(market, tails, dense, strikes, values[:-1])
    if contracts is not None:
        extra += _log_contract_inequalities(dense, values[-1])
    return SurfaceSample(grid, tuple(extra), _price_listed_smiles(market, tails, listed))


def prove_surface(surface: object) -> StructuralProof | None:
    """The structural proof with its price gap; None for a surface that shows no slopes.

    The price gap is the largest distance, in forward units, between public prices and the prices
    of the stored slopes: at the listed maturities, between them, before and past them.
    """
    if not has_transport(surface):
        return None
    knots, slopes, weights = surface.knots, surface.slopes, surface.weights
    market = PublicPrices(surface)
    time = getattr(surface, "time", None)
    proof = check_structure(knots, market.maturities, slopes, weights, time=time)
    if not proof.passed:
        return proof
    k = np.array([-0.2, 0.0, 0.2])
    listed = market.maturities
    between = np.square(0.5 * (np.sqrt(listed[1:]) + np.sqrt(listed[:-1])))
    T = np.unique(np.concatenate([listed, between, 0.5 * listed[:1], 1.2 * listed[-1:]]))
    # past the last maturity slopes saturate
    years, at = (listed, T) if time is None else (time.at(listed), time.at(T))
    moved = np.minimum(slopes_at(years, np.asarray(slopes), at), MAX_SLOPE)
    shares = weights_at(years, np.asarray(weights), at)
    repriced = reprice_by_quadrature(knots, moved, shares, np.exp(k))
    public = (market.price(k, T[:, None], "call"), market.price(k, T[:, None], "put"))
    return StructuralProof(proof.checks, float(np.max(np.abs(np.subtract(public, repriced)))))


def draw_maturities(listed: Array, rng: Generator) -> Array:
    """The listed maturities, random ones between them, before the first and past the last."""
    gaps = rng.permutation(listed.size - 1)[:_MAX_MATURITIES_BETWEEN]
    between = listed[gaps] + rng.uniform(0.02, 0.98, gaps.size) * (listed[gaps + 1] - listed[gaps])
    before = listed[0] * np.exp(-rng.uniform(0.1, 3.0, 2))
    past = listed[-1] * rng.uniform(1.0, 1.5, 2)
    return np.unique(np.concatenate([listed, between, before, past]))


def draw_log_strikes(tails: PriceRange, rng: Generator) -> Array:
    """Random log-strikes at the scales of all maturities, and clusters of close ones."""
    rows = rng.permutation(tails.T.size)[:_MAX_SCALE_MATURITIES]
    share = max(4, _MIN_RANDOM_STRIKES // (4 * rows.size))
    parts = [np.zeros(1)]
    for sign, reach in ((-1.0, tails.left), (1.0, tails.right)):
        far, near = reach[rows, None], np.minimum(0.05 * tails.scale, reach)[rows, None]
        u = rng.uniform(0.0, 1.0, (2, rows.size, share))
        parts += [(sign * far * u[0]).ravel(), (sign * near * (far / near) ** u[1]).ravel()]
    k = np.concatenate(parts)
    centre = rng.choice(k, _STRIKE_CLUSTERS)
    width = rng.choice(tails.scale, _STRIKE_CLUSTERS) * 10.0 ** -rng.uniform(
        1.0, 5.0, _STRIKE_CLUSTERS
    )
    return np.union1d(k, (centre[:, None] + width[:, None] * np.arange(1, 4)).ravel())


def _draw_strikes_near_dips(k: Array, price: Array, rng: Generator) -> Array:
    """Random log-strikes beside those where curvature or calendar spreads dip.

    A dip is a value small against its two neighbours; a violation is the deepest of all.
    """
    kappa = np.exp(k)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        secant = np.diff(price, axis=1) / np.diff(kappa)
        curvature = np.diff(secant, axis=1) / (kappa[2:] - kappa[:-2])  # (L, m-2)
        curvature[:, (k[2:] >= 0.0) & (k[:-2] < 0.0)] = np.nan  # across the forward sides change
        calendar = np.diff(price, axis=0) / price[1:]  # (L-1, m)
        chosen = [np.zeros(0)]
        for values, centre in ((curvature, k[1:-1]), (calendar, k)):
            if not values.size:  # one maturity has no calendar spreads
                continue
            around = np.sqrt(np.abs(values[:, 2:] * values[:, :-2]))
            dip = np.nan_to_num(values[:, 1:-1] / around, nan=np.inf, posinf=np.inf).min(axis=0)
            i = np.argsort(dip)[:_MAX_REFINED_PLACES] + 1
            u = rng.uniform(0.0, 1.0, (i.size, 4))
            low, high = centre[i - 1][:, None], centre[i + 1][:, None]
            chosen.append((low + u * (high - low)).ravel())
    return np.concatenate(chosen)


def build_price_grid(
    market: PublicPrices, tails: PriceRange, T: Array, k: Array, call: Array, put: Array, both: Mask
) -> tuple[Grid, Inequalities]:
    """The grid of all finite prices, and a finding for each that is not.

    ``both`` says where call and put were asked for, so that a NaN there is an answer.
    """
    order = np.lexsort((np.exp(k), T))
    T, k, call, put, both = T[order], k[order], call[order], put[order], both[order]
    price = np.where(k < 0.0, put, call)
    good = np.isfinite(price)
    bad = np.flatnonzero(~(good & (~both | (np.isfinite(call) & np.isfinite(put)))))
    broken = Inequalities(
        "bound", T[bad], k[bad], np.full(bad.size, np.nan), np.zeros(bad.size), np.ones(bad.size),
        lambda i: f"the price k={k[bad[i]]:.6g} T={T[bad[i]]:.6g} is not a number",
    )  # fmt: skip
    kappa = np.exp(k)
    good &= np.append(True, (np.diff(T) != 0.0) | (np.diff(kappa) != 0.0))
    # Exactly at the forward exp(log K − log F) may fall on either side; the call was taken.
    kappa = np.where(k < 0.0, np.minimum(kappa, np.nextafter(1.0, 0.0)), kappa)
    width = tails.reach_at(T)
    strike_error = market.strike_error(k, T, width)
    gap = call - put - (1.0 - kappa)
    gap_error = (
        estimate_price_rounding(call, width) + estimate_price_rounding(put, width) + strike_error
    )
    parity = (gap[good], gap_error[good])
    grid = assemble_grid(
        T[good],
        kappa[good],
        price[good],
        estimate_price_rounding(price, width)[good],
        strike_error[good],
        parity=parity,
    )
    return grid, broken


def _calendar_inequalities(
    market: PublicPrices, tails: PriceRange, T: Array, k: Array, price: Array
) -> Iterator[Inequalities]:
    """Calendar spreads at fixed strikes on prices (r, n), next to each other and further apart."""
    # The slope in strike, which turns rounding of strikes into rounding of prices, is at most
    # that of the secant to a strike nearer to the forward.
    inner = k - 1e-3 * k
    width = np.where(k == 0.0, 1.0, np.abs(np.exp(inner) - np.exp(k)))[:, None]
    secant = np.abs(market.otm(inner, T[:, None]).T - price) / width
    slope = np.where(k[:, None] == 0.0, 1.0, np.minimum(secant, 1.0))
    error = estimate_price_rounding(price, tails.reach_at(T))
    error += market.strike_error(k[:, None], T, tails.reach_at(T)) * slope
    stride = 1
    while stride < T.size:
        row, at = np.nonzero(~(price[:, :-stride] <= _MIN_CALENDAR_PRICE))
        short, long, strike = T[at], T[at + stride], k[row]
        value = price[row, at + stride] - price[row, at]

        def words(i: int, strike: Array = strike, short: Array = short, long: Array = long) -> str:
            option = "put" if strike[i] < 0.0 else "call"
            return (
                f"{describe_leg(1.0, option, strike[i], long[i])}, "
                f"{describe_leg(-1.0, option, strike[i], short[i])}"
            )

        yield Inequalities(
            "calendar", short, strike, value,
            error[row, at] + error[row, at + stride], price[row, at + stride], words,
        )  # fmt: skip
        stride *= 4


def _log_contract_inequalities(T: Array, price: Array) -> Iterator[Inequalities]:
    """``W(T)/2``, the price of the log contract, does not fall: no negative forward variance."""
    stride = 1
    while stride < T.size:
        one, two = price[:-stride], price[stride:]

        def words(i: int, stride: int = stride) -> str:
            return f"long 1 log contract T={T[i + stride]:.6g}, short 1 log contract T={T[i]:.6g}"

        yield Inequalities(
            "forward_variance", T[:-stride], np.full(one.shape, np.nan), two - one,
            EPS * (2.0 + 2.0 * PRICING_ROUNDINGS * np.abs(two)), two, words,
        )  # fmt: skip
        stride *= 4


def _price_listed_smiles(market: PublicPrices, tails: PriceRange, rows: Places) -> Grid:
    """Listed maturities on even strikes, out to prices of about five standard deviations."""
    reach = 0.45 * np.stack([tails.left[rows], tails.right[rows]], axis=1)
    k = np.linspace(-reach[:, 0], reach[:, 1], _STRIKES_PER_SMILE, axis=1)  # (L, n)
    at = np.broadcast_to(tails.T[rows, None], k.shape)
    price = market.otm(k, at)
    columns = (np.where(k < 0.0, np.nan, price), np.where(k < 0.0, price, np.nan))
    one_side = np.zeros(k.size, dtype=np.bool_)
    call, put = (column.ravel() for column in columns)
    return build_price_grid(market, tails, at.ravel(), k.ravel(), call, put, one_side)[0]
