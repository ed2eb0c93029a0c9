"""The table of where learning pays: quotes are as stated, and every cell is there."""

from __future__ import annotations

import io
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from benchmarks import where_learning_pays
from benchmarks.where_learning_pays import MIN_QUOTES_PER_SLICE, requote
from rich.console import Console

from arbiter_lab.evaluation.known_surface import Case
from arbiter_lab.evaluation.stored_surfaces import load_unseen_surfaces
from counts import count


@pytest.fixture(scope="module")
def cases() -> list[Case]:
    return load_unseen_surfaces(count(12, 3))


def test_quotes_are_nested_and_as_wide_as_stated(cases: list[Case]) -> None:
    for number, case in enumerate(cases):
        made = [requote(case, share, 0.02, number) for share in (1.0, 0.5, 0.0)]
        assert np.array_equal(made[0].quoted, case.listed)
        assert made[1].quoted.sum() == pytest.approx(0.5 * case.listed.sum(), rel=0.04)
        assert (made[2].quoted.sum(1) == MIN_QUOTES_PER_SLICE).all()
        for more, fewer in pairwise(made):
            assert not (fewer.quoted & ~more.quoted).any()
        for one in made:
            assert np.array_equal(one.iv, case.iv, equal_nan=True)
            wide = one.quotes.iv_ask - one.quotes.iv_bid
            np.testing.assert_allclose(wide, 0.02 * case.iv[one.quoted], rtol=1e-6)
            off = 0.5 * (one.quotes.iv_ask + one.quotes.iv_bid) - case.iv[one.quoted]
            assert np.abs(off).max() <= 0.0101 * np.nanmax(case.iv)
        assert not np.array_equal(requote(case, 0.5, 0.02, number + 1).quoted, made[1].quoted)


def test_every_cell_is_tabled_and_drawn(cases: list[Case], tmp_path: Path) -> None:
    """Less is known from fewer and wider quotes; exact ones leave the fit hardly an error."""
    rows = where_learning_pays.run({"unseen": cases}, (1.0, 0.0), (0.001, 0.2))
    assert [(row["coverage"], row["spread"]) for row in rows] == [
        (1.0, 0.001),
        (1.0, 0.2),
        (0.0, 0.001),
        (0.0, 0.2),
    ]
    for name in where_learning_pays.METHODS:
        tight, wide, few, worst = (row[name] for row in rows)
        assert tight < min(wide, few) <= max(wide, few) < worst
    assert rows[0]["fit"] < 4.0
    assert rows[3]["fit"] > 40.0
    shown = io.StringIO()
    Console(width=140, file=shown).print(where_learning_pays.table(rows))
    for words in ("6 a slice", "100%", "20.0%", f"{rows[3]['operator']:.2f}"):
        assert words in shown.getvalue()
    where_learning_pays.plot(rows, tmp_path / "pays.png")
    assert (tmp_path / "pays.png").read_bytes().startswith(b"\x89PNG")
