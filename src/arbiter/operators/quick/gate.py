"""A gate on quotes in one row: as :mod:`arbiter.operators.gate`, to rounding, and quicker.

Integrals over strikes are products with a sparse matrix. Distances are in units of a head's width
and counted from its anchor, the head's place or the quote nearest to it: there no near numbers are
subtracted, and single precision is enough.

Shapes: N quotes of all chains, M = B·L slices, H heads.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import linear, silu, softplus

from arbiter.operators import gate as gates
from arbiter.operators.gate import Gate
from arbiter.operators.quick.flat import Flat

_PLAIN = 20.0  # logit below which softplus is what it says
# what a gate's network takes of ζ, noise, log(σ√T), log-spacing and ζ²: factors and shifts
_FACTORS, _SHIFTS = (1.0, 0.4, 0.3, 0.3, 1.0), (0.0, 2.0, 0.75, 1.0, -1.0)


class Batch(NamedTuple):
    """Quotes in one row, in the precision of the maps.

    Attributes:
        flat: The quotes, and sums over slices.
        zeta: ``(N, 1)``
        u: ``(N,)``
        spacing: ``(N, 1)``
        variance: ``(N,)`` squared half-spreads over volatility.
        geometry: ``(N, 5)`` what bends the heads.
        centred: ``(N,)`` logit of the measure before it is bent.
        tilt: ``(N, 2)`` ones and ``tanh ζ``.
        ends: Two of ``(M, 1)``: lowest and highest ζ of each slice.
    """

    flat: Flat
    zeta: Tensor
    u: Tensor
    spacing: Tensor
    variance: Tensor
    geometry: Tensor
    centred: Tensor
    tilt: Tensor
    ends: tuple[Tensor, Tensor]

    @staticmethod
    def of(quotes: Flat, dtype: torch.dtype) -> Batch:
        """The quotes of a batch."""
        total = quotes.chain.total.flatten()[quotes.row]
        apart = torch.log(quotes.spacing + 1e-3)
        geometry = torch.stack([quotes.zeta, quotes.noise, total, apart, quotes.zeta.square()], -1)
        zeta = quotes.zeta.to(dtype)
        last = np.cumsum(quotes.counts)
        first = np.minimum(last - quotes.counts, zeta.numel() - 1)
        some = torch.from_numpy(quotes.counts > 0).to(dtype)[:, None]  # else as if at the money
        return Batch(
            flat=quotes,
            zeta=zeta[:, None],
            u=quotes.u.to(dtype),
            spacing=quotes.spacing.to(dtype)[:, None],
            variance=torch.exp(2.0 * quotes.noise).to(dtype),
            geometry=geometry.to(dtype),
            centred=-0.5 * torch.sinh(zeta).clamp_(-6.0, 6.0).square_(),
            tilt=torch.stack([torch.ones_like(zeta), torch.tanh(zeta)], -1),
            ends=(zeta[first][:, None] * some, zeta[np.maximum(last - 1, 0)][:, None] * some),
        )


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
        self.place, self.width = gate.place.to(dtype), torch.exp(gate.log_width.double()).to(dtype)
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
        sums = batch.flat.sums
        distance = (batch.zeta - self.place).mul_(self.narrow)  # (N, H)
        if self.learned:
            hidden = silu(linear(batch.geometry, self.inner, self.inner_bias), inplace=True)
            w = linear(hidden, self.bend, self.bend_bias)
            w.addcmul_(distance, distance, value=-0.5)
            bent, pull = linear(hidden, self.lean, self.lean_bias).unbind(-1)
            raw = batch.centred + bent + gates.LEANING * torch.tanh(pull) * batch.u
        else:
            w, raw = torch.zeros_like(distance), torch.zeros_like(batch.u)
        w = _softplus(w.clamp_(min=gates._LOWEST)).mul_(batch.spacing)
        raw = softplus(raw.clamp_(min=gates._LOWEST)) * batch.flat.width.to(raw.dtype)
        total = sums(raw[:, None]).clamp_(min=gates._LEAST_MASS)
        low, high = batch.ends
        anchor = (torch.maximum(torch.minimum(self.place, high), low) - self.place) * self.narrow
        distance.sub_(anchor.index_select(0, batch.flat.row))
        away = w * distance
        mass = sums(w).clamp_(min=gates._LEAST_MASS)
        rest = 1.0 / mass
        first = sums(away) * rest
        second = sums(distance.mul_(away)) * rest
        error = sums(torch.square(w, out=distance), batch.variance) * rest.square()
        off = first + anchor
        return Seen(
            w,
            away,
            rest,
            first,
            follow=-off.clamp(-1.0, 1.0),
            ridged=(second - first.square()).clamp_(min=0.0) + gates._RIDGE,
            centre=off * self.width,
            mass=torch.log(mass),
            doubt=0.5 * torch.log(error + 1e-8),
            measure=raw / total[:, 0][batch.flat.row],
        )

    def look(self, seen: Seen, batch: Batch, values: Tensor) -> tuple[Tensor, Tensor]:
        """``(M, 2H)`` local lines of values ``(N,)``, and ``(M, 2)`` means under the measure."""
        mean = batch.flat.sums(seen.w, values) * seen.rest
        cross = batch.flat.sums(seen.away, values) * seen.rest
        slope = (cross - mean * seen.first) / seen.ridged
        weight = seen.measure * values.clamp(-gates.LARGEST, gates.LARGEST)
        lines = torch.cat([torch.addcmul(mean, seen.follow, slope), slope], -1)
        return lines, batch.flat.sums(batch.tilt, weight)


def _softplus(x: Tensor) -> Tensor:
    """In place, for logits that are not very negative."""
    # two functions are quicker than the one that looks at each number
    return x.exp_().log1p_() if float(x.max()) < _PLAIN else softplus(x)
