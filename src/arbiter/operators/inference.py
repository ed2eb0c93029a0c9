"""The network for one purpose: a forward pass on the CPU, as quick as the arithmetic allows.

The same function as :class:`~arbiter.operators.network.Network`, to rounding, which a test asserts.
Quotes lie in one row without padding, and integrals over strikes are products with a sparse matrix.
Generators of the scans are symmetric and fixed: in their eigenvectors a scan is one multiplication
per maturity and state. What depends on the same input is one product. Maps are float32; levels,
integrals over strikes and slopes, where differences of near numbers matter, are float64.

Shapes: N quotes of all chains, M = B·L slices, H heads, D directions, m states.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import deepcopy
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import csr_array
from torch import Tensor
from torch.nn.functional import linear, silu, softplus

from arbiter.operators import gate as gates
from arbiter.operators import head
from arbiter.operators import scan as scans
from arbiter.operators.gate import Gate, Sight
from arbiter.operators.kriging import Kriged, krige, kriged
from arbiter.operators.network import Look, Network, activation
from arbiter.operators.pooling import pool, precision
from arbiter.operators.ragged import Ragged
from arbiter.operators.reference import Scaled, scaled
from arbiter.operators.scan import GreenScan

Array = NDArray[np.float64]


class Flat(NamedTuple):
    """Quotes of a batch in one row, and the slices that they belong to.

    Attributes:
        quotes: Every quote as a slice of its own, ``(1, N, 1)``: what a gate takes.
        row: ``(N,)`` slice of each quote, nondecreasing.
        ends: ``(M + 1,)`` where the quotes of each slice begin.
        powers: ``(3M, N)`` sums over slices of 1, ζ and ζ², sparse.
        rough: The quotes in the precision of the maps.
    """

    quotes: Scaled
    row: Tensor
    ends: NDArray[np.int64]
    powers: csr_array
    rough: Scaled

    @property
    def slices(self) -> int:
        """M."""
        return self.ends.size - 1

    def sums(self, *weights: Tensor) -> csr_array:
        """Sums over slices with several sets of weights ``(N,)``, one below the other."""
        return _sums(self.ends, [weight.numpy() for weight in weights])


def _sums(ends: NDArray[np.int64], weights: Sequence[Array]) -> csr_array:
    count = int(ends[-1])
    places = np.concatenate([ends[:-1] + count * i for i in range(len(weights))] + [[0]])
    places[-1] = count * len(weights)
    columns = np.tile(np.arange(count), len(weights))
    shape = ((ends.size - 1) * len(weights), count)
    return csr_array((np.concatenate(weights), columns, places), shape=shape)


def flat(chain: Scaled, dtype: torch.dtype) -> Flat:
    """A batch without its padding."""
    quoted = chain.quoted
    count = quoted.sum(-1).flatten().numpy()  # (M,)
    ends = np.concatenate([[0], np.cumsum(count)])
    row = torch.from_numpy(np.repeat(np.arange(count.size), count))

    def each(x: Tensor) -> Tensor:  # (B, L, S)
        return x[quoted][None, :, None]

    zeta = each(chain.zeta)
    total = chain.total.flatten()[row][None]
    quotes = chain._replace(
        total=total,
        zeta=zeta,
        u=each(chain.u),
        noise=each(chain.noise),
        moneyness=each(chain.moneyness),
        spacing=each(chain.spacing),
        width=each(chain.width),
        quoted=torch.ones_like(zeta, dtype=torch.bool),
    )
    z = zeta.flatten().numpy()
    rough = Scaled(*(x if x.dtype == torch.bool else x.to(dtype) for x in quotes))
    return Flat(quotes, row, ends, _sums(ends, [np.ones_like(z), z, z * z]), rough)


class Seen(NamedTuple):
    """What the heads see of each slice; as :class:`~arbiter.operators.gate.Sight`, in rows."""

    w: Array  # (N, H) weights before normalisation
    mass: Tensor  # (M, H)
    centre: Tensor  # (M, H)
    spread: Tensor  # (M, H)
    measure: Tensor  # (N,) the measure's weight of each quote, of sum one over a slice

    def sight(self, shape: Sequence[int], doubt: Tensor) -> Sight:
        """What pooling needs to know of it, in the shape of a batch."""
        none = torch.empty(0)
        mass, sure = torch.log(self.mass).view(*shape, -1), doubt.view(*shape, -1)
        return Sight(none, none, none, mass, sure, none, none)


class Known(NamedTuple):
    """A batch in its own units, and what kriging is for it."""

    chain: Scaled
    guess: Kriged | None


class Eye:
    """A gate, frozen.

    Args:
        gate: Its densities.
        dtype: Precision of its network.
    """

    def __init__(self, gate: Gate, dtype: torch.dtype) -> None:
        self.gate = deepcopy(gate).to(dtype)
        self.place, self.width = gate.place.double(), torch.exp(gate.log_width.double())
        self.ridge = gates._RIDGE * self.width * self.width

    def see(self, batch: Flat) -> Seen:
        """What its heads see of every slice."""
        quotes, H = batch.quotes, self.gate.heads
        found = self.gate._logits(batch.rough)
        logit, measure_logit = (x.reshape(batch.row.numel(), -1) for x in found)
        # single precision times double is double
        w = softplus(logit.clamp(min=gates._LOWEST)) * quotes.spacing.flatten()[:, None]
        sums = torch.from_numpy(batch.powers @ w.numpy()).view(3, -1, H)
        mass = sums[0].clamp(min=gates._LEAST_MASS)
        centre = sums[1] / mass
        raw = softplus(measure_logit[:, 0].double().clamp(min=gates._LOWEST))
        raw = raw * quotes.width.flatten()
        total = torch.from_numpy(_sums(batch.ends, [raw.numpy()]).sum(1)).clamp(
            min=gates._LEAST_MASS
        )
        spread = (sums[2] / mass - centre * centre).clamp(min=0.0)
        return Seen(w.numpy(), mass, centre, spread, raw / total[batch.row])

    def doubt(self, seen: Seen, batch: Flat) -> Tensor:
        """``(M, H)`` logarithm of the standard error of each head's mean."""
        variance = torch.exp(2.0 * batch.quotes.noise.flatten())
        error = torch.from_numpy(batch.sums(variance) @ np.square(seen.w)) / seen.mass.square()
        return 0.5 * torch.log(error + 1e-8)

    def look(self, seen: Seen, batch: Flat, values: Tensor) -> Tensor:
        """``(M, 2H + 2)`` local lines of values ``(N,)``."""
        zeta = batch.quotes.zeta.flatten()
        sums = torch.from_numpy(batch.sums(values, values * zeta) @ seen.w)
        mean, cross = (sums.view(2, batch.slices, -1) / seen.mass).unbind(0)
        lean = (cross - mean * seen.centre) / (seen.spread + self.ridge)
        off = torch.maximum(torch.minimum(self.place - seen.centre, self.width), -self.width)
        weight = seen.measure * values.clamp(-gates.LARGEST, gates.LARGEST)
        level = _sums(batch.ends, [weight.numpy(), (weight * torch.tanh(zeta)).numpy()]).sum(1)
        pair = torch.from_numpy(level).view(2, batch.slices).T
        return torch.cat([mean + off * lean, self.width * lean, pair], -1)


