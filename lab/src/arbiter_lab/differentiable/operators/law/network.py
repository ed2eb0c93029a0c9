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

from arbiter.operators.law.config import (
    BASE_GAIN,
    HALF_SETTLED_ERROR,
    MAX_SIZE,
    MIN_NOISE,
    RESIDUAL_GAIN,
    SHIFT_GAIN,
    SILU,
    LawConfig,
)
from arbiter.operators.law.network import at_knots
from arbiter.operators.slope_head import KNOTS
from arbiter_lab.differentiable.operators.law.green_scan import GreenScan, scan
from arbiter_lab.differentiable.operators.law.proposal import Law, price_law, prior_law
from arbiter_lab.differentiable.operators.law.reading import Heads, law_vega, misfit, read
from arbiter_lab.differentiable.operators.network.green_scan import Path
from arbiter_lab.differentiable.operators.network.spectral_projection import Aligned, align, maps
from arbiter_lab.differentiable.operators.prior.gaussian_process import Kriged
from arbiter_lab.differentiable.operators.prior.reference_volatility import Scaled
from arbiter_lab.differentiable.operators.slope_head import bounded

_SMALL_GAIN = 0.02  # of maps that write, before training: the law is the prior's
_SHIFT_GAIN = 5e-3  # of the map that writes the shift


@dataclass(frozen=True)
class Variant:
    """What an ablation takes away; the library has none of these.

    Attributes:
        flat: True reads every quote by the width of its cell in deviations, whatever the law.
        scans: How many directions the scans have: 2, 1 for short to long alone, or 0.
        guard: False leaves steps as long as they want to be.
        align: False leaves the maps free.
    """

    flat: bool = False
    scans: int = 2
    guard: bool = True
    align: bool = True


