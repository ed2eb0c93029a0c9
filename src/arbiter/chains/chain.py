"""A listed chain of one moment: every option of the source, its series, and its quotes."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
import polars as pl
from numpy.typing import NDArray

from arbiter import forked, inputs
from arbiter.chains.cleaning import (
    FEWEST_STRIKES,
    REASONS,
    SHORTEST_DAYS,
    USED,
    CleaningRules,
    CleaningVerdict,
    judge_options,
)
from arbiter.chains.errors import ChainError
from arbiter.chains.option_table import OptionTable, SeriesEstimates, tabulate_options
from arbiter.chains.series_endings import collect_bounds, end_series
from arbiter.chains.series_parity import SERIES_COLUMNS, ParityEstimates, estimate_parity
from arbiter.chains.stray_forwards import find_stray_forwards
from arbiter.conventions import DAYS_PER_YEAR, MINUTES_PER_YEAR, Array, Indices
from arbiter.exclusions import Exclusion, count_exclusions, no_exclusions
from arbiter.quotes import Quotes
from arbiter.timing.clock import Clock

logger = logging.getLogger(__name__)

MIN_COUNTED_DAYS, MIN_COUNTED_STRIKES = (
    2.0,
    8,
)  # expiries on which exclusions are counted against us
MAX_EXCLUDED_SHARE = 0.02  # of the two-sided quotes there, before it is worth a warning
_MAX_SPOT_GAP, _MAX_CARRY_PER_YEAR = (
    0.002,
    0.1,
)  # of spot, at once and a year: more is another moment
_REQUESTED_EXCLUSIONS = [
    REASONS.index(Exclusion.TOO_SHORT.value),
    REASONS.index(Exclusion.TOO_FEW.value),
]  # the caller's own choice


@dataclass(frozen=True, eq=False, repr=False)
class Chain:
    """Every option of a source, with its settlement time. :func:`read_chain` makes one.

    Attributes:
        frame: One row per option: row (line of the source, from 1), label, root, expiry,
            settlement ("AM" or "PM"), settles (New York, without a zone), T (minutes to
            settlement / 525,600), strike, side ("call" or "put"), bid, ask, and, where the
            source has them, last, volume, open_interest, quote_time.
        as_of: The moment of the quotes, New York time without a zone, in whole minutes.
        spot: Level of the underlying that the source or the caller gave, or None. It is not
            used: forwards come from parity.
        underlying: ``"SPX"``, for instance.
        layout: Name of the layout that was read.
        name: Name of the source.
        assumptions: What was assumed in reading; :attr:`notes` adds what parity assumed.
        set_aside: Rows that could not be read, or not be assigned, as an exclusion table.
        clock: Weights and events of the variance's clock; None for calendar time.
        doubts: Where the source or its calendar contradicts what the caller gave, as sentences.
    """

    frame: pl.DataFrame
    as_of: np.datetime64
    spot: float | None
    underlying: str
    layout: str
    name: str
    assumptions: tuple[str, ...] = ()
    set_aside: pl.DataFrame = field(default_factory=no_exclusions)
    clock: Clock | None = None
    doubts: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return (
            f"Chain({self.underlying} {self.as_of.astype('datetime64[m]')}, {self.frame.height:,} "
            f"options in {self.frame['label'].n_unique()} series, {self.layout})"
        )

    @property
    def notes(self) -> tuple[str, ...]:
        """Everything that was assumed, as sentences."""
        return (*self.assumptions, *self.parity_estimates.notes)

    @property
    def warnings(self) -> tuple[str, ...]:
        """What went wrong in reading, as sentences."""
        if not self.set_aside.height:
            return self.doubts
        lost = f"{self.name}: {self.set_aside.height} options could not be read or assigned"
        return (*self.doubts, lost)

    @cached_property
    def parity_estimates(self) -> ParityEstimates:
        """Forward and discount factor of every series by put-call parity, with notes."""
        found = estimate_parity(self.frame, self.option_table)
        return ParityEstimates(found.frame, [*found.notes, *self._spot_note(found.frame)])

    @cached_property
    def _forward_warnings(self) -> tuple[str, ...]:
        """Forwards that contradict their neighbours'; those of VIX options are of many futures."""
        if self.underlying == "VIX":
            return ()
        parity = self.parity_estimates.frame
        columns = (parity[name].to_numpy() for name in ("T", "forward", "forward_error"))
        return tuple(
            f"{self.name}: parity implies a forward of {parity['forward'][i]:.2f} for "
            f"{parity['label'][i]}, {abs(parity['forward'][i] / near - 1.0):.1%} from the "
            f"{near:.2f} of its neighbours: its quotes are of another moment, or wrong"
            for i, near in find_stray_forwards(*columns)
        )

    def _spot_note(self, parity: pl.DataFrame) -> list[str]:
        """A sentence if the spot is not of the moment of the quotes."""
        near = np.flatnonzero(np.isfinite(parity["forward"].to_numpy()))
        if self.spot is None or self.underlying == "VIX" or near.size == 0:
            return []
        label, T, forward = (parity[name][int(near[0])] for name in ("label", "T", "forward"))
        gap = forward / self.spot - 1.0
        if abs(gap) <= _MAX_SPOT_GAP + _MAX_CARRY_PER_YEAR * T:
            return []
        return [
            f"spot {self.spot:g} and the forward of {label}, {forward:.2f}, are {abs(gap):.1%} "
            "apart: spot is of another moment (it is not used)"
        ]

    def strips(self) -> pl.DataFrame:
        """Calls and puts side by side, for each series that has not settled.

        Returns:
            Columns label, root, expiry, settlement, settles, minutes (to settlement), strike,
            call_bid, call_ask, put_bid, put_ask; sorted by settlement and strike. A price is null
            where the option is not listed or has no such quote (negative and infinite ones are
            none). Of an option that is listed twice the first row counts.
        """
        forked.require_polars()
        options = self.option_table
        order = options.order[(options.first & (options.T > 0.0))[options.order]]
        strike, series = options.strike[order], options.series[order]
        expiry = self.frame["expiry"].to_physical().to_numpy()[order]
        head = np.ones(order.size, dtype=bool)
        head[1:] = (np.diff(series) != 0) | (np.diff(strike) != 0.0) | (np.diff(expiry) != 0)
        place = np.cumsum(head) - 1
        prices = {}
        for side, rows in (("call", options.call[order]), ("put", ~options.call[order])):
            for name, values in (("bid", options.bid[order]), ("ask", options.ask[order])):
                good = rows & np.isfinite(values) & (values >= 0.0)
                column = np.full(np.count_nonzero(head), np.nan)
                column[place[good]] = values[good]
                prices[f"{side}_{name}"] = pl.Series(column).fill_nan(None)
        minutes = (pl.col("T") * MINUTES_PER_YEAR).round().cast(pl.Int64)
        keys = self.frame.select(*SERIES_COLUMNS, "T", "strike")[order[head]]
        return keys.select(*SERIES_COLUMNS, minutes.alias("minutes"), "strike", **prices)

    @cached_property
    def option_table(self) -> OptionTable:
        """The same as :attr:`frame`, as arrays."""
        return tabulate_options(self.frame)

    def forwards(self, smooth: bool = False) -> pl.DataFrame:
        """Forward and discount factor of each series, from put-call parity.

        Args:
            smooth: Lean noisy series on their neighbours.

        Returns:
            Columns label, root, expiry, settlement, settles, T, forward, discount,
            forward_error, discount_error (standard errors; NaN where a discount comes from
            neighbours) and pairs; NaN where parity tells nothing.

        Raises:
            ChainError: If prices and strikes are in different units.
        """
        forked.require_polars()
        return (
            estimate_parity(self.frame, self.option_table, smooth=True)
            if smooth
            else self.parity_estimates
        ).frame

    def quotes(
        self,
        *,
        shortest_days: float = SHORTEST_DAYS,
        fewest_strikes: int = FEWEST_STRIKES,
        smooth_forwards: bool = False,
        stop_after_zero_bids: bool = True,
        stale_after_hours: float = 24.0,
    ) -> Quotes:
        """The out-of-the-money quotes in forward units, and a reason for every other option.

        Args:
            shortest_days: Expiries nearer than this are not used.
            fewest_strikes: Nor are those with fewer usable quotes.
            smooth_forwards: Average forwards and discounts with those of neighbouring expiries.
            stop_after_zero_bids: Leave out what lies beyond two neighbouring strikes without a
                bid, seen from the money, as the volatility index does.
            stale_after_hours: Leave out quotes that the source dates longer than this before
                ``as_of`` (tidy tables with ``quote_time``).

        Returns:
            Quotes whose ``exclusions`` list every option of the source that is not used, once,
            and whose ``endings`` say what became of every expiry. Asks without a bid are in
            ``bounds`` as well.

        Raises:
            ChainError: If no option can be used, or units are wrong.
        """
        rules = CleaningRules(
            shortest_days, fewest_strikes, stop_after_zero_bids, stale_after_hours
        )
        options = self.option_table
        estimates = self._order_estimates(self.forwards(smooth_forwards))
        verdict = judge_options(options, estimates, rules, self._age_hours())
        exclusions = self._list_exclusions(verdict.reason)
        if logger.isEnabledFor(logging.INFO):
            logger.info("%s: %s", self.name, _summarise_exclusions(exclusions))
        warnings = (*self._forward_warnings, *self._describe_lost_quotes(verdict))
        for warning in warnings:
            logger.warning(warning)
        order = self.option_table.order
        good = order[verdict.reason[order] == USED]
        if good.size == 0:
            raise ChainError(
                f"{self.name}: no option can be used: {_explain_exclusions(exclusions)}; the "
                f"quotes are taken as those of {self.as_of.astype('datetime64[m]')}"
            )
        quotes = self._build_quotes(good, verdict, estimates, exclusions)
        endings = end_series(options, estimates.forward, verdict, rules)
        quotes = replace(quotes, warnings=(*self.warnings, *warnings), endings=endings)
        return quotes.with_clock(self.clock)

    def _order_estimates(self, parity: pl.DataFrame) -> SeriesEstimates:
        """One value for each series of the option table, NaN where parity tells none."""
        number = {label: i for i, label in enumerate(self.option_table.labels)}
        place = [number[label] for label in parity["label"]]
        columns = np.full((4, len(number)), np.nan)
        for column, name in zip(columns, SeriesEstimates._fields, strict=True):
            column[place] = parity[name].to_numpy()
        return SeriesEstimates(*columns)

    def _age_hours(self) -> Array | None:
        """How long before :attr:`as_of` each option was quoted, where the source says it."""
        if "quote_time" not in self.frame.columns:
            return None
        made = self.frame["quote_time"].to_numpy().astype("datetime64[s]")
        return np.asarray((self.as_of - made).astype("timedelta64[s]") / np.timedelta64(3600, "s"))

    def _list_exclusions(self, reason: NDArray[np.int8]) -> pl.DataFrame:
        """Every option that is not used, in the order of the source."""
        bad = np.flatnonzero(reason != USED)
        columns = [self.frame[name] for name in ("row", "label", "T", "strike", "side")]
        columns += [self.frame["bid"], self.frame["ask"]]
        columns[1] = columns[1].alias("expiry")
        found = pl.DataFrame(columns)[bad]
        table = found.hstack([pl.Series("reason", REASONS)[reason[bad]]])
        if self.set_aside.height:
            table = pl.concat([self.set_aside, table])
        return table.sort("row", "side", maintain_order=True)

    def _build_quotes(
        self,
        used: Indices,
        verdict: CleaningVerdict,
        estimates: SeriesEstimates,
        exclusions: pl.DataFrame,
    ) -> Quotes:
        options, k = self.option_table, verdict.k
        head = np.diff(options.series[used], prepend=-1) != 0
        heads, expiry = np.flatnonzero(head), np.cumsum(head) - 1
        series = options.series[used[heads]]
        forward, discount = estimates.forward[series], estimates.discount[series]
        unit = (forward * discount)[expiry]
        return Quotes(
            maturities=inputs.freeze_array(options.T[used[heads]]),
            forwards=inputs.freeze_array(forward),
            discounts=inputs.freeze_array(discount),
            expiry=expiry,
            k=inputs.freeze_array(k[used]),
            bid=inputs.freeze_array(options.bid[used] / unit),
            ask=inputs.freeze_array(options.ask[used] / unit),
            labels=tuple(options.labels[i] for i in series),
            as_of=self.as_of,
            exclusions=exclusions,
            bounds=collect_bounds(options, estimates, verdict, series),
            forward_errors=inputs.freeze_array(estimates.forward_error[series]),
            discount_errors=inputs.freeze_array(estimates.discount_error[series]),
            info=inputs.freeze_info(
                {
                    "source": self.name,
                    "layout": self.layout,
                    "underlying": self.underlying,
                    "spot": self.spot,
                    "notes": list(self.notes),
                }
            ),
        )

    def _describe_lost_quotes(self, verdict: CleaningVerdict) -> tuple[str, ...]:
        """A sentence if many two-sided quotes of ordinary expiries were excluded."""
        counted = verdict.two_sided & (verdict.strikes >= MIN_COUNTED_STRIKES)
        counted &= self.option_table.T >= MIN_COUNTED_DAYS / DAYS_PER_YEAR
        lost = counted & ~np.isin(verdict.reason, [USED, *_REQUESTED_EXCLUSIONS])
        if not lost.sum() > MAX_EXCLUDED_SHARE * counted.sum():
            return ()
        sizes = np.bincount(verdict.reason[lost], minlength=len(REASONS))
        why = ", ".join(f"{sizes[i]} {REASONS[i]}" for i in np.argsort(REASONS) if sizes[i])
        share = 100.0 * lost.sum() / counted.sum()
        return (
            f"{self.name}: {lost.sum()} of {counted.sum()} two-sided out-of-the-money quotes "
            f"({share:.1f} %) are not used: {why}",
        )


def _summarise_exclusions(exclusions: pl.DataFrame) -> str:
    """The counts of an exclusion table as a sentence."""
    table = count_exclusions(exclusions)
    return ", ".join(f"{n} {reason}" for reason, n in table.select("reason", "quotes").iter_rows())


def _explain_exclusions(exclusions: pl.DataFrame) -> str:
    """The same with what each reason means."""
    rows = count_exclusions(exclusions).select("quotes", "reason", "meaning").iter_rows()
    return ", ".join(f"{n} {reason} ({meaning})" for n, reason, meaning in rows)
