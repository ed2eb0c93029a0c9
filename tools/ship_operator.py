"""Turn a training checkpoint into the weights that ship with the package.

Usage: PYTHONPATH=. python tools/ship_operator.py CHECKPOINT [--note TEXT] [--out FILE]

Reads a checkpoint with an operator's weights (a run's ``weights.safetensors``), draws chains of the
training universe and of the benchmarks, and writes the weights with their limits
(docs/operator.md, "Domain"), the calibration of their standard errors and their measured errors
inside, and the card into the page. Listed chains are those of the folder that ARBITER_DATA names,
if it does. With --keep-limits no universe is drawn: what a domain is judged by, standard errors,
and the error there, stay as they are in the checkpoint.
"""

from __future__ import annotations

import argparse
import datetime
import os
import subprocess
from pathlib import Path

import numpy as np
from benchmarks.operator_domain import Table, training_tables, traits_of

import operator_card
import operator_error
from arbiter.operators import checkpoint, domain
from arbiter.operators.law.config import LawConfig
from arbiter.operators.pretrained import Operator
from arbiter.operators.volatility_error import INFO_KEY
from arbiter_lab.evaluation.heston_surfaces import oracle_rmse_bp
from arbiter_lab.evaluation.listed_chains import evaluate_chains, find_chain_files
from arbiter_lab.evaluation.methods import select_methods
from arbiter_lab.evaluation.stored_surfaces import load_unseen_surfaces
from arbiter_lab.evaluation.unseen_surfaces import SURFACE_COUNT
from arbiter_lab.training.batches import Batch
from arbiter_lab.training.law_pool import make_laws

ROOT = Path(__file__).resolve().parents[1]
TARGET = ROOT / "src" / "arbiter" / "data" / "operator.safetensors"
UNIVERSE = (
    "Exact surfaces of lifted Heston models with one to twenty factors, with and without jumps, "
    "in states that their paths reach; a third of a pool are transports with smiles of any shape, "
    "three in ten mixtures with a rarer, wilder law; seven in ten of an exchange's calendars on "
    "uneven clocks (weekends, events); on lists of maturities that no exchange has mostly a "
    "model's own laws, half of them Heston's, and seven in ten where these are quoted sparsely and "
    "widely, as a third are; quoted on calendars of an index, on random and on "
    "benchmark maturities, up to 60 of them, with random strikes, spreads, noise and gaps "
    "(arbiter_lab.training)"
)

LIMITS = (
    "The surface cannot be arbitraged; how well it fits is a matter of the quotes. Beyond the last "
    "quote it is extrapolation, by what the training universe makes likely. No stale quotes, wrong "
    "forwards or cash dividends were simulated; quotes beyond the limits of the domain are "
    "reported, and some faults are found only partly (docs/operator.md). The Lipschitz constant is "
    "that of the trained maps for a given prior, whose covariance was estimated on surfaces of "
    "the training universe."
)


def universe_rmse_bp(operator: Operator, drawn: list[tuple[Table, Batch, int]]) -> float:
    """Error against the truth at the targets, quoted or not, over the reference volatility.

    In basis points at a volatility of 20 %, pooled.
    """
    squares = []
    surfaces = operator.many([table.quotes() for table, _, _ in drawn])
    for surface, (_, batch, row) in zip(surfaces, drawn, strict=True):
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


def unseen_metrics(operator: Operator, count: int, cache: Path | None) -> dict[str, float]:
    """The unseen surfaces, the benchmark's own and as many that come after these."""
    found = {}
    for name, first in (("unseen", 0), ("later_unseen", SURFACE_COUNT)):
        cases = load_unseen_surfaces(count, cache, first=first)
        surfaces = operator.many([case.quotes for case in cases])
        parts = []
        for case, surface in zip(cases, surfaces, strict=True):
            off = surface.iv(case.k, case.T[:, None]) - case.iv
            listed = np.isfinite(case.iv)
            parts.append((off[listed] ** 2, case.quoted[listed]))
        squares, quoted = (np.concatenate(part) for part in zip(*parts, strict=True))
        found[f"{name}_bp"] = float(np.sqrt(squares.mean())) * 1e4
        found[f"{name}_unquoted_bp"] = float(np.sqrt(squares[~quoted].mean())) * 1e4
    return found


def listed_errors(operator: Operator, folder: Path) -> dict[str, list[float]]:
    """Error within two deviations in basis points and median miss in half-spreads, by chain."""
    paths = [path for path in find_chain_files(folder) if path.name.startswith("spx")]
    rows = evaluate_chains(paths, select_methods(["operator"], operator))
    return {
        row["chain"]: [row["iv_rmse_bp"], row["median_half_spreads"]]
        for row in rows
        if "error" not in row
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
    parser.add_argument("--keep-limits", action="store_true", help="of the domain")
    parser.add_argument(
        "--unseen", type=int, default=SURFACE_COUNT, help="surfaces, and later ones"
    )
    parser.add_argument("--cache", type=Path, help="folder of the unseen surfaces")
    given = parser.parse_args()

    tensors, before = checkpoint.load(given.source)
    if given.keep_limits and "domain" not in before:
        parser.error(f"--keep-limits: {given.source} has no limits of a domain")
    before.pop("listed", None)  # whatever chains were measured before
    config = LawConfig.from_dict(before["config"])
    info = {
        **before,
        "config": config.to_dict(),
        "data": UNIVERSE,
        "limits": LIMITS,
        "shipped": {"revision": revision(), "date": str(datetime.date.today())},
    }
    metrics = dict(before.get("metrics", {}))
    if not given.keep_limits:
        whole = Operator(tensors, config, {k: v for k, v in before.items() if k != "domain"})
        print(f"{whole}: drawing {given.laws:,} laws")
        laws = make_laws(given.laws, given.seed)
        drawn = training_tables(laws, given.surfaces, given.seed)
        print(f"{len(drawn):,} chains")
        sample = traits_of(whole, [table.quotes() for table, _, _ in drawn])
        calibrated = {"chains": len(sample), "laws": len(laws), "seed": given.seed}
        info |= {"domain": domain.calibrate_limits(sample), "domain_calibration": calibrated}
        info |= {INFO_KEY: operator_error.calibrate(whole, drawn, given.laws, given.seed)}
        held = training_tables(laws, 400, given.seed + 1)
        universe = universe_rmse_bp(Operator(tensors, config, info), held)
        metrics["universe_bp_at_20_percent"] = universe
    # errors are those of what ships: with limits, beyond which changes are shrunk
    operator = Operator(tensors, config, info)
    metrics |= heston_rmse_bp(operator)
    metrics |= unseen_metrics(operator, given.unseen, given.cache)
    info["metrics"] = metrics | {"lipschitz": operator.lipschitz}
    if os.environ.get("ARBITER_DATA"):
        info["listed"] = listed_errors(operator, Path(os.environ["ARBITER_DATA"]) / "chains")
    if given.revision:
        info["revision"] = given.revision
    if given.note:
        info["note"] = given.note
    path = checkpoint.save(given.out, tensors, info)
    if path.resolve() == TARGET.resolve():
        operator_card.main()
    print(f"{path}: {path.stat().st_size:,} bytes")
    for name, value in info["metrics"].items():
        print(f"  {name}: {value}")
    for name, ends in info["domain"].items():
        print(f"  {name}: {ends[0]} to {ends[1]}")


if __name__ == "__main__":
    main()
