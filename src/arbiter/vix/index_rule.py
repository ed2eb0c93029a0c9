"""The exchange's volatility index on listed options (docs/vix.md).

Two strips of options around the horizon give the index. Nothing here is fitted: the rule is
arithmetic on bids and asks, to be matched digit by digit. The index of a fitted surface is in
:mod:`arbiter.vix.replication`. Forward, K0 and the variance of one expiry are computed in
:mod:`arbiter.vix.strip`.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol, Self, TypeAlias

import numpy as np
import polars as pl

from arbiter.conventions import MINUTES_PER_DAY, Array
from arbiter.values import require_positive
from arbiter.vix.strip import QUOTE_COLUMNS, Strip, sum_strip

if TYPE_CHECKING:
    from arbiter.chains import Chain

logger = logging.getLogger(__name__)
Cycle: TypeAlias = Literal["weekly", "listed", "monthly"]

MAX_FORWARD_GAP = 0.005  # of the forward: a gap that no dividend or rate explains
THIRTY_DAYS_MINUTES = 30 * MINUTES_PER_DAY


class Vix(float):
    """The volatility index in index points: a float that also holds its two strips.

    It is a float, so it compares, formats and serialises as one. ``warnings`` are sentences about
    quotes that the rule passed over, or that other quotes contradict.
    """

    __slots__ = ("days", "near", "next", "warnings")
    near: Strip
    next: Strip
    days: float
    warnings: tuple[str, ...]

    def __new__(
        cls, near: Strip, next: Strip, days: float = 30.0, warnings: tuple[str, ...] = ()
    ) -> Self:
        """The index ``days`` ahead, interpolated between two strips."""
        self = super().__new__(cls, interpolate(near, next, days * MINUTES_PER_DAY))
        self.near, self.next, self.days, self.warnings = near, next, days, warnings
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.near, self.next, self.days, self.warnings)

    def __repr__(self) -> str:
        between = " and ".join(strip.label or f"T={strip.T:.4g}" for strip in self.strips)
        return f"{type(self).__name__}({float(self):.4f} at {self.days:g} days from {between})"

    @property
    def strips(self) -> tuple[Strip, Strip]:
        """The near and the next strip."""
        return self.near, self.next

    @property
    def minutes(self) -> tuple[float, float]:
        """Minutes to settlement of the near and the next strip."""
        return self.near.minutes, self.next.minutes

    @property
    def forwards(self) -> tuple[float, float]:
        """Forwards of the near and the next strip."""
        return self.near.forward, self.next.forward

    def to_dict(self) -> dict[str, Any]:
        """The index and its two strips as plain JSON values."""
        return {
            "vix": float(self),
            "days": self.days,
            "near": self.near.label,
            "next": self.next.label,
            "minutes": list(self.minutes),
            "forwards": list(self.forwards),
            "k0": [strip.k0 for strip in self.strips],
            "rates": [strip.rate for strip in self.strips],
            "variances": [strip.variance for strip in self.strips],
            "options": [strip.strikes.size for strip in self.strips],
        }


class VarianceTerm(Protocol):
    """A variance to a date: a strip, or a point of a term structure."""

    @property
    def minutes(self) -> float:
        """Minutes to settlement."""
        ...

    @property
    def variance(self) -> float:
        """Annualised variance to settlement."""
        ...


def interpolate(
    near: VarianceTerm, next: VarianceTerm, minutes: float = THIRTY_DAYS_MINUTES
) -> float:
    """Index points at ``minutes`` ahead, total variance linear in time through two strips.

    Outside the two expiries the line goes on, as the index did until 2014 when both of its
    months were more than 30 days away.
    """
    if not near.minutes < next.minutes:
        raise ValueError(
            f"the near strip settles in {near.minutes:g} minutes and the next in "
            f"{next.minutes:g}: give the earlier one first, and two different expiries"
        )
    share = (minutes - near.minutes) / (next.minutes - near.minutes)
    total = (1.0 - share) * near.minutes * near.variance + share * next.minutes * next.variance
    if not minutes > 0.0:
        raise ValueError(f"minutes = {minutes!r}: the horizon lies ahead")
    if not total > 0.0:
        raise ValueError(
            f"the line through the two strips has variance {total / minutes:.4g} at {minutes:g} "
            "minutes: the target is too far from the two expiries to extrapolate to"
        )
    return 100.0 * float(np.sqrt(total / minutes))


def vix(
    source: Chain | pl.DataFrame,
    *,
    days: float = 30.0,
    rate: float | tuple[float, float] | None = None,
    cycle: Cycle | None = None,
) -> Vix:
    """The exchange's volatility index from a listed chain, as a float.

    Args:
        source: A chain, or the table that its ``strips()`` returns.
        days: The horizon: 9 is VIX9D, 30 is VIX, 93 is VIX3M, 184 is VIX6M, 365 is VIX1Y.
        rate: Continuously compounded rate, one number or one each for the near and the next
            expiry; by default the chain's own, from put-call parity.
        cycle: Which expiries count (:func:`bracket`); by default those the exchange uses for
            this horizon.

    Raises:
        ValueError: If no two expiries surround the horizon, or a strip cannot be summed.

    Example:
        >>> from arbiter.chains import read_chain
        >>> from arbiter.data import example_chain_path
        >>> vix(read_chain(example_chain_path()))
        Vix(15.9... at 30 days from 2026-11-13 SPXW and 2026-11-20 SPX)
    """
    strips = _require_strips(source)
    labels = bracket(strips, require_positive("days", days), cycle)
    parity = _parity(source, labels)
    rates = _rates(parity) if rate is None else np.broadcast_to(rate, 2)
    near, after = (
        sum_listed_expiry(strips.filter(pl.col("label") == label), float(r))
        for label, r in zip(labels, rates, strict=True)
    )
    stale = _describe_stale_forwards((near, after), parity)
    for warning in stale:
        logger.warning(warning)
    passed_over = (*_describe_passed_over(near), *_describe_passed_over(after))
    return Vix(near, after, days, (*passed_over, *stale))


def sum_listed_expiry(expiry: pl.DataFrame, rate: float) -> Strip:
    """The strip of one expiry's rows of the table that ``Chain.strips()`` returns."""
    label, minutes = expiry["label"][0], float(expiry["minutes"][0])
    quotes = [expiry[name].to_numpy() for name in QUOTE_COLUMNS]
    try:
        found = sum_strip(*quotes, minutes=minutes, rate=rate)
    except ValueError as error:
        raise ValueError(f"{label}: {error}") from error
    strip = replace(found, label=label)
    for warning in _describe_passed_over(strip):
        logger.warning(warning)
    return strip


