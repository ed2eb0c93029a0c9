"""`arbiter fit`: a chain, or a folder of chains, in; surfaces, certificates and reports out."""

from __future__ import annotations

import json as json_format
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from arbiter.cli.chain_folders import (
    CHAIN_SUFFIXES,
    SUMMARY_FILE,
    format_summary,
    list_chains,
    name_folders,
)
from arbiter.cli.chain_options import AsOf, Calendar, Underlying, require_calendar_name
from arbiter.cli.clock_options import IMPLIED, ClockName, EventTexts, clock_lines, parse_clock
from arbiter.cli.console_log import show_only_notices
from arbiter.cli.exit_codes import (
    BAD_INPUT,
    FAILED,
    exit_bad_input,
    explain_error,
    print_written,
    printable_name,
)
from arbiter.cli.safe_console import open_console
from arbiter.cli.score_lines import format_share, score_lines
from arbiter.cli.vix_options import require_vix, vix_dates, vix_lines

if TYPE_CHECKING:
    from arbiter.fitting import FitOptions
    from arbiter.pipeline import FitOutcome, Job

_GOOD_STATUSES = ("converged", "in_domain")
_METHOD_TITLES = {"fit": "fit", "operator": "operator", "both": "operator, fit"}


def fit(  # noqa: PLR0913, PLR0917 - one parameter per option
    chain: Annotated[
        Path | None,
        typer.Argument(help="A chain, or a folder of chains; the shipped example if left out."),
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder for what is written.")] = Path("out"),
    as_of: AsOf = None,
    layout: Annotated[
        str | None,
        typer.Option(help="exchange, yahoo, long, tidy or volatilities; detected if left out."),
    ] = None,
    underlying: Underlying = None,
    calendar: Calendar = "NYSE",
    vix: Annotated[
        Path | None,
        typer.Option("--vix", help="Options on the VIX of the same moment."),
    ] = None,
    vix_futures: Annotated[
        Path | None, typer.Option(help="VIX futures of that day (CSV), with --vix or without.")
    ] = None,
    clock: ClockName = None,
    event: EventTexts = None,
    shortest_days: Annotated[
        float, typer.Option(help="Expiries nearer than this are not fitted.")
    ] = 0.0,
    drop: Annotated[
        list[str] | None,
        typer.Option(
            help="Label of an expiry to leave out: '2023-09-15 SPXW'. May be given several times."
        ),
    ] = None,
    method: Annotated[
        str,
        typer.Option(help="fit, operator (one pass), or both: the fit refines the operator's."),
    ] = "fit",
    components: Annotated[int, typer.Option(help="1, or 2 for a mixture with a crash mode.")] = 1,
    roughness: Annotated[
        str,
        typer.Option(help="likelihood or gcv (chosen by the data), or weights: 0.1,1,0.03."),
    ] = "likelihood",
    holdout: Annotated[
        float | None,
        typer.Option(help="Share of quotes to hold out for a second fit that is scored on them."),
    ] = None,
    seed: Annotated[int, typer.Option(help="Which quotes are held out.")] = 0,
    report: Annotated[
        bool | None,
        typer.Option(
            "--report/--no-report",
            help="Report and pictures; written where the extra 'report' is installed.",
            show_default=False,
        ),
    ] = None,
    pdf: Annotated[bool, typer.Option("--pdf", help="Write the pictures as a PDF too.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print JSON and nothing else.")] = False,
) -> None:
    """Fit a surface to a chain of listed options, certify it and report on it.

    Writes surface.npz, certificate.json, fit.json, exclusions.csv, report.html and pictures/.
    With --vix or --vix-futures index and VIX are fitted together, tied by forward variance; with
    --method operator the index by itself, and the VIX at the level of its forward variance.
    For a folder: the same for each chain in it, in folders of their names, and summary.csv.
    Exit code 0 if every fit converged (with --method operator: every chain is in its domain) and
    every certificate passed, 1 if one did not, 2 if a chain could not be read.
    """
    from arbiter.data import example_chain_path as example_path
    from arbiter.extras import MissingExtraError
    from arbiter.pipeline import METHODS, Job

    source = example_path() if chain is None else chain
    if not source.exists():
        exit_bad_input(
            f"{source} does not exist: give the path of a chain, or of a folder of chains"
        )
    if holdout is not None and not 0.0 < holdout < 1.0:
        exit_bad_input(
            f"--holdout {holdout:g} is not a share: give a number between 0 and 1, as 0.2"
        )
    if seed < 0:
        exit_bad_input(f"--seed {seed} is negative: give 0, 1, 2, ...")
    if method not in METHODS:
        exit_bad_input(f"--method {method} is not known: give {', '.join(METHODS)}")
    _require_method_options(method, components, roughness)
    require_calendar_name(calendar)
    require_vix(source, (vix, vix_futures))
    _require_out_folder(out, (SUMMARY_FILE,) if source.is_dir() else ())
    job = Job(
        as_of=as_of,
        layout=layout,
        underlying=underlying,
        calendar=calendar,
        shortest_days=shortest_days,
        drop=tuple(drop or ()),
        holdout=holdout,
        seed=seed,
        options=parse_fit_options(components, roughness),
        method=method,
        report=report,
        pdf=pdf,
        vix=vix,
        vix_futures=vix_futures,
        clock=parse_clock(clock, event),
        implied_clock=clock == IMPLIED,
    )
    try:
        job.require_packages()
    except MissingExtraError as error:
        exit_bad_input(str(error))
    with show_only_notices():  # warnings go to the summary
        if source.is_dir():
            _fit_folder(source, out, job, json)
        else:
            _fit_single(source, out, job, json)


def _require_method_options(method: str, components: int, roughness: str) -> None:
    """Refuse options of the fit that the method does not have."""
    if method != "fit" and components != 1:
        exit_bad_input(
            f"--components {components} with --method {method}: a surface of the operator has "
            "one component; leave it at 1, or take --method fit"
        )
    if method == "operator" and roughness != "likelihood":
        exit_bad_input(
            f"--roughness {roughness} with --method operator: one pass of the operator has no "
            "roughness to choose; leave it out, or take --method fit or both"
        )


def _require_out_folder(out: Path, files: tuple[str, ...]) -> None:
    from arbiter.files import require_folder

    try:
        require_folder(out, files=files)
    except ValueError as error:
        exit_bad_input(f"--out {out}: {error}")


def parse_fit_options(components: int, roughness: str) -> FitOptions:
    """Options of a fit from those of the command line."""
    from arbiter.fitting import FitOptions, Roughness

    try:
        if roughness in ("likelihood", "gcv"):
            return FitOptions(components=components, roughness=roughness)
        weights = Roughness(*(float(part) for part in roughness.split(",")))
        return FitOptions(components=components, roughness=weights)
    except (ValueError, TypeError) as error:
        exit_bad_input(
            f"--components {components}, --roughness {roughness}: {error}; give 1 or 2, and "
            "likelihood, gcv, or weights of strike, maturity and twist: 0.1,1,0.03"
        )


def _fit_single(source: Path, out: Path, job: Job, json: bool) -> None:
    from arbiter.pipeline import run_job

    try:
        with _show_spinner(not json) as tell:
            outcome = run_job(source, out, job, tell)
    except (ValueError, OSError) as error:
        exit_bad_input(explain_error(error, source, job.vix, job.vix_futures))
    if json:
        typer.echo(json_format.dumps(outcome.summary, indent=1, allow_nan=False))
    else:
        _print_outcome(outcome, out)
    if not _has_passed(outcome.summary):
        raise typer.Exit(FAILED)


def _has_passed(summary: dict[str, Any]) -> bool:
    return bool(summary["certificate"]["passed"] and summary["status"] in _GOOD_STATUSES)


@contextmanager
def _show_spinner(shown: bool) -> Iterator[Callable[[str], None] | None]:

    if not shown:
        yield None
        return
    with open_console(stderr=True).status("reading") as status:
        yield status.update


def _fit_folder(source: Path, out: Path, job: Job, json: bool) -> None:
    """Every chain of a folder; one that cannot be read does not stop the others."""
    from arbiter.files import FolderInUseError

    chains = list_chains(source)
    if not chains:
        exit_bad_input(f"{source} has no chains in it: files end in {', '.join(CHAIN_SUFFIXES)}")
    if out.resolve() == source.resolve():  # the summary would be a chain, or replace one
        exit_bad_input(f"--out {out} is the folder of the chains: name another one")
    try:
        rows = _fit_chains(chains, out, job, json)
    except (FolderInUseError, OSError) as error:
        exit_bad_input(f"--out {out}: {error}")
    if json:
        typer.echo(json_format.dumps(rows, indent=1, allow_nan=False))
    else:
        _print_folder(rows, out, job.why_no_report)
    if any("error" in row for row in rows):
        raise typer.Exit(BAD_INPUT)
    if not all(_has_passed(row) for row in rows):
        raise typer.Exit(FAILED)


def _fit_chains(chains: list[Path], out: Path, job: Job, json: bool) -> list[dict[str, Any]]:
    """Fit each chain into a folder of its own, then write the summary; no other run may do so."""
    from rich.progress import track

    from arbiter.files import own_folder, write_whole
    from arbiter.pipeline import run_job

    rows: list[dict[str, Any]] = []
    console = open_console(stderr=True, quiet=json)
    places = name_folders(chains)
    with own_folder(out):
        for path in track(chains, "fitting", console=console, transient=True):
            row: dict[str, Any] = {"chain": printable_name(path)}
            try:
                row |= run_job(path, out / places[path], job).summary
            except (ValueError, OSError) as error:
                row |= {"status": "refused", "error": explain_error(error, path)}
            rows.append(row)
        write_whole(out / SUMMARY_FILE, format_summary(rows))
    return rows


def _print_folder(rows: list[dict[str, Any]], out: Path, note: str | None) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    table = Table(title="Chains", title_justify="left", box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    heads = ("chain", "status", "expiries", "quotes", "inside", "unseen", "bp", "VIX", "exact")
    for head in heads:
        table.add_column(head, justify="left" if head in ("chain", "status") else "right")
    for row in rows:
        if "error" in row:
            table.add_row(row["chain"], "refused")
            continue
        table.add_row(
            row["chain"],
            row["status"] if row["certificate"]["passed"] else "not certified",
            f"{row['expiries']}",
            f"{row['quotes']:,}",
            format_share(row["inside_bid_ask"]),
            format_share(row["inside_bid_ask_held_out"]),
            _format_fixed(row["iv_rmse_bp_2sd"]),
            _format_fixed(row["vix"]),
            _format_fixed(row["vix_surface"]),
        )
    console = open_console()
    console.print(table)
    for row in rows:
        if "error" in row:
            console.print(f"Error: {row['error']}", highlight=False, markup=False)
    if note is not None:
        console.print(f"note: {note}", highlight=False, markup=False)
    print_written(console, out / SUMMARY_FILE)


def _print_outcome(outcome: FitOutcome, out: Path) -> None:
    """The numbers that a user looks for first, and where everything lies."""
    from rich.table import Table

    from arbiter.pipeline import PDF, PICTURES, REPORT

    s, console = outcome.summary, open_console()
    numbers = Table.grid(padding=(0, 2))
    numbers.add_row("chain", f"{outcome.source}")
    used = f"{s['quotes']:,} on {s['expiries']} expiries"
    numbers.add_row("quotes", f"{used}; {s['excluded']:,} others not used, see below")
    steps = "one pass" if s["method"] == "operator" else f"{s['iterations']} steps"
    took = f"{s['status']} in {steps}, {s['seconds']:.2g} s"
    numbers.add_row(_METHOD_TITLES[s["method"]], took)
    unseen = format_share(s["inside_bid_ask_held_out"])
    inside = f"{format_share(s['inside_bid_ask'])} inside bid-ask"
    numbers.add_row("", inside + ("" if unseen == "–" else f", {unseen} of those held out"))
    numbers.add_row(
        "", f"{_format_fixed(s['iv_rmse_bp_2sd'])} bp RMSE within two standard deviations"
    )
    error = None if s["vix_error"] is None else 2.0 * s["vix_error"]
    spread = "" if error is None else f" ± {_format_fixed(error)}"
    exact = f"{_format_fixed(s['vix_surface'])}{spread} exact, from the surface"
    index = ("VIX", f"{_format_fixed(s['vix'])} by the index rule, {exact}")
    market = [] if s["vix_market"] is None else vix_lines(s["vix_market"])
    scores = score_lines(s["score"], s["expiries_left_out"])
    for name, text in (*scores, *clock_lines(s["clock"]), index, *market):
        numbers.add_row(name, text)
    numbers.add_row("certificate", _describe_certificate(outcome))
    if s["operator"] is not None:
        numbers.add_row("answered by", _describe_path(s["path"], s["operator"]["share"]))
        flags = (s["operator"]["monitors"] or {}).get("flags", {})
        watched = ", ".join(flags) + " flagged" if flags else "no flag on A1 to A4"
        numbers.add_row("assumptions", watched)
        numbers.add_row("domain", _describe_domain(s["operator"]["domain"]))
    if s["method"] == "both":
        alone = s["operator"]
        numbers.add_row(
            "operator alone",
            f"{format_share(alone['inside_bid_ask'])} inside bid-ask, "
            f"{_format_fixed(alone['iv_rmse_bp_2sd'])} bp RMSE, {alone['seconds']:.2g} s",
        )
    console.print(numbers, highlight=False, markup=False)
    if s["vix_market"] is not None:
        console.print(vix_dates(s["vix_market"]))
    reasons = Table(title="Not used", title_justify="left")
    for head in ("quotes", "reason", "meaning"):
        reasons.add_column(head, justify="right" if head == "quotes" else "left")
    for reason, count, meaning in outcome.quotes.counts().iter_rows():
        reasons.add_row(f"{count:,}", reason, meaning)
    console.print(reasons)
    for kind in ("notes", "warnings"):
        for sentence in s[kind]:
            console.print(f"{kind[:-1]}: {sentence}", highlight=False, markup=False)
    for path in outcome.written:
        print_written(console, path)
    for path in sorted({out / name for name in (REPORT, PICTURES, PDF)} - {*outcome.written}):
        if path.exists():
            console.print(f"note: {path} is of an earlier fit", highlight=False, markup=False)


def _describe_certificate(outcome: FitOutcome) -> str:
    certificate = outcome.certificate
    checked = f"{sum(certificate.checked.values()):,} inequalities"
    if certificate.passed:
        return f"passed: no arbitrage among {checked}, structural proof complete; NAS 1"
    return f"failed: {certificate.findings.height:,} findings among {checked}"


def _describe_path(path: str, share: float) -> str:
    """Which path answered, and how much of the network's change is in the operator's surface."""
    kept = (
        "the network's change is made in full"
        if share == 1.0
        else (f"{format_share(share)} of the network's change is made")
    )
    return f"{path}; {kept}"


def _describe_domain(report: dict[str, Any]) -> str:
    if report["inside"]:
        return f"like the training universe in all {len(report['traits'])} traits"
    count = len(report["alarms"])
    traits = "one trait" if count == 1 else f"{count} traits"
    return f"unlike the training universe in {traits}, see the warnings"


def _format_fixed(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}"
