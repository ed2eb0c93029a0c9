"""The network of the second design: looks that read a law's misfits, scan them and write a change.

Two streams, as in the first design. *Geometry* says where quotes are and how good; an ordinary
network of it selects. *Values* go through aligned maps, activations of slope at most one and the
scans alone. What a look writes is shrunk to the prior where the prior knows better.

Shapes: B chains, L maturities, S quotes, H heads, n knots, c width of the geometry.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple, cast

import numpy as np
import torch
from torch import Tensor, nn

from arbiter.operators.network.geometry_stream import (
    HALF_SETTLED_ERROR,
    MAX_SIZE,
    RESIDUAL_GAIN,
    at_knots,
)
from arbiter.operators.network.measure_gate import places
from arbiter.operators.slope_head import KNOTS
from arbiter_lab.differentiable.operators.law.proposal import Law, price_law, prior_law
from arbiter_lab.differentiable.operators.law.reading import Heads, law_vega, misfit, read
from arbiter_lab.differentiable.operators.network.geometry_stream import carried
from arbiter_lab.differentiable.operators.network.green_scan import GreenScan, Path
from arbiter_lab.differentiable.operators.network.network import activation
from arbiter_lab.differentiable.operators.network.spectral_projection import Aligned, align, maps
from arbiter_lab.differentiable.operators.prior.gaussian_process import Kriged
from arbiter_lab.differentiable.operators.slope_head import bounded

_SMALL_GAIN = 0.02  # of maps that write, before training: the law is the prior's
_SHIFT_GAIN = 5e-3  # of the map that writes the shift
_MIN_NOISE = 1e-6


@dataclass(frozen=True)
class LawConfig:
    """Sizes and switches.

    Attributes:
        heads: H, through which quotes are read.
        reach: Farthest heads, in standard deviations below and above the median.
        width: Of the value stream.
        state: m, of each scan.
        rank: r, of each scan's low-rank factors.
        context: c.
        looks: How many times the quotes are read.
        budget: Largest spectral norm of a value map.
        unread_mass: Mass of a head's quotes that halves its reading.
        largest_misfit: Size at which a misfit of log-volatility is cut.
        prior_places: Places at which the prior is told, and their ``asinh z`` below and above.
        flat: True reads every quote by the width of its cell in deviations, whatever the law.
        adjoint: False leaves only the scan from short to long maturities.
    """

    heads: int = 32
    reach: tuple[float, float] = (4.5, 3.3)
    width: int = 128
    state: int = 64
    rank: int = 4
    context: int = 96
    looks: int = 1
    budget: float = 10.0
    unread_mass: float = 0.1
    largest_misfit: float = 1.0
    prior_places: tuple[int, float, float] = (44, 3.7, 2.4)
    flat: bool = False
    adjoint: bool = True

    def places(self) -> Tensor:
        """``(P,)`` places ``asinh z`` at which the prior is told."""
        count, below, above = self.prior_places
        return torch.tensor(places(count, (below, above)))


class LawTask(NamedTuple):
    """A chain in its own units, with its prior.

    Attributes:
        total: ``(B, L)`` ``log(σ√T)``.
        gap: ``(B, L)`` log-maturity since the maturity before.
        ahead: ``(B, L)`` log-maturity to the next one.
        k: ``(B, L, S)`` log-strikes, rising, the quoted ones first.
        mid: ``(B, L, S)`` mid prices, out of the money.
        relative: ``(B, L, S)`` half-spread over volatility.
        quoted: ``(B, L, S)``.
        prior: What the Gaussian process says.
    """

    total: Tensor
    gap: Tensor
    ahead: Tensor
    k: Tensor
    mid: Tensor
    relative: Tensor
    quoted: Tensor
    prior: Kriged

    @property
    def seen(self) -> Tensor:
        """``(B, L)`` maturities with quotes."""
        return self.quoted.any(-1)


class Geometry(nn.Module):
    """The geometry stream: ``(B, L, c)`` of each slice among its neighbours."""

    def __init__(self, config: LawConfig) -> None:
        super().__init__()
        width = config.context
        self.own = nn.Linear(2 * config.heads + config.prior_places[0] + 4, width)
        self.mix = nn.Linear(width, width)
        directions = 2 if config.adjoint else 1
        self.carry = nn.ModuleList(
            GreenScan(width, config.state, config.rank, width) for _ in range(directions)
        )
        self.join = nn.Linear(width + directions * config.state, width)

    def forward(self, task: LawTask, mass: Tensor, noise: Tensor) -> Tensor:
        """From the masses ``(B, L, H)`` of heads and the standard errors of their readings."""
        seen = task.seen
        count = torch.log(task.quoted.sum(-1) + 1.0)
        slices = [0.5 * (task.total + 2.5), task.gap, 0.4 * count - 1.0, seen.to(count.dtype)]
        parts = [
            2.0 * mass - 1.0,
            0.4 * torch.log(noise) + 2.0,
            0.5 * (task.prior.doubt + 6.0),
            torch.stack(slices, -1),
        ]
        own = nn.functional.silu(self.own(torch.cat(parts, -1)))
        own = nn.functional.silu(self.mix(own)) + own
        scans = [cast(GreenScan, scan) for scan in self.carry]
        around = carried(scans, Path(own, task.gap, own, seen), task.ahead)
        joined: Tensor = self.join(torch.cat([own, *around], -1))
        return own + nn.functional.silu(joined)


class Look(nn.Module):
    """One look: a view of misfits is entered, scanned, mixed and written."""

    def __init__(self, config: LawConfig) -> None:
        super().__init__()
        d, m, c, budget = config.width, config.state, config.context, config.budget
        n = len(KNOTS)
        view = config.heads + 2 * n  # readings, what is written so far, the prior's log-ratios
        self.heads = Heads(config.heads, config.reach)
        self.gains, self.direct_gains = nn.Linear(c, view), nn.Linear(c, view)
        self.enter, self.enter_bias = Aligned(view, d, budget), nn.Linear(c, d)
        directions = 2 if config.adjoint else 1
        self.scans = nn.ModuleList(
            GreenScan(d, m, config.rank, c, budget=0.5 * budget) for _ in range(directions)
        )
        self.from_scans = nn.ModuleList(Aligned(m, d, budget) for _ in range(directions))
        self.across = Aligned(d, d, budget)
        self.up, self.up_bias = Aligned(d, d, budget), nn.Linear(c, d)
        self.down = Aligned(d, d, budget, gain=0.3)
        self.last = Aligned(d, n, budget, gain=_SMALL_GAIN)
        self.direct = Aligned(view, n, budget, gain=_SMALL_GAIN)
        self.base = nn.Linear(c, n)
        # what a change of slopes does to the mean: under the normal law before training
        self.tilt = nn.Parameter(torch.tensor(hat_means(), dtype=torch.float32))
        self.tilt_gains = nn.Linear(c, n)
        self.tilt_of_prior = Aligned(n, n, budget, gain=_SMALL_GAIN)
        self.free_shift = Aligned(d, 1, budget, gain=_SHIFT_GAIN)
        for part in (self.base, self.tilt_gains):
            nn.init.zeros_(part.weight)
            nn.init.zeros_(part.bias)

    def state(self, task: LawTask, context: Tensor, view: Tensor) -> Tensor:
        """``(B, L, d)`` what all maturities say of each."""
        seen = task.seen
        gained = view * torch.tanh(1.0 + self.gains(context))
        x = activation(self.enter(gained) + self.enter_bias(context)) * seen[..., None]
        scans = [cast(GreenScan, scan) for scan in self.scans]
        states = carried(scans, Path(x, task.gap, context, seen), task.ahead)
        v: Tensor = self.across(x)
        for part, state in zip(self.from_scans, states, strict=True):
            v = v + part(state)
        mixed: Tensor = self.down(activation(self.up(v) + self.up_bias(context)))
        return v + mixed

    def write(
        self, law: Law, task: LawTask, stream: tuple[Tensor, Tensor, Tensor], share: Tensor
    ) -> Law:
        """The law after this look.

        Args:
            law: Before.
            task: The chain.
            stream: Context, view and state.
            share: ``(B, L, n)`` of a change that is made.
        """
        context, view, v = stream
        start, level = task.prior.start, torch.exp(task.total)[..., None]
        straight = view * torch.tanh(1.0 + self.direct_gains(context))
        change = self.last(v) + self.direct(straight) + 0.1 * self.base(context)
        after = bounded(law.log_ratio + share * change, start)
        moved = torch.exp(after) - torch.exp(law.log_ratio)
        tilt = self.tilt * (1.0 + 0.5 * torch.tanh(self.tilt_gains(context)))
        tilt = tilt + self.tilt_of_prior(start.clamp(-MAX_SIZE, MAX_SIZE)) * level
        free = self.free_shift(v)[..., 0] * share.mean(-1)
        delta = _SHIFT_GAIN * 10.0 * free - (tilt * moved).sum(-1)
        return Law(after, law.shift + level[..., 0] * delta)


class Proposal(NamedTuple):
    """What the network says of a batch: the law after each look, the prior's first."""

    laws: tuple[Law, ...]

    @property
    def law(self) -> Law:
        """The last one."""
        return self.laws[-1]


