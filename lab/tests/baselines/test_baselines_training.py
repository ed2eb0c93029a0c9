"""Baselines learn from the operator's batches, in legs that are one, and come back from files."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from test_baselines_networks import quotes
from torch import Tensor
from typer.testing import CliRunner

import tiny
from arbiter.cli import app
from arbiter.operators.checkpoint import CheckpointError
from arbiter.operators.pretrained import Operator
from arbiter_lab.baselines.matched_size import BASELINE_NAMES, Design
from arbiter_lab.baselines.readout import Readout
from arbiter_lab.baselines.trained_baseline import Baseline
from arbiter_lab.differentiable.operators import checkpoint
from arbiter_lab.differentiable.operators.network.config import Config
from arbiter_lab.differentiable.operators.prior.gaussian_process import Kriged
from arbiter_lab.differentiable.operators.prior.reference_volatility import Scaled
from arbiter_lab.training import run_folder
from arbiter_lab.training.held_out import HeldOut
from arbiter_lab.training.journal import digest_journal, read_steps
from arbiter_lab.training.ledger import Ledger
from arbiter_lab.training.loop import Limits
from arbiter_lab.training.objective import robust_loss
from arbiter_lab.training.regression import BaselineTrainer, RegressionRoute
from arbiter_lab.training.run_folder import JOURNAL_FILE
from arbiter_lab.training.settings import ABLATIONS, Settings
from arbiter_lab.training.trainer import Trainer
from device_waits import Waits

each_model = pytest.mark.parametrize("model", BASELINE_NAMES)


@pytest.fixture(scope="module")
def pools(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.kept(tmp_path_factory.mktemp("pools"))


@pytest.fixture(scope="module", params=BASELINE_NAMES)
def whole(
    request: pytest.FixtureRequest, pools: Path, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """A run in one leg."""
    out = tmp_path_factory.mktemp("runs") / str(request.param)
    tiny.run(tiny.settings(model=request.param), out, pools)
    return out


class Told(Readout):
    """A network whose output is a given tensor, for any input."""

    def __init__(self, u: Tensor) -> None:
        super().__init__()
        self.u = u

    def encode(self, chain: Scaled, guess: Kriged | None = None) -> tuple[Tensor, ...]:
        return ()

    def query_volatility(self, memory: tuple[Tensor, ...], zeta: Tensor) -> Tensor:
        return self.u

    def select_maturities(self, memory: tuple[Tensor, ...], rows: Tensor) -> tuple[Tensor, ...]:
        return memory


@each_model
def test_it_learns(model: str) -> None:
    """On held-out laws the loss falls, and volatilities are better than a flat smile's."""
    steps = 32 if model == "ssm" else 60
    settings = tiny.settings(model=model, steps=steps, warm=4, decay=10, lr=1e-2, average=0.8)
    learner = BaselineTrainer(settings, tiny.laws())
    held_out = HeldOut(settings, tiny.laws(12, 777), learner.route.make_lesson)

    def told(network: Readout) -> tuple[float, float]:
        loss = float(learner.route.evaluate(network, held_out.lesson).fit)
        return loss, held_out.measure(network)["heldout_rmse_bp"]

    with torch.no_grad():
        start = told(learner.network)
        for _ in range(steps):
            learner.step()
        end = told(learner.averaged_network())
    assert end[0] < 0.8 * start[0]
    assert end[1] < 0.8 * start[1]
    flat = [
        (exam.chain.sigma[..., None] - exam.batch.target_iv)[exam.batch.target]
        for exam in held_out.exams
    ]
    assert end[1] < 0.75 * 1e4 * float(torch.cat(flat).square().mean().sqrt())


def test_the_batches_are_the_operators(pools: Path) -> None:
    """Same seed, same chains, same targets and weights, step by step."""
    operator = Trainer(tiny.SETTINGS, tiny.laws())
    chain = len(Scaled._fields)
    for model in BASELINE_NAMES:
        learner = BaselineTrainer(tiny.settings(model=model), tiny.laws())
        for step in range(3):
            kind, lesson = operator.draws.next_lesson(step)
            other, own = learner.draws.next_lesson(step)
            assert other == kind
            assert all(torch.equal(a, b) for a, b in zip(own[:chain], lesson[:chain], strict=True))
            k, weight = lesson[chain], lesson[chain + 3]
            zeta = torch.asinh(k * torch.exp(-lesson[1])[..., None])
            assert torch.equal(own[chain], zeta)
            assert torch.equal(own[chain + 2], weight)
        operator.draws.go_to([0, 0])


