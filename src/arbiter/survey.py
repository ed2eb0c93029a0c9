"""Where to look at a surface: a random grid of public prices, refined where it matters.

Only public methods are called, so that a peer, or a surface whose prices were tampered with,
is judged like any other. No fit has seen these strikes and maturities: they are drawn here.

Glossary: ``κ = K/F``, ``k = log κ``; a table of prices is (maturities, strikes).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.random import Generator

from arbiter import scan
from arbiter.grid import EPS, Array, Grid, Places, assemble
from arbiter.inequalities import Inequalities
from arbiter.structural import AGREEMENT, Structural, reprice, structural

# Roundings that an accurate pricing routine may spend on one price: a few, and as many more as
# its logarithm is large, because exponents are rounded too.
PRICING_ROUNDINGS = 8.0

_NEGLIGIBLE = 1e-36  # of the forward, or of the strike for puts: about 12 standard deviations
_FAR = 680.0  # farthest |k|: e^680 times a forward still is a float64
_PER_MATURITY = 12  # strikes drawn for each maturity and side
_MOST_MATURITIES = 48  # that strikes are drawn for
_CLUSTERS = 24
_REFINED = 24  # places refined per family, four strikes each
_TAIL = 0.25 * AGREEMENT  # mass and mean have to be one to AGREEMENT


@dataclass(frozen=True)
class Survey:
    """What was seen of a surface.

    Attributes:
        grid: Prices on the random grid.
        extra: Inequalities that need more than prices on that grid.
        smiles: Prices of the listed maturities on even strikes, for Durrleman's function.
    """

    grid: Grid
    extra: tuple[Inequalities, ...]
    smiles: Grid


class Market:
    """The public prices of a surface in forward units."""

    def __init__(self, surface: Any) -> None:
        self.surface = surface
        self.maturities = np.atleast_1d(np.asarray(surface.maturities, dtype=np.float64))

    def price(self, k: Array, T: Array, side: str) -> Array:
        """Calls or puts at log-strikes and maturities that broadcast to (m, n)."""
        forward, discount = self._money(T)
        strike = forward * np.exp(k)
        method = self.surface.call if side == "call" else self.surface.put
        value = np.asarray(method(strike, np.broadcast_to(T, strike.shape)), dtype=np.float64)
        return np.asarray(value / (forward * discount))

    def otm(self, k: Array, T: Array) -> Array:
        """The side out of the money, (m, n)."""
        k, T = np.broadcast_arrays(k, T)
        value = np.empty(k.shape)
        for side, here in (("put", k < 0.0), ("call", k >= 0.0)):
            if here.any():
                value[here] = self.price(k[here][None], T[here][None], side)[0]
        return value

    def strike_error(self, k: Array, T: Array) -> Array:
        """What a strike in currency, turned back into moneyness, is uncertain by."""
        forward = self._money(T)[0]
        digits = 4.0 + np.abs(k) + 2.0 * np.abs(np.log(forward))
        return np.asarray(EPS * digits * np.exp(k))

    def _money(self, T: Array) -> tuple[Array, Array]:
        unique, inverse = np.unique(T, return_inverse=True)
        forward = np.asarray(self.surface.forward(unique), dtype=np.float64)
        discount = np.asarray(self.surface.discount(unique), dtype=np.float64)
        return forward[inverse].reshape(T.shape), discount[inverse].reshape(T.shape)


def rounding(price: Array) -> Array:
    """Uncertainty of prices that were computed, not given."""
    size = np.abs(np.nan_to_num(price))
    return np.asarray(EPS * size * (PRICING_ROUNDINGS - np.log(np.clip(size, 1e-300, 1.0))))


def survey(surface: Any, seed: int) -> Survey:
    """Price a surface on a random grid that covers 12 standard deviations of every maturity."""
    rng = np.random.default_rng(seed)
    market = Market(surface)
    T = _maturities(market.maturities, rng)  # (L,)
    far = _Tails(market, T)
    k = _strikes(far, rng)  # (m,)
    k = np.union1d(k, _tight_strikes(T, k, market.otm(k, T[:, None])))
    calls = market.price(k, T[:, None], "call")
    puts = market.price(k, T[:, None], "put")
    pieces = [_Piece(np.repeat(T, k.size), np.tile(k, T.size), calls.ravel(), puts.ravel())]
    listed = np.isin(T, market.maturities)
    rows = np.sort(rng.permutation(np.flatnonzero(listed))[: scan.ROWS])
    found = scan.across_strikes(market.otm, T[rows], far.left[rows], far.right[rows], rng)
    if found[0].size:
        at, strikes = found
        price = market.otm(strikes[None], at[None])[0]
        unknown = np.full(price.shape, np.nan)
        pieces.append(
            _Piece(
                at,
                strikes,
                np.where(strikes < 0.0, unknown, price),
                np.where(strikes < 0.0, price, unknown),
            )
        )
    later = scan.across_maturities(market.otm, T, far.typical(), rng)
    grid, broken = _grid(market, pieces)
    extra = [*broken, *far.inequalities(), *_calendars(market, *later)]
    extra += _log_contract(surface, np.union1d(T, later[0]))
    return Survey(grid, tuple(extra), _smiles(market, T[listed], far.core[listed]))


def prove(surface: Any) -> Structural | None:
    """The structural proof, and how far public prices are from those of the stored slopes."""
    stored = [getattr(surface, name, None) for name in ("knots", "slopes", "weights")]
    if any(values is None for values in stored):
        return None
    knots, slopes, weights = stored
    market = Market(surface)
    proof = structural(knots, market.maturities, slopes, weights)
    if not proof.passed:
        return proof
    k = np.array([-0.2, 0.0, 0.2])
    call, put = reprice(knots, slopes, weights, np.exp(k))
    T = market.maturities[:, None]
    gap = max(
        float(np.max(np.abs(market.price(k, T, "call") - call))),
        float(np.max(np.abs(market.price(k, T, "put") - put))),
    )
    return Structural(proof.checks, gap)
