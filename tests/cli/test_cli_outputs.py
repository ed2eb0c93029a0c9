"""What a run leaves behind: an older result stays whole, names are true, and JSON has no NaN."""

import json
import logging
import os
import re
import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest
from typer.testing import CliRunner, Result

from arbiter.cli import app
from arbiter.data import example_chain_path as example_path
from arbiter.files import require_folder
from arbiter.pipeline import Job
from arbiter.pipeline import run_job as run_pipeline


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def chain(folder: Path, days: str, name: str = "chain.csv") -> Path:
    """Some expiries of the shipped chain, quoted on 2026-10-15."""
    lines = example_path().read_text().splitlines(keepends=True)
    kept = [line for line in lines[4:] if re.match(rf"^\w+ ({days}) 20\d\d,", line)]
    path = folder / name
    path.write_text("".join(lines[:4] + kept))
    return path


@pytest.fixture(scope="module")
def month(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return chain(tmp_path_factory.mktemp("month"), "Nov (06|13|20|27)")


def test_a_folder_that_cannot_be_written_is_refused_before_the_fit(
    month: Path, tmp_path: Path
) -> None:
    place = tmp_path / "file"
    place.write_text("mine")
    for out in (place, place / "deeper"):
        result = run("fit", month, "--out", out, "--json")
        assert result.exit_code == 2
        assert result.stdout == ""
        assert f"{place} is a file; name another folder" in result.stderr
    assert place.read_text() == "mine"
    require_folder(tmp_path / "not" / "there")  # the control: it can be made
    assert not (tmp_path / "not").exists()


def test_a_read_only_folder_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    require_folder(tmp_path)
    monkeypatch.setattr(os, "access", lambda *_: False)  # root may write anywhere
    with pytest.raises(ValueError, match="read-only; name another one"):
        require_folder(tmp_path / "out")


def test_an_older_result_stays_whole_if_a_picture_cannot_be_made(
    month: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run("fit", month, "--out", tmp_path, "--no-report").exit_code == 0
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}

    def fails(*_: object, **__: object) -> None:
        raise OSError("no space left")

    monkeypatch.setattr("arbiter.report.pictures.write_panels", fails)
    result = run("fit", month, "--out", tmp_path, "--roughness", "1,1,1")
    assert result.exit_code == 2
    assert "no space left" in result.stderr
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_a_folder_in_the_place_of_a_file_is_refused(month: Path, tmp_path: Path) -> None:
    (tmp_path / "report.html").mkdir()
    result = run("fit", month, "--out", tmp_path)
    assert result.exit_code == 2
    assert "report.html is a folder" in result.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["report.html"]


def test_only_what_was_written_is_said_to_be(month: Path, tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    (tmp_path / "report.html").write_text("old")
    # lines break anywhere, by the length of the folder's name
    words = re.sub(r"\s+", "", run("fit", month, "--out", tmp_path, "--no-report").stdout)
    assert "mine.txt" not in words
    assert "wrote" in words
    assert "surface.npz" in words
    assert f"wrote{tmp_path / 'report.html'}" not in words
    assert "report.htmlisofanearlierfit" in words


def test_numbers_that_are_not_known_are_null(tmp_path: Path) -> None:
    only = chain(tmp_path, "Oct 16")  # a day ahead: fitted when asked for, but not counted
    result = run(
        "fit", only, "--out", tmp_path / "out", "--shortest-days", 0, "--json", "--no-report"
    )
    assert result.exit_code == 0, result.stderr
    found = json.loads(result.stdout)
    assert found["quotes"] == 0
    assert found["inside_bid_ask"] is None
    assert found["iv_rmse_bp_2sd"] is None
    assert any("no quote counts" in warning for warning in found["warnings"])
    shown = run("fit", only, "--out", tmp_path / "out", "--shortest-days", 0, "--no-report")
    assert shown.exit_code == 0, shown.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [(["--holdout", "0.0001"], "hold out a larger share"), (["--seed", "-1"], "--seed -1")],
)
def test_nothing_to_hold_out_is_refused(
    month: Path, tmp_path: Path, arguments: list[str], words: str
) -> None:
    result = run("fit", month, "--out", tmp_path / "out", "--no-report", *arguments)
    assert result.exit_code == 2
    assert words in result.stderr
    assert not (tmp_path / "out").exists()


def test_an_index_past_the_last_expiry_is_called_an_extrapolation(
    month: Path, tmp_path: Path
) -> None:
    logging.getLogger("arbiter").addHandler(logging.NullHandler())
    inside = run_pipeline(month, tmp_path / "in", Job(report=False)).summary
    assert inside["warnings"] == []
    short = chain(tmp_path, "Nov 06")
    outside = run_pipeline(short, tmp_path / "out", Job(report=False)).summary
    assert any("vix_surface is an extrapolation" in warning for warning in outside["warnings"])


def test_quotes_that_no_surface_fits_are_worth_a_warning(month: Path, tmp_path: Path) -> None:
    lines = month.read_text().splitlines()
    for i in range(4, len(lines), 2):  # every other strike has a time value three times as large
        part = lines[i].split(",")
        less = min(float(part[4]), float(part[15]))
        for place in (4, 5, 15, 16):
            part[place] = str(round(float(part[place]) + 2.0 * less, 2))
        lines[i] = ",".join(part)
    path = tmp_path / "odd.csv"
    path.write_text("\n".join(lines))
    result = run("fit", path, "--out", tmp_path / "out", "--json", "--no-report")
    found = json.loads(result.stdout)
    assert found["inside_bid_ask"] < 0.9
    assert any("are inside bid-ask" in warning for warning in found["warnings"])


def test_a_name_that_is_no_text_does_not_stop_anything(month: Path, tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    odd = os.fsdecode(os.fsencode(folder) + b"/bad\xff.csv")
    try:
        Path(odd).write_bytes(month.read_bytes())
    except OSError:
        pytest.skip("this file system wants text")
    result = run("fit", folder, "--out", tmp_path / "out", "--json", "--no-report")
    assert result.exit_code == 0, result.stderr
    (row,) = json.loads(result.stdout)
    assert row["chain"] == row["source"] == "bad\ufffd.csv"
    assert pl.read_csv(tmp_path / "out" / "summary.csv")["chain"].to_list() == ["bad\ufffd.csv"]


def test_a_terminal_without_our_letters_gets_others() -> None:
    result = subprocess.run(
        [sys.executable, "-c", "from arbiter.cli import main; main()", "vix"],
        capture_output=True,
        env={**os.environ, "PYTHONIOENCODING": "ascii"},
        check=False,
    )
    assert result.returncode == 0, result.stderr
    assert result.stdout.startswith(b"15.98")


def test_remedies_are_in_the_words_of_the_command_line(month: Path, tmp_path: Path) -> None:
    bare = tmp_path / "bare.csv"
    bare.write_text("".join(month.read_text().splitlines(keepends=True)[4:]))
    result = run("vix", bare)
    assert result.exit_code == 2
    assert "(here: --as-of 2023-02-07T16:15)" in result.stderr
    nameless = tmp_path / "quotes.csv"
    nameless.write_text("Expiration Date,Strike,Type,Bid,Ask\n2025-02-21,6000,call,1,2\n")
    assert "(here: --underlying SPX)" in run("vix", nameless).stderr


def test_a_folder_of_chains_is_not_written_into(month: Path, tmp_path: Path) -> None:
    mine = tmp_path / "summary.csv"
    mine.write_bytes(month.read_bytes())
    result = run("fit", tmp_path, "--out", tmp_path, "--no-report")
    assert result.exit_code == 2
    assert "is the folder of the chains" in result.stderr
    assert [*tmp_path.iterdir()] == [mine]
    assert mine.read_bytes() == month.read_bytes()