def _describe_passed_over(strip: Strip) -> tuple[str, ...]:
    """A sentence if options of a strip could not be used."""
    if not strip.unusable:
        return ()
    return (
        f"{strip.label}: {strip.unusable} options with a bid but no ask above it are passed over",
    )


def bracket(strips: pl.DataFrame, days: float, cycle: Cycle | None = None) -> tuple[str, str]:
    """Labels of the near and the next expiry for a horizon, chosen as the exchange does.

    The near one is the last that is at most ``days`` calendar days away, the next the first
    that is farther. Of two series that settle on one day the earlier counts.

    Args:
        strips: The table that ``Chain.strips()`` returns. Without the column ``settles`` days
            are counted in minutes and every expiry counts.
        days: The horizon in calendar days.
        cycle: ``"weekly"`` for each week's last session (Fridays, but for holidays),
            ``"monthly"`` for third Fridays, ``"listed"`` for every expiry. By default weekly up
            to 60 days, monthly beyond 150, and listed in between.

    Raises:
        ValueError: If the expiries do not surround the horizon.
    """
    terms = _list_expiries(strips)
    if "settles" in strips.columns:
        cycle = cycle or _default_cycle(days)
        terms = [term for term in terms if _belongs_to_cycle(term.day, cycle)]
    elif cycle not in (None, "listed"):
        raise ValueError(f"cycle = {cycle!r} needs dates: give a table with the column settles")
    near = [term for term in terms if term.days <= days]
    after = [term for term in terms if term.days > days]
    if not (near and after):
        found = ", ".join(f"{term.label} ({term.days:.4g} days)" for term in terms) or "none"
        raise ValueError(
            f"{days:g} days lie outside the {cycle or 'listed'} expiries ({found}), and the index "
            "needs one on each side: choose days between them, another cycle, or a longer chain"
        )
    return near[-1].label, after[0].label


class _ListedExpiry(NamedTuple):
    minutes: float
    label: str
    day: np.datetime64  # on which it settles; NaT where unknown
    days: float  # from the day of the quotes to that day


