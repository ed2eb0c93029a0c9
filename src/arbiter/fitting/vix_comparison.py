"""Index and VIX options side by side: each market by itself, both together, date by date."""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import ArrayLike, NDArray

from arbiter import scoring
from arbiter.conventions import DAYS_PER_YEAR, INDEX_POINTS, Array
from arbiter.fitting import FitOptions, FittedSurface, VixSmiles, fit_vix
from arbiter.fitting.direct_fit import begin_fit, finish_fit, finish_joint_fit, require_prior
from arbiter.fitting.joint_fit import fit_vix_smiles, require_one_moment
from arbiter.fitting.vix_fit import finish_smiles
from arbiter.fitting.vix_quotes import VixMarket
from arbiter.futures import FuturesCurve
from arbiter.pricing.transport import Transport
from arbiter.pricing.vix_slices import VixQueries
from arbiter.quotes import MIN_QUOTES, Quotes, require_quotes
from arbiter.surface import Surface


@dataclass(frozen=True, eq=False)
class VixLaw:
    """The VIX of a surface in the units of its quotes, with the methods of a Surface for them.

    Prices and log-moneyness are over the future that the quotes are written in, so that model and
    quotes compare strike by strike, though the surface's own future may be a tick away.

    Attributes:
        model: A surface with VIX slices, or smiles of ``fit_vix``.
        quotes: Quotes of VIX options.
    """

    model: VixQueries
    quotes: Quotes

    def otm(self, k: ArrayLike, T: ArrayLike) -> Array:
        """Out-of-the-money prices, undiscounted, over the quotes' future."""
        k, T = np.broadcast_arrays(np.asarray(k, dtype=np.float64), T)
        future = self._future(T)
        K = future * np.exp(k)
        call, put = (self.model.vix_option(K, T, side) for side in ("call", "put"))
        return np.asarray(np.where(k >= 0.0, call, put) / (future * self.model.discount(T)))

    def iv(self, k: ArrayLike, T: ArrayLike) -> Array:
        """Implied volatility at these strikes, on the model's own future.

        On that of the quotes calls and puts would have two, where the futures differ.
        """
        k, T = np.broadcast_arrays(np.asarray(k, dtype=np.float64), T)
        return self.model.vix_iv(self._future(T) * np.exp(k), T)

    def z(self, k: ArrayLike, T: ArrayLike) -> Array:
        """Gaussian percentile of a strike."""
        k, T = np.broadcast_arrays(np.asarray(k, dtype=np.float64), T)
        own = k + np.log(self._future(T) / self.model.vix_future(T))
        return self.model.require_vix_slices().evaluate(Transport.z, own, T)

    def log_strike(self, z: ArrayLike, T: ArrayLike) -> Array:
        """Log-moneyness at a Gaussian percentile."""
        z, T = np.broadcast_arrays(np.asarray(z, dtype=np.float64), T)
        own = self.model.require_vix_slices().evaluate(Transport.log_strike, z, T)
        return np.asarray(own + np.log(self.model.vix_future(T) / self._future(T)))

    def _future(self, T: Array) -> Array:
        at = np.abs(self.quotes.maturities - T[..., None]).argmin(-1)
        return np.asarray(self.quotes.forwards[at])


@dataclass(frozen=True, eq=False)
class JointComparison:
    """What a joint fit made of two markets.

    Attributes:
        surface: The joint surface, which has VIX slices.
        alone: The surface of the index alone.
        smiles: The VIX alone; None where there are futures and no options.
        market: Options and futures on the VIX.
        table: One row per VIX date, index points. ``future`` and ``half_spread`` are quoted, null
            where there is no future; ``spx_alone`` is 100 √FV of the index alone, ``vix_alone``
            100 √E[(VIX/100)²] of the VIX alone and ``gap`` the residual of the coupling between
            the two free fits. ``root_forward_variance``, ``root_second_moment`` and ``residual``
            are the same three of the joint surface, ``fitted_future`` and ``vvix`` its own;
            ``quotes`` counts options, ``inside`` is the share of them inside bid-ask.
        inside: ``(m,)`` whether each VIX quote contains the joint surface's price.
    """

    surface: Surface
    alone: FittedSurface
    smiles: VixSmiles | None
    market: VixMarket
    table: pl.DataFrame
    inside: NDArray[np.bool_]

    @classmethod
    def from_surfaces(
        cls,
        surface: Surface,
        alone: FittedSurface,
        vix_quotes: Quotes | None,
        vix_futures: FuturesCurve | None = None,
        options: FitOptions | None = None,
    ) -> JointComparison:
        """Compare a joint surface with that of the index alone; the VIX alone is fitted here.

        Args:
            surface: The joint surface.
            alone: The surface of the index alone.
            vix_quotes: What the joint surface was fitted to.
            vix_futures: And this.
            options: Options of the fit of the VIX alone.
        """
        market = VixMarket.from_quotes(vix_quotes, vix_futures)
        smiles = None
        if vix_quotes is not None and len(vix_quotes) >= MIN_QUOTES:
            smiles = fit_vix(vix_quotes, vix_futures, options=options)
        return cls.from_fits(surface, alone, smiles, market)

    @classmethod
    def from_fits(
        cls, surface: Surface, alone: FittedSurface, smiles: VixSmiles | None, market: VixMarket
    ) -> JointComparison:
        """Compare fits that are there already; the arguments are the attributes."""
        inside = _inside(surface, market.quotes)
        table = _compare_dates(surface, alone, smiles, market, inside)
        return cls(surface, alone, smiles, market, table, inside)

    def column(self, name: str) -> Array:
        """A column of the table as floats, NaN where it has nulls."""
        return np.asarray(self.table[name].cast(float).fill_null(np.nan).to_numpy())

    @cached_property
    def inside_alone(self) -> float | None:
        """Share of VIX quotes that contain the price of the VIX alone; None without options."""
        if self.smiles is None:
            return None
        return _share_or_none(_inside(self.smiles, self.market.quotes))

    def to_dict(self) -> dict[str, Any]:
        """A summary, and the table, as plain values."""
        quotes, t = self.market.quotes, self.table
        square = t["root_second_moment"] / t["root_forward_variance"]
        return {
            "quotes": len(quotes),
            "excluded": quotes.exclusions.height,
            "inside_bid_ask": _share_or_none(self.inside),
            "inside_bid_ask_alone": self.inside_alone,
            "largest_future_error": _largest_or_none(t["future_error"]),
            "largest_second_moment_error": _largest_or_none(square**2 - 1.0),
            "largest_gap_alone": _largest_or_none(t["gap"]),
            "largest_residual": _largest_or_none(t["residual"]),
            "dates": t.to_dicts(),
        }


