"""A synthetic dataset on disk: Parquet parts, one per block of days, the configuration in each.

A part is written whole or not at all, and depends on the configuration and its own number alone.
So a run that was interrupted goes on where it stopped and ends with the same bytes. The table of
days, which is written last, holds checksums of the other tables of its part, so that a damaged one
is known and made again.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import io
import json
import operator
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from arbiter.conventions import Array
from arbiter.files import remove_partial_files, write_whole
from arbiter.markets.dataset_tables import (
    board_from_table,
    days_table,
    futures_table,
    oracle_from_row,
    quotes_table,
)
from arbiter.markets.paths import STEPS_PER_DAY
from arbiter.markets.quoted_chain import quotes_from_board
from arbiter.markets.snapshots import Snapshot, Venue
from arbiter.markets.timelines import START_DATE, Timeline, timeline
from arbiter.markets.universes import Universe, universe
from arbiter.models.lifted_heston import LiftedHeston
from arbiter.models.parameters import PRESETS, preset
from arbiter.quotes import Quotes

FORMAT = "arbiter-market-3"  # another number whenever the same plan would give other bytes
_READABLE_FORMATS = ("arbiter-market-2", FORMAT)  # the second had other last digits of prices
MANIFEST = "dataset.json"
_CONFIG_KEY, _CHECKSUMS_KEY = "arbiter", "sha256"  # of the Parquet metadata


@dataclass(frozen=True)
class Plan:
    """The configuration of a dataset, from which all its contents follow.

    Attributes:
        days: How many days of a timeline, or members of a universe.
        seed: The one seed.
        preset: Name of the timeline's parameters; None for a universe.
        start: First session of a timeline, session of a universe.
        block: Days per part.
        steps_per_day: Steps of the path's scheme per calendar day.
        venue: How the market lists and quotes.
    """

    days: int
    seed: int
    preset: str | None = "calm"
    start: dt.date = START_DATE
    block: int = 20
    steps_per_day: float = STEPS_PER_DAY
    venue: Venue = field(default_factory=Venue)

    def __post_init__(self) -> None:
        for name, least in (("days", 1), ("block", 1), ("seed", 0)):
            value = getattr(self, name)
            try:
                object.__setattr__(self, name, operator.index(value))  # NumPy's integers too
            except TypeError:
                raise ValueError(f"{name} = {value!r}: give a whole number") from None
            if value < least:
                raise ValueError(f"{name} = {value}: give a whole number from {least} on")
        if type(self.start) is not dt.date:
            raise ValueError(f"start = {self.start!r}: give a date, dt.date(2015, 1, 2) say")
        if self.preset is not None and self.preset not in PRESETS:
            raise ValueError(f"preset {self.preset!r} is not one of {', '.join(PRESETS)}")

    @property
    def table_kinds(self) -> tuple[str, ...]:
        """The tables of a part in the order in which they are written."""
        more = () if self.venue.volatility is None else ("vix", "futures")
        # days come last, so that a part that has them is complete
        return ("quotes", *more, "days")

    @property
    def part_count(self) -> int:
        """Number of parts."""
        return -(-self.days // self.block)

    def build_market(self) -> Timeline | Universe:
        """The market of the plan."""
        if self.preset is None:
            return universe(self.days, self.seed, start=self.start, venue=self.venue)
        return timeline(
            preset(self.preset),
            self.days,
            self.seed,
            start=self.start,
            venue=self.venue,
            steps_per_day=self.steps_per_day,
        )

    def config(self) -> dict[str, Any]:
        """The plan as plain JSON values, as written into every file."""
        parameters = None if self.preset is None else asdict(preset(self.preset))
        values = {"format": FORMAT, **asdict(self), "parameters": parameters}
        found: dict[str, Any] = json.loads(json.dumps(values, default=_encode_json))
        return found


def _encode_json(value: object) -> object:
    """Encode dates and NumPy numbers for JSON."""
    if isinstance(value, dt.date):
        return value.isoformat()
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"{value!r} cannot be written into a dataset: give plain numbers")


def write_dataset(
    plan: Plan, folder: str | PathLike[str], tell: Callable[[int], object] | None = None
) -> dict[str, Any]:
    """Write the parts of a dataset that are missing or damaged, and return its manifest.

    Args:
        plan: What to write.
        folder: Where; made if absent.
        tell: Called with the number of days that are done, after each part.

    Raises:
        ValueError: If the folder holds parts of another plan.
    """
    config, folder = plan.config(), Path(folder)
    text = json.dumps(config, sort_keys=True)
    known = _read_checksums(folder)
    done = [
        _is_part_complete(folder, plan.table_kinds, part, text, known)
        for part in range(plan.part_count)
    ]
    folder.mkdir(parents=True, exist_ok=True)
    remove_partial_files(folder)
    market = None if all(done) else plan.build_market()
    for part in range(plan.part_count):
        days = range(part * plan.block, min((part + 1) * plan.block, plan.days))
        if market is not None and not done[part]:
            marks: dict[str, str] = {}
            for kind, table in _tables(days, market.days(days)).items():
                name = _part_file_name(kind, part)
                note = (
                    {_CONFIG_KEY: text, _CHECKSUMS_KEY: json.dumps(marks)}
                    if kind == "days"
                    else {_CONFIG_KEY: text}
                )
                marks[name] = write_table(folder / name, table, note)
        if tell is not None:
            tell(days[-1] + 1)
    names = sorted(
        _part_file_name(kind, part) for kind in plan.table_kinds for part in range(plan.part_count)
    )
    manifest = {"config": config, "files": {name: _file_checksum(folder / name) for name in names}}
    write_whole(folder / MANIFEST, json.dumps(manifest, indent=1) + "\n")
    return manifest


def _tables(days: range, snapshots: list[Snapshot]) -> dict[str, pl.DataFrame]:
    """The tables of a part, in the order of :attr:`Plan.table_kinds`."""
    tables = {"quotes": quotes_table(days, snapshots)}
    sheets = [s.volatility for s in snapshots if s.volatility is not None]
    if sheets:
        tables |= {"vix": quotes_table(days, sheets), "futures": futures_table(days, sheets)}
    return {**tables, "days": days_table(days, snapshots)}


def _part_file_name(kind: str, part: int) -> str:
    return f"{kind}-{part:05d}.parquet"


def write_table(path: Path, table: pl.DataFrame, note: dict[str, str]) -> str:
    """Write a table in one step and return its checksum."""
    content = io.BytesIO()  # so that a full disk is an OSError that names the file
    table.write_parquet(content, compression="zstd", metadata=note)
    write_whole(path, content.getvalue())
    return hashlib.sha256(content.getvalue()).hexdigest()


def _file_checksum(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _read_checksums(folder: Path) -> dict[str, str]:
    """Checksums from the manifest; empty where there is none."""
    path = folder / MANIFEST
    if not path.is_file():
        return {}
    try:
        found: dict[str, str] = json.loads(path.read_text(encoding="utf-8"))["files"]
    except (ValueError, KeyError) as error:
        raise ValueError(f"{path} is not a manifest ({error}): remove it") from error
    return found


def _is_part_complete(
    folder: Path, kinds: tuple[str, ...], part: int, config: str, known: dict[str, str]
) -> bool:
    """Whether a part exists undamaged; a ``ValueError`` if it belongs to another plan."""
    there, marks = True, dict(known)
    for kind in kinds:
        path = folder / _part_file_name(kind, part)
        if not path.exists():
            there = False
            continue
        try:
            note = pl.read_parquet_metadata(path)
        except (pl.exceptions.PolarsError, OSError) as error:
            raise ValueError(f"{path} is not a Parquet file ({error}): remove it") from error
        if note.get(_CONFIG_KEY) != config:
            raise ValueError(
                f"{path} belongs to another dataset "
                f"({_describe_difference(note.get(_CONFIG_KEY), config)}): give "
                "another folder, or remove the old files"
            )
        marks |= json.loads(note.get(_CHECKSUMS_KEY, "{}"))
    return there and all(
        _file_checksum(folder / name) == marks[name]
        for name in (_part_file_name(kind, part) for kind in kinds)
        if name in marks
    )


def _describe_difference(found: str | None, config: str) -> str:
    if found is None:
        return "it has no configuration"
    old, new = json.loads(found), json.loads(config)
    names = [name for name in new if old.get(name) != new[name]]
    return ", ".join(f"{name} {old.get(name)} there, {new[name]} now" for name in names)[:400]


@dataclass(frozen=True, eq=False)
class Dataset:
    """A dataset on disk: quotes and exact prices of every day.

    Attributes:
        folder: Its folder.
    """

    folder: Path

    def __post_init__(self) -> None:
        object.__setattr__(self, "folder", Path(self.folder))

    @cached_property
    def config(self) -> dict[str, Any]:
        """The plan, as it is written in every part."""
        path = self.folder / MANIFEST
        if not path.is_file():
            raise ValueError(
                f"{self.folder} has no {MANIFEST}: it is no dataset, or a run was interrupted; "
                "run the same command again to complete it"
            )
        found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))["config"]
        if found.get("format") not in _READABLE_FORMATS:
            raise ValueError(
                f"{path} has format {found.get('format')!r}: this version reads "
                f"{' and '.join(_READABLE_FORMATS)}; write the dataset again"
            )
        return found

    @cached_property
    def days(self) -> pl.DataFrame:
        """The table of days, one row per day."""
        parts = -(-self.config["days"] // self.config["block"])
        return pl.concat([self._read(_part_file_name("days", part)) for part in range(parts)])

    @cached_property
    def _verified_files(self) -> set[str]:
        """Names of the files whose checksum was verified."""
        return set()

    def _read(self, name: str) -> pl.DataFrame:
        path = self.folder / name
        if name not in self._verified_files and _file_checksum(path) != _read_checksums(
            self.folder
        ).get(name):
            raise ValueError(
                f"{path} is not as it was written: give the same command again, or "
                "write(plan, folder), to make it anew"
            )
        self._verified_files.add(name)
        return pl.read_parquet(path)

    def __len__(self) -> int:
        return int(self.config["days"])

    def table(self, day: int, kind: str = "quotes") -> pl.DataFrame:
        """Every listed strike of a day, with bid, ask and exact price.

        Args:
            day: Its number; negative ones count from the end.
            kind: ``"quotes"``, ``"vix"`` for options on the volatility index, or ``"futures"``.
        """
        number = self._day_number(day)
        name = _part_file_name(kind, number // self.config["block"])
        if not (self.folder / name).exists():
            raise ValueError(
                f"{self.folder} has no table {kind!r}: it is quotes, or, where the venue has the "
                "volatility index, vix or futures"
            )
        return self._read(name).filter(pl.col("day") == number)

    def _day_number(self, day: int) -> int:
        if not -len(self) <= day < len(self):
            raise ValueError(f"day = {day}: the dataset has {len(self)} days, from 0 on")
        return range(len(self))[day]

    def quotes(self, day: int, kind: str = "quotes") -> Quotes:
        """The quotes of a day, bit for bit as they were made; ``kind`` may be ``"vix"``."""
        if kind == "futures":
            raise ValueError("futures have no strikes: read table(day, 'futures')")
        table = self.table(day, kind)
        row = self.days.row(self._day_number(day), named=True)
        spot = row["vix"] if kind == "vix" else row["spot"]
        board = board_from_table(table, np.datetime64(row["as_of"], "m"), spot)
        bid, ask = (table[name].fill_null(np.nan).to_numpy() for name in ("bid", "ask"))
        return quotes_from_board(board, bid, ask)

    def oracle(self, day: int) -> tuple[LiftedHeston, Array]:
        """The model of a day and its state: ``market.iv(k, T, state)`` is the exact volatility."""
        return oracle_from_row(self.days.row(self._day_number(day), named=True))
