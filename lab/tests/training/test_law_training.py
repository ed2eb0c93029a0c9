"""The law network trains: what is measured, that it resumes, and that broken batches stay out."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from arbiter.operators.checkpoint import CheckpointError
from arbiter.operators.law.config import LawConfig
from arbiter.operators.pretrained import Operator
from arbiter_lab.differentiable.operators.law.green_scan import GreenScan
from arbiter_lab.differentiable.operators.law.network import LawNetwork, Variant
from arbiter_lab.differentiable.operators.law.proposal import Law, prior_law
from arbiter_lab.training.law_pool import Laws, make_laws
from arbiter_lab.training.law_route import MARTINGALE_TOLERANCE, LawLesson, LawRoute
from arbiter_lab.training.law_trainer import LawHeldOut, LawTrainer, discretised
from arbiter_lab.training.ledger import Ledger
from arbiter_lab.training.loop import Limits, train
from arbiter_lab.training.martingale_test import martingale_test
from arbiter_lab.training.settings import LAW_ABLATIONS, Settings

SMALL = Settings(
    model="law",
    law=LawConfig(heads=10, width=16, context=16, state=6, rank=2),
    pool=48,
    held_out=40,
    layouts=((8, 16, 16, 12), (14, 33, 24, 6)),
    mix=(0.5, 0.5),
    chunk=2,
    steps=6,
    warm=2,
    measure_every=3,
    save_every=3,
    log_every=1,
    clip=5.0,
    average=0.5,
)


@pytest.fixture(scope="module")
def laws() -> Laws:
    return make_laws(48, 0, "cpu")


def lesson_of(trainer: LawTrainer) -> LawLesson:
    return LawLesson.from_tensors(trainer.draws.next_lesson(0).lesson)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("law", SMALL.law),
        ("variant", Variant(flat=True)),
        ("duals", "none"),
        ("priced", "both"),
    ],
)
def test_settings_of_the_law_network_are_refused_of_others(name: str, value: Any) -> None:
    with pytest.raises(ValueError, match=f"'{name}' is of the law network, and model is 'gru'"):
        Settings(model="gru", **{name: value})
    assert getattr(replace(SMALL, **{name: value}), name) == value  # the control


def test_a_run_in_two_legs_is_the_run_in_one(tmp_path: Path) -> None:
    pool = tmp_path / "pool"
    whole = train(SMALL, tmp_path / "one", pool=pool)
    train(SMALL, tmp_path / "two", pool=pool, limits=Limits(steps=3))
    resumed = train(SMALL, tmp_path / "two", pool=pool, resume=True)
    assert whole.weights.read_bytes()[-4096:] == resumed.weights.read_bytes()[-4096:]
    assert whole.metrics["heldout_rmse_bp"] == resumed.metrics["heldout_rmse_bp"]
    other = train(replace(SMALL, seed=1), tmp_path / "other", pool=pool)
    assert other.metrics["heldout_rmse_bp"] != whole.metrics["heldout_rmse_bp"]
    operator = Operator.load(whole.weights)  # what a run writes is an operator
    assert operator.config == SMALL.law
    assert [row["route"] for row in Ledger(tmp_path / "one").runs()] == ["saddle"]


@pytest.mark.parametrize("variant", [Variant(flat=True), Variant(guard=False), Variant(scans=1)])
def test_an_ablation_is_not_run_as_a_whole_network(variant: Variant, tmp_path: Path) -> None:
    """Its weights may have the shapes of a whole one, and are those of another function."""
    settings = replace(SMALL, variant=variant, steps=2, measure_every=2, save_every=2)
    made = train(settings, tmp_path / "run", pool=tmp_path / "pool")
    with pytest.raises(CheckpointError, match="an ablation was trained"):
        Operator.load(made.weights)


def test_the_recipe_is_known_and_others_are_refused() -> None:
    recipe = Settings.recipe("operator")
    assert recipe.model == "law"
    assert recipe.law == LawConfig()
    with pytest.raises(ValueError, match=r"recipe 'pie': give one of operator"):
        Settings.recipe("pie")


def test_defects_are_over_their_tolerance(laws: Laws) -> None:
    trainer = LawTrainer(SMALL, laws)
    lesson, route = lesson_of(trainer), trainer.route
    assert isinstance(route, LawRoute)
    law = prior_law(lesson.task.prior.start, lesson.task.total)
    clean = route.compute_terms(law, lesson).defects
    assert float(clean["martingale"].max()) < -0.99
    shift = MARTINGALE_TOLERANCE * torch.exp(lesson.task.total)
    moved = route.compute_terms(Law(law.log_ratio, law.shift + shift), lesson).defects
    some = clean["martingale"] > -1.0 - 1e-9
    np.testing.assert_allclose(moved["martingale"][some & (moved["martingale"] != -1.0)], 0.0,
                               atol=0.02)  # fmt: skip
    tilted = law.log_ratio - 0.2 * torch.arange(law.log_ratio.shape[1])[:, None]
    broken = route.compute_terms(Law(tilted, law.shift), lesson).defects
    assert float(broken["no_arbitrage"].max()) > 100.0


@pytest.mark.parametrize("duals", ["saddle", "fixed", "none"])
@pytest.mark.parametrize("priced", ["proposal", "surface", "both"])
def test_every_arm_takes_steps_of_its_own(laws: Laws, duals: str, priced: str) -> None:
    trainer = LawTrainer(replace(SMALL, duals=duals, priced=priced), laws)
    before = [p.detach().clone() for p in trainer.params]
    for _ in range(2):
        trainer.step()
    assert any(bool((p != b).any()) for p, b in zip(trainer.params, before, strict=True))
    assert bool(trainer.route.boxes) == (duals != "none")
    lesson = trainer.draws.next_lesson(0).lesson
    fits = {}
    for kind in ("proposal", "surface"):
        route = LawRoute(SMALL.law, 3.0, duals, kind, torch.device("cpu"))
        fits[kind] = float(route.evaluate(trainer.network, lesson).fit.detach())
    assert fits["proposal"] != fits["surface"]


def test_multipliers_move_where_a_tolerance_is_exceeded_and_fixed_ones_stay(laws: Laws) -> None:
    for duals, moves in (("saddle", True), ("fixed", False)):
        trainer = LawTrainer(replace(SMALL, duals=duals, dual_lr=1.0, ramp=0), laws)
        before = trainer.duals.vector.clone()
        for _ in range(4):
            trainer.step()
        assert bool((trainer.duals.vector != before).any()) == moves
        assert bool((trainer.duals.vector >= 0.0).all())


def test_a_batch_without_a_finite_gradient_moves_nothing(laws: Laws) -> None:
    trainer = LawTrainer(SMALL, laws)
    lesson = list(trainer.draws.next_lesson(0).lesson)
    value, _, _, *rest = trainer.differentiate_lesson(*lesson)
    assert bool(torch.isfinite(value))
    assert any(bool((each != 0.0).any()) for each in rest)
    assert int(trainer.broken) == 0
    lesson[-3] = lesson[-3] * torch.nan
    value, _, _, *rest = trainer.differentiate_lesson(*lesson)
    assert not bool(torch.isfinite(value))
    assert all(bool((each == 0.0).all()) for each in rest)
    assert int(trainer.broken) == 1
    trainer.broken += 100
    with pytest.raises(FloatingPointError, match="no finite gradient"):
        trainer.require_few_broken()


def test_the_guard_is_never_needed_and_its_bound_holds(laws: Laws) -> None:
    """Steps approach a longest one; far gaps too, where without it they go past the bound."""
    trainer = LawTrainer(SMALL, laws)
    task = lesson_of(trainer).task
    far = task._replace(gap=20.0 * task.gap, ahead=20.0 * task.ahead)
    free = LawNetwork(SMALL.law, Variant(guard=False))
    for network, held in ((trainer.network, True), (free, False)):
        for scan in (m for m in network.modules() if isinstance(m, GreenScan)):
            scan.raw.data += 50.0  # the fastest that it can be
            scan.U.data *= 50.0
        network(far)
        scans = [m.last for m in network.modules() if isinstance(m, GreenScan)]
        largest = max(float(one.largest) for one in scans if one is not None)
        assert (largest <= 0.95) == held
        assert all(float(one.hits) == 0.0 for one in scans if one is not None)


def test_held_out_measures_and_the_martingale_test(laws: Laws) -> None:
    held = LawHeldOut(SMALL, laws, LawTrainer(SMALL, laws).route.make_lesson)
    torch.manual_seed(0)
    network = LawNetwork(SMALL.law)
    found, prior = held.measure(network), held.measure(None)
    assert prior["martingale_residual"] < 1e-5
    assert found["heldout_rmse_bp"] != prior["heldout_rmse_bp"]
    assert 0.0 <= found["decoder_distance_bp"] < 50.0
    task = held.exams[0].lesson.task
    law = prior_law(task.prior.start.double(), task.total.double())
    assert martingale_test(*discretised(law, task.total.double()), task.seen, seed=3).passed
    off = Law(law.log_ratio, law.shift + 0.2 * torch.exp(task.total.double()))
    assert not martingale_test(*discretised(off, task.total.double()), task.seen, seed=3).passed


@pytest.mark.parametrize("name", sorted(LAW_ABLATIONS))
def test_every_ablation_is_of_the_law_and_differs(laws: Laws, name: str) -> None:
    changed = SMALL.apply_ablation(name)
    assert changed.ablation == name
    assert replace(changed, ablation="") != SMALL
    whole, less = LawTrainer(SMALL, laws), LawTrainer(changed, laws)
    for trainer in (whole, less):
        for _ in range(2):
            trainer.step()
    same = {n: w for n, w in less.weights().items() if n in whole.weights()}
    shapes = {n: w.shape for n, w in whole.weights().items()}
    assert {n: w.shape for n, w in less.weights().items()} != shapes or any(
        bool((w != whole.weights()[n]).any()) for n, w in same.items()
    )


def test_an_ablation_of_the_first_design_is_refused() -> None:
    with pytest.raises(ValueError, match=r"ablation 'gate_off' of model 'law': give one of flat"):
        SMALL.apply_ablation("gate_off")
    with pytest.raises(ValueError, match=r"ablation 'no_scan' of model 'operator'"):
        Settings().apply_ablation("no_scan")
