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

import numpy as np

from arbiter.conventions import Array
from arbiter.operators.matrix_products import Rough
from arbiter.operators.monitor_sums import covered_shares
from arbiter.operators.network.measure_gate import (
    SLOPE_ROWS,
    VALUE_ROWS,
    Gate,
    GateInputs,
    Sight,
)

MIN_COVERAGE = 0.75  # coverage, below which a slice is seen as one smile
RIDGE = 0.3  # ρ, against quotes of weight one: less makes rows swing, more flattens the smile
HALF_WEIGHT_NOISE = 0.02  # half-spread over volatility whose quote weighs a half
MIN_ROW_SUM = 1e-12


def coverage(zeta: Array) -> float:
    """Share of the window that the quotes of a slice cover; zero where nothing is quoted."""
    return float(covered_shares(zeta, np.zeros(zeta.size, np.int64), 1)[0])


class Representer(Gate):
    """A gate that gives slices of low coverage the kernel-ridge view; same weights."""

    def look(self, sight: Sight, inputs: GateInputs, values: Array) -> tuple[Rough, Array]:
        """As :meth:`Gate.look`, slice by slice one or the other."""
        lines, means = super().look(sight, inputs, values)
        chain, ends = inputs.chain, inputs.chain.quotes.ends
        for each in range(ends.size - 1):
            own = slice(ends[each], ends[each + 1])
            if coverage(chain.zeta[own]) < MIN_COVERAGE:
                lines[each] = self.ridge(chain.zeta[own], chain.noise[own]) @ values[own]
        return lines, means

    def ridge(self, zeta: Array, noise: Array) -> Array:
        """``(2H, S)``: values at the places of the bumps, then mean slopes times widths."""
        place, width = self.place.astype(np.float64), np.exp(self.log_width)
        bump = np.exp(-0.5 * ((zeta[:, None] - place) / width) ** 2)  # (S, H)
        loaded = bump / (1.0 + np.exp(2.0 * noise) / HALF_WEIGHT_NOISE**2)[:, None]
        gram = bump.T @ loaded + RIDGE * np.eye(place.size)
        solution = np.linalg.solve(gram, loaded.T)
        between = place[:, None] - place
        at = np.exp(-0.5 * (between / width) ** 2)
        # as under a bump of the place's own width, whose mean slope the gate reports
        both = width**2 + width[:, None] ** 2
        wide = width / np.sqrt(both) * np.exp(-0.5 * between**2 / both)
        slope = -between / both * wide * width[:, None]
        return np.concatenate(
            [_within(at @ solution, VALUE_ROWS), _within(slope @ solution, SLOPE_ROWS)]
        )


def _within(rows: Array, bound: float) -> Array:
    """Rows whose absolute sums are at most the bound."""
    size = np.abs(rows).sum(1, keepdims=True)
    return np.asarray(rows * np.minimum(bound / np.maximum(size, MIN_ROW_SUM), 1.0))
