"""A second component: where one cannot meet the quotes, there and only there."""

from __future__ import annotations

import logging

import numpy as np
import pytest
from numpy.typing import NDArray

import arbiter as ab
from arbiter.evaluation.cases import Case
from arbiter.evaluation.heston import heston_surface
from arbiter.evaluation.unseen import unseen
from arbiter.fitting import FitOptions
from arbiter.operators import second
from arbiter.operators.pretrained import Operator
from arbiter.operators.second import MISSED, STRAINED, divided, enough, missed
from arbiter.structural import structural
from arbiter.surface import Surface

JUMPY = 537  # an unseen market with rare large jumps
Array = NDArray[np.float64]


@pytest.fixture(scope="module")
def operator() -> Operator:
    return Operator.pretrained()


@pytest.fixture(scope="module")
def jumpy() -> Case:
    return unseen(1, JUMPY).case(0)


def error_bp(surface: Surface, case: Case) -> float:
    at = case.listed
    off = surface.iv(np.where(at, case.k, 0.0), case.T[:, None]) - case.iv
    return float(np.sqrt(np.mean(off[at] ** 2))) * 1e4


def test_a_market_with_jumps_gets_two_and_is_met(
    operator: Operator, jumpy: Case, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "arbiter.operators.second"):
        both = operator(jumpy.quotes)
    one = operator(jumpy.quotes, components=1)
    assert (len(both.slopes), len(one.slopes)) == (2, 1)
    assert "one component misses the quotes by" in caplog.text
    assert error_bp(both, jumpy) < 0.6 * error_bp(one, jumpy)
    assert both.certificate().passed
    assert both.result is not None
    assert one.result is not None
    assert both.info["operator"]["components"] == 2
    # residuals and traits are those of the surface that is given
    off = (both.otm(jumpy.quotes.k, jumpy.quotes.T) - jumpy.quotes.mid) / jumpy.quotes.half_spread
    np.testing.assert_allclose(both.result.residuals, off, atol=1e-6)
    assert both.result.traits["misfit_worst"] < one.result.traits["misfit_worst"]
    assert np.abs(one.result.residuals - off).max() > 1.0


def test_in_a_batch_as_alone(operator: Operator, jumpy: Case) -> None:
    plain = heston_surface(3000).quotes
    first, other = operator.many([jumpy.quotes, plain])
    assert (len(first.slopes), len(other.slopes)) == (2, 1)
    np.testing.assert_allclose(
        first.iv(0.0, jumpy.T), operator(jumpy.quotes).iv(0.0, jumpy.T), atol=2e-5
    )


@pytest.mark.parametrize("hard", [False, True])
def test_textbook_markets_keep_one(operator: Operator, hard: bool) -> None:
    found = operator.many([heston_surface(seed, hard).quotes for seed in range(3000, 3006)])
    assert [len(surface.slopes) for surface in found] == [1] * 6


def test_both_reasons_are_needed(
    operator: Operator, jumpy: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = operator(jumpy.quotes, components=1)
    price = one.otm(jumpy.quotes.k, jumpy.quotes.T)
    assert missed(jumpy.quotes, price) > MISSED
    assert len(enough(jumpy.quotes, one, price, 2.0 * STRAINED).slopes) == 2

    def no_fit(*_: object, **__: object) -> None:
        raise AssertionError("nothing asks for a fit")

    monkeypatch.setattr(second, "fit", no_fit)
    for found in (
        enough(jumpy.quotes, one, price, 0.5 * STRAINED),  # the order costs nothing
        enough(jumpy.quotes, one, jumpy.quotes.mid, 2.0 * STRAINED),  # the quotes are met
    ):
        assert found.slopes is one.slopes


def test_two_that_are_no_better_are_not_taken(
    operator: Operator, jumpy: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = operator(jumpy.quotes, components=1)
    price = one.otm(jumpy.quotes.k, jumpy.quotes.T)
    worse = divided(one)
    monkeypatch.setattr(second, "fit", lambda *_, **__: worse)
    assert missed(jumpy.quotes, worse.otm(jumpy.quotes.k, jumpy.quotes.T)) > 0.95 * missed(
        jumpy.quotes, price
    )
    assert enough(jumpy.quotes, one, price, 2.0 * STRAINED).slopes is one.slopes


def test_two_near_one_are_a_surface(operator: Operator) -> None:
    one = operator(ab.example_chain().quotes(), components=1)
    both = divided(one)
    assert structural(both.knots, both.maturities, both.slopes, both.weights).passed
    k = np.linspace(-0.1, 0.1, 5)
    ratio = both.iv(k, one.maturities[-1]) / one.iv(k, one.maturities[-1])
    assert np.abs(np.log(ratio)).max() < 0.15


def test_other_counts_are_refused(operator: Operator, jumpy: Case) -> None:
    with pytest.raises(ValueError, match="components = 2: give 1 for the pass alone"):
        operator(jumpy.quotes, components=2)


def test_a_refinement_has_as_many(operator: Operator, jumpy: Case) -> None:
    refined = operator.refine(jumpy.quotes)
    assert len(refined.slopes) == 2
    assert refined.certificate().passed
    alone = operator.refine(jumpy.quotes, operator(jumpy.quotes, components=1))
    assert len(alone.slopes) == 1
    assert error_bp(refined, jumpy) < 0.6 * error_bp(alone, jumpy)
    asked = operator.refine(heston_surface(3000).quotes, options=FitOptions(components=2))
    assert len(asked.slopes) == 2
