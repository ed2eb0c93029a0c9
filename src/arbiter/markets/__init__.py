"""Synthetic option markets of the lifted Heston model: quotes, paths, and exact prices.

Names are resolved on first use, so that importing the package imports no model.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from arbiter.markets.dataset import Dataset
    from arbiter.markets.snapshots import Snapshot, Venue, observe
    from arbiter.markets.timelines import timeline
    from arbiter.markets.universes import universe
    from arbiter.models.lifted_heston import LiftedHeston
    from arbiter.models.parameters import Jumps, Parameters, draw, preset

__all__ = [
    "Dataset",
    "Jumps",
    "LiftedHeston",
    "Parameters",
    "Snapshot",
    "Venue",
    "draw",
    "observe",
    "preset",
    "timeline",
    "universe",
]

_HOME = {
    "Dataset": "arbiter.markets.dataset",
    "Snapshot": "arbiter.markets.snapshots",
    "Venue": "arbiter.markets.snapshots",
    "observe": "arbiter.markets.snapshots",
    "timeline": "arbiter.markets.timelines",
    "universe": "arbiter.markets.universes",
    "Jumps": "arbiter.models.parameters",
    "LiftedHeston": "arbiter.models.lifted_heston",
    "Parameters": "arbiter.models.parameters",
    "draw": "arbiter.models.parameters",
    "preset": "arbiter.models.parameters",
}


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(import_module(_HOME[name]), name)
    raise AttributeError(f"module 'arbiter.markets' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
