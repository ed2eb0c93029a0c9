"""Calibrate the standard errors of an operator's volatilities, and keep them with its weights.

Usage: PYTHONPATH=. python tools/operator_error.py [CHECKPOINT] [--chains N] [--laws N] [--seed N]

Chains are drawn from laws of the training universe that training has not seen; with this command
from others than those that set the limits of the domain. At their targets, quoted or not, the
operator's log-volatility is compared with the truth, in standard errors of the prior. The factors,
by how far the network would move the prior's smile, go into the checkpoint, whose weights stay as
they are.
"""

from __future__ import annotations

import argparse
import logging
from pathlib import Path
from typing import Any

import numpy as np
from benchmarks.operator_domain import Table, training_tables

from arbiter.conventions import Array
from arbiter.operators import checkpoint
from arbiter.operators.pretrained import Operator
from arbiter.operators.volatility_error import INFO_KEY, calibrate_errors
from arbiter_lab.training.batches import Batch
from arbiter_lab.training.law_pool import make_laws

TARGET = Path(__file__).resolve().parents[1] / "src" / "arbiter" / "data" / "operator.safetensors"
SEED = 20_261_119
UNIT = {"moved": [0.0], "log_factor": [0.0]}  # with it errors are the prior's own


Drawn = list[tuple[Table, Batch, int]]


def calibrate(operator: Operator, drawn: Drawn, laws: int, seed: int) -> dict[str, Any]:
    """What a checkpoint keeps of the errors of its operator, measured on drawn chains."""
    plain = Operator(dict(operator.weights), operator.config, {INFO_KEY: UNIT})
    found = calibrate_errors(*measure_misses(plain, drawn))
    return {**found, "chains": len(drawn), "laws": laws, "seed": seed}


def measure_misses(operator: Operator, drawn: Drawn) -> tuple[Array, Array]:
    """What the network would move at all targets' chains, and what the operator misses there.

    Misses are of log-volatility, in the operator's standard errors.
    """
    moves, ratios = [], []
    surfaces = operator.many([table.quotes() for table, _, _ in drawn])
    for surface, (_, batch, row) in zip(surfaces, drawn, strict=True):
        place = np.nonzero(batch.target[row].numpy())
        truth, k = (x[row].double().numpy()[place] for x in (batch.target_iv, batch.target_k))
        T = surface.maturities[place[0]]
        iv = surface.iv(k, T)
        some = np.isfinite(iv) & np.isfinite(truth) & (truth > 0.0)
        ratios.append(np.log(iv[some] / truth[some]) * iv[some] / surface.iv_error(k, T)[some])
        moves.append(np.full(ratios[-1].size, surface.result.traits["moved"]))
    return np.concatenate(moves), np.concatenate(ratios)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("checkpoint", type=Path, nargs="?", default=TARGET)
    parser.add_argument("--chains", type=int, default=2000)
    parser.add_argument("--laws", type=int, default=500)
    parser.add_argument("--seed", type=int, default=SEED)
    given = parser.parse_args()
    logging.getLogger("arbiter").setLevel(logging.ERROR)
    tensors, info = checkpoint.load(given.checkpoint)
    drawn = training_tables(make_laws(given.laws, given.seed), given.chains, given.seed)
    found = calibrate(Operator.load(given.checkpoint), drawn, given.laws, given.seed)
    path = checkpoint.save(given.checkpoint, tensors, {**info, INFO_KEY: found})
    print(f"{path}: {len(drawn):,} chains")
    for move, factor in zip(found["moved"], found["log_factor"], strict=True):
        print(f"  moved by {move:.2f} errors of the prior: these times {np.exp(factor):.2f}")


if __name__ == "__main__":
    main()
