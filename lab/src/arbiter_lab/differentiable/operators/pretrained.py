"""From a network as it is trained to the operator that users call."""

from __future__ import annotations

from typing import Any

from arbiter.operators.pretrained import Operator
from arbiter_lab.differentiable.operators.checkpoint import to_arrays
from arbiter_lab.differentiable.operators.law.network import LawNetwork


def make_operator(network: LawNetwork, info: dict[str, Any], source: str = "memory") -> Operator:
    """The operator of a network's weights."""
    return Operator(to_arrays(network.state_dict()), network.config, info, source)
