"""Folders of chains: which files are fitted, where the results go, and the summary of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

CHAIN_SUFFIXES = (".csv", ".dat", ".parquet", ".txt")
SUMMARY_FILE = "summary.csv"
_SUMMARY_COLUMNS = (
    "chain",
    "status",
    "method",
    "as_of",
    "expiries",
    "quotes",
    "excluded",
    "inside_bid_ask",
    "inside_bid_ask_held_out",
    "iv_rmse_bp_2sd",
    "vix",
    "vix_surface",
    "nas",
    "seconds",
    "run",
    "error",
)


def list_chains(folder: Path) -> list[Path]:
    """The files of a folder that can be chains, by name."""
    return sorted(p for p in folder.iterdir() if p.suffix.lower() in CHAIN_SUFFIXES and p.is_file())


def name_folders(chains: list[Path]) -> dict[Path, str]:
    """A folder for each chain: its name without its end, or more of it where that cannot be.

    Two files may share a name without its end, and neither may overwrite the other; ``...csv``
    without its end is the folder above.
    """
    stems = [path.stem.casefold() for path in chains]
    taken, found = {"", ".", "..", SUMMARY_FILE}, {}
    for path in chains:
        names = [path.stem] if stems.count(path.stem.casefold()) == 1 else []
        names += [path.name, *(f"{path.name}-{i}" for i in range(2, len(chains) + 3))]
        found[path] = next(name for name in names if name.casefold() not in taken)
        taken.add(found[path].casefold())
    return found


def format_summary(rows: list[dict[str, Any]]) -> str:
    """The summary of a folder's chains, one row each."""
    import polars as pl

    from arbiter.files.safe_text import format_safe_csv

    table = [{name: _read_cell(row, name) for name in _SUMMARY_COLUMNS} for row in rows]
    return format_safe_csv(pl.DataFrame(table, infer_schema_length=None))


def _read_cell(row: dict[str, Any], name: str) -> Any:
    return row.get("certificate", {}).get("nas") if name == "nas" else row.get(name)
