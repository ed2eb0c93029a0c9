"""The file format of a surface: a plain, versioned ``.npz`` (docs/file-format.md).

A surface that came from a fit keeps its result and its standard errors in the file, one that came
from an operator what the operator said of it.

Nothing is unpickled, nothing is allocated before its size is checked against the file, and a
file is replaced in one step or not at all.
"""

from __future__ import annotations

import io
import json
import math
import tokenize
import zipfile
import zlib
from os import PathLike
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from arbiter.files import open_whole, require_version
from arbiter.files.limits import (
    BYTES,
    COMPONENTS,
    DESCRIPTION,
    EXPIRIES,
    KNOTS,
    SLOPES,
    read_within_limit,
)
from arbiter.pricing.vix_slices import VixSlices
from arbiter.surface import Surface
from arbiter.timing.time_change import TimeChange

FORMAT = "arbiter-surface"
VERSION = 4  # with a clock; version 3 has a result, version 2 VIX slices at most, 1 neither

# What the zip reader raises on damage: checksums, streams, missing members, encryption.
_ARCHIVE_ERRORS = (
    zipfile.BadZipFile,
    zlib.error,
    EOFError,
    KeyError,
    OSError,
    NotImplementedError,
    RuntimeError,
)
# What reading an array's header, a Python literal, raises on nonsense.
_HEADER_ERRORS = (
    ValueError,
    TypeError,
    SyntaxError,
    OverflowError,
    MemoryError,
    RecursionError,
    tokenize.TokenError,
)
_ARRAY_NAMES = ("knots", "maturities", "slopes", "weights", "forwards", "discounts")
_VIX_ARRAY_NAMES = ("vix_knots", "vix_maturities", "vix_slopes")
_CLOCK_ARRAY_NAMES = ("clock_T", "clock_years")
_RESULT_PREFIX = "result_"  # of arrays of a result


class SurfaceFileError(ValueError):
    """Raised for a file that is not a readable surface, with the reason and the remedy."""


def save(surface: Surface, path: str | PathLike[str]) -> None:
    """Write ``surface`` to ``path`` through a temporary file beside it."""
    slices, stored = surface.vix_slices, surface.to_stored()
    meta = {
        "format": FORMAT,
        "version": _find_version(surface, stored is not None),
        "as_of": None if surface.as_of is None else str(surface.as_of),
        "info": dict(surface.info),
    }
    arrays: dict[str, NDArray[Any]] = {
        "knots": surface.knots,
        "maturities": surface.maturities,
        "slopes": surface.slopes,
        "weights": surface.weights,
        "forwards": surface.curve.forwards,
        "discounts": surface.curve.discounts,
    }
    if slices is not None:
        vix = (slices.knots, slices.maturities, slices.slopes)
        arrays.update(zip(_VIX_ARRAY_NAMES, vix, strict=True))
    if surface.time is not None:
        arrays.update(zip(_CLOCK_ARRAY_NAMES, surface.time, strict=True))
    if stored is not None:
        meta["kind"], meta["result"], found = stored
        meta["result_arrays"] = sorted(found)
        arrays.update({_RESULT_PREFIX + name: found[name] for name in sorted(found)})
    arrays["meta"] = np.frombuffer(json.dumps(meta, allow_nan=False).encode(), dtype=np.uint8)
    with open_whole(path) as file:
        np.savez_compressed(file, allow_pickle=False, **arrays)


def _find_version(surface: Surface, has_result: bool) -> int:
    """The oldest version that holds what there is: older readers read it."""
    if surface.time is not None:
        return VERSION
    return 3 if has_result else 1 if surface.vix_slices is None else 2


def load(path: str | PathLike[str]) -> Surface:
    """Read a surface and check its version, its sizes and its numbers.

    Raises:
        FileNotFoundError: If there is no such file.
        SurfaceFileError: If the file is foreign, truncated, corrupt, too large, of a newer
            version, or its numbers do not carry the guarantee.
    """
    path = Path(path)
    content = read_within_limit(path, SurfaceFileError)
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            _check_size(archive, path)
            meta = _read_meta(archive, path)
            names = _list_array_names(archive, meta)
            arrays = {name: _read_array(archive, name, np.float64, path) for name in names}
    except _ARCHIVE_ERRORS as error:
        raise SurfaceFileError(
            f"{path}: not a readable surface file ({error}); save it again with Surface.save"
        ) from error
    try:
        surface = Surface.from_slopes(
            arrays["knots"],
            arrays["maturities"],
            arrays["slopes"],
            arrays["forwards"],
            arrays["discounts"],
            weights=arrays["weights"],
            as_of=meta.get("as_of"),
            info=meta.get("info"),
            vix_slices=VixSlices.of(*vix) if (vix := _collect(arrays, _VIX_ARRAY_NAMES)) else None,
            time=TimeChange.from_nodes(*clock)
            if (clock := _collect(arrays, _CLOCK_ARRAY_NAMES))
            else None,
        )
        return surface if "kind" not in meta else _restore_result(surface, meta, arrays)
    except (ValueError, TypeError, LookupError, AttributeError, ArithmeticError) as error:
        raise SurfaceFileError(f"{path}: the stored numbers are not a surface: {error}") from error


