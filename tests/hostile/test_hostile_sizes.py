"""Small files that unpack to large ones are refused within 1 GB; every limit can be raised."""

from __future__ import annotations

import gzip
import io
import json
import subprocess
import sys
import zipfile
from contextlib import suppress
from pathlib import Path

import numpy as np
import polars as pl
import pytest

import arbiter as ab
from arbiter.chains import ChainError, read_chain
from arbiter.files import limits
from arbiter.files.parquet_size import ParquetDamageError, measure_parquet
from arbiter.operators.checkpoint import CheckpointError
from arbiter.operators.checkpoint import load as load_checkpoint
from arbiter.report.curves import Readings
from arbiter.storage import SurfaceFileError
from damage import damage_file
from hostile_cases import MOST_BYTES, child_environment

MEASURE = """
import sys
from typer.testing import CliRunner
from arbiter.cli import app
from hostile_cases import measure_peak
result = CliRunner().invoke(app, sys.argv[1:])
kind, words = type(result.exception).__name__, " ".join(result.stderr.split())
print(measure_peak(), result.exit_code, kind, words)
"""


def measure(*arguments: object) -> tuple[int, int, str]:
    """Peak memory in bytes, exit code and standard error of a command in its own process."""
    child = subprocess.run(
        [sys.executable, "-c", MEASURE, *map(str, arguments)],
        capture_output=True,
        text=True,
        env=child_environment(),
        check=True,
    )
    peak, code, kind, words = child.stdout.splitlines()[-1].split(" ", 3)
    assert kind in ("SystemExit", "NoneType"), child.stdout
    return int(peak), int(code), words


def refuse(words: str, *arguments: object) -> None:
    peak, code, said = measure(*arguments)
    assert code == 2, said
    assert words in said
    assert peak < MOST_BYTES


def test_a_table_of_200_mb_is_not_audited(tmp_path: Path) -> None:
    path = tmp_path / "large.csv"
    with path.open("wb") as file:
        file.write(b"T,k,iv\n")
        file.truncate(200_000_000)
    refuse("set ARBITER_MAX_BYTES higher", "audit", path)


def test_a_table_of_many_short_rows_is_not_audited(tmp_path: Path) -> None:
    path = tmp_path / "long.csv"
    path.write_text("T,k,iv\n" + "1,0,1\n" * 5_000_000)
    refuse("set ARBITER_MAX_ROWS higher", "audit", path)


@pytest.mark.parametrize("command", ["audit", "fit", "vix"])
def test_archives_are_not_unpacked(command: str, tmp_path: Path) -> None:
    path = tmp_path / "bomb.csv"
    path.write_bytes(gzip.compress(b"T,k,iv\n" + b"1,0,1\n" * 20_000_000, 1))
    refuse("gzip: unpack it", command, path)


def parquet(rows: int, **columns: str | float) -> bytes:
    """A file of constant columns, which takes a few kilobytes whatever its rows."""
    buffer = io.BytesIO()
    constant = {name: pl.repeat(value, rows, eager=True) for name, value in columns.items()}
    pl.DataFrame(constant).write_parquet(buffer, compression="zstd")
    return buffer.getvalue()


CHAIN_COLUMNS: dict[str, str | float] = {
    **{"root": "SPX", "expiry": "2023-03-17", "settlement": "AM", "side": "call"},
    **{"strike": 4000.0, "bid": 10.0, "ask": 11.0, "as_of": "2023-02-07T16:15"},
}


@pytest.mark.parametrize("command", ["audit", "fit", "vix"])
def test_a_small_parquet_file_of_many_rows_is_refused(command: str, tmp_path: Path) -> None:
    path = tmp_path / "rows.parquet"
    path.write_bytes(parquet(2_000_000, **CHAIN_COLUMNS))
    assert path.stat().st_size < 100_000
    refuse("rows, more than the 250,000 allowed", command, path)


