"""A file of quotes as a command takes it: a chain of prices, or a table of volatilities."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path

import numpy as np

from arbiter import inputs
from arbiter.chains import Chain, ChainError, read_chain, read_futures, read_volatilities
from arbiter.chains.cleaning import SHORTEST_DAYS
from arbiter.chains.source import RawSource, load_source
from arbiter.chains.tables import columns_of
from arbiter.fitting.vix_quotes import VixMarket
from arbiter.futures import FuturesCurve
from arbiter.quotes import Quotes, drop_expiries
from arbiter.timing.maturities import DateLike
from arbiter.timing.sessions import NYSE

VOLATILITIES_LAYOUT = "volatilities"  # the layout of read_volatilities, beside those of read_chain
_VOLATILITY_COLUMNS = {"fwd", "texp"}  # columns that no chain of prices has


@dataclass(frozen=True, eq=False)
class QuoteSource:
    """Quotes of one file, and what the file says about itself.

    Attributes:
        name: Name of the file.
        layout: Name of its layout.
        underlying: ``"SPX"`` for instance; None where a table does not say.
        as_of: The moment of the quotes; a table of volatilities has a day, its midnight.
        notes: What was assumed, as sentences.
        quotes: The quotes that can be used; their ``warnings`` are those of reading and cleaning.
        chain: The chain; None for a table of volatilities, which has no prices.
    """

    name: str
    layout: str
    underlying: str | None
    as_of: np.datetime64
    notes: tuple[str, ...]
    quotes: Quotes
    chain: Chain | None

    @classmethod
    def read(
        cls,
        path: str | PathLike[str],
        *,
        as_of: DateLike | None = None,
        layout: str | None = None,
        underlying: str | None = None,
        calendar: str = NYSE.name,
        shortest_days: float = SHORTEST_DAYS,
        drop: Sequence[str] = (),
    ) -> QuoteSource:
        """Read a file whose columns say which of the two it is.

        Args:
            path: The file.
            as_of: Moment of the quotes, where the file has none.
            layout: One of ``read_chain``, or ``"volatilities"``; found out if None.
            underlying: Name of the index, where the file has none.
            calendar: Quoting hours by which moments are read; of a table of volatilities, which
                has no time of day, none.
            shortest_days: Expiries nearer than this are not used.
            drop: Labels of expiries to leave out.

        Raises:
            ChainError: If it is neither.
            ValueError: If a label to leave out is none of its expiries.
        """
        source: str | PathLike[str] | RawSource = path
        if layout is None:
            source = load_source(path)  # once: the readers take what is loaded
            layout = VOLATILITIES_LAYOUT if _has_volatilities(source) else None
        if layout == VOLATILITIES_LAYOUT:
            loaded = load_source(source)
            quotes = read_volatilities(loaded, as_of=as_of, shortest_days=shortest_days)
            facts = {"source": loaded.name, "layout": layout, "underlying": underlying}
            quotes = drop_expiries(replace(quotes, info=inputs.freeze_info(facts)), drop)
            return cls(loaded.name, layout, underlying, _require_day(quotes), (), quotes, None)
        chain = read_chain(
            source, as_of=as_of, layout=layout, underlying=underlying, calendar=calendar
        )
        quotes = drop_expiries(chain.quotes(shortest_days=shortest_days), drop)
        return cls(
            chain.name, chain.layout, chain.underlying, chain.as_of, chain.notes, quotes, chain
        )

    def futures(self, path: str | PathLike[str]) -> FuturesCurve:
        """Futures of the same moment from another file."""
        if self.chain is not None:
            return read_futures(path, as_of=self.as_of)
        # maturities of a table are whole days: counted from the open, so are those of futures
        day = self.as_of.astype("datetime64[D]").item()
        curve = read_futures(path, as_of=dt.datetime.combine(day, NYSE.open_time))
        return replace(curve, as_of=self.as_of)

    def __str__(self) -> str:
        if self.chain is not None:
            return str(self.chain)
        return (
            f"volatilities of {self.as_of.astype('datetime64[D]')}, {len(self.quotes):,} two-sided "
            f"on {self.quotes.maturities.size} expiries"
        )


@dataclass(frozen=True, eq=False)
class VixSource:
    """What files say about the VIX at the moment of an index chain.

    Attributes:
        quotes: Options on the VIX, or None.
        futures: Futures on it, or None.
        names: Names of the two files, null where there is none.
    """

    quotes: Quotes | None
    futures: FuturesCurve | None
    names: dict[str, str | None]

    @property
    def warnings(self) -> tuple[str, ...]:
        """What went wrong in reading and cleaning, as sentences."""
        return () if self.quotes is None else self.quotes.warnings

    @classmethod
    def read(
        cls,
        index: QuoteSource,
        options: Path | None,
        futures: Path | None,
        *,
        as_of: DateLike | None = None,
        calendar: str = NYSE.name,
    ) -> VixSource | None:
        """Read VIX options, VIX futures or both; None where there are neither.

        Raises:
            ValueError: Naming the file, if it is no file of the VIX, or the index is the VIX.
        """
        if options is None and futures is None:
            return None
        if index.underlying == "VIX":
            raise ValueError(
                f"{index.name} has options on the VIX: give the index's own chain, and this one "
                "as --vix"
            )
        quotes = curve = None
        if options is not None:
            with _name_file_in_errors(options):
                read = QuoteSource.read(options, as_of=as_of, underlying="VIX", calendar=calendar)
                quotes = read.quotes
                VixMarket.from_quotes(quotes, None)  # refuses what is not the VIX
        if futures is not None:
            with _name_file_in_errors(futures):
                curve = index.futures(futures)
                VixMarket.from_quotes(quotes, curve)
        files = {"source": options, "futures_source": futures}
        names = {name: None if path is None else path.name for name, path in files.items()}
        return cls(quotes, curve, names)


@contextmanager
def _name_file_in_errors(path: Path) -> Iterator[None]:
    """Errors of a second file name it, and keep their remedy."""
    try:
        yield
    except ValueError as error:
        if path.name in str(error):
            raise
        remedy = error.remedy if isinstance(error, ChainError) else None
        raise ChainError(f"{path.name}: {error}", remedy) from error


def _has_volatilities(source: RawSource) -> bool:
    try:
        return set(columns_of(source)) >= _VOLATILITY_COLUMNS
    except ChainError:  # read_chain says what is wrong
        return False


def _require_day(quotes: Quotes) -> np.datetime64:
    if quotes.as_of is None:
        raise ChainError("the table does not say when it was quoted: give as_of, its day")
    return quotes.as_of
