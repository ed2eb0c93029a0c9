"""The risk-neutral operator: ragged quotes in, star-ordered slopes out.

Two streams. *Geometry* (where the quotes are, how wide their spreads, how far apart maturities)
goes through an ordinary network and selects: densities, gains, steps, biases. *Values* (what the
quotes say, ``u = log(iv/σ)``) go through aligned maps, 1-Lipschitz activations and the Green scans
alone. So for given strikes, maturities and spreads the operator is a composition of maps with
known norms, and its Lipschitz constant is a product that is true (:mod:`arbiter.operators.lipschitz`).

Several looks: each reads its own smile back off the state, embeds what is left of the quotes, and
corrects the state, as a boosted or unrolled least-squares method would.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from arbiter.operators import head
from arbiter.operators.gate import FAR, Gate, Sight
from arbiter.operators.qalign import Aligned
from arbiter.operators.ragged import Ragged
from arbiter.operators.reference import Scaled, scaled
from arbiter.operators.scan import GreenScan

SILU = 1.1  # its Lipschitz constant is 1.0998…


@dataclass(frozen=True)
class Config:
    """Sizes and switches; the switches are the ablations of the paper and of ours.

    Attributes:
        heads: Densities of the gate.
        width: Of the value stream.
        state: m, of each scan.
        rank: r, of each scan's low-rank factors.
        context: Width of the geometry stream.
        looks: How many times the quotes are looked at.
        budget: Largest spectral norm of a value map.
        gate: False makes every density flat.
        guard: False lets steps exceed ``(1 − ε)/ρ``.
        adjoint: False leaves only the scan from short to long maturities.
        align: False leaves the maps free.
        scan: ``"resolvent"`` or ``"exponential"``.
        decoder: ``"transport"`` or ``"icnn"``.
    """

    heads: int = 40
    width: int = 160
    state: int = 64
    rank: int = 4
    context: int = 160
    looks: int = 3
    budget: float = 4.0
    gate: bool = True
    guard: bool = True
    adjoint: bool = True
    align: bool = True
    scan: str = "resolvent"
    decoder: str = "transport"

    def __post_init__(self) -> None:
        for name in ("heads", "width", "state", "rank", "context", "looks"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} = {getattr(self, name)!r} must be at least one")
        if not self.budget > 0.0:
            raise ValueError(f"budget = {self.budget!r} must be positive")
        if self.scan not in ("resolvent", "exponential"):
            raise ValueError(f"scan = {self.scan!r}: give 'resolvent' or 'exponential'")
        if self.decoder not in ("transport", "icnn"):
            raise ValueError(f"decoder = {self.decoder!r}: give 'transport' or 'icnn'")

    def to_dict(self) -> dict[str, Any]:
        """Plain values."""
        return asdict(self)


class Output(NamedTuple):
    """What the operator says of a batch of chains.

    Attributes:
        slopes: ``(B, L, n)`` in the star order.
        proposal: ``(B, L, n)`` what the head proposed, ``log(slope/σ√T)``.
        chain: The chain in its own units.
        sight: What the gate of the first look saw; its measure is *the* measure.
        features: ``(B, L, d)`` the state behind the head.
    """

    slopes: Tensor
    proposal: Tensor
    chain: Scaled
    sight: Sight
    features: Tensor


def activation(x: Tensor) -> Tensor:
    """SiLU over its Lipschitz constant."""
    return nn.functional.silu(x) / SILU


class Context(nn.Module):
    """The geometry stream: what each slice can know, and what its neighbours can."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        inner = config.context
        self.own = nn.Linear(3 * config.heads + 4, inner)
        self.mix = nn.Linear(inner, inner)
        self.carry = nn.GRU(inner, inner // 2, batch_first=True, bidirectional=config.adjoint)
        out = inner // 2 * (2 if config.adjoint else 1)
        self.join = nn.Linear(inner + out, inner)

    def forward(self, chain: Scaled, sight: Sight, place: Tensor) -> Tensor:
        seen = chain.quoted.any(-1)
        count = chain.quoted.sum(-1).to(chain.u.dtype)
        extra = torch.stack(
            [0.5 * (chain.total + 2.5), chain.gap, 0.4 * torch.log(count + 1.0) - 1.0, seen], -1
        )
        parts = [
            0.3 * sight.mass.clamp(min=-12.0) + 1.0,
            0.5 * (sight.doubt + 6.0),
            (sight.centre - place).clamp(-2.0, 2.0),
        ]
        own = nn.functional.silu(self.own(torch.cat([*parts, extra.to(chain.u.dtype)], -1)))
        own = nn.functional.silu(self.mix(own)) + own
        carried, _ = self.carry(own)
        return own + nn.functional.silu(self.join(torch.cat([own, carried], -1)))


class Look(nn.Module):
    """One look at the quotes: embed, carry along maturities, mix."""

    def __init__(self, config: Config, first: bool) -> None:
        super().__init__()
        d, m, budget = config.width, config.state, config.budget
        seen = 2 * config.heads + 2
        self.gate = Gate(config.heads, learned=config.gate)
        self.gains = nn.Linear(config.context, seen)
        self.enter = Aligned(seen, d, budget)
        self.enter_bias = nn.Linear(config.context, d)
        kinds = dict(kind=config.scan, budget=budget, guarded=config.guard)
        self.forth = GreenScan(d, m, config.rank, config.context, **kinds)
        self.back = GreenScan(d, m, config.rank, config.context, **kinds) if config.adjoint else None
        self.from_forth = Aligned(m, d, budget)
        self.from_back = Aligned(m, d, budget) if config.adjoint else None
        self.across = Aligned(d, d, budget)
        self.up, self.down = Aligned(d, 2 * d, budget), Aligned(2 * d, d, budget, gain=0.5)
        self.up_bias = nn.Linear(config.context, 2 * d)
        self.read = None if first else Aligned(d, config.heads, budget)

    def smile(self, chain: Scaled, v: Tensor) -> Tensor:
        """What the state ``v`` says the quotes should be, ``(B, L, S)``: hats between nodes."""
        assert self.read is not None
        nodes = self.read(v)  # (B, L, H)
        count = nodes.shape[-1]
        place = (chain.zeta + FAR[0]) / (FAR[0] + FAR[1]) * (count - 1)
        place = place.clamp(0.0, count - 1.0)
        left = place.detach().floor().clamp(max=count - 2).long()
        right = nodes.gather(-1, left + 1)
        return torch.lerp(nodes.gather(-1, left), right, place - left)

    def forward(self, chain: Scaled, sight: Sight, context: Tensor, v: Tensor | None) -> Tensor:
        seen = chain.quoted.any(-1)
        rest = chain.u if v is None else (chain.u - self.smile(chain, v)) * chain.quoted
        view = self.gate.look(sight, chain, rest) * torch.tanh(1.0 + self.gains(context))
        x = activation(self.enter(view) + self.enter_bias(context)) * seen[..., None]
        moved = self.across(x) + self.from_forth(self.forth(x, chain.gap, context, seen))
        if self.back is not None and self.from_back is not None:
            ahead = torch.cat([torch.ones_like(chain.gap[:, :1]), chain.gap[:, 1:].flip(1)], 1)
            back = self.back(x.flip(1), ahead, context.flip(1), seen.flip(1)).flip(1)
            moved = moved + self.from_back(back)
        v = moved if v is None else v + moved
        return v + self.down(activation(self.up(v) + self.up_bias(context)))


class Network(nn.Module):
    """Looks and head. ``forward`` takes quotes in their own units."""

    knots: Tensor

    def __init__(self, config: Config | None = None) -> None:
        super().__init__()
        self.config = config = Config() if config is None else config
        self.looks = nn.ModuleList(Look(config, first=i == 0) for i in range(config.looks))
        self.context = Context(config)
        self.register_buffer("knots", torch.tensor(head.KNOTS, dtype=torch.float64), persistent=False)
        self.base = nn.Linear(config.context, len(head.KNOTS))
        self.last = Aligned(config.width, len(head.KNOTS), config.budget, gain=0.02)
        nn.init.zeros_(self.base.weight)
        nn.init.zeros_(self.base.bias)

    def forward(self, quotes: Ragged) -> Output:
        """Slopes of each chain."""
        return self.decode(scaled(quotes))

    def decode(self, chain: Scaled) -> Output:
        """The same for a chain that is in its own units already."""
        first = self.looks[0].gate
        measured = sight = first(chain)
        context = self.context(chain, sight, first.place)
        v = self.looks[0](chain, sight, context, None)
        for look in self.looks[1:]:
            v = look(chain, look.gate(chain), context, v)
        proposal = self.base(context) + self.last(v)
        return Output(head.slopes(proposal, chain.total), proposal, chain, measured, v)
