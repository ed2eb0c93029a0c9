"""Names and texts of files: no markup, no escape sequences, no formulas, no way out of a folder."""

from __future__ import annotations

import datetime as dt
import json
from pathlib import Path

import polars as pl
import pytest
from typer.testing import CliRunner, Result

import arbiter as ab
import listed
from arbiter.cli import app
from arbiter.cli.chain_folders import name_folders
from arbiter.files.safe_text import format_safe_csv, show_controls
from arbiter.pricing.vix_slices import VixSlices

SERIES = (("SPX", dt.date(2023, 3, 17)), ("SPX", dt.date(2023, 12, 15)))
FRAME = listed.market(SERIES, strikes=21)
ROOTS = ("[/bold]", "[red]x", "$x^$", "$$", "=1+1", "-2", "@SUM(A1)", "<b>", "{{7*7}}", "%s", "'\"")


def run(*arguments: object) -> Result:
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert isinstance(result.exception, SystemExit | None), result.exception
    return result


def chain(path: Path, root: str = "SPX") -> Path:
    """A tidy chain of options on something called ``root``."""
    frame = FRAME.with_columns(
        root=pl.lit(root), exercise=pl.lit("European"), underlying=pl.lit(root)
    )
    frame.with_columns(as_of=pl.lit(listed.AS_OF)).write_csv(path)
    return path