def test_the_loss_is_the_robust_error_of_volatility() -> None:
    settings = tiny.settings(model="gru")
    route = RegressionRoute(settings)
    learner = BaselineTrainer(settings, tiny.laws())
    lesson = learner.draws.next_lesson(0).lesson
    _, wanted, weight = lesson[-3:]
    perfect = route.evaluate(Told(torch.log(wanted)), lesson)
    assert float(perfect.fit) == pytest.approx(0.0, abs=1e-9)
    assert perfect.defects == {}
    off = route.evaluate(Told(torch.log(1.01 * wanted)), lesson)
    listed = weight > 0.0
    expected = robust_loss((0.01 * wanted * weight)[listed], settings.knee).mean()
    assert float(off.fit) == pytest.approx(float(expected), rel=1e-4)


def test_two_legs_are_one_to_the_bit(whole: Path, pools: Path, tmp_path: Path) -> None:
    settings = run_folder.read_settings(whole)
    tiny.run(settings, tmp_path, pools, limits=Limits(steps=4))
    first = run_folder.load(tmp_path)
    tiny.run(settings, tmp_path, pools, resume=True)
    one, two = run_folder.load(whole), run_folder.load(tmp_path)
    for was, halfway, now in zip(one[1:], first[1:], two[1:], strict=True):
        assert all(torch.equal(was[name], now[name]) for name in was)
        assert any(not torch.equal(was[name], halfway[name]) for name in was)  # negative control
    assert digest_journal(whole / JOURNAL_FILE) == digest_journal(tmp_path / JOURNAL_FILE)


def test_what_a_run_leaves(whole: Path) -> None:
    leg = run_folder.load(whole)[0]
    model = leg.settings.model
    steps = read_steps(whole / JOURNAL_FILE)
    assert all(value is not None for value in steps["loss"])
    assert steps["heldout_rmse_bp"][-1] is not None
    none = ("lambda_lip_after", "martingale_residual", "spec_guard_hits", "martingale", "green_sum")
    for name in none:
        assert set(steps[name]) == {None}, name
    (row,) = Ledger(whole).runs()
    assert (row["run"], row["route"]) == (f"{model}-0-0000008", "regression")
    info = checkpoint.load(whole / "step-0000008" / "weights.safetensors")[1]
    assert Design.from_dict(info["config"]) == leg.settings.design
    assert info["training"]["model"] == model
    assert info["data_hash"] == leg.data_hash != ""
    assert (info["seed"], info["revision"]) == (0, leg.revision)
    assert info["metrics"]["heldout_rmse_bp"] > 0.0


def test_a_checkpoint_answers_as_the_network_that_was_trained(whole: Path) -> None:
    settings = run_folder.read_settings(whole)
    learner = BaselineTrainer(settings, tiny.laws())
    learner.load(*run_folder.load(whole)[1:], run_folder.load(whole)[0].progress)
    design = settings.design
    assert design is not None
    weights = whole / "step-0000008" / "weights.safetensors"
    loaded = Baseline.load(weights)
    assert loaded.model == Baseline(learner.averaged_network(), design).model
    assert loaded.card["config"]["model"] == settings.model
    assert repr(loaded).startswith(f"Baseline({settings.model}, {loaded.model}, ")
    assert 0.05 < float(loaded(quotes()).iv(0.0, 0.3)) < 0.6
    with pytest.raises(CheckpointError, match="its config is not an operator's"):
        Operator.load(weights)


