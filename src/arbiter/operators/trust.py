"""How much of what a network would change is changed: about as much as its reference leaves open.

A network is right about chains like those of its training. On others it can be wrong by any amount,
and does not know. Its reference does: kriging rests on no weights, and has a standard error at
every place. A change that moves the smile by about that error is what a network is for. One that
moves it by several errors contradicts quotes that the reference took into account, so the network
is out of its depth, and the more so the larger the change: beyond :data:`ENOUGH` errors it is
shortened, to less than that again.

What lies between goes through the head as any proposal does, so nothing changes about the order.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from arbiter.operators import polish
from arbiter.operators.kriging import Kriged
from arbiter.operators.reference import Scaled

ENOUGH = 1.25  # standard errors of the reference, in root mean square over a chain
_SURE = 2e-3  # error of log-volatility that no reference is below
_STILL = 1e-12


class Trusted(NamedTuple):
    """What is left of a proposal.

    Attributes:
        proposal: ``(B, L, n)`` ``log(slope/σ√T)``, between the start and what was proposed.
        moved: ``(B,)`` by how many standard errors the whole change would have moved the smile.
    """

    proposal: Tensor
    moved: Tensor


def share(moved: Tensor) -> Tensor:
    """The part of a change that is made, from how many standard errors the whole would move."""
    return (ENOUGH / moved.clamp(min=_STILL)).clamp(max=1.0) ** 2


def trusted(proposal: Tensor, guess: Kriged, chain: Scaled, place: Tensor) -> Trusted:
    """Draw proposals ``(B, L, n)`` towards the start as far as they contradict the reference.

    Gradients pass through the change alone: what is made of it counts as given.

    Args:
        proposal: What the network says.
        guess: Its reference, at heads ``(H,)``.
        chain: The chain in its own units.
        place: Where the heads are.
    """
    begun = guess.start.double()
    moved = _moved(proposal.detach().double(), guess, chain, place.double())
    part = share(moved)[:, None, None]
    return Trusted(begun + part * (proposal.double() - begun), moved)


@torch.no_grad()
def _moved(proposal: Tensor, guess: Kriged, chain: Scaled, place: Tensor) -> Tensor:
    """``(B,)`` by how many standard errors of the reference a proposal moves the smile."""
    smile, doubt, _, short = (part.double() for part in guess)
    wanted = polish.Smile(smile, doubt, place, chain.total.double(), chain.quoted.any(-1))
    missed, says = polish.missed(proposal, wanted)
    error = torch.exp(2.0 * doubt) + short**2 + _SURE**2
    square = torch.where(says, (missed - short) ** 2 / error, 0.0).sum((1, 2))
    return torch.sqrt(square / says.sum((1, 2)).clamp(min=1))