def test_a_small_parquet_file_of_long_texts_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "texts.parquet"
    path.write_bytes(parquet(200_000, **CHAIN_COLUMNS, note="x" * 10_000))
    assert path.stat().st_size < 100_000
    refuse("set ARBITER_MAX_BYTES higher", "fit", path)


def test_a_small_parquet_file_of_many_columns_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "columns.parquet"
    path.write_bytes(parquet(200_000, **CHAIN_COLUMNS, **{f"c{i}": 1 for i in range(100)}))
    refuse("set ARBITER_MAX_CELLS higher", "fit", path)


def test_pages_that_unpack_to_much_are_refused_before_they_are(tmp_path: Path) -> None:
    path = tmp_path / "pages.parquet"
    path.write_bytes(parquet(1, **CHAIN_COLUMNS, note="x" * 200_000_000))
    assert path.stat().st_size < 100_000
    refuse("unpacked", "fit", path)


def test_columns_of_lists_are_left_alone(tmp_path: Path) -> None:
    buffer = io.BytesIO()
    plain = {name: [value] for name, value in CHAIN_COLUMNS.items()}
    pl.DataFrame({**plain, "more": [[0] * 3_000_000]}).write_parquet(buffer)
    assert read_chain(buffer.getvalue()).frame.height == 1


def test_the_size_of_parquet_pages_is_what_they_unpack_to() -> None:
    texts = ["x" * i for i in range(2_000)]
    data = io.BytesIO()
    pl.DataFrame({"a": texts}).write_parquet(data, compression="zstd")
    plain = sum(map(len, texts))
    assert plain < measure_parquet(data.getvalue()) < 1.2 * plain
    with pytest.raises(ParquetDamageError):  # the control
        measure_parquet(data.getvalue()[:-9] + b"\xff" * 5 + b"PAR1")


def test_a_chain_of_one_option_each_on_many_expiries_is_refused(tmp_path: Path) -> None:
    rows = {name: [value] * 60_000 for name, value in CHAIN_COLUMNS.items()}
    rows["settles"] = [str(np.datetime64("2023-03-17T09:30") + i) for i in range(60_000)]
    path = tmp_path / "expiries.parquet"
    pl.DataFrame(rows).write_parquet(path)
    refuse("set ARBITER_MAX_EXPIRIES higher", "fit", path)


def test_one_long_expiry_among_many_short_ones_is_refused(tmp_path: Path) -> None:
    rows = {name: [value] * 60_000 for name, value in CHAIN_COLUMNS.items()}
    moments = [np.datetime64("2023-03-17T09:30") + max(0, i - 58_000) for i in range(60_000)]
    rows["settles"] = [str(moment) for moment in moments]
    path = tmp_path / "ragged.parquet"
    pl.DataFrame(rows).write_parquet(path)
    refuse("set ARBITER_MAX_CELLS higher", "fit", path)


def surface_of(path: Path, maturities: int, knots: int, components: int = 1) -> Path:
    """A flat surface as a file; constant slopes pack to next to nothing."""
    T = np.linspace(0.01, 5.0, maturities)
    slopes = np.broadcast_to((0.2 * np.sqrt(T))[:, None], (components, maturities, knots))
    meta = {"format": "arbiter-surface", "version": 1, "as_of": None, "info": {}}
    np.savez_compressed(
        path,
        knots=np.linspace(-6.0, 6.0, knots),
        maturities=T,
        slopes=slopes,
        weights=np.full((components, maturities), 1.0 / components),
        forwards=np.ones(maturities),
        discounts=np.ones(maturities),
        meta=np.frombuffer(json.dumps(meta).encode(), dtype=np.uint8),
    )
    return path


