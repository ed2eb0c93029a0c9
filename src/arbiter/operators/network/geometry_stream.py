"""The geometry stream: what each slice can know beside its values, and what its neighbours can.

Where quotes are, how wide their spreads, how far apart maturities, and where there is kriging the
whole reference: an ordinary network over all of these selects what the other stream does.
"""

from __future__ import annotations

import numpy as np

from arbiter.conventions import Array
from arbiter.operators import slope_head
from arbiter.operators.matrix_products import LinearMap, Rough
from arbiter.operators.network.config import Config
from arbiter.operators.network.green_scan import GreenScans, Walk
from arbiter.operators.network.measure_gate import Sight, silu
from arbiter.operators.network.weights import Weights, select_weights
from arbiter.operators.prior.gaussian_process import Kriged
from arbiter.operators.prior.reference_volatility import Scaled

HALF_SETTLED_ERROR = 2e-3  # error of log-volatility that leaves half to be said
RESIDUAL_GAIN = 8.0  # what the reference leaves of the quotes is a tenth of what they say, or less
MAX_SIZE = 2.0  # of what is told in units in which it is about one
MIN_LOG_MASS = -12.0  # of a head: less is told alike


def describe_slices(chain: Scaled, sight: Sight) -> list[Array]:
    """``(M, …)`` where the quotes of each slice are and how good, each about of size one."""
    count = np.diff(chain.quotes.ends)
    known = [
        0.5 * (chain.total.ravel() + 2.5),
        chain.gap.ravel(),
        0.4 * np.log(count + 1.0) - 1.0,
        count > 0,
    ]
    return [
        0.3 * np.maximum(sight.mass, MIN_LOG_MASS) + 1.0,
        0.5 * (sight.doubt + 6.0),
        np.clip(sight.centre, -MAX_SIZE, MAX_SIZE),
        np.stack(known, 1),
    ]


def referred(guess: Kriged) -> list[Array]:
    """What the geometry stream is told of a reference, each about of size one."""
    start = np.clip(guess.start, -MAX_SIZE, MAX_SIZE)
    return [0.5 * (guess.doubt + 6.0), 2.0 * guess.smile, missed(guess), start]


def missed(guess: Kriged) -> Array:
    """``(B, L, H)`` what the start is short of its smile, amplified."""
    return np.clip(RESIDUAL_GAIN * guess.miss, -MAX_SIZE, MAX_SIZE)


def at_knots(place: Rough) -> Rough:
    """``(n, H)`` from heads to the knots whose deviations are theirs, linear between."""
    zeta = np.clip(np.arcsinh(np.array(slope_head.KNOTS, place.dtype)), place[0], place[-1])
    away = np.abs(zeta[:, None] - place) / (place[1] - place[0])
    return np.asarray(np.maximum(1.0 - away, 0.0))


def open_to_change(guess: Kriged, hats: Array) -> Array:
    """``(B, L, n)`` which share of a change is made: little where the reference knows better.

    A change is an estimate with an error of its own, whatever the quotes. So it counts as the
    reference's standard error, or what its start misses, over that and :data:`HALF_SETTLED_ERROR`.

    Args:
        guess: The reference.
        hats: From :func:`at_knots`.
    """
    error = np.sqrt(np.exp(2.0 * guess.doubt) + guess.miss**2)
    off = np.matmul(error[..., None, :], hats.T)[..., 0, :]  # slice by slice: by one thread
    return np.asarray(off / (off + HALF_SETTLED_ERROR))


class Context:
    """The geometry stream: what each slice can know, and what its neighbours can.

    Args:
        weights: Of the stream.
        config: Of the network.
        dtype: Precision of the maps.
    """

    def __init__(self, weights: Weights, config: Config, dtype: type[np.floating]) -> None:
        self.dtype, self.size = dtype, config.context

        def take(name: str) -> tuple[Rough, Rough]:
            return weights[f"{name}.weight"].astype(dtype), weights[f"{name}.bias"].astype(dtype)

        self.own = LinearMap.from_weight(*take("own"))
        self.mix = LinearMap.from_weight(*take("mix"))
        directions = 2 if config.adjoint else 1
        parts = [select_weights(weights, f"carry.{i}") for i in range(directions)]
        self.carry = GreenScans(parts, config, dtype)
        bias = self.carry.select_bias.astype(dtype)
        self.select = LinearMap.from_weight(self.carry.select.astype(dtype), bias)
        weight, bias = take("join")
        ends = config.context + config.state * np.arange(directions)
        first, *states = np.split(weight, ends, 1)
        join = np.concatenate([first, self.carry.take_states(states)], 1)
        self.join = LinearMap.from_weight(join, bias)

    def __call__(self, chain: Scaled, sight: Sight, guess: Kriged | None, walk: Walk) -> Rough:
        """Geometry ``(B, L, c)`` of each slice among its neighbours."""
        parts = describe_slices(chain, sight)
        if guess is not None:
            parts.extend(part.reshape(-1, part.shape[-1]) for part in referred(guess))
        known = np.concatenate(parts, 1, dtype=self.dtype)
        own = silu(self.own(known))
        own = (silu(self.mix(own)) + own).reshape(*walk.seen.shape, self.size)
        states = self.carry(own, self.select(own), walk)
        return np.asarray(own + silu(self.join(np.concatenate([own, states], -1))))
