"""From a chain file to everything a user keeps: surface, certificate, numbers, report, pictures."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field, replace
from importlib.metadata import version
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from arbiter import inputs
from arbiter.audit.certificate import Certificate
from arbiter.chains.cleaning import SHORTEST_DAYS
from arbiter.extras import REPORT_PACKAGES, describe_missing, require_installed
from arbiter.files import require_folder
from arbiter.files.result_folder import ResultFolder
from arbiter.files.safe_text import format_safe_csv
from arbiter.fitting import FitOptions, FittedSurface, fit
from arbiter.fitting.vix_comparison import JointComparison, fit_markets
from arbiter.quotes import Quotes
from arbiter.report.fit_summary import Answer, build_summary, nan_to_none
from arbiter.scoring import score
from arbiter.sources import QuoteSource, VixSource
from arbiter.timing.clock import Clock
from arbiter.timing.maturities import DateLike
from arbiter.timing.sessions import NYSE
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
_CLOCK_NOTE = (
    "between expiries the surface runs on its clock and the index rule counts minutes: vix_surface "
    "and vix differ by that too"
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
        calendar: Quoting hours by which moments are read, as for ``read_chain``.
        shortest_days: Expiries nearer than this are not fitted.
        drop: Labels of expiries to leave out.
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
        clock: How fast variance passes, and scheduled events; None for calendar time.
        implied_clock: Whether weights of nights and weekends are those that the quotes imply.
    """

    as_of: DateLike | None = None
    layout: str | None = None
    underlying: str | None = None
    calendar: str = NYSE.name
    shortest_days: float = SHORTEST_DAYS
    drop: tuple[str, ...] = ()
    holdout: float | None = None
    seed: int = 0
    options: FitOptions = field(default_factory=FitOptions)
    method: str = "fit"
    report: bool | None = None
    pdf: bool = False
    vix: Path | None = None
    vix_futures: Path | None = None
    clock: Clock | None = None
    implied_clock: bool = False

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

    ``tell`` is called with what is being done, in a few words. The result is written beside an
    older one in ``out`` and replaces it whole; files of others in the folder stay.

    Raises:
        ValueError: If the chain cannot be read or used, or ``out`` cannot be written to or is in
            use by another run; nothing is written then.
        MissingExtraError: If a report was asked for, and a package that it needs is missing.
    """
    job.require_packages()
    say = tell or (lambda _: None)
    require_folder(out, files=FILES, folders=(PICTURES,))
    with ResultFolder(Path(out), SUMMARY, _is_result_file).replace() as made:
        outcome = _fit_source(source, job, say)
        _make_files(outcome, made, job, say)
        written = tuple(Path(out) / path.name for path in sorted(made.iterdir()))
    return replace(outcome, written=written)


def _is_result_file(name: PurePosixPath) -> bool:
    """Whether a fit can have written a file of that name."""
    return str(name) in FILES or (str(name.parent) == PICTURES and name.suffix == ".png")


def _fit_source(source: str | Path, job: Job, say: Callable[[str], None]) -> FitOutcome:
    """Everything but the files."""
    say("reading")
    read = QuoteSource.read(
        source,
        as_of=job.as_of,
        layout=job.layout,
        underlying=job.underlying,
        calendar=job.calendar,
        shortest_days=job.shortest_days,
        drop=job.drop,
    )
    quotes = _set_clock(read.quotes, job)
    given = VixSource.read(read, job.vix, job.vix_futures, as_of=job.as_of, calendar=job.calendar)
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
    summary["run"] = _name_run(quotes, answer.surface, job)
    return FitOutcome(read, quotes, answer.surface, certificate, summary, agreement)


def _name_run(quotes: Quotes, surface: FittedSurface | OperatorSurface, job: Job) -> str:
    """Names a run by its version, options, quotes and surface: the same ones have the same name."""
    told = replace(job, vix=None, vix_futures=None)
    digest = hashlib.sha256(f"{version('arbiter-vol')} {told} {dict(quotes.info)}".encode())
    vix = () if surface.vix_slices is None else (surface.vix_slices.slopes,)
    for array in (quotes.T, quotes.k, quotes.bid, quotes.ask, surface.slopes, *vix):
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()[:16]


def _add_new(warnings: list[str], said: Iterable[str], prefix: str = "") -> None:
    """Append the sentences that are not among the warnings yet, behind a prefix."""
    new = dict.fromkeys(sentence for sentence in said if sentence not in warnings)
    warnings.extend(prefix + sentence for sentence in new)


def _set_clock(quotes: Quotes, job: Job) -> Quotes:
    if job.clock is None:
        return quotes
    clock = quotes.implied_clock(*job.clock.events) if job.implied_clock else job.clock
    return quotes.with_clock(clock)


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
    """Sentences about what a method does not give, and about the clock."""
    timed = [] if surface.clock is None else [_CLOCK_NOTE]
    if job.method == "operator":
        return timed if given is None else [*timed, _VIX_SHAPE_NOTE]
    # errors of a cross-fit contain the noise of its guide
    judged = isinstance(surface, FittedSurface) and surface.result.chosen == "crossfit"
    if job.method == "both" and len(surface.slopes) == 1 and not judged:
        return [*timed, _SMALL_ERRORS_NOTE]
    return timed


def _make_files(outcome: FitOutcome, out: Path, job: Job, say: Callable[[str], None]) -> None:
    """Write every file of a result into an empty folder; each names the run."""
    run, surface = {"run": outcome.summary["run"]}, outcome.surface
    replace(surface, info=inputs.freeze_info({**surface.info, **run})).save(out / SURFACE)
    tables = {EXCLUSIONS: outcome.quotes.exclusions}
    if outcome.agreement is not None:
        tables[VIX_EXCLUSIONS] = outcome.agreement.market.quotes.exclusions
    for name, table in tables.items():
        text = format_safe_csv(table.with_columns(**{n: pl.lit(v) for n, v in run.items()}))
        (out / name).write_bytes(text.encode())
    certificate = run | json.loads(outcome.certificate.to_json())
    (out / CERTIFICATE).write_text(json.dumps(certificate, indent=1), encoding="utf-8")
    if job.writes_report or job.pdf:
        say("drawing")
        _draw_report(outcome, out, job)
    files = sorted(path.relative_to(out).as_posix() for path in out.rglob("*") if path.is_file())
    outcome.summary["files"] = [*files, SUMMARY]
    (out / SUMMARY).write_text(
        json.dumps(outcome.summary, indent=1, allow_nan=False), encoding="utf-8"
    )


def _draw_report(outcome: FitOutcome, out: Path, job: Job) -> None:
    """Page, pictures and PDF, from one evaluation of the surface."""
    from arbiter.report import write_booklet, write_page, write_panels
    from arbiter.report.curves import Readings

    readings = Readings.of(outcome.surface, outcome.quotes, outcome.agreement)
    outcome.summary["notes"] += readings.notes
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
