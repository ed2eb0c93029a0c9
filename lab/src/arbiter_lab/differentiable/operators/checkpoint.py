"""Checkpoints of torch modules: conversions around :mod:`arbiter.operators.checkpoint`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from os import PathLike
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from arbiter.operators import checkpoint

Built = TypeVar("Built", bound=nn.Module)


def to_arrays(tensors: Mapping[str, Tensor]) -> dict[str, NDArray[Any]]:
    """Copies of tensors of any device."""
    return {name: tensor.detach().cpu().numpy().copy() for name, tensor in tensors.items()}


def save(path: str | PathLike[str], tensors: Mapping[str, Tensor], info: Mapping[str, Any]) -> Path:
    """Write tensors and their description, as :func:`arbiter.operators.checkpoint.save`."""
    return checkpoint.save(path, to_arrays(tensors), info)


def load(
    path: str | PathLike[str], like: Mapping[str, Tensor] | None = None
) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Read tensors and their description, as :func:`arbiter.operators.checkpoint.load`."""
    arrays, info = checkpoint.load(path, None if like is None else _describe(like))
    return {name: torch.from_numpy(array.copy()) for name, array in arrays.items()}, info


def restore_network(
    path: str | PathLike[str], tensors: Mapping[str, Tensor], build: Callable[[], Built]
) -> Built:
    """A network with the weights that :func:`load` found in a file.

    Names, shapes and types are compared with a network that has no memory: what a file says of
    itself takes no more room than its tensors do. PyTorch's random numbers stay where they are.

    Raises:
        CheckpointError: If the weights are not those of such a network.
    """
    with torch.random.fork_rng(devices=[]):  # first weights are drawn, and not needed
        with torch.device("meta"):
            like = build().state_dict()
        checkpoint.require_same_tensors(_describe(tensors), _describe(like), Path(path))
        network = build()
    network.load_state_dict(dict(tensors))
    return network


def model_hash(network: nn.Module) -> str:
    """Names a network by its weights."""
    return checkpoint.model_hash(to_arrays(network.state_dict()))


def _describe(tensors: Mapping[str, Tensor]) -> dict[str, NDArray[Any]]:
    """Arrays of the same names, shapes and types, which take no memory."""
    return {
        name: np.broadcast_to(torch.empty((), dtype=tensor.dtype).numpy(), tuple(tensor.shape))
        for name, tensor in tensors.items()
    }
