"""The volatility index of a surface: the rule on listed strikes against the exact log contract.

The index sums a finite strip of listed options; the log contract needs every strike. A surface
prices both, so the gap between them, and what of it is due to strikes that are not listed, can
be computed instead of guessed (docs/vix.md).
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import polars as pl

from arbiter.conventions import (
    DAYS_PER_YEAR,
    INDEX_POINTS,
    MINUTES_PER_DAY,
    MINUTES_PER_YEAR,
    Array,
)
from arbiter.quotes import Quotes
from arbiter.surface import Surface
from arbiter.vix.index_rule import bracket, interpolate, sum_listed_expiry
from arbiter.vix.strip import QUOTE_COLUMNS, Strip

if TYPE_CHECKING:
    from collections.abc import Sequence

    from arbiter.chains import Chain

logger = logging.getLogger(__name__)

HORIZON_DAYS = (9.0, 30.0, 93.0, 184.0, 365.0)  # VIX9D, VIX, VIX3M, VIX6M, VIX1Y
_MAX_DEVIATIONS = 10.0  # standard deviations: no float64 tail is left beyond
_QUADRATURE_NODES, _QUADRATURE_WEIGHTS = np.polynomial.legendre.leggauss(128)


def price_strips(surface: Surface, source: Chain | Quotes | pl.DataFrame) -> pl.DataFrame:
    """The strips of ``source`` with the surface's prices in place of bids and asks.

    Options without a bid keep none, so that the index rule takes the same strikes. Quotes hold
    no zero bids and only one side of each strike: all their strikes count, both sides. They
    have no dates either, so every expiry counts.

    Args:
        surface: The surface to price with, its own forwards and discount factors included.
        source: A chain, the table that its ``strips()`` returns, or quotes.
    """
    strips = _read_strips(source)
    T = strips["minutes"].to_numpy() / MINUTES_PER_YEAR
    alive = T > 0.0
    strips, T = strips.filter(pl.Series(alive)), T[alive]
    K = strips["strike"].to_numpy()
    columns = {}
    for side, price in (("call", surface.call(K, T)), ("put", surface.put(K, T))):
        bid, ask = (strips[f"{side}_{name}"].to_numpy() for name in ("bid", "ask"))
        columns[f"{side}_bid"] = pl.Series(np.where(bid > 0.0, price, 0.0))
        columns[f"{side}_ask"] = pl.Series(np.where(ask >= bid, price, np.nan))
    return strips.with_columns(**columns)


def replication(surface: Surface, source: Chain | Quotes | pl.DataFrame) -> pl.DataFrame:
    """The index rule against the log contract, expiry by expiry.

    Returns:
        One row per expiry, in order, volatilities in index points. Columns: label, T; strikes,
        lowest, highest (of the strip); exact (the log contract, every strike); listed (the
        rule on the surface's prices at listed strikes); gap = listed − exact, which is the sum
        of truncation (strikes beyond the ends, never positive) and discretisation (the rest);
        quoted (the rule on the quotes themselves; null for ``Quotes``, which have one side).
        An expiry whose strip cannot be summed has nulls there, and the log says why.
    """
    market = _read_strips(source)
    listed = price_strips(surface, source)
    labels = listed.unique("label").sort("minutes")["label"].to_list()
    ours, theirs = (
        {part["label"][0]: part for part in table.partition_by("label")}
        for table in (listed, market)
    )
    two_sided = not isinstance(source, Quotes)
    rows = [
        _ReplicationRow.from_strips(surface, ours[label], theirs[label] if two_sided else None)
        for label in labels
    ]
    table = pl.DataFrame(rows, schema=_ROW_SCHEMA, orient="row")
    T = table["T"].to_numpy()
    exact = INDEX_POINTS * np.sqrt(surface.variance_swap(T))
    has = table["lowest"].is_not_null().to_numpy()
    cut = np.full(T.size, np.nan)
    if has.any():
        at, forward = T[has], surface.forward(T[has])
        ends = (np.log(table[n].to_numpy()[has] / forward) for n in ("lowest", "highest"))
        beyond = 1e4 * integrate_tail_variance(surface, at, *ends) / at
        cut[has] = np.sqrt(np.maximum(exact[has] ** 2 - beyond, 0.0))
    inner = pl.Series(cut, nan_to_null=True)
    return table.with_columns(exact=pl.Series(exact), _cut=inner).select(
        *("label", "T", "strikes", "lowest", "highest", "exact", "listed"),
        gap=pl.col("listed") - pl.col("exact"),
        truncation=pl.col("_cut") - pl.col("exact"),
        discretisation=pl.col("listed") - pl.col("_cut"),
        quoted="quoted",
    )


def term_structure(
    surface: Surface,
    days: Sequence[float] = HORIZON_DAYS,
    source: Chain | Quotes | pl.DataFrame | None = None,
) -> pl.DataFrame:
    """The volatility index at several horizons, exact and on listed strikes.

    Args:
        surface: The surface.
        days: Horizons in calendar days.
        source: Listed options, as for :func:`price_strips`; without them the last four columns are
            null.

    Returns:
        One row per horizon, volatilities in index points. Columns: days, T; exact (the log
        contract); forward_variance (decimal, of the 30 days that follow) and
        forward_volatility (its root in index points); listed (the rule on the surface's prices
        at listed strikes) = exact + interpolation (total variance taken linear between the two
        expiries) + gap (listed strikes instead of all); quoted (the rule on the quotes). Null
        where no two expiries surround the horizon.

    Example:
        >>> from arbiter.examples import example
        >>> term_structure(example(), days=(30, 365))["exact"].round(2).to_list()
        [15.69, 17.04]
    """
    horizons = np.asarray(days, dtype=np.float64).reshape(-1)
    T = horizons / DAYS_PER_YEAR
    forward = surface.forward_variance(T)
    table = pl.DataFrame(
        {
            "days": horizons,
            "T": T,
            "exact": INDEX_POINTS * np.sqrt(surface.variance_swap(T)),
            "forward_variance": forward,
            "forward_volatility": INDEX_POINTS * np.sqrt(forward),
        }
    )
    empty = dict.fromkeys(("listed", "whole", "quoted"))
    between = [empty] * horizons.size
    if source is not None:
        strips, by_expiry = _read_strips(source), replication(surface, source)
        between = [_interpolate_horizon(strips, by_expiry, d) for d in horizons]
    columns = pl.DataFrame(between, schema=dict.fromkeys(empty, pl.Float64))
    return table.hstack(columns).select(
        *table.columns,
        "listed",
        interpolation=pl.col("whole") - pl.col("exact"),
        gap=pl.col("listed") - pl.col("whole"),
        quoted="quoted",
    )


def integrate_tail_variance(surface: Surface, T: Array, low: Array, high: Array) -> Array:
    """``(E,)`` total variance of the log contract beyond log-moneyness ``low`` and ``high``.

    ``W = 2∫ e^{-k} otm(k) dk`` over all k; this is the part outside ``[low, high]``.
    """
    out = np.zeros_like(T)
    for end, far in ((low, -_MAX_DEVIATIONS), (high, _MAX_DEVIATIONS)):
        limit = surface.log_strike(far, T)
        half = 0.5 * (end - limit)  # (E,), signed
        k = limit[:, None] + half[:, None] * (1.0 + _QUADRATURE_NODES)  # (E, 128)
        price = np.exp(-k) * surface.otm(k, T[:, None])
        inside = half * np.sign(far) < 0.0  # the strikes end before the law does
        out += np.where(inside, 2.0 * np.abs(half) * (price @ _QUADRATURE_WEIGHTS), 0.0)
    return out


class _VarianceTerm(NamedTuple):
    minutes: float
    variance: float


_ROW_SCHEMA = {
    "label": pl.String,
    "T": pl.Float64,
    "strikes": pl.Int64,
    "lowest": pl.Float64,
    "highest": pl.Float64,
    "listed": pl.Float64,
    "quoted": pl.Float64,
}


class _ReplicationRow(NamedTuple):
    label: str
    T: float
    strikes: int | None
    lowest: float | None
    highest: float | None
    listed: float | None
    quoted: float | None

    @classmethod
    def from_strips(
        cls, surface: Surface, listed: pl.DataFrame, market: pl.DataFrame | None
    ) -> _ReplicationRow:
        label, T = listed["label"][0], float(listed["minutes"][0]) / MINUTES_PER_YEAR
        rate = float(-np.log(surface.discount(T)) / T)
        strip = _sum_or_warn("surface", listed, rate)
        quoted = None if market is None else _sum_or_warn("quotes", market, rate)
        points = None if quoted is None else quoted.volatility
        if strip is None:
            return cls(label, T, None, None, None, None, points)
        K = strip.strikes
        return cls(label, T, K.size, float(K[0]), float(K[-1]), strip.volatility, points)


def _sum_or_warn(of: str, expiry: pl.DataFrame, rate: float) -> Strip | None:
    try:
        return sum_listed_expiry(expiry, rate)
    except ValueError as error:
        logger.warning("no strip of the %s for %s", of, error)
        return None


def _interpolate_horizon(
    strips: pl.DataFrame, by_expiry: pl.DataFrame, days: float
) -> dict[str, Any]:
    """Listed, exact and quoted volatility at a horizon, interpolated as the rule does."""
    try:
        labels = bracket(strips, days)
    except ValueError as error:
        logger.info("no index at %g days: %s", days, error)
        return {"listed": None, "whole": None, "quoted": None}
    rows = [by_expiry.row(by_predicate=pl.col("label") == label, named=True) for label in labels]

    def at(name: str) -> float | None:
        if any(row[name] is None for row in rows):
            return None
        near, after = (
            _VarianceTerm(row["T"] * MINUTES_PER_YEAR, 1e-4 * row[name] ** 2) for row in rows
        )
        return interpolate(near, after, days * MINUTES_PER_DAY)

    return {"listed": at("listed"), "whole": at("exact"), "quoted": at("quoted")}


def _read_strips(source: Chain | Quotes | pl.DataFrame) -> pl.DataFrame:
    """The table of strips of ``source``; for quotes, with ones in place of prices."""
    if not isinstance(source, Quotes):
        return source if isinstance(source, pl.DataFrame) else source.strips()
    ones = np.ones(len(source))
    return pl.DataFrame(
        {
            "label": [source.labels[i] for i in source.expiry],
            "minutes": source.T * MINUTES_PER_YEAR,
            "strike": source.forwards[source.expiry] * np.exp(source.k),
            **dict.fromkeys(QUOTE_COLUMNS[1:], ones),
        }
    )
