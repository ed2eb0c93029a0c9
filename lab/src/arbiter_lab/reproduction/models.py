"""The models of the comparison: entries that load a method, or state why it is missing.

A network that was not trained is an entry with a reason. No other model replaces it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from importlib import import_module
from importlib.resources import files
from importlib.util import find_spec
from os import PathLike
from pathlib import Path
from typing import Any

from arbiter.files import read_format, write_whole
from arbiter.quotes import Quotes
from arbiter.scoring import Model
from arbiter_lab.evaluation.convex_decoder_model import ConvexOperator
from arbiter_lab.evaluation.first_design import FirstDesign, operator_weights
from arbiter_lab.evaluation.methods import Method, select_methods
from arbiter_lab.protocol.manifest import sha256
from arbiter_lab.reproduction.profiles import BASELINES, MATCHED
from arbiter_lab.training.settings import ABLATIONS

FORMAT, VERSION = "arbiter-checkpoints", 1
MANIFEST = "checkpoints.json"
SMALL = "small"
UNPROJECTED_SUFFIX = "_unprojected"
"""Suffix of the run whose prices are those of the paper's decoder before its projection."""

Solve = Callable[[Sequence[Quotes]], Sequence[Model]]

_PIQP_MISSING = "the projection needs the package piqp: pip install piqp"

_LABELS = {
    "operator": "operator",
    "matched": "operator (matched budget)",
    "refine": "operator, then fit",
    "fit": "direct fit",
    "svi": "raw SVI",
    "ssvi": "SSVI",
    "fit_then_clean": "SVI, then cleaned",
    "unconstrained": "unconstrained SSM",
    "gru": "GRU",
    "transformer": "transformer",
    "gate_off": "gate off",
    "rank_half": "half the rank",
    "guard_off": "Spec-Guard off",
    "causal_only": "causal only",
    "no_vix": "no VIX term",
    "icnn": "ICNN decoder",
    "icnn_unprojected": "ICNN decoder, before its projection",
    "no_qalign": "no Q-Align",
    "mfm": "MFM route",
    "representer": "representer on",
}


@dataclass(frozen=True)
class ModelEntry:
    """A model of the comparison, as plain values that can be sent to another process.

    Attributes:
        name: Name of its run in the results.
        kind: ``fit``, ``peer``, ``operator``, ``ablation``, ``baseline``, ``sweep`` or ``budget``.
        width: ``full``, ``small``, or empty for a model that is not trained.
        weights: Path of its checkpoint; None for a model without one.
        reason: Why the model is missing; empty where it is available.
    """

    name: str
    kind: str
    width: str = ""
    weights: Path | None = None
    reason: str = ""

    @property
    def label(self) -> str:
        """Name of the model in tables."""
        return label_of(self.name)

    @property
    def missing(self) -> bool:
        """Whether the model is not available."""
        return bool(self.reason)

    @property
    def has_icnn_decoder(self) -> bool:
        """Whether its decoder is the paper's ICNN, which gives prices and no surface."""
        return self.plain == "icnn"

    @property
    def plain(self) -> str:
        """Name without the prefix of the width and the suffix of the projection."""
        return self.name.removeprefix(f"{SMALL}_").removesuffix(UNPROJECTED_SUFFIX)

    @property
    def projected(self) -> bool:
        """Whether prices of the paper's ICNN decoder are projected; True for other decoders."""
        return not self.name.endswith(UNPROJECTED_SUFFIX)

    @property
    def promises(self) -> bool:
        """Whether the model claims to be free of static arbitrage."""
        return self.kind not in ("peer", "baseline") and self.projected

    def method(self) -> Method:
        """Load the model as a method of the evaluation.

        Raises:
            ValueError: If the model is missing.
        """
        if self.missing:
            raise ValueError(f"{self.name} is missing: {self.reason}")
        return Method(self.name, self._load_solver(), self.promises)

    def _load_solver(self) -> Solve:
        if self.weights is None:
            needed = self.name in ("operator", "refine")
            return select_methods([self.name], FirstDesign.load() if needed else None)[0].solve
        if self.kind == "baseline":
            loaded = import_module("arbiter_lab.baselines.trained_baseline").Baseline.load(
                self.weights
            )
            solve: Solve = loaded.many
            return solve
        if self.has_icnn_decoder:
            return ConvexOperator.load(self.weights, self.projected).many
        return FirstDesign.load(self.weights).many


