"""The network: looks that read a law's misfits, scan them and write a change.

Two streams. *Geometry* says where quotes are, how good, and what the prior is; an ordinary network
of it selects. *Values* go through aligned maps, activations of slope at most one and the scans
alone. What a look writes is shrunk to the prior where the prior knows better.

Here it only runs; :mod:`arbiter_lab.differentiable.operators.law` has the same parts with
gradients. Maps are in single precision, the law in double.

Shapes: B chains of L slices, N quotes of all chains, H heads, n knots, c width of the geometry.
"""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import numpy as np

from arbiter.conventions import Array
from arbiter.operators import slope_head
from arbiter.operators.law.config import (
    BASE_GAIN,
    DIRECTIONS,
    HALF_SETTLED_ERROR,
    SILU,
    LawConfig,
)
from arbiter.operators.law.green_scan import GreenScans, Walk
from arbiter.operators.law.proposal import Law, integrate_laws, price_law, prior_law
from arbiter.operators.law.reading import Heads, Reading, law_vega, misfit
from arbiter.operators.law.single_precision import fill_silu
from arbiter.operators.law.views import fill_geometry, fill_shifts, fill_views
from arbiter.operators.law.weights import Weights, select_weights
from arbiter.operators.matrix_products import LinearMap, Rough
from arbiter.operators.prior.gaussian_process import Kriged
from arbiter.operators.prior.reference_volatility import Scaled
from arbiter.operators.slope_head import KNOTS
from arbiter.pricing import black


class LawTask(NamedTuple):
    """Chains in their own units, with their prior.

    Attributes:
        chain: The chains.
        mid: ``(N,)`` mid prices, out of the money.
        prior: What the Gaussian process says.
    """

    chain: Scaled
    mid: Array
    prior: Kriged

    @staticmethod
    def from_chain(chain: Scaled, prior: Kriged) -> LawTask:
        """The task of chains."""
        quotes = chain.quotes
        T = quotes.T.ravel()[quotes.row]
        return LawTask(chain, black.otm(quotes.k, quotes.iv * np.sqrt(T)), prior)


class Proposal(NamedTuple):
    """What the network says of a batch.

    Attributes:
        laws: The law after each look, the prior's first.
        missed: ``(N,)`` what mids are off in log-volatility under the prior's law.
        error: ``(B, L, n)`` what the prior's log-volatility may be off at the knots' strikes.
    """

    laws: tuple[Law, ...]
    missed: Array
    error: Array

    @property
    def law(self) -> Law:
        """The last one."""
        return self.laws[-1]


class Geometry:
    """The geometry stream: what each slice can know, and what its neighbours can.

    Args:
        weights: Of the stream.
        config: Of the network.
    """

    def __init__(self, weights: Weights, config: LawConfig) -> None:
        self.own = _affine(weights, "own")
        self.mix = _affine(weights, "mix")
        self.carry = GreenScans(_parts(weights, "carry"), np.float32)
        bias = self.carry.select_bias.astype(np.float32)
        self.select = LinearMap.from_weight(self.carry.select.astype(np.float32), bias)
        weight = weights["join.weight"].astype(np.float32)
        ends = config.context + config.state * np.arange(DIRECTIONS)
        first, *states = np.split(weight, ends, 1)
        join = np.concatenate([first, self.carry.take_states(states)], 1)
        self.join = LinearMap.from_weight(join, weights["join.bias"].astype(np.float32))

    def __call__(self, task: LawTask, reading: Reading, walk: Walk) -> Rough:
        """``(B, L, c)`` of each slice among its neighbours."""
        chain, prior = task.chain, task.prior
        known = np.empty((len(reading.mass), len(self.own.weight)), np.float32)
        slices = (chain.quotes.ends, chain.total, chain.gap)
        fill_geometry(reading, slices, (prior.doubt, prior.smile), known)
        own = silu(self.own(known))
        own = (silu(self.mix(own)) + own).reshape(*walk.seen.shape, -1)
        states = self.carry(own, np.tanh(self.select(own)), walk)
        return np.asarray(own + silu(self.join(np.concatenate([own, states], -1))))


