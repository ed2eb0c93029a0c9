"""The measure gate: densities on strikes, and what the quotes are under each of them.

Each head is a density ``w ≥ 0`` on the line of strikes, softplus of a learned logit, normalised so
that its quadrature over the quoted strikes is one: an integral, not a softmax over tokens, so that
refining the strikes converges. A head is a bump around its own strike; what it reports is the
quotes' local line there (value and slope), which is again an integral ``∫ ξ w u`` with ξ known from
the strikes alone. Head 0 is *the* measure, a density over moneyness, on whose mean and convex order
training puts a price.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn

from arbiter.operators.reference import Scaled

FAR = 3.0, 2.4  # asinh of the farthest bumps, below and above the money
_LOWEST = -12.0  # logit: beyond all quotes a bump looks at all of them alike
_RIDGE = 0.25  # of the bump's squared width: below it a local line is flat
VALUE_ROWS, SLOPE_ROWS = 2.0, 1.0  # how far values and slopes move when every quote moves by one
LEANING = 0.25  # how strongly a quote's own volatility may pull the measure


class Sight(NamedTuple):
    """What the heads see of each slice.

    Attributes:
        share: ``(B, L, S, H)`` weight of each quote under each head, of sum one over quotes.
        centre: ``(B, L, H)`` mean of ζ.
        spread: ``(B, L, H)`` its variance.
        mass: ``(B, L, H)`` log of the mass before normalisation: is anything quoted here?
        doubt: ``(B, L, H)`` log of the standard error of the head's mean, from the half-spreads.
        measure: ``(B, L, S)`` head 0 as a density over moneyness, of quadrature one.
        width: ``(B, L, S)`` quadrature weights over moneyness.
    """

    share: Tensor
    centre: Tensor
    spread: Tensor
    mass: Tensor
    doubt: Tensor
    measure: Tensor
    width: Tensor


def trapezoid(at: Tensor, quoted: Tensor) -> Tensor:
    """Quadrature weights ``(…, S)`` of the trapezoidal rule on the quoted points, in any order.

    A single point weighs one; ends weigh half their gap twice over, so that no quote weighs zero.
    """
    inside = torch.where(quoted, at, torch.nan)
    before = _last_seen(inside)
    after = _last_seen(inside.flip(-1)).flip(-1)
    left, right = at - before, after - at
    lone = torch.isnan(left) & torch.isnan(right)
    left = torch.where(torch.isnan(left), torch.nan_to_num(right), left)
    right = torch.where(torch.isnan(right), left, right)
    width = torch.where(lone, 1.0, 0.5 * (left + right))
    return torch.where(quoted, width.clamp(min=1e-6), 0.0)


def _last_seen(values: Tensor) -> Tensor:
    """The last number strictly before each place, NaN where there is none."""
    place = torch.arange(values.shape[-1], device=values.device).expand(values.shape)
    seen = torch.where(torch.isnan(values), -1, place)
    last = torch.cat([torch.full_like(seen[..., :1], -1), seen[..., :-1]], -1).cummax(-1).values
    found = values.gather(-1, last.clamp(min=0))
    return torch.where(last >= 0, found, torch.nan)


class Gate(nn.Module):
    """Learned densities: bumps at fixed places, with learned widths, bent by the quotes' geometry.

    Args:
        heads: Number of bumps, spread over ``asinh z`` from −3 to 2.4.
        hidden: Width of the network that bends the bumps.
        learned: False leaves every head the same flat density (the ablation ``gate=off``).
    """

    place: Tensor

    def __init__(self, heads: int, hidden: int = 48, learned: bool = True) -> None:
        super().__init__()
        self.heads, self.learned = heads, learned
        place = torch.linspace(-FAR[0], FAR[1], heads, dtype=torch.float64)
        self.register_buffer("place", place.float(), persistent=False)
        spacing = (FAR[0] + FAR[1]) / max(heads - 1, 1)
        self.log_width = nn.Parameter(torch.full((heads,), 1.5 * spacing).log())
        self.inner = nn.Linear(5, hidden)
        self.outer = nn.Linear(hidden, heads + 2)  # one more for the measure, one for its pull
        nn.init.zeros_(self.outer.weight)
        nn.init.zeros_(self.outer.bias)

    def forward(self, chain: Scaled) -> Sight:
        zeta, quoted = chain.zeta, chain.quoted
        q = trapezoid(zeta, quoted)  # (B, L, S)
        width = trapezoid(chain.moneyness, quoted)
        noise = 0.4 * (chain.noise + 5.0)
        total = (0.3 * (chain.total + 2.5))[..., None].expand_as(zeta)
        geometry = torch.stack(
            [zeta, noise, total, 0.3 * torch.log(q + 1e-3) + 1.0, zeta * zeta - 1.0], -1
        )
        bend = self.outer(nn.functional.silu(self.inner(geometry)))  # (B, L, S, H + 2)
        bump = -0.5 * ((zeta[..., None] - self.place) / torch.exp(self.log_width)) ** 2
        logit = bump + bend[..., :-2]
        pull = LEANING * torch.tanh(bend[..., -1])
        measure_logit = -0.5 * torch.sinh(zeta).clamp(-6.0, 6.0) ** 2 + bend[..., -2]
        measure_logit = measure_logit + pull * chain.u
        if not self.learned:
            logit, measure_logit = torch.zeros_like(logit), torch.zeros_like(measure_logit)
        w = nn.functional.softplus(logit.clamp(min=_LOWEST)) * q[..., None]
        mass = w.sum(-2)  # (B, L, H)
        safe = mass.clamp(min=1e-12)
        share = w / safe[..., None, :]
        relative = torch.exp(chain.noise)
        moments = torch.stack([zeta, zeta * zeta], -1)  # (B, L, S, 2)
        first, second = (share.transpose(-1, -2) @ moments).unbind(-1)
        error = (share.square().transpose(-1, -2) @ relative.square()[..., None])[..., 0]
        raw = nn.functional.softplus(measure_logit.clamp(min=_LOWEST))
        total_mass = (raw * width).sum(-1, keepdim=True).clamp(min=1e-12)
        return Sight(
            share=share,
            centre=first,
            spread=(second - first * first).clamp(min=0.0),
            mass=torch.log(safe),
            doubt=0.5 * torch.log(error + 1e-8),
            measure=raw / total_mass * quoted,
            width=width,
        )

    def look(self, sight: Sight, chain: Scaled, values: Tensor) -> Tensor:
        """Local lines ``(B, L, 2H + 2)`` of values ``(B, L, S)`` under each head.

        Values and slopes of the bumps, then mean and slope under the measure. Linear in the
        values (but for the measure's pull), and bounded: values move by at most
        :data:`VALUE_ROWS`, slopes by :data:`SLOPE_ROWS` times the largest move of a quote.
        """
        powers = torch.stack([values, values * chain.zeta], -1)
        mean, cross = (sight.share.transpose(-1, -2) @ powers).unbind(-1)  # (B, L, H)
        width = torch.exp(self.log_width)
        lean = (cross - mean * sight.centre) / (sight.spread + _RIDGE * width**2)
        off = torch.maximum(torch.minimum(self.place - sight.centre, width), -width)
        weight = sight.measure * sight.width
        level = (weight * values).sum(-1)
        tilt = (weight * values * torch.tanh(chain.zeta)).sum(-1)
        return torch.cat([mean + off * lean, width * lean, level[..., None], tilt[..., None]], -1)
