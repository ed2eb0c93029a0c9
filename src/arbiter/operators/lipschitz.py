"""The operator's Lipschitz constant, from the norms of its maps.

For given strikes, maturities, spreads and reference volatilities: if every quoted ``u = log(iv/σ)``
moves by at most ε, every proposed log-slope moves by at most L·ε, and so does every slope in the
surface (the running maximum adds nothing). The bound composes

* the gate: values under each head move by at most 2ε, slopes by ε (:mod:`arbiter.operators.gate`);
  under the measure, whose density may lean on u with a rate of at most ¼, by ``(1 + ½·1.5)ε``;
* aligned maps: their norms; activations: 1; gains: at most 1;
* scans: the Green sum, at most the norm of the input map (:mod:`arbiter.operators.scan`);
* the path straight to the head: sums of absolute weights;
* the read-back smile: hats between nodes, at most the norm of the reading map.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import nn

from arbiter.operators.gate import LEANING, SLOPE_ROWS, VALUE_ROWS
from arbiter.operators.network import Look, Network, shift
from arbiter.operators.qalign import Aligned, norm_bound
from arbiter.operators.reference import FARTHEST


class Constant(NamedTuple):
    """An upper bound and where it comes from."""

    value: float
    by_look: tuple[float, ...]
    norms: dict[str, float]


@torch.no_grad()
def constant(network: Network) -> Constant:
    """Upper bound of the Lipschitz constant from log-volatilities to log-slopes, both in sup norm."""
    norms = {
        name: float(
            torch.linalg.vector_norm(part.weight.double(), dim=1).max()
            if part.rows
            else norm_bound(part.weight.double())
        )
        for name, part in network.named_modules()
        if isinstance(part, Aligned)
    }
    of = {part: norms[name] for name, part in network.named_modules() if isinstance(part, Aligned)}
    heads = network.config.heads
    # the measure leans on u: its shares move by twice the rate of the logit at most
    leaning, view = 1.0 + 2.0 * LEANING * FARTHEST, shift(heads)
    bound, steps = 0.0, []
    for i, look in enumerate(network.looks):
        assert isinstance(look, Look)
        bound = _through(look, of, view, bound, first=i == 0)
        steps.append(bound)
    rows = torch.linalg.vector_norm(network.last.weight.double(), dim=1)
    moves = torch.tensor(
        [VALUE_ROWS] * heads + [SLOPE_ROWS] * heads + [leaning] * 2, dtype=torch.float64
    ).to(rows.device)
    straight = network.direct.weight.double().abs() @ moves
    return Constant(float((bound * rows + straight).max()), tuple(steps), norms)


def _through(
    look: Look, of: dict[nn.Module, float], view: float, before: float, *, first: bool
) -> float:
    """The bound of the state after a look, from the bound before it."""
    rest = 1.0 if first else 1.0 + of[look.read] * before
    x = of[look.enter] * view * rest
    moved = of[look.across] + of[look.from_forth] * of[look.forth.enter]
    if look.back is not None:
        moved += of[look.from_back] * of[look.back.enter]
    v = before + moved * x
    return v * (1.0 + of[look.down] * of[look.up])
