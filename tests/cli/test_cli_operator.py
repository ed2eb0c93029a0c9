"""`arbiter fit --method`: one pass of the operator, or the fit refining it."""

import json
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

import arbiter as ab
from arbiter.cli import app
from arbiter.data import example_chain_path as example_path
from arbiter.scoring import score

FIXED = [
    "status", "expiries", "quotes", "excluded", "inside_bid_ask", "inside_bid_ask_held_out",
    "iv_rmse_bp_2sd", "vix", "vix_surface", "certificate", "iterations", "seconds",
]  # fmt: skip
BESIDE = {
    "path", "share", "monitors", "model", "lipschitz", "seconds", "inside_bid_ask",
    "iv_rmse_bp_2sd",
    "iv_rmse_half_spreads_2sd", "vix_surface", "domain",
}  # fmt: skip


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The shipped chain, without all but a few expiries: quick to fit, and enough for a VIX."""
    lines = example_path().read_text().splitlines(keepends=True)
    kept = re.compile(r"^\w+ (Oct 2[0-9]|Nov (06|13|20|27)|Dec 18) 2026,")
    path = tmp_path_factory.mktemp("chains") / "small.csv"
    path.write_text("".join(lines[:4] + [line for line in lines[4:] if kept.match(line)]))
    return path


@pytest.fixture(scope="module")
def made(small: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Path, Result]]:
    found = {}
    for method in ("fit", "operator", "both"):
        out = tmp_path_factory.mktemp(method)
        report = [] if method == "both" else ["--no-report"]
        found[method] = (
            out,
            run(
                "fit", small, "--method", method, "--out", out, "--json", "--holdout", 0.2, *report
            ),
        )
    return found


def test_every_method_gives_the_same_fields(made: dict[str, tuple[Path, Result]]) -> None:
    printed = {method: json.loads(result.stdout) for method, (_, result) in made.items()}
    for method, (out, result) in made.items():
        assert result.exit_code == 0, result.stderr
        assert printed[method] == json.loads((out / "fit.json").read_text())
        assert list(printed[method])[: len(FIXED)] == FIXED
        assert printed[method]["method"] == method
        assert printed[method]["certificate"]["passed"]
        assert 0.0 <= printed[method]["inside_bid_ask_held_out"] <= 1.0
    assert set(printed["fit"]) == set(printed["operator"]) == set(printed["both"])
    assert printed["fit"]["operator"] is None
    assert set(printed["operator"]["operator"]) == BESIDE
    assert printed["operator"]["iterations"] == 0
    assert printed["operator"]["vix_error"] is None
    assert {m: each["path"] for m, each in printed.items()} == {
        "fit": "fit", "operator": "operator", "both": "fit",
    }  # fmt: skip
    assert printed["operator"]["options"] is None


def test_one_pass_is_what_the_library_gives(
    made: dict[str, tuple[Path, Result]], small: Path
) -> None:
    out, result = made["operator"]
    printed = json.loads(result.stdout)
    quotes = ab.read_chain(small).quotes()
    surface = ab.Operator.pretrained()(quotes)
    assert printed["inside_bid_ask"] == score(surface, quotes).inside_bid_ask
    assert printed["vix_surface"] == float(surface.vix())
    kept = ab.Surface.load(out / "surface.npz")
    assert (kept.slopes == surface.slopes).all()
    assert kept.info["operator"]["model"] == printed["operator"]["model"] == surface.result.model


def test_both_refines_and_shows_the_operator_beside(
    made: dict[str, tuple[Path, Result]],
) -> None:
    fit, one, both = (json.loads(made[m][1].stdout) for m in ("fit", "operator", "both"))
    assert both["status"] == "converged"
    assert both["operator"] | {"seconds": 0} == one["operator"] | {"seconds": 0}
    assert both["iterations"] < fit["iterations"]
    assert both["iv_rmse_half_spreads_2sd"] <= 1.02 * fit["iv_rmse_half_spreads_2sd"]
    # folds tell how much of the quotes' noise is in the operator, and errors contain it
    for made_by in (fit, both):
        assert not any("standard errors are too small" in note for note in made_by["notes"])


def test_the_report_says_which_method_and_whether_it_knows_such_quotes(
    made: dict[str, tuple[Path, Result]],
) -> None:
    page = (made["both"][0] / "report.html").read_text()
    assert "Operator, then fit" in page
    assert "Operator&#39;s domain" in page
    assert json.loads(made["both"][1].stdout)["operator"]["model"] in page
    assert "operator: path" in page


def test_a_chain_that_the_operator_does_not_know_exits_1(small: Path, tmp_path: Path) -> None:
    """One expiry alone: training has two at least."""
    lines = small.read_text().splitlines(keepends=True)
    kept = lines[:4] + [line for line in lines[4:] if re.match(r"^\w+ Nov 27 2026,", line)]
    path = tmp_path / "one.csv"
    path.write_text("".join(kept))
    result = run("fit", path, "--method", "operator", "--out", tmp_path / "out", "--no-report",
                 "--json")  # fmt: skip
    assert result.exit_code == 1
    printed = json.loads(result.stdout)
    assert printed["status"] == "out_of_domain"
    assert "expiries" in {alarm["name"] for alarm in printed["operator"]["domain"]["alarms"]}
    assert any("unlike the training universe" in warning for warning in printed["warnings"])
    shown = run("fit", path, "--method", "operator", "--out", tmp_path / "out", "--no-report")
    assert "unlike the training universe" in shown.stdout.replace("\n", " ")
    assert re.search(r"answered by +(operator|prior); ", shown.stdout)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--method", "magic"], "--method magic is not known"),
        (["--method", "both", "--components", 2], "of the operator has one component"),
        (["--method", "operator", "--components", 2], "of the operator has one component"),
        (["--method", "operator", "--roughness", "gcv"], "has no roughness to choose"),
    ],
)
def test_what_a_method_does_not_have_is_refused(
    arguments: list[object], words: str, tmp_path: Path
) -> None:
    result = run("fit", *arguments, "--out", tmp_path / "out")
    assert result.exit_code == 2
    assert words in re.sub(r"\s+", " ", result.stderr)
    assert not (tmp_path / "out").exists()


def test_a_folder_says_by_which_method(small: Path, tmp_path: Path) -> None:
    chains = tmp_path / "chains"
    chains.mkdir()
    (chains / "a.csv").write_bytes(small.read_bytes())
    result = run("fit", chains, "--method", "operator", "--out", tmp_path / "out", "--no-report")
    assert result.exit_code == 0, result.stderr
    head, row = (tmp_path / "out" / "summary.csv").read_text().splitlines()
    cells = dict(zip(head.split(","), row.split(","), strict=True))
    assert cells["method"] == "operator"
    assert cells["status"] == "in_domain"
