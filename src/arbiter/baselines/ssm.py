"""The operator's own network without what constrains it: the unconstrained selective scan.

Gate, looks, scans, pooling and kriging as configured, and as many parameters to the last one. What
the operator reads as slopes of a transport is here the coefficients of a smile. Maps are not
aligned, kriged rows not bounded, steps not guarded, and no multiplier prices the gate's measure.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from arbiter.baselines.readout import Smiles, smoothed_smile
from arbiter.operators.kriging import Kriged
from arbiter.operators.network import Config, Network
from arbiter.operators.reference import Scaled
from arbiter.operators.scan import GreenScan


class SelectiveScan(Smiles):
    """The operator's network with a plain readout.

    Args:
        config: Of the operator; alignment and guard are switched off.
    """

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.body = Network(replace(config, align=False, guard=False))
        for part in self.body.modules():
            if isinstance(part, GreenScan):  # those of the geometry stream are guarded by default
                part.guarded = False
        smile = smoothed_smile(self.body.stages()[0].gate.place)
        views = 1 + len(config.spans)
        none = smile.new_zeros(len(smile), 2)
        if config.kriging:
            parts = [smile.new_zeros(len(smile), views * smile.shape[1]), smile, none]
        else:
            parts = [smile.repeat(1, views) / views, none]
        with torch.no_grad():
            self.body.direct.weight.copy_(torch.cat(parts, 1))

    @property
    def place(self) -> Tensor | None:
        """Heads of the gate, where kriging is on."""
        return self.body.stages()[0].gate.place if self.body.config.kriging else None

    def coefficients(self, chain: Scaled, guess: Kriged | None) -> Tensor:
        """What the operator's head would take for slopes."""
        guess = self.body.guess(chain) if guess is None else guess
        if guess is not None:
            # rows are scaled for the sake of the operator's constant alone; slopes are none here
            guess = guess._replace(
                scale=torch.ones_like(guess.scale), start=torch.zeros_like(guess.start)
            )
        return self.body.decode(chain, guess).proposal
