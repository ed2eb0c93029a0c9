"""One way to look for arbitrage in whatever a method gives back."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from arbiter.audit.certificate import audit, certify_surface
from arbiter.audit.sampling import prove_surface
from arbiter.quotes import Quotes
from arbiter.scoring import Model

_STRIKES_PER_MATURITY = 51  # of each maturity of the table


class Verdict(NamedTuple):
    """What was found.

    Attributes:
        nas: No-arbitrage score; one if and only if nothing was found.
        findings: How many violations.
        proved: Whether the structural proof holds and covers the prices; None for a model without
            one.
    """

    nas: float
    findings: int
    proved: bool | None


def audit_model(model: Model, quotes: Quotes, full: bool = False) -> Verdict:
    """Look for arbitrage.

    Every model: an audit of its volatilities on a table of :func:`table`, or of its prices there
    where some are too small to have a volatility. A surface has its structural proof checked
    besides, on its stored numbers. Where the proof fails, or does not cover the prices, the score
    is zero: nothing is promised then.

    Args:
        model: A surface or a peer.
        quotes: The quotes it was made of, for the range of the table.
        full: The whole certificate of a surface instead, some 750,000 inequalities.
    """
    if full and hasattr(model, "slopes"):
        found = certify_surface(model)
        proof = found.structural
    else:
        found = audit(_build_audit_table(model, quotes))
        proof = prove_surface(model)
    if proof is None:
        return Verdict(found.nas, len(found.findings), None)
    proved = proof.passed and proof.covers_prices is not False
    return Verdict(found.nas if proved else 0.0, len(found.findings), proved)


def _build_audit_table(model: Model, quotes: Quotes) -> dict[str, Any]:
    """The table, with calls for volatilities where a price has none and all prices are numbers."""
    with np.errstate(invalid="ignore", divide="ignore"):
        whole = tabulate_volatility(model, quotes)
        if np.isfinite(whole["iv"]).all():
            return whole
        k = whole["k"]
        calls = model.otm(k, whole["T"]) + np.maximum(-np.expm1(k), 0.0)
    if not np.isfinite(calls).all():
        return whole  # which the audit refuses, naming the point
    return {"T": whole["T"], "k": k, "call": calls}


def tabulate_volatility(
    model: Model, quotes: Quotes, strikes: int = _STRIKES_PER_MATURITY
) -> dict[str, Any]:
    """Volatilities at strikes between the end strikes of each expiry, and midway between."""
    first = np.flatnonzero(np.diff(quotes.expiry, prepend=-1))
    last = np.append(first[1:], len(quotes)) - 1
    low, high, T = quotes.k[first], quotes.k[last], quotes.maturities
    low = np.concatenate([low, np.maximum(low[1:], low[:-1])])
    high = np.concatenate([high, np.minimum(high[1:], high[:-1])])
    T = np.concatenate([T, 0.5 * (T[1:] + T[:-1])])
    k = low[:, None] + (high - low)[:, None] * np.linspace(0.0, 1.0, strikes)
    times = np.broadcast_to(T[:, None], k.shape)
    return {"T": times.ravel(), "k": k.ravel(), "iv": model.iv(k, times).ravel()}
