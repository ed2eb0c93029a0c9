"""`arbiter audit`: what it prints and how it exits."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from typer.testing import CliRunner, Result

import arbiter as ab
from arbiter.cli import app

FLAT = pl.DataFrame({"T": [1.0] * 3, "k": [-0.1, 0.0, 0.1], "iv": [0.2, 0.2, 0.2]})
STEEP = FLAT.with_columns(pl.Series("iv", [0.2, 0.5, 0.2]))


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


@pytest.fixture
def surface(tmp_path: Path) -> Path:
    path = tmp_path / "surface.npz"
    ab.Surface.from_slopes([-1.0, 1.0], [0.5, 1.0], [[0.1, 0.1], [0.2, 0.2]]).save(path)
    return path


def write(frame: pl.DataFrame, path: Path) -> Path:
    if path.suffix == ".csv":
        frame.write_csv(path)
    else:
        frame.write_parquet(path)
    return path


@pytest.mark.parametrize("kind", [".csv", ".parquet"])
def test_clean_table_exits_0(tmp_path: Path, kind: str) -> None:
    result = run("audit", write(FLAT, tmp_path / f"flat{kind}"))
    assert result.exit_code == 0
    assert "Passed" in result.stdout
    assert result.stderr == ""


@pytest.mark.parametrize("kind", [".csv", ".parquet"])
def test_findings_exit_1_and_are_shown(tmp_path: Path, kind: str) -> None:
    result = run("audit", write(STEEP, tmp_path / f"steep{kind}"))
    assert result.exit_code == 1
    assert "butterfly" in result.stdout
    assert "Failed" in result.stdout


def test_tolerance(tmp_path: Path) -> None:
    path = write(STEEP, tmp_path / "steep.csv")
    assert run("audit", path, "--tolerance", 0.5).exit_code == 0
    assert run("audit", path, "--tolerance", -1.0).exit_code == 2


def test_surface_exits_0(surface: Path) -> None:
    result = run("audit", surface)
    assert result.exit_code == 0
    assert "Structural proof" in result.stdout


def test_json_is_all_there_is(tmp_path: Path, surface: Path) -> None:
    content = json.loads(run("audit", surface, "--json").stdout)
    assert content["passed"] is True
    assert content["structural"]["passed"] is True
    result = run("audit", write(STEEP, tmp_path / "steep.csv"), "--json")
    assert result.exit_code == 1
    content = json.loads(result.stdout)
    assert content["passed"] is False
    assert {"family", "T", "k", "size", "size_iv", "material", "legs"} <= set(
        content["findings"][0]
    )


def test_long_tables_are_cut(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    noise = pl.DataFrame(
        {"T": np.ones(60), "k": np.linspace(-0.5, 0.5, 60), "iv": rng.uniform(0.1, 0.3, 60)}
    )
    result = run("audit", write(noise, tmp_path / "noise.csv"))
    assert result.exit_code == 1
    assert "more; --json lists them all" in result.stdout


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("missing.csv", None, "is not a file"),
        ("notes.txt", b"hello", "unknown kind '.txt'"),
        ("empty.csv", b"", "not a readable table"),
        ("broken.parquet", b"not parquet", "not a readable table"),
        ("broken.npz", b"not an archive", "broken.npz"),
        ("short.csv", b"T,k\n1.0,0.0\n", "at least one of iv, call, put"),
        ("late.csv", b"T,k,iv\n-1.0,0.0,0.2\n", "row 0, column T: -1.0 is not positive"),
    ],
)
def test_bad_input_exits_2_with_a_sentence(
    tmp_path: Path, name: str, content: bytes | None, message: str
) -> None:
    path = tmp_path / name
    if content is not None:
        path.write_bytes(content)
    for arguments in (["audit", path], ["audit", path, "--json"]):
        result = run(*arguments)
        assert result.exit_code == 2
        assert message in result.stderr
        assert "Traceback" not in result.output
        assert result.stdout == ""


def test_the_unit_of_volatilities_can_be_said(tmp_path: Path) -> None:
    path = tmp_path / "percent.csv"
    path.write_text("T,k,iv\n1,-0.1,20\n1,0,50\n1,0.1,20\n")
    refused = run("audit", path)
    assert refused.exit_code == 2
    assert "percent" in refused.stderr
    assert run("audit", path, "--percent").exit_code == 1
    assert run("audit", path, "--decimal").exit_code == 0


def test_tolerance_is_not_for_surfaces(surface: Path) -> None:
    result = run("audit", surface, "--tolerance", 1e-6)
    assert result.exit_code == 2
    assert "leave them out" in result.stderr


def test_help_names_the_command() -> None:
    assert "audit" in run("--help").stdout
    assert "--tolerance" in run("audit", "--help").stdout


def test_exit_code_of_the_process(tmp_path: Path) -> None:
    path = write(STEEP, tmp_path / "table.csv")
    program = [sys.executable, "-c", "from arbiter.cli import main; main()", "audit", str(path)]
    assert subprocess.run(program, capture_output=True, check=False).returncode == 1
