"""Green sums and states of a network's scans that come nearest to their proved bounds.

:func:`arbiter_lab.stability.green_kernel.measure_scan_bounds` of every scan, those of the geometry
stream too, on the paths that chains of quotes really give them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from copy import deepcopy
from typing import NamedTuple

import torch
from torch import nn

from arbiter_lab.differentiable.operators.law.green_scan import Path
from arbiter_lab.differentiable.operators.network.green_scan import GreenScan
from arbiter_lab.differentiable.operators.network.network import Network
from arbiter_lab.differentiable.operators.prior.reference_volatility import Scaled
from arbiter_lab.stability.green_kernel import GreenBound, measure_scan_bounds


class Nearest(NamedTuple):
    """The measured values that come nearest to their bounds, each with its own.

    Attributes:
        green_sum: ``Σ_s ‖G(T_ℓ, T_s)‖`` of a scan at a maturity.
        green_bound: Its proved bound.
        state_norm: ``‖h_ℓ‖`` of a scan at a maturity, perhaps of another one.
        state_bound: Its proved bound.
    """

    green_sum: float
    green_bound: float
    state_norm: float
    state_bound: float

    @property
    def holds(self) -> bool:
        """Whether both are within their bounds, and so all others are too."""
        return GreenBound(*self).holds


@contextmanager
def watched(module: nn.Module) -> Iterator[dict[GreenScan, list[Path]]]:
    """Record the paths of every scan of a module within a ``with`` statement."""
    scans = [part for part in module.modules() if isinstance(part, GreenScan)]
    walks: dict[GreenScan, list[Path]] = {scan: [] for scan in scans}
    for scan in scans:
        scan.walks = walks[scan]
    try:
        yield walks
    finally:
        for scan in scans:
            scan.walks = None


@torch.no_grad()
def each(network: Network, chain: Scaled) -> list[GreenBound]:
    """Return the bounds of every scan on some chains, in double precision on the CPU."""
    with watched(network) as walks:
        network.decode(chain)
    found = []
    for scan, paths in walks.items():
        exact = deepcopy(scan).cpu().double()
        for path in paths:
            parts = (part.cpu() for part in path)
            x, gap, context, seen = (p if p.dtype == torch.bool else p.double() for p in parts)
            found.append(measure_scan_bounds(exact, Path(x, gap, context, seen)))
    return found


def nearest(network: Network, chains: Iterable[Scaled]) -> Nearest:
    """Return the Green sum and the state nearest to their bounds, over all scans and chains.

    Args:
        network: Trained or not.
        chains: Batches, each small: a chain of L maturities takes L² matrices.
    """
    found = [bound for chain in chains for bound in each(network, chain)]
    if not found:
        raise ValueError("chains is empty: give a chain to measure on")
    tiny = torch.finfo(torch.float64).tiny  # a map that is zero has the bound zero, and meets it
    green = max(found, key=lambda one: one.total / max(one.bound, tiny))
    state = max(found, key=lambda one: one.state / max(one.state_bound, tiny))
    return Nearest(green.total, green.bound, state.state, state.state_bound)
