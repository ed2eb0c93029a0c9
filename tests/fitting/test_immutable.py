"""Objectives never change: what they return does not depend on the calls before."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import FrozenInstanceError, fields, is_dataclass, replace
from functools import cache
from typing import Any, Protocol

import numpy as np
import pytest

from arbiter.conventions import Array
from arbiter.fitting import FitOptions, Loss, Roughness, fit, initial_point
from arbiter.fitting.guided_objective import GuidedObjective, Pull
from arbiter.fitting.interior_point import EvaluatedPoint, InteriorPoint, Objective
from arbiter.fitting.joint_objective import JointObjective, JointPoint
from arbiter.fitting.objective import FitObjective, FitPoint
from arbiter.fitting.vix_objective import VixObjective
from arbiter.fitting.vix_quotes import VixMarket, with_windows
from arbiter.futures import FuturesCurve
from arbiter.quotes import Quotes

OTHER = Roughness(0.02, 300.0, 7.0)
TWO = FitOptions(components=2)


class Case(Protocol):
    """An objective of a fit, with constraints."""

    def evaluate(self, z: Array) -> Any:
        """The objective at ``z``."""

    def build_constraints(self) -> Any:
        """The constraints."""


def grid(T: list[float], k: Array, skew: float, iv: float, forward: float = 1.0) -> Quotes:
    at, strike = (part.ravel() for part in np.meshgrid(T, k, indexing="ij"))
    mid = iv + skew * strike
    table = {"T": at, "k": strike, "iv_bid": 0.98 * mid, "iv_ask": 1.02 * mid}
    return Quotes.from_frame({**table, "forward": np.full(at.size, forward)})


@cache
def spx() -> Quotes:
    return grid([0.05, 0.1, 0.18, 0.3, 0.5], np.linspace(-0.25, 0.15, 9), -0.2, 0.2)


@cache
def vix() -> VixMarket:
    quotes = grid([0.08, 0.25], np.linspace(-0.3, 1.0, 8), 0.3, 0.9, forward=20.0)
    return VixMarket.from_quotes(quotes, FuturesCurve.of([0.08, 0.16, 0.25], [19.5, 20.0, 20.5]))


def plain() -> tuple[Case, Array]:
    model = FitObjective.from_quotes(spx(), FitOptions())
    return model, initial_point.start_from_quotes(model)


def two_components() -> tuple[Case, Array]:
    model = FitObjective.from_quotes(spx(), TWO, prior=fit(spx(), options=TWO))
    return model, initial_point.start_from_quotes(model)


def guided() -> tuple[Case, Array]:
    model = GuidedObjective.from_guide(spx(), FitOptions(), fit(spx()))
    model = model.with_pull(model.roughness, Pull(3.0, 0.7))
    return model, initial_point.start_from_quotes(model)


def free_vix() -> tuple[Case, Array]:
    model = VixObjective.from_market(vix(), FitOptions())
    return model, model.initial_point()


def joint() -> tuple[Case, Array]:
    wide = with_windows(spx(), vix().quotes.maturities)
    side = FitObjective.from_quotes(wide, FitOptions())
    other = VixObjective.from_market(vix(), FitOptions())
    start = np.concatenate([initial_point.start_from_quotes(side), other.initial_point()])
    return JointObjective(side, other), start


CASES = [plain, two_components, guided, free_vix, joint]


def state(thing: object) -> str:
    """A digest of all numbers that an object was made with, however deep."""
    digest = hashlib.sha256()

    def walk(part: object) -> None:
        if isinstance(part, np.ndarray):
            digest.update(np.ascontiguousarray(part).tobytes())
        elif isinstance(part, tuple):
            for each in part:
                walk(each)
        elif is_dataclass(part):
            for each in fields(part):
                walk(getattr(part, each.name))
        elif type(part).__module__.startswith("arbiter."):
            walk(tuple(vars(part).values()))
        else:
            digest.update(repr(part).encode())

    walk(thing)
    return digest.hexdigest()


def read(point: FitPoint | JointPoint) -> str:
    """A digest of everything that later steps take from a point."""
    sides = (point.spx, point.vix) if isinstance(point, JointPoint) else (point,)
    misfits = [side.misfit for side in sides]
    local = tuple(part for part in point.expansion if part is not None)
    lines = [(each.linearisation.gradient, each.linearisation.band) for each in misfits]
    return state((point.value, local, *lines, *((each.residuals, each.loss) for each in misfits)))


def order_matters(make: Callable[[], Case], points: list[Array]) -> bool:
    """Whether a point differs when others are evaluated before it, or before it is read."""
    alone = [read(make().evaluate(z)) for z in points]
    model = make()
    backwards = [read(model.evaluate(z)) for z in reversed(points)][::-1]
    kept = [model.evaluate(z) for z in points]
    return not alone == backwards == [read(point) for point in kept]


def nearby(z: Array, rng: np.random.Generator) -> list[Array]:
    return [z + 0.01 * scale * rng.normal(size=z.size) for scale in (0.0, 1.0, 2.0)]


@pytest.mark.parametrize("case", CASES)
def test_a_point_does_not_depend_on_the_calls_before(
    case: Callable[[], tuple[Case, Array]], rng: np.random.Generator
) -> None:
    assert not order_matters(lambda: case()[0], nearby(case()[1], rng))


class OneBuffer:
    """The fault that the last test is there to find: residuals in an array of the objective's."""

    def __init__(self) -> None:
        self.model = FitObjective.from_quotes(spx(), FitOptions())
        self.buffer = np.empty(len(spx()))

    def evaluate(self, z: Array) -> FitPoint:
        point = self.model.evaluate(z)
        self.buffer[:] = point.misfit.residuals
        return replace(point, misfit=replace(point.misfit, residuals=self.buffer))

    def build_constraints(self) -> Any:
        return self.model.build_constraints()


