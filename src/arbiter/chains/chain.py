"""A listed chain of one moment: every option of the source, its series, and its quotes."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
import polars as pl

from arbiter import inputs
from arbiter.chains.cleaning import CleaningRules, CleaningVerdict, judge_options
from arbiter.chains.errors import ChainError
from arbiter.chains.series_parity import SERIES_COLUMNS, ParityEstimates, estimate_parity
from arbiter.conventions import DAYS_PER_YEAR, MINUTES_PER_YEAR
from arbiter.exclusions import EXCLUSION_SCHEMA, Exclusion, count_exclusions, no_exclusions
from arbiter.quotes import Quotes

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
    Exclusion.TOO_SHORT.value,
    Exclusion.TOO_FEW.value,
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
    """

    frame: pl.DataFrame
    as_of: np.datetime64
    spot: float | None
    underlying: str
    layout: str
    name: str
    assumptions: tuple[str, ...] = ()
    set_aside: pl.DataFrame = field(default_factory=no_exclusions)

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
            return ()
        return (f"{self.name}: {self.set_aside.height} options could not be read or assigned",)

    @cached_property
    def parity_estimates(self) -> ParityEstimates:
        """Forward and discount factor of every series by put-call parity, with notes."""
        found = estimate_parity(self.strips())
        return ParityEstimates(found.frame, [*found.notes, *self._spot_note(found.frame)])

    def _spot_note(self, parity: pl.DataFrame) -> list[str]:
        """A sentence if the spot is not of the moment of the quotes."""
        near = parity.filter(pl.col("forward").is_finite()).head(1)
        if self.spot is None or self.underlying == "VIX" or near.height == 0:
            return []
        T, forward = near.select("T", "forward").row(0)
        gap = forward / self.spot - 1.0
        if abs(gap) <= _MAX_SPOT_GAP + _MAX_CARRY_PER_YEAR * T:
            return []
        return [
            f"spot {self.spot:g} and the forward of "
            f"{near['label'][0]}, {forward:.2f}, are {abs(gap):.1%} apart: spot is of another "
            "moment (it is not used)"
        ]

    def strips(self) -> pl.DataFrame:
        """Calls and puts side by side, for each series that has not settled.

        Returns:
            Columns label, root, expiry, settlement, settles, minutes (to settlement), strike,
            call_bid, call_ask, put_bid, put_ask; sorted by settlement and strike. A price is null
            where the option is not listed or has no such quote (negative and infinite ones are
            none). Of an option that is listed twice the first row counts.
        """
        prices = pl.col("bid", "ask")
        live = self.frame.filter(pl.col("T") > 0.0).with_columns(
            pl.when(prices.is_finite() & (prices >= 0.0)).then(prices)
        )
        keys = [*SERIES_COLUMNS, "T", "strike"]
        sides = [
            live.filter(pl.col("side") == side)
            .unique(["label", "strike"], keep="first", maintain_order=True)
            .select(*keys, pl.col("bid").alias(f"{side}_bid"), pl.col("ask").alias(f"{side}_ask"))
            for side in ("call", "put")
        ]
        joined = sides[0].join(sides[1], on=keys, how="full", coalesce=True, nulls_equal=True)
        minutes = (pl.col("T") * MINUTES_PER_YEAR).round().cast(pl.Int64)
        quoted = ["strike", "call_bid", "call_ask", "put_bid", "put_ask"]
        return joined.sort("settles", "strike").select(
            *SERIES_COLUMNS, minutes.alias("minutes"), *quoted
        )

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
        return (
            estimate_parity(self.strips(), smooth=True) if smooth else self.parity_estimates
        ).frame

    def quotes(
        self,
        *,
        shortest_days: float = 2.0,
        fewest_strikes: int = 8,
        smooth_forwards: bool = False,
        stop_after_zero_bids: bool = True,
        stale_after_hours: float = 24.0,
    ) -> Quotes:
        """The out-of-the-money quotes in forward units, and a reason for every other option.

        Args:
            shortest_days: Expiries nearer than this are not used.
            fewest_strikes: Nor are those with fewer two-sided out-of-the-money strikes.
            smooth_forwards: Average forwards and discounts with those of neighbouring expiries.
            stop_after_zero_bids: Leave out what lies beyond two neighbouring strikes without a
                bid, seen from the money, as the volatility index does.
            stale_after_hours: Leave out quotes that the source dates longer than this before
                ``as_of`` (tidy tables with ``quote_time``).

        Returns:
            Quotes whose ``exclusions`` list every option of the source that is not used, once.

        Raises:
            ChainError: If no option can be used, or units are wrong.
        """
        rules = CleaningRules(
            shortest_days, fewest_strikes, stop_after_zero_bids, stale_after_hours
        )
        parity = self.forwards(smooth_forwards)
        columns = ["label", "forward", "discount", "forward_error", "discount_error"]
        options = self.frame.join(
            parity.select(columns), on="label", how="left", maintain_order="left"
        )
        verdict = judge_options(options, rules, self.as_of)
        bad = options.with_columns(reason=pl.Series(verdict.reason.tolist(), dtype=pl.String))
        bad = bad.filter(pl.col("reason") != "").rename({"label": "expiry", "expiry": "date"})
        exclusions = pl.concat([self.set_aside, bad.select(list(EXCLUSION_SCHEMA))]).sort(
            "row", "side", maintain_order=True
        )
        logger.info("%s: %s", self.name, _summarise_exclusions(exclusions))
        warnings = self._describe_lost_quotes(options, verdict)
        for warning in warnings:
            logger.warning(warning)
        good = np.flatnonzero(verdict.reason == "")
        if good.size == 0:
            raise ChainError(
                f"{self.name}: no option can be used: {_explain_exclusions(exclusions)}; the "
                f"quotes are taken as those of {self.as_of.astype('datetime64[m]')}"
            )
        quotes = self._build_quotes(options[good.tolist()], verdict.k[good], exclusions)
        return replace(quotes, warnings=(*self.warnings, *warnings))

    def _build_quotes(self, used: pl.DataFrame, k: np.ndarray, exclusions: pl.DataFrame) -> Quotes:
        order = np.lexsort((k, used["T"].to_numpy()))
        used, k = used[order.tolist()], k[order]
        unit = (used["forward"] * used["discount"]).to_numpy()
        heads = used.unique("label", keep="first", maintain_order=True)
        return Quotes(
            maturities=inputs.freeze_array(heads["T"]),
            forwards=inputs.freeze_array(heads["forward"]),
            discounts=inputs.freeze_array(heads["discount"]),
            expiry=used["label"].rle_id().to_numpy().astype(np.int64),
            k=inputs.freeze_array(k),
            bid=inputs.freeze_array(used["bid"].to_numpy() / unit),
            ask=inputs.freeze_array(used["ask"].to_numpy() / unit),
            labels=tuple(heads["label"]),
            as_of=self.as_of,
            exclusions=exclusions,
            forward_errors=inputs.freeze_array(heads["forward_error"]),
            discount_errors=inputs.freeze_array(heads["discount_error"]),
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

    def _describe_lost_quotes(
        self, options: pl.DataFrame, verdict: CleaningVerdict
    ) -> tuple[str, ...]:
        """A sentence if many two-sided quotes of ordinary expiries were excluded."""
        counted = verdict.two_sided & (verdict.strikes >= MIN_COUNTED_STRIKES)
        counted &= options["T"].to_numpy() >= MIN_COUNTED_DAYS / DAYS_PER_YEAR
        lost = counted & ~np.isin(verdict.reason, ["", *_REQUESTED_EXCLUSIONS])
        if not lost.sum() > MAX_EXCLUDED_SHARE * counted.sum():
            return ()
        codes, sizes = np.unique(verdict.reason[lost], return_counts=True)
        why = ", ".join(f"{size} {code}" for code, size in zip(codes, sizes, strict=True))
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
