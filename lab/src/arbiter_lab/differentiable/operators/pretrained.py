"""From a network as it is trained to the operator that users call, and back."""

from __future__ import annotations

from typing import Any

import torch

from arbiter.operators.pretrained import Operator
from arbiter_lab.differentiable.operators.checkpoint import to_arrays
from arbiter_lab.differentiable.operators.network.network import Network


def make_operator(network: Network, info: dict[str, Any], source: str = "memory") -> Operator:
    """The operator of a network's weights."""
    return Operator(to_arrays(network.state_dict()), network.config, info, source)


def build_network(operator: Operator) -> Network:
    """The network of an operator, in float64 and without gradients."""
    with torch.random.fork_rng(devices=[]):  # first weights are drawn, and not needed
        network = Network(operator.config)
    weights = {name: torch.from_numpy(weight.copy()) for name, weight in operator.weights.items()}
    network.load_state_dict(weights)
    return network.double().eval().requires_grad_(False)
