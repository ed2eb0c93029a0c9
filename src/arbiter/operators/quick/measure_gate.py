"""A gate on quotes in one row, compiled: as :mod:`..network.measure_gate`, to rounding.

Distances are in units of a head's width and counted from its anchor, the head's place or the quote
nearest to it: there no near numbers are subtracted, and single precision is enough.

Shapes: N quotes of all chains, M = B·L slices, H heads.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import linear, silu, softplus

from arbiter.compiled import compiled
from arbiter.conventions import Array
from arbiter.operators.network import measure_gate as gates
from arbiter.operators.network.measure_gate import Gate
from arbiter.operators.quick.elementary import exp, log, softplus32, tanh
from arbiter.operators.quick.flat import Flat

Rough = NDArray[np.floating]  # in the precision of the maps
Indices = NDArray[np.int64]

# what a gate's network takes of ζ, noise, log(σ√T), log-spacing and ζ²: factors and shifts
_FACTORS, _SHIFTS = (1.0, 0.4, 0.3, 0.3, 1.0), (0.0, 2.0, 0.75, 1.0, -1.0)


class Batch(NamedTuple):
    """Quotes in one row, in the precision of the maps.

    Attributes:
        flat: The quotes.
        zeta: ``(N,)``
        spacing: ``(N,)``
        variance: ``(N,)`` squared half-spreads over volatility.
        geometry: ``(N, 5)`` what bends the heads.
        centred: ``(N,)`` logit of the measure before it is bent.
        tilt: ``(N,)`` ``tanh ζ``.
    """

    flat: Flat
    zeta: Tensor
    spacing: Tensor
    variance: Tensor
    geometry: Tensor
    centred: Tensor
    tilt: Tensor

    @staticmethod
    def of(quotes: Flat, dtype: torch.dtype) -> Batch:
        """The quotes of a batch."""
        size = quotes.row.numel()
        rows = torch.empty(5, size, dtype=dtype)
        geometry = torch.empty(size, 5, dtype=dtype)
        given = (quotes.zeta, quotes.noise, quotes.spacing, quotes.chain.total.double().flatten())
        _describe(*(x.numpy() for x in (*given, quotes.row, rows, geometry)))
        zeta, spacing, variance, centred, tilt = rows
        return Batch(quotes, zeta, spacing, variance, geometry, centred, tilt)


@compiled
def _describe(
    zeta: Array,
    noise: Array,
    spacing: Array,
    total: Array,
    row: Indices,
    rows: Rough,
    geometry: Rough,
) -> None:
    """What :class:`Batch` says of each quote."""
    wide, loose, centred, tilt = rows[1], rows[2], rows[3], rows[4]
    for i in range(zeta.size):
        rows[0, i], wide[i] = zeta[i], spacing[i]
    for i in range(zeta.size):
        loose[i] = exp(2.0 * noise[i])
    for i in range(zeta.size):
        grown = 0.5 * exp(zeta[i])
        deviations = min(max(grown - 0.25 / grown, -6.0), 6.0)  # sinh
        centred[i] = -0.5 * deviations**2
    for i in range(zeta.size):
        tilt[i] = tanh(zeta[i])
    for i in range(zeta.size):
        geometry[i, 3] = log(spacing[i] + 1e-3)
    for i in range(zeta.size):
        x, of = zeta[i], geometry[i]
        of[0], of[1], of[2], of[4] = x, noise[i], total[row[i]], x * x


class Seen(NamedTuple):
    """What the heads see of each slice; lengths are in units of a head's width.

    Attributes:
        w: ``(N, H)`` weights before normalisation.
        away: ``(N, H)`` these times the distance from the head's anchor, which is its place or the
            quote nearest to it.
        rest: ``(M, H)`` one over the mass.
        first: ``(M, H)`` mean distance from the anchor.
        follow: ``(M, H)`` how far a line is followed from there to the head.
        ridged: ``(M, H)`` the variance that slopes are divided by.
        centre: ``(M, H)`` mean of ζ less the head's place, plainly.
        mass: ``(M, H)`` logarithm of the mass.
        doubt: ``(M, H)`` logarithm of the standard error of each head's mean.
        measure: ``(N,)`` the measure's weight of each quote, of sum one over a slice.
    """

    w: Tensor
    away: Tensor
    rest: Tensor
    first: Tensor
    follow: Tensor
    ridged: Tensor
    centre: Tensor
    mass: Tensor
    doubt: Tensor
    measure: Tensor


class Eye:
    """A gate, frozen.

    Args:
        gate: Its densities.
        dtype: Precision of its network.
    """

    def __init__(self, gate: Gate, dtype: torch.dtype) -> None:
        self.learned = gate.learned
        self.place = gate.place.to(dtype)
        self.narrow = torch.exp(-gate.log_width.double()).to(dtype)
        inner, factors, shifts = (
            gate.inner.weight.double(),
            torch.tensor(_FACTORS, dtype=torch.float64),
            torch.tensor(_SHIFTS, dtype=torch.float64),
        )
        self.inner = (inner * factors).to(dtype)
        self.inner_bias = (gate.inner.bias.double() + inner @ shifts).to(dtype)
        self.bend, self.lean = (x.to(dtype) for x in gate.outer.weight.split([gate.heads, 2]))
        bias = gate.outer.bias.split([gate.heads, 2])
        self.bend_bias, self.lean_bias = (x.to(dtype) for x in bias)

    def see(self, batch: Batch) -> Seen:
        """What its heads see of every slice."""
        heads = (self.place.numpy(), self.narrow.numpy())
        ends, size = batch.flat.ends, batch.zeta.numel()
        if self.learned:
            hidden = silu(linear(batch.geometry, self.inner, self.inner_bias), inplace=True)
            w = linear(hidden, self.bend, self.bend_bias)
            lean = linear(hidden, self.lean, self.lean_bias)
        else:
            w, lean = batch.zeta.new_zeros(size, len(self.place)), batch.zeta.new_zeros(size, 2)
        if w.dtype == torch.float32:
            _weigh32(w.numpy(), batch.zeta.numpy(), heads, ends, self.learned)
        else:
            if self.learned:
                _bend(w.numpy(), batch.zeta.numpy(), *heads)
            w = softplus(w)
        measure = batch.zeta.new_empty(size)
        said = (batch.centred, lean, batch.flat.u, batch.flat.width, measure)
        _measure(self.learned, ends, *(x.numpy() for x in said))
        away, found = torch.empty_like(w), w.new_empty(7, ends.size - 1, len(self.place))
        quotes = torch.stack([batch.zeta, batch.spacing, batch.variance]).numpy()
        _see(w.numpy(), away.numpy(), quotes, ends, heads, found.numpy())
        return Seen._make([w, away, *found, measure])

    def look(self, seen: Seen, batch: Batch, values: Tensor) -> tuple[Tensor, Tensor]:
        """``(M, 2H)`` local lines of values ``(N,)``, and ``(M, 2)`` means under the measure."""
        M, H = seen.rest.shape
        lines, means = values.new_empty(M, 2 * H), values.new_empty(M, 2)
        known = torch.stack([seen.rest, seen.first, seen.follow, seen.ridged])
        quotes = torch.stack([values, seen.measure, batch.tilt])
        arrays = (seen.w, seen.away, quotes, known, lines, means)
        _look(batch.flat.ends, *(x.numpy() for x in arrays))
        return lines, means


@compiled
def _weigh32(
    w: Rough, zeta: Rough, heads: tuple[Rough, Rough], ends: Indices, learned: bool
) -> None:
    """Bumps from what bends them, in single precision, in place: slice by slice, as caches are."""
    for each in range(ends.size - 1):
        own = w[ends[each] : ends[each + 1]]
        if learned:
            _bend(own, zeta[ends[each] : ends[each + 1]], heads[0], heads[1])
        softplus32(own.reshape(-1))


@compiled
def _bend(w: Rough, zeta: Rough, place: Rough, narrow: Rough) -> None:
    """Logits of the bumps, from what bends them, in place."""
    half, lowest = w.dtype.type(0.5), w.dtype.type(gates.MIN_LOGIT)
    for i in range(len(w)):
        row, x = w[i], zeta[i]
        for h in range(place.size):
            away = (x - place[h]) * narrow[h]
            row[h] = max(row[h] - half * away * away, lowest)


@compiled
def _measure(
    learned: bool,
    ends: Indices,
    centred: Rough,
    lean: Rough,
    u: Array,
    width: Array,
    measure: Rough,
) -> None:
    """The measure's weight of each quote."""
    logit = np.zeros(measure.size)
    if learned:
        for i in range(measure.size):
            pull = gates.MAX_MEASURE_PULL * tanh(lean[i, 1])
            logit[i] = max(centred[i] + lean[i, 0] + pull * u[i], gates.MIN_LOGIT)
    for i in range(measure.size):
        measure[i] = (max(logit[i], 0.0) + log(1.0 + exp(-abs(logit[i])))) * width[i]
    for each in range(ends.size - 1):
        total = 0.0
        for i in range(ends[each], ends[each + 1]):
            total += measure[i]
        per = 1.0 / max(total, gates.MIN_MASS)
        for i in range(ends[each], ends[each + 1]):
            measure[i] *= per