def _require_strips(source: Any) -> pl.DataFrame:
    strips = source.strips() if hasattr(source, "strips") else source
    if not isinstance(strips, pl.DataFrame):
        raise ValueError(
            f"{type(source).__name__} has no listed options to sum: give a chain "
            "(arbiter.read_chain) or its strips(); for a surface see Surface.vix and "
            "arbiter.vix.replication"
        )
    missing = {"label", "minutes", *QUOTE_COLUMNS} - set(strips.columns)
    if missing:
        raise ValueError(f"the table of strips lacks the columns {sorted(missing)}")
    return strips


def _list_expiries(strips: pl.DataFrame) -> list[_ListedExpiry]:
    """The expiries that have not settled, in order, one for each day."""
    dated = "settles" in strips.columns
    columns = ["label", "minutes", *(["settles"] if dated else [])]
    table = strips.select(columns).unique("label").filter(pl.col("minutes") > 0).sort("minutes")
    minutes = table["minutes"].to_numpy().astype(np.float64)
    labels = table["label"].to_list()
    if not dated:
        nowhen = np.datetime64("NaT", "D")
        rows = zip(minutes, labels, minutes / MINUTES_PER_DAY, strict=True)
        return [_ListedExpiry(float(m), label, nowhen, float(d)) for m, label, d in rows]
    settles = table["settles"].dt.replace_time_zone(None).to_numpy().astype("datetime64[s]")
    today = (settles - (minutes * 60.0).astype("timedelta64[s]")).astype("datetime64[D]")
    day = settles.astype("datetime64[D]")
    away = (day - today).astype(np.float64)
    _, first = np.unique(day, return_index=True)
    return [_ListedExpiry(float(minutes[i]), labels[i], day[i], float(away[i])) for i in first]


def _default_cycle(days: float) -> Cycle:
    if days <= 60.0:
        return "weekly"
    return "listed" if days <= 150.0 else "monthly"


def _belongs_to_cycle(day: np.datetime64, cycle: Cycle) -> bool:
    """Whether an expiry that settles on ``day`` is of the cycle; holidays move it forward."""
    if cycle == "listed":
        return True
    from arbiter.timing.sessions import last_session

    if cycle == "weekly":
        friday = day + (4 - _weekday(day)) % 7
        return bool(day == last_session(friday))
    if cycle == "monthly":
        first = day.astype("datetime64[M]").astype("datetime64[D]")
        third = first + (4 - _weekday(first)) % 7 + 14
        return bool(day == last_session(third))
    raise ValueError(f"cycle = {cycle!r}: use 'weekly', 'monthly' or 'listed'")


def _weekday(day: np.datetime64) -> int:
    """Weekday of a day number, 0 for Monday; day 0, 1 January 1970, was a Thursday."""
    return int((day.astype(int) + 3) % 7)


def _parity(source: Any, labels: tuple[str, str]) -> pl.DataFrame | None:
    """The chain's forwards and discount factors of the two expiries, in their order."""
    if not hasattr(source, "forwards"):
        return None
    wanted = pl.DataFrame({"label": labels})
    return wanted.join(source.forwards(), on="label", how="left", maintain_order="left")


def _rates(parity: pl.DataFrame | None) -> Array:
    """Rates to the two expiries from the chain's discount factors."""
    if parity is None:
        raise ValueError("rate = None takes the rate from a chain's parity: give a chain or a rate")
    discount = parity["discount"].to_numpy()
    bad = np.flatnonzero(~(discount > 0.0))
    if bad.size:
        label = parity["label"][int(bad[0])]
        raise ValueError(f"{label}: put-call parity gives no discount factor; give rate=")
    return np.asarray(-np.log(discount) / parity["T"].to_numpy())


def _describe_stale_forwards(
    strips: tuple[Strip, Strip], parity: pl.DataFrame | None
) -> tuple[str, ...]:
    """A sentence for each strip whose forward, from one strike, is not that of all strikes."""
    if parity is None:
        return ()
    return tuple(
        f"{found.label}: the index rule takes the forward {found.forward:.6g} from one strike, "
        f"put-call parity of all strikes says {forward:.6g}: some quotes near the money are stale"
        for found, forward in zip(strips, parity["forward"].to_list(), strict=True)
        if abs(found.forward - forward) > MAX_FORWARD_GAP * forward
    )
