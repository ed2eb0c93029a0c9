"""What a practitioner reads first: volatility, quotes, the index, the law."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import ArrayLike
from scipy.special import ndtr, ndtri

from arbiter import Quotes, Surface, example
from arbiter.conventions import Array
from arbiter.markets import LiftedHeston
from arbiter.models.parameters import preset
from arbiter.pricing.transport import Transport
from arbiter_lab.metrics import densities, desk, volatility
from arbiter_lab.metrics.marginals import InvertedMarginals
from arbiter_lab.metrics.metric import worst_day
from arbiter_lab.peers.svi import fit_svi


def two_days() -> tuple[Array, Array]:
    """Oracle volatilities (2, 1, 3), one of them not listed, and which are quoted."""
    oracle = np.array([[[0.20, 0.18, np.nan]], [[0.25, 0.22, 0.21]]])
    quoted = np.array([[[True, False, False]], [[True, True, False]]])
    return oracle, quoted


def test_volatility_errors_by_hand() -> None:
    """Off by 3, 4 on day 0 and 0, 12, 5 basis points on day 1."""
    oracle, quoted = two_days()
    off = np.array([[[3.0, -4.0, 99.0]], [[0.0, 12.0, -5.0]]])
    error = volatility.iv_error_bp(oracle + off * 1e-4, oracle)
    value = {m.name: m.value for m in volatility.iv_errors(error, quoted)}
    expected = {
        "iv_rmse_bp": math.sqrt((9 + 16 + 144 + 25) / 5),
        "iv_rmse_bp_quoted": math.sqrt((9 + 144) / 3),
        "iv_rmse_bp_unquoted": math.sqrt((16 + 25) / 2),
        "iv_mae_bp": 24 / 5,
        "iv_mae_bp_quoted": 15 / 3,
        "iv_mae_bp_unquoted": 9 / 2,
        "iv_max_bp": 12.0,
        "iv_max_bp_quoted": 12.0,
        "iv_max_bp_unquoted": 5.0,
    }
    assert value == pytest.approx(expected)
    daily = volatility.iv_rmse_bp(error).daily
    assert daily == pytest.approx([math.sqrt(12.5), math.sqrt(169 / 3)])
    assert worst_day(volatility.iv_rmse_bp(error)).value == pytest.approx(math.sqrt(169 / 3))


def test_a_perfect_model_has_no_error_and_a_shifted_one_has_its_shift() -> None:
    oracle, quoted = two_days()
    perfect = volatility.iv_error_bp(oracle, oracle)
    assert {m.value for m in volatility.iv_errors(perfect, quoted)} == {0.0}
    shifted = volatility.iv_error_bp(oracle + 7e-4, oracle)
    assert [m.value for m in volatility.iv_errors(shifted, quoted)] == pytest.approx([7.0] * 9)


def test_a_model_without_a_volatility_has_no_error_but_a_reason() -> None:
    oracle, _ = two_days()
    model = oracle.copy()
    model[1, 0, 2] = np.nan
    metric = volatility.iv_rmse_bp(volatility.iv_error_bp(model, oracle))
    assert metric.reason == "no volatility at 1 of 5 points, first on day 1"


@pytest.mark.parametrize(
    ("model", "oracle", "match"),
    [
        (np.ones((1, 2)), np.ones((2, 1)), "same options"),
        (np.ones((1, 1)), np.full((1, 1), np.inf), "infinite"),
    ],
)
def test_unequal_volatilities_are_refused(model: Array, oracle: Array, match: str) -> None:
    with pytest.raises(ValueError, match=match):
        volatility.iv_error_bp(model, oracle)


def test_points_without_their_mask_are_refused() -> None:
    with pytest.raises(ValueError, match="one boolean for each error"):
        volatility.iv_rmse_bp(np.zeros((1, 2)), None, "quoted")
    with pytest.raises(ValueError, match="points = 'some'"):
        volatility.iv_rmse_bp(np.zeros((1, 2)), None, "some")  # type: ignore[arg-type]


def quotes_of(surface: Surface, half: float = 0.01) -> Quotes:
    k, T = np.linspace(-0.1, 0.1, 5), np.full(5, 0.25)
    iv = surface.iv(k, T)
    return Quotes.from_frame({"T": T, "k": k, "iv_bid": iv - half, "iv_ask": iv + half})


def test_share_inside_bid_ask_by_hand() -> None:
    surface = example()
    quotes = quotes_of(surface)
    price = surface.otm(quotes.k, quotes.T)
    off = price.copy()
    off[0], off[3] = quotes.ask[0] * 1.01, np.nan
    metric = desk.inside_bid_ask([price, off], [quotes, quotes])
    assert metric.value == 0.8
    assert metric.daily is not None
    assert metric.daily.tolist() == [1.0, 0.6]
    unseen = np.array([True, False, False, False, True])
    found = desk.inside_bid_ask([off], [quotes], [unseen])
    assert (found.name, found.value) == ("inside_bid_ask_unseen", 0.5)
    nothing = desk.inside_bid_ask([off], [quotes], [np.zeros(5, dtype=bool)])
    assert nothing.reason == "there are no quotes"
    with pytest.raises(ValueError, match="one of each for every day"):
        desk.inside_bid_ask([price], [quotes, quotes])


def test_index_errors_by_hand() -> None:
    model, oracle = [20.0, 13.0, 30.5], [19.0, 15.0, 30.5]
    assert desk.vix_rmse(model, oracle).value == pytest.approx(math.sqrt(5 / 3))
    assert desk.vix_mae(model, oracle).value == pytest.approx(1.0)
    assert worst_day(desk.vix_max(model, oracle)).value == 2.0
    absent = desk.vix_rmse([20.0, np.nan, 30.5], oracle)
    assert absent.reason == "no index at 1 of 3 points, first on day 1"
    with pytest.raises(ValueError, match="oracle's index of day 0"):
        desk.vix_rmse([1.0], [np.nan])


def black(total: float, T: float = 1.0) -> Surface:
    return Surface.from_slopes([-1.0, 1.0], [T], [[total, total]])


def gaussian_entropy(exact: float, model: float) -> float:
    """KL of N(−s²/2, s²) from N(−t²/2, t²)."""
    apart = 0.5 * (model**2 - exact**2)
    return math.log(model / exact) + (exact**2 + apart**2) / (2.0 * model**2) - 0.5


@given(st.floats(0.05, 0.6), st.floats(0.7, 1.4))
def test_relative_entropy_of_lognormals(s: float, ratio: float) -> None:
    found = densities.slice_relative_entropy(black(s * ratio), black(s), [1.0])
    assert found[0] == pytest.approx(gaussian_entropy(s, s * ratio), rel=3e-3, abs=5e-5)


@given(st.floats(0.05, 0.6), st.floats(0.7, 1.4))
def test_tail_means_of_lognormals(s: float, ratio: float) -> None:
    """Mean of a mean-one lognormal below its 5 % quantile is Φ(z − s)/5 %, above Φ(s + z)/5 %."""
    t, z = s * ratio, float(ndtri(0.05))
    lower = abs(ndtr(z - t) - ndtr(z - s)) / 0.05
    upper = abs(ndtr(z + t) - ndtr(z + s)) / 0.05
    found = densities.slice_cvar_error(black(t), black(s), [1.0])
    assert found[0] == pytest.approx(0.5 * (lower + upper) / s, rel=1e-9, abs=1e-13)


def test_a_perfect_law_has_no_error_and_a_wider_one_has() -> None:
    surface = example()
    T = surface.maturities[:3]
    wider = Surface.from_slopes(
        surface.knots, surface.maturities, 1.1 * surface.slopes, weights=surface.weights
    )
    for metric in (densities.relative_entropy, densities.cvar_alignment):
        assert metric([surface], [surface], T).value == 0.0
        worse = metric([surface, wider], [surface, surface], T)
        assert worse.value is not None
        assert worse.value > 1e-3
        assert worse.daily is not None
        assert worse.daily[0] == 0.0


def test_training_and_results_have_one_definition(rng: np.random.Generator) -> None:
    knots = np.linspace(-3.0, 3.0, 7)
    one, two = 0.1 + 0.1 * rng.random((2, 4, 7)).cumsum(axis=1)
    T = np.array([0.1, 0.3, 0.6, 1.0])
    ours, theirs = Surface.from_slopes(knots, T, one), Surface.from_slopes(knots, T, two)
    laws = [Transport(knots, b) for b in (one, two)]
    unit = np.sqrt(theirs.variance_swap(T) * T)
    entropy, cvar = densities.transport_alignment(laws[0], laws[1], unit)
    assert entropy == pytest.approx(densities.slice_relative_entropy(ours, theirs, T))
    assert cvar == pytest.approx(densities.slice_cvar_error(ours, theirs, T))


def test_a_model_without_a_law_has_a_reason() -> None:
    surface = example()
    k, T = np.tile(np.linspace(-0.2, 0.15, 12), 2), np.repeat([0.25, 0.5], 12)
    iv = surface.iv(k, T)
    peer = fit_svi(Quotes.from_frame({"T": T, "k": k, "iv_bid": iv - 0.002, "iv_ask": iv + 0.002}))
    metric = densities.relative_entropy([peer], [surface], [0.25])  # type: ignore[list-item]
    assert metric.value is None
    assert "has no law of its own" in str(metric.reason)


class BlackOracle:
    """An oracle in closed form; the state multiplies its volatility."""

    def _total(self, T: ArrayLike, state: ArrayLike | None) -> Array:
        factor = 1.0 if state is None else float(np.asarray(state))
        return np.asarray(0.2 * factor * np.sqrt(T))

    def _z(self, k: ArrayLike, T: ArrayLike, state: ArrayLike | None) -> Array:
        total = self._total(T, state)
        return np.asarray((np.asarray(k) + 0.5 * total**2) / total)

    def otm(self, k: Array, T: Array, state: ArrayLike | None = None) -> Array:
        z, total = self._z(k, T, state), self._total(T, state)
        call = ndtr(total - z) - np.exp(k) * ndtr(-z)
        return np.asarray(np.where(np.asarray(k) >= 0.0, call, call - 1.0 + np.exp(k)))

    def digital(self, k: ArrayLike, T: ArrayLike, state: ArrayLike | None = None) -> Array:
        return np.asarray(ndtr(-self._z(k, T, state)))

    def density(self, k: Array, T: Array, state: ArrayLike | None = None) -> Array:
        z, total = self._z(k, T, state), self._total(T, state)
        return np.asarray(np.exp(-0.5 * z**2 - k) / (math.sqrt(2.0 * math.pi) * total))

    def variance_swap(self, T: ArrayLike, state: ArrayLike | None = None) -> Array:
        return np.asarray(self._total(T, state) ** 2 / np.asarray(T))


def test_an_inverted_oracle_is_its_own_law() -> None:
    """Black's in closed form: log-strikes linear in z, past the table too."""
    law = InvertedMarginals(BlackOracle(), 1.5)
    z, T = np.linspace(-7.0, 7.0, 29), np.array([[0.1], [1.0]])
    total = 0.3 * np.sqrt(T)
    assert law.log_strike(z, T) == pytest.approx(total * z - 0.5 * total**2, abs=1e-7)
    surface = black(0.3)
    for tail in ("lower", "upper"):
        expected = surface.cvar(0.05, 1.0, tail)
        assert law.cvar(0.05, 1.0, tail) == pytest.approx(float(expected), abs=1e-12)
    with pytest.raises(ValueError, match="tail must be"):
        law.cvar(0.05, 1.0, "middle")
    assert densities.slice_relative_entropy(surface, law, [1.0])[0] == pytest.approx(0.0, abs=1e-9)


