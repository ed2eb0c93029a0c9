"""The risk-neutral operator: ragged quotes in, star-ordered slopes out.

Two streams. *Geometry* (where the quotes are, how wide their spreads, how far apart maturities)
goes through an ordinary network and selects: densities, gains, steps, biases. *Values* (what the
quotes say, ``u = log(iv/σ)``) go through aligned maps, 1-Lipschitz activations and the Green scans
alone. So for given strikes, maturities, spreads and reference volatilities the operator is a
composition of maps with known norms, and its Lipschitz constant is a bound that is true
(:mod:`arbiter.operators.network.lipschitz`).

Where there is kriging the network corrects a reference: its values are what the kriged smile leaves
of the quotes, amplified, and what it says is added to the slopes of a transport that prices that
smile. The reference follows the quotes by a formula that is not trained. It is geometry like σ: the
other stream sees it, and the constant holds it fixed.

Several looks: each reads its own smile back off the state, embeds what is left of the quotes, and
corrects the state, as a boosted or unrolled least-squares method would.

What depends on the same input is one product here, and constants that follow a map are part of it.
Maps are float32; levels, kriging and slopes, where differences of near numbers matter, are float64.

Shapes: N quotes of all chains, M = B·L slices, H heads, D directions, m states.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from arbiter.conventions import Array
from arbiter.operators import slope_head
from arbiter.operators.matrix_products import LinearMap, Rough
from arbiter.operators.network.config import Config
from arbiter.operators.network.geometry_stream import (
    RESIDUAL_GAIN,
    Context,
    at_knots,
    missed,
    open_to_change,
)
from arbiter.operators.network.green_scan import GreenScans, Walk
from arbiter.operators.network.maturity_pooling import nearness, pooled, precision
from arbiter.operators.network.measure_gate import Gate, GateInputs, Sight, silu
from arbiter.operators.network.representer import Representer
from arbiter.operators.network.weights import Weights, select_weights
from arbiter.operators.prior.gaussian_process import kriged
from arbiter.operators.prior.reference_volatility import Scaled, scaled
from arbiter.operators.prior.shrinkage import share, trusted
from arbiter.operators.quote_rows import QuoteRows

SILU = 1.1  # its slopes lie within −0.0999 and 1.0999
# what gains are before anything is learned, under their hyperbolic tangent
VIEW_GAIN, DIRECT_GAIN, MEND_GAIN = 1.0, 2.0, 1.0


class Output(NamedTuple):
    """What the operator says of B chains, in float64.

    Attributes:
        slopes: ``(B, L, n)`` in the star order.
        total: ``(B, L)`` ``log(σ√T)``.
        moved: ``(B,)`` by how many standard errors of its reference the network would have moved
            the smile (:mod:`arbiter.operators.prior.shrinkage`); 0 where it has none.
        strained: ``(B,)`` by how many of them the star order keeps the start from the smile.
        share: ``(B,)`` the part of the network's change that is made; 1 where there is no
            reference to shrink towards.
        doubt: ``(B, L, H)`` logarithms of the reference's standard errors of log-volatility at the
            heads; None where there is no reference.
    """

    slopes: Array
    total: Array
    moved: Array
    strained: Array
    share: Array
    doubt: Array | None


class Look:
    """One look at the quotes: embed, carry along maturities, mix.

    Args:
        weights: Of the look.
        config: Of the network.
        dtype: Precision of the maps.
    """

    def __init__(self, weights: Weights, config: Config, dtype: type[np.floating]) -> None:
        kind = Representer if config.representer else Gate
        self.gate = kind(select_weights(weights, "gate"), config, dtype)
        ways = ("forth", "back") if config.adjoint else ("forth",)
        parts = [select_weights(weights, way) for way in ways]
        self.scans = GreenScans(parts, config, dtype, gain=1.0 / SILU)
        outs = [weights[f"from_{way}.weight"].astype(dtype) for way in ways]
        across = weights["across.weight"].astype(dtype) / dtype(SILU)
        onward = np.concatenate([across, self.scans.take_states(outs)], 1)
        self.onward = LinearMap.from_weight(onward)
        self.gains = weights["gains.weight"], weights["gains.bias"] + VIEW_GAIN
        # what the geometry tells: biases, and what scans select
        sources = ("enter_bias", "up_bias")
        told = [weights[f"{source}.weight"] for source in sources]
        biases = [weights[f"{source}.bias"] for source in sources]
        self.told = (
            np.concatenate([*told, self.scans.select]),
            np.concatenate([*biases, self.scans.select_bias]),
        )
        sizes = [len(bias) for bias in biases]
        self.ends = np.cumsum(sizes)
        self.enter = LinearMap.from_weight(weights["enter.weight"].astype(dtype))
        self.up = LinearMap.from_weight(weights["up.weight"].astype(dtype))
        self.down = LinearMap.from_weight(weights["down.weight"].astype(dtype) / dtype(SILU))
        read = weights.get("read.weight")
        self.read = None if read is None else LinearMap.from_weight(read.astype(dtype))

    def __call__(self, told: Rough, view: Rough, v: Rough | None, walk: Walk) -> Rough:
        """The state ``(B, L, d)`` after this look.

        Args:
            told: ``(B, L, …)`` what the geometry says.
            view: ``(B, L, lines + 2)`` what is seen of the quotes, times its gains.
            v: The state before, if there is one.
            walk: Along maturities.
        """
        entering, rising, choice = np.split(told, self.ends, -1)
        x = silu(self.enter(view) + entering) * walk.seen[..., None]
        moved = self.onward(np.concatenate([x, self.scans(x, choice, walk)], -1))
        v = moved if v is None else v + moved
        return np.asarray(v + self.down(silu(self.up(v) + rising)))

    def view(self, sight: Sight, inputs: GateInputs, near: Rough | None, left: Array) -> Rough:
        """``(B, L, lines + 2)`` numbers ``(N,)`` under every head, and pooled along maturities."""
        lines, means = self.gate.look(sight, inputs, left)
        listed = inputs.chain.quotes.listed
        parts = [lines.reshape(*listed.shape, -1)]
        if near is not None:
            weight = precision(sight).reshape(*listed.shape, -1) * listed[..., None]
            parts.append(pooled(parts[0], weight, near))
        parts.append(means.reshape(*listed.shape, 2))
        return np.concatenate(parts, -1, dtype=lines.dtype)


class Network:
    """Looks and head; it only runs.

    Args:
        weights: As :func:`arbiter.operators.network.weights.describe_weights` lists them.
        config: Sizes and switches.
        dtype: Precision of the maps.
    """

    def __init__(
        self, weights: Weights, config: Config, dtype: type[np.floating] = np.float32
    ) -> None:
        self.config, self.dtype = config, dtype
        parts = [select_weights(weights, f"looks.{i}") for i in range(config.looks)]
        self.looks = [Look(part, config, dtype) for part in parts]
        self.gate = self.looks[0].gate
        self.hats = at_knots(self.gate.place.astype(np.float32)).astype(np.float64)
        self.context = Context(select_weights(weights, "context"), config, dtype)
        self.last = LinearMap.from_weight(weights["last.weight"].astype(dtype))
        self.direct = LinearMap.from_weight(weights["direct.weight"].astype(dtype))
        # all that takes the context, in two maps: gains, and the rest
        gains = [look.gains for look in self.looks]
        gains.append((weights["direct_gains.weight"], weights["direct_gains.bias"] + DIRECT_GAIN))
        if config.kriging:
            self.mend = LinearMap.from_weight(weights["mend.weight"].astype(dtype))
            gains.append((weights["mend_gains.weight"], weights["mend_gains.bias"] + MEND_GAIN))
        told = [look.told for look in self.looks]
        told.append((weights["base.weight"], weights["base.bias"]))
        self.gains, self.gain_ends = _join_maps(gains, dtype)
        self.told, self.told_ends = _join_maps(told, dtype)

    def __call__(self, quotes: QuoteRows) -> Output:
        """Slopes of chains, as far as they can be trusted.

        Maturities without a quote get theirs from their neighbours.
        """
        with np.errstate(all="ignore"):  # a chain without a level has no numbers, and is found
            return self._decode(scaled(quotes))

    def _decode(self, chain: Scaled) -> Output:
        config, listed = self.config, chain.quotes.listed
        guess, priced = kriged(chain, self.place) if config.kriging else (None, None)
        inputs = GateInputs.from_chain(chain, self.dtype)
        ways = [chain.gap, chain.ahead] if config.adjoint else [chain.gap]
        walk = Walk(np.stack(ways).astype(self.dtype), listed)
        near = None
        if config.spans:
            log_T = np.log(chain.quotes.T)
            near = nearness(log_T, config.spans, not config.adjoint).astype(self.dtype)
        sights = [look.gate(inputs) for look in self.looks]
        context = self.context(chain, sights[0], guess, walk)
        *told, base = np.split(self.told(context), self.told_ends, -1)
        gains = np.split(np.tanh(self.gains(context)), self.gain_ends, -1)
        rest = chain.u
        if guess is not None:
            rest = RESIDUAL_GAIN * (rest - self.gate.at_quotes(guess.smile, chain))
        v, straight = None, None
        for i, (look, sight) in enumerate(zip(self.looks, sights, strict=True)):
            left = rest
            if v is not None and look.read is not None:
                left = rest - look.gate.at_quotes(look.read(v), chain)
            view = look.view(sight, inputs, near, left)
            straight = view if straight is None else straight
            v = look(told[i], view * gains[i], v, walk)
        assert v is not None
        assert straight is not None
        direct = straight * gains[len(self.looks)]
        proposal = (base + self.last(v) + self.direct(direct)).astype(np.float64)
        if guess is None or priced is None:
            none = np.zeros(len(chain.total))
            slopes = slope_head.slopes(slope_head.bounded(proposal, None), chain.total)
            return Output(slopes, chain.total, none, none, np.ones(len(chain.total)), None)
        proposal = guess.start + proposal * open_to_change(guess, self.hats)
        proposal += self.mend(missed(guess).astype(self.dtype) * gains[-1])
        proposal = slope_head.bounded(proposal, guess.start)
        left_over = trusted(proposal, guess, priced, chain, self.gate)
        slopes = slope_head.slopes(left_over.proposal, chain.total)
        part = share(left_over.moved, left_over.missed)
        return Output(slopes, chain.total, left_over.moved, left_over.strained, part, guess.doubt)

    @property
    def place(self) -> Array:
        """``(H,)`` of ζ: where the heads are."""
        return self.gate.place.astype(np.float64)


def _join_maps(
    maps: Sequence[tuple[Rough, Rough]], dtype: type[np.floating]
) -> tuple[LinearMap, Array]:
    """One map of several from the same input, and where the outputs of each but the last end."""
    weight, bias = (np.concatenate(part).astype(dtype) for part in zip(*maps, strict=True))
    ends = np.cumsum([len(own) for _, own in maps])[:-1]
    return LinearMap.from_weight(weight, bias), ends
