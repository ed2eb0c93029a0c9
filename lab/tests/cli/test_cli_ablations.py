"""Every ablation trains with one flag and is evaluated with one flag."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

import tiny
from arbiter.cli import app
from arbiter.operators.checkpoint import REQUIRED_PROVENANCE, CheckpointError
from arbiter_lab.differentiable.operators import checkpoint
from arbiter_lab.differentiable.operators.network.config import Config
from arbiter_lab.differentiable.operators.network.network import Network
from arbiter_lab.evaluation.arbitrage_check import audit_model
from arbiter_lab.evaluation.convex_decoder_model import ConvexOperator
from arbiter_lab.evaluation.first_design import FirstDesign
from arbiter_lab.evaluation.heston_surfaces import heston_case
from arbiter_lab.evaluation.methods import default_method_names, load_any_operator, select_methods
from arbiter_lab.training.settings import ABLATIONS


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


@pytest.fixture(scope="module")
def pools(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.kept(tmp_path_factory.mktemp("pools"))


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("settings") / "small.json"
    small = tiny.settings(steps=2, decay=0, measure_every=2)
    path.write_text(json.dumps(small.to_dict()), encoding="utf-8")
    return path


def trained(name: str, out: Path, settings: Path, pools: Path) -> Path:
    """Weights of two steps without one part."""
    options = ("--settings", settings, "--pool", pools, "--json")
    result = run("train", "--out", out, "--ablate", name, *options)
    assert result.exit_code == 0, result.output
    return Path(json.loads(result.stdout)["weights"])


@pytest.fixture(scope="module")
def convex(tmp_path_factory: pytest.TempPathFactory, settings: Path, pools: Path) -> Path:
    return trained("icnn", tmp_path_factory.mktemp("convex") / "run", settings, pools)


@pytest.mark.parametrize("name", ABLATIONS)
def test_an_ablation_is_trained_and_evaluated_with_one_flag_each(
    name: str, settings: Path, pools: Path, tmp_path: Path
) -> None:
    weights = trained(name, tmp_path / "run", settings, pools)
    chosen = ("--bench", "heston", "--count", 1, "--method", "operator", "--out", tmp_path)
    result = run("evaluate", "--weights", weights, *chosen, "--json")
    assert result.exit_code == 0, result.output
    facts = json.loads(result.stdout)
    assert facts["weights"]["decoder"] == ("icnn" if name == "icnn" else "transport")
    found = facts["methods"]["operator"]
    assert found["nas_one"] == 1
    assert found["refused"] == found["absent"] == 0
    assert 1.0 < found["rmse_bp"] < 2_000.0  # two steps have not taught it anything


def test_the_papers_decoder_is_compared_with_all_but_a_refinement(
    convex: Path, tmp_path: Path
) -> None:
    base = ("evaluate", "--weights", convex, "--bench", "heston", "--count", 1, "--out", tmp_path)
    result = run(*base, "--json")
    assert result.exit_code == 0, result.output
    facts = json.loads(result.stdout)
    assert list(facts["methods"]) == ["prior", "operator", "fit", "svi", "heston"]
    assert facts["weights"]["model"] == ConvexOperator.load(convex).model
    assert facts["weights"]["lipschitz"] is None  # the constant is one of slopes
    assert facts["methods"]["operator"]["proved"] == 0  # no theorem, but an audit
    refined = run(*base, "--method", "refine")
    assert refined.exit_code == 2
    assert "'refine' leans on a surface" in refined.output
    assert default_method_names(FirstDesign.load()) == [
        "prior",
        "operator",
        "refine",
        "fit",
        "svi",
    ]


def test_it_is_its_projection_that_keeps_it_free_of_arbitrage(convex: Path) -> None:
    case = heston_case(0)
    raw = ConvexOperator.load(convex, project=False).many([case.quotes])[0]
    assert audit_model(raw, case.quotes).nas < 1.0
    method = select_methods(["operator"], load_any_operator(convex))[0]
    assert method.promises
    assert audit_model(method.solve([case.quotes])[0], case.quotes).nas == 1.0


def test_without_the_package_of_the_projection_it_is_refused(
    convex: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "piqp", None)
    chosen = ("--bench", "heston", "--count", 1, "--method", "operator", "--out", tmp_path)
    result = run("evaluate", "--weights", convex, *chosen)
    assert result.exit_code == 2
    assert "needs piqp" in result.stderr


def test_a_decoder_is_not_taken_for_the_other(convex: Path, tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="its decoder is 'icnn', not 'transport'"):
        FirstDesign.load(convex)
    config = Config(heads=4, width=8, state=4, rank=1, context=8)
    info: dict[str, Any] = {name: {} for name in REQUIRED_PROVENANCE}

    def saved(**changes: Any) -> Path:
        about = info | {"config": config.to_dict() | changes}
        return checkpoint.save(tmp_path / "x.safetensors", Network(config).state_dict(), about)

    assert isinstance(load_any_operator(saved()), FirstDesign)
    with pytest.raises(CheckpointError, match="its decoder is 'transport', not 'icnn'"):
        ConvexOperator.load(saved())
    with pytest.raises(CheckpointError, match="heads = 'all' must be a whole number"):
        load_any_operator(saved(decoder="icnn", heads="all"))
    with pytest.raises(CheckpointError, match="another configuration"):
        load_any_operator(saved(decoder="icnn"))


def test_chains_of_fewer_than_three_quotes_are_refused(convex: Path) -> None:
    quotes = heston_case(0).quotes
    few = quotes.select(quotes.k == quotes.k[0])
    with pytest.raises(ValueError, match="usable quotes: the operator needs at least 3"):
        ConvexOperator.load(convex).many([few])
