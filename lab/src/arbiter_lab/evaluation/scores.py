"""Errors against exact volatilities, pooled over points as in the Heston benchmark.

An error is model minus exact volatility in basis points. If a method gives no volatility, or
refuses the quotes, the error and every statistic of it are infinite; such points are counted.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, SupportsFloat

import numpy as np
from numpy.typing import NDArray

from arbiter.conventions import DAYS_PER_YEAR, Array
from arbiter.scoring import BASIS_POINT, Model, is_inside_bid_ask
from arbiter_lab.evaluation.arbitrage_check import ArbitrageVerdict
from arbiter_lab.evaluation.known_surface import Case
from arbiter_lab.evaluation.model_extensions import read_domain, read_index
from arbiter_lab.metrics.pooling import root_mean_square
from arbiter_lab.metrics.volatility import iv_error_bp, iv_mae_bp, iv_max_bp, iv_rmse_bp

Summary = dict[str, Any]

# deviations: half a deviation a cell, open at both ends
MONEYNESS_EDGES = np.arange(-3.0, 2.0, 0.5)


@dataclass(frozen=True, eq=False)
class CaseScore:
    """The score of a method on one case.

    Attributes:
        error: ``(L, S)`` basis points; NaN where no strike is listed, infinite where the method
            has no volatility.
        inside: Number of quotes whose model price lies inside bid-ask.
        verdict: Outcome of the audit.
        vix_error: Error of the volatility index in points; NaN for a model without an index.
        seconds: Time that the method took; NaN if it refused the quotes.
        inside_domain: Whether the method takes the quotes for like those it was trained on; None
            for a method that does not judge them.
        refusal: Why there is no model; None if there is one.
    """

    error: Array
    inside: int
    verdict: ArbitrageVerdict
    vix_error: float
    seconds: float
    inside_domain: bool | None = None
    refusal: str | None = None


def score_case(case: Case, model: Model, verdict: ArbitrageVerdict, seconds: float) -> CaseScore:
    """Score a model on a case."""
    listed = case.listed
    times = np.broadcast_to(case.T[:, None], case.k.shape)
    found = np.full(case.k.shape, np.nan)
    found[listed] = model.iv(case.k[listed], times[listed])
    error = iv_error_bp(found, case.iv)
    within = is_inside_bid_ask(model.otm(case.quotes.k, case.quotes.T), case.quotes)
    index = read_index(model)
    vix_error = math.nan if index is None else index - case.vix
    inside_domain = read_domain(model)
    return CaseScore(error, int(within.sum()), verdict, vix_error, seconds, inside_domain)


def score_refusal(case: Case, why: str) -> CaseScore:
    """Return the score of a method that refused the quotes: infinite errors and a NAS of zero."""
    error = np.where(case.listed, np.inf, np.nan)
    return CaseScore(error, 0, ArbitrageVerdict(0.0, 0, None), math.nan, math.nan, None, why)


def surface_rmse_bp(answer: CaseScore) -> float:
    """Return the RMSE of one surface; infinite where the method has no volatility at a point."""
    return _rms(answer.error)


def summary(cases: Sequence[Case], answers: Sequence[CaseScore]) -> Summary:
    """Return the scores of one method: overall, by family, by maturity and by moneyness."""
    error = np.stack([answer.error for answer in answers])  # (N, L, S)
    z = np.stack([case.deviations for case in cases])
    quoted = np.stack([case.quoted for case in cases])
    each = np.array([surface_rmse_bp(answer) for answer in answers])
    worst = int(np.argmax(each))
    families = sorted({case.family for case in cases})
    cell = np.searchsorted(MONEYNESS_EDGES, z, side="right")  # (N, L, S)
    maturity = np.broadcast_to(np.arange(error.shape[1])[:, None], cell.shape)
    days = [round(float(t) * DAYS_PER_YEAR, 6) for t in cases[0].T]
    heat = [
        [
            _rms(error[(maturity == row) & (cell == column)])
            for column in range(MONEYNESS_EDGES.size + 1)
        ]
        for row in range(len(days))
    ]
    return {
        **_summarise_part(cases, answers, error, quoted),
        "worst": {
            "name": cases[worst].name,
            "family": cases[worst].family,
            "rmse_bp": _finite_or_none(each[worst]),
        },
        "mean_surface_rmse_bp": _finite_or_none(np.mean(each)),
        "median_surface_rmse_bp": _finite_or_none(np.median(each)),
        "by_family": {
            family: _summarise_part(
                [case for case in cases if case.family == family],
                [a for a, case in zip(answers, cases, strict=True) if case.family == family],
                error[[case.family == family for case in cases]],
                quoted[[case.family == family for case in cases]],
            )
            for family in families
        },
        "by_maturity": [
            {"days": day, **_error_and_bias(error[:, row])} for row, day in enumerate(days)
        ],
        "by_moneyness": [
            {"deviations": label, **_error_and_bias(error[cell == column])}
            for column, label in enumerate(moneyness_labels())
        ],
        "rmse_bp_by_maturity_and_moneyness": [[_finite_or_none(v) for v in row] for row in heat],
        "surface_rmse_bp": [_finite_or_none(v) for v in each],
    }


def moneyness_labels() -> list[str]:
    """Return the labels of the moneyness cells, from far puts to far calls."""
    middle = [f"{a:g} to {b:g}" for a, b in pairwise(MONEYNESS_EDGES.tolist())]
    return [f"below {MONEYNESS_EDGES[0]:g}", *middle, f"above {MONEYNESS_EDGES[-1]:g}"]


def noise_bp(cases: Sequence[Case]) -> float:
    """Root mean square of quoted mid minus exact volatility over all quotes, in basis points."""
    off = [0.5 * (case.quotes.iv_bid + case.quotes.iv_ask) - case.iv[case.quoted] for case in cases]
    return _rms(np.concatenate(off)) / BASIS_POINT


def _summarise_part(
    cases: Sequence[Case], answers: Sequence[CaseScore], error: Array, quoted: NDArray[np.bool_]
) -> Summary:
    index = np.array([answer.vix_error for answer in answers])
    index = index[np.isfinite(index)]
    times = [answer.seconds for answer in answers if answer.refusal is None]
    refusals = [answer.refusal for answer in answers if answer.refusal is not None]
    judged = [answer.inside_domain for answer in answers if answer.inside_domain is not None]
    scores = np.array([answer.verdict.nas for answer in answers])
    size = np.abs(error[~np.isnan(error)])
    return {
        "surfaces": len(answers),
        "points": int(size.size),
        "rmse_bp": iv_rmse_bp(error).value,
        "rmse_unquoted_bp": iv_rmse_bp(error, quoted, "unquoted").value,
        "rmse_quoted_bp": iv_rmse_bp(error, quoted, "quoted").value,
        "mae_bp": iv_mae_bp(error).value,
        "max_bp": iv_max_bp(error).value,
        "bias_bp": _finite_or_none(np.nanmean(error)),
        "inside_bid_ask": sum(a.inside for a in answers) / sum(len(c.quotes) for c in cases),
        "nas_one": int((scores == 1.0).sum()),
        "nas_least": float(scores.min()),
        "findings": sum(answer.verdict.findings for answer in answers),
        "proved": sum(answer.verdict.proved is True for answer in answers),
        "vix_rmse": _finite_or_none(_rms(index)),
        "vix_max": _finite_or_none(np.abs(index).max(initial=0.0)) if index.size else None,
        "absent": int(np.isinf(size).sum()),
        "alarms": judged.count(False) if judged else None,
        "refused": len(refusals),
        "refusal": refusals[0] if refusals else None,
        "seconds_each": _finite_or_none(np.mean(times)) if times else None,
    }


def _error_and_bias(error: Array) -> Summary:
    """Root mean square error and mean error of some points, in basis points."""
    some = error[~np.isnan(error)]
    return {
        "rmse_bp": _finite_or_none(_rms(some)),
        "bias_bp": _finite_or_none(some.mean()) if some.size else None,
    }


def _rms(values: Array) -> float:
    some = values[~np.isnan(values)]
    return root_mean_square(some) if some.size else math.nan


def _finite_or_none(value: SupportsFloat) -> float | None:
    """Return the number, or None for NaN and infinity, which JSON does not have."""
    number = float(value)
    return number if math.isfinite(number) else None
