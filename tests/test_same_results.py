"""The numbers that the shipped chain and one real chain give are those that were kept.

`python tools/same_results.py` compares two revisions bit for bit on one machine. Other machines
round differently: here the same numbers are pinned at 1e-9, those of the operator, whose maps are
of single precision, at 1e-6. They were made by `python tools/same_results.py --probe`. The
operator's are within 4e-8 of the volatilities of revision 232570f, fits have another loss since.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import same_results

PINNED = Path(__file__).parent / "data" / "same_results.json"
TOLERANCE, SINGLE_PRECISION_TOLERANCE = 1e-9, 1e-6


def numbers_of(part: dict[str, Any]) -> dict[str, Any]:
    """The numbers of a part, without digests, which are those of one machine."""
    return {name: value for name, value in part.items() if not isinstance(value, str)}


def assert_pinned(found: dict[str, dict[str, Any]], pinned: dict[str, dict[str, Any]]) -> None:
    for part, numbers in found.items():
        within = SINGLE_PRECISION_TOLERANCE if "operator" in part else TOLERANCE
        for name, value in numbers_of(numbers).items():
            np.testing.assert_allclose(
                value, pinned[part][name], rtol=within, atol=within, err_msg=f"{part}: {name}"
            )


@pytest.fixture(scope="module")
def pinned() -> dict[str, dict[str, Any]]:
    read: dict[str, dict[str, Any]] = json.loads(PINNED.read_text(encoding="utf-8"))
    return read


def test_the_shipped_chain_gives_the_numbers_of_before(pinned: dict[str, dict[str, Any]]) -> None:
    found = dict(same_results.probe_results(None))
    assert set(found) == {"vix rule", "fit", "operator"}
    assert_pinned(found, pinned)


def test_real_chains_give_the_numbers_of_before(
    data_dir: Path, pinned: dict[str, dict[str, Any]]
) -> None:
    found = dict(same_results.probe_market_data(data_dir))
    assert set(found) == {"real chain", "real operator", "joint fit"}
    assert_pinned(found, pinned)


def test_a_number_that_moved_is_found(pinned: dict[str, dict[str, Any]]) -> None:
    moved = {"fit": {**pinned["fit"], "vix": pinned["fit"]["vix"] * (1.0 + 1e-8)}}
    with pytest.raises(AssertionError, match="fit: vix"):
        assert_pinned(moved, pinned)


def test_differences_of_bits_are_listed() -> None:
    before = {"fit": {"stored": "ab", "vix": 16.0}, "gone": {"vix": 1.0}}
    after = {"fit": {"stored": "cd", "vix": 16.5}}
    lines = same_results.list_differences(before, after)
    assert lines == [
        "fit, stored: ab became cd",
        "fit, vix: differ by up to 0.5",
        "gone: only before",
    ]
    assert same_results.list_differences(before, before) == []
