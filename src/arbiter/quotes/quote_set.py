"""The one input type: two-sided out-of-the-money quotes in forward units, expiry by expiry."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from types import MappingProxyType
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from arbiter import forked, inputs
from arbiter.conventions import Array
from arbiter.exclusions import count_exclusions, no_exclusions
from arbiter.forwards import ForwardCurve
from arbiter.quotes.ask_bounds import AskBounds
from arbiter.quotes.expiry_endings import ExpiryEnding, end_select, list_endings
from arbiter.quotes.quote_clock import QuotedSmile, imply_clock, resolve_clock
from arbiter.quotes.quote_tables import describe_long_maturities, read_per_expiry, read_quote_table
from arbiter.timing.clock import Clock, Event, require_clock
from arbiter.timing.maturities import DateLike, as_datetime
from arbiter.timing.time_change import TimeChange

logger = logging.getLogger(__name__)

MIN_QUOTES = 3  # quotes that make a surface


@dataclass(frozen=True, eq=False, repr=False)
class Quotes:
    """Out-of-the-money bid and ask of one moment, sorted by maturity and strike.

    Prices are in forward units: calls ``C/(D·F)`` for ``k ≥ 0``, puts below. Two series that
    settle on the same day at different times are two maturities.

    Attributes:
        maturities: ``(L,)`` year fractions, increasing.
        forwards: ``(L,)``; 1 where only forward units are known.
        discounts: ``(L,)``; 1 where only forward units are known.
        expiry: ``(m,)`` index of each quote's maturity, nondecreasing.
        k: ``(m,)`` log-moneyness, increasing within an expiry.
        bid: ``(m,)`` positive.
        ask: ``(m,)`` at least the bid.
        labels: ``(L,)`` what to call each expiry, ``"2023-03-17 SPX"`` for instance.
        as_of: The moment of the quotes, New York time without a zone, or None.
        exclusions: One row per quote that is not used, with its reason.
        forward_errors: ``(L,)`` standard errors of the forwards, NaN where unknown.
        discount_errors: ``(L,)`` standard errors of the discount factors, NaN where unknown.
        info: Where the quotes come from (plain JSON values).
        warnings: What went wrong in reading and cleaning them, as sentences.
        clock: Weights and events of the variance's clock; None for calendar time.
        time: Where that clock stands.
        bounds: Options with an ask and no bid, which are no quotes.
        endings: What became of each listed expiry, in order of settlement.
    """

    maturities: Array
    forwards: Array
    discounts: Array
    expiry: NDArray[np.int64]
    k: Array
    bid: Array
    ask: Array
    labels: tuple[str, ...]
    as_of: np.datetime64 | None = None
    exclusions: pl.DataFrame = field(default_factory=no_exclusions)
    forward_errors: Array | None = None
    discount_errors: Array | None = None
    info: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    warnings: tuple[str, ...] = ()
    clock: Clock | None = None
    time: TimeChange | None = None
    bounds: AskBounds = field(default_factory=AskBounds)
    endings: tuple[ExpiryEnding, ...] = ()

    def __setstate__(self, state: dict[str, Any]) -> None:  # a copy is as read-only as its source
        for array in (value for value in state.values() if isinstance(value, np.ndarray)):
            array.setflags(write=False)
        self.__dict__.update(state)

    def __len__(self) -> int:
        return int(self.k.size)

    def __repr__(self) -> str:
        if not len(self):
            return f"Quotes(none used, {self.exclusions.height} excluded)"
        return (
            f"Quotes({len(self)} on {self.maturities.size} expiries, T {self.maturities[0]:.4g} to "
            f"{self.maturities[-1]:.4g}, {self.exclusions.height} excluded)"
        )

    @property
    def T(self) -> Array:  # noqa: N802 - the field's name
        """``(m,)`` year fraction of each quote."""
        return self.maturities[self.expiry]

    @property
    def curve(self) -> ForwardCurve:
        """Forwards and discount factors at all maturities."""
        return ForwardCurve(self.maturities, self.forwards, self.discounts)

    @property
    def clock_years(self) -> Array:
        """``(L,)`` where the clock stands at the maturities; these themselves without one."""
        return self.read_clock(self.maturities)

    def read_clock(self, T: Array) -> Array:
        """Where the clock stands at maturities ``T``; these themselves without one."""
        return T if self.time is None else self.time.at(T)

    def describe(self) -> dict[str, Any]:
        """What a surface of these quotes remembers of them, as plain values."""
        clock = {} if self.clock is None else {"clock": self.clock.to_dict()}
        return {**self.info, "expiries": list(self.labels), **clock}

    def with_clock(self, clock: Clock | None) -> Quotes:
        """The same quotes on another clock; None for calendar time.

        Raises:
            ValueError: If the quotes have no moment, an event is in the past, or its variance is
                not given and the quotes cannot tell it.
        """
        clock = require_clock(clock)
        if clock is None or clock.is_calendar:
            return replace(self, clock=None, time=None)
        as_of = self._require_moment()
        if not clock.events:
            time = clock.change_time(as_of, float(self.maturities[-1]))
            return replace(self, clock=clock, time=time)
        full, time, warnings = resolve_clock(clock, as_of, self._total_variances())
        for warning in warnings:
            logger.warning(warning)
        return replace(self, clock=full, time=time, warnings=(*self.warnings, *warnings))

    def implied_clock(self, *events: Event) -> Clock:
        """The clock whose nights and weekends weigh what the quotes imply.

        Args:
            events: Scheduled events, of known variance or not.

        Raises:
            ValueError: If the quotes have no moment, an event is in the past, or fewer than four
                expiries have five quotes around the forward.
        """
        return imply_clock(events, self._require_moment(), self._total_variances())

    def _require_moment(self) -> np.datetime64:
        if self.as_of is None:
            raise ValueError("a clock needs the moment of the quotes: give them an as_of")
        return self.as_of

    def _total_variances(self) -> QuotedSmile:
        low, high = (iv**2 * self.T for iv in (self.iv_bid, self.iv_ask))
        return QuotedSmile(self.maturities, self.expiry, self.k, low, high)

    def in_clock_time(self) -> Quotes:
        """The same prices as if they were of calendar time: maturities are those of the clock."""
        if self.time is None:
            return self
        years = inputs.freeze_array(self.clock_years)
        return replace(self, maturities=years, clock=None, time=None)

    @property
    def mid(self) -> Array:
        """``(m,)`` mid prices."""
        return 0.5 * (self.bid + self.ask)

    @property
    def half_spread(self) -> Array:
        """``(m,)`` half the bid-ask spread, in price."""
        return 0.5 * (self.ask - self.bid)

    @cached_property
    def iv_bid(self) -> Array:
        """``(m,)`` implied volatility of the bids."""
        return self._implied_volatility(self.bid)

    @cached_property
    def iv_mid(self) -> Array:
        """``(m,)`` implied volatility of the mid prices."""
        return self._implied_volatility(self.mid)

    @cached_property
    def iv_ask(self) -> Array:
        """``(m,)`` implied volatility of the asks."""
        return self._implied_volatility(self.ask)

    def _implied_volatility(self, price: Array) -> Array:
        from arbiter.pricing import black  # compiled: what reads prices alone starts without it

        found = black.implied_total_volatility(price, self.k)
        return np.asarray(found.volatility / np.sqrt(self.T))

    def counts(self) -> pl.DataFrame:
        """How many quotes were excluded for each reason: columns reason, quotes, meaning."""
        return count_exclusions(self.exclusions)

    def to_frame(self) -> pl.DataFrame:
        """One row per quote, with volatilities; :meth:`from_frame` reads it back."""
        forked.require_polars()
        forward = self.forwards[self.expiry]
        return pl.DataFrame(
            {
                "expiry": [self.labels[i] for i in self.expiry],
                "T": self.T,
                "k": self.k,
                "strike": forward * np.exp(self.k),
                "side": np.where(self.k >= 0.0, "call", "put"),
                "bid": self.bid,
                "ask": self.ask,
                "iv_bid": self.iv_bid,
                "iv_mid": self.iv_mid,
                "iv_ask": self.iv_ask,
                "forward": forward,
                "discount": self.discounts[self.expiry],
            }
        )

    def select(self, keep: NDArray[np.bool_]) -> Quotes:
        """The quotes where ``keep`` holds; expiries left without a quote go too."""
        used = np.unique(self.expiry[keep])
        place = np.full(self.maturities.size, -1)
        place[used] = np.arange(used.size)

        def some(a: Array | None) -> Array | None:
            return None if a is None else inputs.freeze_array(a[used])

        return replace(
            self,
            maturities=inputs.freeze_array(self.maturities[used]),
            forwards=inputs.freeze_array(self.forwards[used]),
            discounts=inputs.freeze_array(self.discounts[used]),
            expiry=place[self.expiry[keep]],
            k=inputs.freeze_array(self.k[keep]),
            bid=inputs.freeze_array(self.bid[keep]),
            ask=inputs.freeze_array(self.ask[keep]),
            labels=tuple(self.labels[i] for i in used),
            forward_errors=some(self.forward_errors),
            discount_errors=some(self.discount_errors),
            bounds=self.bounds.select_expiries(place),
            endings=end_select(self.endings, self.labels, self.maturities, self.expiry[keep]),
        )

    def held_out(self, share: float, seed: int = 0) -> NDArray[np.bool_]:
        """``(m,)`` a random ``share`` of the quotes; the end strikes of an expiry never are."""
        if not 0.0 < share < 1.0:
            raise ValueError(f"share = {share!r} must lie strictly between 0 and 1, as 0.2 does")
        new = np.diff(self.expiry, prepend=-1, append=self.maturities.size) != 0
        inner = np.flatnonzero(~(new[:-1] | new[1:]))
        size, mask = min(round(share * len(self)), inner.size), np.zeros(len(self), dtype=bool)
        mask[np.random.default_rng(seed).choice(inner, size, replace=False)] = True
        return mask

    @classmethod
    def from_frame(
        cls, frame: Any, *, as_of: DateLike | None = None, percent: bool | None = None
    ) -> Quotes:
        """Quotes from a polars or pandas frame, or a mapping of columns.

        Args:
            frame: Columns ``T`` (years), ``k = log(K/F)``, and either ``iv_bid``, ``iv_ask``
                (annualised decimals) or ``bid``, ``ask`` (out-of-the-money prices in forward
                units: calls for ``k ≥ 0``, puts below). Optional ``forward`` and ``discount``,
                one value per maturity, and ``expiry``, a label. Any order of rows.
            as_of: Moment of the quotes, ISO text or a date, without a time zone.
            percent: Whether volatilities are in percent. If None they are decimals, and a table
                of which nine tenths are above 3 is refused.

        Raises:
            ValueError: For a table that cannot be read: names row, column, value and remedy.
                Quotes that are merely unusable (no bid, crossed, repeated) are excluded
                instead, and listed in ``exclusions``.

        Example:
            >>> quotes = Quotes.from_frame(
            ...     {
            ...         "T": [0.5] * 3,
            ...         "k": [-0.1, 0.0, 0.1],
            ...         "iv_bid": [0.21, 0.19, 0.17],
            ...         "iv_ask": [0.22, 0.20, 0.18],
            ...     }
            ... )
            >>> quotes
            Quotes(3 on 1 expiries, T 0.5 to 0.5, 0 excluded)
        """
        table = read_quote_table(frame, percent)
        T, k, columns, good = table.T, table.k, table.columns, table.good
        maturities, first, expiry = np.unique(T[good], return_index=True, return_inverse=True)
        count = table.exclusions.height
        unused = f"{count} of {T.size} quotes are not used; see .counts()"
        warnings = ((unused,) if count else ()) + describe_long_maturities(T)
        for warning in warnings:
            logger.warning(warning)
        labels = tuple(table.labels[good[i]] for i in first)
        return cls(
            maturities=inputs.freeze_array(maturities),
            forwards=read_per_expiry("forward", columns, good, first, expiry),
            discounts=read_per_expiry("discount", columns, good, first, expiry),
            expiry=expiry.astype(np.int64),
            k=inputs.freeze_array(k[good]),
            bid=inputs.freeze_array(table.bid[good]),
            ask=inputs.freeze_array(table.ask[good]),
            labels=labels,
            as_of=as_datetime(as_of),
            exclusions=table.exclusions,
            warnings=warnings,
            endings=list_endings(labels, maturities, expiry),
        )


def require_quotes(quotes: Any, user: str, where: str = "") -> None:
    """Refuse what is not :class:`Quotes`, and fewer than ``MIN_QUOTES`` of them.

    Args:
        quotes: What was given.
        user: Who needs them, "a fit" for instance.
        where: Begins the message: which of many.
    """
    if not isinstance(quotes, Quotes):
        raise ValueError(
            f"{where}{type(quotes).__name__} is not Quotes: a chain has quotes(), and a table "
            "becomes Quotes by Quotes.from_frame(table)"
        )
    if len(quotes) < MIN_QUOTES:
        raise ValueError(
            f"{where}{len(quotes)} usable quotes: {user} needs at least {MIN_QUOTES}; "
            "quotes.counts() says why the others were excluded"
        )
    wrong = np.flatnonzero(~(quotes.bid <= quotes.ask))  # not a number, too
    if wrong.size:
        row = int(wrong[0])
        raise ValueError(
            f"{where}quote {row + 1} has bid = {float(quotes.bid[row])!r} and ask = "
            f"{float(quotes.ask[row])!r}: a bid must not exceed its ask, and both be numbers"
        )
