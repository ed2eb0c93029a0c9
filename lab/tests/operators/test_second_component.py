"""A second component: where one cannot meet the quotes, there and only there."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import arbiter as ab
from arbiter.audit.structural_proof import check_structure
from arbiter.fitting import FitOptions, Roughness, fit
from arbiter.operators import second_component
from arbiter.operators.pretrained import Operator
from arbiter.operators.second_component import (
    MAX_ORDER_STRAIN,
    MAX_OUT_OF_LINE,
    MAX_RMS_HALF_SPREADS,
    NetworkPass,
    choose_components,
    compute_rms_miss,
    split_component,
)
from arbiter.surface import Surface
from arbiter_lab.evaluation.heston_surfaces import heston_surface
from arbiter_lab.evaluation.known_surface import Case, quotes_from_volatilities
from arbiter_lab.evaluation.unseen_surfaces import make_unseen_surfaces

JUMPY = 537  # an unseen market with rare large jumps


@pytest.fixture(scope="module")
def operator() -> Operator:
    return Operator.pretrained()


@pytest.fixture(scope="module")
def jumpy() -> Case:
    return make_unseen_surfaces(1, JUMPY).build_case(0)


def error_bp(surface: Surface, case: Case) -> float:
    at = case.listed
    off = surface.iv(np.where(at, case.k, 0.0), case.T[:, None]) - case.iv
    return float(np.sqrt(np.mean(off[at] ** 2))) * 1e4


def test_a_market_with_jumps_gets_two_and_is_met(
    operator: Operator, jumpy: Case, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "arbiter.operators.second_component"):
        both = operator(jumpy.quotes)
    one = operator(jumpy.quotes, components=1)
    assert (len(both.slopes), len(one.slopes)) == (2, 1)
    assert "one component misses the quotes by" in caplog.text
    assert error_bp(both, jumpy) < 0.6 * error_bp(one, jumpy)
    assert both.certificate().passed
    assert both.info["operator"]["components"] == 2
    assert both.result.components == 2
    # residuals are those of the surface that is given, the domain judges the pass
    off = (both.otm(jumpy.quotes.k, jumpy.quotes.T) - jumpy.quotes.mid) / jumpy.quotes.half_spread
    np.testing.assert_allclose(both.result.residuals, off, atol=1e-6)
    assert both.result.traits == one.result.traits
    assert np.abs(one.result.residuals - off).max() > 1.0


def test_the_constant_is_that_of_the_pass_alone(
    operator: Operator, jumpy: Case, tmp_path: Path
) -> None:
    for components, wanted in ((None, None), (1, operator.lipschitz)):
        surface = operator(jumpy.quotes, components=components)
        assert surface.result.lipschitz == wanted
        assert surface.result.to_dict()["lipschitz"] == wanted
        surface.save(tmp_path / "s.npz")
        assert ab.Surface.load(tmp_path / "s.npz").info["operator"]["lipschitz"] == wanted
    assert operator.lipschitz > 0.0


def test_in_a_batch_as_alone(operator: Operator, jumpy: Case) -> None:
    plain = heston_surface(3000).quotes
    first, other = operator.many([jumpy.quotes, plain])
    assert (len(first.slopes), len(other.slopes)) == (2, 1)
    np.testing.assert_allclose(
        first.iv(0.0, jumpy.T), operator(jumpy.quotes).iv(0.0, jumpy.T), atol=2e-6
    )


@pytest.mark.parametrize("hard", [False, True])
def test_textbook_markets_keep_one(operator: Operator, hard: bool) -> None:
    found = operator.many([heston_surface(seed, hard).quotes for seed in range(3000, 3006)])
    assert [len(surface.slopes) for surface in found] == [1] * 6


def made(operator: Operator, case: Case, **changes: Any) -> NetworkPass:
    """A pass of which one component does not do, but for what is changed."""
    one = operator(case.quotes, components=1)
    price = one.otm(case.quotes.k, case.quotes.T)
    return NetworkPass(one, price, 2.0 * MAX_ORDER_STRAIN, 0.5 * MAX_OUT_OF_LINE)._replace(
        **changes
    )


def test_every_reason_is_needed(
    operator: Operator, jumpy: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    strained = made(operator, jumpy)
    assert compute_rms_miss(jumpy.quotes, strained.price) > MAX_RMS_HALF_SPREADS
    assert len(choose_components(jumpy.quotes, strained).slopes) == 2

    def no_fit(*_: object, **__: object) -> None:
        raise AssertionError("nothing asks for a fit")

    monkeypatch.setattr(second_component, "fit", no_fit)
    for other in (
        made(operator, jumpy, strained=0.5 * MAX_ORDER_STRAIN),  # the order costs nothing
        made(operator, jumpy, out_of_line=2.0 * MAX_OUT_OF_LINE),  # quotes of another time
        made(operator, jumpy, price=jumpy.quotes.mid),  # the quotes are met
    ):
        assert choose_components(jumpy.quotes, other).slopes is other.surface.slopes


def test_two_that_are_no_better_are_not_taken(
    operator: Operator,
    jumpy: Case,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    one = made(operator, jumpy)
    worse = fit(
        jumpy.quotes,
        options=FitOptions(components=2, iterations=1),
        start=split_component(one.surface),
    )
    monkeypatch.setattr(second_component, "fit", lambda *_, **__: worse)
    assert compute_rms_miss(
        jumpy.quotes, worse.otm(jumpy.quotes.k, jumpy.quotes.T)
    ) > 0.95 * compute_rms_miss(jumpy.quotes, one.price)
    assert choose_components(jumpy.quotes, one).slopes is one.surface.slopes
    assert "(max_iterations): one is kept" in caplog.text


def test_a_fit_that_fails_leaves_the_pass(
    operator: Operator,
    jumpy: Case,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise ValueError("planted")

    monkeypatch.setattr(second_component, "fit", broken)
    one = made(operator, jumpy)
    assert choose_components(jumpy.quotes, one).slopes is one.surface.slopes
    assert "looked for and not found: planted" in caplog.text


def test_both_starts_are_tried_and_the_quotes_choose(
    operator: Operator, jumpy: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, misses = made(operator, jumpy), {}

    def kept(*given: Any, start: Surface | None, **named: Any) -> Surface:
        found = fit(*given, start=start, **named)
        misses[start is None] = compute_rms_miss(
            jumpy.quotes, found.otm(jumpy.quotes.k, jumpy.quotes.T)
        )
        return found

    monkeypatch.setattr(second_component, "fit", kept)
    found = choose_components(jumpy.quotes, one)
    assert set(misses) == {False, True}
    assert (
        compute_rms_miss(jumpy.quotes, found.price) == min(misses.values()) < max(misses.values())
    )


@pytest.mark.parametrize("factor", [0.9, 1.2])
def test_a_stale_expiry_is_no_jump(operator: Operator, factor: float) -> None:
    for seed in (3004, 3008, 3009):
        truth = heston_surface(seed)
        mid = truth.iv_oracle.copy()
        mid[seed % 14 + 1] *= factor
        quotes = quotes_from_volatilities(
            truth.T, truth.k, mid, 0.01 * mid, np.ones(mid.shape, bool)
        )
        found = operator(quotes)
        assert found.result.traits["out_of_line"] > MAX_OUT_OF_LINE
        assert len(found.slopes) == 1
        assert found.domain is not None
        assert not found.domain.inside  # and it says so


def test_quotes_without_a_spread_get_two_as_well(operator: Operator, jumpy: Case) -> None:
    at = jumpy.quoted
    exact = np.where(at, jumpy.iv, 0.2)
    quotes = quotes_from_volatilities(jumpy.T, jumpy.k, exact, np.zeros_like(exact), at)
    both, one = operator(quotes), operator(quotes, components=1)
    assert len(both.slopes) == 2
    assert error_bp(both, jumpy) < 0.6 * error_bp(one, jumpy)


def test_two_near_one_are_a_surface(operator: Operator) -> None:
    one = operator(ab.example_chain().quotes(), components=1)
    both = split_component(one)
    assert check_structure(both.knots, both.maturities, both.slopes, both.weights).passed
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


def test_a_refinement_that_wants_one_has_one(operator: Operator, jumpy: Case) -> None:
    given = FitOptions(roughness=Roughness(1.0, 10.0, 1.0, level=1.0))
    both, one = operator(jumpy.quotes), operator(jumpy.quotes, components=1)
    wanted = fit(jumpy.quotes, options=given, prior=one)
    for surface in (None, both, one):
        found = operator.refine(jumpy.quotes, surface, given)
        np.testing.assert_array_equal(found.slopes, wanted.slopes)
    foreign = Surface.from_slopes(
        both.knots, both.maturities, both.slopes, both.curve.forwards, weights=both.weights
    )
    with pytest.raises(ValueError, match=r"prior has 2 components .* is 1: make them equal"):
        operator.refine(jumpy.quotes, foreign, given)


def test_it_survives_its_file(operator: Operator, jumpy: Case, tmp_path: Path) -> None:
    both = operator(jumpy.quotes)
    both.save(tmp_path / "two.npz")
    again = Surface.load(tmp_path / "two.npz")
    np.testing.assert_array_equal(again.slopes, both.slopes)
    assert again.info["operator"]["components"] == 2
