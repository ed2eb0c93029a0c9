"""Turn a training checkpoint into the weights that ship with the package.

Usage: ship_operator.py CHECKPOINT [--out FILE] [--laws N] [--surfaces N] [--seed N] [--note TEXT]

Reads a checkpoint with an operator's weights (averaged ones, named ``ema.…``, before others), draws
chains of the training universe and of the Heston benchmark, and writes the weights with their
limits (docs/operator.md, "Domain") and their measured errors inside.
"""

from __future__ import annotations

import argparse
import datetime
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from arbiter.operators import checkpoint, domain
from arbiter.operators.network import Config, Network
from arbiter.operators.pretrained import Operator
from arbiter.quotes import Quotes
from arbiter.training.batches import Batch, draw_batch, layouts
from arbiter.training.laws import Laws, make_laws

ROOT = Path(__file__).parents[1]
TARGET = ROOT / "src" / "arbiter" / "data" / "operator.safetensors"
MIX = (0.15, 0.25, 0.3, 0.2, 0.1)  # of the layouts
TAIL = 5e-4  # share of training chains beyond each limit
PREFIXES = ("ema.", "average.", "network.", "model.", "")
UNIVERSE = (
    "Exact surfaces of lifted Heston models with one to twenty factors, with and without jumps, "
    "in states that their paths reach; quoted on calendars of an index, on random and on "
    "benchmark maturities, with random strikes, spreads, noise and gaps (arbiter.training)"
)


def weights(tensors: dict[str, Tensor], network: Network) -> dict[str, Tensor]:
    """The network's tensors, under the first prefix that has them all."""
    wanted = network.state_dict()
    for prefix in PREFIXES:
        if all(f"{prefix}{name}" in tensors for name in wanted):
            return {name: tensors[f"{prefix}{name}"].float() for name in wanted}
    sys.exit(f"the checkpoint has none of {PREFIXES} before the {len(wanted)} names of its config")


def chains(laws: Laws, count: int, seed: int) -> list[tuple[Quotes, Batch, int]]:
    """Chains of the training universe, as a user would hold them, and where their truth is."""
    generator = torch.Generator().manual_seed(seed)
    found: list[tuple[Quotes, Batch, int]] = []
    for (layout, _), share in zip(layouts(), MIX, strict=True):
        size = max(1, round(share * count))
        batch = draw_batch(laws, layout, generator, size)
        found += [(quotes_of(batch, row), batch, row) for row in range(size)]
    return found


def quotes_of(batch: Batch, row: int) -> Quotes:
    """One surface of a batch as quotes."""
    quoted = batch.quoted[row].numpy()
    T = np.broadcast_to(batch.T[row].double().numpy()[:, None], quoted.shape)[quoted]
    k, iv, half = (x[row].double().numpy()[quoted] for x in (batch.k, batch.iv, batch.half))
    return Quotes.from_frame({"T": T, "k": k, "iv_bid": iv - half, "iv_ask": iv + half})


def traits_of(operator: Operator, found: list[Quotes]) -> list[dict[str, float]]:
    """Traits of every chain."""
    result = []
    for surface in operator.many(found):
        assert surface.domain is not None
        result.append(dict(surface.domain.traits))
    return result


def universe_rmse_bp(operator: Operator, drawn: list[tuple[Quotes, Batch, int]]) -> float:
    """Error against the truth at the targets, quoted or not, over the reference volatility.

    In basis points at a volatility of 20 %, pooled.
    """
    squares = []
    for surface, (_, batch, row) in zip(
        operator.many([quotes for quotes, _, _ in drawn]), drawn, strict=True
    ):
        assert surface.result is not None
        target = batch.target[row].numpy()
        place = np.nonzero(target)
        truth = batch.target_iv[row].double().numpy()[place]
        k = batch.target_k[row].double().numpy()[place]
        iv = surface.iv(k, surface.maturities[place[0]])
        off = (iv - truth) / surface.result.reference[place[0]]
        squares.append(off[np.isfinite(off)] ** 2)
    return float(np.sqrt(np.concatenate(squares).mean()) * 2000.0)


def heston_rmse_bp(operator: Operator) -> dict[str, float]:
    """The Heston benchmark, base and hard."""
    sys.path.insert(0, str(ROOT))
    from benchmarks.heston_surfaces import oracle_rmse_bp

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
    drawn = chains(laws, given.surfaces, given.seed)
    print(f"{len(drawn):,} chains")
    sample = traits_of(operator, [quotes for quotes, _, _ in drawn])
    limits = domain.calibrate(sample, TAIL)
    held = chains(laws, 400, given.seed + 1)
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
        "domain_calibration": {
            "chains": len(sample), "laws": len(laws), "seed": given.seed, "tail": TAIL,
        },
        "shipped": {"revision": revision(), "date": str(datetime.date.today())},
    }  # fmt: skip
    if given.note:
        info["training"] = given.note
    path = checkpoint.save(given.out, kept, info)
    print(f"{path}: {path.stat().st_size:,} bytes")
    for name, value in metrics.items():
        print(f"  {name}: {value}")
    for name, (low, high) in limits.items():
        print(f"  {name}: {low} to {high}")


if __name__ == "__main__":
    main()
