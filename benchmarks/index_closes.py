"""The indices of fitted surfaces against official closes, and VIX futures where dates overlap.

*Indices*: VIX9D, VIX, VIX3M and VIX6M on every chain: the official close, and how far from it the
rule on the surface's prices at listed strikes and the exact log contract are. *Futures*:
settlements against the root of forward variance of the SPX surface alone, an upper bound.
*Implied futures*: those of a VIX chain against settlements. *VVIX*: of VIX smiles at 30 days.
Chains, closes and settlements are in the folder that ``ARBITER_DATA`` names.

    python -m benchmarks.index_closes [--json PATH] [--markdown]
"""

from __future__ import annotations

import argparse
import datetime as dt
import json
import logging
import os
import re
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from rich.box import MARKDOWN, SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

import arbiter as ab
from arbiter.fitting import FittedSurface
from arbiter.sources import QuoteSource
from arbiter.vix.replication import term_structure

Row = dict[str, Any]

INDICES = {"VIX9D": 9, "VIX": 30, "VIX3M": 93, "VIX6M": 184}
VIX_FILE = "vix-daily_datasets-finance-vix.csv"
FUTURES = "vix_futures_2007-2021_quantintell.csv"
LAST_FUTURE = dt.date(2021, 1, 22)  # later values of that file are no settlements
UNTIMED = {"spx_2025-01-29_long.csv": "2025-01-29T16:15"}
VIX_CHAIN = "vix_2019-08-29_0928ET_premarket.dat"
_DAY = re.compile(r"(\d{4})-?(\d{2})-?(\d{2})")


def folder() -> Path:
    """Where the data are."""
    name = os.environ.get("ARBITER_DATA")
    if not name:
        raise SystemExit("ARBITER_DATA is not set: name the folder with chains and indices")
    return Path(name)


@cache
def closes(name: str) -> dict[dt.date, float]:
    """Official closes of an index by day."""
    file = VIX_FILE if name == "VIX" else f"{name}_History.csv"
    table = pl.read_csv(folder() / "indices" / file, infer_schema_length=None)
    days = table["DATE"].str.to_date("%Y-%m-%d" if name == "VIX" else "%m/%d/%Y")
    return dict(zip(days, table[table.columns[-1]], strict=True))


def day_of(path: Path) -> dt.date:
    """The day that a file's name says."""
    found = _DAY.search(path.name)
    assert found is not None, path.name
    return dt.date(*(int(part) for part in found.groups()))


def before(day: dt.date) -> dt.date:
    """The session before."""
    return max(d for d in closes("VIX") if d < day)


@cache
def fitted(path: Path) -> tuple[QuoteSource, FittedSurface]:
    """The quotes of a file and their surface."""
    source = QuoteSource.read(path, as_of=UNTIMED.get(path.name))
    return source, ab.fit(source.quotes)


def chains() -> list[Path]:
    """Every SPX chain, and the SPX side of the joint day, by date."""
    found = [*folder().glob("chains/spx_*"), *folder().glob("joint/spx_*")]
    return sorted(found, key=lambda path: (day_of(path), path.name))


def index_rows() -> list[Row]:
    """A row per chain and index."""
    rows = []
    for path in chains():
        source, surface = fitted(path)
        table = term_structure(surface, tuple(INDICES.values()), source.chain or source.quotes)
        last = 365.0 * float(surface.maturities[-1])
        for (name, days), found in zip(INDICES.items(), table.iter_rows(named=True), strict=True):
            official = closes(name).get(day_of(path))
            exact = found["exact"] if days <= last else None  # beyond is extrapolation
            rows.append(
                {
                    "chain": path.name,
                    "moment": str(source.as_of.astype("datetime64[m]")),
                    "index": name,
                    "official": official,
                    "quoted": found["quoted"],
                    "listed": found["listed"],
                    "exact": exact,
                    "interpolation": found["interpolation"],
                    "gap": found["gap"],
                    "listed_error": _less(found["listed"], official),
                    "exact_error": _less(exact, official),
                }
            )
    return rows


