"""What a surface knows about time: its expiries, its clock, and what a maturity means on it."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from arbiter.conventions import DAYS_PER_YEAR, Array
from arbiter.timing.clock import Clock
from arbiter.timing.expiries import Expiry, count_whole_days, list_expiries
from arbiter.timing.maturities import MaturityLike, is_dated, to_tenor, to_year_fractions
from arbiter.timing.time_change import TimeChange

logger = logging.getLogger(__name__)

MAX_QUIET_RATIO = 1.5  # of a maturity to the last one: beyond, a warning says so
MAX_RATIO = 5.0  # beyond, and beyond a year, days were meant, and the maturity is refused
_MAX_SHORT_YEARS = 1.0


class DatedQueries:
    """Maturities in every accepted form, for an object with listed maturities."""

    maturities: Array
    as_of: np.datetime64 | None
    info: Mapping[str, Any]
    time: TimeChange | None

    def years(self, T: MaturityLike, *, zero: bool = False) -> Array:
        """Year fractions of maturities in any form (docs/surface.md, "Maturities").

        Args:
            T: Year fractions, dates, moments, tenors, durations, expiries or their labels.
            zero: Let T = 0 pass, for the start of a window.

        Raises:
            ValueError: If a form is not known, a date is given and there is no ``as_of``, or a
                maturity is beyond five times the last one and beyond a year.
        """
        # numbers, which most questions have, need no list of expiries
        listed, days = (self.expiries, self._whole_days) if is_dated(T) else ((), False)
        t = to_year_fractions(T, self.as_of, listed, zero=zero, whole_days=days)
        return self._warn_beyond(self._refuse_days(t))

    def tenor_years(self, tenor: MaturityLike) -> Array:
        """Years of a length of time: a number, ``"30d"`` or a timedelta, but no date."""
        return self.years(to_tenor(tenor))

    def vix_years(self, T: MaturityLike) -> Array:
        """The same for dates of the VIX: a date alone is the open, at which the VIX settles."""
        days = is_dated(T) and self._whole_days
        t = to_year_fractions(T, self.as_of, settlement="AM", whole_days=days)
        return self._warn_beyond(self._refuse_days(t))

    @cached_property
    def expiries(self) -> tuple[Expiry, ...]:
        """The listed expiries, in order; empty where no labels are known."""
        labels = self.info.get("expiries", ())
        known = isinstance(labels, list | tuple) and len(labels) == self.maturities.size
        return list_expiries(labels, self.maturities, self.as_of) if known else ()

    def clock_years(self, T: ArrayLike) -> Array:
        """Where the clock of the variance stands at year fractions ``T``; ``T`` without one."""
        years = np.asarray(T, dtype=np.float64)
        return years if self.time is None else self.time.at(years)

    @property
    def clock(self) -> Clock | None:
        """The weights and events of the clock; None for calendar time."""
        return Clock.from_dict(self.info["clock"]) if "clock" in self.info else None

    def _refuse_days(self, t: Array) -> Array:
        """Year fractions, unless one is so far beyond the last maturity that days were meant."""
        farthest, last = _find_farthest(t), self._last_maturity
        if farthest > MAX_RATIO * last and farthest > _MAX_SHORT_YEARS:
            raise ValueError(
                f"T = {farthest:g} is in years, {farthest / last:.1f} times the last maturity, "
                f"{last:.4g}: for days give '{farthest:g}d' or divide by {DAYS_PER_YEAR:g}"
            )
        return t

    def _warn_beyond(self, t: Array) -> Array:
        """``t``; once for a surface a warning says that one is far beyond the last maturity."""
        farthest, last = _find_farthest(t), self._last_maturity
        if farthest > MAX_QUIET_RATIO * last and not self._told_far:
            self._told_far.append(farthest)
            logger.warning(
                "T = %.4g years is %.1f times the last maturity, %.4g: prices there are "
                "extrapolated (said once for this surface)",
                *(farthest, farthest / last, last),
            )
        return t

    @cached_property
    def _whole_days(self) -> bool:
        return count_whole_days(self.expiries)

    @cached_property
    def _last_maturity(self) -> float:
        return float(self.maturities[-1])

    @cached_property
    def _told_far(self) -> list[float]:
        """Of the maturities beyond the quiet range the first, once it has been warned of."""
        return []


def _find_farthest(t: Array) -> float:
    # most questions have one maturity, for which a reduction would take longer
    return float(t) if t.ndim == 0 else float(t.max(initial=0.0))
