"""What the operator's laws lack to be surfaces, chain by chain, before the decoder.

The martingale defect ``(E X − 1)/(σ√T)`` in root mean square, the share of chains whose laws pass
the randomised martingale test, and how far the decoder moves volatilities: the median over quotes
of the difference between the proposal's and the surface's, and the median of that over chains.

    ARBITER_DATA=DIR python -m benchmarks.law_defects [--count 100] [--weights FILE] [--json FILE]
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch

from arbiter.operators.law.answer import answer
from arbiter.operators.law.network import LawNetwork
from arbiter.operators.law.proposal import (
    integrate_laws,
    martingale_defect,
    price_law,
    prior_law,
)
from arbiter.operators.pretrained import Operator
from arbiter.operators.quote_rows import QuoteRows, lay_quotes
from arbiter.pricing import black
from arbiter.quotes import Quotes
from arbiter_lab.differentiable.operators.law.proposal import Law
from arbiter_lab.evaluation.heston_surfaces import heston_surface
from arbiter_lab.evaluation.listed_chains import find_chain_files, read_listed
from arbiter_lab.evaluation.unseen_surfaces import make_unseen_surfaces
from arbiter_lab.training.law_trainer import discretised
from arbiter_lab.training.martingale_test import martingale_test


def volatilities(price: np.ndarray, rows: QuoteRows) -> np.ndarray:
    """``(N,)`` volatilities of prices at quotes."""
    T = rows.T.ravel()[rows.row]
    return black.implied_total_volatility(price, rows.k).volatility / np.sqrt(T)


def measure(network: LawNetwork, chains: Sequence[Quotes]) -> dict[str, float]:
    """The defects of the laws of chains."""
    squares, passed, apart = [], [], []
    for number, quotes in enumerate(chains):
        rows = lay_quotes([quotes.in_clock_time()])
        found = answer(network, rows)
        slices = integrate_laws(found.law.log_ratio, found.total)
        priced = price_law(found.law, slices, rows.row, rows.k)
        squares.append(martingale_defect(priced.log_mean, found.total).ravel() ** 2)
        law = Law(*(torch.from_numpy(part) for part in found.law))
        listed = torch.from_numpy(rows.listed)
        mass, moneyness = discretised(law, torch.from_numpy(found.total))
        passed.append(martingale_test(mass, moneyness, listed, seed=number).passed)
        ratio = np.log(found.slopes) - found.total[..., None]
        slices = integrate_laws(ratio, found.total)
        surface = price_law(prior_law(ratio, slices), slices, rows.row, rows.k)
        off = volatilities(priced.price, rows) - volatilities(surface.price, rows)
        apart.append(1e4 * np.nanmedian(np.abs(off)))
    return {
        "chains": len(chains),
        "martingale_rms": float(np.sqrt(np.concatenate(squares).mean())),
        "martingale_test_passed": float(np.mean(passed)),
        "decoder_distance_bp": float(np.median(apart)),
        "decoder_distance_worst_bp": float(np.max(apart)),
    }


def main() -> None:
    """Print a row for each bench."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--weights", type=Path)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    operator = Operator.pretrained() if given.weights is None else Operator.load(given.weights)
    network = LawNetwork(operator.weights, operator.config)
    unseen = make_unseen_surfaces(given.count)
    benches = {
        "Heston": [heston_surface(seed, False).quotes for seed in range(given.count)],
        "Heston, hard": [heston_surface(seed, True).quotes for seed in range(given.count)],
        "unseen": [unseen.build_case(i).quotes for i in range(given.count)],
    }
    if os.environ.get("ARBITER_DATA"):
        paths = find_chain_files(Path(os.environ["ARBITER_DATA"]) / "chains")
        listed = [path for path in paths if path.name.startswith("spx")]
        benches["listed chains"] = [read_listed(path).quotes() for path in listed]
    told = {name: measure(network, chains) for name, chains in benches.items()}
    for name, row in told.items():
        print(f"{name}: " + ", ".join(f"{key} {value:.3g}" for key, value in row.items()))
    if given.json is not None:
        given.json.write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
