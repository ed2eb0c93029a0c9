"""Networks of the protocol at full size: they fit where they ship, and train where little is."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

import train_protocol
from arbiter_lab.baselines.matched_size import count_parameters
from arbiter_lab.differentiable.operators.network.network import Network
from arbiter_lab.reproduction.models import Checkpoints, list_checkpointed
from arbiter_lab.reproduction.profiles import BASELINES, SMOKE, full_networks, full_settings
from arbiter_lab.training import loop
from arbiter_lab.training.settings import ABLATIONS, Settings

FEW = replace(
    SMOKE.small, pool=8, held_out=6, steps=6, decay=2, warm=1, ramp=1, measure_every=3, save_every=3
)
ABSENT = (
    "exchange_calendars", "jinja2", "llvmlite", "matplotlib", "numba", "pandas", "piqp", "plotly",
    "polars", "pyarrow", "rich", "typer",
)  # fmt: skip


@pytest.fixture
def settings(tmp_path: Path) -> Path:
    path = tmp_path / "few.json"
    path.write_text(json.dumps(FEW.to_dict()))
    return path


def test_all_networks_fit_into_what_may_ship() -> None:
    wanted = full_networks(full_settings())
    assert list(wanted) == ["matched", *ABLATIONS, *BASELINES]
    size = 0
    for settings in wanted.values():
        design = settings.design
        net = Network(settings.config) if design is None else design.build()
        size += 4 * count_parameters(net) + 100_000  # its description beside
    assert size < train_protocol.LARGEST
    budgets = {(s.steps, s.decay, s.pool, s.seed, s.lr) for s in wanted.values()}
    assert len(budgets) == 1


def test_networks_are_trained_one_by_one_and_gone_on_with(
    settings: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    common = [str(out), "--settings", str(settings), "--device", "cpu", "--only", "icnn", "gru"]
    assert train_protocol.main(common) == 0
    made = json.loads((out / "trained.json").read_text())
    assert [made[name]["steps"] for name in ("icnn", "gru")] == [FEW.steps] * 2
    assert train_protocol.main([*common, "no_vix"]) == 0
    assert not list(out.glob("runs/*/step-*"))  # finished: the optimiser's state is gone
    again = json.loads((out / "trained.json").read_text())
    assert (again["gru"], again["icnn"]) == (made["gru"], made["icnn"])
    assert made.keys() < again.keys()
    nets = tmp_path / "nets"
    assert train_protocol.main([str(out), "--ship", str(nets)]) == 0
    found = {entry.name for entry in list_checkpointed(Checkpoints(nets)) if not entry.missing}
    assert found == {"icnn", "icnn_unprojected", "gru", "no_vix"}
    with pytest.raises(SystemExit, match="other settings"):
        train_protocol.main([*common, "--steps", "9"])
    with pytest.raises(SystemExit, match="--only bake: give some of matched"):
        train_protocol.main([str(out), "--only", "bake"])
    assert "3 networks" in capsys.readouterr().out


def test_files_that_are_too_large_do_not_ship(
    settings: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    chosen = [str(out), "--settings", str(settings), "--device", "cpu", "--only", "mfm"]
    assert train_protocol.main(chosen) == 0
    monkeypatch.setattr(train_protocol, "LARGEST", 1_000)
    assert train_protocol.main([str(out), "--ship", str(tmp_path / "nets")]) == 1
    assert not (tmp_path / "nets").exists()


def test_a_slow_network_has_fewer_steps_and_the_same_schedule(
    settings: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    chosen = [str(out), "--settings", str(settings), "--device", "cpu", "--only", "matched"]
    assert train_protocol.main([*chosen, "--seconds", "0"]) == 0  # one step, and the falling rate
    run = json.loads((out / "runs" / "matched" / "run.json").read_text())
    assert run["step"] == run["settings"]["steps"] == 2
    assert run["settings"]["decay"] == 1
    assert run["ended"] == "budget"
    assert train_protocol.main([*chosen, "--seconds", "0"]) == 0
    assert json.loads((out / "runs" / "matched" / "run.json").read_text()) == run


def test_a_network_that_diverges_is_named_and_the_others_go_on(
    settings: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = loop.train

    def train(given: Settings, *rest: object, **more: object) -> object:
        if given.ablation == "mfm":
            raise FloatingPointError("a loss was not finite")
        return plain(given, *rest, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(train_protocol, "train", train)
    out = tmp_path / "out"
    chosen = [str(out), "--settings", str(settings), "--device", "cpu", "--only", "mfm", "no_vix"]
    assert train_protocol.main(chosen) == 1
    made = json.loads((out / "trained.json").read_text())
    assert made["mfm"]["reason"] == "its training diverged: a loss was not finite"
    assert made["no_vix"]["steps"] == FEW.steps


def test_training_needs_neither_tables_nor_terminals(tmp_path: Path) -> None:
    """A machine with a GPU may have PyTorch, NumPy, SciPy and safetensors alone."""
    (tmp_path / "sitecustomize.py").write_text(
        f"import sys\nfor name in {ABSENT!r}:\n    sys.modules[name] = None\n"
    )
    root = Path(__file__).parents[3]
    path = os.pathsep.join(
        [str(tmp_path), str(root / "src"), str(root / "lab" / "src"), str(root / "tools")]
    )
    code = (
        "import arbiter_lab.training.__main__, train_protocol as t\n"
        "from arbiter_lab.reproduction.profiles import full_networks, full_settings\n"
        "[s.design for s in full_networks(full_settings()).values()]\n"
        "import sys\n"
        "try:\n    import polars\nexcept ImportError:\n    sys.exit(0)\nsys.exit('not blocked')"
    )
    environment = {**os.environ, "PYTHONPATH": path}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
