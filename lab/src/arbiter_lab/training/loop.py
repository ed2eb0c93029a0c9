"""The training loop: steps until the stopping rule, a budget, a plateau or the user ends it."""

from __future__ import annotations

import logging
import math
import os
import threading
import time
from dataclasses import dataclass, replace
from importlib.util import find_spec
from os import PathLike
from pathlib import Path
from typing import Any

import torch

from arbiter.files import own_folder, require_folder
from arbiter_lab.differentiable.operators.law.network import LawNetwork
from arbiter_lab.differentiable.operators.network.network import Network
from arbiter_lab.training import run_folder
from arbiter_lab.training.display import Display
from arbiter_lab.training.held_out import Exams, HeldOut
from arbiter_lab.training.interruption import catch_stop_signals
from arbiter_lab.training.journal import (
    COLUMNS,
    EXTRA_COLUMNS,
    Journal,
    digest_journal,
    fingerprint_tensors,
    read_steps,
)
from arbiter_lab.training.law_trainer import LawHeldOut, LawTrainer
from arbiter_lab.training.ledger import Ledger, LedgerEntry, read_revision
from arbiter_lab.training.pool_files import Pool, load_pool
from arbiter_lab.training.regression import BaselineTrainer
from arbiter_lab.training.run_folder import JOURNAL_FILE, RUN_FILE, TrainingLeg
from arbiter_lab.training.settings import Settings
from arbiter_lab.training.stopping_rule import Ending, Plateau, StoppingRule, Thresholds
from arbiter_lab.training.trainer import Trainer, known_weights

_DISPLAY_INTERVAL_SECONDS = 1.0  # seconds between numbers fetched for the display
_MIN_RELATIVE_FALL = 0.01  # of the held-out error within ``Settings.plateau`` seconds


_Trainer = Trainer | LawTrainer | BaselineTrainer
TRAINERS: dict[str, type[_Trainer]] = {"operator": Trainer, "law": LawTrainer}

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Limits:
    """Limits that end a leg early; the run can be resumed.

    Attributes:
        seconds: Seconds since `train` was called, including the making of the pool.
        steps: Largest number of steps of this leg.
    """

    seconds: float = math.inf
    steps: float = math.inf


