"""The weights of a network, by name, and what a configuration asks of them."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from arbiter.operators.network.config import Config
from arbiter.operators.slope_head import KNOTS

Weights = Mapping[str, NDArray[Any]]

GATE_HIDDEN = 48  # width of the network that bends the gate's bumps
_GATE_GEOMETRY, _SLICE_GEOMETRY = 5, 4  # numbers that are known of a quote, and of a slice


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


def describe_weights(config: Config) -> dict[str, NDArray[np.float32]]:
    """Arrays with the names, shapes and type of a network's weights, which take no memory.

    Of networks whose decoder is ``"transport"``.
    """
    d, c, n, H = config.width, config.context, len(KNOTS), config.heads
    directions, view = 2 if config.adjoint else 1, config.lines + 2
    known = (3 * H + n) * config.kriging
    shapes: dict[str, tuple[int, ...]] = {}
    for i in range(config.looks):
        shapes |= _prefix(f"looks.{i}", _describe_look(config, first=i == 0))
    shapes |= _prefix("context.own", _describe_linear(3 * H + _SLICE_GEOMETRY + known, c))
    shapes |= _prefix("context.mix", _describe_linear(c, c))
    for i in range(directions):
        shapes |= _prefix(f"context.carry.{i}", _describe_scan(config, c))
    shapes |= _prefix("context.join", _describe_linear(c + directions * config.state, c))
    shapes |= _prefix("base", _describe_linear(c, n))
    shapes |= {"last.weight": (n, d), "direct.weight": (n, view)}
    shapes |= _prefix("direct_gains", _describe_linear(c, view))
    if config.kriging:
        shapes |= {"mend.weight": (n, H)} | _prefix("mend_gains", _describe_linear(c, H))
    number = np.float32(0.0)
    return {name: np.broadcast_to(number, shape) for name, shape in shapes.items()}


def _describe_look(config: Config, first: bool) -> dict[str, tuple[int, ...]]:
    d, c, H = config.width, config.context, config.heads
    view = config.lines + 2
    found: dict[str, tuple[int, ...]] = {"gate.log_width": (H,)}
    found |= _prefix("gate.inner", _describe_linear(_GATE_GEOMETRY, GATE_HIDDEN))
    found |= _prefix("gate.outer", _describe_linear(GATE_HIDDEN, H + 2))
    found |= _prefix("gains", _describe_linear(c, view))
    found |= _prefix("enter_bias", _describe_linear(c, d))
    found |= _prefix("up_bias", _describe_linear(c, 2 * d))
    for way in ("forth", "back") if config.adjoint else ("forth",):
        found |= _prefix(way, _describe_scan(config, d))
        found[f"from_{way}.weight"] = (d, config.state)
    maps = {"enter": (d, view), "across": (d, d), "up": (2 * d, d), "down": (d, 2 * d)}
    if not first:
        maps["read"] = (H, d)
    return found | {f"{name}.weight": shape for name, shape in maps.items()}


def _describe_scan(config: Config, width: int) -> dict[str, tuple[int, ...]]:
    m = config.state
    found: dict[str, tuple[int, ...]] = {"generator.raw": (m,), "generator.U": (m, config.rank)}
    return (
        found
        | {"enter.weight": (m, width)}
        | _prefix("select", _describe_linear(config.context, 1 + m))
    )


def _describe_linear(inputs: int, outputs: int) -> dict[str, tuple[int, ...]]:
    return {"weight": (outputs, inputs), "bias": (outputs,)}


def _prefix(prefix: str, shapes: dict[str, tuple[int, ...]]) -> dict[str, tuple[int, ...]]:
    return {f"{prefix}.{name}": shape for name, shape in shapes.items()}
