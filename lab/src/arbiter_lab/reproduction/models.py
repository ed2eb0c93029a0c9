"""The models that are compared: a list of entries, each with a way to make surfaces or a reason.

A network that was not trained yet is an entry too: without a way, and with the reason why. Nothing
stands in for it.
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
from arbiter.operators.pretrained import DEFAULT_WEIGHTS_NAME
from arbiter.quotes import Quotes
from arbiter.scoring import Model
from arbiter_lab.evaluation.convex_decoder_model import ConvexOperator
from arbiter_lab.evaluation.methods import Method, load_operator, select_methods
from arbiter_lab.protocol.manifest import sha256
from arbiter_lab.reproduction.profiles import BASELINES, MATCHED
from arbiter_lab.training.settings import ABLATIONS

FORMAT, VERSION = "arbiter-checkpoints", 1
MANIFEST = "checkpoints.json"
SMALL = "small"
UNPROJECTED_SUFFIX = "_unprojected"
"""Ends the name of the run whose prices are those of the paper's decoder before its projection."""

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
    """A model of the comparison; plain values, so that another process can be told of it.

    Attributes:
        name: Of its run in the results.
        kind: ``fit``, ``peer``, ``operator``, ``ablation``, ``baseline``, ``sweep`` or ``budget``.
        width: ``full``, ``small``, or empty for what is not trained.
        weights: Its checkpoint; None for what needs none.
        reason: Why it is missing; empty where it is there.
    """

    name: str
    kind: str
    width: str = ""
    weights: Path | None = None
    reason: str = ""

    @property
    def label(self) -> str:
        """What tables call it."""
        return label_of(self.name)

    @property
    def missing(self) -> bool:
        """Whether it cannot be asked."""
        return bool(self.reason)

    @property
    def has_icnn_decoder(self) -> bool:
        """Whether its decoder is the paper's own, which gives prices and no surface."""
        return self.plain == "icnn"

    @property
    def plain(self) -> str:
        """Of which part it tells, whatever its width, before its projection or after."""
        return self.name.removeprefix(f"{SMALL}_").removesuffix(UNPROJECTED_SUFFIX)

    @property
    def projected(self) -> bool:
        """Whether its prices, if its decoder is the paper's own, are projected."""
        return not self.name.endswith(UNPROJECTED_SUFFIX)

    @property
    def promises(self) -> bool:
        """Whether it says of itself that nothing can be arbitraged."""
        return self.kind not in ("peer", "baseline") and self.projected

    def method(self) -> Method:
        """As the evaluation takes it; loads what has to be loaded."""
        if self.missing:
            raise ValueError(f"{self.name} is missing: {self.reason}")
        return Method(self.name, self._load_solver(), self.promises)

    def _load_solver(self) -> Solve:
        if self.weights is None:
            needed = self.name in ("operator", "refine")
            return select_methods([self.name], load_operator() if needed else None)[0].solve
        if self.kind == "baseline":
            loaded = import_module("arbiter_lab.baselines.trained_baseline").Baseline.load(
                self.weights
            )
            solve: Solve = loaded.many
            return solve
        if self.has_icnn_decoder:
            return ConvexOperator.load(self.weights, self.projected).many
        return load_operator(self.weights).many


@dataclass(frozen=True)
class Checkpoints:
    """A folder of trained networks, with their checksums in a manifest.

    Attributes:
        folder: Where; it need not be there.
    """

    folder: Path = field(default_factory=lambda: Path(str(files("arbiter_lab.nets"))))

    @property
    def files(self) -> dict[str, dict[str, Any]]:
        """What the manifest names, by name of the network."""
        path = self.folder / MANIFEST
        if not path.is_file():
            return {}
        whole = read_format(path, FORMAT, VERSION, ": restore it")
        found: dict[str, dict[str, Any]] = whole["files"]
        return found

    def collect_checksums(self) -> dict[str, str]:
        """Checksums of the shipped operator and of what the manifest names."""
        shipped = Path(str(files("arbiter.data"))) / f"{DEFAULT_WEIGHTS_NAME}.safetensors"
        named = {name: str(entry["sha256"]) for name, entry in sorted(self.files.items())}
        return {DEFAULT_WEIGHTS_NAME: sha256(shipped), **named}

    def find(self, name: str) -> Path | str:
        """The file of a network, or the sentence that says why there is none.

        Raises:
            ValueError: If the file is not the one that the manifest names.
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
    """Models that no training of a run makes: the shipped operator, fits and peers."""
    kinds = {"operator": ("operator", "full"), "refine": ("fit", ""), "fit": ("fit", "")}
    kinds |= {"svi": ("peer", ""), "ssvi": ("peer", ""), "fit_then_clean": ("baseline", "")}
    found = [ModelEntry(name, *kinds[name]) for name in names]
    if _is_importable("piqp"):
        return found
    return [replace(e, reason=_PIQP_MISSING) if e.name == "fit_then_clean" else e for e in found]


def add_unprojected(entries: Sequence[ModelEntry]) -> list[ModelEntry]:
    """The same, each model with the paper's own decoder twice: after its projection and before."""
    found = []
    for entry in entries:
        lost = entry.has_icnn_decoder and not entry.missing and not _is_importable("piqp")
        found.append(replace(entry, reason=_PIQP_MISSING) if lost else entry)
        if entry.has_icnn_decoder:
            found.append(replace(entry, name=entry.name + UNPROJECTED_SUFFIX))
    return found


def list_checkpointed(checkpoints: Checkpoints) -> list[ModelEntry]:
    """Baselines and ablations at full size, as far as they were trained."""
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
    """Whether the package has networks without guarantees to train."""
    return _is_importable("arbiter_lab.baselines.trained_baseline")


def label_of(name: str) -> str:
    """What tables call a model."""
    if name.startswith(f"{SMALL}_"):
        return f"{label_of(name.removeprefix(f'{SMALL}_'))} (small)"
    if name == SMALL:
        return "operator (small)"
    return _LABELS.get(name, name.replace("_", " "))


def _is_importable(module: str) -> bool:
    """Whether a module can be imported."""
    room = module.rpartition(".")[0]
    return (not room or find_spec(room) is not None) and find_spec(module) is not None