def future_rows() -> list[Row]:
    """Settlements on the days of chains; before and after where a chain is no close."""
    rows = []
    path = folder() / "futures" / FUTURES
    for chain in chains():
        day = day_of(chain)
        if day > LAST_FUTURE:
            continue
        source, surface = fitted(chain)
        settled = [day] if "close" in chain.name else [before(day), day]
        for session in settled:
            curve = ab.read_futures(path, as_of=session)
            # one file's dates: years from the moment of the chain
            T = curve.maturities - _years(session, source.as_of)
            inside = surface.maturities[-1] >= T + 30.0 / 365.0
            root = 100.0 * np.sqrt(surface.forward_variance(T))
            rows += [
                {
                    "chain": chain.name,
                    "settlement of": str(session),
                    "future": f"VX{i + 1}",
                    "settles": curve.labels[i],
                    "days": 365.0 * float(T[i]),
                    "settlement": float(curve.mid[i]),
                    "root of forward variance": float(root[i]),
                    "room": float(root[i] - curve.mid[i]),
                }
                for i in np.flatnonzero(inside)
            ]
    return rows


def implied_rows() -> list[Row]:
    """Futures that the VIX chain implies against the settlements on either side of it."""
    path = folder() / "chains" / VIX_CHAIN
    source, day = QuoteSource.read(path), day_of(path)
    smiles = ab.fit_vix(source.quotes)
    rows = []
    curves = {
        session: ab.read_futures(folder() / "futures" / FUTURES, as_of=session)
        for session in (before(day), day)
    }
    for i, T in enumerate(source.quotes.maturities):
        row: Row = {"chain": path.name, "expiry": source.quotes.labels[i], "days": 365.0 * float(T)}
        row |= {"implied": float(smiles.futures[i]), "VVIX": float(smiles.vvix(T))}
        for session, curve in curves.items():
            apart = np.abs(curve.maturities - _years(session, source.as_of) - T)
            near = int(apart.argmin())
            same = apart[near] < 1.0 / 365.0
            row[f"settlement {session}"] = float(curve.mid[near]) if same else None
        rows.append(row)
    return rows


def vvix_rows() -> list[Row]:
    """VVIX at 30 days of fitted VIX smiles against the official one."""
    rows = []
    for path in (folder() / "chains" / VIX_CHAIN, *folder().glob("joint/vix_*")):
        smiles, day = ab.fit_vix(QuoteSource.read(path).quotes), day_of(path)
        official = closes("VVIX")
        rows.append(
            {
                "file": path.name,
                "VVIX of the smiles": float(smiles.vvix(30.0 / 365.0)),
                "official, session before": official.get(before(day)),
                "official, that day": official.get(day),
            }
        )
    return rows


def _years(session: dt.date, moment: np.datetime64) -> float:
    """From the close of a session, which its futures are counted from, to another moment."""
    close = np.datetime64(session, "m") + np.timedelta64(16 * 60 + 15, "m")
    return float((moment.astype("datetime64[m]") - close) / np.timedelta64(525_600, "m"))


def _less(value: float | None, official: float | None) -> float | None:
    return None if value is None or official is None else value - official


def by_day(rows: list[Row]) -> list[Row]:
    """One row per chain: official close, and rule / exact less it, under each index."""
    found: dict[str, Row] = {}
    for row in rows:
        line = found.setdefault(row["chain"], {"moment": row["moment"]})
        errors = " / ".join(_signed(row[name]) for name in ("listed_error", "exact_error"))
        official = "–" if row["official"] is None else f"{row['official']:.2f}"
        line[row["index"]] = f"{official}: {errors}"
    return list(found.values())


def _signed(value: float | None) -> str:
    return "–" if value is None else f"{value:+.2f}".replace("-", "−")


def show(console: Console, title: str, rows: list[Row], markdown: bool) -> None:
    """Print one table."""
    table = Table(title=title, box=MARKDOWN if markdown else SIMPLE_HEAD)
    for name in rows[0]:
        table.add_column(name, no_wrap=True)
    for row in rows:
        cells = [row[name] for name in rows[0]]
        texts = [
            f"{c:.2f}" if isinstance(c, float) else "–" if c is None else str(c) for c in cells
        ]
        table.add_row(*texts)
    console.print(table)


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--markdown", action="store_true")
    options = parser.parse_args()
    logging.disable(logging.WARNING)
    results = {
        "indices": index_rows(),
        "futures": future_rows(),
        "implied futures": implied_rows(),
        "vvix": vvix_rows(),
    }
    console = Console(width=220)
    shown = {"indices, close: rule / exact less it": by_day(results["indices"]), **results}
    del shown["indices"]
    for title, rows in shown.items():
        show(console, title, rows, options.markdown)
    if options.json:
        options.json.write_text(json.dumps(results, indent=1, allow_nan=False), encoding="utf-8")


if __name__ == "__main__":
    main()