class Seen(NamedTuple):
    """What a law makes of quotes.

    Attributes:
        x: ``(B, L, S)`` Gaussian percentiles of the strikes.
        off: ``(B, L, S)`` what mids are off in log-volatility, cut.
    """

    x: Tensor
    off: Tensor


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
        shift: ``(B, L)`` of the prior's law.
        prior: What the Gaussian process says.
        first: What the prior's law makes of the quotes.
    """

    total: Tensor
    gap: Tensor
    ahead: Tensor
    k: Tensor
    mid: Tensor
    relative: Tensor
    quoted: Tensor
    shift: Tensor
    prior: Kriged
    first: Seen

    @property
    def seen(self) -> Tensor:
        """``(B, L)`` maturities with quotes."""
        return self.quoted.any(-1)

    def to_tensors(self) -> tuple[Tensor, ...]:
        """All tensors as one tuple, the input of recorded functions."""
        return (*self[:8], *self.prior, *self.first)

    @classmethod
    def from_tensors(cls, tensors: Sequence[Tensor]) -> LawTask:
        """Undo :meth:`to_tensors`."""
        prior, first = Kriged(*tensors[8:-2]), Seen(*tensors[-2:])
        return cls._make([*tensors[:8], prior, first])

    def float(self) -> LawTask:
        """The same in single precision."""
        parts = self.to_tensors()
        return self.from_tensors([x if x.dtype == torch.bool else x.float() for x in parts])


TASK_SIZE = 8 + len(Kriged._fields) + len(Seen._fields)
"""Number of tensors of a task."""


def look_through(law: Law, task: LawTask, largest: float) -> Seen:
    """What a law makes of the quotes of a task."""
    found = price_law(law, task.total, task.k)
    vega = law_vega(task.k, found.x, task.total)
    return Seen(found.x, misfit(task.mid, found.price, vega, task.quoted, largest))


class Geometry(nn.Module):
    """The geometry stream: ``(B, L, c)`` of each slice among its neighbours."""

    def __init__(self, config: LawConfig, variant: Variant) -> None:
        super().__init__()
        width, told = config.context, config.prior_places[0]
        self.own = nn.Linear(2 * config.heads + 2 * told + 4, width)
        self.mix = nn.Linear(width, width)
        self.carry = nn.ModuleList(
            GreenScan(width, config.state, config.rank, width, config.budget, variant.guard)
            for _ in range(variant.scans)
        )
        self.join = nn.Linear(width + variant.scans * config.state, width)

    def forward(self, task: LawTask, mass: Tensor, noise: Tensor) -> Tensor:
        """From the masses ``(B, L, H)`` of heads and the standard errors of their readings."""
        seen, prior = task.seen, task.prior
        count = torch.log(task.quoted.sum(-1) + 1.0)
        slices = [0.5 * (task.total + 2.5), task.gap, 0.4 * count - 1.0, seen.to(count.dtype)]
        parts = [
            2.0 * mass - 1.0,
            0.4 * torch.log(noise) + 2.0,
            0.5 * (prior.doubt + 6.0),
            prior.smile.clamp(-MAX_SIZE, MAX_SIZE),
            torch.stack(slices, -1),
        ]
        own = nn.functional.silu(self.own(torch.cat(parts, -1)))
        own = nn.functional.silu(self.mix(own)) + own
        around = _scanned(self.carry, Path(own, task.gap, own, seen), task.ahead)
        joined: Tensor = self.join(torch.cat([own, *around], -1))
        return own + nn.functional.silu(joined)


class Look(nn.Module):
    """One look: a view of misfits is entered, scanned, mixed and written."""

    def __init__(self, config: LawConfig, variant: Variant) -> None:
        super().__init__()
        d, m, c, budget = config.width, config.state, config.context, config.budget
        n = len(KNOTS)
        view = config.heads + 2 * n  # readings, what is written so far, the prior's log-ratios
        self.heads = Heads(config.heads, config.reach)
        self.gains, self.direct_gains = nn.Linear(c, view), nn.Linear(c, view)
        self.enter, self.enter_bias = Aligned(view, d, budget), nn.Linear(c, d)
        self.scans = nn.ModuleList(
            GreenScan(d, m, config.rank, c, 0.5 * budget, variant.guard)
            for _ in range(variant.scans)
        )
        self.from_scans = nn.ModuleList(Aligned(m, d, budget) for _ in range(variant.scans))
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
        states = _scanned(self.scans, Path(x, task.gap, context, seen), task.ahead)
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
        change = self.last(v) + self.direct(straight) + BASE_GAIN * self.base(context)
        after = bounded(law.log_ratio + share * change, start)
        moved = torch.exp(after) - torch.exp(law.log_ratio)
        tilt = self.tilt * (1.0 + 0.5 * torch.tanh(self.tilt_gains(context)))
        tilt = tilt + self.tilt_of_prior(start.clamp(-MAX_SIZE, MAX_SIZE)) * level
        free = self.free_shift(v)[..., 0] * share.mean(-1)
        delta = SHIFT_GAIN * free - (tilt * moved).sum(-1)
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
        config: Sizes; the default ones if left out.
        variant: What an ablation takes away; nothing if left out.
    """

    hats: Tensor

    def __init__(self, config: LawConfig | None = None, variant: Variant | None = None) -> None:
        super().__init__()
        self.config = config = LawConfig() if config is None else config
        self.variant = variant = Variant() if variant is None else variant
        self.geometry = Geometry(config, variant)
        self.looks = nn.ModuleList(Look(config, variant) for _ in range(config.looks))
        hats = torch.tensor(at_knots(config.places()), dtype=torch.float32)
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
        laws = [Law(task.prior.start, task.shift)]
        share, context = self.open_to_change(task.prior), None
        for number, look in enumerate(self.stages()):
            law = laws[-1]
            again = number > 0  # of the prior's law the task knows it already
            seen = look_through(law, task, config.largest_misfit) if again else task.first
            x = task.k * torch.exp(-task.total)[..., None] if self.variant.flat else seen.x
            mass = look.heads.masses(x, task.quoted)
            if context is None:
                variance = (mass**2 * (task.relative**2)[..., None]).sum(-2)
                noise = torch.sqrt(variance + MIN_NOISE**2)
                context = self.geometry(
                    task, mass.sum(-2), noise / (mass.sum(-2) + config.unread_mass)
                )
            written = law.log_ratio - task.prior.start
            view = torch.cat(
                [
                    RESIDUAL_GAIN * read(mass, seen.off, config.unread_mass),
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


def make_task(chain: Scaled, k: Tensor, mid: Tensor, prior: Kriged, largest: float) -> LawTask:
    """The task of chains in their own units, in double precision.

    Args:
        chain: The chains.
        k: ``(B, L, S)`` log-strikes.
        mid: ``(B, L, S)`` mid prices, out of the money, in double precision.
        prior: What the Gaussian process says at the places of the configuration.
        largest: Size at which a misfit of log-volatility is cut.
    """
    prior = Kriged(*(part.double() for part in prior))
    relative, total = torch.exp(chain.noise), chain.total.double()
    law = prior_law(prior.start, total)
    parts = (total, chain.gap, chain.ahead, k.double(), mid, relative, chain.quoted, law.shift)
    empty = Seen(torch.zeros_like(mid), torch.zeros_like(mid))
    task = LawTask._make([*parts, prior, empty])
    return task._replace(first=look_through(law, task, largest))


def activation(x: Tensor) -> Tensor:
    """SiLU over its Lipschitz constant."""
    return nn.functional.silu(x) / SILU


def _scanned(parts: nn.ModuleList, path: Path, ahead: Tensor) -> list[Tensor]:
    scans = [cast(GreenScan, part) for part in parts]
    return scan(scans, path, ahead) if scans else []


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
