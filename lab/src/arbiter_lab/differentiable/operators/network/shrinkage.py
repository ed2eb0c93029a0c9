"""Shrinkage of the network's change towards the prior, far from the training data.

A network can be wrong by any amount on chains unlike those of its training. Two checks do not
depend on its weights. The quotes: a surface that meets them within their spreads is not
contradicted. The reference has a standard error at every place: a change of the smile by about
that error is plausible. A change that passes neither check is shrunk towards the reference: beyond
:data:`FREE_MOVE_ERRORS` errors it is shortened to fewer, and the more the larger it is.

The shrunk proposal goes through the head like any other, so the star order holds.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from arbiter_lab.differentiable.operators.prior import star_order_projection, transport_prices
from arbiter_lab.differentiable.operators.prior.gaussian_process import Kriged
from arbiter_lab.differentiable.operators.prior.reference_volatility import Scaled

FREE_MOVE_ERRORS = 1.25  # standard errors of the reference, in root mean square over a chain
# half-spreads off: a change that leaves quotes so far is fine, or is not
MET_HALF_SPREADS, MISSED_HALF_SPREADS = 0.7, 1.0
MIN_LOG_IV_TOLERANCE = 5e-3  # of log-volatility: what may be missed however tight the spread
MAX_MISS_HALF_SPREADS = 5.0  # half-spreads: no quote counts for more
MIN_REFERENCE_ERROR = 2e-3  # error of log-volatility that no reference is below
MIN_MOVE = 1e-12
MIN_WEIGHT_SUM = 1e-6  # less than that counts as nothing


class Heads(Protocol):
    """The strikes at which reference and proposal are compared: those of the measure gate."""

    place: Tensor

    def at_quotes(self, nodes: Tensor, zeta: Tensor) -> Tensor:
        """Numbers ``(B, L, H)`` at the heads, linear between them, at strikes ζ."""
        ...


class Trusted(NamedTuple):
    """What is left of a proposal.

    Attributes:
        proposal: ``(B, L, n)`` ``log(slope/σ√T)``, between the start and what was proposed.
        moved: ``(B,)`` by how many standard errors the whole change would have moved the smile.
        missed: ``(B,)`` by how many half-spreads it would have missed the quotes, each in root mean
            square.
        strained: ``(B,)`` by how many of these errors the star order keeps the start away.
    """

    proposal: Tensor
    moved: Tensor
    missed: Tensor
    strained: Tensor


def share(moved: Tensor, missed: Tensor) -> Tensor:
    """The part of a change that is made, from how far the whole would move, and miss the quotes."""
    little = (FREE_MOVE_ERRORS / moved.clamp(min=MIN_MOVE)).clamp(max=1.0) ** 2
    met = ((MISSED_HALF_SPREADS - missed) / (MISSED_HALF_SPREADS - MET_HALF_SPREADS)).clamp(
        0.0, 1.0
    )
    return torch.maximum(little, met)


def trusted(
    proposal: Tensor,
    guess: Kriged,
    chain: Scaled,
    gate: Heads,
) -> Trusted:
    """Draw proposals ``(B, L, n)`` towards the start where neither check supports them.

    Gradients pass through the change alone: what is made of it counts as given.

    Args:
        proposal: What the network says.
        guess: Its reference.
        chain: The chain in its own units.
        gate: Whose bumps are the heads of both.
    """
    begun = guess.start.double()
    short = _short(proposal.detach().double(), guess, chain, gate)
    moved, missed, strained = _witnessed(*short, guess, chain, gate)
    part = share(moved, missed)[:, None, None]
    return Trusted(begun + part * (proposal.double() - begun), moved, missed, strained)


@torch.no_grad()
def _short(proposal: Tensor, guess: Kriged, chain: Scaled, gate: Heads) -> tuple[Tensor, Tensor]:
    smile, doubt, seen = guess.smile.double(), guess.doubt.double(), chain.quoted.any(-1)
    wanted = transport_prices.Smile(smile, doubt, gate.place.double(), chain.total.double(), seen)
    return star_order_projection.missed(proposal, wanted)


@torch.no_grad()
def _witnessed(
    off: Tensor, says: Tensor, guess: Kriged, chain: Scaled, gate: Heads
) -> tuple[Tensor, Tensor, Tensor]:
    """``(B,)`` how far a proposal moves the smile, is from the quotes, and the start from it."""
    smile, doubt, _, short = (part.double() for part in guess)
    error = torch.exp(2.0 * doubt) + MIN_REFERENCE_ERROR**2
    moved = _root_mean((off - short) ** 2 / (error + short**2), says)
    strained = _root_mean(short**2 / error, says)
    left = chain.u.double() - gate.at_quotes(smile - off, chain.zeta.double())
    wide = torch.exp(2.0 * chain.noise.double()) + MIN_LOG_IV_TOLERANCE**2
    return (
        moved,
        _root_mean((left**2 / wide).clamp(max=MAX_MISS_HALF_SPREADS**2), chain.quoted),
        strained,
    )


def _root_mean(squares: Tensor, counts: Tensor) -> Tensor:
    """``(B,)`` over what counts of ``(B, …)``, as far as it does; 0 where nothing does."""
    total = torch.where(counts > 0, counts * squares, 0.0).flatten(1).sum(1)
    return torch.sqrt(total / counts.flatten(1).sum(1).clamp(min=MIN_WEIGHT_SUM))
