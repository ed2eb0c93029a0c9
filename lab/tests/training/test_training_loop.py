"""Training in legs is training in one, it learns, and every way it ends has a name."""

from __future__ import annotations

import itertools
import json
import math
import os
import re
import shutil
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import tiny
from arbiter.operators.checkpoint import CheckpointError
from arbiter.operators.monitors import MIN_COVERAGE
from arbiter_lab.differentiable.operators import checkpoint
from arbiter_lab.differentiable.operators.network.green_scan import GreenScan
from arbiter_lab.differentiable.operators.network.network import Network
from arbiter_lab.evaluation.first_design import FirstDesign
from arbiter_lab.training import loop, pool_files, run_folder
from arbiter_lab.training.averaging import ParameterAverage
from arbiter_lab.training.batch_stream import BatchStream
from arbiter_lab.training.graph_capture import RecordedFunction
from arbiter_lab.training.held_out import HeldOut
from arbiter_lab.training.journal import digest_journal, read_steps
from arbiter_lab.training.law_pool import Laws
from arbiter_lab.training.ledger import Ledger
from arbiter_lab.training.loop import Limits
from arbiter_lab.training.pool_files import load_pool
from arbiter_lab.training.routes import make_route
from arbiter_lab.training.run_folder import JOURNAL_FILE, TrainingLeg
from arbiter_lab.training.settings import ABLATIONS, Settings
from arbiter_lab.training.stopping_rule import Ending, Thresholds
from arbiter_lab.training.trainer import Trainer


