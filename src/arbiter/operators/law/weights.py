"""The weights of a network, by name, and what a configuration asks of them."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from arbiter.operators.law.config import DIRECTIONS, LawConfig
from arbiter.operators.slope_head import KNOTS

Weights = Mapping[str, NDArray[Any]]

SLICE_NUMBERS = 4  # that the geometry knows of a slice beside its heads and its prior


def freeze_weights(weights: Weights) -> Weights:
    """Read-only copies in single precision, as weights are stored."""
    found = {name: np.array(weight, dtype=np.float32) for name, weight in weights.items()}
    for weight in found.values():
        weight.setflags(write=False)
    return MappingProxyType(found)


def count_parameters(weights: Weights) -> int:
    """How many numbers were trained."""
    return sum(weight.size for weight in weights.values())


def select_weights(weights: Weights, prefix: str) -> dict[str, NDArray[Any]]:
    """Those of one part, by their names in it."""
    start = f"{prefix}."
    return {name.removeprefix(start): w for name, w in weights.items() if name.startswith(start)}


def describe_weights(config: LawConfig) -> dict[str, NDArray[np.float32]]:
    """Arrays with the names, shapes and type of a network's weights, which take no memory."""
    c, m, told = config.context, config.state, config.prior_places[0]
    shapes: dict[str, tuple[int, ...]] = {}
    for i in range(config.looks):
        shapes |= _prefix(f"looks.{i}", _describe_look(config))
    geometry = _linear("own", 2 * config.heads + 2 * told + SLICE_NUMBERS, c)
    geometry |= _linear("mix", c, c) | _linear("join", c + DIRECTIONS * m, c)
    for i in range(DIRECTIONS):
        geometry |= _prefix(f"carry.{i}", _describe_scan(config, c))
    shapes |= _prefix("geometry", geometry)
    number = np.float32(0.0)
    return {name: np.broadcast_to(number, shape) for name, shape in shapes.items()}


def _describe_look(config: LawConfig) -> dict[str, tuple[int, ...]]:
    d, c, n, H = config.width, config.context, len(KNOTS), config.heads
    view = H + 2 * n
    found: dict[str, tuple[int, ...]] = {"heads.place": (H,), "heads.log_width": (H,)}
    found |= _linear("gains", c, view) | _linear("direct_gains", c, view)
    found |= _linear("enter_bias", c, d) | _linear("up_bias", c, d)
    found |= _linear("base", c, n) | _linear("tilt_gains", c, n)
    for i in range(DIRECTIONS):
        found |= _prefix(f"scans.{i}", _describe_scan(config, d))
        found[f"from_scans.{i}.weight"] = (d, config.state)
    maps = {"enter": (d, view), "across": (d, d), "up": (d, d), "down": (d, d), "last": (n, d)}
    maps |= {"direct": (n, view), "tilt_of_prior": (n, n), "free_shift": (1, d)}
    return found | {f"{name}.weight": shape for name, shape in maps.items()} | {"tilt": (n,)}


def _describe_scan(config: LawConfig, width: int) -> dict[str, tuple[int, ...]]:
    m = config.state
    found: dict[str, tuple[int, ...]] = {"raw": (m,), "U": (m, config.rank)}
    return found | {"enter.weight": (m, width)} | _linear("select", config.context, 1 + m)


def _linear(name: str, inputs: int, outputs: int) -> dict[str, tuple[int, ...]]:
    return {f"{name}.weight": (outputs, inputs), f"{name}.bias": (outputs,)}


def _prefix(prefix: str, shapes: dict[str, tuple[int, ...]]) -> dict[str, tuple[int, ...]]:
    return {f"{prefix}.{name}": shape for name, shape in shapes.items()}
