"""How a model is asked: many chains at a time, and one by one where one of them is refused."""

from __future__ import annotations

from collections.abc import Sequence

from arbiter.quotes import Quotes
from arbiter.scoring import Model
from arbiter_lab.evaluation.arbitrage_check import Verdict, audit_model
from arbiter_lab.evaluation.methods import Method


def solve_chains(method: Method, chains: Sequence[Quotes]) -> list[Model | str]:
    """Models of chains, or the sentence with which one was refused."""
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


def audit_or_zero(model: Model, quotes: Quotes) -> Verdict:
    """The audit of a model; zero where it has prices that no volatility gives, as networks may."""
    try:
        return audit_model(model, quotes)
    except ValueError:
        return Verdict(0.0, 1, None)
