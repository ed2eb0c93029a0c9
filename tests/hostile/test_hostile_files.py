"""Damaged chains, surfaces and checkpoints end with what they are, or with a sentence."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

import arbiter as ab
from arbiter.data import example_chain_path
from arbiter.operators import checkpoint
from arbiter.pricing.vix_slices import VixSlices
from counts import count
from hostile_cases import judge, require_clean

INFO = {
    "config": {"a": [1, 2]},
    "data_hash": "x",
    "seed": 1,
    "revision": "r",
    "metrics": {"m": None},
}


def test_damaged_chain_files_are_read_or_refused(tmp_path: Path) -> None:
    found = judge("chain_file", count(full=50_000, reduced=350), tmp_path)
    require_clean(found)
    assert {"read", "refused", "exit 2"} <= set(found["counts"])  # it reaches every end


@pytest.fixture(scope="module")
def surfaces(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A surface of each kind that a file can have."""
    folder = tmp_path_factory.mktemp("surfaces")
    plain = ab.example()
    plain.save(folder / "plain.npz")
    vix = VixSlices.of([-3.0, 0.0, 3.0], [0.1], [[0.25, 0.3, 0.4]])
    plain.with_vix(vix).save(folder / "vix.npz")
    quotes = ab.read_chain(example_chain_path()).quotes()
    few = quotes.select(np.isin(quotes.expiry, (2, 6, 12)))
    ab.fit(few).save(folder / "fit.npz")
    ab.fit(few, options=ab.FitOptions(components=2)).save(folder / "mixture.npz")
    ab.Operator.pretrained()(few).save(folder / "operator.npz")
    return folder


def test_tampered_surfaces_load_as_surfaces_or_not_at_all(surfaces: Path) -> None:
    found = judge("surface_file", count(full=5_000, reduced=300), surfaces)
    require_clean(found)
    assert {"a surface", "refused"} <= set(found["counts"])


def test_tampered_checkpoints_load_as_they_were_or_not_at_all(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    tensors: dict[str, checkpoint.AnyArray] = {
        "a": rng.normal(size=(8, 4)).astype(np.float32),
        "b": np.arange(6, dtype=np.int64),
    }
    checkpoint.save(tmp_path / "small.safetensors", tensors, INFO)
    shipped = Path(ab.__file__).parent / "data" / "operator.safetensors"
    shutil.copy(shipped, tmp_path / "shipped.safetensors")
    found = judge("checkpoint_file", count(full=5_000, reduced=300), tmp_path)
    require_clean(found)
    assert {"same", "refused"} <= set(found["counts"])


def test_the_judge_sees_what_is_wrong(tmp_path: Path) -> None:
    """The control: another exception, a wrong answer and a silent error are findings."""
    for name in ("planted_crash", "planted_wrong_answer", "planted_silence"):
        assert len(judge(name, 2, tmp_path)["findings"]) == 2, name
