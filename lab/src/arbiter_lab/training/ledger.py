"""The ledger: one row for each leg of a run, in an embedded database and as ``sweeps.csv``.

A run in one leg is one row. Legs of a longer one differ in settings, code, data and ending, so each
has its own, numbered in the column ``leg``, and the last is the run's: ``steps``, the journal's
digest and what was measured are of all legs up to it, ``seconds`` are its own.

The database is the record; the table of text is written from it, whole, while the database is
locked, so that runs of one sweep may end at the same moment. A row holds all that a replay needs:
configuration, seed, revision of the code and hash of the data, and the digest of the journal that
the replay has to reproduce.
"""

from __future__ import annotations

import csv
import io
import json
import math
import re
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, fields
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from arbiter.files import write_whole
from arbiter_lab.training.journal import COLUMNS

if TYPE_CHECKING:
    import sqlite3

TABLE = "sweeps"
UNKNOWN_REVISION = "unknown"

_NUMBER_COLUMNS = ("leg", "steps", *COLUMNS, "seconds")
_TEXT_COLUMNS = (
    "run",
    "ended",
    "route",
    "seed",
    "revision",
    "data_hash",
    "config",
    "journal",
    "metrics",
)
LEDGER_COLUMNS = (*_TEXT_COLUMNS, *_NUMBER_COLUMNS)
"""Columns of the table; those of the journal hold their last measured values."""


@dataclass(frozen=True)
class LedgerEntry:
    """One finished run, or leg of one.

    Attributes:
        run: Its name, once in a ledger: letters, digits, ``.``, ``_`` and ``-``.
        config: Plain JSON values: all that was configured.
        seed: The seed of everything random.
        revision: Revision of the code; see `read_revision`.
        data_hash: Hash of the training data; see `journal.fingerprint_tensors`.
        ended: Name of the ending.
        steps: Number of steps, over all legs so far.
        route: ``saddle`` or ``mfm``.
        journal: Digest of ``steps.jsonl``; see `journal.digest`.
        counters: Last values of the journal's columns; those not measured are left out.
        metrics: Any further results, plain JSON values.
        seconds: Time that it took, the one thing a replay need not repeat.
        leg: Its number within the run, from 1.
    """

    run: str
    config: Mapping[str, Any]
    seed: int
    revision: str
    data_hash: str
    ended: str
    steps: int
    route: str = "saddle"
    journal: str = ""
    counters: Mapping[str, float | None] = field(default_factory=dict)
    metrics: Mapping[str, Any] = field(default_factory=dict)
    seconds: float | None = None
    leg: int = 1

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[\w.-]+", self.run, re.ASCII):
            raise ValueError(f"run must be a name of letters, digits, ., _ and -, got {self.run!r}")
        unknown = sorted(set(self.counters) - set(COLUMNS))
        if unknown:
            raise ValueError(f"counters {unknown} are no columns: put them into metrics")

    def to_row(self) -> dict[str, Any]:
        """The row of the table."""
        row = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "counters"}
        for name in ("config", "metrics"):
            try:
                row[name] = json.dumps(dict(row[name]), sort_keys=True, allow_nan=False)
            except (TypeError, ValueError) as error:
                raise ValueError(f"{name} must hold plain JSON values: {error}") from error
        row["seed"] = str(self.seed)  # as text: a seed of 64 bits is no SQL integer
        row |= {name: self.counters.get(name) for name in COLUMNS}
        for name in _NUMBER_COLUMNS:
            if row[name] is not None and not math.isfinite(row[name]):
                row[name] = None
        return {name: row[name] for name in LEDGER_COLUMNS}


