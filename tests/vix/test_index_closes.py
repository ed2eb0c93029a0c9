"""Fitted surfaces against official closes and VIX settlements: what docs/vix.md says of them."""

import datetime as dt
from pathlib import Path

import numpy as np
import pytest
from benchmarks import index_closes
from benchmarks.index_closes import INDICES, closes, fitted

import arbiter as ab
from arbiter.vix.replication import term_structure

pytestmark = pytest.mark.usefixtures("data_dir")


def test_rule_on_the_surface_is_the_official_close(data_dir: Path) -> None:
    source, surface = fitted(data_dir / "chains" / "spx_2023-09-14_close.csv")
    days = tuple(INDICES.values())
    table = term_structure(surface, days, source.chain)
    day = dt.date(2023, 9, 14)
    official = np.array([closes(name)[day] for name in INDICES])
    assert table["listed"].to_numpy() == pytest.approx(official, abs=0.025)
    # the closes of the session before are not those of this surface
    earlier = np.array([closes(name)[dt.date(2023, 9, 13)] for name in INDICES])
    assert np.abs(table["listed"].to_numpy() - earlier).max() > 0.2
    # the log contract is another number, by as much as it says itself
    parts = table["exact"] + table["interpolation"] + table["gap"]
    assert parts.to_numpy() == pytest.approx(table["listed"].to_numpy(), abs=1e-9)


def test_settlements_lie_below_the_root_of_forward_variance(data_dir: Path) -> None:
    _, surface = fitted(data_dir / "chains" / "spx_2020-09-04_close.dat")
    curve = ab.read_futures(data_dir / "futures" / index_closes.FUTURES, as_of="2020-09-04")
    root = 100.0 * np.sqrt(surface.forward_variance(curve.maturities))
    assert np.all(root > curve.mid)
    assert not np.all(root > 1.1 * curve.mid)  # the check has teeth


def test_implied_futures_lie_between_the_settlements_around_them() -> None:
    for row in index_closes.implied_rows():
        low, high = sorted((row["settlement 2019-08-28"], row["settlement 2019-08-29"]))
        assert low < row["implied"] < high
