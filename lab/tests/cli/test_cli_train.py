"""`arbiter train`: legs, errors that name the option, exit codes, JSON alone."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

import tiny
from arbiter.cli import app
from arbiter_lab.training.stopping_rule import Ending

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
        (
            ["--ablate", "everything"],
            "ablation 'everything' of model 'operator': give",
        ),
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


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory, settings: Path, pools: Path) -> Path:
    """A run of three steps."""
    out = tmp_path_factory.mktemp("runs") / "run"
    answer(train("--out", out, "--settings", settings, "--pool", pools, "--json"))
    return out


ABSENT = "(left out)"
LIES: list[tuple[str, object, str]] = [
    ("settings", ABSENT, "settings = None must be an object of values by name"),
    ("settings", [1, 2], "settings = [1, 2] must be an object"),
    ("settings", {"steps": "9"}, "steps = '9' must be a whole number"),
    ("settings", {"config": {"width": 10**7}}, "width = 10000000 must be a whole number"),
    ("settings", {"lr": "fast"}, "lr = 'fast' must be a positive number"),
    ("settings", {"stepz": 1}, "settings: stepz unknown"),
    ("settings", {"layouts": [4, 5], "mix": [1.0]}, "layouts = (4, 5) must be"),
    ("step", ABSENT, "step = None must be a whole number"),
    ("step", "3", "step = '3' must be a whole number"),
    ("seconds", "1", "seconds = '1' must be a number"),
    ("parts", 1.5, "parts = 1.5 must be a whole number"),
    ("checkpoint", 3, "checkpoint = 3 must be text"),
    ("checkpoint", "../elsewhere", "checkpoint = '../elsewhere' must be the name of a folder"),
    ("revision", ABSENT, "revision = None must be text"),
    ("metrics", [], "metrics = [] must be an object"),
    ("data", {}, "data = {} must be a list of pools"),
    ("data", [{"step": 0}], "must be a list of pools, each with origin and content"),
    ("progress", ABSENT, "progress = None must be an object"),
    ("progress", {}, "progress: taken = None must be a count of batches"),
    ("progress", {"taken": [1]}, "progress: taken = [1] must be a count of batches"),
]


def resumed(run: Path, into: Path, changes: dict[str, object], pools: Path) -> Result:
    """Resume a copy of a run, of which ``run.json`` says other things."""
    shutil.copytree(run, into)
    said = json.loads((into / "run.json").read_text(encoding="utf-8")) | changes
    told = {name: value for name, value in said.items() if value is not ABSENT}
    (into / "run.json").write_text(json.dumps(told), encoding="utf-8")
    return train("--out", into, "--resume", "--steps", "4", "--pool", pools, "--json")


def refusal(result: Result, begins: str) -> str:
    """What was said: one sentence on standard error, with the exit code of bad input."""
    assert result.exit_code == 2, result.output
    said = result.stderr.strip()
    assert said.startswith(f"Error: {begins}")
    assert "\n" not in said
    return said


@pytest.mark.parametrize(("name", "value", "told"), LIES, ids=str)
def test_a_run_that_says_nonsense_of_itself_is_not_resumed(
    run: Path, pools: Path, tmp_path: Path, name: str, value: object, told: str
) -> None:
    said = refusal(resumed(run, tmp_path / "run", {name: value}, pools), str(tmp_path / "run"))
    assert told in said
    assert said.endswith("restore the file, or start a run in another folder")


def test_the_same_run_with_nothing_changed_is_resumed(
    run: Path, pools: Path, tmp_path: Path
) -> None:
    assert answer(resumed(run, tmp_path / "run", {}, pools))["step"] == 4


def test_a_run_of_another_network_than_its_files_is_not_resumed(
    run: Path, pools: Path, tmp_path: Path
) -> None:
    told = SMALL.to_dict()
    wider = {**told, "config": {**told["config"], "width": 9}}
    said = refusal(
        resumed(run, tmp_path / "run", {"settings": wider}, pools), str(tmp_path / "run")
    )
    assert "its files are of another network" in said


def test_a_file_nested_beyond_reading_is_no_run(pools: Path, tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text("[" * 200_000)
    result = train("--out", tmp_path, "--resume", "--pool", pools)
    assert "holds no run to resume" in refusal(result, str(tmp_path))


def test_a_folder_that_is_a_file_is_refused(settings: Path, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    result = train("--out", file / "run", "--settings", settings)
    assert result.exit_code == 2
    assert "is a file" in result.output


def test_diverging_and_interruption_have_codes_of_their_own(
    settings: Path, pools: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from arbiter_lab.training import loop

    options = ("--settings", settings, "--pool", pools, "--json")
    monkeypatch.setattr(loop.TrainingLoop, "run", lambda *_: Ending.DIVERGED)
    result = train("--out", tmp_path / "diverged", *options)
    assert result.exit_code == 1
    assert "not finite" in result.output
    monkeypatch.setattr(loop.TrainingLoop, "run", lambda *_: Ending.INTERRUPTED)
    assert train("--out", tmp_path / "stopped", *options).exit_code == 130
