"""From a chain file to everything a user keeps: surface, certificate, numbers, report, pictures."""

from __future__ import annotations

import json
import logging
import math
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from arbiter.audit.certificate import Certificate
from arbiter.chains import Chain
from arbiter.conventions import DAYS_PER_YEAR
from arbiter.files import require_folder, write_whole
from arbiter.fitting import FitOptions, FitResult, FittedSurface, fit
from arbiter.fitting.vix_comparison import JointComparison
from arbiter.operators.operator_surface import OperatorSurface
from arbiter.operators.pretrained import Operator
from arbiter.quotes import Quotes
from arbiter.report import write_pdf, write_pictures, write_report
from arbiter.scoring import Score, score
from arbiter.sources import QuoteSource, VixSource
from arbiter.surface import Surface
from arbiter.vix.index_rule import vix
from arbiter.vix.replication import term_structure

logger = logging.getLogger(__name__)

SURFACE, CERTIFICATE, SUMMARY = "surface.npz", "certificate.json", "fit.json"
REPORT, EXCLUSIONS, PICTURES, PDF = "report.html", "exclusions.csv", "pictures", "report.pdf"
VIX_EXCLUSIONS = "vix_exclusions.csv"
FILES = (SURFACE, CERTIFICATE, SUMMARY, REPORT, EXCLUSIONS, VIX_EXCLUSIONS, PDF)
METHODS = ("fit", "operator", "both")
IN_DOMAIN, OUT_OF_DOMAIN = "in_domain", "out_of_domain"  # statuses of the operator
_FIT_ONLY_KEYS = (
    "vix_error", "roughness", "roughness_chosen_by", "objective", "parameters", "dispersion",
    "trust", "heston",
)  # fmt: skip
_POOR_FIT_NOTE = (
    "no surface without arbitrage fits them; look at the residuals, and whether prices, strikes "
    "and dates are right"
)
_FIRST_PASS_NOTE = "one pass of the operator is a first answer; --method both refines it"
_SMALL_ERRORS_NOTE = (
    "standard errors are too small: the operator, the prior of this fit, has seen the same quotes; "
    "those of --method fit hold"
)
_VIX_SHAPE_NOTE = (
    "VIX slices follow the VIX options in shape, at the level of the operator's own forward "
    "variance; --method both fits the two markets together"
)
MIN_INSIDE_SHARE = 0.9  # share inside bid-ask below which the quotes do not fit together


@dataclass(frozen=True)
class Job:
    """What to do with a chain.

    Attributes:
        as_of: Moment of the quotes, where the file has none.
        layout: Layout of the file, found out if None.
        underlying: Name of the index, where the file has none.
        shortest_days: Expiries nearer than this are not fitted.
        holdout: Share of the quotes to hold out for a second fit, None for no such fit.
        seed: Which quotes are held out.
        options: Options of the fit.
        method: ``"fit"``, ``"operator"``, or ``"both"``: the fit with the operator as its prior.
        report: Whether to write the report and the pictures.
        pdf: Whether to write the pictures as one PDF too.
        vix: File with options on the VIX: a fit is one of both markets then, and the operator's
            surface has VIX slices that follow them.
        vix_futures: File with futures on the VIX.
    """

    as_of: Any = None
    layout: str | None = None
    underlying: str | None = None
    shortest_days: float = 2.0
    holdout: float | None = None
    seed: int = 0
    options: FitOptions = field(default_factory=FitOptions)
    method: str = "fit"
    report: bool = True
    pdf: bool = False
    vix: Path | None = None
    vix_futures: Path | None = None

    def __post_init__(self) -> None:
        if self.method not in METHODS:
            raise ValueError(f"method = {self.method!r} is none of {', '.join(METHODS)}")


@dataclass(frozen=True, eq=False)
class Outcome:
    """What came of a chain."""

    source: QuoteSource
    quotes: Quotes
    surface: Surface
    certificate: Certificate
    summary: dict[str, Any]
    agreement: JointComparison | None = None  # of index and VIX, where both were fitted
    written: tuple[Path, ...] = ()  # files and folders, in the folder that was asked for


