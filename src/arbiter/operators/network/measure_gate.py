"""The measure gate: densities on strikes, and what the quotes are under each of them.

Each head is a density ``w ≥ 0`` on the line of strikes, softplus of a learned logit, normalised so
that its quadrature over the quoted strikes is one: an integral, not a softmax over tokens, so that
refining the strikes converges. A head is a bump around its own strike; what it reports is the
quotes' local line there (value and slope), which is again an integral ``∫ ξ w u`` with ξ known from
the strikes alone. Head 0 of the paper is *the* measure: a density over moneyness, on whose mean and
convex order training puts a price.

How far a head's report moves when every quote moves by at most one: the value by √2, the slope by 1
(docs/operator-architecture.md, theorem 4). The measure may lean on the quotes themselves, with
a logarithmic rate of at most :data:`MAX_MEASURE_PULL`; a mean under it then moves by one, and by
``MAX_MEASURE_PULL·(largest value)`` more.

Distances are in units of a head's width and counted from its anchor, the head's place or the quote
nearest to it: there no near numbers are subtracted, and single precision is enough.

Shapes: N quotes of all chains, M = B·L slices, H heads.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from arbiter.compiled import compiled
from arbiter.conventions import Array, Indices
from arbiter.operators.law.single_precision import softplus32
from arbiter.operators.matrix_products import LinearMap, Rough
from arbiter.operators.network.config import Config
from arbiter.operators.network.weights import Weights
from arbiter.operators.prior.reference_volatility import MAX_LOG_VOLATILITY_RATIO, Scaled

VALUE_ROWS, SLOPE_ROWS = 2.0**0.5, 1.0  # how far values and slopes move when quotes move by one
MAX_MEASURE_PULL = 0.25  # how strongly a quote's own volatility may pull the measure
MAX_MEASURE_VALUE = (
    2.0 * MAX_LOG_VOLATILITY_RATIO
)  # value that the measure takes a mean of: beyond it values are cut
MIN_LOGIT = -12.0  # logit: beyond all quotes a bump looks at all of them alike
RIDGE_PER_SQUARED_WIDTH = 0.25  # of the bump's squared width: below it a local line is flat
MIN_MASS = 1e-12  # below that of any quoted slice
MIN_ERROR_VARIANCE = 1e-8  # of a head's mean
MAX_DEVIATIONS = 6.0  # strikes farther out have the measure of these
# what that takes of ζ, noise, log(σ√T), log-spacing and ζ²: factors and shifts
GEOMETRY_FACTORS, GEOMETRY_SHIFTS = (1.0, 0.4, 0.3, 0.3, 1.0), (0.0, 2.0, 0.75, 1.0, -1.0)
MIN_SPACING = 1e-3  # that a logarithm is taken of


def places(heads: int, reach: tuple[float, float]) -> Rough:
    """``(H,)`` of ζ: where the bumps are."""
    return np.linspace(-reach[0], reach[1], heads).astype(np.float32)


def silu(x: Rough) -> Rough:
    """``x/(1 + e^{−x})``."""
    return np.asarray(x / (1.0 + np.exp(-x)))


class GateInputs(NamedTuple):
    """Quotes in the precision of the maps.

    Attributes:
        chain: The quotes in their own units.
        line: ``(3, N)`` ζ, spacing, and squared half-spreads over volatility.
        geometry: ``(N, 5)`` what bends the heads.
        centred: ``(N,)`` logit of the measure before it is bent.
        tilt: ``(N,)`` ``tanh ζ``.
    """

    chain: Scaled
    line: Rough
    geometry: Rough
    centred: Array
    tilt: Array

    @staticmethod
    def from_chain(chain: Scaled, dtype: type[np.floating]) -> GateInputs:
        """The quotes of a batch."""
        zeta, spacing = chain.zeta, chain.spacing
        total = chain.total.ravel()[chain.quotes.row]
        logs = np.log(spacing + MIN_SPACING)
        geometry = np.stack([zeta, chain.noise, total, logs, zeta * zeta], 1).astype(dtype)
        line = np.stack([zeta, spacing, np.exp(2.0 * chain.noise)]).astype(dtype)
        deviations = np.clip(np.sinh(zeta), -MAX_DEVIATIONS, MAX_DEVIATIONS)
        return GateInputs(chain, line, geometry, -0.5 * deviations**2, np.tanh(zeta))


class Sight(NamedTuple):
    """What the heads see of each slice; lengths are in units of a head's width.

    Attributes:
        w: ``(N, H)`` weights before normalisation.
        away: ``(N, H)`` these times the distance from the head's anchor, which is its place or the
            quote nearest to it.
        line: ``(4, M, H)`` one over the mass; mean distance from the anchor; how far a line is
            followed from there to the head; the variance that slopes are divided by.
        centre: ``(M, H)`` mean of ζ less the head's place, plainly.
        mass: ``(M, H)`` logarithm of the mass.
        doubt: ``(M, H)`` logarithm of the standard error of each head's mean.
        measure: ``(N,)`` the measure's weight of each quote, of sum one over a slice.
    """

    w: Rough
    away: Rough
    line: Rough
    centre: Rough
    mass: Rough
    doubt: Rough
    measure: Array


class Gate:
    """Learned densities: bumps at fixed places, with learned widths, bent by the quotes' geometry.

    Args:
        weights: Of the gate.
        config: Of the network.
        dtype: Precision of its maps.
    """

    def __init__(self, weights: Weights, config: Config, dtype: type[np.floating]) -> None:
        self.heads, self.reach, self.learned = config.heads, config.reach, config.gate
        self.place = places(config.heads, config.reach).astype(dtype)
        self.log_width = weights["log_width"].astype(np.float64)
        self.narrow = np.exp(-self.log_width).astype(dtype)
        inner = weights["inner.weight"].astype(np.float64)
        bias = weights["inner.bias"] + inner @ np.array(GEOMETRY_SHIFTS)
        inner = inner * np.array(GEOMETRY_FACTORS)
        self.inner = LinearMap.from_weight(inner.astype(dtype), bias.astype(dtype))
        outer, bias = weights["outer.weight"].astype(dtype), weights["outer.bias"].astype(dtype)
        H = config.heads
        self.bend = LinearMap.from_weight(outer[:H], bias[:H])
        self.lean = LinearMap.from_weight(outer[H:], bias[H:])

    def __call__(self, inputs: GateInputs) -> Sight:
        """What the heads see of every slice."""
        line, quotes = inputs.line, inputs.chain.quotes
        (_, N), M, H = line.shape, quotes.ends.size - 1, self.heads
        w, lean = np.zeros((N, H), line.dtype), np.zeros((N, 2), line.dtype)
        if self.learned:
            hidden = silu(self.inner(inputs.geometry))
            w, lean = self.bend(hidden), self.lean(hidden)
            _bend(w, line[0], self.place, self.narrow)
        if w.dtype == np.float32:
            softplus32(w.reshape(-1))
        else:
            w = np.logaddexp(0.0, w)
        away, sums = np.empty_like(w), np.zeros((5, M, H), line.dtype)
        _see(w, away, line, quotes.ends, (self.place, self.narrow), sums)
        mass, mean, second, error, anchor = sums
        mass = np.maximum(mass, MIN_MASS)
        rest = 1.0 / mass
        first = mean * rest
        off = first + anchor
        spread = np.maximum(second * rest - first * first, 0.0) + RIDGE_PER_SQUARED_WIDTH
        return Sight(
            w=w,
            away=away,
            line=np.stack([rest, first, -np.clip(off, -1.0, 1.0), spread]),
            centre=off / self.narrow,
            mass=np.log(mass),
            doubt=0.5 * np.log(error * rest * rest + MIN_ERROR_VARIANCE),
            measure=self._measure(inputs, lean),
        )

    def _measure(self, inputs: GateInputs, lean: Rough) -> Array:
        """The measure's weight of each quote."""
        chain = inputs.chain
        logit = np.zeros(chain.u.size)
        if self.learned:
            pull = MAX_MEASURE_PULL * np.tanh(lean[:, 1])
            logit = np.maximum(inputs.centred + lean[:, 0] + pull * chain.u, MIN_LOGIT)
        measure = np.logaddexp(0.0, logit) * chain.width
        total = np.maximum(chain.quotes.sum_slices(measure), MIN_MASS)
        return np.asarray(measure / total[chain.quotes.row])

    def look(self, sight: Sight, inputs: GateInputs, values: Array) -> tuple[Rough, Array]:
        """``(M, 2H)`` local lines of values ``(N,)``, and ``(M, 2)`` means under the measure.

        Values and slopes of the bumps. Linear in the values, but for the measure's pull and beyond
        :data:`MAX_MEASURE_VALUE`.
        """
        quotes = inputs.chain.quotes
        lines = np.empty((sight.mass.shape[0], 2 * self.heads), sight.w.dtype)
        _look(quotes.ends, values.astype(lines.dtype), (sight.w, sight.away), sight.line, lines)
        part = sight.measure * np.clip(values, -MAX_MEASURE_VALUE, MAX_MEASURE_VALUE)
        tilted = quotes.sum_slices(part * inputs.tilt)
        return lines, np.stack([quotes.sum_slices(part), tilted], 1)

    def at_quotes(self, nodes: Rough, chain: Scaled) -> Array:
        """``(N,)`` numbers ``(B, L, H)`` at the bumps, linear between them, at the quotes."""
        last = self.heads - 1.0
        place = np.clip((chain.zeta + self.reach[0]) / sum(self.reach) * last, 0.0, last)
        left = np.fmin(np.floor(place), last - 1.0).astype(np.int64)
        at, line = chain.quotes.row * self.heads + left, nodes.reshape(-1)
        low = line[at]
        return np.asarray(low + (place - left) * (line[at + 1] - low))


