"""Settings of a training: network, data, schedule, rates and measurements."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, fields, replace
from os import PathLike
from pathlib import Path
from typing import Any, get_args

from arbiter.operators.law.config import LawConfig
from arbiter.values import (
    require_bool,
    require_known_keys,
    require_number,
    require_numbers,
    require_positive,
    require_text,
    shorten_repr,
)
from arbiter_lab.baselines.matched_size import BASELINE_NAMES, Design, match_design
from arbiter_lab.differentiable.operators.law.network import Variant
from arbiter_lab.differentiable.operators.network.config import Config
from arbiter_lab.training.batches import MIN_QUOTES_PER_EXPIRY, BatchLayout, default_batch_layouts
from arbiter_lab.training.saddle import Mode

ROUTES = ("saddle", "mfm")
DUALS = ("saddle", "fixed", "none")
PRICED = ("proposal", "surface", "both")
MODELS = ("operator", "law", *BASELINE_NAMES)

RECIPES = Path(__file__).parent / "recipes"

LayoutSizes = tuple[int, int, int, int]


def _default_layouts() -> tuple[LayoutSizes, ...]:
    return tuple((*layout, size) for layout, size in default_batch_layouts())


@dataclass(frozen=True)
class Settings:
    """Settings that determine a run, as plain values that a JSON file can hold.

    Attributes:
        config: Configuration of the network; a baseline matches the size of this operator.
        route: ``"saddle"``, prices with dual variables, or ``"mfm"``, martingale flow matching.
        model: ``"law"``, ``"operator"`` of the first design, or a baseline that the same batches
            train: ``"ssm"``, ``"gru"`` or ``"transformer"`` (:mod:`arbiter_lab.baselines`). A
            baseline has no dual variables.
        law: Sizes of the law network.
        variant: What an ablation takes away from it.
        duals: Its multipliers: ``"saddle"``, ``"fixed"`` or ``"none"``.
        priced: What its fit prices: ``"proposal"``, ``"surface"`` or ``"both"``.
        vix_term: False leaves the replication block out.
        seed: Seed of the initial weights and of all batches.
        pool: Number of laws from which batches are drawn.
        pool_seed: Seed of these laws.
        held_out: Number of other laws for measurements.
        held_out_seed: Seed of the other laws.
        layouts: ``(expiries, strikes, targets, surfaces)`` of each kind of batch.
        mix: Probability of each kind of batch.
        chunk: Batches of one kind that are drawn at once.
        passes: How often these are learned from before others are drawn.
        steps: Number of steps over all legs.
        warm: Number of first steps over which the rate rises linearly.
        decay: Number of last steps over which the rate falls along a half cosine. Leave it 0 for
            legs that go on, and finish with a leg that has more steps and a decay.
        lr: Learning rate of the parameters.
        dual_lr: Learning rate of the multipliers.
        dual_bound: Largest multiplier.
        ramp: Number of steps over which the multipliers' rate rises.
        betas: Decay rates of Adam's moments.
        mode: ``"optimistic"``, ``"extra"`` or ``"simultaneous"``; see :mod:`.saddle`.
        clip: Bound on the gradient's norm; None for none.
        knee: Error, in what the quotes allow, from which on the loss grows by its logarithm only.
        average: Decay of the moving average that is evaluated and shipped.
        log_every: Steps between lines of the journal.
        measure_every: Steps between measurements on the held-out laws.
        save_every: Steps between checkpoints; there is always one at the end.
        look_ahead: Steps behind the lower side of DualGap.
        plateau: Seconds in which the held-out error has to fall by a hundredth; 0 never asks.
        ablation: Name of what was taken away, for the record.
    """

    config: Config = field(default_factory=Config)
    route: str = "saddle"
    model: str = "operator"
    law: LawConfig = field(default_factory=LawConfig)
    variant: Variant = field(default_factory=Variant)
    duals: str = "saddle"
    priced: str = "proposal"
    vix_term: bool = True
    seed: int = 0
    pool: int = 80_000
    pool_seed: int = 0
    held_out: int = 1_500
    held_out_seed: int = 777
    layouts: tuple[LayoutSizes, ...] = field(default_factory=_default_layouts)
    mix: tuple[float, ...] = (0.15, 0.25, 0.3, 0.2, 0.1)
    chunk: int = 8
    passes: int = 2
    steps: int = 20_000
    warm: int = 200
    decay: int = 0
    lr: float = 1.5e-3
    dual_lr: float = 1e-2
    dual_bound: float = 1.0
    ramp: int = 2_000
    betas: tuple[float, float] = (0.9, 0.99)
    mode: str = "optimistic"
    clip: float | None = None
    knee: float = 3.0
    average: float = 0.998
    log_every: int = 1
    measure_every: int = 1_000
    save_every: int = 5_000
    look_ahead: int = 10
    plateau: float = 300.0
    ablation: str = ""

    def __post_init__(self) -> None:
        if not isinstance(self.config, Config):
            raise ValueError(f"config = {shorten_repr(self.config)} must be that of a network")
        require_bool("vix_term", self.vix_term)
        require_text("ablation", self.ablation)
        choices = {
            "model": MODELS,
            "route": ROUTES,
            "mode": get_args(Mode),
            "duals": DUALS,
            "priced": PRICED,
        }
        for name, known in choices.items():
            if getattr(self, name) not in known:
                value = shorten_repr(getattr(self, name))
                raise ValueError(f"{name} = {value}: give one of {', '.join(known)}")
        if self.route == "mfm" and self.config.decoder != "transport":
            raise ValueError("route mfm matches slopes of transports: it needs decoder 'transport'")
        self._check_model()
        for name in _COUNT_SETTINGS:
            value = getattr(self, name)
            if type(value) is not int or value < 1:
                raise ValueError(
                    f"{name} = {shorten_repr(value)} must be a whole number of at least one"
                )
        for name in ("decay", "warm", "ramp", "look_ahead", "seed", "pool_seed", "held_out_seed"):
            value = getattr(self, name)
            if type(value) is not int or value < 0:
                raise ValueError(
                    f"{name} = {shorten_repr(value)} must be a whole number, not negative"
                )
        if self.decay > self.steps:
            raise ValueError(f"decay = {self.decay} is longer than the {self.steps} steps")
        if self.held_out_seed == self.pool_seed:
            raise ValueError(
                f"held_out_seed = {self.held_out_seed} is pool_seed: the held-out laws would be "
                "those trained on"
            )
        self._check_rates()
        self._check_layouts()

    def _check_model(self) -> None:
        if self.model == "law":
            self._check_law()
            return
        own = {"law": LawConfig(), "variant": Variant(), "duals": DUALS[0], "priced": PRICED[0]}
        for name, default in own.items():
            if getattr(self, name) != default:
                raise ValueError(
                    f"{name!r} is of the law network, and model is {self.model!r}: leave it out, "
                    "or train model 'law'"
                )
        if self.model == "operator":
            return
        if self.route != "saddle" or self.ablation:
            asked = f"ablation {self.ablation!r}" if self.ablation else f"route {self.route!r}"
            raise ValueError(
                f"{asked} is of the operator, and model is {self.model!r}: leave it out, or train "
                "model 'operator'"
            )
        _ = self.design  # refuses what has no plain readout

    def _check_law(self) -> None:
        """Refuse what the law network would leave aside without a word."""
        if self.ablation in ("", *LAW_ABLATIONS) and self.route == "saddle":
            return
        asked = f"ablation {self.ablation!r}, route {self.route!r}"
        raise ValueError(f"{asked}: of the first design, and model is 'law': leave it out")

    @property
    def design(self) -> Design | None:
        """Design of the baseline, of the operator's number of parameters; None for an operator."""
        return None if self.model in ("operator", "law") else match_design(self.model, self.config)

    def _check_rates(self) -> None:
        for name in ("lr", "dual_lr", "dual_bound", "knee"):
            require_positive(name, getattr(self, name))
        if self.clip is not None:
            require_positive("clip", self.clip)
        betas = require_numbers("betas", self.betas)
        if len(betas) != 2 or not all(0.0 <= beta < 1.0 for beta in betas):
            raise ValueError(f"betas = {shorten_repr(betas)} must be two numbers from 0 to below 1")
        if not 0.0 <= require_number("average", self.average) < 1.0:
            raise ValueError(f"average = {self.average!r} must be a share from 0 to below 1")
        if require_number("plateau", self.plateau) < 0.0:
            raise ValueError(f"plateau = {self.plateau!r} must be seconds, or 0 to never ask")

    def _check_layouts(self) -> None:
        rows, mix = _check_layout_rows(self.layouts), require_numbers("mix", self.mix)
        if not rows or len(mix) != len(rows):
            raise ValueError(
                f"{len(rows)} layouts and {len(mix)} shares of the mix: give one share for each"
            )
        least = (2, MIN_QUOTES_PER_EXPIRY, 1, 1)
        for row in rows:
            right = [type(n) is int and n >= low for n, low in zip(row, least, strict=False)]
            if not (len(row) == len(least) and all(right)):
                raise ValueError(
                    f"layout {shorten_repr(row)}: give expiries (2 or more), strikes "
                    f"({MIN_QUOTES_PER_EXPIRY} or more), "
                    "targets and surfaces"
                )
        if min(mix) < 0.0 or not math.isclose(sum(mix), 1.0, abs_tol=1e-6):
            raise ValueError(f"mix = {shorten_repr(list(mix))} must be shares that add up to one")

    def learning_rate(self, step: int) -> float:
        """Return the learning rate of the parameters in step ``step``, counted from 0."""
        warm = min(1.0, (step + 1) / self.warm) if self.warm else 1.0
        late = step - (self.steps - self.decay)
        falling = 0.5 * (1.0 + math.cos(math.pi * (late + 0.5) / self.decay)) if late >= 0 else 1.0
        return self.lr * warm * falling

    def layout(self, number: int) -> tuple[BatchLayout, int]:
        """Return the layout of one kind of batch and its number of surfaces."""
        *sizes, surfaces = self.layouts[number]
        return BatchLayout(*sizes), surfaces

    def to_dict(self) -> dict[str, Any]:
        """Return the settings as plain JSON values."""
        return dict(json.loads(json.dumps(asdict(self))))

    @classmethod
    def from_dict(cls, values: object) -> Settings:
        """Build settings from plain values; missing ones take their default.

        Raises:
            ValueError: If a name is unknown or a value makes no sense.
        """
        given = require_known_keys("settings", values, [f.name for f in fields(cls)])
        try:
            given["config"] = Config.from_dict(given.get("config", {}))
            given["law"] = LawConfig.from_dict(given.get("law", {}))
            names = [f.name for f in fields(Variant)]
            given["variant"] = Variant(
                **require_known_keys("variant", given.get("variant", {}), names)
            )
        except ValueError as error:
            raise ValueError(f"settings: {error}") from error
        for name in ("layouts", "mix", "betas"):
            if name in given:
                given[name] = _as_tuples(given[name])
        return cls(**given)

    @classmethod
    def read(cls, path: str | PathLike[str]) -> Settings:
        """Read settings from a JSON file."""
        try:
            values = json.loads(Path(path).read_text(encoding="utf-8"))
        except (ValueError, OSError, RecursionError) as error:
            raise ValueError(f"{path} is no file of settings in JSON: {error}") from error
        if not isinstance(values, dict):
            raise ValueError(f'{path} must hold one object of settings, like {{"steps": 1000}}')
        return cls.from_dict(values)

    @classmethod
    def recipe(cls, name: str) -> Settings:
        """Settings that the package has by name: ``"operator"`` is how shipped weights are made."""
        known = sorted(path.stem for path in RECIPES.glob("*.json"))
        if name not in known:
            raise ValueError(f"recipe {name!r}: give one of {', '.join(known)}")
        return cls.read(RECIPES / f"{name}.json")

    def apply_ablation(self, name: str) -> Settings:
        """Return the settings without one part, named as in :data:`ABLATIONS`.

        Those of the law network are :data:`LAW_ABLATIONS`.
        """
        known = LAW_ABLATIONS if self.model == "law" else ABLATIONS
        if name not in known:
            told = f"ablation {name!r} of model {self.model!r}"
            raise ValueError(f"{told}: give one of {', '.join(known)}")
        return replace(known[name](self), ablation=name)

    def require_same_training(self, before: Settings) -> None:
        """Refuse to resume a run with other settings of the training.

        Raises:
            ValueError: Names the settings that differ. Those of the schedule, of the pool and of
                what is measured may.
        """
        was, now = before.to_dict(), self.to_dict()
        differ = [
            name for name in now if name not in _CHANGEABLE_SETTINGS and was[name] != now[name]
        ]
        if differ:
            told = "; ".join(f"{name} was {was[name]}, is {now[name]}" for name in differ)
            raise ValueError(f"another training cannot be resumed from here: {told}")


