"""From a chain file to everything a user keeps: surface, certificate, numbers, report, pictures."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from arbiter.audit.certificate import Certificate
from arbiter.extras import REPORT_PACKAGES, describe_missing, require_installed
from arbiter.files import require_folder, write_whole
from arbiter.fitting import FitOptions, FittedSurface, fit
from arbiter.fitting.vix_comparison import JointComparison, fit_markets
from arbiter.forwards import DateLike
from arbiter.quotes import Quotes
from arbiter.report.fit_summary import Answer, build_summary, nan_to_none
from arbiter.scoring import score
from arbiter.sources import QuoteSource, VixSource
from arbiter.vix.replication import term_structure

if TYPE_CHECKING:
    from arbiter.operators.operator_surface import OperatorSurface

SURFACE, CERTIFICATE, SUMMARY = "surface.npz", "certificate.json", "fit.json"
REPORT, EXCLUSIONS, PICTURES, PDF = "report.html", "exclusions.csv", "pictures", "report.pdf"
VIX_EXCLUSIONS = "vix_exclusions.csv"
FILES = (SURFACE, CERTIFICATE, SUMMARY, REPORT, EXCLUSIONS, VIX_EXCLUSIONS, PDF)
METHODS = ("fit", "operator", "both")
_SMALL_ERRORS_NOTE = (
    "standard errors are too small: the operator, the prior of this fit, has seen the same quotes; "
    "those of --method fit hold"
)
_VIX_SHAPE_NOTE = (
    "VIX slices follow the VIX options in shape, at the level of the operator's own forward "
    "variance; --method both fits the two markets together"
)


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
        report: Whether to write the report and the pictures; if None, where their packages are
            installed.
        pdf: Whether to write the pictures as one PDF too.
        vix: File with options on the VIX: a fit is one of both markets then, and the operator's
            surface has VIX slices that follow them.
        vix_futures: File with futures on the VIX.
    """

    as_of: DateLike | None = None
    layout: str | None = None
    underlying: str | None = None
    shortest_days: float = 2.0
    holdout: float | None = None
    seed: int = 0
    options: FitOptions = field(default_factory=FitOptions)
    method: str = "fit"
    report: bool | None = None
    pdf: bool = False
    vix: Path | None = None
    vix_futures: Path | None = None

    def __post_init__(self) -> None:
        if self.method not in METHODS:
            raise ValueError(f"method = {self.method!r} is none of {', '.join(METHODS)}")

    def require_packages(self) -> None:
        """Raise a ``MissingExtraError`` if what was asked for needs packages that are missing."""
        if self.report or self.pdf:
            require_installed(*REPORT_PACKAGES)

    @property
    def why_no_report(self) -> str | None:
        """A sentence, where a report would be written if its packages were installed."""
        return describe_missing(*REPORT_PACKAGES) if self.report is None else None

    @property
    def writes_report(self) -> bool:
        """Whether a report is written."""
        return self.report is not False and self.why_no_report is None


@dataclass(frozen=True, eq=False)
class FitOutcome:
    """Surface, certificate and summary of one chain, and the files written."""

    source: QuoteSource
    quotes: Quotes
    surface: FittedSurface | OperatorSurface
    certificate: Certificate
    summary: dict[str, Any]
    agreement: JointComparison | None = None  # of index and VIX, where both were fitted
    written: tuple[Path, ...] = ()  # files and folders, in the folder that was asked for


def run_job(
    source: str | Path, out: str | Path, job: Job, tell: Callable[[str], None] | None = None
) -> FitOutcome:
    """Fit the chain in ``source`` and write what came of it into the folder ``out``.

    ``tell`` is called with what is being done, in a few words.

    Raises:
        ValueError: If the chain cannot be read or used, or ``out`` cannot be written to; nothing
            is written then.
        MissingExtraError: If a report was asked for, and a package that it needs is missing.
    """
    job.require_packages()
    say = tell or (lambda _: None)
    require_folder(out, files=FILES, folders=(PICTURES,))
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
    fits = None
    if given is not None and job.method == "fit":
        fits = fit_markets(quotes, given.quotes, given.futures, job.options)
        answer = Answer(job.method, fits.joint, None)
    else:
        answer = _make_surface(quotes, job, given)
    warnings: list[str] = []
    _add_new(warnings, (*quotes.warnings, *(() if given is None else given.warnings)))
    _add_new(warnings, answer.warnings)
    held_out = None
    if hidden is not None:
        say(f"fitting again without {hidden.sum():,} of them")
        held_out, said = _score_held_out(quotes, hidden, job, given)
        _add_new(warnings, said, "without the held-out quotes: ")
    agreement = None
    if fits is not None:
        agreement = JointComparison.from_fits(fits.joint, fits.alone, fits.smiles, fits.market)
    elif given is not None:
        say("fitting each market by itself")
        agreement = _compare_markets(answer.surface, quotes, given, job.options)
    if agreement is not None:
        _add_new(warnings, agreement.alone.result.warnings)
    say("certifying")
    certificate = answer.surface.certificate()
    summary, said = build_summary(read, answer, certificate)
    _add_new(warnings, said)
    market = None if given is None or agreement is None else given.names | agreement.to_dict()
    summary |= {
        "vix_market": market,
        "inside_bid_ask_held_out": held_out,
        "options": None if job.method == "operator" else _options_to_dict(job.options),
        "warnings": warnings,
    }
    summary["notes"] += _list_method_notes(answer.surface, job, given)
    summary["notes"] += [] if job.why_no_report is None else [job.why_no_report]
    summary = {name: nan_to_none(value) for name, value in summary.items()}
    outcome = FitOutcome(read, quotes, answer.surface, certificate, summary, agreement)
    return replace(outcome, written=_write_files(outcome, Path(out), job, say))