@pytest.mark.parametrize("name", ["calm", "jumpy"])
def test_an_oracles_distribution_is_inverted_at_its_own_probabilities(name: str) -> None:
    oracle = LiftedHeston.of(preset(name))
    law, z, T = (
        InvertedMarginals(oracle),
        np.linspace(-4.5, 4.25, 15),
        np.array([[0.02], [0.1], [1.0]]),
    )
    probability = oracle.digital(law.log_strike(z, T), T)
    assert -ndtri(probability) == pytest.approx(np.broadcast_to(z, (3, 15)), abs=1e-6)
    sigma = float(np.sqrt(oracle.variance_swap(1.0)))
    for metric in (densities.relative_entropy, densities.cvar_alignment):
        assert metric([law], [law], [1.0]).value == 0.0
        value = metric([black(sigma)], [law], [1.0]).value
        assert value is not None
        assert value > 0.01


def test_what_an_inverted_oracle_was_asked_is_kept() -> None:
    class Counting(BlackOracle):
        asked = 0

        def digital(self, k: ArrayLike, T: ArrayLike, state: ArrayLike | None = None) -> Array:
            self.asked += 1
            return super().digital(k, T, state)

    oracle = Counting()
    law = InvertedMarginals(oracle)
    first = densities.slice_relative_entropy(black(0.3), law, [1.0])
    before = oracle.asked
    again = densities.slice_relative_entropy(black(0.4), law, [1.0])
    assert before == oracle.asked > 0
    assert again[0] > first[0]
    densities.slice_relative_entropy(black(0.4), law, [0.5])
    assert oracle.asked > before
