"""What a slice with few quotes says: the kernel-ridge solution with the gate's own kernel.

**Coverage** of a slice is the share of the strikes within −3.5 to 2 deviations of the forward,
counted evenly in ``asinh z``, that have a quote within 0.2 of it. It is known from where the quotes
are, alone, and it is what gaps, missing wings and coarse strikes all lower.

Below :data:`MIN_COVERAGE` local lines under single bumps rest on one or two quotes each. The
representer theorem gives what a reproducing kernel makes of all of them together: with the bumps
``φ_h`` of the gate, the kernel ``Σ_h φ_h(ζ)φ_h(ζ')`` and weights w of the quotes, the smile is
``Σ_h c_h φ_h(ζ)``, ``c = (Φ'wΦ + ρI)⁻¹ Φ'w u``. Values and slopes of it at the bumps' places are
linear in u; each row is scaled so that the sum of its absolute weights stays within what the
Lipschitz constant counts on. Rows know where quotes are and how good, not what they say.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from arbiter.operators.monitor_sums import COVERAGE_POINTS, COVERAGE_WINDOW, COVERED_RADIUS
from arbiter.operators.monitors import MIN_COVERAGE
from arbiter_lab.differentiable.operators.law.green_scan import inverse
from arbiter_lab.differentiable.operators.network.measure_gate import (
    SLOPE_ROWS,
    VALUE_ROWS,
    Gate,
    Sight,
)
from arbiter_lab.differentiable.operators.prior.reference_volatility import Scaled

RIDGE = 0.3  # ρ, against quotes of weight one: less makes rows swing, more flattens the smile
HALF_WEIGHT_NOISE = 0.02  # half-spread over volatility whose quote weighs a half
MIN_ROW_SUM = 1e-12


def coverage(chain: Scaled) -> Tensor:
    """``(B, L)`` share of the window that quotes cover; zero where nothing is quoted."""
    low, high = (math.asinh(z) for z in COVERAGE_WINDOW)
    at = torch.linspace(
        low, high, COVERAGE_POINTS, dtype=chain.zeta.dtype, device=chain.zeta.device
    )
    away = torch.where(chain.quoted, chain.zeta, torch.inf)[..., None, :] - at[:, None]
    return (away.abs() <= COVERED_RADIUS).any(-1).to(chain.zeta.dtype).mean(-1)


class Representer(Gate):
    """A gate that gives slices of low coverage the kernel-ridge view; same parameters."""

    def look(self, sight: Sight, chain: Scaled, values: Tensor) -> Tensor:
        """``(B, L, 2H + 2)`` as :meth:`Gate.look`, slice by slice one or the other."""
        lines = super().look(sight, chain, values)
        bumps = (self.ridge(chain) @ values[..., None])[..., 0]
        smile = torch.cat([bumps, lines[..., 2 * self.heads :]], -1)
        return torch.where(_few(chain)[..., None], smile, lines)

    def rows(self, sight: Sight, chain: Scaled) -> Tensor:
        """``(B, L, 2H, S)`` the matrix of the bumps' part of :meth:`look`."""
        few = _few(chain)[..., None, None]
        return torch.where(few, self.ridge(chain), super().rows(sight, chain))

    @torch.no_grad()
    def ridge(self, chain: Scaled) -> Tensor:
        """``(B, L, 2H, S)``: values at the places of the bumps, then mean slopes times widths."""
        place, width = self.place.to(chain.zeta.dtype), torch.exp(self.log_width)
        apart = (chain.zeta[..., None] - place) / width  # (B, L, S, H)
        bump = torch.exp(-0.5 * apart**2) * chain.quoted[..., None]
        weight = 1.0 / (1.0 + torch.exp(2.0 * chain.noise) / HALF_WEIGHT_NOISE**2)  # (B, L, S)
        loaded = bump * weight[..., None]
        gram = bump.transpose(-1, -2) @ loaded
        eye = torch.eye(len(place), dtype=gram.dtype, device=gram.device)
        solution = inverse(gram + RIDGE * eye) @ loaded.transpose(-1, -2)  # (B, L, H, S)
        between = place[:, None] - place  # (places, H)
        at = torch.exp(-0.5 * (between / width) ** 2)
        # as under a bump of the place's own width, whose mean slope the gate reports
        both = width**2 + width[:, None] ** 2
        wide = width / torch.sqrt(both) * torch.exp(-0.5 * between**2 / both)
        slope = -between / both * wide * width[:, None]
        # no constants from the host here: a recording could not have them
        return torch.cat(
            [_within(at @ solution, VALUE_ROWS), _within(slope @ solution, SLOPE_ROWS)], -2
        )


def _within(rows: Tensor, bound: float) -> Tensor:
    """Rows whose absolute sums are at most the bound."""
    size = rows.abs().sum(-1, keepdim=True)
    return rows * (bound / size.clamp(min=MIN_ROW_SUM)).clamp(max=1.0)


def _few(chain: Scaled) -> Tensor:
    return coverage(chain) < MIN_COVERAGE
