"""`arbiter train`: legs, errors that name the option, exit codes, JSON alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

import tiny
from arbiter.cli import app
from arbiter.training.stopping import Ending

SMALL = tiny.settings(steps=3, decay=0, measure_every=3)


@pytest.fixture(scope="module")
def pools(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.kept(tmp_path_factory.mktemp("pools"))


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("settings") / "small.json"
    path.write_text(json.dumps(SMALL.to_dict()), encoding="utf-8")
    return path


def train(*options: str | Path) -> Result:
    return CliRunner().invoke(app, ["train", *map(str, options)])


def answer(result: Result) -> dict[str, Any]:
    assert result.exit_code == 0, result.output
    return dict(json.loads(result.stdout))


def test_a_run_is_made_and_resumed(settings: Path, pools: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    first = answer(train("--out", out, "--settings", settings, "--pool", pools, "--json"))
    assert (first["ended"], first["step"]) == ("budget", 3)
    assert Path(first["weights"]).is_file()
    assert first["metrics"]["heldout_rmse_bp"] > 0.0
    again = train("--out", out, "--settings", settings, "--pool", pools)
    assert again.exit_code == 2
    assert "resume it, or name another folder" in again.output
    more = ("--resume", "--steps", "5", "--decay", "2", "--pool", pools)
    second = answer(train("--out", out, *more, "--json"))
    assert (second["step"], second["leg_steps"]) == (5, 2)
    done = train("--out", out, *more)
    assert done.exit_code == 2
    assert "5 of 5 steps are done: give more steps" in done.output


def test_what_a_person_sees(settings: Path, pools: Path, tmp_path: Path) -> None:
    told = train("--out", tmp_path, "--settings", settings, "--pool", pools, "--seconds", "1e-9")
    assert told.exit_code == 0, told.output
    for words in ("ended", "The budget of time ended", "held-out volatility, RMSE", "wrote"):
        assert words in told.output, words
    assert "step 1/3" in told.stderr


@pytest.mark.parametrize(
    ("name", "route"), [("mfm", "mfm"), ("no_vix", "saddle"), ("icnn", "saddle")]
)
def test_one_flag_ablates(
    settings: Path, pools: Path, tmp_path: Path, name: str, route: str
) -> None:
    options = ("--settings", settings, "--pool", pools, "--steps", "1", "--json")
    answer(train("--out", tmp_path, *options, "--ablate", name))
    run = json.loads((tmp_path / "run.json").read_text(encoding="utf-8"))["settings"]
    assert (run["ablation"], run["route"]) == (name, route)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--ablate", "everything"], "ablation 'everything': give one of gate_off"),
        (["--route", "flow"], "route = 'flow': give one of saddle, mfm"),
        (["--steps", "0"], "steps = 0 must be a whole number"),
        (["--seconds", "-1"], "--seconds -1.0 must be positive"),
        (["--device", "abacus"], "--device abacus is not one of cpu, cuda"),
        (["--resume"], "holds no run to resume"),
        (["--settings", "nowhere.json"], "nowhere.json is no file of settings"),
    ],
)
def test_bad_input_is_named(
    settings: Path, pools: Path, tmp_path: Path, options: list[str], told: str
) -> None:
    base = ["--out", str(tmp_path / "run"), "--pool", str(pools)]
    if not {"--settings", "--resume"} & set(options):
        base += ["--settings", str(settings)]
    result = train(*base, *options)
    assert result.exit_code == 2, result.output
    assert told in result.output.replace("\n", " ")
    assert not (tmp_path / "run").exists()


def test_a_folder_that_is_a_file_is_refused(settings: Path, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    result = train("--out", file / "run", "--settings", settings)
    assert result.exit_code == 2
    assert "is a file" in result.output


def test_diverging_and_interruption_have_codes_of_their_own(
    settings: Path, pools: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from arbiter.training import loop

    options = ("--settings", settings, "--pool", pools, "--json")
    monkeypatch.setattr(loop._Loop, "run", lambda *_: Ending.DIVERGED)
    result = train("--out", tmp_path / "diverged", *options)
    assert result.exit_code == 1
    assert "not finite" in result.output
    monkeypatch.setattr(loop._Loop, "run", lambda *_: Ending.INTERRUPTED)
    assert train("--out", tmp_path / "stopped", *options).exit_code == 130
