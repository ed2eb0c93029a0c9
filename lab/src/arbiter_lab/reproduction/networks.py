"""Facts of networks that are read from checkpoints: card, Spec-Guard, martingale test.

A checkpoint does not contain the journal of its training. Spec-Guard is therefore measured on the
days out of sample, and the martingale test is run again on held-out laws.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from arbiter_lab.differentiable.operators import checkpoint
from arbiter_lab.differentiable.operators.network.config import Config
from arbiter_lab.differentiable.operators.network.green_scan import GreenScan
from arbiter_lab.differentiable.operators.network.network import Network
from arbiter_lab.differentiable.operators.quote_tensors import pad_chains
from arbiter_lab.evaluation.first_design import operator_weights
from arbiter_lab.metrics.stability import MAX_RHO_DT
from arbiter_lab.reproduction.models import ModelEntry
from arbiter_lab.reproduction.scored_days import Days
from arbiter_lab.reproduction.stages import Facts
from arbiter_lab.training.held_out import HeldOut


def describe_network(
    entry: ModelEntry, days: Days, rows: NDArray[np.int64], exam: HeldOut
) -> Facts:
    """Return facts of one network: metadata of its file, martingale test, Spec-Guard.

    Args:
        entry: A model with weights, or the operator.
        days: Days of the timeline.
        rows: Numbers of the days out of sample.
        exam: Held-out batches, for the martingale test.
    """
    path = entry.weights or operator_weights()
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
    """Return Spec-Guard's hits, their total distance and the largest ρ(A)Δ proposed, over days."""
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
