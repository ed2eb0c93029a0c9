"""The numbers of fit.json: how a surface came about, how it scores, and what to be warned of."""

from __future__ import annotations

import logging
import math
import time
from dataclasses import asdict, dataclass
from importlib.metadata import version
from typing import Any

from arbiter.audit.certificate import Certificate
from arbiter.chains import Chain
from arbiter.conventions import DAYS_PER_YEAR
from arbiter.fitting import FitResult, FittedSurface
from arbiter.fitting.verdict import MIN_INSIDE_SHARE
from arbiter.maturity_scores import score_by_maturity
from arbiter.operators.domain import DomainReport
from arbiter.operators.operator_surface import OperatorSurface
from arbiter.quotes import Ending, Quotes
from arbiter.scoring import Score, score
from arbiter.sources import QuoteSource
from arbiter.vix.index_rule import vix

logger = logging.getLogger(__name__)

IN_DOMAIN, OUT_OF_DOMAIN = "in_domain", "out_of_domain"  # statuses of the operator
_FIT_ONLY_KEYS = (
    "vix_error", "roughness", "roughness_chosen_by", "objective", "parameters", "dispersion",
    "trust", "verdict",
)  # fmt: skip
_FIRST_PASS_NOTE = "one pass of the operator is a first answer; --method both refines it"


@dataclass(frozen=True, eq=False)
class Answer:
    """A surface by the method that was asked for, and the operator's own if it took part."""

    method: str
    surface: FittedSurface | OperatorSurface
    first: OperatorSurface | None

    @property
    def warnings(self) -> tuple[str, ...]:
        """Those of the operator, then those of the fit."""
        before = () if self.first is None else self.first.result.warnings
        return (*before, *self.surface.result.warnings)


def build_summary(
    read: QuoteSource, answer: Answer, certificate: Certificate
) -> tuple[dict[str, Any], tuple[str, ...]]:
    """The numbers of fit.json and the warnings that come with them.

    Names of the first thirteen are fixed, others may come and go.
    """
    began = time.perf_counter()
    quotes = read.quotes
    scored = score(answer.surface, quotes)
    warnings = (*scored.warnings, *_describe_scores(scored, answer.surface))
    index, said = _compute_index(read.chain)
    how = _describe_method(answer.surface)
    summary = {
        "status": how.pop("status"),
        "expiries": scored.expiries,
        "quotes": scored.quotes,
        "excluded": quotes.exclusions.height,
        "inside_bid_ask": scored.inside_bid_ask,
        "inside_bid_ask_held_out": None,
        "iv_rmse_bp_2sd": scored.iv_rmse_bp,
        "vix": index,
        "vix_surface": float(answer.surface.vix()),
        "certificate": {
            "passed": certificate.passed,
            "nas": certificate.nas,
            "findings": certificate.findings.height,
        },
        "iterations": how.pop("iterations"),
        "seconds": how.pop("seconds"),
        "iv_rmse_half_spreads_2sd": scored.iv_rmse_half_spreads,
        "score": score_by_maturity(answer.surface, quotes).to_dict(),
        **how,
        "path": answer.surface.result.path,
        "expiries_left_out": list_left_out(quotes),
        "exclusions": dict(quotes.counts().select("reason", "quotes").iter_rows()),
        "source": read.name,
        "layout": read.layout,
        "underlying": read.underlying,
        "as_of": str(read.as_of.astype("datetime64[m]")),
        "clock": None if (clock := answer.surface.clock) is None else clock.to_dict(),
        "notes": list(read.notes),
        "versions": {name: version(name) for name in ("arbiter-vol", "numba", "numpy", "scipy")},
        "seconds_of_scoring": time.perf_counter() - began,
        "method": answer.method,
        "operator": _describe_operator(answer, scored, quotes),
    }
    return summary, (*warnings, *said)