@compiled
def _bend(w: Rough, zeta: Rough, place: Rough, narrow: Rough) -> None:
    """Logits of the bumps, from what bends them, in place."""
    half, lowest = w.dtype.type(0.5), w.dtype.type(MIN_LOGIT)
    for i in range(len(w)):
        row, x = w[i], zeta[i]
        for h in range(place.size):
            away = (x - place[h]) * narrow[h]
            row[h] = max(row[h] - half * away * away, lowest)


@compiled
def _see(
    w: Rough, away: Rough, line: Rough, ends: Indices, heads: tuple[Rough, Rough], sums: Rough
) -> None:
    """The weights times the spacing; moments of each slice under each head, and their anchors."""
    zeta, spacing, variance, (place, narrow) = line[0], line[1], line[2], heads
    H = place.size
    off = np.empty(H, w.dtype)
    for each in range(ends.size - 1):
        begin, end = ends[each], ends[each + 1]
        mass, mean, second = sums[0, each], sums[1, each], sums[2, each]
        error, anchor = sums[3, each], sums[4, each]
        low = high = zeta[0] - zeta[0]
        if begin < end:
            low, high = zeta[begin], zeta[end - 1]
        for h in range(H):
            anchor[h] = (max(min(place[h], high), low) - place[h]) * narrow[h]
        for i in range(begin, end):
            x, wide, loose, row, moved = zeta[i], spacing[i], variance[i], w[i], away[i]
            for h in range(H):
                off[h] = (x - place[h]) * narrow[h] - anchor[h]
            for h in range(H):
                row[h] *= wide
                moved[h] = row[h] * off[h]
            for h in range(H):
                mass[h] += row[h]
                error[h] += row[h] * row[h] * loose
            for h in range(H):
                mean[h] += moved[h]
                second[h] += moved[h] * off[h]


@compiled
def _look(
    ends: Indices, values: Rough, seen: tuple[Rough, Rough], line: Rough, lines: Rough
) -> None:
    """Local lines of values in every slice."""
    (w, away), H = seen, line.shape[2]
    mean, cross = np.empty(H, w.dtype), np.empty(H, w.dtype)
    for each in range(ends.size - 1):
        rest, first, follow, ridged = line[0, each], line[1, each], line[2, each], line[3, each]
        for h in range(H):
            mean[h] = cross[h] = 0.0
        for i in range(ends[each], ends[each + 1]):
            value, row, moved = values[i], w[i], away[i]
            for h in range(H):
                mean[h] += row[h] * value
                cross[h] += moved[h] * value
        for h in range(H):
            here = mean[h] * rest[h]
            slope = (cross[h] * rest[h] - here * first[h]) / ridged[h]
            lines[each, h], lines[each, H + h] = here + follow[h] * slope, slope