@pytest.mark.parametrize("root", ROOTS)
def test_a_root_is_shown_as_it_is_written(
    root: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")  # a table of a narrow terminal cuts it
    path = chain(tmp_path / "chain.csv", root)
    out = tmp_path / "out"
    result = run("fit", path, "--out", out, "--no-report")
    assert result.exit_code == 0, result.stderr
    told = json.loads((out / "fit.json").read_text())
    assert told["underlying"] == root.upper()
    assert root.upper() in result.stdout  # of "SPX 2023-02-07, 84 options": the chain's own words
    index = run("vix", path, "--days", 100)
    assert index.exit_code == 0, index.stderr
    assert root.upper() in index.stdout


def test_roots_of_formulas_reach_pictures_and_pages_as_text(tmp_path: Path) -> None:
    path = chain(tmp_path / "chain.csv", "$x^$")
    result = run("fit", path, "--out", tmp_path / "out", "--pdf")
    assert result.exit_code == 0, result.stderr


@pytest.mark.parametrize("root", ["\x1b[31mX", "a\nb", "\u202eXPS", "A" * 33])
def test_a_root_that_is_no_name_is_refused(root: str, tmp_path: Path) -> None:
    frame = FRAME.with_columns(root=pl.lit(root), exercise=pl.lit("European"))
    path = tmp_path / "chain.parquet"
    frame.with_columns(as_of=pl.lit(listed.AS_OF)).write_parquet(path)
    result = run("fit", path, "--out", tmp_path / "out")
    assert result.exit_code == 2
    assert "is no name of an option series" in result.stderr
    assert "\x1b" not in result.output


def test_the_name_of_a_file_does_not_steer_the_terminal(tmp_path: Path) -> None:
    folder = tmp_path / "chains"
    folder.mkdir()
    chain(folder / "a\x1b[2Jb.csv")
    (folder / "=1+1\n.csv").write_text("no chain\n")
    out = tmp_path / "out"
    result = run("fit", folder, "--out", out, "--no-report")
    assert result.exit_code == 2  # the second one
    assert "\x1b" not in result.output
    names = pl.read_csv(out / "summary.csv")["chain"].to_list()
    assert names == ["'=1+1\N{REPLACEMENT CHARACTER}.csv", "a\N{REPLACEMENT CHARACTER}[2Jb.csv"]


def test_text_that_begins_like_a_formula_is_text_in_a_table() -> None:
    words = ["=1", "+1", "-1", "@x", " =1", "\t=1", "x=1", "1", None]
    table = pl.DataFrame({"word": words, "size": [-1.5] * len(words)})
    found = pl.read_csv(format_safe_csv(table).encode())
    assert found["size"].to_list() == [-1.5] * len(words)  # numbers are numbers
    quoted = [word for word in found["word"].to_list() if word is not None and word[0] == "'"]
    assert len(quoted) == 5
    assert found["word"].to_list()[5:] == ["\N{REPLACEMENT CHARACTER}=1", "x=1", "1", None]


def test_marks_that_turn_text_around_are_shown() -> None:
    assert (
        show_controls("a\u202eb\x9bc\nd")
        == "a\N{REPLACEMENT CHARACTER}b\N{REPLACEMENT CHARACTER}c\nd"
    )
    assert show_controls("Größe, ٣ 🙂") == "Größe, ٣ 🙂"  # the control


def test_no_chain_of_a_folder_is_written_outside_the_results(tmp_path: Path) -> None:
    folder = tmp_path / "chains"
    folder.mkdir()
    for name in ("...csv", "..csv", "summary.csv.csv", "summary.csv", "summary.dat", "a.csv.csv"):
        chain(folder / name)
    chain(folder / "a.csv")
    chain(folder / "a.dat")
    before = {path.name for path in tmp_path.iterdir()}
    out = tmp_path / "out"
    result = run("fit", folder, "--out", out, "--no-report", "--json")
    assert result.exit_code == 0, result.stderr
    rows = json.loads(result.stdout)
    assert len(rows) == 8
    assert {path.name for path in tmp_path.iterdir()} == before | {"out"}
    assert not (out / "fit.json").exists()
    folders = [path for path in out.iterdir() if path.is_dir()]
    assert len(folders) == 8
    assert {json.loads((path / "fit.json").read_text())["run"] for path in folders} == {
        row["run"] for row in rows
    }
    assert pl.read_csv(out / "summary.csv").height == 8


def test_every_chain_of_a_folder_has_its_own_place() -> None:
    names = ["A.csv", "a.dat", "a.csv.txt", "b.csv", "summary.csv", "...csv", "SUMMARY.CSV.csv"]
    places = name_folders([Path(name) for name in names])
    folded = [place.casefold() for place in places.values()]
    assert len(set(folded)) == len(names)
    assert not {".", "..", "", "summary.csv"} & set(folded)
    assert places[Path("b.csv")] == "b"


def test_a_folder_in_the_place_of_the_summary_is_refused_before_the_fits(tmp_path: Path) -> None:
    folder, out = tmp_path / "chains", tmp_path / "out"
    folder.mkdir()
    chain(folder / "a.csv")
    (out / "summary.csv").mkdir(parents=True)
    result = run("fit", folder, "--out", out)
    assert result.exit_code == 2
    assert "summary.csv is a folder" in result.stderr
    assert not (out / "a").exists()


def test_a_program_that_is_not_solved_is_a_failed_check(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unsolved(*_: object) -> None:
        raise ArithmeticError("the linear program was not solved")

    vix = VixSlices.of([-3.0, 0.0, 3.0], [0.1], [[0.25, 0.3, 0.4]])
    ab.example().with_vix(vix).save(tmp_path / "surface.npz")
    monkeypatch.setattr("arbiter.joint.joint_audit", unsolved)
    result = run("joint", tmp_path / "surface.npz")
    assert result.exit_code == 1
    assert "the linear program was not solved" in result.stderr


@pytest.mark.parametrize("unit", ["1e308", "1e-300", "inf", "nan", "-1"])
def test_a_unit_beyond_arithmetic_is_refused(unit: str, tmp_path: Path) -> None:
    vix = VixSlices.of([-3.0, 0.0, 3.0], [0.1], [[0.25, 0.3, 0.4]])
    ab.example().with_vix(vix).save(tmp_path / "surface.npz")
    result = run("joint", tmp_path / "surface.npz", "--variance-unit", unit)
    assert result.exit_code == 2
    assert result.stderr.startswith("Error: variance_unit")
