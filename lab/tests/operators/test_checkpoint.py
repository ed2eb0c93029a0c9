"""A checkpoint comes back equal, or the error names the file and what to do."""

from __future__ import annotations

import json
import math
import random
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save as serialise
from torch import Tensor

from arbiter.operators import checkpoint
from arbiter.operators.checkpoint import CheckpointError
from arbiter_lab.differentiable.operators.checkpoint import load, save, to_arrays
from arbiter_lab.training.duals import Box, Duals
from arbiter_lab.training.saddle import ExtraGradient, Rates
from counts import count

INFO = {
    "config": {"width": 8},
    "data_hash": "feed",
    "seed": 7,
    "revision": "0123abc",
    "metrics": {"iv_rmse_bp": 4.9, "gap": None},
}


def tensors() -> dict[str, Tensor]:
    base = torch.arange(12.0).reshape(3, 4)
    return {
        "weights": base,
        "transposed": base.T,  # shares memory, and is not contiguous
        "steps": torch.tensor(3),
        "empty": torch.zeros(0, 2),
        "mask": torch.tensor([True, False]),
        "half": torch.ones(3, dtype=torch.float16),
        "double": torch.tensor([math.pi], dtype=torch.float64),
    }


def same(a: dict[str, Tensor], b: dict[str, Tensor]) -> bool:
    return a.keys() == b.keys() and all(
        torch.equal(a[name], b[name]) and a[name].dtype == b[name].dtype for name in a
    )


@pytest.fixture
def stored(tmp_path: Path) -> Path:
    return save(tmp_path / "operator.safetensors", tensors(), INFO)


def test_what_was_saved_comes_back(stored: Path) -> None:
    found, info = load(stored, like=tensors())
    assert same(found, tensors())
    assert info == INFO


def test_other_tools_read_the_tensors(stored: Path) -> None:
    from safetensors import safe_open

    with safe_open(stored, framework="pt") as file:
        assert torch.equal(file.get_tensor("weights"), tensors()["weights"])
        assert json.loads(file.metadata()["arbiter"])["info"] == INFO


def test_saving_twice_gives_the_same_bytes(stored: Path, tmp_path: Path) -> None:
    again = save(tmp_path / "again.safetensors", tensors(), dict(reversed(INFO.items())))
    assert again.read_bytes() == stored.read_bytes()


def test_training_goes_on_from_a_file_bit_for_bit(tmp_path: Path) -> None:
    theta = torch.ones(3, requires_grad=True)
    duals = Duals({"ceiling": Box.inequality(3, 5.0)})

    def lagrangian(duals: Duals) -> tuple[Tensor, dict[str, Tensor]]:
        defects = {"ceiling": theta - 0.25}
        return ((theta - 1.0) ** 2).sum() + duals.inner_product(defects), defects

    def steps(optimiser: ExtraGradient) -> Tensor:
        for _ in range(5):
            optimiser.step(lagrangian)
        return torch.cat([theta.detach(), duals.vector])

    rates = Rates(lr=0.01, dual_lr=0.1, mode="optimistic", ramp_steps=20)
    optimiser = ExtraGradient([theta], duals, rates)
    steps(optimiser)
    state = {"theta": theta.detach(), **optimiser.state_dict()}
    path = save(tmp_path / "training.safetensors", state, INFO)
    straight = steps(optimiser)

    found, _ = load(path)
    theta.data.copy_(found.pop("theta"))
    resumed = ExtraGradient([theta], duals, rates)
    resumed.load_state_dict(found)
    assert torch.equal(steps(resumed), straight)


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_numbers_that_are_not_finite_are_not_saved(tmp_path: Path, value: float) -> None:
    path = tmp_path / "operator.safetensors"
    with pytest.raises(ValueError, match="'weights' holds a number that is not finite"):
        save(path, {"weights": torch.tensor([1.0, value])}, INFO)
    assert not path.exists()