def list_left_out(quotes: Quotes) -> list[dict[str, Any]]:
    """The listed expiries that are not fitted, with their endings, as plain values."""
    return [one._asdict() for one in quotes.endings if one.ending is not Ending.USED]


def _describe_method(surface: FittedSurface | OperatorSurface) -> dict[str, Any]:
    """How a surface came about; what a method does not know is null."""
    if isinstance(surface, FittedSurface):
        return _describe_fit(surface.result) | {"vix_error": float(surface.vix_error())}
    return dict.fromkeys(_FIT_ONLY_KEYS) | {
        "status": IN_DOMAIN if _require_domain(surface).inside else OUT_OF_DOMAIN,
        "iterations": 0,
        "seconds": surface.result.seconds,
    }


def _describe_fit(result: FitResult) -> dict[str, Any]:
    return {
        "status": result.status.value,
        "iterations": result.iterations,
        "seconds": result.seconds,
        "roughness": asdict(result.roughness),
        "roughness_chosen_by": result.chosen,
        "objective": result.objective,
        "parameters": result.freedom,
        "dispersion": result.dispersion,
        "trust": result.trust,
        "verdict": None if result.verdict is None else asdict(result.verdict),
    }


def _describe_scores(scored: Score, surface: FittedSurface | OperatorSurface) -> list[str]:
    """Sentences about numbers that do not mean what their names say; each is logged."""
    found = []
    if scored.quotes == 0:
        found.append(
            "no quote counts (expiries of 2 days or more with 8 strikes or more): shares and "
            "errors are not known"
        )
    elif scored.inside_bid_ask < MIN_INSIDE_SHARE and isinstance(surface, OperatorSurface):
        share = 100.0 * scored.inside_bid_ask  # a fit has its verdict
        found.append(f"only {share:.1f} % of the quotes are inside bid-ask: {_FIRST_PASS_NOTE}")
    first, last = DAYS_PER_YEAR * surface.maturities[0], DAYS_PER_YEAR * surface.maturities[-1]
    if not first <= 30.0 <= last:
        found.append(
            "vix_surface is an extrapolation: the expiries that were fitted lie "
            f"{first:.3g} to {last:.3g} days ahead, and 30 days are not between them"
        )
    for sentence in found:
        logger.warning(sentence)
    return found


def _compute_index(chain: Chain | None) -> tuple[float | None, tuple[str, ...]]:
    """The index rule on a chain, and its warnings; None where it cannot be applied."""
    if chain is None:
        return None, ()
    try:
        found = vix(chain)
    except ValueError as error:
        missing = f"no index from the rule: {error}"
        logger.warning(missing)
        return None, (missing,)
    return float(found), found.warnings


def _describe_operator(answer: Answer, scored: Score, quotes: Quotes) -> dict[str, Any] | None:
    """What the operator's own surface says and scores; None where it took no part.

    Args:
        answer: The surfaces.
        scored: The score of the answer's surface, which may be the operator's own.
        quotes: What the surfaces were made from.
    """
    first = answer.first
    if first is None:
        return None
    own = scored if first is answer.surface else score(first, quotes)
    return {
        **first.result.to_dict(),
        "inside_bid_ask": nan_to_none(own.inside_bid_ask),
        "iv_rmse_bp_2sd": nan_to_none(own.iv_rmse_bp),
        "iv_rmse_half_spreads_2sd": nan_to_none(own.iv_rmse_half_spreads),
        "vix_surface": nan_to_none(float(first.vix())),
        "domain": _require_domain(first).to_dict(),
    }


def _require_domain(surface: OperatorSurface) -> DomainReport:
    """The report of a surface's domain, or a ``ValueError`` where its weights have no limits."""
    if surface.domain is None:
        raise ValueError(
            f"the weights {surface.result.model} have no limits of their domain: calibrate them, "
            "or take method = 'fit'"
        )
    return surface.domain


def nan_to_none(value: Any) -> Any:
    """JSON has no NaN: what is not known is null."""
    return None if isinstance(value, float) and not math.isfinite(value) else value
