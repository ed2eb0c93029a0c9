"""What came from a fit keeps its result and its errors: in copies, other processes and files."""

from __future__ import annotations

import copy
import json
import pickle
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import arbiter as ab
from arbiter.fitting import FitOptions, FittedSurface, fit
from arbiter.storage import SurfaceFileError
from arbiter_lab.evaluation.heston_surfaces import heston_surface

COPIES: list[Callable[[Any], Any]] = [
    copy.copy,
    copy.deepcopy,
    lambda thing: pickle.loads(pickle.dumps(thing)),  # noqa: S301 - our own bytes
]


@pytest.fixture(scope="module", params=[1, 2])
def fitted(request: pytest.FixtureRequest) -> FittedSurface:
    quotes = heston_surface(840).quotes
    return fit(quotes, options=FitOptions(components=request.param))


def assert_same_fit(one: FittedSurface, other: FittedSurface) -> None:
    assert isinstance(other, FittedSurface)
    k, T = np.linspace(-0.3, 0.2, 7), one.maturities[3]
    assert np.array_equal(one.iv(k, T), other.iv(k, T))
    assert np.array_equal(one.iv_error(k, T), other.iv_error(k, T))
    assert float(one.vix_error()) == float(other.vix_error())
    assert np.array_equal(one.result.residuals, other.result.residuals)
    assert {**one.result.to_dict(), "seconds": 0.0} == {**other.result.to_dict(), "seconds": 0.0}
    assert one.result.warnings == other.result.warnings
    assert dict(one.info) == dict(other.info)


@pytest.mark.parametrize("repeat", COPIES)
def test_copies_keep_the_fit(fitted: FittedSurface, repeat: Callable[[Any], Any]) -> None:
    fitted.iv(0.0, 0.3)  # what is kept of an answer is no part of the surface
    found = repeat(fitted)
    assert_same_fit(fitted, found)
    assert found.result.seconds == fitted.result.seconds
    assert found.source is not None
    assert not found.slopes.flags.writeable


@pytest.mark.parametrize("repeat", COPIES)
def test_copies_of_quotes_and_chains_are_equal_and_read_only(repeat: Callable[[Any], Any]) -> None:
    chain = ab.example_chain()
    quotes = chain.quotes()
    found = repeat(quotes)
    assert np.array_equal(found.bid, quotes.bid)
    assert found.exclusions.equals(quotes.exclusions)
    assert dict(found.info) == dict(quotes.info)
    assert not found.bid.flags.writeable
    again = repeat(chain).quotes()
    assert np.array_equal(again.ask, quotes.ask)
    assert again.labels == quotes.labels


def test_files_keep_the_fit(fitted: FittedSurface, tmp_path: Path) -> None:
    fitted.save(tmp_path / "s.npz")
    found = ab.Surface.load(tmp_path / "s.npz")
    assert isinstance(found, FittedSurface)
    assert_same_fit(fitted, found)
    assert found.result.seconds == 0.0  # a file holds no clock
    assert found.source is None
    with pytest.raises(ValueError, match="from a file, which holds no quotes"):
        found.update(heston_surface(840).quotes)
    found.save(tmp_path / "again.npz")
    assert (tmp_path / "again.npz").read_bytes() == (tmp_path / "s.npz").read_bytes()


def rewrite(path: Path, change: Callable[[dict[str, Any], dict[str, Any]], None]) -> None:
    """The file with another description or other arrays."""
    with np.load(path, allow_pickle=False) as archive:
        arrays = {name: archive[name] for name in archive.files}
    meta = json.loads(arrays.pop("meta").tobytes())
    change(meta, arrays)
    arrays["meta"] = np.frombuffer(json.dumps(meta).encode(), dtype=np.uint8)
    np.savez(path, **arrays)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda meta, arrays: meta.update(kind="other"), "kind 'other' is unknown"),
        (lambda meta, arrays: meta["result"].pop("objective"), "objective"),
        (lambda meta, arrays: meta["result"].update(status="fine"), "fine"),
        (
            lambda meta, arrays: meta["result"].update(roughness={"strike": -1.0}),
            "roughness|maturity",
        ),
        (lambda meta, arrays: arrays.update(result_information=np.ones((2, 2))), "information has"),
        (lambda meta, arrays: arrays["result_residuals"].__setitem__(0, np.nan), "not finite"),
        (lambda meta, arrays: arrays.pop("result_residuals"), "not a readable surface file"),
        (
            lambda meta, arrays: meta.update(result_arrays=["../meta"]),
            "not a readable surface file",
        ),
        (lambda meta, arrays: meta.update(result_arrays=7), "result_arrays a list"),
    ],
)
def test_a_result_that_cannot_be_is_refused(
    fitted: FittedSurface, tmp_path: Path, change: Callable[..., None], message: str
) -> None:
    path = tmp_path / "s.npz"
    fitted.save(path)
    rewrite(path, lambda meta, arrays: None)
    assert isinstance(ab.Surface.load(path), FittedSurface)
    rewrite(path, change)
    with pytest.raises(SurfaceFileError, match=message):
        ab.Surface.load(path)


def test_an_archive_of_this_version_is_plain_numpy(fitted: FittedSurface, tmp_path: Path) -> None:
    fitted.save(tmp_path / "s.npz")
    with zipfile.ZipFile(tmp_path / "s.npz") as archive:
        assert {"result_information.npy", "result_residuals.npy"} <= set(archive.namelist())
