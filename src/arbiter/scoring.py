"""Scores of a model against quotes: share inside bid-ask, volatility errors, density modes.

The rules are those of the design: quotes count on expiries of at least 2 days with at least 8
strikes; inside means ``bid ≤ model ≤ ask`` up to 1e-12 of the forward; errors of volatility are
taken against the volatility of the mid price, within two standard deviations of the forward,
``|k| ≤ 2·IV_mid·√T``. A model is anything with ``otm(k, T)`` and ``iv(k, T)``.
"""

from __future__ import annotations

import logging
from dataclasses import asdict, dataclass
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from arbiter.conventions import DAYS_PER_YEAR, Array
from arbiter.quotes import Quotes

Mask = NDArray[np.bool_]
logger = logging.getLogger(__name__)

BASIS_POINT = 1e-4
TOLERANCE = 1e-12  # of the forward: what rounding may do to a price that lies on a quote
MODE_HEIGHT = 1e-2  # of the slice's peak: lower bumps carry no weight
MODE_PROMINENCE = 1e-3  # of the slice's peak: shallower ripples are not modes
# Gaussian coordinates, all but 6e-5 of the law. Further out no listed strike sees a density: far
# puts that are bid imply mass near zero, and where it lies there is extrapolation.
_MODE_COORDINATES = np.linspace(-4.0, 4.0, 4001)


class Model(Protocol):
    """A model that can be scored: a Surface, a peer, or anything with these two methods."""

    def otm(self, k: Array, T: Array, /) -> Array:
        """Out-of-the-money prices in forward units: calls for ``k ≥ 0``, puts below."""
        ...

    def iv(self, k: Array, T: Array, /) -> Array:
        """Implied volatility, annualised and decimal."""
        ...


@runtime_checkable
class ExplainsMissing(Protocol):
    """A model that gives its reason where it has no volatility, as a Surface does."""

    def explain_missing_iv(self, k: Array, T: Array, /) -> tuple[str, ...]:
        """Sentences about the points at which ``iv`` is NaN."""
        ...


class Law(Protocol):
    """A risk-neutral law by maturity: a Surface, or anything with these methods."""

    @property
    def maturities(self) -> Array:
        """``(L,)`` listed maturities in years."""
        ...

    def density(self, k: Array, T: Array, /) -> Array:
        """Density of ``S_T/F_T`` per unit of κ."""
        ...

    def log_strike(self, z: Array, T: Array, /) -> Array:
        """Log-moneyness at a Gaussian quantile."""
        ...


@dataclass(frozen=True)
class Score:
    """The score of one fit. Shares lie in [0, 1]; NaN where no quote counts.

    Attributes:
        expiries: How many expiries count.
        quotes: How many quotes count.
        inside_bid_ask: Share of them whose model price lies between bid and ask.
        near: How many of them lie within two standard deviations.
        iv_rmse_bp: Root mean square error against the mid volatility on those, basis points.
        iv_rmse_half_spreads: The same error in units of each quote's own half-spread of
            volatility.
        iv_max_bp: Largest absolute error on those, basis points.
        warnings: Quotes at which the model has no volatility, as sentences.
    """

    expiries: int
    quotes: int
    inside_bid_ask: float
    near: int
    iv_rmse_bp: float
    iv_rmse_half_spreads: float
    iv_max_bp: float
    warnings: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, int | float | None]:
        """The numbers as plain values for JSON, None in place of NaN."""
        return {
            name: None if isinstance(value, float) and np.isnan(value) else value
            for name, value in asdict(self).items()
            if name != "warnings"
        }