class WeightsLeftBehind(OneBuffer):
    """Another one: a call changes the weights of the next."""

    def evaluate(self, z: Array) -> FitPoint:
        point = self.model.evaluate(z)
        self.model = self.model.with_roughness(OTHER)
        return point


@pytest.mark.parametrize("fault", [OneBuffer, WeightsLeftBehind])
def test_an_objective_that_remembers_is_found(
    fault: Callable[[], Case], rng: np.random.Generator
) -> None:
    assert order_matters(fault, nearby(plain()[1], rng))


@pytest.mark.parametrize("case", CASES)
def test_use_leaves_an_objective_as_it_was(case: Callable[[], tuple[Case, Array]]) -> None:
    model, z = case()
    before = state(model)
    objective: Objective[EvaluatedPoint] = model
    interior = InteriorPoint.start_at(objective, model.build_constraints(), z, scale=1e-3)
    first = state((interior.z, interior.duals, interior.slacks, interior.iterations))
    moved, _ = interior.run(1e-3, 3)
    assert moved.iterations == 3
    assert state((interior.z, interior.duals, interior.slacks, interior.iterations)) == first
    point = model.evaluate(z)
    if isinstance(model, FitObjective):
        point.misfit.linearise(Loss(wall=0.0)(point.misfit.residuals))
        other = model.with_roughness(OTHER)
        assert other.add_roughness(point.misfit).value == other.evaluate(z).value != point.value
        assert state(other) != before  # the digest sees a weight
    assert state(model) == before


@pytest.mark.parametrize("case", CASES)
def test_nothing_can_be_assigned(case: Callable[[], tuple[Case, Array]]) -> None:
    model, z = case()
    point = model.evaluate(z)
    parts = [model, point, InteriorPoint.start_at(model, model.build_constraints(), z, scale=1e-3)]
    if isinstance(model, FitObjective):
        parts += [model.misfit, model.quadratic, model.layout, point.misfit]
    for part in parts:
        name = fields(part)[0].name
        with pytest.raises(FrozenInstanceError):
            setattr(part, name, None)
