"""Checkpoints: safetensors with their provenance inside, written whole, read with distrust.

The file is a plain safetensors file; other tools read its tensors. Its metadata has one entry,
``arbiter``: JSON with the format, its version, the description, and a checksum over names, shapes,
types, bytes and description. (One entry, because the library writes several in an order of chance,
and equal checkpoints should be equal files.) Nothing is ever unpickled.
"""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from arbiter.files import require_version, write_whole
from arbiter.files.limits import DESCRIPTION, read_within_limit

FORMAT = "arbiter-checkpoint"
VERSION = 1
METADATA_KEY = "arbiter"
REQUIRED_PROVENANCE = ("config", "data_hash", "seed", "revision", "metrics")

_REMEDY = "take an intact copy, or save it again with arbiter.operators.checkpoint.save"
_FOREIGN_MAGIC = {
    b"PK\x03\x04": "a zip archive, as torch.save writes (it holds pickled objects)",
    b"\x80": "a pickle",
    b"\x93NUMPY": "a NumPy array",
    b"\x89HDF": "an HDF5 file",
    b"\x1f\x8b": "a gzip archive: unpack it first",
}


AnyArray = NDArray[Any]


class CheckpointError(ValueError):
    """A file that is not a readable checkpoint; the message names it and the remedy."""


def save(
    path: str | PathLike[str], tensors: Mapping[str, AnyArray], info: Mapping[str, Any]
) -> Path:
    """Write tensors and their description in one step.

    Args:
        path: The file; one that is there is replaced, whole.
        tensors: Named arrays; stored as they are, contiguous.
        info: Plain JSON values with at least ``config``, ``data_hash``, ``seed``, ``revision``
            (of the code, from git) and ``metrics``.

    Raises:
        ValueError: If a tensor holds a number that is not finite, or the description lacks
            provenance or is not plain JSON.
    """
    from safetensors.numpy import save as serialise

    missing = [name for name in REQUIRED_PROVENANCE if name not in info]
    if missing:
        raise ValueError(
            f"info lacks {', '.join(missing)}: a checkpoint says what it was made from and how"
        )
    try:
        text = json.dumps(dict(info), allow_nan=False, sort_keys=True)
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"info must hold plain JSON values ({error}); write a number that is not finite as None"
        ) from error
    plain = {name: np.asarray(tensor, order="C") for name, tensor in tensors.items()}
    if "__metadata__" in plain:
        raise ValueError("a tensor cannot be named __metadata__ in this format: rename it")
    for name, tensor in plain.items():
        if not np.isfinite(tensor).all():
            raise ValueError(f"tensor {name!r} holds a number that is not finite: nothing is saved")
    about = {
        "format": FORMAT,
        "version": VERSION,
        "info": json.loads(text),
        "checksum": compute_checksum(plain, text),
    }
    return write_whole(path, serialise(plain, {METADATA_KEY: json.dumps(about, sort_keys=True)}))


def load(
    path: str | PathLike[str], like: Mapping[str, AnyArray] | None = None
) -> tuple[dict[str, AnyArray], dict[str, Any]]:
    """Read tensors and their description, checking everything the file says about itself.

    Args:
        path: The file.
        like: Arrays that the file must match in names, shapes and types, as from
            :func:`arbiter.operators.law.weights.describe_weights`; left out, any are taken.

    Returns:
        The tensors and the description.

    Raises:
        FileNotFoundError: If there is no such file.
        CheckpointError: If it is foreign, pickled, truncated, corrupt, too large, of a newer
            version, holds numbers that are not finite, or does not match ``like``.
    """
    path = Path(path)
    content = read_within_limit(path, CheckpointError)
    about = _read_description(content, path)
    tensors = _parse_tensors(content, path)
    info: dict[str, Any] = about["info"]
    if about.get("checksum") != compute_checksum(tensors, json.dumps(info, sort_keys=True)):
        raise CheckpointError(f"{path}: its checksum is wrong, the file is corrupt; {_REMEDY}")
    for name, tensor in tensors.items():
        if not np.isfinite(tensor).all():
            raise CheckpointError(
                f"{path}: tensor {name!r} holds a number that is not finite; {_REMEDY}"
            )
    if like is not None:
        require_same_tensors(tensors, like, path)
    return tensors, info