@pytest.mark.parametrize(
    ("shape", "words"),
    [
        ((2, 1_000_000, 1), "ARBITER_MAX_KNOTS"),
        ((1_000_000, 2, 1), "ARBITER_MAX_EXPIRIES"),
        ((1_000, 50, 100), "ARBITER_MAX_SLOPES"),
        ((2, 2, 100), "ARBITER_MAX_COMPONENTS"),
    ],
)
def test_a_surface_of_hostile_size_is_refused(
    shape: tuple[int, int, int], words: str, tmp_path: Path
) -> None:
    path = surface_of(tmp_path / "surface.npz", *shape)
    refuse(f"set {words} higher", "audit", path)


def test_a_surface_that_is_large_but_allowed_is_audited_within_a_gigabyte(tmp_path: Path) -> None:
    path = surface_of(tmp_path / "surface.npz", 2_200, 90, 2)
    peak, code, _ = measure("audit", path)
    assert code == 0
    assert peak < MOST_BYTES


def test_a_surface_with_a_long_description_is_refused(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "surface.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("meta.npy", b"[" * 10_000_000)
    with pytest.raises(SurfaceFileError, match="ARBITER_MAX_DESCRIPTION"):
        ab.Surface.load(tmp_path / "surface.npz")


def test_a_checkpoint_that_is_too_large_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "large.safetensors"
    with path.open("wb") as file:
        file.truncate(limits.BYTES.default + 1)
    with pytest.raises(CheckpointError, match="ARBITER_MAX_BYTES"):
        load_checkpoint(path)


def test_every_limit_is_a_number_that_its_variable_replaces(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for limit in limits.LIMITS:
        assert limit.variable == f"ARBITER_MAX_{limit.name}"
        monkeypatch.setenv(limit.variable, "7")
        limit.require(7, "it")
        with pytest.raises(ValueError, match=f"it has 8 .*, more than the 7 allowed.*{limit.name}"):
            limit.require(8, "it")
        for wrong in ("0", "-1", "many", "1e6", "9" * 30):
            monkeypatch.setenv(limit.variable, wrong)
            with pytest.raises(ValueError, match="must be a whole number"):
                limit.require(1, "it")


def test_a_raised_limit_lets_the_same_file_through(monkeypatch: pytest.MonkeyPatch) -> None:
    data = parquet(300_000, **CHAIN_COLUMNS)
    with pytest.raises(ChainError, match="ARBITER_MAX_ROWS"):
        read_chain(data)
    monkeypatch.setenv("ARBITER_MAX_ROWS", "300000")
    assert read_chain(data).frame.height == 300_000


def test_a_report_of_many_expiries_draws_some_and_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    quotes = ab.example_chain().quotes()
    surface = ab.example()
    whole = Readings.of(surface, quotes)
    assert whole.notes == ()
    assert whole.quotes is whole.all_quotes is quotes
    monkeypatch.setenv("ARBITER_MAX_DRAWN_EXPIRIES", "5")
    some = Readings.of(surface, quotes)
    assert some.T.size == 5
    assert {some.T[0], some.T[-1]} == {quotes.maturities[0], quotes.maturities[-1]}
    assert some.all_quotes is quotes
    assert f"show 5 of {quotes.maturities.size} expiries" in some.notes[0]


def test_a_page_that_ends_its_reader_ends_no_other_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Found by the fuzzer: for a page that claims more than there is polars ends its process."""
    with suppress(ChainError):
        read_chain(damage_file(46_017), as_of="2023-02-07T16:15")
    reader = tmp_path / "reader"
    reader.write_text("#!/bin/sh\ncat > /dev/null\necho no memory >&2\nkill -ABRT $$\n")
    reader.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(reader))
    with pytest.raises(ChainError, match="not a readable Parquet file: no memory"):
        read_chain(parquet(1, **CHAIN_COLUMNS))


def test_the_page_states_every_limit() -> None:
    page = (Path(__file__).parents[2] / "docs" / "hardening.md").read_text(encoding="utf-8")
    for limit in limits.LIMITS:
        assert f"| `{limit.variable}` | {limit.default:,} |" in page
