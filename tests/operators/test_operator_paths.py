"""Which path answers: the operator, its prior, or the fit, and the fit only where it is asked."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from benchmarks import joint_fit
from benchmarks.joint_fit import vix_side

import arbiter as ab
from arbiter.fitting import FittedSurface, fit
from arbiter.markets import preset
from arbiter.operators import fallback, pretrained
from arbiter.operators.operator_surface import OperatorSurface
from arbiter.operators.pretrained import Operator
from arbiter.quotes import Quotes
from arbiter.surface import Surface
from arbiter_lab.evaluation.unseen_surfaces import make_unseen_surfaces


@pytest.fixture(scope="module")
def operator() -> Operator:
    return Operator.pretrained()


@pytest.fixture(scope="module")
def known() -> Quotes:
    return ab.example_chain().quotes()


@pytest.fixture(scope="module")
def odd(known: Quotes) -> Quotes:
    """One expiry alone: training has two at least."""
    return known.select(known.expiry == 8)


def waved(quotes: Quotes) -> Quotes:
    """The same strikes with a term structure that no training has."""
    factor = np.exp(0.5 * np.sin(3.0 * np.log(quotes.T)))
    return Quotes.from_frame(
        {
            "T": quotes.T,
            "k": quotes.k,
            "iv_bid": quotes.iv_bid * factor,
            "iv_ask": quotes.iv_ask * factor,
        }
    )


def test_the_fit_answers_what_is_outside_only_if_it_is_asked(
    operator: Operator, known: Quotes, odd: Quotes
) -> None:
    alone = operator(odd)
    assert alone.domain is not None
    assert not alone.domain.inside
    assert isinstance(alone, OperatorSurface)
    assert alone.result.path == "operator"
    found = operator(odd, fallback="fit")
    assert isinstance(found, FittedSurface)
    assert found.result.path == "fit"
    np.testing.assert_array_equal(found.slopes, fit(odd).slopes)
    assert found.result.warnings[0] == f"quotes {alone.domain}"
    assert found.info["operator"]["inside_domain"] is False
    inside = operator(known, fallback="fit")  # the control: nothing calls for a fit
    assert isinstance(inside, OperatorSurface)
    np.testing.assert_array_equal(inside.slopes, operator(known).slopes)
    kinds = [type(s) for s in operator.many([odd, known, odd], fallback="fit")]
    assert kinds == [FittedSurface, OperatorSurface, FittedSurface]
    assert [type(s) for s in operator.many([odd, known])] == [OperatorSurface] * 2


def test_a_call_never_fits_unless_it_is_asked(
    operator: Operator, odd: Quotes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rare large jumps that one transport misses, and quotes outside the domain: one pass."""

    def no_fit(*_: object, **__: object) -> None:
        raise AssertionError("planted: a fit was asked for")

    jumpy = make_unseen_surfaces(1, 537).build_case(0).quotes
    monkeypatch.setattr(fallback, "fit", no_fit)
    monkeypatch.setattr(pretrained, "fit", no_fit)
    shaken = Quotes.from_frame(
        {
            "T": jumpy.T,
            "k": jumpy.k,
            "iv_bid": jumpy.iv_bid + 0.05 * (jumpy.iv_ask - jumpy.iv_mid),
            "iv_ask": jumpy.iv_ask,
        }
    )
    before, after, _ = operator.many([jumpy, shaken, odd])
    assert len(before.slopes) == len(after.slopes) == 1
    at = jumpy.k, jumpy.T
    assert np.abs(before.iv(*at) - after.iv(*at)).max() < 5e-3
    with pytest.raises(AssertionError, match="planted"):
        operator(odd, fallback="fit")


def test_with_quotes_on_the_vix_it_is_the_joint_fit(operator: Operator) -> None:
    made = joint_fit.snapshot(preset("calm"), 5)
    on_vix, _ = vix_side(made)
    deviations = made.quotes.k / (made.quotes.iv_mid * np.sqrt(made.quotes.T))
    index = made.quotes.select(deviations > 0.75)  # the upper wing alone
    found = operator(index, vix_quotes=on_vix, fallback="fit")
    assert isinstance(found, FittedSurface)
    np.testing.assert_array_equal(found.slopes, fit(index, vix_quotes=on_vix).slopes)
    assert isinstance(operator(index, vix_quotes=on_vix), OperatorSurface)


@pytest.mark.parametrize("bad", ["prior", True, "", 0])
def test_other_fallbacks_are_refused(operator: Operator, known: Quotes, bad: Any) -> None:
    with pytest.raises(ValueError, match=re.escape(f"fallback = {bad!r}: give 'fit', or leave")):
        operator(known, fallback=bad)
    with pytest.raises(ValueError, match="fallback"):
        operator.many([], fallback=bad)


def test_weights_without_limits_have_nothing_to_fall_back_from(
    operator: Operator, known: Quotes
) -> None:
    blind = Operator(dict(operator.weights), operator.config, {})
    assert blind(known).domain is None
    with pytest.raises(ValueError, match="no limits of their domain"):
        blind(known, fallback="fit")


def test_a_network_that_is_shrunk_away_leaves_the_prior(operator: Operator, known: Quotes) -> None:
    wild = operator(waved(known))
    assert wild.result.share < 0.5
    assert wild.result.path == "prior"
    assert "about that of the prior" in wild.result.warnings[-1]
    calm = operator(known)  # the control
    assert (calm.result.share, calm.result.path) == (1.0, "operator")
    assert not any("prior" in sentence for sentence in calm.result.warnings)


def test_limits_of_zero_refuse_nothing(operator: Operator, known: Quotes) -> None:
    """As those of a network that writes nothing are."""
    limits = {"moved": [None, 0.0], "prior_misfit": [None, None]}
    writing = ("looks.0.last", "looks.0.direct.", "looks.0.base")
    silent = {
        name: np.zeros_like(weight) if name.startswith(writing) else weight
        for name, weight in operator.weights.items()
    }
    alone = Operator(silent, operator.config, {"domain": limits})(known)
    assert (alone.result.traits["moved"], alone.result.share) == (0.0, 1.0)
    assert alone.domain is not None
    assert alone.domain.inside
    moved = Operator(dict(operator.weights), operator.config, {"domain": limits})(known)
    assert moved.result.share == 0.0  # the control: any change is beyond
    np.testing.assert_allclose(moved.slopes, alone.slopes, rtol=1e-12)


def test_the_name_of_the_path_follows_the_share(operator: Operator, known: Quotes) -> None:
    result = operator(known).result
    named = [replace(result, share=share).path for share in (0.0, 0.49, 0.5, 1.0)]
    assert named == ["prior", "prior", "operator", "operator"]


def test_files_keep_the_path(operator: Operator, known: Quotes, tmp_path: Path) -> None:
    for quotes in (known, waved(known)):
        surface = operator(quotes)
        surface.save(tmp_path / "s.npz")
        kept = Surface.load(tmp_path / "s.npz")
        assert isinstance(kept, OperatorSurface)
        assert kept.result.share == surface.result.share
        assert kept.result.path == surface.result.path
        assert kept.result.to_dict() | {"seconds": 0} == surface.result.to_dict() | {"seconds": 0}