def score(model: Model, quotes: Quotes, among: Mask | None = None) -> Score:
    """Score a model on the quotes that count.

    Args:
        model: The surface or peer.
        quotes: All quotes of the moment, those shown to the model and those held out.
        among: ``(m,)`` score these quotes only, the held-out ones for instance. Which expiries
            count is still decided on all quotes.

    Example:
        >>> from arbiter.examples import example
        >>> surface = example()
        >>> k, T = np.linspace(-0.1, 0.1, 9), np.full(9, 0.25)
        >>> iv = surface.iv(k, T)
        >>> table = {"T": T, "k": k, "iv_bid": iv - 0.01, "iv_ask": iv + 0.01}
        >>> score(surface, Quotes.from_frame(table)).inside_bid_ask
        1.0
    """
    keep = find_counted_quotes(quotes)
    chosen = quotes.select(keep if among is None else keep & _check_mask(among, quotes))
    error = _compute_errors(model, chosen, 2.0)
    worst = float(np.abs(error.difference).max()) if error.difference.size else np.nan
    price = model.otm(chosen.k, chosen.T) if len(chosen) else chosen.mid
    return Score(
        expiries=chosen.maturities.size,
        quotes=len(chosen),
        inside_bid_ask=inside_bid_ask(price, chosen),
        near=error.difference.size,
        iv_rmse_bp=_root_mean_square(error.difference) / BASIS_POINT,
        iv_rmse_half_spreads=_root_mean_square(error.difference / error.half_spread),
        iv_max_bp=worst / BASIS_POINT,
        warnings=error.warnings,
    )


def find_counted_quotes(quotes: Quotes, days: float = 2.0, strikes: int = 8) -> Mask:
    """``(m,)`` mask of the quotes that count: ask above bid, expiry long and liquid enough."""
    spread = quotes.ask > quotes.bid
    per_expiry = np.bincount(quotes.expiry[spread], minlength=quotes.maturities.size)
    # 2,880 minutes over 525,600 need not round to 2/365
    long = quotes.maturities * DAYS_PER_YEAR >= days * (1.0 - 1e-12)
    return np.asarray(spread & (long & (per_expiry >= strikes))[quotes.expiry])


def is_inside_bid_ask(model_price: ArrayLike, quotes: Quotes) -> Mask:
    """``(m,)`` whether each model price, forward units, lies between bid and ask (1e-12)."""
    price = np.asarray(model_price, dtype=np.float64)
    if price.shape != quotes.k.shape:
        raise ValueError(
            f"model_price has shape {price.shape} and there are {len(quotes)} quotes: give one "
            "out-of-the-money price per quote, model.otm(quotes.k, quotes.T)"
        )
    return np.asarray((price >= quotes.bid - TOLERANCE) & (price <= quotes.ask + TOLERANCE))


def inside_bid_ask(model_price: ArrayLike, quotes: Quotes) -> float:
    """Share of the quotes with ``bid ≤ model ≤ ask``. A NaN price is outside."""
    found = is_inside_bid_ask(model_price, quotes)
    return float(found.mean()) if found.size else float("nan")


def iv_rmse_bp(model: Model, quotes: Quotes, deviations: float = 2.0) -> float:
    """RMSE of volatility against the mid's, in basis points, where ``|k| ≤ n·IV_mid·√T``."""
    return _root_mean_square(_compute_errors(model, quotes, deviations).difference) / BASIS_POINT


def iv_rmse_half_spreads(model: Model, quotes: Quotes, deviations: float = 2.0) -> float:
    """RMSE of volatility errors, each over its quote's half-spread in volatility.

    Locked quotes have no half-spread and are left out.
    """
    error = _compute_errors(model, quotes, deviations)
    wide = error.half_spread > 0.0
    return _root_mean_square(error.difference[wide] / error.half_spread[wide])