_COUNT_SETTINGS = (
    "pool",
    "held_out",
    "chunk",
    "passes",
    "steps",
    "log_every",
    "measure_every",
    "save_every",
)
_CHANGEABLE_SETTINGS = {
    "pool",
    "pool_seed",
    "steps",
    "warm",
    "decay",
    "lr",
    "dual_lr",
    "knee",
    "average",
    "log_every",
    "measure_every",
    "save_every",
    "plateau",
}


def _halve_ranks(settings: Settings) -> Settings:
    """Halve the state size, which is the paper's rank m, and the low-rank factor."""
    config = settings.config
    return replace(
        settings,
        config=replace(config, state=max(1, config.state // 2), rank=max(1, config.rank // 2)),
    )


def _change_config(**changes: Any) -> Callable[[Settings], Settings]:
    return lambda settings: replace(settings, config=replace(settings.config, **changes))


ABLATIONS: dict[str, Callable[[Settings], Settings]] = {
    "gate_off": _change_config(gate=False),
    "rank_half": _halve_ranks,
    "guard_off": _change_config(guard=False),
    "causal_only": _change_config(adjoint=False, kriging=False),  # which knows of longer maturities
    "no_vix": lambda settings: replace(settings, vix_term=False),
    "icnn": _change_config(decoder="icnn"),
    "no_qalign": _change_config(align=False),
    "mfm": lambda settings: replace(settings, route="mfm"),
    "representer": _change_config(representer=True),
}
"""What can be taken away, by name; and the representer, which is off by default, put in."""


def _change_law(**changes: Any) -> Callable[[Settings], Settings]:
    return lambda settings: replace(settings, law=replace(settings.law, **changes))


def _change_variant(**changes: Any) -> Callable[[Settings], Settings]:
    return lambda settings: replace(settings, variant=replace(settings.variant, **changes))


LAW_ABLATIONS: dict[str, Callable[[Settings], Settings]] = {
    "flat_reading": _change_variant(flat=True),
    "no_scan": _change_variant(scans=0),
    "causal_only": _change_variant(scans=1),
    "rank_half": lambda settings: _change_law(
        state=max(1, settings.law.state // 2), rank=max(1, settings.law.rank // 2)
    )(settings),
    "guard_off": _change_variant(guard=False),
    "no_qalign": _change_variant(align=False),
    "no_duals": lambda settings: replace(settings, duals="none"),
}
"""The same of the law network."""


def _as_tuples(value: Any) -> Any:
    return tuple(_as_tuples(v) for v in value) if isinstance(value, list | tuple) else value


def _check_layout_rows(value: object) -> list[list[Any]]:
    if not isinstance(value, list | tuple) or not all(isinstance(v, list | tuple) for v in value):
        raise ValueError(
            f"layouts = {shorten_repr(value)} must be a list of layouts, each four numbers"
        )
    return [list(row) for row in value]
