"""Data that ship with the package: a synthetic chain in the exchange's layout."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path


def example_chain_path() -> Path:
    """Where the example chain lies: Heston prices, not market data (docs/vix.md)."""
    return Path(str(files(__name__) / "spx_example.csv"))
