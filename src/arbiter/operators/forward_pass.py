"""The network for one purpose: a forward pass on the CPU, as quick as the arithmetic allows.

The same function as :class:`~arbiter.operators.network.network.Network`, to rounding, which a test
asserts. Quotes lie in one row without padding, and levels, kriging and its transport are compiled
(:mod:`~arbiter.operators.quick`), as are gates and scans. What depends on the same input is one
product, and constants that follow a map are part of it. Maps are float32; levels, kriging and
slopes, where differences of near numbers matter, are float64.

Shapes: N quotes of all chains, M = B·L slices, H heads, D directions, m states.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import deepcopy
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import linear, silu

from arbiter.conventions import Array
from arbiter.operators import slope_head, workers
from arbiter.operators.network import green_scan as scans
from arbiter.operators.network.geometry_stream import (
    RESIDUAL_GAIN,
    missed,
    open_to_change,
    referred,
)
from arbiter.operators.network.green_scan import GreenScan
from arbiter.operators.network.maturity_pooling import nearness, pooled, precision
from arbiter.operators.network.network import SILU, Look, Network
from arbiter.operators.prior.gaussian_process import Kriged
from arbiter.operators.quick.elementary import tanh32
from arbiter.operators.quick.flat import flat
from arbiter.operators.quick.gaussian_process import Kriging
from arbiter.operators.quick.green_scan import Steps, entered, walked
from arbiter.operators.quick.measure_gate import Batch, Eye, Seen
from arbiter.operators.quick.reference_volatility import scaled
from arbiter.operators.quick.shrinkage import trusted
from arbiter.operators.quote_tensors import Ragged


class Found(NamedTuple):
    """What a pass makes of B chains, in float64.

    Attributes:
        slopes: ``(B, L, n)`` in the star order.
        total: ``(B, L)`` ``log(σ√T)``.
        moved: ``(B,)`` by how many standard errors of its reference the network would have moved
            the smile (:mod:`arbiter.operators.prior.shrinkage`); 0 where it has none.
        strained: ``(B,)`` by how many of them the star order keeps the start from the smile.
    """

    slopes: Array
    total: Array
    moved: Array
    strained: Array


class Walk(NamedTuple):
    """Steps along maturities.

    Attributes:
        gaps: ``(D, B, L)`` log-maturities to the slice before, and to the one after.
        seen: ``(B, L)`` where anything is quoted.
    """

    gaps: Tensor
    seen: Tensor


class Carrier:
    """Scans of one place, forth or forth and back, in the eigenvectors of their generators.

    Args:
        parts: One scan or two.
        gain: That inputs are short of.
    """

    def __init__(self, parts: Sequence[GreenScan], gain: float = 1.0) -> None:
        self.select = torch.cat([part.select.weight for part in parts])
        # the first of each is a step's, the others are gates: open before anything is chosen
        size = parts[0].enter.weight.shape[0]
        opened = torch.tensor([0.0] + [scans.GATE_BIAS] * size).to(parts[0].select.bias)
        self.select_bias = torch.cat([part.select.bias + opened for part in parts])
        self.enter = torch.cat([part.enter.weight for part in parts]) * gain
        generators = [deepcopy(part.generator).double() for part in parts]
        pairs = [torch.linalg.eigh(generator.dense()) for generator in generators]
        rates = torch.stack([values for values, _ in pairs]).to(self.enter)  # (D, m)
        self.vectors = torch.stack([vectors for _, vectors in pairs]).to(self.enter)  # (D, m, m)
        radius = torch.stack([generator.radius() for generator in generators])
        limit = ((1.0 - scans.EPSILON) / radius).to(self.enter)
        resolvent = parts[0].kind == "resolvent"
        self.steps = Steps(rates.numpy(), limit.numpy(), parts[0].guarded, resolvent)

    def __call__(self, x: Tensor, choice: Tensor, walk: Walk) -> Tensor:
        """``(B, L, D·m)`` states in eigenvectors, of inputs ``(B, L, d)`` where anything is seen.

        Args:
            x: Inputs.
            choice: ``(B, L, D·(1 + m))`` what the geometry selects.
            walk: Along maturities.
        """
        (B, L, _), (D, m) = x.shape, self.steps.rates.shape
        given = x @ self.enter.T
        drive, fade = x.new_empty(2, D, B, L, m)
        known = (walk.gaps, walk.seen, choice.contiguous(), given, drive, fade)
        entered(self.steps, *(part.numpy() for part in known))
        drive = (drive.view(D, B * L, m) @ self.vectors).view(D, B, L, m)
        states = x.new_empty(B, L, D * m)
        walked(drive.numpy(), fade.numpy(), states.numpy())
        return states

    def out(self, weights: Sequence[Tensor]) -> Tensor:
        """``(…, D·m)`` maps that take states, made to take them in eigenvectors."""
        return torch.cat([w @ v for w, v in zip(weights, self.vectors, strict=True)], 1)


class PassStage:
    """A look, frozen.

    Args:
        look: Its maps.
    """

    def __init__(self, look: Look) -> None:
        self.eye = Eye(look.gate, look.enter.weight.dtype)
        parts = [look.forth] if look.back is None else [look.forth, look.back]
        self.carrier = Carrier(parts, 1.0 / SILU)
        outs = [look.from_forth] + ([] if look.from_back is None else [look.from_back])
        self.onward = torch.cat(
            [look.across.weight / SILU, self.carrier.out([out.weight for out in outs])], 1
        )
        self.gains = (look.gains.weight, look.gains.bias + 1.0)
        sources = [look.enter_bias, look.up_bias]
        self.weight = torch.cat([*(s.weight for s in sources), self.carrier.select])
        self.bias = torch.cat([*(s.bias for s in sources), self.carrier.select_bias])
        self.sizes = [s.out_features for s in sources] + [self.carrier.select.shape[0]]
        self.enter, self.up, self.down = look.enter.weight, look.up.weight, look.down.weight / SILU
        self.read = None if look.read is None else look.read.weight

    def __call__(self, told: Tensor, view: Tensor, v: Tensor | None, walk: Walk) -> Tensor:
        """The state ``(B, L, d)`` after this look.

        Args:
            told: ``(B, L, …)`` what the geometry says.
            view: ``(B, L, lines + 2)`` what is seen of the quotes, times its gains.
            v: The state before, if there is one.
            walk: Along maturities.
        """
        entering, rising, choice = told.split(self.sizes, -1)
        x = silu(linear(view, self.enter).add_(entering), inplace=True)
        x.mul_(walk.seen[..., None])
        states = self.carrier(x, choice, walk)
        moved = linear(torch.cat([x, states], -1), self.onward)
        v = moved if v is None else moved.add_(v)
        return v + linear(silu(linear(v, self.up).add_(rising), inplace=True), self.down)


class Inference:
    """A network that only runs.

    Args:
        network: Its weights are copied.
        dtype: Precision of the maps.
    """

    def __init__(self, network: Network, dtype: torch.dtype = torch.float32) -> None:
        workers.keep_memory()
        self.dtype = dtype
        self.config = network.config
        with torch.no_grad():
            network = deepcopy(network).to(dtype)
            self.stages = [PassStage(look) for look in network.stages()]
            gate = network.stages()[0].gate
            self.gate = gate
            self.kriging = Kriging(gate.place) if self.config.kriging else None
            self.hats = network.hats.double()
            context = network.context
            self.own, self.mix = context.own, context.mix
            parts = [part for part in context.carry if isinstance(part, GreenScan)]
            self.around = Carrier(parts)
            split = context.join.weight.split(
                [context.mix.out_features] + [p.enter.weight.shape[0] for p in parts], 1
            )
            self.join = torch.cat([split[0], self.around.out(split[1:])], 1)
            self.join_bias = context.join.bias
            self.last, self.direct = network.last.weight, network.direct.weight
            # all that takes the context, in two maps: gains, and the rest
            gains = [stage.gains for stage in self.stages]
            gains.append((network.direct_gains.weight, network.direct_gains.bias + 2.0))
            if network.mend is not None and network.mend_gains is not None:
                gains.append((network.mend_gains.weight, network.mend_gains.bias + 1.0))
                self.mend = network.mend.weight
            self.gain, self.gain_bias = (torch.cat(part) for part in zip(*gains, strict=True))
            self.gains = [bias.numel() for _, bias in gains]
            base = network.base
            told = [(stage.weight, stage.bias) for stage in self.stages] + [
                (base.weight, base.bias)
            ]
            self.tell, self.tell_bias = (torch.cat(part) for part in zip(*told, strict=True))
            self.told = [bias.numel() for _, bias in told]

    def __call__(self, quotes: Ragged) -> Found:
        """Slopes of chains, and how sure they are."""
        return workers.map_in_threads(self._run, [quotes])[0]

    @torch.inference_mode()
    def _run(self, quotes: Ragged) -> Found:
        chain = scaled(quotes)
        batch = Batch.of(flat(chain), self.dtype)
        guess, polish = (None, None) if self.kriging is None else self.kriging(batch.flat)
        gaps = torch.stack([chain.gap, chain.ahead])[: len(self.around.steps.rates)].to(self.dtype)
        walk = Walk(gaps, chain.quoted.any(-1))
        spans, both = self.config.spans, self.config.adjoint
        near = nearness(chain, spans, not both).to(self.dtype) if spans else None
        sights = [stage.eye.see(batch) for stage in self.stages]
        context = self._context(batch, sights[0], guess, walk)
        *told, base = linear(context, self.tell, self.tell_bias).split(self.told, -1)
        gains = self._opened(context).split(self.gains, -1)
        v, straight = None, None
        left = rest = batch.flat.u
        if guess is not None:
            left = rest = RESIDUAL_GAIN * (rest - self._between(guess.smile, batch))
        *looks, last = gains[: len(self.stages) + 1]
        for stage, sight, known, gain in zip(self.stages, sights, told, looks, strict=True):
            if v is not None:
                assert stage.read is not None
                left = rest - self._between(linear(v, stage.read), batch)
            view = self._view(stage, (sight, near), batch, left)
            straight = view if straight is None else straight
            v = stage(known, view * gain, v, walk)
        assert v is not None
        assert straight is not None
        direct = straight * last
        proposal = (base + linear(v, self.last) + linear(direct, self.direct)).double()
        if guess is not None:
            proposal *= open_to_change(guess, self.hats)
            proposal += guess.start
            off = missed(guess).to(self.dtype) * gains[-1]
            proposal += linear(off, self.mend).double()
        proposal = slope_head.bounded(proposal, None if guess is None else guess.start)
        moved = strained = chain.total.new_zeros(len(chain.total))
        if guess is not None and polish is not None:
            short = polish.missed(proposal)
            proposal, moved, _, strained = trusted(proposal, guess, batch.flat, self.gate, short)
        slopes = slope_head.slopes(proposal, chain.total)
        return Found(slopes.numpy(), chain.total.numpy(), moved.numpy(), strained.numpy())

    def _opened(self, context: Tensor) -> Tensor:
        """``(B, L, …)`` gains, between −1 and 1."""
        gains = linear(context, self.gain, self.gain_bias)
        if self.dtype != torch.float32:
            return torch.tanh(gains)
        tanh32(gains.numpy().reshape(-1))
        return gains

    def _view(
        self, stage: PassStage, seen: tuple[Seen, Tensor | None], batch: Batch, values: Tensor
    ) -> Tensor:
        """``(B, L, lines + 2)`` values ``(N,)`` under every head, and pooled."""
        (sight, near), chain = seen, batch.flat.chain
        shape = chain.total.shape
        lines, means = stage.eye.look(sight, batch, values.to(self.dtype))
        parts = [lines.view(*shape, -1)]
        if near is not None:
            weight = precision(sight).view(*shape, -1) * chain.quoted.any(-1)[..., None]
            parts.append(pooled(parts[0], weight, near))
        return torch.cat([*parts, means.view(*shape, -1)], -1)

    def _context(self, batch: Batch, sight: Seen, guess: Kriged | None, walk: Walk) -> Tensor:
        chain, shape = batch.flat.chain, walk.seen.shape
        count = torch.from_numpy(np.diff(batch.flat.ends)).double().view(shape)
        known = [
            0.5 * (chain.total + 2.5),
            chain.gap,
            0.4 * torch.log(count + 1.0) - 1.0,
            walk.seen.double(),
        ]
        parts = [
            0.3 * sight.mass.clamp(min=-12.0) + 1.0,
            0.5 * (sight.doubt + 6.0),
            sight.centre.clamp(-2.0, 2.0),
            torch.stack(known, -1).flatten(0, 1).to(self.dtype),
        ]
        if guess is not None:
            parts.extend(part.flatten(0, 1).to(self.dtype) for part in referred(guess))
        own = silu(self.own(torch.cat(parts, -1)), inplace=True)
        own = (silu(self.mix(own), inplace=True) + own).view(*shape, -1)
        choice = linear(own, self.around.select, self.around.select_bias)
        states = self.around(own, choice, walk)
        return own + silu(linear(torch.cat([own, states], -1), self.join, self.join_bias))

    def _between(self, nodes: Tensor, batch: Batch) -> Tensor:
        """``(N,)`` numbers ``(B, L, H)`` at the heads, at the quotes."""
        left, share = self.gate.between(batch.zeta)
        at = batch.flat.row * nodes.shape[-1] + left
        line = nodes.to(share.dtype).flatten()
        return torch.lerp(line[at], line[at + 1], share)


def runner(network: Network) -> Callable[[Ragged], Found]:
    """The quickest way to run a network."""
    if not network.config.representer:
        return Inference(network)
    network = deepcopy(network).double()

    @torch.inference_mode()
    def run(quotes: Ragged) -> Found:
        output = network(quotes)
        total = output.chain.total
        none = total.new_zeros(len(total))
        moved = none if output.moved is None else output.moved
        return Found(output.slopes.numpy(), total.numpy(), moved.numpy(), none.numpy())

    return run
