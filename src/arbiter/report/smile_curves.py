"""A fitted surface at its quotes and along its smiles: the numbers behind the smile panels.

A smile runs a little past its outermost quotes. What lies beyond them is extrapolation and is
drawn as such.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from arbiter import scoring
from arbiter.conventions import Array
from arbiter.quotes import Quotes

Mask = NDArray[np.bool_]
logger = logging.getLogger(__name__)

MAX_RESIDUAL_HALF_SPREADS = 99.0  # half-spreads; a locked quote has none to measure with
_POINTS_BETWEEN_QUOTES = 101  # points of a smile between its outermost quotes
_POINTS_PAST_QUOTES = 16  # points of a smile past them, on either side
_REACH_DEVIATIONS = 0.75  # Gaussian deviations that a curve is drawn past its last quote,
_MAX_REACH_SHARE = 0.12  # but no more than this share of the quoted width
_CELL_WIDTH_DEVIATIONS, _MAX_CELL_DEVIATIONS = 0.25, 6.0  # standard deviations


class SmileSurface(Protocol):
    """Smiles by maturity: the methods of a surface that the smile panels need."""

    def otm(self, k: Array, T: Array, /) -> Array:
        """Out-of-the-money prices in forward units."""

    def iv(self, k: Array, T: Array, /) -> Array:
        """Implied volatilities, annualised and decimal."""

    def z(self, k: Array, T: Array, /) -> Array:
        """Gaussian coordinates of log-strikes."""

    def log_strike(self, z: Array, T: Array, /) -> Array:
        """Log-strikes at Gaussian coordinates."""


@dataclass(frozen=True, eq=False)
class SmileReadings:
    """A surface evaluated at its quotes and along one smile per expiry.

    L is the number of expiries, m that of quotes and p that of points of a smile.

    Attributes:
        surface: The surface, or any other model of smiles.
        quotes: The quotes it was fitted to.
    """

    surface: SmileSurface
    quotes: Quotes

    def __post_init__(self) -> None:
        if not len(self.quotes):
            raise ValueError(
                f"{self.quotes!r}: there is nothing to report on; see quotes.counts() for why no "
                "quote could be used"
            )

    @property
    def T(self) -> Array:  # noqa: N802 - the field's name
        """``(L,)`` maturities of the quotes."""
        return self.quotes.maturities

    @property
    def in_currency(self) -> bool:
        """Whether strikes are in currency, or only in units of the forward."""
        return bool(np.any(self.quotes.forwards != 1.0))

    def strike_axis(self, i: int, k: Array) -> Array:
        """Places of log-strikes ``k`` of expiry ``i`` on the strike axis.

        They are strikes in currency where the quotes have forwards, else log-strikes.
        """
        return np.asarray(self.quotes.forwards[i] * np.exp(k) if self.in_currency else k)

    @cached_property
    def quote_offsets(self) -> NDArray[np.int64]:
        """``(L + 1,)`` where the quotes of each expiry begin."""
        return np.searchsorted(self.quotes.expiry, np.arange(self.T.size + 1))

    @cached_property
    def atm(self) -> Array:
        """``(L,)`` at-the-money volatility."""
        return np.asarray(self.surface.iv(np.zeros(self.T.size), self.T))

    @cached_property
    def maturity_shade(self) -> Array:
        """``(L,)`` place of each expiry between the first (0) and the last (1), in log T."""
        logs = np.log(self.T)
        width = logs[-1] - logs[0]
        return np.asarray((logs - logs[0]) / width if width > 0.0 else np.zeros(logs.size))

    @cached_property
    def price(self) -> Array:
        """``(m,)`` model prices of the quotes, forward units."""
        return np.asarray(self.surface.otm(self.quotes.k, self.quotes.T))

    @cached_property
    def iv(self) -> Array:
        """``(m,)`` model volatilities of the quotes."""
        return np.asarray(self.surface.iv(self.quotes.k, self.quotes.T))

    @cached_property
    def inside(self) -> Mask:
        """``(m,)`` whether the model lies between bid and ask."""
        return scoring.is_inside_bid_ask(self.price, self.quotes)

    @cached_property
    def residual(self) -> Array:
        """``(m,)`` model minus mid in half-spreads of price; a locked quote has 0 or ±99."""
        gap, half = self.price - self.quotes.mid, self.quotes.half_spread
        wide = half > 0.0
        ratio = gap / np.where(wide, half, 1.0)
        locked = np.where(self.inside, 0.0, np.copysign(MAX_RESIDUAL_HALF_SPREADS, gap))
        return np.clip(
            np.where(wide, ratio, locked), -MAX_RESIDUAL_HALF_SPREADS, MAX_RESIDUAL_HALF_SPREADS
        )

    @cached_property
    def deviations(self) -> Array:
        """``(m,)`` moneyness in standard deviations of the quote's own volatility."""
        return np.asarray(self.quotes.k / (self.quotes.iv_mid * np.sqrt(self.quotes.T)))

    @cached_property
    def share_inside(self) -> Array:
        """``(L,)`` share of each expiry's quotes inside bid-ask."""
        total = np.diff(self.quote_offsets)
        return np.bincount(self.quotes.expiry, self.inside, total.size) / total

    @cached_property
    def residual_cells(self) -> ResidualCells:
        """Residuals by expiry and moneyness; what lies beyond six deviations counts as six."""
        place = np.clip(self.deviations, -_MAX_CELL_DEVIATIONS, _MAX_CELL_DEVIATIONS - 1e-9)
        column = np.floor(place / _CELL_WIDTH_DEVIATIONS).astype(np.int64)
        first, width = column.min(), column.max() - column.min() + 1
        cell = self.quotes.expiry * width + column - first
        shape = self.T.size, int(width)

        def total(weights: NDArray[Any] | None) -> Array:
            return np.bincount(cell, weights, shape[0] * shape[1]).reshape(shape).astype(float)

        number = total(None)
        some = np.where(number > 0.0, number, np.nan)
        return ResidualCells(
            edges=_CELL_WIDTH_DEVIATIONS * (first + np.arange(width + 1)),
            number=number,
            mean=total(self.residual) / some,
            inside=total(self.inside) / some,
        )

    @cached_property
    def quoted_range(self) -> tuple[Array, Array]:
        """``(L,)`` log-moneyness of the first and of the last quote of each expiry."""
        return self.quotes.k[self.quote_offsets[:-1]], self.quotes.k[self.quote_offsets[1:] - 1]

    @cached_property
    def quoted_z(self) -> tuple[Array, Array]:
        """``(L,)`` Gaussian coordinates of the first and of the last quote of each expiry."""
        low, high = (np.asarray(self.surface.z(k, self.T)) for k in self.quoted_range)
        return low, high

    @property
    def quoted_points(self) -> slice:
        """The part of a smile's points that lies between its quotes, both ends included."""
        return slice(_POINTS_PAST_QUOTES, _POINTS_PAST_QUOTES + _POINTS_BETWEEN_QUOTES)

    @cached_property
    def smile_k(self) -> Array:
        """``(L, p)`` log-moneyness of the smiles' points; see :attr:`quoted_points`."""
        low, high = (k[:, None] for k in self.quoted_range)
        first, last = (
            np.asarray(self.surface.log_strike(z + reach, self.T))[:, None]
            for z, reach in zip(self.quoted_z, (-_REACH_DEVIATIONS, _REACH_DEVIATIONS), strict=True)
        )
        most = np.where(high > low, _MAX_REACH_SHARE * (high - low), np.inf)
        first, last = np.maximum(first, low - most), np.minimum(last, high + most)
        step = np.linspace(0.0, 1.0, _POINTS_PAST_QUOTES, endpoint=False)
        middle = low + (high - low) * np.linspace(0.0, 1.0, _POINTS_BETWEEN_QUOTES)
        after = high + (last - high) * (1.0 - step[::-1])
        return np.concatenate([first + (low - first) * step, middle, after], axis=1)

    @cached_property
    def smile_iv(self) -> Array:
        """``(L, p)`` fitted volatility along the smiles."""
        return np.asarray(self.surface.iv(self.smile_k, self.T[:, None]))

    @cached_property
    def smile_error(self) -> Array | None:
        """``(L, p)`` standard error of the fitted volatility; None where the surface has none.

        Errors are computed at a quarter of the points and interpolated linearly, since they cost
        far more than values.
        """
        size = self.smile_k.shape[1]
        some = np.linspace(0, size - 1, size // 4).round().astype(np.int64)
        error = self.standard_error("iv_error", self.smile_k[:, some], self.T[:, None])
        if error is None:
            return None
        return np.stack([np.interp(np.arange(size), some, row) for row in error])

    @cached_property
    def smile_range(self) -> Array:
        """``(L, 2)`` volatilities that a picture of each smile should show.

        It covers the fitted curve and nearly all quotes. The highest asks of nearly worthless
        options are left out, since they would flatten the smile.
        """
        iv = self.smile_iv[:, self.quoted_points]
        low, high = np.nanmin(iv, axis=1), np.nanmax(iv, axis=1)
        parts = [
            slice(a, b)
            for a, b in zip(self.quote_offsets[:-1], self.quote_offsets[1:], strict=True)
        ]
        bids = np.array([np.quantile(self.quotes.iv_bid[part], 0.02) for part in parts])
        asks = np.array([np.quantile(self.quotes.iv_ask[part], 0.98) for part in parts])
        low, high = np.fmin(low, bids), np.fmax(high, np.fmin(asks, 2.0 * high))
        margin = 0.06 * np.fmax(high - low, 0.004)
        return np.stack([np.fmax(low - margin, 0.0), high + margin], axis=1)

    def standard_error(self, name: str, *points: Array) -> Array | None:
        """The surface's standard errors from its method ``name``; None where it has none."""
        if not hasattr(self.surface, name):
            return None
        try:
            return np.asarray(getattr(self.surface, name)(*points))
        except ValueError as error:  # the quotes do not fix the fit
            logger.info("no standard errors are drawn: %s", error)
            return None


@dataclass(frozen=True, eq=False)
class ResidualCells:
    """Residuals by expiry and moneyness, all ``(L, c)`` but ``edges (c + 1,)``; NaN where empty."""

    edges: Array
    number: Array
    mean: Array
    inside: Array
