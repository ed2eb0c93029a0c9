"""Evaluates methods on listed chains, where only the quotes are known.

The counting rules are those of :mod:`arbiter.scoring`: expiries of at least 2 days with at least 8
strikes, errors of volatility within two standard deviations of the forward.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from arbiter.chains import Chain, ChainError, read_chain
from arbiter.chains.chain import MIN_COUNTED_DAYS, MIN_COUNTED_STRIKES
from arbiter.chains.source import load_source
from arbiter.quotes import Quotes
from arbiter.scoring import Model, find_counted_quotes, score
from arbiter.vix.index_rule import vix
from arbiter_lab.evaluation.arbitrage_check import audit_model
from arbiter_lab.evaluation.methods import Method
from arbiter_lab.evaluation.model_extensions import read_index

CHAIN_SUFFIXES = (".csv", ".dat", ".parquet", ".txt")
Row = dict[str, Any]


def find_chain_files(folder: Path) -> list[Path]:
    """Return the files of a folder with the suffix of a chain, sorted.

    Raises:
        ValueError: If there is no such folder, or no chain in it.
    """
    if not folder.is_dir():
        raise ValueError(f"{folder} is not a folder: give the one with the chains")
    found = sorted(
        p for p in folder.iterdir() if p.suffix.lower() in CHAIN_SUFFIXES and p.is_file()
    )
    if not found:
        raise ValueError(f"{folder} has no chains in it: files end in {', '.join(CHAIN_SUFFIXES)}")
    return found


def evaluate_chains(
    paths: Sequence[Path],
    methods: Sequence[Method],
    tell: Callable[[str, int], object] | None = None,
) -> list[Row]:
    """Return one row per chain and method; one row with an error for an unreadable chain.

    Args:
        paths: Files of the chains.
        methods: The methods to compare.
        tell: Called with the name of each file and the number of chains done.
    """
    rows: list[Row] = []
    for number, path in enumerate(paths):
        rows += _evaluate_chain(path, methods)
        if tell is not None:
            tell(path.name, number + 1)
    return rows


def _evaluate_chain(path: Path, methods: Sequence[Method]) -> list[Row]:
    try:
        chain = _read(path)
        # the operator was not trained on expiries of a day
        quotes = chain.quotes(shortest_days=MIN_COUNTED_DAYS, fewest_strikes=MIN_COUNTED_STRIKES)
        quotes = quotes.select(find_counted_quotes(quotes))
        if not len(quotes):
            raise ValueError("no expiry counts: none has 2 days and 8 strikes with a spread")
    except (ValueError, OSError) as error:
        return [{"chain": path.name, "error": str(error)}]
    index = _compute_vix(chain)
    return [
        {"chain": path.name, "method": method.name} | _evaluate_method(method, quotes, index)
        for method in methods
    ]


def _read(path: Path) -> Chain:
    loaded = load_source(path)
    try:
        return read_chain(loaded)
    except ChainError as error:
        # a file without the time of its quotes: the remedy proposes the close of its day
        if error.remedy is None or error.remedy.argument != "as_of":
            raise
        return read_chain(loaded, as_of=error.remedy.value)


def _compute_vix(chain: Chain) -> float | None:
    try:
        return float(vix(chain))
    except ValueError:  # no pair of expiries around thirty days, say
        return None


def _evaluate_method(method: Method, quotes: Quotes, index: float | None) -> Row:
    began = time.perf_counter()
    try:
        model = method.solve([quotes])[0]
    except ValueError as error:
        return {"error": str(error)}
    seconds = time.perf_counter() - began
    scored, verdict = score(model, quotes), audit_model(model, quotes, full=True)
    surface = read_index(model)
    result, domain = getattr(model, "result", None), getattr(model, "domain", None)
    return {
        **scored.to_dict(),
        "median_half_spreads": _median_half_spreads(model, quotes),
        "nas": verdict.nas,
        "vix": index,
        "vix_surface": surface,
        "vix_gap": None if index is None or surface is None else surface - index,
        "steps": getattr(result, "iterations", None),
        "inside_domain": None if domain is None else bool(domain.inside),
        "seconds": seconds,
    }


def _median_half_spreads(model: Model, quotes: Quotes) -> float:
    """Median over all quotes of the absolute model price minus mid, in half-spreads."""
    off = np.abs(model.otm(quotes.k, quotes.T) - quotes.mid) / quotes.half_spread
    return float(np.median(off))
