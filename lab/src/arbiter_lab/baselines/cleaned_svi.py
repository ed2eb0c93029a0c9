"""Cleaned SVI: raw SVI slices, projected onto prices without static arbitrage.

This is the usual practice, and the baseline of the paper. Slices are fitted one by one and sampled
on strikes that all maturities share. The grid of call prices is then projected by one quadratic
program (:mod:`arbiter_lab.baselines.grid_projection`). Prices are linear in strike between nodes.
Between maturities they are mixtures of the two neighbours, with weights that make total variance at
the money linear in maturity. Both interpolations preserve convexity, monotonicity and order.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from arbiter.conventions import Array
from arbiter.pricing import black
from arbiter.quotes import Quotes
from arbiter_lab.baselines.grid_projection import Violations, project, violations
from arbiter_lab.metrics.volatility import iv_error_bp, iv_rmse_bp
from arbiter_lab.peers.peer import Peer, broadcast_points
from arbiter_lab.peers.svi import SVI, fit_svi

NODE_STEP = 0.02  # of asinh(k/σ√T) between nodes, σ√T the shortest maturity's: lines add 0.2 bp
_MIN_VEGA = 4e-3  # vega: a hundredth of the money's, as in the projection
_UNQUOTED_WEIGHT = 1e-2  # weight of a node past the quotes of its slice
_GRID_DEVIATIONS = (8.0, 6.0)  # deviations of the longest maturity below and above the money


class CleaningCost(NamedTuple):
    """Errors of volatility before and after cleaning, in basis points.

    Attributes:
        before: Root mean square error of raw SVI.
        after: Root mean square error of the cleaned prices, at the same points.
        moved: Root mean square difference between the two.
    """

    before: float
    after: float
    moved: float


@dataclass(frozen=True, eq=False, repr=False)
class Nodes(Peer):
    """Prices at nodes, interpolated so that absence of static arbitrage is preserved.

    Attributes:
        maturities: ``(L,)`` years.
        kappa: ``(m,)`` strikes over forward of the nodes, one among them.
        prices: ``(L, m)`` out-of-the-money prices there, in forward units.
        found: Violations before the projection.
        left: Violations after the projection, all zero.
    """

    name: ClassVar[str] = "projected"
    maturities: Array
    kappa: Array
    prices: Array
    found: Violations
    left: Violations

    def otm(self, k: ArrayLike, T: ArrayLike) -> Array:
        """Out-of-the-money prices in forward units: calls for ``k ≥ 0``, puts below."""
        at, t = broadcast_points(k, T)
        low, share = self._bracket_maturity(t)
        # a put is worth nothing at strike 0; past the last node calls stay
        x, last = np.concatenate([[0.0], self.kappa]), self.kappa.size
        table = np.pad(self.prices, ((1, 0), (1, 0)))  # (L + 1, m + 1), intrinsic value first
        kappa = np.minimum(np.exp(at), x[-1])
        left = np.clip(np.searchsorted(x, kappa, side="right") - 1, 0, last - 1)
        along = (kappa - x[left]) / (x[left + 1] - x[left])
        before, after = (
            (1.0 - along) * table[row, left] + along * table[row, left + 1]
            for row in (low, low + 1)
        )
        return np.asarray((1.0 - share) * before + share * after)

    def total_variance(self, k: ArrayLike, T: ArrayLike) -> Array:
        """Total implied variance ``σ²T``; zero where the price is not above its lower bound."""
        at, t = broadcast_points(k, T)
        found = black.implied_total_volatility(self.otm(at, t), at)
        none = (found.reason == black.Reason.BELOW_INTRINSIC) | (
            found.reason == black.Reason.AT_INTRINSIC
        )
        return np.asarray(np.where(none, 0.0, found.volatility) ** 2)

    def _bracket_maturity(self, T: Array) -> tuple[NDArray[np.int64], Array]:
        """Return the index of the maturity before, 0 for none, and the weight of the next one."""
        money = int(np.searchsorted(self.kappa, 1.0))
        price = np.concatenate([[0.0], self.prices[:, money]])  # (L + 1,)
        when = np.concatenate([[0.0], self.maturities])
        variance = np.asarray(black.implied_total_volatility(price[1:], 0.0).volatility) ** 2
        total = np.interp(T, when, np.concatenate([[0.0], variance]))
        low = np.clip(np.searchsorted(when, T, side="right") - 1, 0, when.size - 2)
        rise = price[low + 1] - price[low]
        even = np.clip((T - when[low]) / (when[low + 1] - when[low]), 0.0, 1.0)
        risen = np.asarray(black.otm(0.0, np.sqrt(total))) - price[low]
        share = np.where(rise > 0.0, risen / np.where(rise > 0.0, rise, 1.0), even)
        return low, np.clip(share, 0.0, 1.0)


@dataclass(frozen=True, eq=False, repr=False)
class Cleaned(Nodes):
    """Cleaned SVI: prices free of static arbitrage; constant beyond the last maturity.

    Attributes:
        raw: The slices before cleaning.
    """

    name: ClassVar[str] = "SVI, cleaned"
    raw: SVI

    def cost(self, k: ArrayLike, T: ArrayLike, iv: ArrayLike) -> CleaningCost:
        """Return the errors before and after cleaning where the exact volatilities are known.

        Args:
            k: Log-strikes.
            T: Maturities.
            iv: Exact volatilities; all three broadcast, NaN does not count.
        """
        at, t, truth = np.broadcast_arrays(*(np.asarray(x, dtype=np.float64) for x in (k, T, iv)))
        known = np.isfinite(truth)
        raw, clean = (model.iv(at[known], t[known]) for model in (self.raw, self))
        errors = (iv_error_bp(raw, truth[known]), iv_error_bp(clean, truth[known]))
        moved = iv_error_bp(clean, raw)
        return CleaningCost(*(float(iv_rmse_bp(e[None]).value or 0.0) for e in (*errors, moved)))


def fit_then_clean(quotes: Quotes, method: str = "qp") -> Cleaned:
    """Fit raw SVI, and project its prices onto those without static arbitrage.

    Args:
        quotes: Quotes with at least one expiry of five.
        method: Method of the projection: ``"qp"``, which needs the package piqp, or ``"dykstra"``.

    Raises:
        ValueError: If no expiry has five quotes, or the method does not end free of arbitrage.
        ImportError: If piqp is missing.
    """
    if method == "pava_then_qp":
        raise ValueError("method = 'pava_then_qp' leaves calendar spreads: give 'qp' or 'dykstra'")
    raw = fit_svi(quotes)
    fitted = np.isin(quotes.maturities, raw.maturities)
    return clean(raw, quoted_range(quotes)[fitted], method)


def clean(raw: SVI, quoted: Array | None = None, method: str = "qp") -> Cleaned:
    """Sample the slices at nodes and project the prices.

    Distances are in volatility, by the vega of each node at its own volatility. With the lower
    volatility at the money, far wings would weigh too much and their repair would distort the
    prices near the money.

    Args:
        raw: The SVI slices.
        quoted: ``(L, 2)`` lowest and highest log-strike of the quotes of each slice; nodes beyond
            have a hundredth of the weight. All nodes weigh alike if left out.
        method: Method of the projection.
    """
    k = choose_nodes(np.sqrt(raw.total_variance(0.0, raw.maturities)), quoted)
    total = np.sqrt(raw.total_variance(k, raw.maturities[:, None]))  # (L, m)
    otm = np.asarray(black.otm(k, total))
    prices, found, left = project_prices(otm, total, k, quoted, method)
    return Cleaned(raw.maturities, np.exp(k), prices, found, left, raw)


def quoted_range(quotes: Quotes) -> Array:
    """``(L, 2)`` lowest and highest log-strike of the quotes of each expiry."""
    first = np.flatnonzero(np.diff(quotes.expiry, prepend=-1))
    last = np.append(first[1:], len(quotes)) - 1
    return np.stack([quotes.k[first], quotes.k[last]], 1)


def project_prices(
    otm: Array, total: Array, k: Array, quoted: Array | None = None, method: str = "qp"
) -> tuple[Array, Violations, Violations]:
    """Project prices onto the nearest ones without static arbitrage.

    Args:
        otm: ``(L, m)`` out-of-the-money prices in forward units.
        total: ``(L, m)`` their total volatilities ``σ√T``, whose vega sets the weights; a price
            without one (NaN) has the smallest weight.
        k: ``(m,)`` log-strikes of the nodes.
        quoted: As for :func:`clean`.
        method: Method of the projection.

    Returns:
        Out-of-the-money prices, and the violations before and after.
    """
    kappa, intrinsic = np.exp(k), np.where(k < 0.0, -np.expm1(k), 0.0)
    calls = otm + intrinsic
    vega = np.nan_to_num(np.asarray(black.vega(k, np.nan_to_num(total))))
    weights = np.maximum(vega, _MIN_VEGA) ** -2.0
    if quoted is not None:
        weights *= np.where((k >= quoted[:, :1]) & (k <= quoted[:, 1:]), 1.0, _UNQUOTED_WEIGHT)
    made = project(calls, kappa, weights=weights, method=method)
    return np.maximum(made.prices - intrinsic, 0.0), violations(calls, kappa), made.violations


def choose_nodes(deviation: Array, quoted: Array | None = None) -> Array:
    """Return ``(m,)`` log-strikes of the nodes, zero among them, dense near the money.

    Args:
        deviation: ``(L,)`` total volatility ``σ√T`` at the money of each maturity.
        quoted: As for :func:`clean`.
    """
    near, far = float(deviation.min()), float(deviation.max())
    ends = np.array([-_GRID_DEVIATIONS[0] * far, _GRID_DEVIATIONS[1] * far])
    if quoted is not None:
        ends = np.array([min(ends[0], quoted.min()), max(ends[1], quoted.max())])
    first, last = np.arcsinh(ends / near) / NODE_STEP
    return np.asarray(near * np.sinh(NODE_STEP * np.arange(np.floor(first), np.ceil(last) + 1.0)))