def run_job(
    source: str | Path, out: str | Path, job: Job, tell: Callable[[str], None] | None = None
) -> Outcome:
    """Fit the chain in ``source`` and write what came of it into the folder ``out``.

    ``tell`` hears what is being done, in a few words.

    Raises:
        ValueError: If the chain cannot be read or used, or ``out`` cannot be written to; nothing
            is written then.
    """
    say = tell or (lambda _: None)
    require_folder(out, files=FILES, folders=(PICTURES,))
    with _collect_warnings() as warnings:
        say("reading")
        read = QuoteSource.read(
            source,
            as_of=job.as_of,
            layout=job.layout,
            underlying=job.underlying,
            shortest_days=job.shortest_days,
        )
        quotes = read.quotes
        given = VixSource.read(read, job.vix, job.vix_futures, as_of=job.as_of)
        hidden = None if job.holdout is None else _choose_held_out(quotes, job.holdout, job.seed)
        say(f"fitting {len(quotes):,} quotes")
        surface, first = _make_surface(quotes, job, given)
        held_out, so_far = None, len(warnings)
        if hidden is not None:
            say(f"fitting again without {hidden.sum():,} of them")
            held_out = _score_held_out(quotes, hidden, job, given)
            warnings[so_far:] = [f"without the held-out quotes: {w}" for w in warnings[so_far:]]
        agreement = None
        if given is not None:
            say("fitting each market by itself")
            alone = fit(quotes, options=job.options)
            agreement = JointComparison.from_surfaces(
                surface, alone, given.quotes, given.futures, job.options
            )
        say("certifying")
        certificate = surface.certificate()
        summary = _build_summary(read, quotes, surface, certificate)
    summary |= {"method": job.method, "operator": _describe_operator(first, quotes)}
    summary["vix_market"] = None
    if given is not None and agreement is not None:
        summary["vix_market"] = given.names | agreement.to_dict()
    options = None if job.method == "operator" else _options_to_dict(job.options)
    summary |= {"inside_bid_ask_held_out": held_out, "options": options}
    judged = summary["roughness_chosen_by"] == "crossfit"  # the guide's own noise is in the errors
    if job.method == "both" and len(surface.slopes) == 1 and not judged:
        summary["notes"].append(_SMALL_ERRORS_NOTE)
    elif job.method == "operator" and given is not None:
        summary["notes"].append(_VIX_SHAPE_NOTE)
    summary["warnings"] = warnings
    summary = {name: _nan_to_none(value) for name, value in summary.items()}
    outcome = Outcome(read, quotes, surface, certificate, summary, agreement)
    return replace(outcome, written=_write_files(outcome, Path(out), job, say))


def _choose_held_out(quotes: Quotes, share: float, seed: int) -> NDArray[np.bool_]:
    mask = quotes.held_out(share, seed)
    if not mask.any():
        raise ValueError(
            f"a share of {share:g} of {len(quotes)} quotes, the ends of each expiry apart, is "
            "none: hold out a larger share, or none"
        )
    return mask


def _score_held_out(
    quotes: Quotes, hidden: NDArray[np.bool_], job: Job, given: VixSource | None
) -> float:
    return score(
        _make_surface(quotes.select(~hidden), job, given)[0], quotes, hidden
    ).inside_bid_ask


def _make_surface(
    quotes: Quotes, job: Job, given: VixSource | None
) -> tuple[Surface, OperatorSurface | None]:
    """The surface of the method that was asked for, and the operator's own if it took part."""
    options, futures = (None, None) if given is None else (given.quotes, given.futures)
    if job.method == "fit":
        return fit(quotes, vix_quotes=options, vix_futures=futures, options=job.options), None
    operator = Operator.pretrained()
    if job.method == "operator":
        first = operator(quotes, vix_quotes=options, vix_futures=futures)
        return first, first
    first = operator(quotes)
    refined = operator.refine(quotes, first, job.options, vix_quotes=options, vix_futures=futures)
    return refined, first


def _describe_operator(surface: OperatorSurface | None, quotes: Quotes) -> dict[str, Any] | None:
    """What the operator's own surface says and scores; None where it took no part."""
    if surface is None:
        return None
    assert surface.result is not None
    assert surface.domain is not None
    scored = score(surface, quotes)
    return {
        **surface.result.to_dict(),
        "inside_bid_ask": _nan_to_none(scored.inside_bid_ask),
        "iv_rmse_bp_2sd": _nan_to_none(scored.iv_rmse_bp),
        "iv_rmse_half_spreads_2sd": _nan_to_none(scored.iv_rmse_half_spreads),
        "vix_surface": _nan_to_none(float(surface.vix())),
        "domain": surface.domain.to_dict(),
    }


def _nan_to_none(value: Any) -> Any:
    """JSON has no NaN: what is not known is null."""
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _build_summary(
    read: QuoteSource, quotes: Quotes, surface: Surface, certificate: Certificate
) -> dict[str, Any]:
    """The numbers of fit.json; names of the first thirteen are fixed, others may come and go."""
    began = time.perf_counter()
    scored = score(surface, quotes)
    _warn_of_scores(scored, surface)
    how = _describe_method(surface)
    return {
        "status": how.pop("status"),
        "expiries": scored.expiries,
        "quotes": scored.quotes,
        "excluded": quotes.exclusions.height,
        "inside_bid_ask": scored.inside_bid_ask,
        "inside_bid_ask_held_out": None,
        "iv_rmse_bp_2sd": scored.iv_rmse_bp,
        "vix": None if read.chain is None else _compute_index(read.chain),
        "vix_surface": float(surface.vix()),
        "certificate": {
            "passed": certificate.passed,
            "nas": certificate.nas,
            "findings": certificate.findings.height,
        },
        "iterations": how.pop("iterations"),
        "seconds": how.pop("seconds"),
        "iv_rmse_half_spreads_2sd": scored.iv_rmse_half_spreads,
        **how,
        "exclusions": dict(quotes.counts().select("reason", "quotes").iter_rows()),
        "source": read.name,
        "layout": read.layout,
        "underlying": read.underlying,
        "as_of": str(read.as_of.astype("datetime64[m]")),
        "notes": list(read.notes),
        "versions": {name: version(name) for name in ("arbiter-vol", "numpy", "scipy", "torch")},
        "seconds_of_scoring": time.perf_counter() - began,
    }


