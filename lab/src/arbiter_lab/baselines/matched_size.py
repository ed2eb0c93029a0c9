"""Baseline networks with as many parameters as the operator of a configuration."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch
from torch import nn

from arbiter_lab.baselines.gru import Recurrent
from arbiter_lab.baselines.readout import Readout
from arbiter_lab.baselines.ssm import SelectiveScan
from arbiter_lab.baselines.transformer import ATTENTION_HEADS, Transformer
from arbiter_lab.differentiable.operators.network.config import Config
from arbiter_lab.differentiable.operators.network.network import Network

BASELINE_NAMES = ("ssm", "gru", "transformer")
_MAX_WIDTH = 4096


@dataclass(frozen=True)
class Design:
    """The shape of a baseline network, as stored in its checkpoint.

    Attributes:
        model: Name of the network: ``ssm``, ``gru`` or ``transformer``.
        width: Size of its state or tokens; the selective scan takes it from the configuration.
        config: Configuration of the operator whose size it matches.
    """

    model: str
    width: int
    config: Config

    def __post_init__(self) -> None:
        if self.model not in BASELINE_NAMES:
            raise ValueError(f"model = {self.model!r}: give one of {', '.join(BASELINE_NAMES)}")
        if self.config.decoder != "transport":
            raise ValueError(
                f"decoder = {self.config.decoder!r}: a plain readout has none; leave it 'transport'"
            )
        unit = ATTENTION_HEADS if self.model == "transformer" else 1
        if type(self.width) is not int or not unit <= self.width <= _MAX_WIDTH or self.width % unit:
            raise ValueError(
                f"width = {self.width!r}: give a multiple of {unit}, up to {_MAX_WIDTH}"
            )
        if self.model == "ssm" and self.width != self.config.width:
            raise ValueError(
                f"width = {self.width}: that of the selective scan is the configuration's, "
                f"{self.config.width}"
            )

    def build(self) -> Readout:
        """Build the network; its initial weights are drawn from PyTorch's generator."""
        if self.model == "ssm":
            return SelectiveScan(self.config)
        if self.model == "gru":
            return Recurrent(self.config, self.width)
        return Transformer(self.width)

    def to_dict(self) -> dict[str, Any]:
        """Return the design as plain JSON values."""
        return {"model": self.model, "width": self.width, "matched_to": self.config.to_dict()}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Design:
        """Build a design from plain JSON values.

        Raises:
            ValueError: If they do not describe a design.
        """
        names = {"model", "width", "matched_to"}
        if set(values) != names:
            raise ValueError(f"a design has {sorted(names)}, got {sorted(values)}")
        config = Config.from_dict(values["matched_to"])
        return cls(values["model"], values["width"], config)


def count_parameters(network: nn.Module) -> int:
    """Return the number of trained parameters."""
    return sum(p.numel() for p in network.parameters())


@lru_cache(maxsize=32)
def match_design(model: str, config: Config | None = None) -> Design:
    """Return the design whose number of parameters is nearest to the operator's.

    Args:
        model: Name of the network: ``ssm``, ``gru`` or ``transformer``.
        config: Configuration of the operator; the default one if left out.

    Example:
        >>> match_design("gru").width, match_design("transformer").width
        (163, 112)
    """
    config = Config() if config is None else config
    if model == "ssm":
        return Design(model, config.width, config)
    unit = ATTENTION_HEADS if model == "transformer" else 1
    with torch.device("meta"):  # they are counted, and need no memory
        wanted = count_parameters(Network(config))

        def size(units: int) -> int:
            return count_parameters(Design(model, unit * units, config).build())

        few, many = 1, 2
        while size(many) < wanted:
            few, many = many, 2 * many
        while many - few > 1:
            middle = (few + many) // 2
            few, many = (middle, many) if size(middle) < wanted else (few, middle)
        nearest = min(few, many, key=lambda units: abs(size(units) - wanted))
    return Design(model, unit * nearest, config)
