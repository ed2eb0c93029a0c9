"""What is quoted on the VIX: options and futures, put on one list of dates."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from arbiter import inputs
from arbiter.conventions import DAYS_PER_YEAR, THIRTY_DAYS, Array
from arbiter.exclusions import no_exclusions
from arbiter.futures import HALF_TICK, FuturesCurve
from arbiter.pricing.vix_slices import describe_beyond_expiries
from arbiter.quotes import Quotes

_SAME_DATE_YEARS = 0.6 / DAYS_PER_YEAR  # a future this near to an option's date settles with it
_SAME_WINDOW_END_YEARS = (
    0.3 / DAYS_PER_YEAR
)  # an end of a window this near to an expiry is read between them


@dataclass(frozen=True, eq=False)
class VixMarket:
    """What is quoted on the VIX: options and futures on one list of dates.

    Attributes:
        quotes: Options; every date is among its maturities, quoted or not.
        at: ``(f,)`` date of each future.
        price: ``(f,)`` index points.
        half: ``(f,)`` half-spreads, positive.
    """

    quotes: Quotes
    at: NDArray[np.int64]
    price: Array
    half: Array

    @staticmethod
    def from_quotes(quotes: Quotes | None, futures: FuturesCurve | None) -> VixMarket:
        """Options and futures together; without futures those that the options imply."""
        if quotes is None:
            if futures is None:
                raise ValueError("give vix_quotes, vix_futures or both")
            quotes = _without_options(futures)
        if not isinstance(quotes, Quotes):
            raise ValueError(
                f"vix_quotes is a {type(quotes).__name__}: read_chain(path).quotes() of a VIX "
                "chain makes Quotes, and so do read_volatilities and Quotes.from_frame"
            )
        if not np.all((quotes.forwards > 1.0) & (quotes.forwards < 500.0)):
            raise ValueError(
                f"vix_quotes have a forward of {quotes.forwards[0]:g}: the forwards of VIX "
                "options are implied futures in index points, 20 and not 1 or 4000"
            )
        if futures is None:
            half = np.full(quotes.maturities.size, HALF_TICK)
            if quotes.forward_errors is not None:
                half = np.fmax(half, 2.0 * quotes.forward_errors)
            return VixMarket(quotes, np.arange(half.size), quotes.forwards, half)
        if not isinstance(futures, FuturesCurve):
            raise ValueError(
                f"vix_futures is a {type(futures).__name__}: give read_futures(path) or "
                "FuturesCurve.of(T, bid, ask)"
            )
        quotes, at = _join_futures(quotes, futures)
        return VixMarket(quotes, at, futures.mid, np.fmax(futures.half_spread, HALF_TICK))

    @cached_property
    def date(self) -> NDArray[np.int64]:
        """``(m + f,)`` date of every residual, options first."""
        return np.concatenate([self.quotes.expiry, self.at])

    @cached_property
    def by_date(self) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """The residuals ``(m + f,)`` date by date, and ``(L+1,)`` the first of each date."""
        order = np.argsort(self.date, kind="stable")
        return order, np.searchsorted(self.date[order], np.arange(self.quotes.maturities.size + 1))

    @property
    def futures(self) -> Array:
        """``(L,)`` future of each date: quoted, or the one that its options imply."""
        found = self.quotes.forwards.copy()
        found[self.at] = self.price
        return found


def _without_options(futures: FuturesCurve) -> Quotes:
    none, ones = inputs.freeze_array([]), inputs.freeze_array(np.ones(len(futures)))
    return Quotes(
        futures.maturities,
        inputs.freeze_array(futures.mid),
        ones,
        np.zeros(0, dtype=np.int64),
        *(none, none, none),
        futures.labels,
        futures.as_of,
        no_exclusions(),
    )


def _join_futures(quotes: Quotes, futures: FuturesCurve) -> tuple[Quotes, NDArray[np.int64]]:
    """Quotes whose maturities include those of the futures, and where each future is."""
    apart = np.abs(futures.maturities[:, None] - quotes.maturities)  # (f, L)
    alone = apart.min(axis=1) > _SAME_DATE_YEARS
    T = np.concatenate([quotes.maturities, futures.maturities[alone]])
    order = np.argsort(T, kind="stable")
    place = np.argsort(order, kind="stable")  # where each old date went
    count = quotes.maturities.size
    at = np.empty(len(futures), dtype=np.int64)
    at[~alone] = place[apart.argmin(axis=1)[~alone]]
    at[alone] = place[count:]
    if np.unique(at).size < at.size:
        raise ValueError("two futures settle on the date of one option expiry: keep one of them")
    labels = (*quotes.labels, *np.array(futures.labels, dtype=object)[alone])
    return replace(
        quotes,
        maturities=inputs.freeze_array(T[order]),
        forwards=inputs.freeze_array(np.concatenate([quotes.forwards, futures.mid[alone]])[order]),
        discounts=inputs.freeze_array(
            np.concatenate([quotes.discounts, np.ones(alone.sum())])[order]
        ),
        expiry=place[quotes.expiry],
        bounds=quotes.bounds.select_expiries(place),
        labels=tuple(str(labels[i]) for i in order),
        forward_errors=None,
        discount_errors=None,
    ), at


def describe_open_windows(quotes: Quotes, dates: Array) -> tuple[str, ...]:
    """A sentence if windows after ``dates`` end after the last expiry; it is logged as well."""
    return describe_beyond_expiries(
        dates + THIRTY_DAYS,
        float(quotes.maturities[-1]),
        _SAME_WINDOW_END_YEARS,
        "the surface is what the VIX market says",
    )


def with_windows(quotes: Quotes, dates: Array) -> Quotes:
    """SPX quotes whose maturities include both ends of the 30-day windows after ``dates``.

    An end between two expiries is a maturity without quotes: what the VIX says about the variance
    up to it has a place to go. Beyond the last expiry it is all that is known.
    """
    ends = np.unique(np.concatenate([dates, dates + THIRTY_DAYS]))
    apart = np.abs(ends[:, None] - quotes.maturities).min(axis=1)
    ends = ends[apart > _SAME_WINDOW_END_YEARS]
    if not ends.size:
        return quotes
    T = np.concatenate([quotes.maturities, ends])
    order = np.argsort(T, kind="stable")
    place = np.argsort(order, kind="stable")
    labels = [*quotes.labels, *(f"VIX window T={t:.4g}" for t in ends)]
    return replace(
        quotes,
        maturities=inputs.freeze_array(T[order]),
        forwards=inputs.freeze_array(quotes.curve.forward(T[order])),
        discounts=inputs.freeze_array(quotes.curve.discount(T[order])),
        expiry=place[quotes.expiry],
        bounds=quotes.bounds.select_expiries(place),
        labels=tuple(labels[i] for i in order),
        forward_errors=None,
        discount_errors=None,
    )
