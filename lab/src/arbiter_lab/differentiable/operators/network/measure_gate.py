"""The measure gate: densities on strikes, and what the quotes are under each of them.

Each head is a density ``w ≥ 0`` on the line of strikes, softplus of a learned logit, normalised so
that its quadrature over the quoted strikes is one: an integral, not a softmax over tokens, so that
refining the strikes converges. A head is a bump around its own strike; what it reports is the
quotes' local line there (value and slope), which is again an integral ``∫ ξ w u`` with ξ known from
the strikes alone. Head 0 of the paper is *the* measure: a density over moneyness, on whose mean and
convex order training puts a price.

How far a head's report moves when every quote moves by at most one: the value by √2, the slope by 1
(docs/notebook/first-design.md, theorem 4). The measure may lean on the quotes themselves, with
a logarithmic rate of at most :data:`MAX_MEASURE_PULL`; a mean under it then moves by one, and by
``MAX_MEASURE_PULL·(largest value)`` more.

Shapes: B chains, L slices, S quotes, H heads.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from arbiter.operators.prior.reference_volatility import MAX_LOG_VOLATILITY_RATIO
from arbiter_lab.differentiable.operators.prior.reference_volatility import Scaled

VALUE_ROWS, SLOPE_ROWS = 2.0**0.5, 1.0  # how far values and slopes move when quotes move by one
MAX_MEASURE_PULL = 0.25  # how strongly a quote's own volatility may pull the measure
# value that the measure takes a mean of: beyond it values are cut
MAX_MEASURE_VALUE = 2.0 * MAX_LOG_VOLATILITY_RATIO
MIN_LOGIT = -12.0  # logit: beyond all quotes a bump looks at all of them alike
RIDGE_PER_SQUARED_WIDTH = 0.25  # of the bump's squared width: below it a local line is flat
MIN_MASS = 1e-12  # below that of any quoted slice
MIN_ERROR_VARIANCE = 1e-8  # of a head's mean
MAX_DEVIATIONS = 6.0  # strikes farther out have the measure of these
# what that takes of ζ, noise, log(σ√T), log-spacing and ζ²: factors and shifts
GEOMETRY_FACTORS, GEOMETRY_SHIFTS = (1.0, 0.4, 0.3, 0.3, 1.0), (0.0, 2.0, 0.75, 1.0, -1.0)
MIN_SPACING = 1e-3  # that a logarithm is taken of
GATE_HIDDEN = 48  # width of the network that bends the gate's bumps


class Sight(NamedTuple):
    """What the heads see of each slice.

    Attributes:
        share: ``(B, L, S, H)`` weight of each quote under each head, of sum one over quotes.
        centre: ``(B, L, H)`` mean of ζ.
        spread: ``(B, L, H)`` its variance.
        mass: ``(B, L, H)`` log of the mass before normalisation: is anything quoted here?
        doubt: ``(B, L, H)`` log of the standard error of the head's mean, from the half-spreads.
        measure: ``(B, L, S)`` the measure as a density over moneyness, of quadrature one.
        width: ``(B, L, S)`` quadrature weights over moneyness.
    """

    share: Tensor
    centre: Tensor
    spread: Tensor
    mass: Tensor
    doubt: Tensor
    measure: Tensor
    width: Tensor


def places(heads: int, reach: tuple[float, float]) -> Tensor:
    """``(H,)`` of ζ: where the bumps are."""
    return torch.tensor(np.linspace(-reach[0], reach[1], heads), dtype=torch.float32)


class Gate(nn.Module):
    """Learned densities: bumps at fixed places, with learned widths, bent by the quotes' geometry.

    Args:
        heads: Number of bumps.
        reach: ``asinh z`` of the farthest of them, below and above the money.
        hidden: Width of the network that bends the bumps.
        learned: False leaves every head the same flat density (the ablation ``gate=off``).
    """

    place: Tensor

    def __init__(
        self,
        heads: int,
        reach: tuple[float, float] = (3.0, 2.4),
        hidden: int = GATE_HIDDEN,
        learned: bool = True,
    ) -> None:
        super().__init__()
        self.heads, self.reach, self.learned = heads, reach, learned
        self.register_buffer("place", places(heads, reach), persistent=False)
        spacing = sum(reach) / max(heads - 1, 1)
        self.log_width = nn.Parameter(torch.full((heads,), 1.5 * spacing).log())
        self.inner = nn.Linear(5, hidden)
        self.outer = nn.Linear(hidden, heads + 2)  # one more for the measure, one for its pull
        nn.init.zeros_(self.outer.weight)
        nn.init.zeros_(self.outer.bias)

    def forward(self, chain: Scaled) -> Sight:
        """Densities of every slice; a slice without quotes has none, and weighs nothing."""
        logit, measure_logit = self._logits(chain)
        w = nn.functional.softplus(logit.clamp(min=MIN_LOGIT)) * chain.spacing[..., None]
        safe = w.sum(-2).clamp(min=MIN_MASS)  # (B, L, H)
        share = w / safe[..., None, :]
        moments = torch.stack([chain.zeta, chain.zeta * chain.zeta], -1)  # (B, L, S, 2)
        first, second = (share.transpose(-1, -2) @ moments).unbind(-1)
        variance = torch.exp(chain.noise).square()[..., None]
        error = (share.square().transpose(-1, -2) @ variance)[..., 0]
        raw = nn.functional.softplus(measure_logit.clamp(min=MIN_LOGIT))
        total = (raw * chain.width).sum(-1, keepdim=True).clamp(min=MIN_MASS)
        return Sight(
            share=share,
            centre=first,
            spread=(second - first * first).clamp(min=0.0),
            mass=torch.log(safe),
            doubt=0.5 * torch.log(error + MIN_ERROR_VARIANCE),
            measure=raw / total * chain.quoted,
            width=chain.width,
        )

    def _logits(self, chain: Scaled) -> tuple[Tensor, Tensor]:
        """``(B, L, S, H)`` of the bumps and ``(B, L, S)`` of the measure."""
        zeta = chain.zeta
        if not self.learned:
            flat = torch.zeros_like(zeta)
            return flat[..., None].expand(*zeta.shape, self.heads), flat
        total = chain.total[..., None].expand_as(zeta)
        logs = torch.log(chain.spacing + MIN_SPACING)
        known = (zeta, chain.noise, total, logs, zeta * zeta)
        parts = zip(known, GEOMETRY_FACTORS, GEOMETRY_SHIFTS, strict=True)
        geometry = torch.stack([factor * part + shift for part, factor, shift in parts], -1)
        bend = self.outer(nn.functional.silu(self.inner(geometry)))  # (B, L, S, H + 2)
        away = (zeta[..., None] - self.place) * torch.exp(-self.log_width)
        logit = torch.addcmul(bend[..., :-2], away, away, value=-0.5)
        pull = MAX_MEASURE_PULL * torch.tanh(bend[..., -1])
        centred = -0.5 * torch.sinh(zeta).clamp(-MAX_DEVIATIONS, MAX_DEVIATIONS).square()
        return logit, centred + bend[..., -2] + pull * chain.u

    def look(self, sight: Sight, chain: Scaled, values: Tensor) -> Tensor:
        """Local lines ``(B, L, 2H + 2)`` of values ``(B, L, S)`` under each head.

        Values and slopes of the bumps, then mean and slope under the measure. Linear in the
        values, but for the measure's pull and beyond :data:`MAX_MEASURE_VALUE`.
        """
        powers = torch.stack([values, values * chain.zeta], -1)
        mean, cross = (sight.share.transpose(-1, -2) @ powers).unbind(-1)  # (B, L, H)
        width, off, ridged = self._line(sight)
        lean = (cross - mean * sight.centre) / ridged
        weight = sight.measure * sight.width * values.clamp(-MAX_MEASURE_VALUE, MAX_MEASURE_VALUE)
        level, tilt = weight.sum(-1), (weight * torch.tanh(chain.zeta)).sum(-1)
        return torch.cat([mean + off * lean, width * lean, torch.stack([level, tilt], -1)], -1)

    def rows(self, sight: Sight, chain: Scaled) -> Tensor:
        """``(B, L, 2H, S)`` the matrix of the bumps' part of :meth:`look`."""
        width, off, ridged = self._line(sight)
        share = sight.share.transpose(-1, -2)  # (B, L, H, S)
        away = chain.zeta[..., None, :] - sight.centre[..., None]
        lean = share * away / ridged[..., None]
        return torch.cat([share + off[..., None] * lean, width[:, None] * lean], -2)

    def _line(self, sight: Sight) -> tuple[Tensor, Tensor, Tensor]:
        """Widths ``(H,)``, how far lines are followed and the variances they are divided by."""
        width = torch.exp(self.log_width)
        off = torch.maximum(torch.minimum(self.place - sight.centre, width), -width)
        return width, off, sight.spread + RIDGE_PER_SQUARED_WIDTH * width * width

    def between(self, zeta: Tensor) -> tuple[Tensor, Tensor]:
        """The bump to the left of each strike, and how much of the way to the next it is."""
        place = (zeta + self.reach[0]) / sum(self.reach) * (self.heads - 1)
        place = place.clamp(0.0, self.heads - 1.0)
        left = place.detach().floor().clamp(max=self.heads - 2).long()
        return left, place - left

    def at_quotes(self, nodes: Tensor, zeta: Tensor) -> Tensor:
        """``(B, L, S)`` numbers ``(B, L, H)`` at the bumps, linear between them, at strikes ζ."""
        left, share = self.between(zeta)
        return torch.lerp(nodes.gather(-1, left), nodes.gather(-1, left + 1), share)
