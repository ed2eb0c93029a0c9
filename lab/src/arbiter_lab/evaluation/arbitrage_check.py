"""Audits any model for static arbitrage in one way: a table of volatilities, and the proof."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from arbiter.audit.audited_surface import has_transport
from arbiter.audit.certificate import audit, certify_surface
from arbiter.audit.sampling import prove_surface
from arbiter.conventions import Array
from arbiter.quotes import Quotes
from arbiter.scoring import Model

_STRIKES_PER_MATURITY = 51  # strikes of each maturity of the audited table


class ArbitrageVerdict(NamedTuple):
    """The outcome of an audit.

    Attributes:
        nas: No-arbitrage score; one if and only if no inequality is violated.
        findings: Number of violations.
        proved: Whether the structural proof holds and covers the prices; None for a model without
            one.
    """

    nas: float
    findings: int
    proved: bool | None


def audit_model(model: Model, quotes: Quotes, full: bool = False) -> ArbitrageVerdict:
    """Audit a model for static arbitrage.

    The audit checks the volatilities of :func:`tabulate_volatility`, or the prices there if some
    have no volatility. For a surface the structural proof is checked as well. If the proof fails,
    or does not cover the prices, the score is zero.

    Args:
        model: A surface or a peer.
        quotes: The quotes it was fitted to; they set the range of the table.
        full: Compute the whole certificate of a surface, about 750,000 inequalities.
    """
    if full and has_transport(model):
        found = certify_surface(model)
        proof = found.structural
    else:
        found = audit(_build_audit_table(model, quotes))
        proof = prove_surface(model)
    if proof is None:
        return ArbitrageVerdict(found.nas, len(found.findings), None)
    proved = proof.passed and proof.covers_prices is not False
    return ArbitrageVerdict(found.nas if proved else 0.0, len(found.findings), proved)


def _build_audit_table(model: Model, quotes: Quotes) -> dict[str, Array]:
    """Tabulate volatilities, or call prices where a volatility is missing but no price is."""
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
) -> dict[str, Array]:
    """Tabulate volatilities of a model as columns ``T``, ``k`` and ``iv``.

    Maturities are those of the quotes and the midpoints between them. Strikes are evenly spaced
    over the quoted range; at a midpoint over the range that both neighbours share.
    """
    first = np.flatnonzero(np.diff(quotes.expiry, prepend=-1))
    last = np.append(first[1:], len(quotes)) - 1
    low, high, T = quotes.k[first], quotes.k[last], quotes.maturities
    low = np.concatenate([low, np.maximum(low[1:], low[:-1])])
    high = np.concatenate([high, np.minimum(high[1:], high[:-1])])
    T = np.concatenate([T, 0.5 * (T[1:] + T[:-1])])
    k = low[:, None] + (high - low)[:, None] * np.linspace(0.0, 1.0, strikes)
    times = np.broadcast_to(T[:, None], k.shape)
    return {"T": times.ravel(), "k": k.ravel(), "iv": model.iv(k, times).ravel()}
