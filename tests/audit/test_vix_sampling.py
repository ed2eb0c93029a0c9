"""The certificate looks at the VIX too, and finds each fault that is planted there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from arbiter.audit.certificate import certify_surface
from arbiter.audit.vix_sampling import vix_inequalities
from arbiter.pricing.vix_slices import VixSlices
from arbiter.surface import Surface
from counts import count

KNOTS = np.linspace(-3.0, 3.0, 5)
T = np.array([0.1, 0.3, 0.6])


def coupled(slopes: Any = ((0.2, 0.25, 0.3, 0.4, 0.6),)) -> Surface:
    below = 0.18 * np.sqrt(T)[:, None] * np.ones(5)
    vix = VixSlices.of(KNOTS, [0.15 + 0.1 * i for i in range(len(slopes))], slopes)
    return Surface.from_slopes(KNOTS, T, below, vix_slices=vix)


class Tampered:
    """A surface one of whose public answers is changed."""

    def __init__(self, surface: Surface, **changes: Callable[..., Any]) -> None:
        self._surface, self._changes = surface, changes

    def __getattr__(self, name: str) -> Any:
        own = getattr(self._surface, name)
        if name not in self._changes:
            return own
        return lambda *args: self._changes[name](own(*args), *args)


def violated(surface: Any) -> set[str]:
    """Families with a violation above rounding."""
    batches = list(vix_inequalities(surface, 0))
    return {b.family for b in batches if np.any(~(b.value >= -b.tolerance))}


def bump(price: np.ndarray, K: np.ndarray, _: np.ndarray, side: str) -> np.ndarray:
    """Calls near 25 are dearer: the smile is not convex there."""
    away = np.minimum(np.abs(np.asarray(K) - 25.0) / 0.5, 20.0)
    return np.asarray(price + (side == "call") * 0.01 * np.exp(-(away**2)))


FAULTS: dict[str, tuple[dict[str, Callable[..., Any]], str]] = {
    "a bump in the smile": ({"vix_option": bump}, "vix_static"),
    "prices that are not numbers": (
        {"vix_option": lambda price, *_: np.where(price > 1.0, np.nan, price)},
        "vix_static",
    ),
    "calls and puts apart": (
        {"vix_option": lambda price, K, t, side: price * (1.0 + 1e-9 * (side == "call"))},
        "vix_static",
    ),
    "a future above the root of forward variance": (
        {"vix_future": lambda future, *_: future * 1.2},
        "vix_future",
    ),
    "a negative forward variance": (
        {"forward_variance": lambda variance, *_: variance - 1.0},
        "forward_variance",
    ),
    "another forward variance": (
        {"forward_variance": lambda variance, *_: variance * (1.0 + 1e-5)},
        "vix_coupling",
    ),
    "a second moment off by 1e-10": (
        {"vix_second_moment": lambda moment, *_: moment * (1.0 + 1e-10)},
        "vix_coupling",
    ),
    "a VVIX off by a thousandth of a point": (
        {"vvix": lambda vvix, *_: vvix + 1e-3},
        "vvix",
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_planted_faults_are_found(fault: str) -> None:
    changes, family = FAULTS[fault]
    assert violated(coupled()) == set()
    with np.errstate(invalid="ignore"):
        assert family in violated(Tampered(coupled(), **changes))


def test_calls_cheaper_by_a_little_break_the_coupling() -> None:
    """The far wing alone: no butterfly is violated where a smooth factor ends, but E[VIX²] is."""

    def thinner(price: np.ndarray, K: np.ndarray, *_: Any) -> np.ndarray:
        return price * np.where(np.asarray(K) > 30.0, np.exp(-1e-3 * (np.asarray(K) - 30.0)), 1.0)

    assert "vix_coupling" in violated(Tampered(coupled(), vix_option=thinner))


@settings(max_examples=count(60, 6))
@given(arrays(np.float64, (2, 5), elements=st.floats(-3.0, 0.5).map(lambda e: 10.0**e)))
def test_no_slopes_are_found_guilty(slopes: np.ndarray) -> None:
    assert violated(coupled(slopes)) == set()


def test_certificate_covers_the_vix() -> None:
    certificate = certify_surface(coupled())
    assert certificate.passed
    assert {"vix_static", "vix_future", "vix_coupling", "vvix"} <= set(certificate.checked)
    assert certificate.structural is not None
    assert certificate.structural.checks[-1].name == "VIX slopes positive"
    found = certify_surface(Tampered(coupled(), vvix=lambda vvix, *_: vvix + 1.0))
    assert found.findings["family"].unique().to_list() == ["vvix"]
    assert found.findings["size_iv"].null_count() == len(found.findings)
    assert "strip of VIX options" in str(found)


def test_without_slices_nothing_is_said() -> None:
    certificate = certify_surface(coupled().with_vix(None))
    assert certificate.passed
    assert not any("vix" in name for name in certificate.checked)


def test_slopes_that_carry_no_proof_are_found() -> None:
    """Made past the checks of ``VixSlices.of``, as a damaged object would be."""
    surface = coupled()
    assert surface.vix_slices is not None
    wrong = surface.vix_slices.slopes.copy()
    wrong[0, 2] = 12.0
    damaged = VixSlices(KNOTS, surface.vix_slices.maturities, wrong)
    found = certify_surface(surface.with_vix(damaged)).findings
    assert found.row(0, named=True)["family"] == "structural"
    assert "VIX slope at T=0.15, knot x=0 is 12.0" in found.row(0, named=True)["legs"]


def test_prices_of_other_slopes_are_not_covered_by_the_proof() -> None:
    surface = coupled()
    other = coupled([[0.2, 0.25, 0.31, 0.4, 0.6]])
    swapped = Tampered(surface, vix_option=lambda _, K, t, side: other.vix_option(K, t, side))
    proof = certify_surface(swapped).structural
    assert proof is not None
    assert proof.covers_prices is False


def test_a_window_without_variance_is_no_finding() -> None:
    still = Surface.from_slopes([0.0], [0.1, 0.9], [[0.2], [0.2]])
    assert violated(still.with_vix(VixSlices.of([0.0], [0.2], [[0.3]]))) == set()
