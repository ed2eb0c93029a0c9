"""VIX smiles by themselves: options fitted on their own futures, no surface below them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import polars as pl

from arbiter.conventions import INDEX_POINTS, Array
from arbiter.fitting.fitted_surface import VixResult
from arbiter.fitting.interior_point import InteriorPoint, Status
from arbiter.fitting.joint_fit import fit_vix_smiles
from arbiter.fitting.objective import FitPoint
from arbiter.fitting.options import FitOptions
from arbiter.fitting.vix_quotes import VixMarket
from arbiter.forwards import ForwardCurve
from arbiter.futures import FuturesCurve
from arbiter.inputs import freeze_array
from arbiter.pricing.vix_slices import VixQueries, VixSlices
from arbiter.quotes import Quotes, require_quotes
from arbiter.surface import Surface
from arbiter.timing.expiries import Expiry, count_whole_days, list_expiries
from arbiter.timing.maturities import MaturityLike, to_year_fractions


@dataclass(frozen=True, eq=False, repr=False)
class VixSmiles(VixQueries):
    """Laws of the VIX whose level is that of VIX futures; :func:`fit_vix` makes one.

    It has the ``vix_`` methods of a surface and :meth:`vvix`. Its forward variance is what VIX
    options and futures imply, ``E[(VIX_T/100)²]``, linear in T between dates.

    Attributes:
        vix_slices: Shapes.
        futures: ``(L,)`` futures of the dates, index points.
        curve: Discount factors of the options.
        labels: ``(L,)`` what to call each date.
        status: How the fit ended.
        result: Residuals.
        as_of: The moment of the quotes, or None.
    """

    vix_slices: VixSlices
    futures: Array
    curve: ForwardCurve
    labels: tuple[str, ...]
    status: Status
    result: VixResult
    as_of: np.datetime64 | None = None

    @cached_property
    def expiries(self) -> tuple[Expiry, ...]:
        """The listed dates, in order."""
        return list_expiries(self.labels, self.vix_slices.maturities, self.as_of)

    def years(self, T: MaturityLike, *, zero: bool = False) -> Array:
        """Year fractions of maturities in any form; a date alone is the open."""
        days, at = count_whole_days(self.expiries), self.as_of
        return to_year_fractions(T, at, self.expiries, zero=zero, settlement="AM", whole_days=days)

    def vix_years(self, T: MaturityLike) -> Array:
        """The same as :meth:`years`."""
        return self.years(T)

    def forward_variance(self, T: MaturityLike) -> Array:
        """``E[(VIX_T/100)²]`` of these laws, linear in T between dates and flat beyond."""
        dates = self.vix_slices.maturities
        listed = (self.futures / INDEX_POINTS) ** 2 * self.vix_slices.square_ratio(dates)
        return np.asarray(np.interp(self.years(T), dates, listed))

    def discount(self, T: MaturityLike) -> Array:
        """Discount factor for maturities ``T``."""
        return self.curve.discount(self.years(T))

    def against(self, surface: Surface) -> pl.DataFrame:
        """How far the two markets disagree, date by date, in index points.

        Args:
            surface: A surface fitted to the index alone.

        Returns:
            Columns date, T, future, ``spx`` (100 √FV of the surface), ``vix`` (100 √E[(VIX/100)²]
            of the options), ``gap`` (vix − spx) and ``jensen``, by how much the future lies below
            the root of the surface's forward variance: negative is an arbitrage.
        """
        T = self.vix_slices.maturities
        spx = INDEX_POINTS * np.sqrt(np.asarray(surface.forward_variance(T)))
        own = INDEX_POINTS * np.sqrt(self.forward_variance(T))
        return pl.DataFrame(
            {
                "date": list(self.labels),
                "T": T,
                "future": self.futures,
                "spx": spx,
                "vix": own,
                "gap": own - spx,
                "jensen": spx - self.futures,
            }
        )

    def __repr__(self) -> str:
        vvix = self.vvix(self.vix_slices.maturities)
        return (
            f"VixSmiles({len(self.labels)} dates, futures {self.futures[0]:.2f} to "
            f"{self.futures[-1]:.2f}, VVIX {vvix[0]:.1f} to {vvix[-1]:.1f}, {self.status.value})"
        )


def fit_vix(
    vix_quotes: Quotes,
    vix_futures: FuturesCurve | None = None,
    *,
    options: FitOptions | None = None,
) -> VixSmiles:
    """Fit VIX smiles alone: no surface, and so no tie to the variance of the index.

    Args:
        vix_quotes: Options on the VIX: ``quotes()`` of a VIX chain, whose forwards are the implied
            futures in index points.
        vix_futures: Futures on the VIX, which are held; without them the implied ones.
        options: Loss, tolerances and iterations; knots and components are the VIX's own.

    Raises:
        ValueError: If there are fewer than three quotes, or they are not of the VIX.

    Example:
        >>> smile = {"T": [0.1] * 3, "k": [-0.1, 0.0, 0.3], "forward": [20.0] * 3}
        >>> quotes = Quotes.from_frame(
        ...     {**smile, "iv_bid": [0.7, 0.8, 1.0], "iv_ask": [0.74, 0.84, 1.06]}
        ... )
        >>> smiles = fit_vix(quotes)
        >>> bool(abs(smiles.vix_iv(20.0, 0.1) - 0.82) < 0.02)
        True
        >>> round(float(smiles.vix_future(0.1)), 9)
        20.0
    """
    require_quotes(vix_quotes, "a fit")
    options = FitOptions() if options is None else options
    market = VixMarket.from_quotes(vix_quotes, vix_futures)
    return finish_smiles(market, *fit_vix_smiles(market, options), options)


def finish_smiles(
    market: VixMarket, interior: InteriorPoint[FitPoint], status: Status, options: FitOptions
) -> VixSmiles:
    """The smiles of a fit of the VIX alone whose roughness is chosen.

    Args:
        market: What is quoted on the VIX.
        interior: Where the fit has come to.
        status: How the choice of roughness ended.
        options: Tolerances and iterations.
    """
    if status is Status.CONVERGED:
        left = options.iterations - interior.iterations
        interior, status = interior.run(options.tolerance, left)
    quotes, model = market.quotes, interior.point.objective
    slopes = np.exp(interior.z.reshape(model.layout.shape))
    return VixSmiles(
        VixSlices.of(model.layout.knots, quotes.maturities, slopes),
        freeze_array(market.futures),
        quotes.curve,
        quotes.labels,
        status,
        VixResult(
            freeze_array(interior.point.misfit.residuals[: len(quotes)]),
            freeze_array(np.zeros(market.at.size)),
            model.roughness,
        ),
        quotes.as_of,
    )