def _add_new(warnings: list[str], said: Iterable[str], prefix: str = "") -> None:
    """Append the sentences that are not among the warnings yet, behind a prefix."""
    new = dict.fromkeys(sentence for sentence in said if sentence not in warnings)
    warnings.extend(prefix + sentence for sentence in new)


def _choose_held_out(quotes: Quotes, share: float, seed: int) -> NDArray[np.bool_]:
    mask = quotes.held_out(share, seed)
    if not mask.any():
        raise ValueError(
            f"a share of {share:g} of {len(quotes)} quotes, the ends of each expiry apart, is "
            "none: hold out a larger share, or none"
        )
    return mask


def _make_surface(quotes: Quotes, job: Job, given: VixSource | None) -> Answer:
    """The surface of the method that was asked for, and the operator's own if it took part."""
    options, futures = (None, None) if given is None else (given.quotes, given.futures)
    if job.method == "fit":
        fitted = fit(quotes, vix_quotes=options, vix_futures=futures, options=job.options)
        return Answer(job.method, fitted, None)
    from arbiter.operators.pretrained import Operator

    operator = Operator.pretrained()
    if job.method == "operator":
        first = operator(quotes, vix_quotes=options, vix_futures=futures)
        return Answer(job.method, first, first)
    first = operator(quotes)
    refined = operator.refine(quotes, first, job.options, vix_quotes=options, vix_futures=futures)
    return Answer(job.method, refined, first)


def _score_held_out(
    quotes: Quotes, hidden: NDArray[np.bool_], job: Job, given: VixSource | None
) -> tuple[float, tuple[str, ...]]:
    """Share of hidden quotes inside bid-ask for a surface of the others, and its warnings."""
    rest = _make_surface(quotes.select(~hidden), job, given)
    scored = score(rest.surface, quotes, hidden)
    return scored.inside_bid_ask, (*rest.warnings, *scored.warnings)


def _compare_markets(
    surface: FittedSurface | OperatorSurface, quotes: Quotes, given: VixSource, options: FitOptions
) -> JointComparison:
    """The surface of both markets beside fits of each by itself."""
    alone = fit(quotes, options=options)
    return JointComparison.from_surfaces(surface, alone, given.quotes, given.futures, options)


def _list_method_notes(
    surface: FittedSurface | OperatorSurface, job: Job, given: VixSource | None
) -> list[str]:
    """Sentences about what a method does not give."""
    if job.method == "operator":
        return [] if given is None else [_VIX_SHAPE_NOTE]
    # errors of a cross-fit contain the noise of its guide
    judged = isinstance(surface, FittedSurface) and surface.result.chosen == "crossfit"
    if job.method == "both" and len(surface.slopes) == 1 and not judged:
        return [_SMALL_ERRORS_NOTE]
    return []


def _write_files(
    outcome: FitOutcome, out: Path, job: Job, say: Callable[[str], None]
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


def _make_files(outcome: FitOutcome, out: Path, job: Job, say: Callable[[str], None]) -> None:
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
    if job.writes_report or job.pdf:
        say("drawing")
        _draw_report(outcome, out, job)


def _draw_report(outcome: FitOutcome, out: Path, job: Job) -> None:
    """Page, pictures and PDF, from one evaluation of the surface."""
    from arbiter.report import write_booklet, write_page, write_panels
    from arbiter.report.curves import Readings

    readings = Readings(outcome.surface, outcome.quotes, outcome.agreement)
    if job.writes_report:
        chain = outcome.source.chain
        write_panels(out / PICTURES, readings)
        write_page(
            out / REPORT,
            readings,
            summary=outcome.summary,
            certificate=outcome.certificate,
            term_structure=term_structure(outcome.surface, source=chain or outcome.quotes),
            forwards=None if chain is None else chain.forwards(),
        )
    if job.pdf:
        write_booklet(out / PDF, readings, outcome.summary)


def _options_to_dict(options: FitOptions) -> dict[str, Any]:
    plain = asdict(options)
    plain["knots"] = [min(options.knots), max(options.knots), len(options.knots)]
    return plain