class Carrier:
    """Scans of one place, forth or forth and back, in the eigenvectors of their generators.

    Args:
        parts: One scan or two.
    """

    def __init__(self, parts: Sequence[GreenScan]) -> None:
        self.kind, self.guarded = parts[0].kind, parts[0].guarded
        self.select = torch.cat([part.select.weight for part in parts])
        self.select_bias = torch.cat([part.select.bias for part in parts])
        self.enter = torch.cat([part.enter.weight for part in parts])
        generators = [deepcopy(part.generator).double() for part in parts]
        pairs = [torch.linalg.eigh(generator.dense()) for generator in generators]
        rates = torch.stack([values for values, _ in pairs])[:, None, None]
        self.rates = rates.to(self.enter)  # (D, 1, 1, m)
        self.vectors = torch.stack([vectors for _, vectors in pairs]).to(self.enter)  # (D, m, m)
        radius = torch.stack([generator.radius() for generator in generators])
        self.limit = ((1.0 - scans.EPSILON) / radius).to(self.enter)

    def __call__(self, x: Tensor, choice: Tensor, gaps: Tensor, seen: Tensor) -> Tensor:
        """``(B, L, D·m)`` states in eigenvectors, of inputs ``(B, L, d)`` where anything is seen.

        Args:
            x: Inputs.
            choice: ``(B, L, D·(1 + m))`` what the geometry selects.
            gaps: ``(D, B, L)`` log-maturities to the slice before, and to the one after.
            seen: ``(B, L)``.
        """
        D, m = self.rates.shape[0], self.rates.shape[-1]
        chosen = choice.unflatten(-1, (D, 1 + m)).movedim(2, 0)  # (D, B, L, 1 + m)
        step = gaps * torch.exp(scans._SELECTION * torch.tanh(chosen[..., 0]))
        step = step.clamp(min=scans._SMALLEST)
        longest = self.limit[:, None, None]
        if self.guarded:
            step = torch.minimum(step, longest)
        strength = scans.MU * step / (1.0 + scans.MU * (longest if self.guarded else step))
        gate = (strength * seen)[..., None] * torch.tanh(scans._OPEN + chosen[..., 1:])
        entered = (x @ self.enter.T).unflatten(-1, (D, m)).movedim(2, 0)
        drive = (gate * entered).flatten(1, 2) @ self.vectors
        drive = drive.view(D, *x.shape[:2], m)
        by = step[..., None] * self.rates
        fade = 1.0 / (1.0 - by) if self.kind == "resolvent" else torch.exp(by)
        if D == 2:  # the way back, turned round to be walked with the way forth
            drive = torch.stack([drive[0], drive[1].flip(1)])
            fade = torch.stack([fade[0], fade[1].flip(1)])
        states = drive.clone()
        for i in range(1, x.shape[1]):
            states[:, :, i].addcmul_(fade[:, :, i], states[:, :, i - 1])
        return torch.cat([states[0], *(states[1:].flip(2).unbind(0))], -1)

    def out(self, weights: Sequence[Tensor]) -> Tensor:
        """``(…, D·m)`` maps that take states, made to take them in eigenvectors."""
        return torch.cat([w @ v for w, v in zip(weights, self.vectors, strict=True)], 1)