class MarketFits(NamedTuple):
    """Fits of the index and the VIX together, and of each by itself.

    Attributes:
        joint: The surface of both, ``fit(quotes, vix_quotes=...)``.
        alone: The surface of the index alone, ``fit(quotes)``.
        smiles: The VIX alone, ``fit_vix(vix_quotes)``; None with fewer than three options.
        market: Options and futures on the VIX.
    """

    joint: FittedSurface
    alone: FittedSurface
    smiles: VixSmiles | None
    market: VixMarket


def fit_markets(
    quotes: Quotes,
    vix_quotes: Quotes | None,
    vix_futures: FuturesCurve | None = None,
    options: FitOptions | None = None,
) -> MarketFits:
    """Fit both markets together and each by itself; stages that they share are computed once.

    Args:
        quotes: Quotes of the index.
        vix_quotes: Options on the VIX, or None.
        vix_futures: Futures on the VIX, or None.
        options: Options of the fits.

    Raises:
        ValueError: If there are fewer than three quotes, or the markets do not fit together.
    """
    began = time.perf_counter()
    options = FitOptions() if options is None else options
    require_quotes(quotes, "a fit")
    require_prior(None, options)
    market = VixMarket.from_quotes(vix_quotes, vix_futures)
    require_one_moment(quotes, market)
    stage = begin_fit(quotes, options)
    apart, status = fit_vix_smiles(market, options)
    joint = finish_joint_fit(stage, market, apart, None, began)
    smiles = None
    if vix_quotes is not None and len(vix_quotes) >= MIN_QUOTES:
        smiles = finish_smiles(market, apart, status, options)
    return MarketFits(joint, finish_fit(stage, time.perf_counter()), smiles, market)


def _compare_dates(
    surface: Surface,
    alone: FittedSurface,
    smiles: VixSmiles | None,
    market: VixMarket,
    inside: NDArray[np.bool_],
) -> pl.DataFrame:
    quotes = market.quotes
    T, none = quotes.maturities, np.full(quotes.maturities.size, np.nan)
    future, half = none.copy(), none.copy()
    future[market.at], half[market.at] = market.price, market.half
    spx = INDEX_POINTS * np.sqrt(np.asarray(alone.forward_variance(T)))
    vix = none if smiles is None else INDEX_POINTS * np.sqrt(smiles.forward_variance(T))
    root = INDEX_POINTS * np.sqrt(np.asarray(surface.forward_variance(T)))
    moment = INDEX_POINTS * np.sqrt(np.asarray(surface.vix_second_moment(T)))
    fitted = np.asarray(surface.vix_future(T))
    count = np.bincount(quotes.expiry, minlength=T.size)
    hits = np.bincount(quotes.expiry, inside, minlength=T.size)
    quoted = count > 0
    vix = np.where(quoted, vix, np.nan)  # a date without options has no second moment of its own
    return pl.DataFrame(
        {
            "date": list(quotes.labels),
            "T": T,
            "days": DAYS_PER_YEAR * T,
            "future": future,
            "half_spread": half,
            "fitted_future": fitted,
            "future_error": fitted - future,
            "spx_alone": spx,
            "vix_alone": vix,
            "gap": vix - spx,
            "root_forward_variance": root,
            "root_second_moment": moment,
            "residual": moment - root,
            "vvix": np.asarray(surface.vvix(T)),
            "quotes": count,
            "inside": np.where(quoted, hits / np.maximum(count, 1), np.nan),
        }
    ).fill_nan(None)


def _inside(model: VixQueries, quotes: Quotes) -> NDArray[np.bool_]:
    if not len(quotes):
        return np.zeros(0, dtype=bool)
    return scoring.is_inside_bid_ask(VixLaw(model, quotes).otm(quotes.k, quotes.T), quotes)


def _share_or_none(hits: NDArray[np.bool_]) -> float | None:
    return float(hits.mean()) if hits.size else None


def _largest_or_none(values: pl.Series) -> float | None:
    found = values.abs().max()
    return None if found is None else float(found)  # type: ignore[arg-type]
