"""Variations of a day's input: quotes in units of the index, and a fifth of the quotes hidden.

With the index as numeraire a call struck at κ is κ puts struck at 1/κ on the inverse of the index:
``c(κ) = κ p'(1/κ)``, at the same volatility. The smile is mirrored, and a model that is invariant
to the numeraire gives the same prices.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from arbiter.conventions import Array
from arbiter.exclusions import no_exclusions
from arbiter.quotes import Quotes
from arbiter.scoring import Model, is_inside_bid_ask
from arbiter_lab.evaluation.methods import Method
from arbiter_lab.reproduction.query_models import solve_chains
from arbiter_lab.reproduction.scored_days import KAPPA, MATURITIES

HIDDEN_SHARE = 0.2
"""Share of the quotes that are hidden; the end strikes of each expiry are always shown."""


def in_index_units(quotes: Quotes) -> Quotes:
    """Return the quotes with the index as numeraire; the map is its own inverse."""
    order = np.lexsort((-quotes.k, quotes.expiry))
    unit = np.exp(-quotes.k[order])
    ones = np.ones(quotes.maturities.size)
    return replace(
        quotes,
        forwards=ones,
        discounts=ones,
        k=-quotes.k[order],
        bid=quotes.bid[order] * unit,
        ask=quotes.ask[order] * unit,
        exclusions=no_exclusions(),
        forward_errors=None,
        discount_errors=None,
    )


def convert_index_calls(model: Model) -> Array:
    """Return ``(L, S)`` calls in forward units from a model of quotes in index units."""
    mirrored = model.otm(-np.log(KAPPA), MATURITIES[:, None])
    return np.asarray(KAPPA * mirrored + np.maximum(1.0 - KAPPA, 0.0))


def evaluate_variations(
    method: Method, chains: Sequence[Quotes], seeds: Sequence[int]
) -> list[dict[str, Any]]:
    """Evaluate a model on both variations of each day.

    Args:
        method: The model.
        chains: Quotes of the days.
        seeds: Seed of the hidden quotes of each day.

    Returns:
        For each day ``calls_index`` ``(L, S)``, NaN where the model refused, ``unseen``, the number
        of hidden quotes, and ``unseen_inside``, how many of them hold the model's price.
    """
    if not chains:
        return []
    hidden = [
        quotes.held_out(HIDDEN_SHARE, seed) for quotes, seed in zip(chains, seeds, strict=True)
    ]
    mirrored = solve_chains(method, [in_index_units(quotes) for quotes in chains])
    partly = solve_chains(method, [q.select(~mask) for q, mask in zip(chains, hidden, strict=True)])
    found = []
    for quotes, mask, other, blind in zip(chains, hidden, mirrored, partly, strict=True):
        row = make_empty_row() | {"unseen": int(mask.sum())}
        with np.errstate(invalid="ignore", divide="ignore"):
            if not isinstance(other, str):
                row["calls_index"] = convert_index_calls(other)
            if not isinstance(blind, str):
                there = quotes.select(mask)
                row["unseen_inside"] = int(
                    is_inside_bid_ask(blind.otm(there.k, there.T), there).sum()
                )
        found.append(row)
    return found


def make_empty_row() -> dict[str, Any]:
    """Return the row of a day without variations."""
    calls = np.full((MATURITIES.size, KAPPA.size), np.nan)
    return {"calls_index": calls, "unseen": 0, "unseen_inside": 0}