@compiled
def _see(
    w: Rough,
    away: Rough,
    quotes: Rough,
    ends: Indices,
    heads: tuple[Rough, Rough],
    found: Rough,
) -> None:
    """The weights times the spacing, and moments of each slice under each head, into ``found``."""
    zeta, spacing, variance = quotes[0], quotes[1], quotes[2]
    place, narrow = heads
    H = place.size
    zero = np.zeros(H, w.dtype)
    anchor, off = zero.copy(), zero.copy()
    for each in range(ends.size - 1):
        first, last = ends[each], ends[each + 1]
        low = high = zero[0]
        if first < last:
            low, high = zeta[first], zeta[last - 1]
        for h in range(H):
            anchor[h] = (max(min(place[h], high), low) - place[h]) * narrow[h]
        mass, mean, second, error = zero.copy(), zero.copy(), zero.copy(), zero.copy()
        for i in range(first, last):
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
        _summarise(each, (mass, mean, second, error), anchor, narrow, found)


@compiled
def _summarise(
    each: int,
    sums: tuple[Rough, Rough, Rough, Rough],
    anchor: Rough,
    narrow: Rough,
    found: Rough,
) -> None:
    """What :class:`Seen` has of one slice, from sums over its quotes."""
    mass, mean, second, error = sums
    for h in range(mass.size):
        weight = max(mass[h], gates.MIN_MASS)
        rest = 1.0 / weight
        first = mean[h] * rest
        off = first + anchor[h]
        found[0, each, h], found[1, each, h] = rest, first
        found[2, each, h] = -min(max(off, -1.0), 1.0)
        found[3, each, h] = (
            max(second[h] * rest - first * first, 0.0) + gates.RIDGE_PER_SQUARED_WIDTH
        )
        found[4, each, h] = off / narrow[h]
        found[5, each, h] = log(weight)
        found[6, each, h] = 0.5 * log(error[h] * rest * rest + 1e-8)


@compiled
def _look(
    ends: Indices,
    w: Rough,
    away: Rough,
    quotes: Rough,
    known: Rough,
    lines: Rough,
    means: Rough,
) -> None:
    H = w.shape[1]
    values, measure, tilt = quotes[0], quotes[1], quotes[2]
    rest, first, follow, ridged = known[0], known[1], known[2], known[3]
    for each in range(ends.size - 1):
        mean, cross = np.zeros(H, w.dtype), np.zeros(H, w.dtype)
        level = lean = 0.0
        for i in range(ends[each], ends[each + 1]):
            value, row, moved = values[i], w[i], away[i]
            for h in range(H):
                mean[h] += row[h] * value
                cross[h] += moved[h] * value
            mass = measure[i] * min(max(value, -gates.MAX_MEASURE_VALUE), gates.MAX_MEASURE_VALUE)
            level += mass
            lean += mass * tilt[i]
        means[each, 0], means[each, 1] = level, lean
        for h in range(H):
            here = mean[h] * rest[each, h]
            slope = (cross[h] * rest[each, h] - here * first[each, h]) / ridged[each, h]
            lines[each, h], lines[each, H + h] = here + follow[each, h] * slope, slope