class Stage:
    """A look, frozen.

    Args:
        look: Its maps.
    """

    def __init__(self, look: Look) -> None:
        self.eye = Eye(look.gate, look.enter.weight.dtype)
        self.spans, self.causal = look.spans, look.causal
        parts = [look.forth] if look.back is None else [look.forth, look.back]
        self.carrier = Carrier(parts)
        outs = [look.from_forth] + ([] if look.from_back is None else [look.from_back])
        self.onward = torch.cat(
            [look.across.weight, self.carrier.out([out.weight for out in outs])], 1
        )
        sources = [look.gains, look.enter_bias, look.up_bias]
        self.weight = torch.cat([*(s.weight for s in sources), self.carrier.select])
        self.bias = torch.cat([*(s.bias for s in sources), self.carrier.select_bias])
        self.sizes = [s.out_features for s in sources] + [self.carrier.select.shape[0]]
        self.enter, self.up, self.down = look.enter.weight, look.up.weight, look.down.weight
        self.read = None if look.read is None else look.read.weight

    def view(self, seen: Seen, batch: Flat, known: Known, values: Tensor) -> Tensor:
        """``(B, L, lines + 2)`` values ``(N,)``: under every head, pooled, and kriged."""
        chain = known.chain
        shape = chain.total.shape
        own = self.eye.look(seen, batch, values).view(*shape, -1)
        lines, means = own.split([own.shape[-1] - 2, 2], -1)
        parts = [lines]
        if self.spans:
            weight = precision(seen.sight(shape, self.eye.doubt(seen, batch)))
            parts.append(pool(lines, weight, chain, self.spans, self.causal))
        if known.guess is not None:
            padded = torch.zeros_like(chain.u).masked_scatter_(chain.quoted, values)
            parts.append(krige(known.guess, padded, self.eye.gate.place))
        return torch.cat([*parts, means], -1)


