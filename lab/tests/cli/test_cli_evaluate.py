"""`arbiter evaluate`: what it prints, writes and refuses, and how it ends."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner, Result

from arbiter.cli import app
from arbiter.data import example_chain_path as example_path
from arbiter.operators.checkpoint import REQUIRED_PROVENANCE
from arbiter_lab.baselines.matched_size import match_design
from arbiter_lab.differentiable.operators import checkpoint
from arbiter_lab.differentiable.operators.network.config import Config
from arbiter_lab.differentiable.operators.network.network import Network
from arbiter_lab.evaluation import run_methods, stored_surfaces, unseen_surfaces
from arbiter_lab.evaluation.arbitrage_check import ArbitrageVerdict
from arbiter_lab.evaluation.first_design import FirstDesign


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["evaluate", *(str(argument) for argument in arguments)])


@pytest.fixture(autouse=True)
def _few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stored_surfaces, "SURFACES_PER_FILE", 3)


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An operator that nobody has trained, and that is small."""
    network = Network(Config(heads=8, width=16, state=8, rank=2, context=16, looks=1))
    info: dict[str, Any] = {name: {} for name in REQUIRED_PROVENANCE} | {
        "config": network.config.to_dict()
    }
    path = tmp_path_factory.mktemp("weights") / "small.safetensors"
    return checkpoint.save(path, network.state_dict(), info)


