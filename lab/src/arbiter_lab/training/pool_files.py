"""Pools of laws kept on disk: making 80,000 takes a minute on a GPU, reading them a second.

A pool has a name made of its size, its seed and the code that makes it, so that one from other
code is never read by mistake. Two plain NumPy files and a description, each written whole.
"""

from __future__ import annotations

import hashlib
import json
import logging
from functools import lru_cache
from os import PathLike
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

from arbiter.files import open_whole, write_whole
from arbiter.models import (
    characteristic_function,
    expected_variance,
    fourier_pricing,
    fractional_kernel,
    parameters,
    riccati,
)
from arbiter_lab.differentiable.pricing import black, knots, normal, transport
from arbiter_lab.training import (
    fourier_inversion,
    mixtures,
    parameter_prior,
    resolved_strikes,
    shaped_laws,
    variance_states,
)
from arbiter_lab.training import law_pool as laws_module
from arbiter_lab.training.journal import fingerprint, fingerprint_tensors
from arbiter_lab.training.law_pool import Laws, make_laws, make_pool_grid

_SOURCE_MODULES = (
    black,
    knots,
    normal,
    transport,
    fourier_pricing,
    fractional_kernel,
    expected_variance,
    parameters,
    riccati,
    characteristic_function,
    fourier_inversion,
    laws_module,
    mixtures,
    parameter_prior,
    resolved_strikes,
    shaped_laws,
    variance_states,
)

log = logging.getLogger(__name__)


class Pool(NamedTuple):
    """A pool of laws with its hashes.

    Attributes:
        laws: The laws.
        origin: Hash of size, seed and code.
        content: Hash of the numbers, which differ by rounding between machines.
    """

    laws: Laws
    origin: str
    content: str


@lru_cache(maxsize=1)
def code_version() -> str:
    """Hash of the source files that decide what a law is."""
    digest = hashlib.sha256()
    for module in _SOURCE_MODULES:
        digest.update(Path(str(module.__file__)).read_bytes())
    return digest.hexdigest()[:16]


def load_pool(
    count: int,
    seed: int,
    folder: str | PathLike[str] | None = None,
    device: torch.device | str = "cpu",
    *,
    refresh: bool = False,
) -> Pool:
    """Read a pool from the folder, or make it and write it there.

    Args:
        count: Number of laws.
        seed: Seed of the pool.
        folder: Folder of stored pools; None stores none.
        device: Device of the pool.
        refresh: Make the pool again even if it is stored.

    Raises:
        ValueError: If a stored pool is unreadable, or its hashes do not match its numbers.
    """
    origin = fingerprint_origin(count, seed)
    place = None if folder is None else _pool_folder(folder, count, seed)
    if place is not None and not refresh and (place / "pool.json").exists():
        return _read_pool(place, count, origin, device)
    log.info("making %d laws, seed %d", count, seed)
    laws = make_laws(count, seed, device)
    if folder is None:
        return Pool(laws, origin, _fingerprint_laws(laws))
    return save_pool(laws, seed, folder)


def save_pool(laws: Laws, seed: int, folder: str | PathLike[str]) -> Pool:
    """Write a pool to the folder from which :func:`load_pool` reads its size and seed."""
    count = len(laws)
    place = _pool_folder(folder, count, seed)
    pool = Pool(laws, fingerprint_origin(count, seed), _fingerprint_laws(laws))
    place.mkdir(parents=True, exist_ok=True)
    (place / "pool.json").unlink(missing_ok=True)
    for name in ("reference", "iv"):
        with open_whole(place / f"{name}.npy") as file:
            np.save(file, getattr(laws, name).cpu().numpy(), allow_pickle=False)
    about = {"count": count, "seed": seed, "origin": pool.origin, "content": pool.content}
    write_whole(place / "pool.json", json.dumps(about, indent=1) + "\n")
    return pool


def fingerprint_origin(count: int, seed: int) -> str:
    """Return the hash of size, seed and code of a pool."""
    return fingerprint({"count": count, "seed": seed, "code": code_version()})


def _pool_folder(folder: str | PathLike[str], count: int, seed: int) -> Path:
    return Path(folder) / f"laws-{count}-{seed}-{fingerprint_origin(count, seed)[:8]}"


def _fingerprint_laws(laws: Laws) -> str:
    return fingerprint_tensors({"reference": laws.reference, "iv": laws.iv})


def _read_pool(place: Path, count: int, origin: str, device: torch.device | str) -> Pool:
    remedy = f"remove {place}, and it is made anew"
    try:
        about = json.loads((place / "pool.json").read_text(encoding="utf-8"))
        arrays = {n: np.load(place / f"{n}.npy", allow_pickle=False) for n in ("reference", "iv")}
    except (ValueError, OSError, EOFError) as error:
        raise ValueError(f"the pool cannot be read ({error}): {remedy}") from error
    T, z = make_pool_grid(device)
    shapes = {"reference": (count, len(T)), "iv": (count, len(T), len(z))}
    for name, array in arrays.items():
        if array.shape != shapes[name] or array.dtype != np.float32:
            raise ValueError(
                f"{name} of the pool is {array.shape} {array.dtype}, not {shapes[name]} float32: "
                + remedy
            )
    tensors = {name: torch.from_numpy(array) for name, array in arrays.items()}
    content = fingerprint_tensors(tensors)
    if about.get("origin") != origin or about.get("content") != content:
        raise ValueError(f"the pool's numbers are not those it was written with: {remedy}")
    moved = {name: tensor.to(device) for name, tensor in tensors.items()}
    return Pool(Laws(T.float(), z.float(), moved["reference"], moved["iv"]), origin, content)
