"""Fits a method to many chains at once, and one by one if it refuses the batch."""

from __future__ import annotations

from collections.abc import Sequence

from arbiter.quotes import Quotes
from arbiter.scoring import Model
from arbiter_lab.evaluation.arbitrage_check import ArbitrageVerdict, audit_model
from arbiter_lab.evaluation.methods import Method


def solve_chains(method: Method, chains: Sequence[Quotes]) -> list[Model | str]:
    """Return for each chain its model, or the message with which the method refused it."""
    try:
        return list(method.solve(chains))
    except (ValueError, FloatingPointError):
        pass
    found: list[Model | str] = []
    for quotes in chains:
        try:
            found.append(method.solve([quotes])[0])
        except (ValueError, FloatingPointError) as error:
            found.append(str(error))
    return found


def audit_or_zero(model: Model, quotes: Quotes) -> ArbitrageVerdict:
    """Return the audit of a model; a score of zero if a price has no implied volatility."""
    try:
        return audit_model(model, quotes)
    except ValueError:
        return ArbitrageVerdict(0.0, 1, None)
