"""`arbiter evaluate`: methods against the truth, or on listed chains, all on the same quotes."""

from __future__ import annotations

import json as json_format
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from arbiter.cli.console_log import show_only_notices
from arbiter.cli.exit_codes import BAD_INPUT, FAILED, exit_bad_input, exit_interrupted
from arbiter_lab.cli.evaluation_tables import print_results

if TYPE_CHECKING:
    from rich.progress import TaskID

    from arbiter_lab.baselines.trained_baseline import Baseline
    from arbiter_lab.evaluation.known_surface import Case
    from arbiter_lab.evaluation.methods import Method, TrainedOperator

BENCHES = ("unseen", "heston", "heston-hard", "rough-bergomi", "double-heston")
RESULT, PICTURE = "evaluation.json", "errors.png"
_REAL_PREFIX = "real:"
_NEED_OPERATOR = {"operator", "refine"}
ProgressCallback = Callable[[str, int, int], None]


def evaluate(  # noqa: PLR0913, PLR0917 - one parameter per option
    bench: Annotated[
        str,
        typer.Option(
            help="unseen, heston, heston-hard, rough-bergomi, double-heston, or real:FOLDER for "
            "chains of a folder."
        ),
    ] = "unseen",
    weights: Annotated[
        Path | None, typer.Option(help="A checkpoint; the shipped operator if left out.")
    ] = None,
    method: Annotated[
        list[str] | None,
        typer.Option(
            help="prior, operator, refine, fit, svi, heston, ssvi or fit_then_clean; give it again "
            "for several. The first five if none, and heston on its own markets; without refine "
            "for the decoder icnn, which has no surface."
        ),
    ] = None,
    baseline: Annotated[
        list[Path] | None,
        typer.Option(help="A trained baseline's checkpoint, to compare with; again for several."),
    ] = None,
    count: Annotated[
        int | None, typer.Option(help="Number of surfaces, or of chains, from the first on.")
    ] = None,
    first: Annotated[
        int, typer.Option(help="Number of the first surface: 2000 is beyond the benchmark's own.")
    ] = 0,
    out: Annotated[Path, typer.Option(help="Folder for what is written.")] = Path("evaluation"),
    cache: Annotated[
        Path | None,
        typer.Option(help="Folder of the unseen surfaces; OUT/surfaces if left out."),
    ] = None,
    certify: Annotated[
        bool,
        typer.Option("--certify", help="Whole certificates, half a second for each surface."),
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="Print JSON and nothing else.")] = False,
) -> None:
    """Compare methods on surfaces whose truth is known, or on listed chains.

    Errors are in basis points of volatility against the exact surface, pooled over all points,
    quoted or not. The 2,000 unseen surfaces are made on first use, in a minute or two. Writes
    evaluation.json and, where the truth is known, errors.png. Exit code 0 if every surface of a
    method that promises it (all but svi and trained baselines) is free of arbitrage, 1 if one is
    not or such a method refused quotes, 2 if an option makes no sense or a chain cannot be read.
    """
    from arbiter.files import require_folder
    from arbiter_lab.evaluation.methods import DEFAULT_METHODS, default_method_names, select_methods

    real = bench.removeprefix(_REAL_PREFIX) if bench.startswith(_REAL_PREFIX) else None
    if real is None and bench not in BENCHES:
        exit_bad_input(f"--bench {bench} is not one of {', '.join(BENCHES)}, {_REAL_PREFIX}FOLDER")
    if count is not None and count < 1:
        exit_bad_input(f"--count {count}: give at least one")
    if first < 0 or (first > 0 and real is not None):
        exit_bad_input(f"--first {first}: give 0 or more, of surfaces whose truth is known")
    names = method or [*DEFAULT_METHODS]
    try:
        require_folder(out, files=(RESULT, PICTURE), folders=("surfaces",))
        trained = _load_operator(weights) if _NEED_OPERATOR & {*names} else None
        names = method or default_method_names(trained, bench.startswith("heston"))
        networks = _load_baselines(baseline or [])
        names += [name for name in networks if name not in names]
        chosen = select_methods(names, trained, networks)
        about: dict[str, Any] = {
            "bench": bench,
            "methods_run": names,
            "weights": _describe_operator(trained),
        }
        about |= {"first": first} if first else {}
        with show_only_notices(), _show_progress(not json) as tell:
            if real is None:
                cases = _make_cases(bench, (first, count), cache or out / "surfaces", tell)
                facts = about | _evaluate_cases(cases, chosen, certify, tell)
                families = facts.pop("families")
            else:
                facts = about | _evaluate_folder(Path(real), count, chosen, tell)
                families = None
        written = _write_results(facts, families, out)
    except (ValueError, OSError, ImportError) as error:  # a projection needs a package of its own
        exit_bad_input(str(error))
    except KeyboardInterrupt:
        exit_interrupted("nothing is written but the surfaces made so far")
    if json:
        typer.echo(json_format.dumps(facts, indent=1, allow_nan=False))
    else:
        print_results(facts, written)
    _exit_if_failed(facts, chosen)


