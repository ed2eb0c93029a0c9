"""`arbiter reproduce`: every number, table and figure from nothing, and whether they hold."""

from __future__ import annotations

import json as json_format
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from arbiter.cli.exit_codes import (
    FAILED,
    exit_bad_input,
    exit_failed,
    exit_interrupted,
    print_written,
)

if TYPE_CHECKING:
    from arbiter_lab.reproduction.check_results import ResultsCheck
    from arbiter_lab.reproduction.run_protocol import RunOutcome

RunOptions = tuple[
    str | None, Path | None, int | None, bool
]  # stage, checkpoints, workers, silence

_MAX_FINDINGS_SHOWN = 20  # findings that a terminal shows


def reproduce(
    profile: Annotated[
        str | None, typer.Option(help="smoke (3 minutes), paper (45) or full (a GPU, hours).")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder of the results; results if left out.")
    ] = None,
    check: Annotated[
        Path | None,
        typer.Option(
            help="Verify the checksums of this folder of results; with --out, run again there and "
            "compare within the intervals."
        ),
    ] = None,
    stage: Annotated[
        str | None, typer.Option(help="End after this stage; the next call goes on.")
    ] = None,
    checkpoints: Annotated[
        Path | None,
        typer.Option(help="Folder of networks at full size; the package's own if none."),
    ] = None,
    workers: Annotated[
        int | None, typer.Option(help="Processes at a time; one for each processor if left out.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON and nothing else.")] = False,
) -> None:
    """Regenerate every number, table and figure of the paper's protocol.

    Stages that are done with the same inputs are skipped, so that an interrupted run goes on where
    it stopped. Writes results.json, tables/, figures/, report.html, sweeps.csv, stages/,
    replicate.json (machine and times) and manifest.json (checksums). Listed chains are taken from
    ARBITER_DATA where it is set. Exit code 0 if all was written, and with --check if all agrees; 1
    if a check failed, 2 if an option makes no sense, 130 if it was interrupted.
    """
    from arbiter.operators.checkpoint import CheckpointError

    try:
        if check is not None:
            found = _check_folder(check, profile, out, (stage, checkpoints, workers, json))
            _end_check(found, json)
            return
        how = (stage, checkpoints, workers, json)
        outcome = _run_profile(profile or "paper", out or Path("results"), how)
    except (CheckpointError, ValueError, OSError) as error:
        exit_bad_input(str(error))
    except FloatingPointError as error:
        exit_failed(str(error))
    except KeyboardInterrupt:
        exit_interrupted("the same command goes on from the last stage")
    _print_outcome(outcome, json)


def _run_profile(profile: str, out: Path, how: RunOptions) -> RunOutcome:
    from arbiter_lab.reproduction.display import Display
    from arbiter_lab.reproduction.external_stage import chains_folder
    from arbiter_lab.reproduction.models import Checkpoints
    from arbiter_lab.reproduction.profiles import find_profile as named
    from arbiter_lab.reproduction.run_protocol import STAGES
    from arbiter_lab.reproduction.run_protocol import reproduce as run

    stage, checkpoints, workers, quiet = how
    if checkpoints is not None and not checkpoints.is_dir():
        raise ValueError(f"--checkpoints {checkpoints} is not a folder: give one, or leave it out")
    with Display(len(STAGES), silent=quiet) as display:
        return run(
            named(profile),
            out,
            checkpoints=None if checkpoints is None else Checkpoints(checkpoints),
            chains=chains_folder(),
            last=stage,
            workers=workers,
            display=display,
        )


def _check_folder(
    folder: Path, profile: str | None, out: Path | None, how: RunOptions
) -> ResultsCheck:
    from arbiter_lab.reproduction.check_results import check, read_profile_name

    if how[0] is not None:
        raise ValueError("--stage ends a run early, and a check needs a whole one: leave it out")
    if not folder.is_dir():
        raise ValueError(f"--check {folder} is not a folder: name one with results")
    if out is None:
        return check(folder)
    if out.resolve() == folder.resolve():
        raise ValueError(f"--out {out} is the folder that is checked: name another one")
    was = read_profile_name(folder)
    if profile is not None and profile != was:
        raise ValueError(f"{folder} is of the profile {was!r}: leave --profile out, or name it")
    _run_profile(was, out, how)
    return check(folder, out)


def _end_check(found: ResultsCheck, json: bool) -> None:
    if json:
        typer.echo(json_format.dumps(found.to_dict(), indent=1, allow_nan=False))
    else:
        told = found.problem_sentences()
        for sentence in told[:_MAX_FINDINGS_SHOWN]:
            typer.echo(sentence)
        if len(told) > _MAX_FINDINGS_SHOWN:
            typer.echo(f"and {len(told) - _MAX_FINDINGS_SHOWN} more")
        if found.passed:
            typer.echo(_describe_agreement(found))
    if not found.passed:
        raise typer.Exit(FAILED)


def _describe_agreement(found: ResultsCheck) -> str:
    if found.same_bytes is None:
        return f"{found.folder}: every file is as it was written"
    how = "the same bytes" if found.same_bytes else "within the intervals"
    return (
        f"{found.folder}: every file is as it was written, and the second run agrees on "
        f"{found.compared:,} numbers, {how}"
    )


def _print_outcome(outcome: RunOutcome, json: bool) -> None:
    if json:
        typer.echo(json_format.dumps(_collect_facts(outcome), indent=1, allow_nan=False))
        return
    from rich.console import Console

    console = Console()
    told = ", ".join(outcome.ran) if outcome.ran else "none: all were done"
    console.print(f"stages that ran: {told}", highlight=False, markup=False)
    if not outcome.complete:
        console.print("ended early, as asked: the same command without --stage goes on")
        return
    for name, reason in outcome.missing.items():
        console.print(f"missing: {name}: {reason}", highlight=False, markup=False, soft_wrap=True)
    for name in ("results.json", "report.html", "manifest.json"):
        print_written(console, outcome.out / name)


def _collect_facts(outcome: RunOutcome) -> dict[str, Any]:
    return {
        "out": str(outcome.out),
        "ran": list(outcome.ran),
        "complete": outcome.complete,
        "missing": outcome.missing,
    }
