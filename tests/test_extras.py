"""Without the packages of the report everything else works, and what is missing is named."""

from __future__ import annotations

import json
import re
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

import arbiter as ab
from arbiter import cli, extras, report
from arbiter.cli.exit_codes import BAD_INPUT
from arbiter.data import example_chain_path
from arbiter.extras import MissingExtraError, describe_missing, require_installed
from arbiter.pipeline import Job, run_job

COMMAND = "pip install 'arbiter-vol[report]'"


def run(*arguments: object) -> Result:
    return CliRunner().invoke(cli.app, [str(argument) for argument in arguments])


@pytest.fixture(scope="module")
def chain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four expiries of the shipped chain."""
    lines = example_chain_path().read_text().splitlines(keepends=True)
    kept = [line for line in lines[4:] if re.match(r"^\w+ Nov (06|13|20|27) 2026,", line)]
    path = tmp_path_factory.mktemp("chains") / "chain.csv"
    path.write_text("".join(lines[:4] + kept))
    return path


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch) -> None:
    """An installation without the extra."""

    def find(name: str, *more: Any) -> ModuleSpec | None:
        return None if name in extras.REPORT_PACKAGES else find_spec(name, *more)

    monkeypatch.setattr(extras, "find_spec", find)


def test_what_is_installed_is_not_missed() -> None:
    """The control: the test environment has the extra."""
    assert describe_missing(*extras.REPORT_PACKAGES) is None
    require_installed(*extras.REPORT_PACKAGES)


@pytest.mark.usefixtures("bare")
def test_the_sentence_names_packages_extra_and_command() -> None:
    for packages, words in (
        (("matplotlib",), "matplotlib is not installed"),
        (("jinja2", "plotly"), "jinja2, plotly are not installed"),
    ):
        sentence = describe_missing("numpy", *packages)
        assert sentence is not None
        assert words in sentence
        assert "extra 'report'" in sentence
        assert sentence.endswith(COMMAND)
    assert describe_missing("numpy") is None


@pytest.mark.usefixtures("bare")
@pytest.mark.parametrize("name", report.__all__)
def test_every_report_and_picture_asks_for_the_extra(name: str) -> None:
    with pytest.raises(MissingExtraError, match=re.escape(COMMAND)):
        getattr(report, name)
    with pytest.raises(ImportError, match="matplotlib"):
        ab.example().plot()


@pytest.mark.usefixtures("bare")
def test_a_fit_is_whole_without_its_report_and_says_so(chain: Path, tmp_path: Path) -> None:
    result = run("fit", chain, "--out", tmp_path, "--json")
    assert result.exit_code == 0, result.stderr
    assert [note for note in json.loads(result.stdout)["notes"] if COMMAND in note]
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == ["certificate.json", "exclusions.csv", "fit.json", "surface.npz"]
    shown = run("fit", chain, "--out", tmp_path).stdout
    assert COMMAND in re.sub(r"\s+", " ", shown)
    quiet = run("fit", chain, "--out", tmp_path, "--no-report", "--json")
    assert COMMAND not in quiet.stdout  # who wants none is not told


@pytest.mark.usefixtures("bare")
def test_a_folder_of_chains_says_it_once(chain: Path, tmp_path: Path) -> None:
    shown = run("fit", chain.parent, "--out", tmp_path)
    assert shown.exit_code == 0
    assert re.sub(r"\s+", " ", shown.stdout).count(COMMAND) == 1


@pytest.mark.usefixtures("bare")
@pytest.mark.parametrize("option", ["--report", "--pdf"])
def test_a_report_that_was_asked_for_is_missed_before_the_fit(
    option: str, chain: Path, tmp_path: Path
) -> None:
    result = run("fit", chain, "--out", tmp_path / "out", option)
    assert result.exit_code == BAD_INPUT
    assert COMMAND in result.stderr
    assert not (tmp_path / "out").exists()
    with pytest.raises(MissingExtraError):
        run_job(chain, tmp_path / "out", Job(report=True))
    assert not (tmp_path / "out").exists()


@pytest.mark.usefixtures("bare")
def test_a_market_is_simulated_without_its_picture(tmp_path: Path) -> None:
    result = run("simulate", "--days", 1, "--listing", "sparse", "--out", tmp_path, "--json")
    assert result.exit_code == 0, result.stderr
    found = json.loads(result.stdout)
    assert found["picture"] is None
    assert COMMAND in found["notes"][0]
    assert not (tmp_path / "three-days.png").exists()


def test_a_missing_extra_ends_any_command_as_bad_input(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail() -> None:
        raise MissingExtraError("it needs more")

    monkeypatch.setattr(cli, "app", fail)
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == BAD_INPUT
    assert capsys.readouterr().err == "Error: it needs more\n"
