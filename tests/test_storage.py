"""Saved surfaces come back bit for bit; anything else gets a sentence, and nothing is run."""

from __future__ import annotations

import copy
import json
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import arbiter as ab
from arbiter.storage import SurfaceFileError
from arbiter.surface import Surface
from arbiter.timing.clock import Clock, Event
from arbiter.timing.time_change import TimeChange

# of tests/data/surface_*.npz, asked of revision 232570f, which wrote them
IV_BEFORE = [0.20424621905791623, 0.1801748119045882, 0.1552344744682868, 0.13700007931846062]
VIX_BEFORE, FUTURE_BEFORE, VVIX_BEFORE = 15.688391939462921, 16.256713890840647, 42.21567202517306


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    path = tmp_path / "surface.npz"
    ab.example().save(path)
    return path


def contents(path: Path) -> dict[str, Any]:
    with np.load(path, allow_pickle=False) as archive:
        return {name: archive[name] for name in archive.files}


def rewrite(path: Path, **changes: Any) -> None:
    np.savez(path, **{**contents(path), **changes})


def described(path: Path, **changes: Any) -> np.ndarray:
    meta = json.loads(contents(path)["meta"].tobytes()) | changes
    return np.frombuffer(json.dumps(meta).encode(), dtype=np.uint8)


def test_round_trip_is_exact(saved: Path) -> None:
    before, after = ab.example(), Surface.load(saved)
    for name in ("knots", "maturities", "slopes", "weights"):
        assert np.array_equal(getattr(before, name), getattr(after, name)), name
    assert np.array_equal(before.curve.forwards, after.curve.forwards)
    assert np.array_equal(before.curve.discounts, after.curve.discounts)
    assert before.as_of == after.as_of
    assert dict(before.info) == dict(after.info)
    k = np.linspace(-0.5, 0.3, 41)
    assert np.array_equal(before.iv(k, 0.3), after.iv(k, 0.3))


def test_same_surface_same_bytes(saved: Path, tmp_path: Path) -> None:
    again = tmp_path / "again.npz"
    ab.example().save(again)
    assert again.read_bytes() == saved.read_bytes()


def test_the_file_is_plain_numpy(saved: Path) -> None:
    assert set(contents(saved)) == {
        "knots",
        "maturities",
        "slopes",
        "weights",
        "forwards",
        "discounts",
        "meta",
    }


def test_a_failed_save_leaves_the_old_file(saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = saved.read_bytes()

    def broken(*_: object, **__: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(np, "savez_compressed", broken)
    with pytest.raises(OSError, match="disk full"):
        ab.example().save(saved)
    assert saved.read_bytes() == before
    assert list(saved.parent.iterdir()) == [saved]


def test_saving_keeps_links_and_modes(saved: Path, tmp_path: Path) -> None:
    saved.chmod(0o600)
    link = tmp_path / "link.npz"
    link.symlink_to(saved)
    ab.example().save(link)
    assert link.is_symlink()
    assert saved.stat().st_mode & 0o777 == 0o600


def test_newer_versions_ask_for_an_upgrade(saved: Path) -> None:
    rewrite(saved, meta=described(saved, version=99))
    with pytest.raises(SurfaceFileError, match=r"version 99.*upgrade arbiter-vol"):
        Surface.load(saved)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": "something else"}, "foreign file"),
        ({"version": "one"}, "unreadable format version 'one'"),
        ({"version": 0}, "unreadable format version 0"),
        ({"version": True}, "unreadable format version True"),
        ({"as_of": "yesterday"}, "not an ISO date"),
        ({"as_of": "now"}, "not an ISO date"),
        ({"as_of": 5}, "must be text or null"),
        ({"info": [["a", 1]]}, "its info an object"),
    ],
)
def test_strange_descriptions(saved: Path, change: dict[str, Any], message: str) -> None:
    rewrite(saved, meta=described(saved, **change))
    with pytest.raises(SurfaceFileError, match=message):
        Surface.load(saved)


