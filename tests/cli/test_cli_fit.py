"""`arbiter fit` and `arbiter vix`: what they write, print and refuse."""

import json
import re
import shutil
from pathlib import Path

import polars as pl
import pytest
from typer.testing import CliRunner, Result

import arbiter as ab
from arbiter.cli import app
from arbiter.data import example_chain_path as example_path
from arbiter.maturity_scores import score_by_maturity
from arbiter.quotes import Ending

FIELDS = {
    "status": str,
    "expiries": int,
    "quotes": int,
    "excluded": int,
    "inside_bid_ask": float,
    "iv_rmse_bp_2sd": float,
    "vix": float,
    "vix_surface": float,
    "certificate": dict,
    "iterations": int,
    "seconds": float,
    "score": dict,
    "expiries_left_out": list,
}


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The shipped chain, without all but a few expiries: quick to fit, and enough for a VIX."""
    lines = example_path().read_text().splitlines(keepends=True)
    head, body = lines[:4], lines[4:]
    kept = re.compile(r"^\w+ (Oct 2[0-9]|Nov (06|13|20|27)|Dec 18) 2026,")
    path = tmp_path_factory.mktemp("chains") / "small.csv"
    path.write_text("".join(head + [line for line in body if kept.match(line)]))
    return path


@pytest.fixture(scope="module")
def fitted(small: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Result]:
    out = tmp_path_factory.mktemp("out")
    return out, run("fit", small, "--out", out, "--json", "--holdout", 0.2)


def test_fit_writes_everything_it_names(fitted: tuple[Path, Result]) -> None:
    out, result = fitted
    assert result.exit_code == 0, result.stderr
    assert {path.name for path in out.iterdir()} == {
        "surface.npz",
        "certificate.json",
        "fit.json",
        "exclusions.csv",
        "report.html",
        "pictures",
    }
    assert list((out / "pictures").glob("*.png"))


def test_json_alone_on_standard_output_is_what_fit_json_holds(
    fitted: tuple[Path, Result],
) -> None:
    out, result = fitted
    printed = json.loads(result.stdout)
    assert printed == json.loads((out / "fit.json").read_text())
    for name, kind in FIELDS.items():
        assert isinstance(printed[name], kind), name
    assert set(printed["certificate"]) == {"passed", "nas", "findings"}
    assert 0.0 <= printed["inside_bid_ask_held_out"] <= 1.0
    assert list(printed["score"]["buckets"]) == ["same_day", "1-7d", "8-30d", "31-180d", "longer"]


def test_numbers_agree_with_the_library(fitted: tuple[Path, Result], small: Path) -> None:
    out, result = fitted
    printed = json.loads(result.stdout)
    chain = ab.read_chain(small)
    quotes = chain.quotes()
    surface = ab.Surface.load(out / "surface.npz")
    price = surface.otm(quotes.k, quotes.T)
    inside = ((price >= quotes.bid) & (price <= quotes.ask)).mean()
    assert printed["quotes"] == len(quotes)
    assert printed["inside_bid_ask"] == pytest.approx(inside)
    assert printed["vix"] == float(ab.vix(chain))
    assert printed["vix_surface"] == pytest.approx(float(surface.vix()), abs=1e-9)
    assert printed["excluded"] == pl.read_csv(out / "exclusions.csv").height
    assert printed["quotes"] + printed["excluded"] == chain.frame.height
    assert surface.certificate().passed
    assert printed["score"] == score_by_maturity(surface, quotes).to_dict()
    left_out = [one for one in quotes.endings if one.ending is not Ending.USED]
    assert [one["label"] for one in printed["expiries_left_out"]] == [o.label for o in left_out]


def test_fit_twice_is_the_same_surface(fitted: tuple[Path, Result], small: Path) -> None:
    out, _ = fitted
    again = ab.fit(ab.read_chain(small).quotes())
    assert (again.slopes == ab.Surface.load(out / "surface.npz").slopes).all()


def test_without_json_the_numbers_are_for_reading(small: Path, tmp_path: Path) -> None:
    result = run("fit", small, "--out", tmp_path, "--no-report", "--roughness", "1,10")
    assert result.exit_code == 0
    for words in (
        "inside bid-ask",
        "VIX",
        "passed: no arbitrage",
        "zero bid",
        "wrote",
        "every expiry",
        "half-spreads outside",
        "without violation",
    ):
        assert words in result.stdout
    assert not (tmp_path / "report.html").exists()


def test_fit_that_does_not_converge_exits_1(
    small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hurried = ab.FitOptions(iterations=2)
    monkeypatch.setattr("arbiter.cli.fit_command.parse_fit_options", lambda *_: hurried)
    result = run("fit", small, "--out", tmp_path, "--no-report", "--json")
    assert result.exit_code == 1
    summary = json.loads(result.stdout)
    assert summary["status"] == "max_iterations"
    assert any("max_iterations" in sentence for sentence in summary["warnings"])
    assert summary["certificate"]["passed"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["missing.csv"], "does not exist"),
        (["--holdout", "1.5"], "not a share"),
        (["--components", "3"], "--components 3"),
        (["--roughness", "smooth"], "--roughness smooth"),
        (["--layout", "excel"], "excel"),
    ],
)
def test_bad_arguments_exit_2_and_say_why(arguments: list[str], words: str, tmp_path: Path) -> None:
    result = run("fit", *arguments, "--out", tmp_path / "out")
    assert result.exit_code == 2
    assert words in result.stderr
    assert not (tmp_path / "out").exists()


def test_unreadable_chain_leaves_an_older_result_alone(tmp_path: Path) -> None:
    (tmp_path / "fit.json").write_text("older")
    foreign = tmp_path / "foreign.csv"
    foreign.write_text("a,b\n1,2\n")
    result = run("fit", foreign, "--out", tmp_path)
    assert result.exit_code == 2
    assert "foreign.csv" in result.stderr
    assert (tmp_path / "fit.json").read_text() == "older"


def test_folder_is_fitted_chain_by_chain(small: Path, tmp_path: Path) -> None:
    chains = tmp_path / "chains"
    chains.mkdir()
    shutil.copy(small, chains / "a.csv")
    shutil.copy(small, chains / "a.dat")
    (chains / "broken.csv").write_text("nothing of use\n")
    (chains / "notes.md").write_text("not a chain")
    out = tmp_path / "out"
    result = run("fit", chains, "--out", out, "--no-report", "--json")
    assert result.exit_code == 2  # one chain could not be read
    rows = {row["chain"]: row for row in json.loads(result.stdout)}
    assert set(rows) == {"a.csv", "a.dat", "broken.csv"}
    assert rows["broken.csv"]["status"] == "refused"
    assert (out / "a.csv" / "fit.json").exists()  # stems collide, and nothing is overwritten
    assert (out / "a.dat" / "fit.json").exists()
    assert pl.read_csv(out / "summary.csv").height == 3


def test_empty_folder_is_refused(tmp_path: Path) -> None:
    result = run("fit", tmp_path, "--out", tmp_path / "out")
    assert result.exit_code == 2
    assert "no chains" in result.stderr


def test_vix_prints_the_number_and_its_terms(small: Path) -> None:
    facts = json.loads(run("vix", small, "--json").stdout)
    assert {"vix", "near", "next", "minutes", "forwards"} <= set(facts)
    assert facts["vix"] == float(ab.vix(ab.read_chain(small)))
    shown = run("vix", small).stdout
    assert f"{facts['vix']:.6f}" in shown


def test_vix_without_expiries_around_the_horizon_is_refused(small: Path) -> None:
    result = run("vix", small, "--days", 1000)
    assert result.exit_code == 2
    assert result.stderr.startswith("Error:")