@pytest.fixture(scope="module")
def pools(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.kept(tmp_path_factory.mktemp("pools"))


@pytest.fixture(scope="module", params=["saddle", "mfm"])
def whole(
    request: pytest.FixtureRequest, pools: Path, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """A run in one leg."""
    out = tmp_path_factory.mktemp("runs") / str(request.param)
    tiny.run(tiny.settings(route=request.param), out, pools)
    return out


@pytest.fixture(scope="module")
def saddle(pools: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The settings of the saddle route."""
    out = tmp_path_factory.mktemp("saddle")
    tiny.run(tiny.SETTINGS, out, pools)
    return out


@pytest.fixture(scope="module")
def begun(pools: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run folder after the first five steps."""
    out = tmp_path_factory.mktemp("begun")
    tiny.run(tiny.SETTINGS, out, pools, limits=Limits(steps=5))
    return out


@pytest.fixture
def half(begun: Path, tmp_path: Path) -> Path:
    """A copy of the run folder after five steps."""
    return Path(shutil.copytree(begun, tmp_path / "half"))


def same(one: Path, other: Path) -> bool:
    parts = [run_folder.load(folder) for folder in (one, other)]
    (_, state, weights), (_, state2, weights2) = parts
    return all(torch.equal(state[n], state2[n]) for n in state) and all(
        torch.equal(weights[n], weights2[n]) for n in weights
    )


def test_two_legs_are_one_to_the_bit(whole: Path, pools: Path, tmp_path: Path) -> None:
    settings = run_folder.read_settings(whole)
    first = tiny.run(settings, tmp_path, pools, limits=Limits(steps=4))
    assert (first.ending, first.step) == (Ending.BUDGET, 4)
    assert not same(whole, tmp_path)
    second = tiny.run(settings, tmp_path, pools, resume=True)
    assert (second.step, second.leg_steps) == (8, 4)
    rows = Ledger(tmp_path).runs()
    assert [(row["leg"], row["steps"]) for row in rows] == [(1, 4), (2, 8)]
    assert rows[-1]["journal"] == Ledger(whole).runs()[0]["journal"] != rows[0]["journal"]
    assert same(whole, tmp_path)
    assert digest_journal(whole / JOURNAL_FILE) == digest_journal(tmp_path / JOURNAL_FILE)
    files = [sorted(f.name for f in (out / "step-0000008").iterdir()) for out in (whole, tmp_path)]
    assert files[0] == files[1] == ["state-1.safetensors", "weights.safetensors"]


@pytest.mark.parametrize("forgotten", ["taken", "optimiser.stale.0", "optimiser.square.1"])
def test_each_part_of_the_state_matters(
    saddle: Path, half: Path, pools: Path, forgotten: str
) -> None:
    """Negative control: a leg that forgets one thing ends elsewhere."""
    leg, state, weights = run_folder.load(half)
    if forgotten == "taken":
        leg.progress["taken"] = [n + 1 for n in leg.progress["taken"]]
    else:
        state[forgotten] = torch.zeros_like(state[forgotten])
    run_folder.save(half, leg, state, weights)
    tiny.run(tiny.SETTINGS, half, pools, resume=True)
    assert not same(saddle, half)


def test_a_leg_killed_after_its_checkpoint_goes_on_from_there(
    saddle: Path, half: Path, pools: Path
) -> None:
    """The journal then has lines of steps that are done anew."""
    for name in (JOURNAL_FILE, "sweeps.csv", "sweeps.sqlite"):
        shutil.copy(saddle / name, half / name)
    tiny.run(tiny.SETTINGS, half, pools, resume=True)
    assert same(saddle, half)
    assert digest_journal(saddle / JOURNAL_FILE) == digest_journal(half / JOURNAL_FILE)
    assert [row["run"] for row in Ledger(half).runs()] == ["saddle-0-0000008", "saddle-0-0000008.2"]


def test_what_a_run_leaves(whole: Path) -> None:
    leg, _, _ = run_folder.load(whole)
    steps = read_steps(whole / JOURNAL_FILE)
    assert steps["step"] == list(range(1, 9))
    assert steps["lr"] == pytest.approx([leg.settings.learning_rate(i) for i in range(8)])
    for name in ("loss", "spec_guard_hits", "projection_distance", "max_rho_dt", "coverage_min"):
        assert all(value is not None for value in steps[name]), name
    measured = [step for step, gap in zip(steps["step"], steps["DualGap"], strict=True) if gap]
    assert measured == [3, 6, 8]
    for name in ("lambda_lip_before", "lambda_lip_after", "martingale_residual", "mfm_mse"):
        assert steps[name][2] is not None, name
    if leg.settings.route == "saddle":
        for name in ("no_arbitrage", "martingale", "replication", "dual_residual"):
            assert steps[name][0] is not None, name
    (row,) = Ledger(whole).runs()
    assert (row["route"], row["ended"]) == (leg.settings.route, "budget")
    assert (row["leg"], row["steps"]) == (1, 8)
    assert row["journal"] == digest_journal(whole / JOURNAL_FILE)
    assert row["heldout_rmse_bp"] == leg.metrics["heldout_rmse_bp"]
    assert {"relative_entropy", "cvar_alignment"} <= row["metrics"].keys()


def test_scans_are_logged_beside_their_bounds(whole: Path) -> None:
    steps = read_steps(whole / JOURNAL_FILE)
    info = checkpoint.load(whole / "step-0000008" / "weights.safetensors")[1]
    (row,) = Ledger(whole).runs()
    for name, bound in (("green_sum", "green_bound"), ("state_norm", "state_bound")):
        pairs = list(zip(steps[name], steps[bound], strict=True))
        measured = {step: pair for step, pair in enumerate(pairs, start=1) if pair != (None, None)}
        assert list(measured) == [3, 6, 8]
        for value, limit in measured.values():
            assert value is not None
            assert limit is not None
            assert 0.0 < value < limit
        assert info["metrics"][name] == row[name] == pytest.approx(pairs[-1][0], rel=1e-8)
        assert info["metrics"][bound] == row[bound] == pytest.approx(pairs[-1][1], rel=1e-8)


def test_a_scan_that_breaks_its_bound_is_told(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Inputs ten times as strong as the step allows."""
    trainer = Trainer(tiny.SETTINGS, tiny.laws())
    held_out = HeldOut(tiny.SETTINGS, tiny.laws(12, 777), trainer.route.make_lesson)
    sound = held_out.measure_scan_bounds(trainer.network)
    assert sound["green_sum"] < sound["green_bound"]
    assert caplog.messages == []
    strength = GreenScan.strength
    monkeypatch.setattr(GreenScan, "strength", lambda *given: 10.0 * strength(*given))
    broken = held_out.measure_scan_bounds(trainer.network)
    assert broken["green_sum"] > broken["green_bound"] == pytest.approx(sound["green_bound"])
    assert ["exceeds its proved bound" in told for told in caplog.messages] == [True]


def test_weights_are_the_average_and_say_where_they_come_from(whole: Path) -> None:
    leg, state, _ = run_folder.load(whole)
    path = whole / "step-0000008" / "weights.safetensors"
    network = Network(leg.settings.config)
    weights, info = checkpoint.load(path, like=network.state_dict())
    assert info["config"] == leg.settings.config.to_dict()
    assert info["data_hash"] == leg.data_hash != ""
    assert info["training"]["route"] == leg.settings.route
    assert info["metrics"]["heldout_rmse_bp"] > 0.0
    assert any(not torch.equal(weights[name], state[f"param.{name}"]) for name in weights)
    assert FirstDesign.load(path).config == leg.settings.config


def test_it_learns(pools: Path, tmp_path: Path) -> None:
    settings = tiny.settings(steps=24, warm=4, decay=12, lr=1e-2, measure_every=24, average=0.8)
    tiny.run(settings, tmp_path, pools)
    told = [x for x in read_steps(tmp_path / JOURNAL_FILE)["heldout_rmse_bp"] if x is not None]
    trainer = Trainer(settings, tiny.laws())
    held_out = HeldOut(settings, tiny.laws(12, 777), trainer.route.make_lesson)
    start = held_out.measure(trainer.network)["heldout_rmse_bp"]
    assert told[-1] < 0.7 * start


def test_another_seed_is_another_run(pools: Path, tmp_path: Path) -> None:
    for seed in (0, 1):
        tiny.run(tiny.settings(seed=seed, steps=2, decay=0), tmp_path / str(seed), pools)
    assert not same(tmp_path / "0", tmp_path / "1")


def test_a_constant_leg_is_finished_by_a_decay(pools: Path, tmp_path: Path) -> None:
    steady = tiny.settings(steps=3, decay=0)
    tiny.run(steady, tmp_path, pools)
    with pytest.raises(ValueError, match="3 of 3 steps are done: give more steps"):
        tiny.run(steady, tmp_path, pools, resume=True)
    tiny.run(replace(steady, steps=6, decay=3), tmp_path, pools, resume=True)
    rates = read_steps(tmp_path / JOURNAL_FILE)["lr"]
    assert rates[2] == steady.lr
    assert rates[5] is not None
    assert rates[5] < 0.1 * steady.lr


def test_what_cannot_be_resumed_is_refused(saddle: Path, pools: Path, tmp_path: Path) -> None:
    settings = run_folder.read_settings(saddle)
    with pytest.raises(ValueError, match="holds a run: resume it"):
        tiny.run(settings, saddle, pools)
    more = replace(settings, steps=10)
    with pytest.raises(ValueError, match="seed was 0, is 3"):
        tiny.run(replace(more, seed=3), saddle, pools, resume=True)
    with pytest.raises(ValueError, match="config was"):
        tiny.run(more.apply_ablation("rank_half"), saddle, pools, resume=True)
    with pytest.raises(CheckpointError, match="holds no run to resume"):
        tiny.run(settings, tmp_path, pools, resume=True)


def test_damage_is_found(saddle: Path, pools: Path, tmp_path: Path) -> None:
    settings = replace(run_folder.read_settings(saddle), steps=10)
    state = "step-0000008/state-1.safetensors"

    def damaged(name: str) -> Path:
        out = tmp_path / name
        shutil.copytree(saddle, out)
        return out

    out = damaged("flipped")
    content = bytearray((out / state).read_bytes())
    content[-5] ^= 1
    (out / state).write_bytes(content)
    with pytest.raises(CheckpointError, match="checksum"):
        tiny.run(settings, out, pools, resume=True)
    out = damaged("gone")
    (out / state).unlink()
    with pytest.raises(CheckpointError, match="is missing"):
        tiny.run(settings, out, pools, resume=True)
    out = damaged("mixed")
    tiny.run(settings, out, pools, resume=True)
    shutil.copy(saddle / state, out / "step-0000010" / "state-1.safetensors")
    with pytest.raises(CheckpointError, match="different steps"):
        tiny.run(replace(settings, steps=12), out, pools, resume=True)
    out = damaged("foreign")
    (out / "run.json").write_text('{"format": "other"}', encoding="utf-8")
    with pytest.raises(CheckpointError, match="not a run of this version"):
        tiny.run(settings, out, pools, resume=True)


def test_a_run_killed_before_its_first_checkpoint_begins_anew(
    saddle: Path, pools: Path, tmp_path: Path
) -> None:
    shutil.copy(saddle / JOURNAL_FILE, tmp_path / JOURNAL_FILE)
    tiny.run(tiny.settings(steps=1, decay=0), tmp_path, pools)
    assert read_steps(tmp_path / JOURNAL_FILE)["step"] == [1]
    foreign = tmp_path / "foreign"
    foreign.mkdir()
    (foreign / JOURNAL_FILE).write_text("mine\n", encoding="utf-8")
    with pytest.raises(ValueError, match="is no journal of steps"):
        tiny.run(tiny.SETTINGS, foreign, pools)
    assert (foreign / JOURNAL_FILE).read_text(encoding="utf-8") == "mine\n"


def test_large_states_come_in_several_files(
    saddle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    leg, state, weights = run_folder.load(saddle)
    monkeypatch.setattr(run_folder, "MAX_FILE_BYTES", 4000)
    run_folder.save(tmp_path, leg, state, weights)
    files = list((tmp_path / "step-0000008").glob("state-*"))
    assert len(files) > 3
    _, back, _ = run_folder.load(tmp_path)
    assert all(torch.equal(back[name], state[name]) for name in state)


def test_time_ends_a_leg_and_says_so(pools: Path, tmp_path: Path) -> None:
    outcome = tiny.run(tiny.SETTINGS, tmp_path, pools, limits=Limits(seconds=1e-9))
    assert (outcome.ending, outcome.step) == (Ending.TIME, 1)
    assert "resume" in outcome.to_dict()["meaning"]
    assert json.loads((tmp_path / "run.json").read_text(encoding="utf-8"))["ended"] == "time"


def test_a_score_that_stays_is_a_plateau(pools: Path, tmp_path: Path) -> None:
    still = tiny.settings(lr=1e-9, plateau=1e-9, measure_every=2, decay=0)
    assert tiny.run(still, tmp_path / "still", pools).ending is Ending.PLATEAU
    falling = replace(still, decay=8)
    assert tiny.run(falling, tmp_path / "falling", pools).ending is Ending.BUDGET


@pytest.mark.parametrize("fair", [True, False])
def test_converged_needs_the_thresholds_and_the_martingale_test(
    pools: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fair: bool
) -> None:
    def lenient(**given: float) -> Thresholds:
        return Thresholds(gap_change=1e9, dual_residual=1e9, patience=1, **given)

    settings = tiny.settings(measure_every=1, steps=4, decay=0)
    monkeypatch.setattr(loop, "Thresholds", lenient)
    monkeypatch.setattr(HeldOut, "run_martingale_test", lambda *_, **__: fair)
    outcome = tiny.run(settings, tmp_path, pools)
    expected = (Ending.CONVERGED, 2) if fair else (Ending.BUDGET, 4)
    assert (outcome.ending, outcome.step) == expected


def test_slices_of_low_coverage_are_told(pools: Path, tmp_path: Path) -> None:
    tiny.run(tiny.settings(steps=2, decay=0).apply_ablation("representer"), tmp_path, pools)
    steps = read_steps(tmp_path / JOURNAL_FILE)
    assert steps["enter_representer_at_step"] == [1, 1]
    (trigger,) = set(steps["coverage_at_trigger"])
    assert trigger == steps["coverage_min"][0]
    assert trigger is not None
    assert 0.0 < trigger < MIN_COVERAGE


def test_a_revision_can_be_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """A copy of the code on another machine may lie in a repository of another state."""
    monkeypatch.setattr(loop, "read_revision", lambda: "def-dirty")
    assert loop.find_revision() == "def-dirty"
    monkeypatch.setenv("ARBITER_REVISION", "abc")
    assert loop.find_revision() == "abc"


def test_a_request_to_stop_is_heard_after_the_step(
    pools: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    step = Trainer.step

    def asked(self: Trainer, *, measure: bool = False) -> Any:
        if self.steps == 2:
            os.kill(os.getpid(), signal.SIGINT)
        return step(self, measure=measure)

    before = signal.getsignal(signal.SIGINT)
    monkeypatch.setattr(Trainer, "step", asked)
    outcome = tiny.run(tiny.SETTINGS, tmp_path, pools)
    assert (outcome.ending, outcome.step) == (Ending.INTERRUPTED, 3)
    assert "stopping after this step" in capsys.readouterr().err
    assert signal.getsignal(signal.SIGINT) is before
    monkeypatch.undo()
    assert tiny.run(tiny.SETTINGS, tmp_path, pools, resume=True).step == 8


def test_what_diverges_keeps_its_checkpoint(half: Path, pools: Path) -> None:
    leg, state, weights = run_folder.load(half)
    state["optimiser.steps"].fill_(200)  # a step at which numbers are looked at
    name = "param.base.bias"  # which Q-Align does not bring back
    state[name] = torch.full_like(state[name], math.inf)
    with pytest.raises(ValueError, match="not finite: nothing is saved"):
        run_folder.save(half, leg, state, weights)
    state[name] = torch.full_like(state[name], 3e38)
    run_folder.save(half, replace(leg, step=200), state, weights)
    steps = replace(tiny.SETTINGS, steps=300)
    for last in (300, 201):  # found at the next look, or at the end
        with pytest.raises(FloatingPointError, match="The last one is of step 200"):
            tiny.run(replace(steps, steps=last, measure_every=100), half, pools, resume=True)
    assert run_folder.load(half)[0].step == 200


def test_a_pool_that_is_another_is_told(half: Path, pools: Path, tmp_path: Path) -> None:
    fresh = tiny.settings(pool_seed=5)
    tiny.kept(tmp_path / "pools", fresh)
    once: Any = {"resume": True, "limits": Limits(steps=1)}
    outcome = tiny.run(fresh, half, tmp_path / "pools", **once)
    assert "another one" in outcome.notes[0]
    rounded = tiny.laws()
    pool_files.save_pool(replace(rounded, iv=rounded.iv * (1.0 + 1e-6)), 5, tmp_path / "pools")
    outcome = tiny.run(fresh, half, tmp_path / "pools", **once)
    assert "but for rounding" in outcome.notes[0]
    assert tiny.run(fresh, half, tmp_path / "pools", resume=True).notes == ()
    assert len(run_folder.load(half)[0].data) == 4


def test_pools_are_kept_and_checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = []

    def make(*arguments: object) -> Laws:
        made.append(arguments)
        return tiny.laws(6, 1)

    monkeypatch.setattr(pool_files, "make_laws", make)
    first = load_pool(6, 1, tmp_path)
    again = load_pool(6, 1, tmp_path)
    assert len(made) == 1
    assert first.content == again.content
    assert np.array_equal(first.laws.iv.numpy(), again.laws.iv.numpy(), equal_nan=True)
    load_pool(6, 1, tmp_path, refresh=True)
    assert len(made) == 2
    (file,) = tmp_path.glob("*/iv.npy")
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)
    with pytest.raises(ValueError, match="not those it was written with: remove"):
        load_pool(6, 1, tmp_path)
    file.write_bytes(content[:200])
    with pytest.raises(ValueError, match="cannot be read"):
        load_pool(6, 1, tmp_path)
    monkeypatch.setattr(pool_files, "code_version", lambda: "other")
    load_pool(6, 1, tmp_path)
    assert len(made) == 3, "a pool of other code was read"


def test_batches_do_not_depend_on_when_they_are_drawn() -> None:
    def stream(start: int) -> list[Any]:
        draws = BatchStream(tiny.SETTINGS, tiny.laws(), make_route(tiny.SETTINGS).make_lesson)
        found = []
        for step in range(12):
            if step == start:
                taken = draws.taken
                draws = BatchStream(
                    tiny.SETTINGS, tiny.laws(), make_route(tiny.SETTINGS).make_lesson
                )
                draws.go_to(taken)
            found.append(draws.next_lesson(step))
        return found

    plain, broken = stream(99), stream(5)
    assert {draw.kind for draw in plain} == {0, 1}
    for one, other in zip(plain, broken, strict=True):
        assert one.kind == other.kind
        assert all(torch.equal(a, b) for a, b in zip(one.lesson, other.lesson, strict=True))
    first = [draw.lesson for draw in plain if draw.kind == 0]
    assert not torch.equal(first[0][3], first[1][3])
    assert torch.equal(first[0][3], first[tiny.SETTINGS.chunk][3])  # the second pass
    once = BatchStream(
        replace(tiny.SETTINGS, passes=1), tiny.laws(), make_route(tiny.SETTINGS).make_lesson
    )
    fresh = [draw.lesson for draw in map(once.next_lesson, range(12)) if draw.kind == 0]
    assert not torch.equal(fresh[0][3], fresh[tiny.SETTINGS.chunk][3])
    with pytest.raises(ValueError, match="no counts"):
        BatchStream(tiny.SETTINGS, tiny.laws(), make_route(tiny.SETTINGS).make_lesson).go_to([1])


@given(st.lists(st.floats(-3.0, 3.0), min_size=1, max_size=20), st.floats(0.0, 0.99))
def test_the_average_is_one(values: list[float], decay: float) -> None:
    """An average lies within its values; with a memory longer than the run it is their mean."""
    theta = torch.zeros(1, dtype=torch.float64, requires_grad=True)
    means = [ParameterAverage([theta], decay), ParameterAverage([theta], 1.0 - 1e-9)]
    for step, value in enumerate(values, start=1):
        with torch.no_grad():
            theta.fill_(value)
        for mean in means:
            mean.update(step)
    assert min(values) - 1e-9 <= float(means[0].mean[0]) <= max(values) + 1e-9
    assert float(means[1].mean[0]) == pytest.approx(np.mean(values), abs=1e-6)
    assert not means[0].mean[0].requires_grad


def test_recordings_off_the_gpu_are_the_function() -> None:
    twice = RecordedFunction(lambda x: [2.0 * x], [torch.ones(3)])
    assert torch.equal(twice(torch.arange(3.0))[0], 2.0 * torch.arange(3.0))
    with pytest.raises(ValueError, match="record again for another shape"):
        twice(torch.ones(4))
    with pytest.raises(ValueError, match="recorded with 1 inputs, called with 0"):
        twice()


@given(st.integers(0, 50), st.integers(0, 50), st.integers(1, 200), st.floats(1e-5, 1e-1))
def test_the_rate_rises_stays_and_falls(warm: int, decay: int, steps: int, lr: float) -> None:
    settings = tiny.settings(warm=warm, decay=min(decay, steps), steps=steps, lr=lr)
    rates = [settings.learning_rate(step) for step in range(steps)]
    assert all(0.0 < rate <= lr * (1 + 1e-12) for rate in rates)
    start, end = warm, steps - settings.decay
    assert all(rate == lr for rate in rates[start:end])
    assert all(b > a for a, b in itertools.pairwise(rates[: min(start, end)]))
    falling = rates[max(start, end) :]
    assert all(b < a for a, b in itertools.pairwise(falling))
    if settings.decay > 10:
        assert rates[-1] < 0.01 * lr


def test_settings_survive_their_file(tmp_path: Path) -> None:
    for settings in (
        Settings(),
        tiny.SETTINGS,
        *(tiny.SETTINGS.apply_ablation(n) for n in ABLATIONS),
    ):
        path = tmp_path / "settings.json"
        path.write_text(json.dumps(settings.to_dict()), encoding="utf-8")
        assert Settings.read(path) == settings
    assert {tiny.SETTINGS.apply_ablation(name).ablation for name in ABLATIONS} == set(ABLATIONS)


@pytest.mark.parametrize(
    ("values", "told"),
    [
        ({"stepz": 3}, "stepz unknown; there are config, route"),
        ({"config": {"hats": 3}}, "config: hats unknown"),
        ({"config": {"heads": 0}}, "heads = 0"),
        ({"steps": 0}, "steps = 0 must be a whole number of at least one"),
        ({"steps": 2.5}, "steps = 2.5"),
        ({"decay": 30, "steps": 20}, "decay = 30 is longer than the 20 steps"),
        ({"route": "flow"}, "route = 'flow': give one of saddle, mfm"),
        ({"route": "mfm", "config": {"decoder": "icnn"}}, "needs decoder 'transport'"),
        ({"mix": [1.0]}, "give one share for each"),
        ({"mix": [0.5, 0.2, 0.1, 0.1, 0.0]}, "add up to one"),
        ({"layouts": [[1, 8, 8, 4]], "mix": [1.0]}, "layout [1, 8, 8, 4]: give expiries"),
        ({"layouts": [[4, 8, 8]], "mix": [1.0]}, "layout [4, 8, 8]"),
        ({"pool_seed": 777}, "the held-out laws would be those trained on"),
        ({"lr": -1.0}, "lr = -1.0 must be a positive number"),
        ({"plateau": -1.0}, "plateau = -1.0"),
        ({"mode": "adamw"}, "mode"),
        ({"betas": [0.9]}, "betas"),
        ([1, 2], "settings = [1, 2] must be an object of values by name"),
        ({"config": [1]}, "settings: config = [1] must be an object"),
        ({"config": {"heads": "8"}}, "settings: heads = '8' must be a whole number"),
        ({"lr": "fast"}, "lr = 'fast' must be a positive number"),
        ({"clip": "none"}, "clip = 'none' must be a positive number"),
        ({"average": 1.0}, "average = 1.0 must be a share"),
        ({"average": None}, "average = None must be a number"),
        ({"plateau": "soon"}, "plateau = 'soon' must be a number"),
        ({"vix_term": "no"}, "vix_term = 'no' must be true or false"),
        ({"ablation": 3}, "ablation = 3 must be text"),
        ({"model": ["gru"]}, "model = ['gru']: give one of"),
        ({"betas": "ab"}, "betas = 'ab' must be a list of numbers"),
        ({"mix": {"a": 1}}, "mix = {'a': 1} must be a list of numbers"),
        ({"layouts": "all"}, "layouts = 'all' must be a list of layouts"),
        ({"layouts": [4]}, "layouts = (4,) must be a list of layouts"),
    ],
)
def test_settings_that_make_no_sense_are_named(values: dict[str, Any], told: str) -> None:
    with pytest.raises(ValueError, match=re.escape(told)):
        Settings.from_dict(values)


def test_a_bare_machine_can_train(pools: Path, tmp_path: Path) -> None:
    """No tables, no terminal library, no command line: what the GPU machine has."""
    file = tmp_path / "settings.json"
    file.write_text(json.dumps(tiny.settings(steps=2, decay=0).to_dict()), encoding="utf-8")
    program = f"""
import sys
for name in ("polars", "rich", "typer", "pandas", "matplotlib", "plotly", "pyarrow"):
    sys.modules[name] = None
from arbiter_lab.training.__main__ import main
out, pools = {str(tmp_path / "run")!r}, {str(pools)!r}
code = main(["--settings", {str(file)!r}, "--out", out, "--pool", pools, "--leg-steps", "1"])
assert code == 0
code = main(["--resume", out, "--out", out + "2", "--pool", pools, "--steps", "3", "--decay", "1"])
assert code == 0
assert main(["--resume", out, "--out", out + "2", "--pool", pools]) == 2
assert main(["--resume", "--out", out + "2", "--pool", pools, "--steps", "4"]) == 0
"""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "holds a run already" in done.stderr
    assert [leg.step for leg in map(_leg, ("run", "run2"), [tmp_path] * 2)] == [1, 4]


def _leg(name: str, folder: Path) -> TrainingLeg:
    return run_folder.load(folder / name)[0]
