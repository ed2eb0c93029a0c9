"""Storage of the unseen surfaces: made once, thirty per file, and read back bit for bit.

Files that are missing or damaged are made again; files of another law are refused.
"""

from __future__ import annotations

import hashlib
import io
import json
import logging
import zipfile
from collections.abc import Callable
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from arbiter.files import require_folder, write_whole
from arbiter_lab.evaluation import unseen_surfaces as law
from arbiter_lab.evaluation.known_surface import Case

logger = logging.getLogger(__name__)

SURFACES_PER_FILE = 30
_FORMAT = "arbiter-unseen"
_VERSION = 1
_COLUMNS = ("k", "iv", "mid", "quoted", "reference", "vix")


def load_unseen_surfaces(
    count: int,
    folder: str | PathLike[str] | None = None,
    tell: Callable[[int], object] | None = None,
    first: int = 0,
) -> list[Case]:
    """Return ``count`` unseen surfaces, from files where they exist.

    Args:
        count: Number of surfaces, at least one.
        folder: Folder of the files; nothing is stored if left out.
        tell: Called with the number of surfaces so far.
        first: Number of the first surface; those of the benchmark are 0 to 1,999.

    Raises:
        ValueError: If the folder cannot be used, or holds surfaces of another law.
    """
    if count < 1 or first < 0:
        raise ValueError(f"count = {count}, first = {first}: give at least one, and 0, 1, …")
    home = None if folder is None else Path(folder)
    if home is not None:
        require_folder(home)
        home.mkdir(parents=True, exist_ok=True)
    found: list[Case] = []
    last = first + count
    for begin in range(first // SURFACES_PER_FILE * SURFACES_PER_FILE, last, SURFACES_PER_FILE):
        low, high = max(begin, first), min(begin + SURFACES_PER_FILE, last)
        if home is None:
            found += law.iterate_cases(law.make_unseen_surfaces(high - low, low))
        else:
            sheets = _load_block(home / f"unseen-{begin:05d}.npz", begin)
            found += list(law.iterate_cases(sheets))[low - begin : high - begin]
        if tell is not None:
            tell(len(found))
    return found


def _load_block(path: Path, first: int) -> law.UnseenSurfaces:
    try:
        return _read(path, first)
    except FileNotFoundError:
        pass
    except _DamagedError as damage:
        logger.warning("%s is damaged (%s): made again", path, damage)
    sheets = law.make_unseen_surfaces(SURFACES_PER_FILE, first)
    columns = {name: getattr(sheets, name) for name in _COLUMNS}
    content = io.BytesIO()
    np.savez(
        content,
        law=np.array(_describe_law(first)),
        mark=np.array(_columns_checksum(columns)),
        **columns,
    )
    write_whole(path, content.getvalue())
    return sheets


class _DamagedError(Exception):
    pass


def _read(path: Path, first: int) -> law.UnseenSurfaces:
    with path.open("rb") as file:
        try:
            with np.load(file, allow_pickle=False) as archive:
                parts = {name: archive[name] for name in ("law", "mark", *_COLUMNS)}
        except (ValueError, KeyError, OSError, EOFError, zipfile.BadZipFile) as error:
            raise _DamagedError(str(error)) from error
    if str(parts["law"]) != _describe_law(first):
        raise ValueError(
            f"{path} holds surfaces of another law, or of another version: name another folder, "
            "or remove the file"
        )
    columns = {name: parts[name] for name in _COLUMNS}
    if str(parts["mark"]) != _columns_checksum(columns):
        raise _DamagedError("its checksum is wrong")
    return law.UnseenSurfaces(first, **columns)


def _describe_law(first: int) -> str:
    """Return all numbers that the law depends on, as JSON text."""
    return json.dumps(
        {
            "format": _FORMAT,
            "version": _VERSION,
            "seed": law.LAW_SEED,
            "days": law.MATURITY_DAYS.tolist(),
            "strikes": [
                *law.DEVIATION_RANGE,
                law.STRIKES_PER_SLICE,
                law.STRIKE_ROUNDING,
                law.MIN_LISTED_PRICE,
            ],
            "quotes": [
                law.ATM_HALF_SPREAD,
                law.WING_HALF_SPREAD_GROWTH,
                law.KEPT_SHARE,
                law.MIN_QUOTES_PER_SLICE,
            ],
            "levels": [*law.VOLATILITY_RANGE, law.MIN_LISTED_VOLATILITY],
            "first": first,
        }
    )


def _columns_checksum(columns: dict[str, NDArray[Any]]) -> str:
    digest = hashlib.sha256()
    for name in _COLUMNS:
        digest.update(f"{name} {columns[name].dtype} {columns[name].shape}".encode())
        digest.update(np.ascontiguousarray(columns[name]).tobytes())
    return digest.hexdigest()
