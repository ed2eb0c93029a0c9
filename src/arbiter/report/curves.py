"""A fitted surface along the curves of the report: mesh, densities, term structure.

Every curve is computed once and serves the page as well as the pictures.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from arbiter import scoring
from arbiter.conventions import INDEX_POINTS, THIRTY_DAYS, Array
from arbiter.files.limits import DRAWN_EXPIRIES
from arbiter.fitting.vix_comparison import JointComparison
from arbiter.quotes import Quotes
from arbiter.report.smile_curves import Mask, SmileReadings, SmileSurface
from arbiter.report.vix_curves import VixReadings

_MESH_POINTS = 61


class ReportedSurface(SmileSurface, Protocol):
    """The methods of a surface that the report needs."""

    @property
    def maturities(self) -> Array:
        """``(L,)`` listed maturities in years."""

    def density(self, k: Array, T: Array, /) -> Array:
        """Risk-neutral density of ``S_T/F_T`` per unit of κ."""

    def variance_swap(self, T: Array, /) -> Array:
        """Annualised variance of the log contract."""

    def forward_variance(self, T: Array, /) -> Array:
        """Annualised variance of the 30 days after ``T``."""


@dataclass(frozen=True, eq=False)
class Readings(SmileReadings):
    """A surface evaluated at its quotes and along the curves that the report draws.

    Attributes:
        surface: The fitted surface.
        quotes: The quotes it was fitted to.
        agreement: Index and VIX apart and together, where it was fitted to both.
        given: All quotes, where those of some expiries are drawn; None where all are.
    """

    surface: ReportedSurface
    agreement: JointComparison | None = None
    given: Quotes | None = None

    @classmethod
    def of(
        cls, surface: ReportedSurface, quotes: Quotes, agreement: JointComparison | None = None
    ) -> Self:
        """Readings at all expiries, or at as many as a report draws, even in their order."""
        count, most = quotes.maturities.size, DRAWN_EXPIRIES.most
        if count <= most:
            return cls(surface, quotes, agreement)
        drawn = np.linspace(0, count - 1, most).round().astype(np.int64)
        return cls(surface, quotes.select(np.isin(quotes.expiry, drawn)), agreement, quotes)

    @property
    def all_quotes(self) -> Quotes:
        """The quotes of all expiries, drawn or not."""
        return self.quotes if self.given is None else self.given

    @property
    def notes(self) -> tuple[str, ...]:
        """A sentence if only some expiries are drawn."""
        if self.given is None:
            return ()
        return (
            f"report and pictures show {self.T.size:,} of {self.given.maturities.size:,} expiries, "
            f"even in their order; {DRAWN_EXPIRIES.variable} sets how many",
        )

    @cached_property
    def vix(self) -> VixReadings | None:
        """The VIX side; None where the surface has no law of the VIX."""
        return VixReadings.from_surface(self.surface, self.agreement)

    @cached_property
    def mesh(self) -> VolatilityMesh:
        """Volatility over Gaussian percentiles and maturities even in √T."""
        first, last = self.T[[0, -1]]
        if first == last:
            first, last = 0.8 * first, 1.25 * last
        root = np.linspace(first**0.5, last**0.5, _MESH_POINTS)
        low, high = self.quoted_z
        z = np.linspace(
            np.clip(np.median(low), -3.25, -1.5),
            np.clip(np.median(high), 1.0, 2.75),
            _MESH_POINTS,
        )
        T = root[:, None] ** 2
        k = np.asarray(self.surface.log_strike(z, T))
        own = np.sqrt(self.T)
        return VolatilityMesh(
            z=z,
            T=T[:, 0],
            k=k,
            iv=np.asarray(self.surface.iv(k, T)),
            low=np.clip(np.interp(root, own, low), z[0], z[-1]),
            high=np.clip(np.interp(root, own, high), z[0], z[-1]),
        )

    @cached_property
    def densities(self) -> Densities:
        """Risk-neutral densities along Gaussian percentiles."""
        k = np.asarray(self.surface.log_strike(np.linspace(-4.5, 4.0, 171), self.T[:, None]))
        low, high = (end[:, None] for end in self.quoted_range)
        return Densities(
            k=k,
            density=np.asarray(self.surface.density(k, self.T[:, None])),
            deviation=(self.atm * np.sqrt(self.T))[:, None],
            quoted=(k >= low) & (k <= high),
        )

    @cached_property
    def modes(self) -> NDArray[np.int64]:
        """``(L,)`` number of modes of each density."""
        return scoring.count_modes(self.surface, self.T)

    @cached_property
    def term_structure(self) -> TermStructure:
        """Volatilities over maturity, from the first expiry to the last.

        On a clock at the expiries alone: in between nights and weekends would be drawn as noise.
        """
        first, last = self.T[[0, -1]]
        between = np.geomspace(first, last, 141) if self.quotes.time is None else self.T
        T = np.union1d(np.clip(between, first, last), self.T)
        return TermStructure(
            T=T,
            swap=INDEX_POINTS * np.sqrt(self.surface.variance_swap(T)),
            forward=INDEX_POINTS * np.sqrt(self.surface.forward_variance(T)),
            atm=100.0 * np.asarray(self.surface.iv(np.zeros(T.size), T)),
            listed=INDEX_POINTS * np.sqrt(self.surface.variance_swap(self.T)),
            known=last * (1.0 + 1e-12) >= T + THIRTY_DAYS,
        )

    def index_error(self, summary: Mapping[str, Any]) -> float | None:
        """Standard error of the 30-day index, from the summary or from the surface."""
        error = summary.get("vix_error")
        error = self.standard_error("vix_error") if error is None else error
        return float(error) if error is not None and np.isfinite(error) else None


@dataclass(frozen=True, eq=False)
class VolatilityMesh:
    """Volatilities on a mesh: ``z (n,)``, ``T (l,)``, ``k`` and ``iv (l, n)``.

    ``low`` and ``high`` ``(l,)`` are the percentiles between which there are quotes.
    """

    z: Array
    T: Array
    k: Array
    iv: Array
    low: Array
    high: Array

    @property
    def is_quoted(self) -> Mask:
        """``(l, n)`` which points lie between quotes."""
        return (self.z >= self.low[:, None]) & (self.z <= self.high[:, None])

    @property
    def colour_range(self) -> tuple[float, float]:
        """Lowest and highest volatility between quotes: extrapolation must not set the scale."""
        iv = np.where(self.is_quoted, self.iv, np.nan)
        iv = iv if np.isfinite(iv).any() else self.iv
        low, high = float(np.nanmin(iv)), float(np.nanmax(iv))
        return (low, high) if high > 1.02 * low else (0.98 * low, 1.02 * high)


@dataclass(frozen=True, eq=False)
class Densities:
    """Densities of ``S_T/F_T`` per unit of κ, all ``(L, n)``; ``deviation`` is σ√T, ``(L, 1)``."""

    k: Array
    density: Array
    deviation: Array
    quoted: Mask

    @property
    def standardised_density(self) -> tuple[Array, Array]:
        """Log-return in standard deviations and its density, comparable across maturities."""
        return self.k / self.deviation, self.density * np.exp(self.k) * self.deviation


@dataclass(frozen=True, eq=False)
class TermStructure:
    """Percent volatilities over maturities ``T (n,)``; ``listed (L,)`` at the expiries.

    ``swap`` is the log contract's, ``forward`` that of the 30 days that begin at T, ``known``
    where those 30 days end before the last expiry.
    """

    T: Array
    swap: Array
    forward: Array
    atm: Array
    listed: Array
    known: Mask
