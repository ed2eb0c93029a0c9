"""The VIX side of a surface along the curves that are drawn: futures, forward variance, VVIX."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from arbiter.conventions import INDEX_POINTS, Array
from arbiter.fitting.vix_comparison import JointComparison, VixLaw
from arbiter.pricing.vix_slices import VixQueries
from arbiter.report.smile_curves import SmileReadings


@dataclass(frozen=True, eq=False)
class VixReadings:
    """A surface with VIX slices read along the curves that are drawn.

    Attributes:
        surface: The surface.
        vix_maturities: ``(L,)`` VIX dates in years.
        agreement: The two markets that it was fitted to; without it there are curves alone.
    """

    surface: VixQueries
    vix_maturities: Array
    agreement: JointComparison | None = None

    @classmethod
    def from_surface(cls, surface: object, agreement: JointComparison | None) -> VixReadings | None:
        """Readings, or None where a surface has no law of the VIX."""
        if not isinstance(surface, VixQueries) or surface.vix_slices is None:
            return None
        return cls(surface, surface.vix_slices.maturities, agreement)

    @cached_property
    def T(self) -> Array:  # noqa: N802 - the field's name
        """``(n,)`` dates of the curves: between the listed ones, and these themselves."""
        first, last = self.vix_maturities[[0, -1]]
        return np.unique(np.concatenate([self.vix_maturities, np.geomspace(first, last, 141)]))

    @cached_property
    def smile_readings(self) -> SmileReadings | None:
        """Quotes and smiles, date by date; None where there are no options."""
        if self.agreement is None or not len(self.agreement.market.quotes):
            return None
        quotes = self.agreement.market.quotes
        quotes = quotes.select(np.ones(len(quotes), dtype=bool))  # no dates without options
        return SmileReadings(VixLaw(self.surface, quotes), quotes)

    @cached_property
    def root_forward_variance(self) -> Array:
        """``(n,)`` 100 √FV along the curve."""
        return np.asarray(INDEX_POINTS * np.sqrt(self.surface.forward_variance(self.T)))

    @cached_property
    def root_forward_variance_alone(self) -> Array | None:
        """``(n,)`` the same of the index by itself."""
        if self.agreement is None:
            return None
        return np.asarray(INDEX_POINTS * np.sqrt(self.agreement.alone.forward_variance(self.T)))

    @cached_property
    def future(self) -> Array:
        """``(n,)`` VIX futures along the curve."""
        return np.asarray(self.surface.vix_future(self.T))

    @cached_property
    def vvix(self) -> Array:
        """``(n,)`` VVIX along the curve."""
        return np.asarray(self.surface.vvix(self.T))
