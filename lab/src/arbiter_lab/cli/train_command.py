"""`arbiter train`: train an operator, in legs that can be resumed."""

from __future__ import annotations

import json as json_format
import math
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from arbiter.cli.exit_codes import INTERRUPTED, exit_bad_input, exit_failed, print_written

if TYPE_CHECKING:
    from arbiter_lab.training.loop import TrainingOutcome
    from arbiter_lab.training.settings import Settings


def train(  # noqa: PLR0913, PLR0917 - one parameter per option
    out: Annotated[Path, typer.Option(help="Folder of the run.")],
    settings: Annotated[
        Path | None,
        typer.Option(help="Settings in JSON; those left out have their defaults."),
    ] = None,
    recipe: Annotated[
        str | None,
        typer.Option(help="Settings that come with the package: operator makes shipped weights."),
    ] = None,
    steps: Annotated[int | None, typer.Option(help="Steps in all, over all legs.")] = None,
    decay: Annotated[
        int | None, typer.Option(help="Number of last steps in which the rate falls to zero.")
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(
            help="law, the operator; operator, its first design; or a baseline of as many "
            "parameters as that: ssm, gru or transformer."
        ),
    ] = None,
    route: Annotated[str | None, typer.Option(help="saddle or mfm.")] = None,
    ablate: Annotated[
        str | None,
        typer.Option(
            help="Take one part away. Of law: flat_reading, no_scan, causal_only, rank_half, "
            "guard_off, no_qalign or no_duals. Of operator: gate_off, rank_half, guard_off, "
            "causal_only, no_vix, icnn, no_qalign or mfm; or put representer in."
        ),
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the run in --out.")] = False,
    begin: Annotated[
        Path | None,
        typer.Option(help="Trained weights of the same configuration to train on from: a new run."),
    ] = None,
    seconds: Annotated[
        float | None, typer.Option(help="Seconds after which this leg ends; resume later.")
    ] = None,
    pool: Annotated[
        Path | None, typer.Option(help="Folder of exact laws, kept between runs.")
    ] = None,
    device: Annotated[str, typer.Option(help="cpu or cuda.")] = "cpu",
    json: Annotated[bool, typer.Option("--json", help="Print JSON and nothing else.")] = False,
) -> None:
    """Train an operator, or a baseline, on exact laws, listed and disturbed anew at every step.

    Writes run.json, step-*/weights.safetensors (what `arbiter evaluate` takes),
    step-*/state-*, the journal steps.jsonl and the ledger sweeps.csv. The same settings, and
    weights to --begin with, give the same weights, in one leg or in several. Ctrl-C ends it after
    the step, with a checkpoint. Exit code 0 if the leg ended as asked, 1 if training diverged, 2
    if an option makes no sense, the folder holds another run or its files are damaged, 130 if it
    was interrupted.
    """
    from arbiter.operators.checkpoint import CheckpointError
    from arbiter_lab.training.display import Display
    from arbiter_lab.training.loop import Limits
    from arbiter_lab.training.loop import train as run
    from arbiter_lab.training.stopping_rule import Ending

    if seconds is not None and not seconds > 0.0:
        exit_bad_input(f"--seconds {seconds} must be positive")
    _require_device(device)
    try:
        changes = {"steps": steps, "decay": decay, "model": model, "route": route}
        if settings is not None and recipe is not None:
            raise ValueError("--settings and --recipe: give one of them")
        chosen = _read_settings(out, recipe or settings, resume, changes)
        if ablate is not None:
            chosen = chosen.apply_ablation(ablate)
        outcome = run(
            chosen,
            out,
            device,
            resume=resume,
            begin=begin,
            limits=Limits(seconds=math.inf if seconds is None else seconds),
            pool=pool,
            display=Display(chosen.steps, every=math.inf if json else 30.0),
        )
    except (CheckpointError, ValueError, OSError) as error:
        exit_bad_input(str(error))
    except FloatingPointError as error:
        exit_failed(str(error))
    if json:
        typer.echo(json_format.dumps(outcome.to_dict(), indent=1, allow_nan=False))
    else:
        _print_outcome(outcome)
    if outcome.ending is Ending.INTERRUPTED:
        raise typer.Exit(INTERRUPTED)


def _require_device(device: str) -> None:
    import torch

    if device not in ("cpu", "cuda"):
        exit_bad_input(f"--device {device} is not one of cpu, cuda")
    if device == "cuda" and not torch.cuda.is_available():
        exit_bad_input(
            "--device cuda: PyTorch sees no GPU here; use --device cpu, or install its drivers"
        )


def _read_settings(
    out: Path, file: Path | str | None, resume: bool, changes: dict[str, Any]
) -> Settings:
    """From the file or recipe, else a run that is resumed, else the operator's; then options."""
    from arbiter_lab.training.run_folder import read_settings
    from arbiter_lab.training.settings import Settings

    if isinstance(file, str):
        chosen = Settings.recipe(file)
    elif file is not None:
        chosen = Settings.read(file)
    elif resume:
        chosen = read_settings(out)
    elif changes["model"] in (None, "law") and changes["route"] is None:
        chosen = Settings.recipe("operator")
    else:
        chosen = Settings()
    return replace(chosen, **{name: value for name, value in changes.items() if value is not None})


def _print_outcome(outcome: TrainingOutcome) -> None:
    from rich.console import Console
    from rich.table import Table

    facts, metrics = outcome.to_dict(), outcome.metrics
    table = Table.grid(padding=(0, 2))
    table.add_row("ended", f"{facts['ended']}: {facts['meaning']}")
    speed = facts["steps_per_second"]
    told = "" if speed is None else f", {speed:.3g} a second"
    table.add_row("steps", f"{outcome.step:,}, {outcome.leg_steps:,} in this leg{told}")
    for name, label, unit in (
        ("heldout_rmse_bp", "held-out volatility, RMSE", " bp"),
        ("heldout_median_bp", "held-out volatility, median", " bp"),
        ("DualGap", "duality gap (underestimate)", ""),
        ("martingale_residual", "martingale residual", ""),
        ("lambda_lip_after", "Lipschitz constant", ""),
    ):
        if metrics.get(name) is not None:
            table.add_row(label, f"{metrics[name]:.4g}{unit}")
    console = Console()
    console.print(table, highlight=False, markup=False)
    for note in outcome.notes:
        console.print(f"note: {note}", highlight=False, markup=False)
    print_written(console, outcome.weights)