def test_a_file_that_is_no_baseline_is_refused(whole: Path, pools: Path, tmp_path: Path) -> None:
    weights = whole / "step-0000008" / "weights.safetensors"
    tensors, info = checkpoint.load(weights)

    def refused(told: str, **changes: Any) -> None:
        path = checkpoint.save(tmp_path / "odd.safetensors", tensors, {**info, **changes})
        with pytest.raises(CheckpointError, match=told):
            Baseline.load(path)

    config = info["config"]
    refused("it names no model: it is an operator's", config=Config().to_dict())
    refused("model = 'lstm': give one of", config={**config, "model": "lstm"})
    refused("a design has", config={"model": "gru"})
    refused("config: hats unknown; there are", config={**config, "matched_to": {"hats": 3}})
    other = "gru" if config["model"] != "gru" else "transformer"
    refused("tensors are missing", config={**config, "model": other, "width": 8})
    broken = tmp_path / "broken.safetensors"
    content = bytearray(weights.read_bytes())
    content[-3] ^= 1
    broken.write_bytes(content)
    with pytest.raises(CheckpointError, match="checksum"):
        Baseline.load(broken)
    broken.write_bytes(content[:100])
    with pytest.raises(CheckpointError, match="truncated"):
        Baseline.load(broken)
    with pytest.raises(FileNotFoundError):
        Baseline.load(tmp_path / "nowhere.safetensors")
    assert Path(Operator.pretrained().source).is_file()
    with pytest.raises(CheckpointError, match="it names no model"):
        Baseline.load(Operator.pretrained().source)


@each_model
def test_a_step_can_be_recorded(model: str) -> None:
    """Nothing between the batch and its gradients waits for the device."""
    config = replace(tiny.CONFIG, kriging=True, spans=(0.3,))
    learner = BaselineTrainer(tiny.settings(model=model, config=config), tiny.laws())
    lesson = learner.draws.next_lesson(0).lesson
    learner.differentiate_lesson(*lesson)
    with Waits() as waits:
        learner.differentiate_lesson(*lesson)
    assert waits.seen == []


@each_model
def test_every_parameter_is_trained(model: str) -> None:
    config = replace(tiny.CONFIG, kriging=True, spans=(0.3,))
    learner = BaselineTrainer(tiny.settings(model=model, config=config), tiny.laws())
    before = [p.detach().clone() for p in learner.params]
    for _ in range(3):
        learner.step()
    still = [
        name
        for name, was, now in zip(learner.parameter_names(), before, learner.params, strict=True)
        if torch.equal(was, now)
    ]
    assert still == []


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"model": "lstm"}, "model = 'lstm': give one of operator, law, ssm, gru, transformer"),
        ({"model": "gru", "route": "mfm"}, "route 'mfm' is of the operator, and model is 'gru'"),
        ({"model": "ssm", "config": {"decoder": "icnn"}}, "a plain readout has none"),
    ],
)
def test_settings_that_make_no_sense_are_named(changes: dict[str, Any], told: str) -> None:
    with pytest.raises(ValueError, match=told):
        Settings.from_dict(changes)
    assert Settings.from_dict({}).model == "operator"  # as files of before have it


def test_an_ablation_is_of_the_operator_alone() -> None:
    for name in ABLATIONS:
        with pytest.raises(ValueError, match=r"is of the operator|plain readout"):
            tiny.settings(model="ssm").apply_ablation(name)


def test_another_model_cannot_be_resumed_from_here(whole: Path, pools: Path) -> None:
    settings = run_folder.read_settings(whole)
    other = "gru" if settings.model != "gru" else "ssm"
    with pytest.raises(ValueError, match=f"model was {settings.model}, is {other}"):
        tiny.run(replace(settings, model=other, steps=10), whole, pools, resume=True)
    with pytest.raises(ValueError, match="is no baseline"):
        BaselineTrainer(tiny.SETTINGS, tiny.laws())


def test_one_option_of_the_command_line_trains_a_baseline(pools: Path, tmp_path: Path) -> None:
    file = tmp_path / "small.json"
    small = tiny.settings(steps=2, decay=0, measure_every=2)
    file.write_text(json.dumps(small.to_dict()), encoding="utf-8")

    def told(out: Path, *options: str) -> Any:
        base = ["train", "--out", str(out), "--settings", str(file), "--pool", str(pools)]
        return CliRunner().invoke(app, [*base, *options])

    result = told(tmp_path / "run", "--model", "gru", "--json")
    assert result.exit_code == 0, result.output
    answer = json.loads(result.stdout)
    assert Baseline.load(answer["weights"]).design.model == "gru"
    assert answer["metrics"]["lambda_lip_after"] is None
    shown = told(tmp_path / "shown", "--model", "gru")
    assert "held-out volatility, RMSE" in shown.output
    bad = told(tmp_path / "bad", "--model", "lstm")
    assert bad.exit_code == 2
    assert "model = 'lstm': give one of" in bad.output.replace("\n", " ")
    shutil.rmtree(tmp_path / "run")