def _load_operator(weights: Path | None) -> TrainedOperator:
    from arbiter_lab.evaluation.methods import load_any_operator, load_operator

    if weights is None:
        return load_operator()
    if not weights.is_file():
        exit_bad_input(f"--weights {weights} does not exist: give a checkpoint, or leave it out")
    return load_any_operator(weights)


def _load_baselines(paths: list[Path]) -> dict[str, Baseline]:
    """Trained baselines by the name of their model."""
    from arbiter_lab.baselines.trained_baseline import Baseline

    found: dict[str, Baseline] = {}
    for path in paths:
        if not path.is_file():
            exit_bad_input(f"--baseline {path} does not exist: give a checkpoint")
        loaded = Baseline.load(path)
        name = loaded.design.model
        if name in found:
            exit_bad_input(f"--baseline {path} is a second {name!r}: compare one of each at a time")
        found[name] = loaded
    return found


def _describe_operator(trained: TrainedOperator | None) -> dict[str, Any] | None:
    if trained is None:
        return None
    return {
        "model": trained.model,
        "decoder": getattr(trained.config, "decoder", "transport"),
        "lipschitz": trained.lipschitz,
        "source": Path(trained.source).name,
    }


def _evaluate_cases(
    cases: list[Case], chosen: list[Method], certify: bool, tell: ProgressCallback
) -> dict[str, Any]:
    from arbiter_lab.evaluation.run_methods import evaluate as run

    found = run(cases, chosen, full=certify, tell=lambda name, done: tell(name, done, len(cases)))
    audit = "certificate" if certify else "structural proof and a table of prices"
    return {"audit": audit, **found.to_dict(), "families": [case.family for case in cases]}


def _make_cases(
    bench: str, which: tuple[int, int | None], cache: Path, tell: ProgressCallback
) -> list[Case]:
    from arbiter_lab.evaluation import (
        heston_surfaces,
        outside_markets,
        stored_surfaces,
        unseen_surfaces,
    )

    first, count = which
    if bench == "unseen":
        wanted = unseen_surfaces.SURFACE_COUNT if count is None else count
        if wanted > unseen_surfaces.SURFACE_COUNT:
            exit_bad_input(
                f"--count {count}: there are {unseen_surfaces.SURFACE_COUNT:,} unseen surfaces"
            )
        return stored_surfaces.load_unseen_surfaces(
            wanted, cache, lambda done: tell("surfaces", done, wanted), first
        )
    outside = bench in outside_markets.OUTSIDE_BENCHES
    usual = outside_markets.SURFACE_COUNT if outside else heston_surfaces.SURFACE_COUNT
    wanted = usual if count is None else count
    cases = []
    for number in range(first, first + wanted):
        cases.append(
            outside_markets.make_outside_case(bench, number)
            if outside
            else heston_surfaces.heston_case(number, bench == "heston-hard")
        )
        tell("surfaces", len(cases), wanted)
    return cases


def _evaluate_folder(
    folder: Path, count: int | None, chosen: list[Method], tell: ProgressCallback
) -> dict[str, Any]:
    from arbiter_lab.evaluation.listed_chains import (
        evaluate_chains,
        find_chain_files,
        summarise_chains,
    )

    paths = find_chain_files(folder)[:count]
    rows = evaluate_chains(paths, chosen, lambda _, done: tell("chains", done, len(paths)))
    return {"chains": rows, "summary": summarise_chains(rows)}


def _write_results(facts: dict[str, Any], families: list[str] | None, out: Path) -> list[Path]:
    from arbiter.files import write_whole

    out.mkdir(parents=True, exist_ok=True)
    text = json_format.dumps(facts, indent=1, allow_nan=False)
    written = [write_whole(out / RESULT, text + "\n")]
    if families is not None:
        from arbiter_lab.evaluation.pictures import draw_errors

        draw_errors(facts, families, out / PICTURE)
        written.append(out / PICTURE)
    return written


def _exit_if_failed(facts: dict[str, Any], chosen: list[Method]) -> None:
    promising = {method.name for method in chosen if method.promises}
    if "chains" in facts:
        rows = facts["chains"]
        if any("error" in row and "method" not in row for row in rows):
            raise typer.Exit(BAD_INPUT)
        kept = all(
            "error" not in row and row["nas"] == 1.0 for row in rows if row["method"] in promising
        )
    else:
        kept = all(
            found["nas_one"] == found["surfaces"] and not found["refused"]
            for name, found in facts["methods"].items()
            if name in promising
        )
    if not kept:
        raise typer.Exit(FAILED)


@contextmanager
def _show_progress(shown: bool) -> Iterator[ProgressCallback]:
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    if not shown:
        yield lambda *_: None
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        tasks: dict[str, TaskID] = {}

        def tell(what: str, done: int, total: int) -> None:
            if what not in tasks:
                tasks[what] = progress.add_task(what, total=total)
            progress.update(tasks[what], completed=done)

        yield tell
