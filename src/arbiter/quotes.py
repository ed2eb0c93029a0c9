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

from arbiter import inputs
from arbiter.conventions import Array
from arbiter.exclusions import EXCLUSION_SCHEMA, Exclusion, count_exclusions, no_exclusions
from arbiter.forwards import DateLike, ForwardCurve, as_datetime

logger = logging.getLogger(__name__)

MIN_QUOTES = 3  # quotes that make a surface
MIN_DEAR_ASKS, MAX_DEAR_SHARE = 3, 0.2  # asks of one forward or more, and their share: currency
MAX_YEARS = 50.0  # years: nothing listed reaches a fifth as far
MAX_LOG_MONEYNESS = 50.0  # |log-moneyness|: beyond it a strike is in other units than its forward


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
        )

    def held_out(self, share: float, seed: int = 0) -> NDArray[np.bool_]:
        """``(m,)`` a random ``share`` of the quotes; the end strikes of an expiry never are."""
        if not 0.0 < share < 1.0:
            raise ValueError(f"share = {share!r} must lie strictly between 0 and 1, as 0.2 does")
        new = np.diff(self.expiry, prepend=-1, append=self.maturities.size) != 0
        inner = np.flatnonzero(~(new[:-1] | new[1:]))
        size = min(round(share * len(self)), inner.size)
        mask = np.zeros(len(self), dtype=bool)
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
        columns = _read_columns(frame)
        T, k = columns["T"], columns["k"]
        _refuse_rows(
            "T", T, ~(np.isfinite(T) & (T > 0.0)), "maturities are positive year fractions"
        )
        _refuse_rows("T", T, T > MAX_YEARS, "maturities are in years: divide days by 365")
        far = ~(np.abs(k) <= MAX_LOG_MONEYNESS)
        _refuse_rows("k", k, far, "k is log(strike/forward); a strike goes in as log(K/F)")
        bid, ask = _read_prices(columns, percent)
        reason = _find_exclusion_reasons(T, k, bid, ask)
        order = np.lexsort((k, T))
        good = order[reason[order] == ""]
        maturities, first, expiry = np.unique(T[good], return_index=True, return_inverse=True)
        labels = columns.get("expiry")
        named = tuple(
            f"T={t:.4g}" if labels is None else str(labels[good[i]])
            for t, i in zip(maturities, first, strict=True)
        )
        bad = np.flatnonzero(reason != "")
        exclusions = pl.DataFrame(
            {
                "row": bad + 1,
                "expiry": [f"T={T[i]:.4g}" if labels is None else str(labels[i]) for i in bad],
                "T": T[bad],
                "strike": np.exp(k[bad]),
                "side": np.where(k[bad] >= 0.0, "call", "put").tolist(),
                "bid": bid[bad],
                "ask": ask[bad],
                "reason": reason[bad].tolist(),
            },
            schema=EXCLUSION_SCHEMA,
            nan_to_null=True,
        )
        unused = f"{bad.size} of {T.size} quotes are not used; see .counts()"
        warnings = (unused,) if bad.size else ()
        for warning in warnings:
            logger.warning(warning)
        return cls(
            maturities=inputs.freeze_array(maturities),
            forwards=_read_per_expiry("forward", columns, good, first, expiry),
            discounts=_read_per_expiry("discount", columns, good, first, expiry),
            expiry=expiry.astype(np.int64),
            k=inputs.freeze_array(k[good]),
            bid=inputs.freeze_array(bid[good]),
            ask=inputs.freeze_array(ask[good]),
            labels=named,
            as_of=as_datetime(as_of),
            exclusions=exclusions,
            warnings=warnings,
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


def _read_columns(frame: Any) -> dict[str, NDArray[Any]]:
    """The known columns as arrays of one length."""
    frame = inputs.require_table(frame)
    names = [str(name) for name in (frame.columns if hasattr(frame, "columns") else frame)]
    by_iv, by_price = {"iv_bid", "iv_ask"} <= set(names), {"bid", "ask"} <= set(names)
    if not ({"T", "k"} <= set(names) and (by_iv or by_price)):
        raise ValueError(
            f"columns {sorted(names)} are not enough: give T, k and either iv_bid, iv_ask or "
            "bid, ask (forward units)"
        )
    wanted = ["T", "k", *(("bid", "ask") if by_price else ("iv_bid", "iv_ask"))]
    wanted += [name for name in ("forward", "discount") if name in names]
    columns: dict[str, NDArray[Any]] = {}
    for name in wanted:
        values = frame[name]
        try:
            values = values.to_numpy() if hasattr(values, "to_numpy") else values
            columns[name] = np.array(values, dtype=np.float64).reshape(-1)
        except (TypeError, ValueError) as error:
            raise ValueError(f"column {name} is not numeric: {error}") from error
    if "expiry" in names:
        columns["expiry"] = np.asarray(frame["expiry"], dtype=object).reshape(-1)
    for name, values in columns.items():
        if values.size != columns["T"].size:
            raise ValueError(
                f"column {name} has {values.size} rows and T has {columns['T'].size}: give one "
                "value per quote"
            )
    if columns["T"].size == 0:
        raise ValueError("the table has no rows: give at least one quote")
    return columns


def _read_prices(columns: Mapping[str, NDArray[Any]], percent: bool | None) -> tuple[Array, Array]:
    """Bid and ask in forward units; NaN stays NaN."""
    if "bid" in columns:
        _refuse_currency(columns["ask"])
        return columns["bid"], columns["ask"]
    from arbiter.pricing import black

    root = np.sqrt(columns["T"])
    names = ("iv_bid", "iv_ask")
    low, high = (inputs.convert_volatilities(name, columns[name], percent, 1) for name in names)
    # a volatility that is absent or negative stays absent; it is excluded with its reason
    price = [
        np.where(iv >= 0.0, black.otm(columns["k"], np.where(iv >= 0.0, iv, 0.0) * root), np.nan)
        for iv in (low, high)
    ]
    return price[0], price[1]


def _refuse_currency(ask: Array) -> None:
    """Refuse prices in currency: the small ones among them would pass for forward units."""
    dear = np.flatnonzero(np.isfinite(ask) & (ask >= 1.0))
    if dear.size >= MIN_DEAR_ASKS and dear.size > MAX_DEAR_SHARE * np.isfinite(ask).sum():
        raise ValueError(
            f"row {dear[0] + 1}: ask = {float(ask[dear[0]])!r}, and {dear.size} of {ask.size} asks "
            "are 1 or more: prices are in forward units, so divide them by discount times forward"
        )


def _find_exclusion_reasons(T: Array, k: Array, bid: Array, ask: Array) -> NDArray[np.str_]:
    """The reason for which each quote cannot be used, empty where it can."""
    most = np.exp(np.minimum(k, 0.0))
    rules = {
        Exclusion.MISSING: ~np.isfinite(ask) | (ask < 0.0) | (bid < 0.0) | np.isinf(bid),
        Exclusion.ZERO_BID: ~(bid > 0.0),  # an absent bid too: nobody bids
        Exclusion.NO_ASK: ask == 0.0,
        Exclusion.CROSSED: bid > ask,
        Exclusion.BOUNDS: ask >= most,
        Exclusion.DUPLICATE: _find_duplicates(T, k),
    }
    codes = [reason.value for reason in rules]
    return np.select(list(rules.values()), codes, default="")


def _find_duplicates(T: Array, k: Array) -> NDArray[np.bool_]:
    order = np.lexsort((np.arange(T.size), k, T))
    again = np.zeros(T.size, dtype=bool)
    again[order[1:]] = (np.diff(T[order]) == 0.0) & (np.diff(k[order]) == 0.0)
    return again


def _read_per_expiry(
    name: str,
    columns: Mapping[str, NDArray[Any]],
    good: NDArray[np.int64],
    first: NDArray[np.int64],
    expiry: NDArray[np.int64],
) -> Array:
    """One positive number per expiry; ones if the column is absent."""
    if name not in columns:
        return inputs.freeze_array(np.ones(first.size))
    given = columns[name][good]
    bad = ~(np.isfinite(given) & (given > 0.0))
    _refuse_rows(name, given, bad, "must be positive", good)
    value = given[first]
    off = np.abs(given - value[expiry]) > 1e-9 * value[expiry]
    _refuse_rows(name, given, off, "differs within one maturity: give one value per maturity", good)
    return inputs.freeze_array(value)


def _refuse_rows(
    name: str,
    values: NDArray[Any],
    bad: NDArray[np.bool_],
    remedy: str,
    rows: NDArray[np.int64] | None = None,
) -> None:
    where = np.flatnonzero(bad)
    if where.size:
        row = where[0] if rows is None else rows[where[0]]
        raise ValueError(f"row {row + 1}: {name} = {float(values[where[0]])!r}; {remedy}")