def _list_array_names(archive: zipfile.ZipFile, meta: dict[str, Any]) -> list[str]:
    """The arrays that a file of this version and kind has."""
    there = set(archive.namelist())
    vix = meta["version"] == 2 or (meta["version"] > 2 and f"{_VIX_ARRAY_NAMES[0]}.npy" in there)
    clock = meta["version"] > 3
    results = [_RESULT_PREFIX + str(name) for name in meta.get("result_arrays", ())]
    optional = (*(_VIX_ARRAY_NAMES if vix else ()), *(_CLOCK_ARRAY_NAMES if clock else ()))
    return [*dict.fromkeys((*_ARRAY_NAMES, *optional, *results))]


def _restore_result(
    surface: Surface, meta: dict[str, Any], arrays: dict[str, NDArray[Any]]
) -> Surface:
    """The surface with the result that its file keeps."""
    found = {name.removeprefix(_RESULT_PREFIX): array for name, array in arrays.items()}
    bad = [name for name, array in found.items() if not np.isfinite(array).all()]
    if bad:
        raise ValueError(f"{bad[0]} holds a number that is not finite")
    kind, plain = meta["kind"], meta["result"]
    if kind == "fit":
        from arbiter.fitting.fitted_surface import FittedSurface

        return FittedSurface.from_stored(surface, plain, found)
    if kind == "operator":
        from arbiter.operators.operator_surface import OperatorSurface

        return OperatorSurface.from_stored(surface, plain, found)
    raise ValueError(f"its kind {kind!r} is unknown: upgrade arbiter-vol")


def _collect(arrays: dict[str, NDArray[Any]], names: tuple[str, ...]) -> list[NDArray[Any]]:
    return [arrays[name] for name in names if name in arrays]


def _check_size(archive: zipfile.ZipFile, path: str | PathLike[str]) -> None:
    members = archive.infolist()
    total = sum(member.file_size for member in members)
    BYTES.require(total, f"{path}, unpacked,", SurfaceFileError)
    described = sum(each.file_size for each in members if each.filename == "meta.npy")
    DESCRIPTION.require(described, str(path), SurfaceFileError)


def _check_shape(name: str, shape: tuple[int, ...], path: str | PathLike[str]) -> None:
    """Refuse slopes whose surface would take far more memory than their file, unmade."""
    if name.endswith("slopes"):
        SLOPES.require(math.prod(shape), str(path), SurfaceFileError)
        COMPONENTS.require(shape[0] if len(shape) == 3 else 1, str(path), SurfaceFileError)
    for limit, kind in ((KNOTS, "knots"), (EXPIRIES, "maturities")):
        if name.endswith(kind):
            limit.require(math.prod(shape), str(path), SurfaceFileError)


def _read_meta(archive: zipfile.ZipFile, path: str | PathLike[str]) -> dict[str, Any]:
    try:
        meta = json.loads(_read_array(archive, "meta", np.uint8, path).tobytes())
    except (ValueError, RecursionError) as error:
        raise SurfaceFileError(f"{path}: its description is not JSON ({error})") from error
    if not isinstance(meta, dict) or meta.get("format") != FORMAT:
        raise SurfaceFileError(f"{path}: a foreign file, its format is not {FORMAT!r}")
    require_version(path, meta.get("version"), VERSION, SurfaceFileError)
    as_of, info = meta.get("as_of"), meta.get("info")
    if not isinstance(as_of, str | None) or not isinstance(info, dict):
        raise SurfaceFileError(f"{path}: its as_of must be text or null, its info an object")
    names = meta.get("result_arrays", [])
    if not isinstance(names, list) or not isinstance(meta.get("result", {}), dict):
        raise SurfaceFileError(f"{path}: its result must be an object, its result_arrays a list")
    return meta


def _read_array(
    archive: zipfile.ZipFile, name: str, dtype: type[np.generic], path: str | PathLike[str]
) -> NDArray[Any]:
    member = archive.getinfo(f"{name}.npy")
    with archive.open(member) as file:
        shape, fortran, stored = _read_header(file, name, path)
        if any(type(n) is not int or n < 0 for n in shape):
            raise SurfaceFileError(f"{path}: {name} declares the shape {shape}")
        expected = math.prod(shape) * stored.itemsize
        if stored != np.dtype(dtype) or fortran:
            order = "Fortran" if fortran else "C"
            raise SurfaceFileError(
                f"{path}: {name} is {stored} in {order} order, not {np.dtype(dtype)} in C order"
            )
        data = file.read(member.file_size)
    if len(data) != expected:
        raise SurfaceFileError(
            f"{path}: {name} declares {expected} bytes and holds {len(data)}; the file is corrupt"
        )
    _check_shape(name, shape, path)
    return np.frombuffer(data, dtype=dtype).reshape(shape)


def _read_header(
    file: IO[bytes], name: str, path: str | PathLike[str]
) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    try:
        version = npy.read_magic(file)
        reader = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
        shape, fortran, dtype = reader(file)
    except _HEADER_ERRORS as error:
        raise SurfaceFileError(f"{path}: the header of {name} is corrupt ({error})") from error
    if dtype.hasobject:
        raise SurfaceFileError(f"{path}: {name} holds pickled objects, which are never loaded")
    return shape, fortran, dtype