def test_truncated_and_foreign_files(saved: Path, tmp_path: Path) -> None:
    data = saved.read_bytes()
    for size in (0, 10, len(data) // 2, len(data) - 10):
        saved.write_bytes(data[:size])
        with pytest.raises(SurfaceFileError, match="not a readable surface file"):
            Surface.load(saved)
    text = tmp_path / "notes.txt"
    text.write_text("T,k,iv\n")
    with pytest.raises(SurfaceFileError, match=r"notes\.txt"):
        Surface.load(text)
    np.savez(tmp_path / "other.npz", a=np.ones(3))
    with pytest.raises(SurfaceFileError, match="not a readable surface file"):
        Surface.load(tmp_path / "other.npz")
    with pytest.raises(FileNotFoundError):
        Surface.load(tmp_path / "missing.npz")


def test_flipped_bytes_never_pass_silently(saved: Path, rng: np.random.Generator) -> None:
    """A flipped byte either breaks a checksum or lies in the archive's unused fields."""
    data = saved.read_bytes()
    original = Surface.load(saved)
    refused = 0
    for _ in range(60):
        damaged = bytearray(data)
        damaged[int(rng.integers(len(data)))] ^= 1 << int(rng.integers(8))
        saved.write_bytes(bytes(damaged))
        try:
            survivor = Surface.load(saved)
        except SurfaceFileError:
            refused += 1
        else:
            assert np.array_equal(survivor.slopes, original.slopes)
    assert refused > 40


def test_pickled_objects_are_never_loaded(saved: Path) -> None:
    class Bomb:
        def __reduce__(self) -> tuple[Any, ...]:
            return (pytest.fail, ("a pickle was loaded",))

    rewrite(saved, knots=np.array([Bomb()], dtype=object))
    with pytest.raises(SurfaceFileError, match="pickled objects"):
        Surface.load(saved)


def with_header(saved: Path, header: bytes) -> None:
    """Replace the header of ``knots`` by 118 bytes of the caller's."""
    arrays = contents(saved)
    raw = b"\x93NUMPY\x01\x00\x76\x00" + header.ljust(117) + b"\n"
    with zipfile.ZipFile(saved, "w") as archive:
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w") as file:
                if name == "knots":
                    file.write(raw + b"\x00" * 16)
                else:
                    np.lib.format.write_array(file, array, allow_pickle=False)


@pytest.mark.parametrize(
    "shape",
    ["(-31, -1)", "(4294967296, 4294967296)", "(" + "9" * 40 + ",)", "(True,)", "(((((((", "'a'"],
)
def test_headers_of_nonsense(saved: Path, shape: str) -> None:
    with_header(saved, f"{{'descr': '<f8', 'fortran_order': False, 'shape': {shape}, }}".encode())
    with pytest.raises(SurfaceFileError):
        Surface.load(saved)


def test_a_header_that_lies_about_its_size(saved: Path) -> None:
    """A few bytes that declare a terabyte are refused before anything is allocated."""
    with_header(saved, b"{'descr': '<f8', 'fortran_order': False, 'shape': (99999999999,), }")
    with pytest.raises(SurfaceFileError, match="declares 799999999992 bytes and holds 16"):
        Surface.load(saved)


def test_oversized_archives_are_refused(saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ARBITER_MAX_BYTES", "1000")
    with pytest.raises(SurfaceFileError, match="more than the 1,000"):
        Surface.load(saved)


def test_numbers_without_the_guarantee_are_refused(saved: Path) -> None:
    slopes = np.array(contents(saved)["slopes"])
    slopes[0, 5, 3] *= 0.5
    rewrite(saved, slopes=slopes)
    with pytest.raises(SurfaceFileError, match="not a surface"):
        Surface.load(saved)
    rewrite(saved, slopes=slopes.astype(np.float32))
    with pytest.raises(SurfaceFileError, match="float32"):
        Surface.load(saved)


def test_files_of_before_the_house_was_parted_load() -> None:
    """Written by revision 232570f, with and without a VIX side; so are the numbers."""
    folder = Path(__file__).parent / "data"
    plain = Surface.load(folder / "surface_plain.npz")
    both = Surface.load(folder / "surface_with_vix.npz")
    for surface in (plain, both):
        assert surface.certificate().passed
        assert surface.iv([-0.2, -0.1, 0.0, 0.1], 0.25) == pytest.approx(IV_BEFORE, rel=1e-12)
        assert float(surface.vix()) == pytest.approx(VIX_BEFORE, rel=1e-12)
    assert float(both.vix_future(0.2)) == pytest.approx(FUTURE_BEFORE, rel=1e-12)
    assert float(both.vvix(0.2)) == pytest.approx(VVIX_BEFORE, rel=1e-12)


def test_a_clock_is_kept_and_a_tampered_one_refused(tmp_path: Path) -> None:
    plain = Surface.from_slopes([-1.0, 1.0], [0.1, 0.5], [[0.1, 0.1], [0.2, 0.2]])
    time = TimeChange.from_nodes([0.0, 0.2, 0.2, 0.6], [0.0, 0.1, 0.3, 0.6])
    clock = Clock(events=(Event("2026-12-09T14:00", "FOMC", 1e-4),))
    about = {"clock": clock.to_dict()}
    surface = replace(plain, time=time, info=about)
    path = tmp_path / "clock.npz"
    surface.save(path)
    again = Surface.load(path)
    assert again.clock == clock
    T = np.linspace(0.05, 0.7, 14)
    assert np.array_equal(again.iv(0.0, T), surface.iv(0.0, T))
    assert np.array_equal(copy.deepcopy(again).iv(0.0, T), surface.iv(0.0, T))
    assert not np.allclose(plain.iv(0.0, T), surface.iv(0.0, T))  # the control
    rewrite(path, clock_years=np.array([0.0, 0.3, 0.1, 0.6]))
    with pytest.raises(SurfaceFileError, match="must start at 0 and never fall"):
        Surface.load(path)
