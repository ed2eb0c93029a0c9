"""Simulates the volatilities of the bench ``rough-bergomi``, with their standard errors.

    python tools/rough_bergomi_truth.py [--markets FIRST LAST]

Writes one file a market beside the stored one, and joins them when all are there. One market takes
one to five minutes. The same seeds give the same numbers up to rounding of the linear algebra
library.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

import arbiter_lab.evaluation
from arbiter_lab.evaluation.outside_markets import (
    LAW_SEED,
    ROUGH_MARKET_COUNT,
    STORED_TRUTH,
    RoughTruth,
    draw_rough_market,
)
from arbiter_lab.evaluation.rough_bergomi import simulate
from arbiter_lab.evaluation.unseen_surfaces import MIN_LISTED_PRICE, T, list_strikes

TARGET_BP, MAX_PATHS = 0.28, 1 << 27
FOLDER = Path(next(iter(arbiter_lab.evaluation.__path__)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--markets", nargs=2, type=int, default=(0, ROUGH_MARKET_COUNT))
    for number in range(*parser.parse_args().markets):
        market = draw_rough_market(number)
        k = list_strikes(market.log_variance(T))
        found = simulate(market, T, k, MIN_LISTED_PRICE, TARGET_BP, MAX_PATHS, LAW_SEED + number)
        print(market, f"{found.paths:,} paths, {1e4 * np.nanmax(found.error):.3f} bp", flush=True)
        np.savez(part(number), iv=found.iv, error=found.error, paths=found.paths)
    if all(part(number).is_file() for number in range(ROUGH_MARKET_COUNT)):
        loaded = [np.load(part(number)) for number in range(ROUGH_MARKET_COUNT)]
        truth = RoughTruth(
            *(np.stack([one[name] for one in loaded]) for name in RoughTruth._fields)
        )
        np.savez_compressed(
            FOLDER / STORED_TRUTH, iv=truth.iv, error=truth.error, paths=truth.paths
        )
        for number in range(ROUGH_MARKET_COUNT):
            part(number).unlink()


def part(number: int) -> Path:
    return FOLDER / f"rough_bergomi-{number}.npz"


if __name__ == "__main__":
    main()
