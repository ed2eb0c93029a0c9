"""The geometry stream: what each slice can know beside its values, and what its neighbours can.

Where quotes are, how wide their spreads, how far apart maturities, and where there is kriging the
whole reference: an ordinary network over all of these selects what the other stream does.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import torch
from torch import Tensor, nn

from arbiter_lab.differentiable.operators import slope_head
from arbiter_lab.differentiable.operators.law.green_scan import Path
from arbiter_lab.differentiable.operators.network.config import Config
from arbiter_lab.differentiable.operators.network.green_scan import GreenScan, scan_together
from arbiter_lab.differentiable.operators.network.measure_gate import Sight
from arbiter_lab.differentiable.operators.prior.gaussian_process import Kriged
from arbiter_lab.differentiable.operators.prior.reference_volatility import Scaled

HALF_SETTLED_ERROR = 2e-3  # error of log-volatility that leaves half to be said
RESIDUAL_GAIN = 8.0  # what the reference leaves of the quotes is a tenth of what they say, or less
MAX_SIZE = 2.0  # of what is told in units in which it is about one
MIN_LOG_MASS = -12.0  # of a head: less is told alike


def carried(scans: Sequence[GreenScan], path: Path, ahead: Tensor) -> list[Tensor]:
    """States of one scan, from short to long maturities, or of two: the adjoint one comes back."""
    if len(scans) == 1:
        return [scans[0](path)]
    forth, back = scan_together(scans, [path, path.reversed(ahead)])
    return [forth, back.flip(1)]


def geometry(chain: Scaled, sight: Sight, place: Tensor) -> list[Tensor]:
    """``(B, L, …)`` where the quotes of each slice are and how good, each about of size one."""
    seen = chain.quoted.any(-1)
    count = chain.quoted.sum(-1).to(chain.u.dtype)
    known = [0.5 * (chain.total + 2.5), chain.gap, 0.4 * torch.log(count + 1.0) - 1.0, seen]
    return [
        0.3 * sight.mass.clamp(min=MIN_LOG_MASS) + 1.0,
        0.5 * (sight.doubt + 6.0),
        (sight.centre - place).clamp(-MAX_SIZE, MAX_SIZE),
        torch.stack(known, -1).to(chain.u.dtype),
    ]


def referred(guess: Kriged) -> list[Tensor]:
    """What the geometry stream is told of a reference, each about of size one."""
    doubt = 0.5 * (guess.doubt + 6.0)
    return [doubt, 2.0 * guess.smile, missed(guess), guess.start.clamp(-MAX_SIZE, MAX_SIZE)]


def missed(guess: Kriged) -> Tensor:
    """``(B, L, H)`` what the start is short of its smile, amplified."""
    return (RESIDUAL_GAIN * guess.miss).clamp(-MAX_SIZE, MAX_SIZE)


def at_knots(place: Tensor) -> Tensor:
    """``(n, H)`` from heads to the knots whose deviations are theirs, linear between."""
    knots = torch.tensor(slope_head.KNOTS, dtype=place.dtype, device=place.device)
    zeta = torch.asinh(knots).clamp(place[0], place[-1])
    near = 1.0 - (zeta[:, None] - place).abs() / (place[1] - place[0])
    return near.clamp(min=0.0)


def open_to_change(guess: Kriged, hats: Tensor) -> Tensor:
    """``(B, L, n)`` which share of a change is made: little where the reference knows better.

    A change is an estimate with an error of its own, whatever the quotes. So it counts as the
    reference's standard error, or what its start misses, over that and :data:`HALF_SETTLED_ERROR`.
    """
    off = torch.sqrt(torch.exp(2.0 * guess.doubt) + guess.miss**2) @ hats.T
    return off / (off + HALF_SETTLED_ERROR)


class Context(nn.Module):
    """The geometry stream: what each slice can know, and what its neighbours can.

    Args:
        config: Of the network.
    """

    def __init__(self, config: Config) -> None:
        super().__init__()
        inner = config.context
        known = (3 * config.heads + len(slope_head.KNOTS)) * config.kriging
        self.own = nn.Linear(3 * config.heads + 4 + known, inner)
        self.mix = nn.Linear(inner, inner)
        directions = 2 if config.adjoint else 1
        self.carry = nn.ModuleList(
            GreenScan(
                inner, config.state, config.rank, inner, kind=config.scan, guarded=config.guard
            )
            for _ in range(directions)
        )
        self.join = nn.Linear(inner + directions * config.state, inner)

    def forward(self, chain: Scaled, sight: Sight, place: Tensor, guess: Kriged | None) -> Tensor:
        """Geometry ``(B, L, c)`` of each slice among its neighbours."""
        seen = chain.quoted.any(-1)
        parts = geometry(chain, sight, place)
        if guess is not None:
            parts.extend(referred(guess))
        own = nn.functional.silu(self.own(torch.cat(parts, -1)))
        own = nn.functional.silu(self.mix(own)) + own
        scans = [cast(GreenScan, scan) for scan in self.carry]
        around = carried(scans, Path(own, chain.gap, own, seen), chain.ahead)
        joined: Tensor = self.join(torch.cat([own, *around], -1))
        return own + nn.functional.silu(joined)