def model_hash(weights: Mapping[str, AnyArray]) -> str:
    """Names a network by its weights."""
    digest = hashlib.sha256()
    for name, tensor in sorted(weights.items()):
        digest.update(f"{name}{tuple(tensor.shape)}".encode())
        # float32, as stored: the hash is that of the file, whatever is computed in
        digest.update(np.asarray(tensor, dtype=np.float32).tobytes())
    return digest.hexdigest()[:12]


def _read_description(content: bytes, path: Path) -> dict[str, Any]:
    """What the header says of the file, its length believed no further than needed."""
    for magic, what in _FOREIGN_MAGIC.items():
        # A header of 128 bytes also begins with \x80: only a length that fits is a length.
        if content.startswith(magic) and not _has_plausible_header(content):
            raise CheckpointError(
                f"{path}: {what}, not a safetensors file; it is not opened. Export the tensors "
                "to safetensors where the file comes from, and " + _REMEDY
            )
    if len(content) < 10:
        raise CheckpointError(f"{path}: only {len(content)} bytes, it is truncated; {_REMEDY}")
    (length,) = struct.unpack_from("<Q", content)
    if length > DESCRIPTION.most or content[8:9] != b"{":
        raise CheckpointError(
            f"{path}: not a safetensors file (its header would have {length:,} bytes); {_REMEDY}"
        )
    if 8 + length > len(content):
        raise CheckpointError(
            f"{path}: its header has {length:,} bytes and the file {len(content):,}, it is "
            f"truncated; {_REMEDY}"
        )
    try:
        header = json.loads(content[8 : 8 + length])
        metadata = header.get("__metadata__") if isinstance(header, dict) else None
        entry = metadata.get(METADATA_KEY) if isinstance(metadata, dict) else None
        about = json.loads(entry) if isinstance(entry, str) else None
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{path}: its header is not JSON ({error}); {_REMEDY}") from error
    if not isinstance(about, dict) or about.get("format") != FORMAT:
        raise CheckpointError(
            f"{path}: a foreign safetensors file, its format is not {FORMAT!r}; {_REMEDY}"
        )
    require_version(path, about.get("version"), VERSION, CheckpointError, f"; {_REMEDY}")
    if not isinstance(about.get("info"), dict):
        raise CheckpointError(f"{path}: it has no description; {_REMEDY}")
    return about


def _has_plausible_header(content: bytes) -> bool:
    return len(content) > 8 and struct.unpack_from("<Q", content)[0] <= DESCRIPTION.most


def _parse_tensors(content: bytes, path: Path) -> dict[str, AnyArray]:
    from safetensors import SafetensorError
    from safetensors.numpy import load as parse

    try:
        return parse(content)
    # KeyError: a type of number that NumPy does not have.
    except (SafetensorError, KeyError, ValueError, TypeError, RuntimeError) as error:
        raise CheckpointError(
            f"{path}: corrupt or truncated safetensors, or numbers that NumPy does not have "
            f"({error}); {_REMEDY}"
        ) from error


def compute_checksum(tensors: Mapping[str, AnyArray], text: str) -> str:
    """SHA-256 over names, types, shapes and bytes of the tensors, and the description."""
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass"))
    for name in sorted(tensors):
        tensor = tensors[name]
        # the format names types of numbers as torch does
        frame = json.dumps([name, f"torch.{tensor.dtype.name}", list(tensor.shape)])
        digest.update(frame.encode("utf-8", "surrogatepass"))
        digest.update(tensor.tobytes())
    return digest.hexdigest()


def require_same_tensors(
    tensors: Mapping[str, AnyArray], like: Mapping[str, AnyArray], path: Path
) -> None:
    """Raise a :class:`CheckpointError` unless names, shapes and types are those of ``like``."""
    advice = "it was saved by another configuration: build the network from the file's own config"
    missing, extra = sorted(like.keys() - tensors.keys()), sorted(tensors.keys() - like.keys())
    if missing or extra:
        raise CheckpointError(
            f"{path}: {len(missing)} tensors are missing {missing[:3]} and {len(extra)} are not "
            f"asked for {extra[:3]}; {advice}"
        )
    for name, wanted in like.items():
        found = tensors[name]
        if found.shape != wanted.shape or found.dtype != wanted.dtype:
            raise CheckpointError(
                f"{path}: tensor {name!r} is {tuple(found.shape)} {found.dtype}, wanted is "
                f"{tuple(wanted.shape)} {wanted.dtype}; {advice}"
            )
