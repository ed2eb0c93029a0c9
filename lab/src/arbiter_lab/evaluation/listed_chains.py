"""Evaluates methods on listed chains, where only the quotes are known.

The counting rules are those of :mod:`arbiter.scoring`: expiries of at least 2 days with at least 8
strikes, errors of volatility within two standard deviations of the forward. Expiries of the same
day are scored apart, by a second surface that is given all expiries.
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
from arbiter.maturity_scores import find_buckets
from arbiter.quotes import Quotes
from arbiter.scoring import (
    BASIS_POINT,
    Model,
    find_counted_quotes,
    is_inside_bid_ask,
    score,
)
from arbiter.vix.index_rule import vix
from arbiter_lab.evaluation.arbitrage_check import audit_model
from arbiter_lab.evaluation.methods import Method
from arbiter_lab.evaluation.model_extensions import read_domain, read_index
from arbiter_lab.evaluation.paired_differences import compare_pair, reference_pairs
from arbiter_lab.metrics.pooling import root_mean_square

CHAIN_SUFFIXES = (".csv", ".dat", ".parquet", ".txt")
NEAR_DEVIATIONS = 2.0  # deviations of the forward within which volatilities are compared
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
        chain = read_listed(path)
        # the operator was not trained on expiries of a day
        quotes = chain.quotes(shortest_days=MIN_COUNTED_DAYS, fewest_strikes=MIN_COUNTED_STRIKES)
        quotes = quotes.select(find_counted_quotes(quotes))
        if not len(quotes):
            raise ValueError("no expiry counts: none has 2 days and 8 strikes with a spread")
    except (ValueError, OSError) as error:
        return [{"chain": path.name, "error": str(error)}]
    index, whole = _compute_vix(chain), chain.quotes()
    return [
        {"chain": path.name, "method": method.name}
        | _evaluate_method(method, quotes, index)
        | {"same_day": evaluate_same_day(method, whole)}
        for method in methods
    ]


def read_listed(path: Path) -> Chain:
    """Return the chain of a file; without the time of its quotes, that of its day's close."""
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
    result = getattr(model, "result", None)
    return {
        **scored.to_dict(),
        "median_half_spreads": _median_half_spreads(model, quotes),
        "nas": verdict.nas,
        "vix": index,
        "vix_surface": surface,
        "vix_gap": None if index is None or surface is None else surface - index,
        "steps": getattr(result, "iterations", None),
        "inside_domain": read_domain(model),
        "seconds": seconds,
    }


def _median_half_spreads(model: Model, quotes: Quotes) -> float:
    """Median over all quotes of the absolute model price minus mid, in half-spreads."""
    off = np.abs(model.otm(quotes.k, quotes.T) - quotes.mid) / quotes.half_spread
    return float(np.median(off))


def evaluate_same_day(method: Method, quotes: Quotes) -> Row | None:
    """Score the expiries of the same day; None where there are none, or the quotes are refused."""
    some = quotes.select((find_buckets(quotes) == 0)[quotes.expiry] & (quotes.ask > quotes.bid))
    if not len(some):
        return None
    try:
        model = method.solve([quotes])[0]
    except ValueError:
        return None
    near = np.abs(some.k) <= NEAR_DEVIATIONS * some.iv_mid * np.sqrt(some.T)
    off = (model.iv(some.k, some.T) - some.iv_mid)[near] / BASIS_POINT
    return {
        "quotes": len(some),
        "inside_bid_ask": float(np.mean(is_inside_bid_ask(model.otm(some.k, some.T), some))),
        "iv_rmse_bp": root_mean_square(off) if np.isfinite(off).all() and off.size else None,
        "median_half_spreads": _median_half_spreads(model, some),
    }


def summarise_chains(rows: Sequence[Row]) -> Row:
    """Return means over chains by method, and paired differences of the errors in basis points.

    Args:
        rows: Of :func:`evaluate_chains`; chains that a method has no error on count for none, and
            so do same-day expiries.
    """
    names = list(dict.fromkeys(row["method"] for row in rows if "method" in row))
    errors: dict[str, dict[str, float]] = {name: {} for name in names}
    for row in rows:
        if row.get("iv_rmse_bp") is not None:
            errors[row["method"]][row["chain"]] = row["iv_rmse_bp"]
    chains = dict.fromkeys(row["chain"] for row in rows)
    known = [chain for chain in chains if names and all(chain in errors[n] for n in names)]
    if not known:
        return {"methods": {}, "paired": []}
    each = {name: [errors[name][chain] for chain in known] for name in names}
    own = {
        name: [r for r in rows if r.get("method") == name and r["chain"] in known] for name in names
    }
    some = [{r["chain"] for r in part if _has_same_day(r)} for part in own.values()]
    days = set.intersection(*some)
    return {
        "methods": {name: _mean_scores(part, days) for name, part in own.items()},
        "paired": [
            {"method": name, "against": other} | compare_pair(each[name], each[other], known)
            for name, other in reference_pairs(names)
        ],
    }


def _has_same_day(row: Row) -> bool:
    return row["same_day"] is not None and row["same_day"]["iv_rmse_bp"] is not None


def _mean_scores(rows: Sequence[Row], same_day: set[str]) -> Row:
    days = [row["same_day"] for row in rows if row["chain"] in same_day]
    means = ("iv_rmse_bp", "inside_bid_ask", "median_half_spreads")
    judged = [row["inside_domain"] for row in rows if row["inside_domain"] is not None]
    return {
        "chains": len(rows),
        **{f"mean_{name}": float(np.mean([row[name] for row in rows])) for name in means},
        "alarms": judged.count(False) if judged else None,
        "same_day": {
            "chains": len(days),
            **{
                f"mean_{name}": float(np.mean([day[name] for day in days])) if days else None
                for name in means
            },
        },
    }