@pytest.mark.parametrize(
    ("info", "message"),
    [
        ({k: v for k, v in INFO.items() if k != "seed"}, "info lacks seed"),
        ({**INFO, "metrics": {"gap": math.nan}}, "not finite as None"),
        ({**INFO, "config": {1, 2}}, "plain JSON values"),
    ],
)
def test_description_without_provenance_is_refused(
    tmp_path: Path, info: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        save(tmp_path / "operator.safetensors", tensors(), info)


def test_failed_save_leaves_the_old_file(stored: Path) -> None:
    before = stored.read_bytes()
    with pytest.raises(ValueError, match="__metadata__"):
        save(stored, {"__metadata__": torch.zeros(1)}, INFO)
    assert stored.read_bytes() == before
    assert [p.name for p in stored.parent.iterdir()] == [stored.name]


def refused(path: Path, content: bytes, message: str) -> None:
    path.write_bytes(content)
    with pytest.raises(CheckpointError, match=message) as caught:
        load(path)
    assert str(path) in str(caught.value)
    assert "save" in str(caught.value) or "upgrade" in str(caught.value)


def about(tensors: dict[str, Tensor] | None = None, **changes: object) -> bytes:
    """Write a file with any metadata, by default with a wrong checksum."""
    said = {"format": "arbiter-checkpoint", "version": 1, "info": {}, "checksum": "", **changes}
    return bytes(serialise(tensors or {"a": torch.zeros(1)}, {"arbiter": json.dumps(said)}))


def test_missing_file_is_missing(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        load(tmp_path / "nowhere.safetensors")


def test_truncated_files_are_refused_at_every_length(stored: Path) -> None:
    content = stored.read_bytes()
    for length in {*range(12), *range(12, len(content), 37), len(content) - 1}:
        refused(stored, content[:length], "truncated|corrupt")


def test_appended_bytes_are_refused(stored: Path) -> None:
    refused(stored, stored.read_bytes() + b"\0", "corrupt")


def test_pickles_are_named_and_not_opened(tmp_path: Path) -> None:
    path = tmp_path / "operator.pt"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("operator/data.pkl", b"\x80\x02}q\x00.")
    refused(path, path.read_bytes(), r"torch.save writes \(it holds pickled objects\)")
    refused(path, b"\x80\x04\x95" + bytes(range(200)), "a pickle")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "only 0 bytes"),
        (b"surely not a checkpoint, but a text", "not a safetensors file"),
        (struct.pack("<Q", 2**40) + b"{}" * 50, "not a safetensors file .its header would have"),
        (struct.pack("<Q", 10**6) + b"{}" * 50, "truncated"),
        (struct.pack("<Q", 4) + b"{a:}", "header is not JSON"),
        (struct.pack("<Q", 2) + b"{}", "foreign safetensors"),
        (bytes(serialise({"a": torch.zeros(1)})), "foreign safetensors"),
        (about(format="other"), "foreign safetensors"),
        (about(version=2), "version 2, this arbiter reads up to 1; upgrade"),
        (about(version="1"), "unreadable format version"),
        (about(info="text"), "no description"),
        (about(), "checksum is wrong"),
    ],
)
def test_foreign_files_are_refused(tmp_path: Path, content: bytes, message: str) -> None:
    refused(tmp_path / "operator.safetensors", content, message)


def test_deep_header_is_refused(tmp_path: Path) -> None:
    header = b'{"a":' * 200_000
    refused(tmp_path / "x", struct.pack("<Q", len(header)) + header, "header is not JSON")


def test_numbers_that_numpy_does_not_have_are_refused(tmp_path: Path) -> None:
    refused(tmp_path / "x", about({"a": torch.ones(1, dtype=torch.bfloat16)}), "numbers that NumPy")


def test_file_that_is_too_large_is_not_read(stored: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ARBITER_MAX_BYTES", "100")
    with pytest.raises(CheckpointError, match="more than the 100"):
        load(stored)


def test_stored_numbers_that_are_not_finite_are_refused(tmp_path: Path) -> None:
    """The file has a valid checksum, from a writer that does not check its numbers."""
    bad = {"a": torch.tensor([math.nan])}
    right = checkpoint.compute_checksum(to_arrays(bad), json.dumps(INFO, sort_keys=True))
    refused(tmp_path / "x", about(bad, info=INFO, checksum=right), "'a' holds a number that is not")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t: t.pop("steps"), r"1 are not asked for \['steps'\]"),
        (lambda t: t.update(more=torch.zeros(1)), r"1 tensors are missing \['more'\]"),
        (
            lambda t: t.update(steps=torch.zeros(2)),
            r"'steps' is \(\) int64, wanted is",
        ),
        (lambda t: t.update(half=t["half"].float()), "float16, wanted is"),
    ],
)
def test_tensors_of_another_network_are_refused(
    stored: Path, change: Callable[[dict[str, Tensor]], object], message: str
) -> None:
    wanted = tensors()
    change(wanted)
    with pytest.raises(CheckpointError, match=message):
        load(stored, like=wanted)


def test_damaged_file_loads_equal_or_is_refused(stored: Path) -> None:
    """Bytes at random places overwritten: 20,000 files, none loads with other numbers."""
    content, chance, refusals = stored.read_bytes(), random.Random(5), 0
    n = count(full=20_000, reduced=600)
    for _ in range(n):
        damaged = bytearray(content)
        for _ in range(chance.choice([1, 1, 1, 2, 8])):
            damaged[chance.randrange(len(damaged))] = chance.randrange(256)
        stored.write_bytes(bytes(damaged))
        try:
            found, info = load(stored)
        except CheckpointError:
            refusals += 1
        else:
            assert same(found, tensors())
            assert info == INFO
    assert refusals > 0.9 * n
