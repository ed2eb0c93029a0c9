"""The journal of a run: one line for each step, appended while it trains.

``steps.jsonl`` begins with a line that names the columns; each further line is an array in that
order, null where nothing was measured. Numbers have nine digits, enough to distinguish any two
float32. A run that was cut off leaves whole lines and at most one broken one, which is dropped.
Times are in the last column, and are no part of what a replay has to repeat.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable, Iterator, Mapping
from os import PathLike
from pathlib import Path
from typing import Self

import torch
from torch import Tensor

from arbiter.files import write_whole

FORMAT = "arbiter-steps"
TIME_COLUMN = "seconds"
COLUMNS = (
    "loss",
    "fit",
    "no_arbitrage",
    "martingale",
    "replication",
    "lambda_lip_before",
    "lambda_lip_after",
    "spec_guard_hits",
    "projection_distance",
    "max_rho_dt",
    "green_sum",
    "green_bound",
    "state_norm",
    "state_bound",
    "ratio_log",
    "DualGap",
    "dual_residual",
    "martingale_residual",
    "mfm_mse",
    "enter_representer_at_step",
    "coverage_min",
    "coverage_mean",
    "coverage_at_trigger",
    "gradient_norm",
    "lr",
    "dual_lr",
    "heldout_rmse_bp",
)
"""Losses by term, then the paper's counters by their names and the scans' two measured values
beside their bounds (:mod:`arbiter_lab.stability.scan_bounds`), then how the steps were taken."""

EXTRA_COLUMNS = (
    "relative_entropy",
    "cvar_alignment",
    "mfm_cut",
    "heldout_median_bp",
    "decoder_distance_bp",
)
"""Columns beside the paper's."""


class Journal:
    """Appends to ``steps.jsonl``; numbers on a GPU are fetched in one transfer per flush.

    Args:
        path: The file.
        resume_at: Steps that are done: lines of later ones, from a run that went on after its
            last checkpoint, are cut. 0 begins anew and refuses a file that is there.
        columns: What is kept of each step, besides its number and the time.
        flush_every: After how many steps lines are written.
    """

    def __init__(
        self,
        path: str | PathLike[str],
        *,
        resume_at: int = 0,
        columns: Iterable[str] = COLUMNS,
        flush_every: int = 50,
    ) -> None:
        self.path = Path(path)
        self.columns = ("step", *columns, TIME_COLUMN)
        if len(set(self.columns)) < len(self.columns):
            raise ValueError(f"columns must differ, and step and {TIME_COLUMN} are there already")
        self.flush_every = flush_every
        self._waiting: list[dict[str, float | Tensor | None]] = []
        if resume_at == 0 and self.path.exists():
            raise ValueError(
                f"{self.path} is there already: resume that run, or name another folder"
            )
        kept = _read_lines(self.path, self.columns, resume_at) if resume_at else []
        self._last = resume_at
        header = json.dumps({"format": FORMAT, "version": 1, "columns": self.columns})
        write_whole(self.path, "".join(f"{line}\n" for line in (header, *kept)))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.flush()

    def add(self, step: int, **values: float | Tensor | None) -> None:
        """Keep what was measured at a step; what is left out, or not finite, is null."""
        unknown = sorted(values.keys() - set(self.columns[1:]))
        if unknown:
            raise ValueError(f"no column is called {unknown}; there are {self.columns[1:]}")
        if step <= self._last:
            raise ValueError(f"steps come in order: {step} after {self._last}")
        self._last = step
        # A recorded graph would overwrite a tensor before it is fetched.
        kept = {
            name: value.detach().clone() if isinstance(value, Tensor) else value
            for name, value in values.items()
        }
        self._waiting.append({"step": step, **kept})
        if len(self._waiting) >= self.flush_every:
            self.flush()

    def flush(self) -> None:
        """Write the lines that are buffered."""
        if not self._waiting:
            return
        fetched = _fetch_numbers([v for row in self._waiting for v in row.values()])
        lines = []
        for row in self._waiting:
            plain = {name: next(fetched) for name in row}
            lines.append(
                json.dumps([_round_number(plain.get(name)) for name in self.columns]) + "\n"
            )
        self._waiting.clear()
        with self.path.open("a", encoding="utf-8") as file:
            file.writelines(lines)


def read_steps(path: str | PathLike[str]) -> dict[str, list[float | None]]:
    """Columns of a journal by name; a broken last line is left out.

    Raises:
        ValueError: If the file is no journal, or broken before its last line.
    """
    path = Path(path)
    columns = _read_columns(path)
    rows = [json.loads(line) for line in _read_lines(path, columns)]
    return {name: [row[place] for row in rows] for place, name in enumerate(columns)}


def digest_journal(path: str | PathLike[str]) -> str:
    """SHA-256 of a journal without its times: equal for a run and its exact replay."""
    steps = read_steps(path)
    steps.pop(TIME_COLUMN, None)
    return fingerprint(steps)


def fingerprint(value: object) -> str:
    """SHA-256 of plain JSON values, whatever the order of their keys."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


def fingerprint_tensors(tensors: Mapping[str, Tensor]) -> str:
    """SHA-256 of named tensors: names, shapes, types and numbers. The hash of training data."""
    total = hashlib.sha256()
    for name in sorted(tensors):
        tensor = tensors[name].detach().cpu().contiguous()
        total.update(json.dumps([name, str(tensor.dtype), list(tensor.shape)]).encode())
        total.update(tensor.reshape(-1).view(torch.uint8).numpy().tobytes())
    return total.hexdigest()


def _fetch_numbers(values: list[float | Tensor | None]) -> Iterator[float | None]:
    """Numbers in the same order, tensors brought over in one transfer per device."""
    waiting: dict[torch.device, list[Tensor]] = {}
    for value in values:
        if isinstance(value, Tensor):
            waiting.setdefault(value.device, []).append(value.reshape(()).double())
    come = {device: iter(torch.stack(some).tolist()) for device, some in waiting.items()}
    return (next(come[v.device]) if isinstance(v, Tensor) else v for v in values)


def _round_number(value: float | None) -> float | int | None:
    if value is None or isinstance(value, int):
        return value
    return float(f"{value:.9g}") if math.isfinite(value) else None


def _read_columns(path: Path) -> tuple[str, ...]:
    with path.open(encoding="utf-8", errors="replace") as file:
        first = file.readline()
    try:
        header = json.loads(first)
    except ValueError:
        header = None
    if not isinstance(header, dict) or header.get("format") != FORMAT:
        raise ValueError(f"{path} is no journal of steps: its first line does not say {FORMAT!r}")
    return tuple(header["columns"])


def _read_lines(path: Path, columns: tuple[str, ...], last: float = math.inf) -> list[str]:
    """The whole lines of steps up to ``last``."""
    if not path.exists():
        raise ValueError(f"{path} is not there: a run can only be resumed with its journal")
    if _read_columns(path) != columns:
        raise ValueError(f"{path} has other columns: resume with the version that wrote it")
    lines = path.read_text(encoding="utf-8", errors="replace").split("\n")[1:]
    complete, rest = lines[:-1], lines[-1]
    kept = []
    for place, line in enumerate(complete):
        try:
            row = json.loads(line)
        except ValueError:
            row = None
        if not isinstance(row, list) or len(row) != len(columns):
            if place == len(complete) - 1 and not rest:
                break
            raise ValueError(
                f"{path}: line {place + 2} is broken, and is not the last one: restore the file"
            )
        if row[0] <= last:
            kept.append(line)
    return kept
