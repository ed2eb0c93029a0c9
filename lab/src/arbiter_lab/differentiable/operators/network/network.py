"""The risk-neutral operator: ragged quotes in, star-ordered slopes out.

Two streams. *Geometry* (where the quotes are, how wide their spreads, how far apart maturities)
goes through an ordinary network and selects: densities, gains, steps, biases. *Values* (what the
quotes say, ``u = log(iv/σ)``) go through aligned maps, 1-Lipschitz activations and the Green scans
alone. So for given strikes, maturities, spreads and reference volatilities the operator is a
composition of maps with known norms, and its Lipschitz constant is a bound that is true
(:mod:`arbiter_lab.differentiable.operators.network.lipschitz`).

Where there is kriging the network corrects a reference: its values are what the kriged smile leaves
of the quotes, amplified, and what it says is added to the slopes of a transport that prices that
smile. The reference follows the quotes by a formula that is not trained. It is geometry like σ: the
other stream sees it, and the constant holds it fixed.

Several looks: each reads its own smile back off the state, embeds what is left of the quotes, and
corrects the state, as a boosted or unrolled least-squares method would.

Shapes: B chains, L slices, S quotes, H heads, n knots.
"""

from __future__ import annotations

import math
from typing import NamedTuple, cast

import torch
from torch import Tensor, nn

from arbiter_lab.differentiable.operators import slope_head
from arbiter_lab.differentiable.operators.law.green_scan import Path
from arbiter_lab.differentiable.operators.law.spectral_projection import Aligned, align, maps
from arbiter_lab.differentiable.operators.network import shrinkage
from arbiter_lab.differentiable.operators.network.config import Config
from arbiter_lab.differentiable.operators.network.convex_decoder import ICNNDecoder
from arbiter_lab.differentiable.operators.network.geometry_stream import (
    RESIDUAL_GAIN,
    Context,
    at_knots,
    carried,
    missed,
    open_to_change,
)
from arbiter_lab.differentiable.operators.network.green_scan import GreenScan
from arbiter_lab.differentiable.operators.network.maturity_pooling import (
    POOLED_ROWS,
    pool,
    precision,
)
from arbiter_lab.differentiable.operators.network.measure_gate import Gate, Sight, places
from arbiter_lab.differentiable.operators.network.representer import Representer
from arbiter_lab.differentiable.operators.prior.gaussian_process import Kriged, kriged
from arbiter_lab.differentiable.operators.prior.reference_volatility import Scaled, scaled
from arbiter_lab.differentiable.operators.quote_tensors import Ragged

SILU = 1.1  # its slopes lie within −0.0999 and 1.0999
# what gains are before anything is learned, under their hyperbolic tangent
VIEW_GAIN, DIRECT_GAIN, MEND_GAIN = 1.0, 2.0, 1.0


class Output(NamedTuple):
    """What the operator says of a batch of chains.

    Attributes:
        slopes: ``(B, L, n)`` in the star order.
        proposal: ``(B, L, n)`` what the head proposed, ``log(slope/σ√T)``.
        chain: The chain in its own units.
        sight: What the gate of the first look saw; its measure is *the* measure.
        features: ``(B, L, d)`` the state behind the head.
        moved: ``(B,)`` by how many standard errors of the reference the whole change would have
            moved the smile; None where nobody asked, or there is no reference.
    """

    slopes: Tensor
    proposal: Tensor
    chain: Scaled
    sight: Sight
    features: Tensor
    moved: Tensor | None = None


def row_budget(config: Config) -> float:
    """Largest norm of a row that reads the state: the budget over about the reach of the view."""
    lines = 5.0 * config.heads * (1.0 + POOLED_ROWS**2 * len(config.spans))
    return config.budget / math.sqrt(lines + 6.125)


def activation(x: Tensor) -> Tensor:
    """SiLU over its Lipschitz constant."""
    return nn.functional.silu(x) / SILU


class Seen(NamedTuple):
    """What a look has before it: a chain, what its gate sees of it, and the kriged guess."""

    chain: Scaled
    sight: Sight
    guess: Kriged | None


