"""What is done with one hostile case, by its seed; each returns a word for how it ended."""

from __future__ import annotations

import io
import json
import logging
import struct
import zipfile
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from typer.testing import CliRunner

import damage
from arbiter.chains import read_chain
from arbiter.cli import app
from arbiter.operators import checkpoint
from arbiter.sources import QuoteSource
from arbiter.surface import Surface

logging.getLogger("arbiter").addHandler(logging.NullHandler())

AS_OF = "2023-02-07T16:15"
Arrays = dict[str, Any]


def chain_file(seed: int, folder: Path) -> str:
    """A damaged file through the readers; some through a command."""
    data = damage.damage_file(seed)
    if seed % 20 == 0:
        return _run_command(["audit"], _write(data, folder, seed, (".csv", ".parquet")))
    if seed % 50 == 1:
        return _run_command(["vix", "--as-of", AS_OF], _write(data, folder, seed, (".csv",)))
    if seed % 400 == 2:
        out = ["--no-report", "--as-of", AS_OF, "--out", str(folder / "out")]
        return _run_command(["fit", *out], _write(data, folder, seed, (".csv", ".parquet")))
    if seed % 10 == 3:
        path = _write(data, folder, seed, (".csv", ".parquet", ".csv.gz"))
        QuoteSource.read(path, as_of=AS_OF, underlying="SPX")
        return "read"
    chain = read_chain(data, as_of=AS_OF if seed % 2 else None)
    quotes = chain.quotes(fewest_strikes=1, shortest_days=0.0)
    assert len(quotes) + quotes.exclusions.height == chain.frame.height + chain.set_aside.height
    assert np.all((quotes.bid > 0.0) & (quotes.ask > quotes.bid) & np.isfinite(quotes.ask))
    assert np.all(np.isfinite(quotes.k) & (quotes.T > 0.0))
    assert np.all((quotes.forwards > 0.0) & (quotes.discounts > 0.0))
    return "read"


def _write(data: bytes, folder: Path, seed: int, suffixes: tuple[str, ...]) -> Path:
    path = folder / f"file{suffixes[seed // 7 % len(suffixes)]}"
    path.write_bytes(data)
    return path


def _run_command(arguments: list[str], path: Path) -> str:
    result = CliRunner().invoke(app, [*arguments, str(path)])
    if not isinstance(result.exception, SystemExit | None):
        raise result.exception
    assert result.exit_code in (0, 1, 2), result.output
    assert "\x1b" not in result.output
    assert result.exit_code != 2 or "Error: " in result.stderr
    return f"exit {result.exit_code}"


def surface_file(seed: int, folder: Path) -> str:
    """A tampered surface: refused, or loaded as what it was, or as a surface like any other."""
    rng = np.random.default_rng(seed)
    files = sorted(folder.glob("*.npz"))
    original = files[seed % len(files)]
    data = original.read_bytes()
    path = folder / "tampered"
    if rng.random() < 0.4:
        path.write_bytes(_damage_bytes(data, rng))
        after, before = Surface.load(path), _load(original)
        for name in ("knots", "maturities", "slopes", "weights"):
            assert np.array_equal(getattr(after, name), getattr(before, name)), name
        assert after.as_of == before.as_of
        assert dict(after.info) == dict(before.info)
        return "same"
    path.write_bytes(_rebuild_surface(data, rng))
    _require_surface(Surface.load(path))
    return "a surface"


@cache
def _load(path: Path) -> Surface:
    return Surface.load(path)


def _require_surface(surface: Surface) -> None:
    """What every surface promises, recomputed from its public numbers."""
    b, x, T = surface.slopes, surface.knots, surface.maturities
    assert np.all(np.isfinite(b))
    assert b.min() > 0.0
    assert np.all(np.diff(x) > 0.0)
    assert np.all(np.diff(T, prepend=0.0) > 0.0)
    assert np.all(np.diff(b, axis=1) >= 0.0)
    assert np.all(np.diff(b, axis=0) >= 0.0)
    k = np.linspace(-0.5, 0.5, 9)
    calls = surface.call(surface.forward(T)[:, None] * np.exp(k), T[:, None])
    assert np.all(np.isfinite(calls))
    unit = calls / (surface.forward(T) * surface.discount(T))[:, None]
    assert np.all(np.diff(unit, axis=1) <= 1e-13)
    assert np.all(np.diff(unit, axis=0) >= -1e-13)


def checkpoint_file(seed: int, folder: Path) -> str:
    """A tampered checkpoint: refused, or loaded as what it was."""
    rng = np.random.default_rng(seed)
    files = sorted(folder.glob("*.safetensors"))
    data = files[seed % len(files)].read_bytes()
    path = folder / "tampered"
    path.write_bytes(_tamper_header(data, rng) if rng.random() < 0.5 else _damage_bytes(data, rng))
    (after, told), (before, info) = checkpoint.load(path), checkpoint.load(files[seed % len(files)])
    assert told == info
    assert after.keys() == before.keys()
    assert all(np.array_equal(after[name], before[name]) for name in before)
    return "same"


def _damage_bytes(data: bytes, rng: np.random.Generator) -> bytes:
    kinds = (
        damage.truncate,
        damage.drop_the_top,
        damage.flip_bytes,
        damage.delete_spans,
        _flip_one,
    )
    return kinds[int(rng.integers(0, len(kinds)))](data, rng)


