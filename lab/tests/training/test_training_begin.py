"""A run that begins from trained weights: it takes these over, says so, and refuses others."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import tiny
from arbiter.operators.checkpoint import CheckpointError
from arbiter_lab.differentiable.operators import checkpoint
from arbiter_lab.training import run_folder
from arbiter_lab.training.__main__ import main
from arbiter_lab.training.journal import fingerprint_tensors
from arbiter_lab.training.loop import train
from arbiter_lab.training.run_folder import RUN_FILE


@pytest.fixture(scope="module")
def pools(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.kept(tmp_path_factory.mktemp("pools"))


@pytest.fixture(scope="module")
def trained(pools: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the weights file of a short training."""
    return tiny.run(tiny.SETTINGS, tmp_path_factory.mktemp("first"), pools).weights


STILL = replace(tiny.SETTINGS, steps=1, warm=0, decay=0, lr=1e-12, seed=5)


def test_what_it_begins_with_is_taken_over(trained: Path, pools: Path, tmp_path: Path) -> None:
    known = checkpoint.load(trained)[0]
    begun = train(STILL, tmp_path / "on", pool=pools, begin=trained)
    found, card = checkpoint.load(begun.weights)
    for name, tensor in known.items():
        torch.testing.assert_close(found[name], tensor, rtol=0.0, atol=1e-6)
    assert card["begun"] == fingerprint_tensors(known)
    anew, other = checkpoint.load(train(STILL, tmp_path / "anew", pool=pools).weights)
    assert other["begun"] == ""
    assert any(float((anew[name] - known[name]).abs().max()) > 1e-2 for name in known)


def test_a_run_that_goes_on_remembers_where_it_began(
    trained: Path, pools: Path, tmp_path: Path
) -> None:
    tiny.run(tiny.SETTINGS, tmp_path / "a", pools)
    train(STILL, tmp_path / "b", pool=pools, begin=trained)
    more = replace(STILL, steps=2)
    train(more, tmp_path / "b", pool=pools, resume=True)
    begun = fingerprint_tensors(checkpoint.load(trained)[0])
    assert json.loads((tmp_path / "b" / RUN_FILE).read_text())["begun"] == begun
    assert run_folder.load(tmp_path / "b")[0].begun == begun
    assert run_folder.load(tmp_path / "a")[0].begun == ""


def test_what_does_not_belong_is_refused(trained: Path, pools: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="has weights of its own; leave one out"):
        train(STILL, tmp_path / "a", pool=pools, begin=trained, resume=True)
    with pytest.raises(ValueError, match="only an operator begins so"):
        train(replace(STILL, model="gru"), tmp_path / "a", pool=pools, begin=trained)
    other = replace(STILL, config=replace(STILL.config, width=12))
    with pytest.raises(CheckpointError, match="saved by another configuration"):
        train(other, tmp_path / "a", pool=pools, begin=trained)
    with pytest.raises(FileNotFoundError):
        train(STILL, tmp_path / "a", pool=pools, begin=tmp_path / "none.safetensors")
    assert not (tmp_path / "a").exists()


def test_from_the_shell(trained: Path, pools: Path, tmp_path: Path) -> None:
    file = tmp_path / "settings.json"
    file.write_text(json.dumps(STILL.to_dict()))
    options = ["--settings", str(file), "--pool", str(pools), "--begin", str(trained)]
    assert main([*options, "--out", str(tmp_path / "run")]) == 0
    assert run_folder.load(tmp_path / "run")[0].begun
    trained_not = [*options[:-1], str(file)]
    assert main([*trained_not, "--out", str(tmp_path / "other")]) == 2
