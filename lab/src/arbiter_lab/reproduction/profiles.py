"""Profiles of the protocol: the sizes of a run as one object."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from importlib.resources import files
from typing import Any

from arbiter_lab.differentiable.operators.network.config import Config
from arbiter_lab.training.settings import ABLATIONS, Settings

BASELINES = {"unconstrained": "ssm", "gru": "gru", "transformer": "transformer"}
"""By name of the run, the ``model`` of its settings: networks trained beside the operator, with as
many parameters and steps."""

MATCHED = "matched"
"""The operator with the budget of the ablations and baselines at full size."""

METHODS = ("operator", "refine", "fit", "svi", "ssvi", "fit_then_clean")
"""Models that no training of a run makes: the operator, fits and peers."""

STRESS_AXES = ("noise", "coverage", "numeraire", "stale", "roughness", "jumps")

_TINY_CONFIG = Config(
    heads=8, width=12, state=6, rank=2, context=12, looks=1, spans=(), kriging=False
)
_SMALL_CONFIG = Config(heads=20, width=48, state=16, rank=2, context=48, looks=2, spans=(0.3, 1.6))


@dataclass(frozen=True)
class Profile:
    """Sizes and seeds of a run; all results follow from them.

    Attributes:
        name: Name of the profile for ``--profile``.
        market: Preset of the timeline that models are scored on.
        elsewhere: Presets of the timelines for external validity, nothing chosen on them.
        days: Number of sessions of the timeline.
        elsewhere_days: Number of sessions of each of the other timelines.
        seed: Seed of the timeline.
        blocks: Number of blocks of the folds, at least 4.
        embargo: Days dropped before each border of a fold.
        judge_every: Days between full audits; panels are scored on all days.
        methods: Models that are not trained here, by name.
        small: Training of the labelled small width.
        ablations: Parts that are removed, one at a time.
        baselines: Networks trained beside it, where :mod:`arbiter_lab.baselines` has them.
        seeds: Seeds of the sweep.
        rates: Factors of the learning rate in the sweep; 1 is among them.
        budgets: Bounds on the norms of value maps, for the cost of a Lipschitz constant.
        stress_axes: Axes of stress, by name.
        stress_levels: Number of severities of each axis of stress, evenly spaced.
        stress_cases: Markets at each severity; with six or more, thresholds have exact intervals.
        stress_models: Models that are stressed, by name; those that are missing are left out.
        heston: Surfaces of the Heston benchmark, easy and hard each.
        unseen: Surfaces of the unseen families; none if 0.
        chains: Listed chains, where there are any.
        windows: Number of windows of the monitor A1.
        paths: Number of paths in each of them.
        gap_windows: Number of windows per block in the regression of section 7.2.
        series: Simulated series behind the calibration of intervals.
        full: Settings of a training at full size, which writes checkpoints; None evaluates those
            that are there.
    """

    name: str
    market: str = "calm"
    elsewhere: tuple[str, ...] = ("stressed", "rough", "jumpy")
    days: int = 250
    elsewhere_days: int = 15
    seed: int = 7
    blocks: int = 5
    embargo: int = 2
    judge_every: int = 5
    methods: tuple[str, ...] = METHODS
    small: Settings = field(default_factory=Settings)
    ablations: tuple[str, ...] = tuple(ABLATIONS)
    baselines: tuple[str, ...] = tuple(BASELINES)
    seeds: tuple[int, ...] = (0, 1, 2)
    rates: tuple[float, ...] = (0.5, 1.0, 2.0)
    budgets: tuple[float, ...] = (1.0, 3.0, 30.0)
    stress_axes: tuple[str, ...] = STRESS_AXES
    stress_levels: int = 7
    stress_cases: int = 6
    stress_models: tuple[str, ...] = (
        "operator",
        "fit",
        "svi",
        "ssvi",
        "fit_then_clean",
        "unconstrained",
        "gru",
        "transformer",
        "small",
        "small_unconstrained",
    )
    heston: int = 50
    unseen: int = 60
    chains: int = 20
    windows: int = 48
    paths: int = 1024
    gap_windows: int = 5
    series: int = 2_000
    full: Settings | None = None

    def __post_init__(self) -> None:
        if self.blocks < 4:
            raise ValueError(f"blocks = {self.blocks}: training, validation and two windows need 4")
        if 1.0 not in self.rates or self.small.seed not in self.seeds:
            raise ValueError(
                f"rates = {self.rates}, seeds = {self.seeds}: the base run, rate 1 and seed "
                f"{self.small.seed}, is one of the sweep"
            )
        for what, known in (
            ("ablations", ABLATIONS),
            ("baselines", BASELINES),
            ("methods", METHODS),
            ("stress_axes", STRESS_AXES),
        ):
            unknown = sorted(set(getattr(self, what)) - set(known))
            if unknown:
                raise ValueError(f"{what} {unknown}: give some of {', '.join(known)}")

    def to_dict(self) -> dict[str, Any]:
        """Return the profile as plain JSON values."""
        values = asdict(self)
        values["small"] = self.small.to_dict()
        values["full"] = None if self.full is None else self.full.to_dict()
        return {
            name: list(value) if isinstance(value, tuple) else value
            for name, value in values.items()
        }


def full_settings() -> Settings:
    """Read the settings of every network of the profile ``full`` from ``full.json``."""
    return Settings.read(str(files("arbiter_lab.reproduction").joinpath("full.json")))


def full_networks(
    full: Settings,
    ablations: Sequence[str] = tuple(ABLATIONS),
    baselines: Sequence[str] = tuple(BASELINES),
) -> dict[str, Settings]:
    """Return the settings of the networks of one budget, by name: operator, ablations, baselines.

    The operator has the name `MATCHED`. The operator of the tables was trained for longer, and only
    runs of one budget show the value of a part.
    """
    return {
        MATCHED: full,
        **{name: full.apply_ablation(name) for name in ablations},
        **{name: replace(full, model=BASELINES[name]) for name in baselines},
    }


SMOKE = Profile(
    name="smoke",
    elsewhere=("stressed",),
    days=16,
    elsewhere_days=4,
    blocks=4,
    embargo=1,
    judge_every=8,
    small=Settings(
        config=_TINY_CONFIG,
        pool=30,
        held_out=12,
        layouts=((6, 12, 8, 12),),
        mix=(1.0,),
        chunk=4,
        steps=8,
        warm=2,
        decay=3,
        ramp=4,
        average=0.5,  # over few steps: the default looks back over five hundred
        measure_every=2,
        save_every=8,
        look_ahead=1,
        plateau=0.0,
    ),
    seeds=(0, 1),
    rates=(1.0, 2.0),
    budgets=(1.0,),
    stress_levels=2,
    stress_cases=2,
    stress_models=("operator", "ssvi", "small"),
    heston=2,
    unseen=3,
    chains=1,
    windows=6,
    paths=128,
    gap_windows=1,
    series=100,
)

PAPER = Profile(
    name="paper",
    small=Settings(
        config=_SMALL_CONFIG,
        pool=1_200,
        held_out=200,
        layouts=((8, 16, 12, 24), (14, 24, 16, 12)),
        mix=(0.5, 0.5),
        chunk=8,
        passes=3,  # on a laptop's processor quotes take longer to draw than to learn from
        steps=400,
        warm=40,
        decay=160,
        ramp=150,
        average=0.98,
        measure_every=40,
        save_every=400,
        look_ahead=4,
        plateau=0.0,
    ),
)

FULL = replace(
    PAPER,
    name="full",
    days=1_000,
    elsewhere_days=60,
    stress_cases=24,
    unseen=2_000,
    series=10_000,
    full=full_settings(),
)

PROFILES: Mapping[str, Profile] = {p.name: p for p in (SMOKE, PAPER, FULL)}


def find_profile(name: str) -> Profile:
    """Return a profile by name.

    Raises:
        ValueError: If no profile has the name.
    """
    if name not in PROFILES:
        raise ValueError(f"profile {name!r} is not one of {', '.join(PROFILES)}")
    return PROFILES[name]