def _flip_one(data: bytes, rng: np.random.Generator) -> bytes:
    array = bytearray(data)
    # half of them where archives and headers have their fields
    ends = rng.random() < 0.5
    place = int(rng.integers(0, min(len(data), 400))) if ends else int(rng.integers(0, len(data)))
    array[place if rng.random() < 0.5 else -place - 1] ^= 1 << int(rng.integers(0, 8))
    return bytes(array)


_VALUES: tuple[Any, ...] = (
    *(None, True, 0, -1, 1.5, 10**400, 1e308, "", "x" * 1000, "2023-02-07", [], [1], {}, "NaN"),
    *(["meta"], [[[]]], {"a": None}, "fit", "operator", ["slopes"] * 1000, 3, 2, 1, 99),
)


def _rebuild_surface(data: bytes, rng: np.random.Generator) -> bytes:
    """A well-formed archive with other content."""
    with np.load(io.BytesIO(data), allow_pickle=False) as archive:
        arrays: Arrays = {name: archive[name] for name in archive.files}
    meta = json.loads(arrays.pop("meta").tobytes())
    for _ in range(int(rng.integers(1, 4))):
        if rng.random() < 0.4:
            _tamper_json(meta, rng)
        else:
            name = sorted(arrays)[int(rng.integers(0, len(arrays)))]
            arrays[name] = _tamper_array(arrays[name], rng)
            if rng.random() < 0.1:
                del arrays[name]
                break
    described = np.frombuffer(json.dumps(meta).encode(), dtype=np.uint8)
    buffer = io.BytesIO()
    method = zipfile.ZIP_DEFLATED if rng.random() < 0.5 else zipfile.ZIP_STORED
    with zipfile.ZipFile(buffer, "w", method) as archive_out:
        for name, array in {**arrays, "meta": described}.items():
            with archive_out.open(f"{name}.npy", "w") as file:
                np.lib.format.write_array(file, np.asarray(array), allow_pickle=False)
    return buffer.getvalue()


def _tamper_json(found: Any, rng: np.random.Generator) -> None:
    """Replace, drop or add one value somewhere inside."""
    keys = list(found) if isinstance(found, dict) else list(range(len(found)))
    if not keys:
        return
    key = keys[int(rng.integers(0, len(keys)))]
    if isinstance(found[key], dict | list) and found[key] and rng.random() < 0.7:
        _tamper_json(found[key], rng)
    elif rng.random() < 0.2 and isinstance(found, dict):
        del found[key]
    else:
        found[key] = _VALUES[int(rng.integers(0, len(_VALUES)))]


def _tamper_array(array: Any, rng: np.random.Generator) -> Any:
    array = np.array(array, dtype=np.float64)
    flat = array.reshape(-1)
    odd = (np.nan, np.inf, -np.inf, 0.0, -1.0, 1e-320, 1e300, 1.0, 1e-3, 50.0)
    kind = int(rng.integers(0, 9))
    if kind == 0 and flat.size:
        flat[int(rng.integers(0, flat.size))] = odd[int(rng.integers(0, len(odd)))]
    elif kind == 1:
        array *= 10.0 ** rng.uniform(-6.0, 6.0)
    elif kind == 2:
        rng.shuffle(flat)
    elif kind == 3:
        array = array.astype(("f4", ">f8", "i8", "c16", "U3", "?")[int(rng.integers(0, 6))])
    elif kind == 4:
        array = np.repeat(array, int(rng.integers(0, 60)), axis=0) if array.ndim else array
    elif kind == 5:
        array = array[..., : int(rng.integers(0, array.shape[-1] + 1))] if array.ndim else array
    elif kind == 6:
        array = array.T if rng.random() < 0.5 else array.reshape(1, *array.shape)
    elif kind == 7:
        shape = rng.integers(1, 300 if array.ndim < 3 else 40, array.ndim) if array.ndim else ()
        array = np.full(shape, rng.uniform(0.01, 1.0))
    else:
        array = np.sort(np.abs(rng.normal(size=array.shape)), axis=0) + 1e-6
    return array


def _tamper_header(data: bytes, rng: np.random.Generator) -> bytes:
    """A checkpoint whose header says something else of the same bytes."""
    (length,) = struct.unpack_from("<Q", data)
    header = json.loads(data[8 : 8 + length])
    entry = json.loads(header["__metadata__"]["arbiter"])
    if rng.random() < 0.5:
        _tamper_json(entry, rng)
        header["__metadata__"]["arbiter"] = json.dumps(entry)
    else:
        _tamper_json(header, rng)
    text = json.dumps(header).encode()
    said = len(text) if rng.random() < 0.8 else int(rng.integers(0, 2**63))
    return struct.pack("<Q", said) + text + data[8 + length :]


def planted_crash(seed: int, _: Path) -> str:
    """The control: an error that no case may end with."""
    raise KeyError(seed)


def planted_wrong_answer(seed: int, _: Path) -> str:
    """The control: a check of a case that fails."""
    assert seed < 0
    return "wrong"


def planted_silence(_: int, __: Path) -> str:
    """The control: an error of a kind that is allowed, without a sentence."""
    raise ValueError("no")
