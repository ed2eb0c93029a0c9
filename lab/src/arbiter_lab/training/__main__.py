"""Train without the command line's libraries: ``python -m arbiter_lab.training --out DIR …``.

For machines that have PyTorch, NumPy, SciPy and safetensors alone. Prints one JSON object.
"""

from __future__ import annotations

import argparse
import json
import logging
import shutil
import sys
from dataclasses import replace
from pathlib import Path

from arbiter.operators.checkpoint import CheckpointError
from arbiter_lab.training.loop import Limits, train
from arbiter_lab.training.run_folder import RUN_FILE, read_settings
from arbiter_lab.training.settings import ABLATIONS, LAW_ABLATIONS, MODELS, Settings


def main(arguments: list[str] | None = None) -> int:
    """Run a leg; the exit code is 0, 1 if it diverged, 2 for bad input."""
    given = _parser().parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    try:
        if given.resume is not None:
            if given.begin is not None:
                raise ValueError("--begin is for a new run: leave it out, or --resume")
            _copy_run(given.resume, given.out)
        settings = _choose_settings(given)
        outcome = train(
            settings,
            given.out,
            given.device,
            resume=given.resume is not None,
            begin=given.begin,
            limits=Limits(seconds=given.seconds, steps=given.leg_steps),
            pool=given.pool,
        )
    except (CheckpointError, ValueError, OSError) as error:
        sys.stderr.write(f"Error: {error}\n")
        return 2
    except FloatingPointError as error:
        sys.stderr.write(f"Error: {error}\n")
        return 1
    sys.stdout.write(json.dumps(outcome.to_dict(), indent=1) + "\n")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m arbiter_lab.training", description=__doc__)
    parser.add_argument("--settings", type=Path, help="file of settings in JSON")
    parser.add_argument("--recipe", help="settings that come with the package, by name")
    parser.add_argument("--out", type=Path, required=True, help="folder of the run")
    parser.add_argument("--device", default="cpu", help="cpu or cuda")
    parser.add_argument(
        "--resume",
        type=Path,
        nargs="?",
        const=Path(),
        help="go on with the run in --out, or in this folder, which is copied there first",
    )
    parser.add_argument("--begin", type=Path, help="trained weights to train on from, a new run")
    parser.add_argument("--steps", type=int, help="steps in all, instead of the settings'")
    parser.add_argument("--decay", type=int, help="of these, the last with a falling rate")
    parser.add_argument("--lr", type=float, help="rate, instead of the settings'")
    parser.add_argument("--model", choices=MODELS, help="the operator, or a baseline")
    parser.add_argument(
        "--ablate", choices=sorted({*ABLATIONS, *LAW_ABLATIONS}), help="take one part away"
    )
    parser.add_argument("--seconds", type=float, default=float("inf"), help="end the leg by then")
    parser.add_argument("--leg-steps", type=float, default=float("inf"), help="steps of this leg")
    parser.add_argument("--pool", type=Path, help="folder of pools kept between runs")
    return parser


def _choose_settings(given: argparse.Namespace) -> Settings:
    if given.recipe is not None:
        settings = Settings.recipe(given.recipe)
    elif given.settings is not None:
        settings = Settings.read(given.settings)
    elif given.resume is not None:
        settings = read_settings(given.out)
    else:
        settings = Settings()
    changes = {name: getattr(given, name) for name in ("steps", "decay", "lr", "model")}
    settings = replace(settings, **{n: value for n, value in changes.items() if value is not None})
    return settings if given.ablate is None else settings.apply_ablation(given.ablate)


def _copy_run(source: Path, out: Path) -> None:
    """Copy a run from another folder, so that its legs stay as they are."""
    if source == Path() or source.resolve() == out.resolve():
        return
    if (out / RUN_FILE).exists():
        raise ValueError(f"{out} holds a run already: name another folder, or resume that one")
    if not (source / RUN_FILE).exists():
        raise ValueError(f"{source} holds no {RUN_FILE}: there is no run to resume")
    shutil.copytree(source, out, dirs_exist_ok=True, ignore=shutil.ignore_patterns("pool"))


if __name__ == "__main__":
    sys.exit(main())