class Look:
    """One look: a view of misfits is entered, scanned, mixed and written.

    Args:
        weights: Of the look.
        config: Of the network.
    """

    def __init__(self, weights: Weights, config: LawConfig) -> None:
        self.heads = Heads(select_weights(weights, "heads"), config.unread_mass)
        self.scans = GreenScans(_parts(weights, "scans"), np.float32, gain=1.0 / SILU)
        outs = [weights[f"from_scans.{i}.weight"].astype(np.float32) for i in range(DIRECTIONS)]
        across = weights["across.weight"].astype(np.float32) / np.float32(SILU)
        onward = np.concatenate([across, self.scans.take_states(outs)], 1)
        self.onward = LinearMap.from_weight(onward)
        self.enter, self.up, self.direct = (
            _affine(weights, name, biased=False) for name in ("enter", "up", "direct")
        )
        down = weights["down.weight"].astype(np.float32) / np.float32(SILU)
        self.down = LinearMap.from_weight(down)
        last = np.concatenate([weights["last.weight"], weights["free_shift.weight"]])
        self.last = LinearMap.from_weight(last.astype(np.float32))
        self.tilt = weights["tilt"].astype(np.float64)
        self.tilt_of_prior = weights["tilt_of_prior.weight"].T.astype(np.float64, order="C")
        # all that takes the context in one map, the last ones by their hyperbolic tangents
        told = [(weights[f"{name}.weight"], weights[f"{name}.bias"]) for name in _TOLD]
        told += [(weights[f"{name}.weight"], weights[f"{name}.bias"] + 1.0) for name in _GAINS]
        told.append((weights["tilt_gains.weight"], weights["tilt_gains.bias"]))
        told.append((self.scans.select, self.scans.select_bias))
        weight, bias = (np.concatenate(part).astype(np.float32) for part in zip(*told, strict=True))
        self.told = LinearMap.from_weight(weight, bias)
        ends = np.cumsum([0] + [len(own) for own, _ in told]).tolist()
        self.parts = tuple(slice(*each) for each in pairwise(ends))

    def __call__(
        self, law: Law, task: LawTask, reading: Reading, streams: tuple[Rough, Walk, Array]
    ) -> Law:
        """The law after this look.

        Args:
            law: Before.
            task: The chains.
            reading: What is read under that law.
            streams: The context ``(B, L, c)``, the walk, and ``(B, L, n)`` which share of a change
                is made.
        """
        (context, walk, share), start = streams, task.prior.start
        told = self.told(context)
        bounded = told[..., self.parts[len(_TOLD)].start :]
        np.tanh(bounded, out=bounded)
        parts = (told[..., own] for own in self.parts)
        enter_bias, up_bias, base, _, _, leaning, _ = parts
        views = np.empty((2, *walk.seen.shape, len(self.enter.weight)), np.float32)
        fill_views(reading.said, law.log_ratio, start, told[..., self.parts[3].start :], views)
        x = self.enter(views[0])
        x += enter_bias
        x = silu(x)
        x *= walk.seen[..., None]
        v = self.onward(np.concatenate([x, self.scans(x, told, walk)], -1))
        mixed = self.up(v)
        mixed += up_bias
        v += self.down(silu(mixed))
        change = self.last(v)
        written = change[..., :-1] + self.direct(views[1]) + np.float32(BASE_GAIN) * base
        after = slope_head.bounded(law.log_ratio + share * written, start)
        # what that does to the mean, as far as it was learned
        shift = np.empty_like(law.shift)
        laws = (law.log_ratio, law.shift, start, after, task.chain.total)
        fill_shifts(laws, share, change, leaning, (self.tilt, self.tilt_of_prior), shift)
        return Law(after, shift)


_TOLD, _GAINS = ("enter_bias", "up_bias", "base"), ("gains", "direct_gains")


class LawNetwork:
    """Looks at the misfits of quotes under a law, beginning with the prior's.

    Args:
        weights: As :func:`arbiter.operators.law.weights.describe_weights` lists them.
        config: Sizes.
    """

    def __init__(self, weights: Weights, config: LawConfig) -> None:
        self.config, self.places = config, config.places()
        self.geometry = Geometry(select_weights(weights, "geometry"), config)
        parts = (select_weights(weights, f"looks.{i}") for i in range(config.looks))
        self.looks = [Look(part, config) for part in parts]
        self.hats = at_knots(self.places)

    def __call__(self, task: LawTask) -> Proposal:
        """The laws of each chain."""
        chain, prior, config = task.chain, task.prior, self.config
        quotes, relative = chain.quotes, np.exp(chain.noise)
        slices = integrate_laws(prior.start, chain.total)
        laws, error, context = [prior_law(prior.start, slices)], self.errors(prior), None
        share = error / (error + HALF_SETTLED_ERROR)  # little where the prior knows better
        walk = Walk(np.stack([chain.gap, chain.ahead]).astype(np.float32), quotes.listed)
        per_quote, misfits = chain.total.ravel()[quotes.row], []
        for look in self.looks:
            if context is not None:
                slices = integrate_laws(laws[-1].log_ratio, chain.total)
            seen = price_law(laws[-1], slices, quotes.row, quotes.k)
            vega = law_vega(quotes.k, seen.x, per_quote)
            misfits.append(misfit(task.mid, seen.price, vega, config.largest_misfit))
            reading = look.heads.read(seen.x, misfits[-1], relative, quotes.ends)
            if context is None:
                context = self.geometry(task, reading, walk)
            laws.append(look(laws[-1], task, reading, (context, walk, share)))
        return Proposal(tuple(laws), misfits[0], error)

    def errors(self, prior: Kriged) -> Array:
        """``(B, L, n)`` what the prior's log-volatility may be off at the strikes of the knots."""
        error = np.sqrt(np.exp(2.0 * prior.doubt) + prior.miss**2)
        return np.asarray(np.einsum("blh,nh->bln", error, self.hats))  # by one thread


def at_knots(place: Array) -> Array:
    """``(n, P)`` from places to the knots whose deviations are theirs, linear between."""
    zeta = np.clip(np.arcsinh(np.array(KNOTS)), place[0], place[-1])
    away = np.abs(zeta[:, None] - place) / (place[1] - place[0])
    return np.asarray(np.maximum(1.0 - away, 0.0))


def silu(x: Rough) -> Rough:
    """``x/(1 + e^{−x})``; in place where x is in one piece."""
    row = x.reshape(-1)
    fill_silu(row)
    return row.reshape(x.shape)


def _parts(weights: Weights, name: str) -> list[dict[str, Rough]]:
    return [select_weights(weights, f"{name}.{i}") for i in range(DIRECTIONS)]


def _affine(weights: Weights, name: str, *, biased: bool = True) -> LinearMap:
    bias = weights[f"{name}.bias"].astype(np.float32) if biased else None
    return LinearMap.from_weight(weights[f"{name}.weight"].astype(np.float32), bias)