class Look(nn.Module):
    """One look at the quotes: embed, carry along maturities, mix.

    Args:
        config: Of the network.
        first: Whether there is no state yet to read a smile off.
    """

    def __init__(self, config: Config, first: bool) -> None:
        super().__init__()
        d, m, budget = config.width, config.state, config.budget
        self.spans, self.causal = config.spans, not config.adjoint
        seen = config.lines + 2
        kind = Representer if config.representer else Gate
        self.gate = kind(config.heads, config.reach, learned=config.gate)
        self.gains = nn.Linear(config.context, seen)
        self.enter = Aligned(seen, d, budget)
        self.enter_bias = nn.Linear(config.context, d)

        def scan() -> GreenScan:
            return GreenScan(
                d,
                m,
                config.rank,
                config.context,
                kind=config.scan,
                budget=0.5 * budget,
                guarded=config.guard,
            )

        self.forth = scan()
        self.back = scan() if config.adjoint else None
        self.from_forth = Aligned(m, d, budget)
        self.from_back = Aligned(m, d, budget) if config.adjoint else None
        self.across = Aligned(d, d, budget)
        self.up = Aligned(d, 2 * d, 0.7 * budget)
        self.down = Aligned(2 * d, d, 0.7 * budget, gain=0.3)
        self.up_bias = nn.Linear(config.context, 2 * d)
        each = row_budget(config)
        self.read = None if first else Aligned(d, config.heads, each, gain=0.5 * each, rows=True)

    def smile(self, chain: Scaled, v: Tensor) -> Tensor:
        """What the state ``v`` says the quotes should be, ``(B, L, S)``: hats between nodes."""
        if self.read is None:
            raise ValueError("the first look has no state to read a smile off")
        return self.gate.at_quotes(self.read(v), chain.zeta)

    def left(self, seen: Seen, v: Tensor | None) -> Tensor:
        """``(B, L, S)`` what reference and state leave of the quotes."""
        chain, rest = seen.chain, seen.chain.u
        if seen.guess is not None:
            rest = RESIDUAL_GAIN * (rest - self.gate.at_quotes(seen.guess.smile, chain.zeta))
        if v is not None:
            rest = rest - self.smile(chain, v)
        return rest * chain.quoted

    def view(self, seen: Seen, rest: Tensor) -> Tensor:
        """``(B, L, lines + 2)`` the rest under every head, and pooled along maturities."""
        own = self.gate.look(seen.sight, seen.chain, rest)
        lines, means = own.split([2 * self.gate.heads, 2], -1)
        parts = [lines]
        if self.spans:
            weight = precision(seen.sight)
            parts.append(pool(lines, weight, seen.chain, self.spans, self.causal))
        return torch.cat([*parts, means], -1)

    def embedded(self, context: Tensor, view: Tensor) -> Tensor:
        """``(B, L, d)`` what is seen of the quotes, before its activation."""
        gained = view * torch.tanh(VIEW_GAIN + self.gains(context))
        entered: Tensor = self.enter(gained) + self.enter_bias(context)
        return entered

    def spread(self, chain: Scaled, context: Tensor, x: Tensor) -> Tensor:
        """``(B, L, d)`` inputs of all slices carried to each."""
        scans = [self.forth] if self.back is None else [self.forth, self.back]
        path = Path(x, chain.gap, context, chain.quoted.any(-1))
        states = carried(scans, path, chain.ahead)
        moved: Tensor = self.across(x) + self.from_forth(states[0])
        return moved if self.from_back is None else moved + self.from_back(states[1])

    def forward(self, chain: Scaled, context: Tensor, view: Tensor, v: Tensor | None) -> Tensor:
        """The state ``(B, L, d)`` after this look, from the state before it (None: none yet)."""
        x = activation(self.embedded(context, view)) * chain.quoted.any(-1)[..., None]
        moved = self.spread(chain, context, x)
        v = moved if v is None else v + moved
        mixed: Tensor = self.down(activation(self.up(v) + self.up_bias(context)))
        return v + mixed


def read_off(gate: Gate, config: Config) -> Tensor:
    """``(n, lines + 2)`` slopes straight off a smile, where training starts: ``g = u + z ∂u/∂z``.

    To first order in the smile's departure from flat, ``b = ∂(z·iv)/∂z`` at z equal to the knot.
    Own smiles and pooled ones count alike. Where there is a reference nothing is left to do.
    """
    if config.kriging:
        return torch.zeros(len(slope_head.KNOTS), config.lines + 2)
    zeta = torch.asinh(torch.tensor(slope_head.KNOTS)).clamp(-config.reach[0], config.reach[1])
    hats = at_knots(gate.place)
    # the steepness of a bump's line is noisy: an average over its neighbours
    spread = torch.exp(-0.5 * ((zeta[:, None] - gate.place) / 0.3) ** 2)
    spread = spread / spread.sum(1, keepdim=True)
    lean = torch.tanh(zeta)[:, None]
    none = torch.zeros(len(slope_head.KNOTS), 2)
    views = 1 + len(config.spans)
    lines = torch.cat([hats, lean * spread / torch.exp(gate.log_width)], 1)
    return torch.cat([lines.repeat(1, views) / views, none], 1)