@pytest.fixture(scope="module")
def chains(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("chains")
    lines = example_path().read_text().splitlines(keepends=True)
    few = [line for line in lines[4:] if " Nov 20 2026," in line or " Dec 18 2026," in line]
    (folder / "few.csv").write_text("".join(lines[:4] + few))
    return folder


def test_surfaces_from_a_number_on_are_others(weights: Path, tmp_path: Path) -> None:
    chosen = ("--method", "operator", "--weights", weights, "--bench", "heston", "--count", 1)
    found = [
        json.loads(run(*chosen, *more, "--out", tmp_path, "--json").stdout)
        for more in ((), ("--first", 1), ("--first", 1))
    ]
    errors = [facts["methods"]["operator"]["rmse_bp"] for facts in found]
    assert errors[0] != errors[1] == errors[2]
    assert [facts.get("first") for facts in found] == [None, 1, 1]
    for wrong in (("--first", -1), ("--first", 1, "--bench", f"real:{tmp_path}")):
        refused = run(*chosen, *wrong, "--out", tmp_path)
        assert refused.exit_code == 2
        assert "--first" in refused.stderr


def test_unseen_surfaces_are_scored_written_and_kept(weights: Path, tmp_path: Path) -> None:
    chosen = ("--method", "operator", "--method", "fit", "--weights", weights, "--count", 3)
    result = run(*chosen, "--out", tmp_path, "--json")
    assert result.exit_code == 0, result.output
    facts = json.loads(result.stdout)
    assert facts == json.loads((tmp_path / "evaluation.json").read_text())
    assert facts["bench"] == "unseen"
    assert facts["surfaces"] == 3
    assert list(facts["methods"]) == ["operator", "fit"]
    for found in facts["methods"].values():
        assert found["nas_one"] == 3 == found["proved"]
        assert {*found["by_family"]} == {*unseen_surfaces.FAMILIES}
    # an operator that nobody has trained is its reference alone, and worse than the fit
    assert facts["methods"]["operator"]["rmse_bp"] > 1.3 * facts["methods"]["fit"]["rmse_bp"]
    assert facts["weights"]["model"] == FirstDesign.load(weights).model
    assert (tmp_path / "errors.png").read_bytes().startswith(b"\x89PNG")
    assert [path.name for path in (tmp_path / "surfaces").iterdir()] == ["unseen-00000.npz"]


def test_the_terminal_shows_every_method_and_where_the_files_are(tmp_path: Path) -> None:
    chosen = ("--bench", "heston-hard", "--count", 2, "--method", "fit", "--method", "svi")
    result = run(*chosen, "--out", tmp_path)
    assert result.exit_code == 0, result.output
    for words in ("heston-hard: 2 surfaces", "fit", "svi", "NAS<1", "median", "evaluation.json"):
        assert words in result.output, words
    facts = json.loads((tmp_path / "evaluation.json").read_text())
    shown = f"{facts['methods']['fit']['rmse_bp']:.2f}"
    assert shown in result.output
    assert facts["weights"] is None
    assert {*facts["methods"]["fit"]["by_family"]} == {"Heston, hard"}


@pytest.mark.parametrize("bench", ["rough-bergomi", "double-heston"])
def test_markets_outside_the_prior_have_alarms_and_ratios(bench: str, tmp_path: Path) -> None:
    chosen = ("--method", "operator", "--method", "prior", "--method", "fit", "--count", 2)
    result = run("--bench", bench, *chosen, "--out", tmp_path)
    assert result.exit_code == 0, result.output
    for words in (f"{bench}: 2 surfaces", "alarms", "/fit", "Paired by surface", "95 % interval"):
        assert words in result.output, words
    facts = json.loads((tmp_path / "evaluation.json").read_text())
    found = facts["methods"]
    assert found["operator"]["alarms"] in (0, 1, 2)
    assert found["prior"]["alarms"] is None
    ratio = found["prior"]["rmse_bp"] / found["fit"]["rmse_bp"]
    assert found["prior"]["ratio_to_fit"] == pytest.approx(ratio)
    assert [pair["against"] for pair in facts["paired"]] == ["prior", "operator"]


def test_chains_of_a_folder(chains: Path, tmp_path: Path) -> None:
    result = run("--bench", f"real:{chains}", "--method", "fit", "--out", tmp_path)
    assert result.exit_code == 0, result.output
    assert "few.csv" in result.output
    facts = json.loads((tmp_path / "evaluation.json").read_text())
    assert [row["nas"] for row in facts["chains"]] == [1.0]
    assert facts["summary"]["methods"]["fit"]["chains"] == 1
    assert "Means over chains" in result.output
    assert not (tmp_path / "errors.png").exists()
    (chains / "other.csv").write_text("a,b\n1,2\n")
    try:
        result = run("--bench", f"real:{chains}", "--method", "fit", "--out", tmp_path)
    finally:
        (chains / "other.csv").unlink()
    assert result.exit_code == 2
    assert "Error: other.csv" in result.output


def test_arbitrage_in_a_method_that_promises_none_is_a_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def found(*_: Any) -> ArbitrageVerdict:
        return ArbitrageVerdict(0.999, 1, True)

    monkeypatch.setattr(run_methods, "audit_model", found)
    chosen = ("--bench", "heston", "--count", 1, "--out", tmp_path)
    assert run(*chosen, "--method", "fit").exit_code == 1
    assert run(*chosen, "--method", "svi").exit_code == 0  # it promises nothing


def test_a_method_that_refuses_quotes_is_a_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = stored_surfaces.load_unseen_surfaces(1)[0]
    few = case.quotes.select(np.arange(len(case.quotes)) < 2)
    quoted = np.zeros_like(case.quoted)
    quoted.flat[np.flatnonzero(case.quoted)[:2]] = True
    few_case = replace(case, quotes=few, quoted=quoted)
    monkeypatch.setattr(stored_surfaces, "load_unseen_surfaces", lambda *_: [few_case])
    result = run("--count", 1, "--method", "operator", "--out", tmp_path, "--json")
    assert result.exit_code == 1, result.output
    found = json.loads(result.stdout)["methods"]["operator"]
    assert found["refused"] == 1
    assert "at least 3" in found["refusal"]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--bench", "tests"], "--bench tests is not one of unseen, heston"),
        (["--bench", "real:nowhere"], "nowhere is not a folder"),
        (["--count", "0"], "--count 0: give at least one"),
        (["--count", "2001", "--method", "fit"], "there are 2,000 unseen surfaces"),
        (["--method", "sabr"], "'sabr' is not one of prior, operator, refine, fit, svi"),
        (["--weights", "nowhere.safetensors"], "nowhere.safetensors does not exist"),
        (["--weights", __file__], "not a safetensors file"),
        (["--baseline", "nowhere.safetensors"], "nowhere.safetensors does not exist"),
        (["--method", "gru"], "'gru' needs a trained network"),
    ],
)
def test_what_makes_no_sense_is_refused(tmp_path: Path, arguments: list[str], says: str) -> None:
    result = run(*arguments, "--out", tmp_path / "out")
    assert result.exit_code == 2, result.output
    assert says in result.output
    assert not (tmp_path / "out").exists()


def test_a_trained_baseline_is_compared_by_the_name_of_its_model(
    weights: Path, tmp_path: Path
) -> None:
    design = match_design("gru", Config(heads=8, width=12, state=6, rank=2, context=12, looks=1))
    info: dict[str, Any] = {name: {} for name in REQUIRED_PROVENANCE}
    path = checkpoint.save(
        tmp_path / "net.safetensors",
        design.build().state_dict(),
        info | {"config": design.to_dict()},
    )
    chosen = ("--bench", "heston", "--count", 1, "--method", "ssvi", "--baseline", path, "--json")
    result = run(*chosen, "--out", tmp_path / "out")
    assert result.exit_code == 0, result.output
    assert list(json.loads(result.stdout)["methods"]) == ["ssvi", "gru"]
    twice = run(*chosen, "--baseline", path, "--out", tmp_path / "out")
    assert twice.exit_code == 2
    assert "is a second 'gru'" in twice.output
    other = run("--baseline", weights, "--out", tmp_path / "out")
    assert other.exit_code == 2
    assert "not a baseline's" in other.output


def test_a_folder_that_is_a_file_is_refused_before_the_work(tmp_path: Path) -> None:
    (tmp_path / "out").write_text("")
    result = run("--method", "fit", "--out", tmp_path / "out")
    assert result.exit_code == 2
    assert "is a file" in result.output