class Ledger:
    """The runs of a folder: ``sweeps.sqlite`` and, written from it, ``sweeps.csv``.

    Args:
        folder: Made if it is not there.
    """

    def __init__(self, folder: str | PathLike[str]) -> None:
        self.folder = Path(folder)
        self.database = self.folder / "sweeps.sqlite"
        self.text = self.folder / "sweeps.csv"

    def add(self, run: LedgerEntry) -> None:
        """Write a run into both.

        A process that is killed between the two leaves the text one row ahead, until the next run.

        Raises:
            ValueError: If a run of that name is there, or the folder holds something else.
        """
        import sqlite3

        row = run.to_row()
        self.folder.mkdir(parents=True, exist_ok=True)
        if self.text.exists() and not self.database.exists():
            raise ValueError(
                f"{self.text} is there without {self.database.name}, from which it is written: "
                "restore that file, or move the table away"
            )
        with self._open_database() as connection:
            connection.execute("BEGIN IMMEDIATE")
            try:
                kinds = [f'"{name}" TEXT NOT NULL' for name in _TEXT_COLUMNS]
                kinds += [f'"{name}" REAL' for name in _NUMBER_COLUMNS]
                connection.execute(
                    f'CREATE TABLE IF NOT EXISTS {TABLE} ({", ".join(kinds)}, PRIMARY KEY ("run"))'
                )
                self._check_columns(connection)
                marks = ", ".join("?" for _ in LEDGER_COLUMNS)
                connection.execute(f"INSERT INTO {TABLE} VALUES ({marks})", list(row.values()))
                write_whole(self.text, _format_csv(_select(connection)))
                connection.execute("COMMIT")
            except sqlite3.IntegrityError as error:
                connection.execute("ROLLBACK")
                raise ValueError(
                    f"run {run.run!r} is in {self.database} already: name it differently"
                ) from error
            except BaseException:
                connection.execute("ROLLBACK")
                raise

    def runs(self) -> list[dict[str, Any]]:
        """Return all rows in the order of insertion, with configuration and metrics as values."""
        if not self.database.exists():
            return []
        with self._open_database() as connection:
            self._check_columns(connection)
            rows = [
                dict(zip(LEDGER_COLUMNS, values, strict=True)) for values in _select(connection)
            ]
        for row in rows:
            row["seed"] = int(row["seed"])
            row |= {name: int(row[name]) for name in ("leg", "steps")}
            row |= {name: json.loads(row[name]) for name in ("config", "metrics")}
        return rows

    @contextmanager
    def _open_database(self) -> Iterator[sqlite3.Connection]:
        import sqlite3

        # Transactions are begun and ended by hand; others that write are waited for.
        opened = sqlite3.connect(self.database, timeout=60.0, isolation_level=None)
        with closing(opened) as connection:
            try:
                yield connection
            except sqlite3.DatabaseError as error:
                raise ValueError(
                    f"{self.database} cannot be used ({error}): restore it, or move it away"
                ) from error

    def _check_columns(self, connection: sqlite3.Connection) -> None:
        found = tuple(row[1] for row in connection.execute(f"PRAGMA table_info({TABLE})"))
        if found != LEDGER_COLUMNS:
            raise ValueError(
                f"{self.database} has other columns than this version of arbiter writes: name "
                "another folder"
            )


def read_revision(module: str | PathLike[str] = __file__) -> str:
    """Commit of the code, with ``-dirty`` where files differ from it.

    ``unknown`` where git does not track the ``module``: an installed package may lie inside the
    folder of another repository, whose commit says nothing about this code.
    """
    own = Path(module)

    def git(*arguments: str) -> str:
        done = subprocess.run(
            ["git", "-C", str(own.parent), *arguments], capture_output=True, text=True, check=True
        )
        return done.stdout.strip()

    try:
        git("ls-files", "--error-unmatch", "--", own.name)
        commit = git("rev-parse", "HEAD")
        changed = git("status", "--porcelain", "--untracked-files=no")
    except (OSError, subprocess.CalledProcessError):
        return UNKNOWN_REVISION
    return f"{commit}-dirty" if changed else commit


def _select(connection: sqlite3.Connection) -> list[tuple[Any, ...]]:
    names = ", ".join(f'"{name}"' for name in LEDGER_COLUMNS)
    return list(connection.execute(f"SELECT {names} FROM {TABLE} ORDER BY rowid"))


def _format_csv(rows: list[tuple[Any, ...]]) -> str:
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(LEDGER_COLUMNS)
    writer.writerows(rows)
    return file.getvalue()
