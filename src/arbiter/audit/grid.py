"""A ragged grid of out-of-the-money prices in forward units, each with its rounding.

Glossary: ``κ = K/F`` strike over forward, ``k = log κ``. The side out of the money is the put
for ``κ < 1`` and the call from ``κ = 1`` on; the other side follows by parity,
``call − put = 1 − κ``, and only ever in that direction: a put of 1e-8 is never taken as the
difference of numbers near one when the put itself is known.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from arbiter.conventions import Array
from arbiter.pricing import black

Mask = NDArray[np.bool_]
Places = NDArray[np.int64]

EPS = float(np.finfo(np.float64).eps)
_MIN_PRICE_ERROR = 1e-300  # below this a float64 loses digits and comparisons say nothing


@dataclass(frozen=True)
class Grid:
    """Prices on a ragged set of maturities and strikes, sorted by maturity, then strike.

    Attributes:
        T: Maturities, (N,).
        k: Log-strikes, (N,).
        kappa: Strikes over forward, (N,), strictly increasing within a maturity.
        price: Out-of-the-money prices in forward units, (N,).
        error: Rounding uncertainty of each price, that of its strike included, (N,).
        strike_error: Rounding uncertainty of each ``kappa``, (N,).
        iv: Implied volatilities as given, NaN where none was, (N,).
        gap: Call minus put minus ``1 − κ`` where both were given, else NaN, (N,).
        gap_error: Rounding of the gap, (N,).
    """

    T: Array
    k: Array
    kappa: Array
    price: Array
    error: Array
    strike_error: Array
    iv: Array
    gap: Array
    gap_error: Array

    @cached_property
    def is_put(self) -> Mask:
        """``(N,)`` mask of the strikes whose out-of-the-money option is the put."""
        return np.asarray(self.kappa < 1.0)

    @cached_property
    def maturity_slices(self) -> list[slice]:
        """One slice of the flat arrays per maturity, in increasing order."""
        edges = [0, *find_slice_starts(self.T)[1:].tolist(), self.T.size]
        return [slice(a, b) for a, b in pairwise(edges)]

    @cached_property
    def call(self) -> tuple[Array, Array]:
        """Call prices and their rounding, by parity below the forward."""
        put = self.is_put
        price = self.price + np.where(put, 1.0 - self.kappa, 0.0)
        return price, self.error + np.where(put, self.strike_error + EPS * price, 0.0)

    @cached_property
    def put(self) -> tuple[Array, Array]:
        """Put prices and their rounding, by parity from the forward on."""
        call = ~self.is_put
        price = self.price + np.where(call, self.kappa - 1.0, 0.0)
        return price, self.error + np.where(call, self.strike_error + EPS * price, 0.0)

    @cached_property
    def implied_volatilities(self) -> Array:
        """``(N,)`` implied volatilities: as given, else of the price; NaN where there is none."""
        from_price = black.implied_total_volatility(self.price, self.k).volatility / np.sqrt(self.T)
        given = black.otm(self.k, np.nan_to_num(self.iv) * np.sqrt(self.T)) == self.price
        return np.where(given & np.isfinite(self.iv), self.iv, from_price)


def find_slice_starts(T: Array) -> Places:
    """Where runs of equal maturities begin."""
    return np.flatnonzero(np.append(np.ones(min(T.size, 1)), np.diff(T)))


def assemble_grid(
    T: Array,
    kappa: Array,
    price: Array,
    error: Array,
    strike_error: Array,
    *,
    iv: Array | None = None,
    parity: tuple[Array, Array] | None = None,
) -> Grid:
    """Make a grid of sorted arrays; each price gets what the rounding of its strike is worth.

    A strike known to ``δ`` leaves the price uncertain by ``δ`` times its slope. In a convex slice
    the inner one of two neighbouring secants is the steeper, so that the slope is at most the
    steeper secant on its own side, and at most one beside the forward. ``parity`` holds the gap
    between call and put and its rounding, where both are known.
    """
    put = kappa < 1.0
    same = (T[1:] == T[:-1]) & (put[1:] == put[:-1])
    width = np.where(same, np.diff(kappa), 1.0)
    secant = np.where(same, np.minimum(np.abs(np.diff(price)) / width, 1.0), np.nan)
    lower, upper = np.append(np.nan, secant), np.append(secant, np.nan)
    inner = np.where(put, upper, lower)
    slope = np.where(np.isfinite(inner), np.fmax(lower, upper), 1.0)
    unknown = np.full(T.shape, np.nan)
    return Grid(
        T=T,
        k=np.log(kappa),
        kappa=kappa,
        price=price,
        error=error + strike_error * slope + _MIN_PRICE_ERROR,
        strike_error=strike_error,
        iv=unknown if iv is None else iv,
        gap=unknown if parity is None else parity[0],
        gap_error=unknown if parity is None else parity[1],
    )


EMPTY_GRID = assemble_grid(*(np.zeros(0) for _ in range(5)))  # of what could not be priced