class Inference:
    """A network that only runs.

    Args:
        network: Its weights are copied.
        dtype: Precision of the maps.
    """

    def __init__(self, network: Network, dtype: torch.dtype = torch.float32) -> None:
        self.dtype = dtype
        with torch.no_grad():
            network = deepcopy(network).to(dtype)
            self.stages = [Stage(look) for look in network.stages()]
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
            self.gains, self.base = network.direct_gains, network.base
            self.kriging = network.config.kriging

    @torch.inference_mode()
    def __call__(self, quotes: Ragged) -> tuple[Array, Array]:
        """Slopes ``(B, L, n)`` and ``log(σ√T)`` ``(B, L)`` of chains in float64."""
        chain = scaled(quotes)
        place = self.stages[0].eye.gate.place
        known = Known(chain, kriged(chain, place) if self.kriging else None)
        batch = flat(chain, self.dtype)
        seen = chain.quoted.any(-1)
        gaps = torch.stack([chain.gap, chain.ahead])[: self.around.rates.shape[0]].to(self.dtype)
        first = self.stages[0].eye
        sight = first.see(batch)
        context = self._context(known, batch, sight, gaps)
        v, straight = None, None
        values = batch.quotes.u.flatten()
        for i, stage in enumerate(self.stages):
            sight = sight if i == 0 else stage.eye.see(batch)
            rest = values if v is None else values - _smile(stage, batch, v).double()
            view = stage.view(sight, batch, known, rest).to(self.dtype)
            straight = view if straight is None else straight
            v = self._look(stage, context, view, v, gaps, seen)
        assert v is not None
        assert straight is not None
        direct = straight * torch.tanh(2.0 + self.gains(context))
        proposal = self.base(context) + v @ self.last.T + direct @ self.direct.T
        return head.slopes(proposal.double(), chain.total).numpy(), chain.total.numpy()

    def _context(self, given: Known, batch: Flat, sight: Seen, gaps: Tensor) -> Tensor:
        eye, (chain, guess) = self.stages[0].eye, given
        count = torch.from_numpy(np.diff(batch.ends)).double().view(chain.total.shape)
        seen = count > 0
        known = [
            0.5 * (chain.total + 2.5),
            chain.gap,
            0.4 * torch.log(count + 1.0) - 1.0,
            seen.double(),
        ]
        parts = [
            0.3 * torch.log(sight.mass).clamp(min=-12.0) + 1.0,
            0.5 * (eye.doubt(sight, batch) + 6.0),
            (sight.centre - eye.place).clamp(-2.0, 2.0),
            torch.stack(known, -1).flatten(0, 1),
        ]
        if guess is not None:
            parts.append(0.5 * (guess.doubt.flatten(0, 1) + 6.0))
        own = silu(self.own(torch.cat(parts, -1).to(self.dtype)))
        own = (silu(self.mix(own)) + own).view(*seen.shape, -1)
        choice = linear(own, self.around.select, self.around.select_bias)
        states = self.around(own, choice, gaps, seen)
        return own + silu(linear(torch.cat([own, states], -1), self.join, self.join_bias))

    @staticmethod
    def _look(
        stage: Stage, context: Tensor, view: Tensor, v: Tensor | None, gaps: Tensor, seen: Tensor
    ) -> Tensor:
        every = linear(context, stage.weight, stage.bias)
        gains, entering, rising, choice = every.split(stage.sizes, -1)
        x = activation((view * torch.tanh(1.0 + gains)) @ stage.enter.T + entering)
        x = x * seen[..., None]
        states = stage.carrier(x, choice, gaps, seen)
        moved = torch.cat([x, states], -1) @ stage.onward.T
        v = moved if v is None else v + moved
        return v + activation(v @ stage.up.T + rising) @ stage.down.T


def runner(network: Network) -> Callable[[Ragged], tuple[Array, Array]]:
    """The quickest way to run a network: slopes and ``log(σ√T)`` of chains in float64."""
    if not network.config.representer:
        return Inference(network)
    network = deepcopy(network).double()

    @torch.inference_mode()
    def run(quotes: Ragged) -> tuple[Array, Array]:
        output = network(quotes)
        return output.slopes.numpy(), output.chain.total.numpy()

    return run


def _smile(stage: Stage, batch: Flat, v: Tensor) -> Tensor:
    """``(N,)`` what the state says the quotes should be."""
    assert stage.read is not None
    nodes = v.flatten(0, 1) @ stage.read.T  # (M, H)
    left, share = stage.eye.gate.between(batch.rough.zeta.flatten())
    at = batch.row * nodes.shape[1] + left
    line = nodes.flatten()
    return torch.lerp(line[at], line[at + 1], share)
