"""What is known of networks that come as checkpoints: card, guard, martingale test.

The journal of the training that made a checkpoint does not travel with it. What the guard does is
therefore watched where the network is used, on the days out of sample; the martingale test is made
anew on held-out laws.
"""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from arbiter.operators import checkpoint
from arbiter.operators.network.green_scan import GreenScan
from arbiter.operators.network.network import Config, Network
from arbiter.operators.pretrained import DEFAULT_WEIGHTS_NAME
from arbiter.operators.quote_tensors import pad_chains
from arbiter_lab.reproduction.models import ModelEntry
from arbiter_lab.reproduction.scored_days import Days
from arbiter_lab.reproduction.stages import Facts
from arbiter_lab.training.held_out import HeldOut

MAX_RHO_DT = 1.0
"""What ρ(A)Δ may be."""


def find_shipped_weights() -> Path:
    """The file of the shipped operator."""
    return Path(str(files("arbiter.data"))) / f"{DEFAULT_WEIGHTS_NAME}.safetensors"


def describe_network(
    entry: ModelEntry, days: Days, rows: NDArray[np.int64], exam: HeldOut
) -> Facts:
    """Facts of one network: what its file says, and what is seen of it here.

    Args:
        entry: It has weights, or is the shipped operator.
        days: Of the timeline.
        rows: Days out of sample.
        exam: Held-out batches, for the martingale test.
    """
    path = entry.weights or find_shipped_weights()
    tensors, about = checkpoint.load(path)
    found: dict[str, Any] = {
        "parameters": sum(tensor.numel() for tensor in tensors.values()),
        "seed": about.get("seed"),
        "steps": about.get("step"),
        "ended": about.get("ended"),
        "metrics": about.get("metrics", {}),
    }
    if entry.kind == "baseline":
        return found
    config = Config.from_dict(about["config"])
    network = checkpoint.restore_network(path, tensors, lambda: Network(config))
    network = network.eval().requires_grad_(False)
    passed = bool(exam.run_martingale_test(network, seed=0))
    guard = measure_spec_guard(network.double(), days, rows)
    if config.guard:  # steps are cut before they are taken
        guard["max_rho_dt"] = min(guard["max_rho_dt_proposed"], MAX_RHO_DT)
    else:
        guard["max_rho_dt"] = guard["max_rho_dt_proposed"]
    return found | {"martingale_passed": passed, **guard}


@torch.no_grad()
def measure_spec_guard(network: Network, days: Days, rows: NDArray[np.int64]) -> Facts:
    """What Spec-Guard does on some days: hits, their distance, and the largest ρ(A)Δ proposed."""
    scans = [module for module in network.modules() if isinstance(module, GreenScan)]
    dtype = next(network.parameters()).dtype
    hits, distance, largest = 0, 0.0, 0.0
    for day in rows.tolist():
        network(pad_chains([days.quotes[day]], dtype))
        last = [scan.last for scan in scans if scan.last is not None]
        hits += sum(int(one.hits) for one in last)
        distance += sum(float(one.distance) for one in last)
        largest = max([largest, *(float(one.largest) for one in last)])
    return {
        "spec_guard_hits": hits,
        "projection_distance": distance,
        "max_rho_dt_proposed": largest,
    }
