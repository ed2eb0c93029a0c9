"""Turn a training checkpoint into the weights that ship with the package.

Usage: PYTHONPATH=. python tools/ship_operator.py CHECKPOINT [--note TEXT] [--out FILE]

Reads a checkpoint with an operator's weights (a run's ``weights.safetensors``), draws chains of the
training universe and of the Heston benchmark, and writes the weights with their limits
(docs/operator.md, "Domain") and their measured errors inside, and the card into the page.
"""

from __future__ import annotations

import argparse
import datetime
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
from benchmarks.heston_surfaces import oracle_rmse_bp
from benchmarks.operator_domain import Table, training_tables, traits_of
from torch import Tensor

import operator_card
from arbiter.operators import checkpoint, domain
from arbiter.operators.network import Config, Network
from arbiter.operators.pretrained import Operator
from arbiter.training.batches import Batch
from arbiter.training.laws import make_laws

ROOT = Path(__file__).resolve().parents[1]
TARGET = ROOT / "src" / "arbiter" / "data" / "operator.safetensors"
PREFIXES = ("", "average.", "network.")
UNIVERSE = (
    "Exact surfaces of lifted Heston models with one to twenty factors, with and without jumps, "
    "in states that their paths reach; a third of a pool are transports with smiles of any shape, "
    "three in ten mixtures with a rarer, wilder law; seven in ten of an exchange's calendars on "
    "uneven clocks (weekends, events); on lists of maturities that no exchange has mostly a "
    "model's own laws, half of them Heston's, and seven in ten where these are quoted sparsely and "
    "widely, as a third are; quoted on calendars of an index, on random and on "
    "benchmark maturities, up to 60 of them, with random strikes, spreads, noise and gaps "
    "(arbiter.training)"
)


def weights(tensors: dict[str, Tensor], network: Network) -> dict[str, Tensor]:
    """The network's tensors, under the first prefix that has them all."""
    wanted = network.state_dict()
    for prefix in PREFIXES:
        if all(f"{prefix}{name}" in tensors for name in wanted):
            return {name: tensors[f"{prefix}{name}"].float() for name in wanted}
    sys.exit(f"the checkpoint has none of {PREFIXES} before the {len(wanted)} names of its config")


def universe_rmse_bp(operator: Operator, drawn: list[tuple[Table, Batch, int]]) -> float:
    """Error against the truth at the targets, quoted or not, over the reference volatility.

    In basis points at a volatility of 20 %, pooled.
    """
    squares = []
    surfaces = operator.many([table.quotes() for table, _, _ in drawn])
    for surface, (_, batch, row) in zip(surfaces, drawn, strict=True):
        assert surface.result is not None
        place = np.nonzero(batch.target[row].numpy())
        truth, k = (x[row].double().numpy()[place] for x in (batch.target_iv, batch.target_k))
        off = surface.iv(k, surface.maturities[place[0]]) - truth
        squares.append((off / surface.result.reference[place[0]]) ** 2)
    pooled = np.concatenate(squares)
    return float(np.sqrt(np.nanmean(pooled)) * 2000.0)


def heston_rmse_bp(operator: Operator) -> dict[str, float]:
    """The Heston benchmark, base and hard."""
    return {
        "heston_base_bp": oracle_rmse_bp(operator, hard=False),
        "heston_hard_bp": oracle_rmse_bp(operator, hard=True),
    }


def revision() -> str:
    """The commit of the code that ships the weights."""
    command = ["git", "rev-parse", "--short=12", "HEAD"]
    return subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.strip()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("source", type=Path)
    parser.add_argument("--out", type=Path, default=TARGET)
    parser.add_argument("--laws", type=int, default=2000)
    parser.add_argument("--surfaces", type=int, default=8000)
    parser.add_argument("--seed", type=int, default=20261115)
    parser.add_argument("--revision", help="of the code that trained, if the file is wrong on it")
    parser.add_argument("--note", default="", help="what the card says of the training")
    given = parser.parse_args()

    tensors, before = checkpoint.load(given.source)
    config = Config(**before["config"])
    network = Network(config)
    kept = weights(tensors, network)
    network.load_state_dict(kept)
    operator = Operator(network, dict(before))

    print(f"{operator}: drawing {given.laws:,} laws")
    laws = make_laws(given.laws, given.seed)
    drawn = training_tables(laws, given.surfaces, given.seed)
    print(f"{len(drawn):,} chains")
    sample = traits_of(operator, [table.quotes() for table, _, _ in drawn])
    limits = domain.calibrate(sample)
    held = training_tables(laws, 400, given.seed + 1)
    metrics: dict[str, Any] = {
        **before.get("metrics", {}),
        **heston_rmse_bp(operator),
        "universe_bp_at_20_percent": universe_rmse_bp(operator, held),
        "lipschitz": operator.lipschitz,
    }
    info = {
        **before,
        "config": config.to_dict(),
        "metrics": metrics,
        "data": UNIVERSE,
        "domain": limits,
        "domain_calibration": {"chains": len(sample), "laws": len(laws), "seed": given.seed},
        "shipped": {"revision": revision(), "date": str(datetime.date.today())},
    }
    if given.revision:
        info["revision"] = given.revision
    if given.note:
        info["note"] = given.note
    path = checkpoint.save(given.out, kept, info)
    if path.resolve() == TARGET.resolve():
        operator_card.main()
    print(f"{path}: {path.stat().st_size:,} bytes")
    for name, value in metrics.items():
        print(f"  {name}: {value}")
    for name, ends in limits.items():
        print(f"  {name}: {ends[0]} to {ends[1]}")


if __name__ == "__main__":
    main()
