"""The unconstrained selective scan: the operator's network without its constraints.

Gate, looks, scans, pooling and kriging are those of the configuration, with exactly as many
parameters. The output is read as the coefficients of a smile instead of the slopes of a transport.
Maps are not aligned, steps are not guarded, and no multipliers act on the gate's measure. With
kriging the readout starts from its smile, as the operator starts from its transport.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from arbiter_lab.baselines.readout import SmileReadout, smoothed_smile
from arbiter_lab.differentiable.operators.network.config import Config
from arbiter_lab.differentiable.operators.network.network import Network
from arbiter_lab.differentiable.operators.prior.gaussian_process import Kriged
from arbiter_lab.differentiable.operators.prior.reference_volatility import Scaled


class SelectiveScan(SmileReadout):
    """The operator's network with a plain readout.

    Args:
        config: Configuration of the operator; alignment and guard are switched off.
    """

    nodes: Tensor

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.body = Network(replace(config, align=False, guard=False))
        smile = smoothed_smile(self.body.stages()[0].gate.place)  # (C, 2H)
        self.register_buffer("nodes", smile[:, : config.heads].clone(), persistent=False)
        if config.kriging:  # the reference is where it starts, and nothing is read off the lines
            return
        views = 1 + len(config.spans)
        lines = torch.cat([smile.repeat(1, views) / views, smile.new_zeros(len(smile), 2)], 1)
        with torch.no_grad():
            self.body.direct.weight.copy_(lines)

    @property
    def kriging_heads(self) -> Tensor | None:
        """Coordinates ζ ``(H,)`` of the gate's heads if kriging is on, else None."""
        return self.body.stages()[0].gate.place if self.body.config.kriging else None

    def coefficients(self, chain: Scaled, guess: Kriged | None) -> Tensor:
        """Return ``(B, L, C)`` spline coefficients: the network's output before its head."""
        guess = self.body.guess(chain) if guess is None else guess
        if guess is not None:
            guess = guess._replace(start=guess.smile @ self.nodes.T.to(guess.smile))
        return self.body.decode(chain, guess).proposal