def _describe_method(surface: Surface) -> dict[str, Any]:
    """How a surface came about; what a method does not know is null."""
    if isinstance(surface, FittedSurface):
        result, error = surface.result, float(surface.vix_error())
        assert result is not None
        return _describe_fit(result) | {"vix_error": error, "heston": surface.info.get("heston")}
    assert isinstance(surface, OperatorSurface)
    assert surface.result is not None
    assert surface.domain is not None
    return dict.fromkeys(_FIT_ONLY_KEYS) | {
        "status": IN_DOMAIN if surface.domain.inside else OUT_OF_DOMAIN,
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
    }


def _warn_of_scores(scored: Score, surface: Surface) -> None:
    """Warn of numbers that do not mean what their names say."""
    if scored.quotes == 0:
        logger.warning(
            "no quote counts (expiries of 2 days or more with 8 strikes or more): shares and "
            "errors are not known"
        )
    elif scored.inside_bid_ask < MIN_INSIDE_SHARE:
        logger.warning(
            "only %.1f %% of the quotes are inside bid-ask: %s",
            100.0 * scored.inside_bid_ask,
            _FIRST_PASS_NOTE if isinstance(surface, OperatorSurface) else _POOR_FIT_NOTE,
        )
    first, last = DAYS_PER_YEAR * surface.maturities[0], DAYS_PER_YEAR * surface.maturities[-1]
    if not first <= 30.0 <= last:
        logger.warning(
            "vix_surface is an extrapolation: the expiries that were fitted lie %.3g to %.3g days "
            "ahead, and 30 days are not between them",
            first,
            last,
        )


def _compute_index(chain: Chain) -> float | None:
    """The index rule on the chain, or None with a warning where it cannot be applied."""
    try:
        return float(vix(chain))
    except ValueError as error:
        logger.warning("no index from the rule: %s", error)
        return None


def _write_files(
    outcome: Outcome, out: Path, job: Job, say: Callable[[str], None]
) -> tuple[Path, ...]:
    """Make everything elsewhere first, so that an older result stays whole if one thing fails."""
    with tempfile.TemporaryDirectory() as elsewhere:
        made = Path(elsewhere)
        _make_files(outcome, made, job, say)
        files = sorted(path for path in made.rglob("*") if path.is_file())
        # the summary last, so that a folder with a new one is complete
        files.sort(key=lambda path: path.name == SUMMARY)
        for path in files:
            target = out / path.relative_to(made)
            target.parent.mkdir(parents=True, exist_ok=True)
            write_whole(target, path.read_bytes())
        return tuple(out / path.name for path in sorted(made.iterdir()))


def _make_files(outcome: Outcome, out: Path, job: Job, say: Callable[[str], None]) -> None:
    outcome.surface.save(out / SURFACE)
    texts = {
        CERTIFICATE: outcome.certificate.to_json(indent=1),
        EXCLUSIONS: outcome.quotes.exclusions.write_csv(),
        SUMMARY: json.dumps(outcome.summary, indent=1, allow_nan=False),
    }
    if outcome.agreement is not None:
        texts[VIX_EXCLUSIONS] = outcome.agreement.market.quotes.exclusions.write_csv()
    for name, text in texts.items():
        (out / name).write_bytes(text.encode())
    if job.report:
        say("drawing")
        chain = outcome.source.chain
        write_pictures(out / PICTURES, outcome.surface, outcome.quotes, outcome.agreement)
        write_report(
            out / REPORT,
            outcome.surface,
            outcome.quotes,
            summary=outcome.summary,
            certificate=outcome.certificate,
            term_structure=term_structure(outcome.surface, source=chain or outcome.quotes),
            forwards=None if chain is None else chain.forwards(),
            agreement=outcome.agreement,
        )
    if job.pdf:
        write_pdf(
            out / PDF,
            outcome.surface,
            outcome.quotes,
            summary=outcome.summary,
            agreement=outcome.agreement,
        )


def _options_to_dict(options: FitOptions) -> dict[str, Any]:
    plain = asdict(options)
    plain["knots"] = [min(options.knots), max(options.knots), len(options.knots)]
    return plain


class _WarningCollector(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.messages: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        message = record.getMessage()
        if message not in self.messages and record.name != "arbiter.compiled":  # the machine's
            self.messages.append(message)


@contextmanager
def _collect_warnings() -> Iterator[list[str]]:
    """What the package warns of meanwhile, for the summary."""
    package, collector = logging.getLogger("arbiter"), _WarningCollector()
    package.addHandler(collector)
    try:
        yield collector.messages
    finally:
        package.removeHandler(collector)