@dataclass(frozen=True)
class TrainingOutcome:
    """The outcome of a leg of training.

    Attributes:
        ending: Why the leg ended.
        step: Steps done over all legs.
        leg_steps: Steps of this leg.
        seconds: Training time of this leg.
        metrics: Last measures on held-out laws.
        weights: File of the averaged parameters, which `arbiter evaluate` takes.
        notes: Remarks, such as a changed pool.
    """

    ending: Ending
    step: int
    leg_steps: int
    seconds: float
    metrics: dict[str, Any]
    weights: Path
    notes: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return the outcome as plain JSON values."""
        return {
            "ended": str(self.ending),
            "meaning": self.ending.sentence,
            "step": self.step,
            "leg_steps": self.leg_steps,
            "seconds": round(self.seconds, 3),
            "steps_per_second": round(self.leg_steps / self.seconds, 3) if self.seconds else None,
            "weights": str(self.weights),
            "notes": list(self.notes),
            "metrics": self.metrics,
        }


def train(  # noqa: PLR0913 - what, where, from what, how far, and who looks on
    settings: Settings,
    out: str | PathLike[str],
    device: torch.device | str = "cpu",
    *,
    resume: bool = False,
    begin: str | PathLike[str] | None = None,
    limits: Limits | None = None,
    pool: str | PathLike[str] | None = None,
    display: Display | None = None,
) -> TrainingOutcome:
    """Start or resume a training; write a checkpoint, a journal and a row of the ledger.

    The same settings, and weights to begin with, give the same weights on the same machine, in one
    leg or in several.

    Args:
        settings: What and how.
        out: Folder of the run.
        device: ``"cpu"`` or ``"cuda"``.
        resume: Go on from the run that is in the folder.
        begin: Weights of a trained network of the same configuration, to train on from: a new run,
            which takes over nothing else of the one that they come from.
        limits: What ends this leg before its steps are done.
        pool: Folder in which pools of laws are kept between runs; ``out/pool`` by default.
        display: Display of the progress; by default a line on standard error every half minute.

    Raises:
        ValueError: If the folder is in use, or holds a run that is another or not to be resumed.
        CheckpointError: If a run cannot be resumed from its files, or begun from the weights.
        FileNotFoundError: If there are no such weights.
    """
    began, out = time.monotonic(), Path(out)
    limits = limits or Limits()
    if find_spec("safetensors") is None:
        raise ValueError("checkpoints need safetensors: install it, or put it on PYTHONPATH")
    require_folder(out, files=(RUN_FILE, JOURNAL_FILE, "sweeps.csv", "sweeps.sqlite"))
    with own_folder(out):
        Ledger(out).runs()  # one of another version is refused before a leg is trained, not after
        if resume and begin is not None:
            raise ValueError(
                f"{begin}: a run that is resumed has weights of its own; leave one out"
            )
        known = None if begin is None else known_weights(begin, settings)
        if resume:
            leg, state, weights = run_folder.load(out)
            settings.require_same_training(leg.settings)
            leg = replace(leg, settings=settings, ended="")
        elif (out / RUN_FILE).exists():
            raise ValueError(f"{out} holds a run: resume it, or name another folder")
        else:
            leg = TrainingLeg(settings)
            _remove_journal(out / JOURNAL_FILE)
        if leg.step >= settings.steps:
            raise ValueError(
                f"{leg.step} of {settings.steps} steps are done: give more steps to go on"
            )
        leg.revision = find_revision()
        place = out / "pool" if pool is None else Path(pool)
        laws = load_pool(settings.pool, settings.pool_seed, place, device)
        others = load_pool(settings.held_out, settings.held_out_seed, place, device)
        notes = _note_data(leg, laws)
        trainer = TRAINERS.get(settings.model, BaselineTrainer)(settings, laws.laws)
        if resume:
            trainer.load(state, weights, leg.progress)
        elif known is not None:
            trainer.start_from_weights(known)
            leg.begun = fingerprint_tensors(known)
        kind = LawHeldOut if settings.model == "law" else HeldOut
        held_out: Exams = kind(settings, others.laws, trainer.route.make_lesson)
        if display is None:
            display = Display(settings.steps, done=leg.step)
        loop = TrainingLoop(out, leg, trainer, held_out, limits, began)
        columns = (*COLUMNS, *EXTRA_COLUMNS)
        with (
            Journal(out / JOURNAL_FILE, resume_at=leg.step, columns=columns) as journal,
            display,
            catch_stop_signals() as stop,
        ):
            ending = loop.run(journal, display, stop)
        weights_file = loop.finish_leg(ending)
        _add_ledger_row(out, leg, loop)
        return TrainingOutcome(
            ending, leg.step, leg.step - loop.start, loop.seconds, leg.metrics, weights_file, notes
        )


class TrainingLoop:
    """The steps of one leg."""

    def __init__(
        self,
        out: Path,
        leg: TrainingLeg,
        trainer: _Trainer,
        held_out: Exams,
        limits: Limits,
        began: float,
    ) -> None:
        self.out, self.leg, self.trainer, self.held_out = out, leg, trainer, held_out
        self.limits, self.began, self.start = limits, began, leg.step
        self.rule = StoppingRule(Thresholds(max_steps=leg.settings.steps))
        self.plateau = Plateau(_MIN_RELATIVE_FALL, leg.settings.plateau or math.inf)
        if leg.progress:
            self.rule.load_state_dict(leg.progress["rule"])
            self.plateau.best = [(at, best) for at, best in leg.progress["plateau"]]
        self.before = leg.seconds
        self.first = time.monotonic()
        self.saved = -1

    @property
    def seconds(self) -> float:
        """Training time of this leg."""
        return time.monotonic() - self.first

    def run(self, journal: Journal, display: Display, stop: threading.Event) -> Ending:
        """Take steps until the leg ends; return why."""
        settings, trainer = self.leg.settings, self.trainer
        told = -math.inf
        while True:
            number = trainer.steps + 1
            measure = number % settings.measure_every == 0 or number == settings.steps
            try:
                seen = trainer.step(measure=measure)
                measured = self._measure_held_out(number) if measure else {}
            except FloatingPointError as error:
                log.warning("%s", error)
                return Ending.DIVERGED
            logged = number % settings.log_every == 0 or measure
            row: dict[str, Any] = trainer.journal_row(seen) if logged else {}
            if row:
                clock = self.before + self.seconds
                journal.add(number, **row, **self._select_columns(measured, row), seconds=clock)
            self.leg.step = number
            now = time.monotonic()
            ending = self._find_ending(number, measured)
            if ending is None and stop.is_set():
                ending = Ending.INTERRUPTED
            if now - told >= _DISPLAY_INTERVAL_SECONDS or measure or ending is not None:
                told = now
                self._update_display(display, number, float(seen.step.value), row)
            if ending is not None:
                return ending
            if number % settings.save_every == 0:
                if not trainer.is_finite():
                    return Ending.DIVERGED
                journal.flush()
                self.save()

    def _update_display(
        self, display: Display, number: int, loss: float, row: dict[str, Any]
    ) -> None:
        hits = row.get("spec_guard_hits")
        before, after = self.trainer.lipschitz
        display.update(
            number,
            loss=loss,
            gap=self.leg.metrics.get("DualGap"),
            guard_hits=None if hits is None else float(hits),
            lipschitz_before=before if math.isfinite(before) else None,
            lipschitz_after=after if math.isfinite(after) else None,
        )

    def _measure_held_out(self, number: int) -> dict[str, float]:
        """Return the periodic measures on held-out laws, and store them in the leg."""
        trainer, held_out = self.trainer, self.held_out
        gap, residual = trainer.measure_dual_gap(held_out.kind, held_out.lesson)
        network = trainer.averaged_network()
        found = held_out.measure(network)
        # nothing is proved of a baseline's scans
        if isinstance(held_out, HeldOut) and isinstance(network, Network):
            found |= held_out.measure_scan_bounds(network)
        before, after = trainer.lipschitz
        found |= {
            "DualGap": gap.gap,
            "ratio_log": gap.ratio_log,
            "heldout_dual_residual": residual,
            "lambda_lip_before": before,
            "lambda_lip_after": after,
        }
        self.leg.metrics = {
            "step": number,
            **{name: value if math.isfinite(value) else None for name, value in found.items()},
        }
        return found

    def _select_columns(self, measured: dict[str, float], row: dict[str, Any]) -> dict[str, float]:
        names = {*COLUMNS, *EXTRA_COLUMNS} - row.keys()
        return {name: value for name, value in measured.items() if name in names}

    def _find_ending(self, number: int, measured: dict[str, float]) -> Ending | None:
        gap, residual = measured.get("DualGap"), measured.get("heldout_dual_residual")
        held_out, network = self.held_out, self.trainer.network
        # a baseline has no measure to test: it ends with its budget
        test = (
            (lambda: bool(held_out.run_martingale_test(network, seed=number)))
            if isinstance(network, Network | LawNetwork)
            else None
        )
        ending = self.rule.update(number, gap=gap, dual_residual=residual, martingale=test)
        if ending is not None:
            return ending
        if number - self.start >= self.limits.steps:
            return Ending.BUDGET
        if time.monotonic() - self.began >= self.limits.seconds:
            return Ending.TIME
        return Ending.PLATEAU if self._has_plateaued(number, measured) else None

    def _has_plateaued(self, number: int, measured: dict[str, float]) -> bool:
        """Return whether the held-out error has stopped falling while the rate is constant."""
        settings = self.leg.settings
        if "heldout_rmse_bp" not in measured or not settings.plateau:
            return False
        flat = self.plateau.update(self.before + self.seconds, measured["heldout_rmse_bp"])
        # a decay always pays, and has an end of its own
        return flat and settings.warm <= number < settings.steps - settings.decay

    def save(self) -> Path:
        """Write a checkpoint of the current state; return the file of its weights."""
        leg, trainer = self.leg, self.trainer
        leg.seconds = self.before + self.seconds
        leg.progress = {
            **trainer.counts(),
            "rule": self.rule.state_dict(),
            "plateau": [list(pair) for pair in self.plateau.best],
        }
        self.saved = leg.step
        return run_folder.save(self.out, leg, trainer.tensors(), trainer.weights())

    def finish_leg(self, ending: Ending) -> Path:
        """The last checkpoint of a leg; one that diverged keeps the checkpoint before."""
        leg, trainer = self.leg, self.trainer
        leg.ended = str(ending)
        if ending is Ending.DIVERGED or not trainer.is_finite():
            raise FloatingPointError(
                f"{Ending.DIVERGED.sentence} The last one is of step {max(self.saved, self.start)}."
            )
        if leg.metrics.get("step") != leg.step:
            trainer.lipschitz = (math.nan, trainer.lipschitz_constant())
            self._measure_held_out(leg.step)
        return self.save()


def _remove_journal(journal: Path) -> None:
    """Remove the journal of a run that was killed before its first checkpoint."""
    if journal.exists():
        read_steps(journal)  # refuses a file that is something else
        journal.unlink()


def _note_data(leg: TrainingLeg, pool: Pool) -> tuple[str, ...]:
    """Record the pool of a leg; return a note if it is not that of the last leg."""
    now = {"step": leg.step, "origin": pool.origin, "content": pool.content}
    notes = []
    if leg.data and leg.data[-1]["origin"] != pool.origin:
        notes.append("the pool is another one than before: other seed, size or code")
    elif leg.data and leg.data[-1]["content"] != pool.content:
        notes.append(
            "the pool is the one before but for rounding, made on another machine: steps are not "
            "those of one leg to the bit"
        )
    for note in notes:
        log.warning("%s", note)
    leg.data.append(now)
    return tuple(notes)


def find_revision() -> str:
    """Return the revision of the code: from the environment if it is set there, else from git."""
    return os.environ.get("ARBITER_REVISION") or read_revision()


def _add_ledger_row(out: Path, leg: TrainingLeg, loop: TrainingLoop) -> None:
    """One row of the ledger for the leg."""
    settings, metrics = leg.settings, leg.metrics
    counters = {name: metrics[name] for name in COLUMNS if metrics.get(name) is not None}
    ledger = Ledger(out)
    first = settings.model == "operator"
    what = (settings.ablation or settings.route) if first else settings.model
    name = f"{what}-{settings.seed}-{leg.step:07d}"
    # the same steps done anew, after a restored checkpoint, are another row
    again = sum(str(row["run"]).startswith(name) for row in ledger.runs())
    ledger.add(
        LedgerEntry(
            run=f"{name}.{again + 1}" if again else name,
            config=settings.to_dict() | ({"begun": leg.begun} if leg.begun else {}),
            seed=settings.seed,
            revision=leg.revision,
            data_hash=leg.data_hash,
            ended=leg.ended,
            steps=leg.step,
            route=settings.route if settings.design is None else "regression",
            journal=digest_journal(out / JOURNAL_FILE),
            counters=counters,
            metrics={name: value for name, value in metrics.items() if name not in counters},
            seconds=loop.seconds,
            leg=len(leg.data),
        )
    )