class Network(nn.Module):
    """Looks and head. ``forward`` takes quotes in their own units.

    Args:
        config: Sizes and switches; the default ones if left out.
    """

    knots: Tensor
    hats: Tensor

    def __init__(self, config: Config | None = None) -> None:
        super().__init__()
        self.config = config = Config() if config is None else config
        self.looks = nn.ModuleList(Look(config, first=i == 0) for i in range(config.looks))
        self.context = Context(config)
        knots = torch.tensor(slope_head.KNOTS, dtype=torch.float64)
        self.register_buffer("knots", knots, persistent=False)
        hats = at_knots(places(config.heads, config.reach))
        self.register_buffer("hats", hats, persistent=False)
        self.base = nn.Linear(config.context, len(slope_head.KNOTS))
        each = row_budget(config)
        # next to nothing is added to a reference before anything is learned
        gain = (0.02 if config.kriging else 0.2) * each
        self.last = Aligned(config.width, len(slope_head.KNOTS), each, gain=gain, rows=True)
        self.direct = Aligned(config.lines + 2, len(slope_head.KNOTS), 2.0 * config.budget)
        self.direct_gains = nn.Linear(config.context, config.lines + 2)
        with torch.no_grad():
            self.direct.weight.copy_(read_off(self.stages()[0].gate, config))
            self.direct_gains.weight.mul_(0.1)
        nn.init.zeros_(self.base.weight)
        nn.init.zeros_(self.base.bias)
        # what the start misses of its smile, to first order in slopes, by the slice's own gains
        self.mend = (
            nn.Linear(config.heads, len(slope_head.KNOTS), bias=False) if config.kriging else None
        )
        self.mend_gains = nn.Linear(config.context, config.heads) if config.kriging else None
        if self.mend is not None:
            nn.init.zeros_(self.mend.weight)
        # the paper's own decoder reads the features; last, so that it moves no other start
        self.icnn = ICNNDecoder(config.width) if config.decoder == "icnn" else None

    def stages(self) -> list[Look]:
        """The looks, in order."""
        return [cast(Look, look) for look in self.looks]

    def align(self) -> Tensor:
        """Q-Align in place, by the configured rule: how far the maps moved (0 if it is off)."""
        if not self.config.align:
            return self.direct.weight.new_zeros(())
        return align(maps(self), self.config.alignment)

    def forward(self, quotes: Ragged) -> Output:
        """Slopes of each chain; maturities without a quote get theirs from their neighbours.

        What :meth:`decode` proposes, as far as it can be trusted
        (:mod:`arbiter_lab.differentiable.operators.network.shrinkage`).
        """
        chain = scaled(quotes)
        guess = self.guess(chain)
        found = self.decode(chain, guess)
        return found if guess is None else self.trusted(found, guess)

    def trusted(self, found: Output, guess: Kriged) -> Output:
        """What :meth:`decode` found, drawn towards the start as far as it is out of its depth."""
        chain, gate = found.chain, self.stages()[0].gate
        proposal, moved, _, _ = shrinkage.trusted(found.proposal, guess, chain, gate)
        slopes = slope_head.slopes(proposal, chain.total.double())
        kind = found.slopes.dtype
        return found._replace(
            slopes=slopes.to(kind), proposal=proposal.to(kind), moved=moved.to(kind)
        )

    def guess(self, chain: Scaled) -> Kriged | None:
        """What kriging makes of these chains, if it is wanted; no weight has a part in it."""
        return kriged(chain, self.stages()[0].gate.place) if self.config.kriging else None

    def mended(self, guess: Kriged, context: Tensor) -> Tensor:
        """``(B, L, n)`` what is added for the sake of the smile alone."""
        assert self.mend is not None
        assert self.mend_gains is not None
        added: Tensor = self.mend(missed(guess) * torch.tanh(MEND_GAIN + self.mend_gains(context)))
        return added

    def decode(self, chain: Scaled, guess: Kriged | None = None) -> Output:
        """The same for a chain that is in its own units already, and its :meth:`guess`."""
        guess = self.guess(chain) if guess is None else guess
        first, *others = self.stages()
        sight: Sight = first.gate(chain)
        context = self.context(chain, sight, first.gate.place, guess)
        seen = Seen(chain, sight, guess)
        view = first.view(seen, first.left(seen, None))
        v: Tensor = first(chain, context, view, None)
        for look in others:
            seen = Seen(chain, look.gate(chain), guess)
            v = look(chain, context, look.view(seen, look.left(seen, v)), v)
        straight = view * torch.tanh(DIRECT_GAIN + self.direct_gains(context))
        proposal = self.base(context) + self.last(v) + self.direct(straight)
        if guess is not None:
            change = proposal * open_to_change(guess, self.hats)
            proposal = guess.start + change + self.mended(guess, context)
        proposal = slope_head.bounded(proposal, None if guess is None else guess.start)
        return Output(slope_head.slopes(proposal, chain.total), proposal, chain, sight, v)
