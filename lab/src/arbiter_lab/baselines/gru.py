"""A bidirectional recurrent network over maturities with gated units (Cho et al. 2014).

The input of a slice is that of the operator's gate: local lines at every head, the number of quotes
there and their quality. There is neither pooling nor kriging. The state does not change at a
maturity without quotes.
"""

from __future__ import annotations

from typing import cast

import torch
from torch import Tensor, nn

from arbiter_lab.baselines.readout import SMILE_COEFFICIENTS, SmileReadout, smoothed_smile
from arbiter_lab.differentiable.operators.network.config import Config
from arbiter_lab.differentiable.operators.network.geometry_stream import geometry
from arbiter_lab.differentiable.operators.network.measure_gate import Gate
from arbiter_lab.differentiable.operators.prior.gaussian_process import Kriged
from arbiter_lab.differentiable.operators.prior.reference_volatility import Scaled

LAYER_COUNT = 2


class Recurrent(SmileReadout):
    """Gated recurrent units along maturities in both directions.

    Args:
        config: Configuration of the operator; it sets the gate's heads and reach.
        width: Size of the state of each direction.
    """

    def __init__(self, config: Config, width: int) -> None:
        super().__init__()
        self.gate = Gate(config.heads, config.reach, learned=config.gate)
        self.enter = nn.Linear(5 * config.heads + 6, width)
        sizes = [width] + [2 * width] * (LAYER_COUNT - 1)
        self.forth = nn.ModuleList(nn.GRUCell(size, width) for size in sizes)
        self.back = nn.ModuleList(nn.GRUCell(size, width) for size in sizes)
        self.leave = nn.Linear(2 * width, SMILE_COEFFICIENTS)
        self.direct = nn.Linear(2 * config.heads, SMILE_COEFFICIENTS, bias=False)
        with torch.no_grad():
            self.leave.weight.mul_(0.1)
            self.leave.bias.zero_()
            self.direct.weight.copy_(smoothed_smile(self.gate.place))

    def coefficients(self, chain: Scaled, guess: Kriged | None) -> Tensor:
        """Return ``(B, L, C)`` coefficients: a local smile plus the other maturities' effect."""
        sight = self.gate(chain)
        view = self.gate.look(sight, chain, chain.u)  # (B, L, 2H + 2)
        seen = chain.quoted.any(-1)
        where = geometry(chain, sight, self.gate.place)
        x = nn.functional.silu(self.enter(torch.cat([view, *where], -1)))
        for pair in zip(self.forth, self.back, strict=True):
            forth, back = (cast(nn.GRUCell, cell) for cell in pair)
            there = run_cell(forth, x, seen)
            x = torch.cat([there, run_cell(back, x.flip(1), seen.flip(1)).flip(1)], -1)
        lines = view[..., : 2 * self.gate.heads]
        found: Tensor = self.direct(lines) + self.leave(x)
        return found


def run_cell(cell: nn.GRUCell, x: Tensor, seen: Tensor) -> Tensor:
    """Return states ``(B, L, h)`` along inputs ``(B, L, d)``; unchanged where nothing is seen.

    The loop is written out, since the library's has no mask for inputs that begin with padding.
    """
    state = x.new_zeros(x.shape[0], cell.hidden_size)
    states = []
    for here, some in zip(x.unbind(1), seen.unbind(1), strict=True):
        state = torch.where(some[:, None], cell(here, state), state)
        states.append(state)
    return torch.stack(states, 1)