@dataclass(frozen=True)
class Checkpoints:
    """A folder of trained networks, with their checksums in a manifest.

    Attributes:
        folder: Path of the folder; it need not exist.
    """

    folder: Path = field(default_factory=lambda: Path(str(files("arbiter_lab.nets"))))

    @property
    def files(self) -> dict[str, dict[str, Any]]:
        """Entries of the manifest by name of the network; empty without a manifest."""
        path = self.folder / MANIFEST
        if not path.is_file():
            return {}
        whole = read_format(path, FORMAT, VERSION, ": restore it")
        found: dict[str, dict[str, Any]] = whole["files"]
        return found

    def collect_checksums(self) -> dict[str, str]:
        """Return the checksums of the operator and of the files of the manifest."""
        named = {name: str(entry["sha256"]) for name, entry in sorted(self.files.items())}
        return {"operator": sha256(operator_weights()), **named}

    def find(self, name: str) -> Path | str:
        """Return the path of a network, or a sentence that states why there is none.

        Raises:
            ValueError: If the checksum of the file is not that of the manifest.
        """
        entry = self.files.get(name)
        if entry is None:
            return (
                f"no checkpoint of {name!r} is in the folder of checkpoints: "
                "`arbiter reproduce --profile full` trains it"
            )
        path = self.folder / str(entry["file"])
        if not path.is_file():
            return f"{path.name} is in {MANIFEST} and not in the folder: restore it"
        if sha256(path) != entry["sha256"]:
            raise ValueError(
                f"{path} is not the file that {MANIFEST} names: its checksum differs; restore it, "
                "or train it again"
            )
        return path


def write_checkpoint_manifest(folder: str | PathLike[str], names: Sequence[str]) -> Path:
    """Write the manifest of ``NAME.safetensors`` files in a folder."""
    place = Path(folder)
    found = {}
    for name in names:
        path = place / f"{name}.safetensors"
        found[name] = {"file": path.name, "sha256": sha256(path), "bytes": path.stat().st_size}
    whole = {"format": FORMAT, "version": VERSION, "files": found}
    return write_whole(place / MANIFEST, json.dumps(whole, indent=1) + "\n")


def list_untrained(names: Sequence[str]) -> list[ModelEntry]:
    """Return entries of the models that a run does not train: operator, fits and peers."""
    kinds = {"operator": ("operator", "full"), "refine": ("fit", ""), "fit": ("fit", "")}
    kinds |= {"svi": ("peer", ""), "ssvi": ("peer", ""), "fit_then_clean": ("baseline", "")}
    found = [ModelEntry(name, *kinds[name]) for name in names]
    if is_importable("piqp"):
        return found
    return [replace(e, reason=_PIQP_MISSING) if e.name == "fit_then_clean" else e for e in found]


def add_unprojected(entries: Sequence[ModelEntry]) -> list[ModelEntry]:
    """Return the entries, and for each ICNN decoder a second one without its projection."""
    found = []
    for entry in entries:
        lost = entry.has_icnn_decoder and not entry.missing and not is_importable("piqp")
        found.append(replace(entry, reason=_PIQP_MISSING) if lost else entry)
        if entry.has_icnn_decoder:
            found.append(replace(entry, name=entry.name + UNPROJECTED_SUFFIX))
    return found


def list_checkpointed(checkpoints: Checkpoints) -> list[ModelEntry]:
    """Return entries of the networks at full size; those without a checkpoint state a reason."""
    found = []
    for name in (MATCHED, *BASELINES, *ABLATIONS):
        kind = "baseline" if name in BASELINES else "operator" if name == MATCHED else "ablation"
        path = checkpoints.find(name)
        if isinstance(path, str):
            found.append(ModelEntry(name, kind, "full", None, path))
        else:
            found.append(ModelEntry(name, kind, "full", path))
    return add_unprojected(found)


def has_baselines() -> bool:
    """Return whether the unconstrained networks can be imported."""
    return is_importable("arbiter_lab.baselines.trained_baseline")


def label_of(name: str) -> str:
    """Return the name of a model in tables."""
    if name.startswith(f"{SMALL}_"):
        return f"{label_of(name.removeprefix(f'{SMALL}_'))} (small)"
    if name == SMALL:
        return "operator (small)"
    return _LABELS.get(name, name.replace("_", " "))


def is_importable(module: str) -> bool:
    """Return whether a module can be imported."""
    package = module.rpartition(".")[0]
    return (not package or find_spec(package) is not None) and find_spec(module) is not None