class LawNetwork(nn.Module):
    """Looks at the misfits of quotes under a law, beginning with the prior's.

    Args:
        config: Sizes and switches; the default ones if left out.
    """

    hats: Tensor

    def __init__(self, config: LawConfig | None = None) -> None:
        super().__init__()
        self.config = config = LawConfig() if config is None else config
        self.geometry = Geometry(config)
        self.looks = nn.ModuleList(Look(config) for _ in range(config.looks))
        hats = torch.tensor(at_knots(config.places().double().numpy()), dtype=torch.float32)
        self.register_buffer("hats", hats, persistent=False)

    def stages(self) -> Sequence[Look]:
        """The looks, in order."""
        return [cast(Look, look) for look in self.looks]

    def align(self) -> Tensor:
        """Q-Align in place: how far the maps moved."""
        return align(maps(self))

    def forward(self, task: LawTask) -> Proposal:
        """The laws of each chain."""
        config = self.config
        laws = [prior_law(task.prior.start, task.total)]
        share, context = self.open_to_change(task.prior), None
        for look in self.stages():
            law = laws[-1]
            seen = price_law(law, task.total, task.k)
            vega = law_vega(task.k, seen.x, task.total)
            off = misfit(task.mid, seen.price, vega, task.quoted, config.largest_misfit)
            x = task.k * torch.exp(-task.total)[..., None] if config.flat else seen.x
            mass = look.heads.masses(x, task.quoted)
            if context is None:
                variance = (mass**2 * (task.relative**2)[..., None]).sum(-2)
                noise = torch.sqrt(variance + _MIN_NOISE**2)
                context = self.geometry(
                    task, mass.sum(-2), noise / (mass.sum(-2) + config.unread_mass)
                )
            written = law.log_ratio - task.prior.start
            view = torch.cat(
                [
                    RESIDUAL_GAIN * read(mass, off, config.unread_mass),
                    RESIDUAL_GAIN * written,
                    task.prior.start.clamp(-MAX_SIZE, MAX_SIZE),
                ],
                -1,
            )
            v = look.state(task, context, view)
            laws.append(look.write(law, task, (context, view, v), share))
        return Proposal(tuple(laws))

    def open_to_change(self, prior: Kriged) -> Tensor:
        """``(B, L, n)`` share of a change that is made: little where the prior knows better."""
        off = torch.sqrt(torch.exp(2.0 * prior.doubt) + prior.miss**2) @ self.hats.T
        return off / (off + HALF_SETTLED_ERROR)


@lru_cache(maxsize=1)
def hat_means() -> tuple[float, ...]:
    """``(n,)`` means under the normal law of the integrals from 0 of the hats at the knots."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(200)
    line = np.linspace(-20.0, 20.0, 40_001)
    found = []
    for i in range(len(KNOTS)):
        hat = np.interp(line, KNOTS, np.eye(len(KNOTS))[i])
        risen = np.concatenate([[0.0], np.cumsum(0.5 * (hat[1:] + hat[:-1]) * np.diff(line))])
        at_nodes = np.interp(nodes, line, risen - np.interp(0.0, line, risen))
        found.append(float(at_nodes @ weights / weights.sum()))
    return tuple(found)