def count_modes(law: Law, T: ArrayLike | None = None) -> NDArray[np.int64]:
    """Number of modes of each slice's density over strikes; 1 on every slice is the ideal.

    A mode is a local maximum of the density of ``S_T/F_T`` per unit of κ. It must reach 1 % of the
    slice's peak and have a prominence above 0.1 % of the peak. (Prominence is the drop to the
    higher of the two valleys that separate it from higher values.) The search uses 4,001 strikes
    from −4 to 4 Gaussian deviations. A rise at an end of that window is not counted: far puts with
    a bid imply mass near zero, whatever lies between.

    Args:
        law: A Surface, or anything with ``density`` and ``log_strike``.
        T: Maturities; the listed ones by default.

    Returns:
        ``(L,)`` counts.
    """
    times = law.maturities if T is None else np.atleast_1d(np.asarray(T, dtype=np.float64))
    k = law.log_strike(_MODE_COORDINATES, times[:, None])  # (L, 4001)
    density = law.density(k, times[:, None])
    # a density that only rises or falls has one mode, at an end
    counts = [
        max(count_peaks(row, MODE_HEIGHT * row.max(), MODE_PROMINENCE * row.max()), 1)
        for row in density
    ]
    return np.array(counts, dtype=np.int64)


def count_peaks(values: Array, height: float, prominence: float) -> int:
    """Number of inner local maxima of at least this height and prominence; plateaus count once.

    Prominence is the drop to the higher of the two valleys that separate a maximum from higher
    values, or from the ends.
    """
    steps = np.flatnonzero(np.diff(values))
    distinct = values[np.r_[0, steps + 1]]
    rises = np.diff(distinct) > 0.0
    turns = np.flatnonzero(rises[1:] != rises[:-1]) + 1
    levels = distinct[np.r_[0, turns, distinct.size - 1]]  # highs and lows by turns, and the ends
    inner = levels[1:-1]
    peaks = np.flatnonzero((inner >= height) & (inner > levels[:-2]) & (inner > levels[2:])) + 1
    found = 0
    for at in peaks:
        higher = np.flatnonzero(levels > levels[at])
        left = higher[higher < at].max(initial=0)
        right = higher[higher > at].min(initial=levels.size - 1)
        valley = max(levels[left : at + 1].min(), levels[at : right + 1].min())
        found += levels[at] - valley >= prominence
    return int(found)


@dataclass(frozen=True)
class _VolatilityErrors:
    difference: Array  # model minus mid, volatility
    half_spread: Array
    warnings: tuple[str, ...] = ()


def _compute_errors(model: Model, quotes: Quotes, deviations: float) -> _VolatilityErrors:
    near = np.abs(quotes.k) <= deviations * quotes.iv_mid * np.sqrt(quotes.T)
    if not near.any():
        return _VolatilityErrors(np.empty(0), np.empty(0))
    found = model.iv(quotes.k[near], quotes.T[near])
    warnings = _describe_missing(model, quotes.select(near), int(np.isnan(found).sum()))
    half = 0.5 * (quotes.iv_ask - quotes.iv_bid)
    return _VolatilityErrors(found - quotes.iv_mid[near], half[near], warnings)


def _describe_missing(model: Model, quotes: Quotes, absent: int) -> tuple[str, ...]:
    """Sentences about quotes at which a model has no volatility; the last one is logged.

    The first one is a surface's own reason, which its ``iv`` has logged.
    """
    if not absent:
        return ()
    reason: tuple[str, ...] = ()
    if isinstance(model, ExplainsMissing):
        reason = model.explain_missing_iv(quotes.k, quotes.T)
    warning = f"the model has no volatility at {absent} of {len(quotes)} quotes"
    logger.warning(warning)
    return (*reason, warning)


def _root_mean_square(values: Array) -> float:
    return float(np.sqrt(np.mean(values**2))) if values.size else float("nan")


def _check_mask(among: Mask, quotes: Quotes) -> Mask:
    mask = np.asarray(among)
    if mask.dtype != np.bool_ or mask.shape != quotes.k.shape:
        raise ValueError(
            f"among is {mask.dtype} of shape {mask.shape}: give one boolean per quote, "
            f"{len(quotes)} of them, as quotes.held_out(0.2) does"
        )
    return mask
