"""Green sums and states of an operator's scans, beside the bounds that are proved of them.

Usage: PYTHONPATH=. python tools/scan_bounds.py [WEIGHTS] [--chains 50] [--seed 5]

Of every scan on the example chain and on chains of the training universe; told are those nearest
to their bounds. The first design's operator if no weights are named. Ends with status 1 if a bound
is broken.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from benchmarks.operator_domain import training_tables

from arbiter.examples import example_chain
from arbiter_lab.differentiable.operators.prior.reference_volatility import scaled
from arbiter_lab.differentiable.operators.quote_tensors import pad_chains
from arbiter_lab.evaluation.first_design import FirstDesign
from arbiter_lab.stability.scan_bounds import nearest
from arbiter_lab.training.law_pool import make_laws

LAWS = 200


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("weights", type=Path, nargs="?")
    parser.add_argument("--chains", type=int, default=50)
    parser.add_argument("--seed", type=int, default=5)
    given = parser.parse_args()
    operator = FirstDesign.load(given.weights)
    drawn = training_tables(make_laws(LAWS, given.seed), given.chains, given.seed)
    sets = {
        "example chain": [example_chain().quotes()],
        f"{len(drawn)} chains of the universe": [table.quotes() for table, _, _ in drawn],
    }
    print(f"{operator.model}: {operator.source}")
    held = True
    for name, chains in sets.items():
        found = nearest(operator.network, (scaled(pad_chains([quotes])) for quotes in chains))
        held = held and found.holds
        told = ", ".join(f"{field} {value:.4g}" for field, value in found._asdict().items())
        print(f"{name}: {told}")
    sys.exit(0 if held else "a bound is broken")


if __name__ == "__main__":
    main()
