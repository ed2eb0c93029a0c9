"""Standard errors of the operator's volatilities: two of them hold the truth, halves of them do
not."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from benchmarks.operator_domain import training_tables
from benchmarks.operator_error import SEED, covered, score_cases, score_laws

import arbiter as ab
from arbiter.conventions import Array
from arbiter.operators import checkpoint
from arbiter.operators.checkpoint import CheckpointError
from arbiter.operators.operator_surface import OperatorSurface
from arbiter.operators.pretrained import Operator
from arbiter.operators.prior.gaussian_process import guess_smiles
from arbiter.operators.prior.reference_volatility import scaled
from arbiter.operators.quote_rows import lay_quotes
from arbiter.operators.volatility_error import (
    INFO_KEY,
    HeadErrors,
    calibrate_errors,
    parse_errors,
)
from arbiter.quotes import Quotes
from arbiter.surface import Surface
from arbiter_lab.evaluation.heston_surfaces import heston_case
from arbiter_lab.training.law_pool import make_laws
from counts import count

UNIT: dict[str, Any] = {"moved": [0.0], "log_factor": [0.0]}  # errors are the prior's own
LEAST_WITHIN_TWO = 0.92


@pytest.fixture(scope="module")
def operator() -> Operator:
    return Operator.pretrained()


@pytest.fixture(scope="module")
def quotes() -> Quotes:
    return heston_case(0).quotes


@cache
def scores() -> dict[str, list[Array]]:
    operator = Operator.pretrained()
    laws = count(full=400, reduced=80)
    seeds = range(count(full=50, reduced=6))
    cases = [heston_case(seed, hard) for seed in seeds for hard in (False, True)]
    return {
        "laws": score_laws(operator, training_tables(make_laws(laws, SEED), 5 * laws, SEED)),
        "heston": score_cases(operator, cases),
    }


def halved(operator: Operator) -> Operator:
    """The same operator with errors half as large: a planted fault."""
    info = operator.card
    kept = info[INFO_KEY]
    smaller = [one - np.log(2.0) for one in kept["log_factor"]]
    info = {"config": info["config"], INFO_KEY: {**kept, "log_factor": smaller}}
    return Operator(dict(operator.weights), operator.config, info)


@pytest.mark.parametrize("name", ["laws", "heston"])
def test_two_errors_hold_the_truth(name: str) -> None:
    one, two = covered(scores()[name])
    assert two >= LEAST_WITHIN_TWO
    assert one >= 0.68


def test_halves_of_them_do_not(operator: Operator, quotes: Quotes) -> None:
    half = halved(operator)
    at = quotes.k, quotes.T
    np.testing.assert_allclose(half(quotes).iv_error(*at), 0.5 * operator(quotes).iv_error(*at))
    one, two = covered([2.0 * score for score in scores()["laws"]])
    assert two < LEAST_WITHIN_TWO
    assert one < 0.68


def test_errors_have_the_form_of_a_fits(operator: Operator, quotes: Quotes) -> None:
    surface = operator(quotes)
    k, T = np.linspace(-0.3, 0.2, 7), np.array([0.05, 0.3, 1.0])[:, None]
    error = surface.iv_error(k, T)
    assert error.shape == ab.fit(quotes).iv_error(k, T).shape == (3, 7)
    assert (error > 0.0).all()
    assert (error < 0.5 * surface.iv(k, T)).all()
    single = surface.iv_error(0.0, 0.3)
    assert single.shape == ()
    assert float(single) == pytest.approx(float(surface.iv_error([0.0], 0.3)[0]))
    with pytest.raises(ValueError, match="point"):
        surface.iv_error(np.nan, 0.3)


def test_fewer_and_wider_quotes_leave_larger_errors(
    operator: Operator, quotes: Quotes, rng: np.random.Generator
) -> None:
    whole, k, T = operator(quotes), -0.15, 0.3
    right = operator(quotes.select(quotes.k > -0.05))
    noisy = quotes.iv_mid * np.exp(rng.uniform(-0.05, 0.05, len(quotes)))
    table = {"T": quotes.T, "k": quotes.k, "iv_bid": 0.95 * noisy, "iv_ask": 1.05 * noisy}
    wide = Quotes.from_frame(table)
    assert right.iv_error(k, T) > 2.0 * whole.iv_error(k, T)
    assert operator(wide).iv_error(k, T) > 2.0 * whole.iv_error(k, T)
    assert right.iv_error(0.0, T) < 2.0 * whole.iv_error(0.0, T)  # the control: quoted there


def test_at_the_heads_they_are_the_priors_times_the_factor(
    operator: Operator, quotes: Quotes
) -> None:
    plain = Operator(dict(operator.weights), operator.config, {INFO_KEY: UNIT})
    surface, chain = plain(quotes), scaled(lay_quotes([quotes]))
    assert surface.errors is not None
    place = surface.errors.place
    _, log_doubt = guess_smiles(chain, place)
    total = np.log(surface.result.reference * np.sqrt(surface.maturities))
    k, T = np.exp(total)[:, None] * np.sinh(place), surface.maturities[:, None]
    near = np.abs(place) < 1.2  # where there are volatilities
    found = (surface.iv_error(k, T) / surface.iv(k, T))[:, near]
    np.testing.assert_allclose(found, np.exp(log_doubt[0][:, near]), rtol=1e-6)


def test_between_expiries_errors_are_between_those_of_the_expiries() -> None:
    errors = HeadErrors(np.array([-1.0, 0.0, 2.0]), np.log([[1.0, 2.0, 4.0], [3.0, 5.0, 6.0]]))
    T, total = np.array([0.25, 1.0]), np.log([0.1, 0.2])

    def at(k: float, years: float) -> float:
        return float(errors.relative(np.array([k]), np.array([years]), T, total)[0])

    assert at(0.0, 0.25) == pytest.approx(2.0)
    assert at(0.0, 1.0) == pytest.approx(5.0)
    assert at(0.0, 0.5) == pytest.approx(np.sqrt(10.0))  # half the way in log-maturity
    assert at(0.1 * np.sinh(1.0), 0.25) == pytest.approx(np.sqrt(8.0))
    assert at(-9.0, 0.25) == pytest.approx(1.0)  # beyond heads and expiries what it is there
    assert at(0.0, 9.0) == pytest.approx(5.0)
    assert at(0.0, 0.01) == pytest.approx(2.0)
    # beyond the last expiry the heads are as far apart as volatility times root time
    assert at(0.4 * np.sinh(-1.0), 4.0) == pytest.approx(3.0)
    single = HeadErrors(errors.place, errors.log_error[:1])
    k, years = np.array([0.0, 0.0]), np.array([0.1, 2.0])
    np.testing.assert_allclose(single.relative(k, years, T[:1], total[:1]), 2.0)


def test_errors_scale_with_volatility_and_clock(operator: Operator, quotes: Quotes) -> None:
    twice = Quotes.from_frame(
        {
            "T": 0.25 * quotes.T,
            "k": quotes.k,
            "iv_bid": 2.0 * quotes.iv_bid,
            "iv_ask": 2.0 * quotes.iv_ask,
        }
    )
    one, other = operator(quotes), operator(twice)
    k, T = np.linspace(-0.2, 0.1, 5), quotes.maturities[3]
    np.testing.assert_allclose(other.iv_error(k, T / 4.0), 2.0 * one.iv_error(k, T), rtol=1e-4)
    clock = ab.Clock(overnight=0.3, weekend=0.2)
    chain = ab.example_chain().quotes()
    clocked = operator(chain.with_clock(clock))
    near = clocked.iv_error(0.0, chain.maturities) / operator(chain).iv_error(0.0, chain.maturities)
    assert (np.abs(np.log(near)) < 1.0).all()


def test_files_keep_the_errors(operator: Operator, quotes: Quotes, tmp_path: Path) -> None:
    surface = operator(quotes)
    surface.save(tmp_path / "s.npz")
    kept = Surface.load(tmp_path / "s.npz")
    assert isinstance(kept, OperatorSurface)
    at = quotes.k, quotes.T
    np.testing.assert_array_equal(kept.iv_error(*at), surface.iv_error(*at))
    with pytest.raises(ValueError, match="does not increase"):
        HeadErrors.from_stored({"error_place": np.zeros(2), "log_error": np.zeros((2, 2))}, 2)
    with pytest.raises(ValueError, match="log_error has shape"):
        HeadErrors.from_stored({"error_place": np.zeros(3), "log_error": np.zeros((2, 2))}, 2)


def test_weights_without_a_calibration_say_so(operator: Operator, quotes: Quotes) -> None:
    blind = Operator(dict(operator.weights), operator.config, {})(quotes)
    with pytest.raises(ValueError, match="came without a calibration of errors"):
        blind.iv_error(0.0, 0.3)
    assert blind.errors is None


def test_a_calibration_finds_the_factors_that_were_planted(rng: np.random.Generator) -> None:
    moved = rng.uniform(0.0, 2.0, 80_000)
    found = calibrate_errors(moved, (1.0 + moved) * rng.standard_normal(moved.size))
    np.testing.assert_allclose(
        np.exp(found["log_factor"]), 1.0 + np.array(found["moved"]), rtol=0.05
    )
    heavy = calibrate_errors(moved, rng.standard_t(2.0, moved.size))
    assert min(heavy["log_factor"]) > np.log(1.9)  # two errors hold 95 %, whatever the tails
    with pytest.raises(ValueError, match="give some thousands"):
        calibrate_errors(moved[:50], moved[:50])


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        ([1, 2], "must be an object"),
        ({"moved": [0.0]}, "log_factor = None must be a list of numbers"),
        ({"moved": [0.0, np.inf], "log_factor": [0.0, 1.0]}, "moved = .* must be a list"),
        ({"moved": [1.0, 0.5], "log_factor": [0.0, 1.0]}, "moved must increase"),
        ({"moved": [0.0], "log_factor": [0.0, 1.0]}, "one log_factor each"),
        ({**UNIT, "code": 1}, "code unknown"),
    ],
    ids=str,
)
def test_what_is_no_calibration_is_refused(bad: object, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        parse_errors(bad)
    assert parse_errors(None) is None
    assert parse_errors(UNIT) is not None


def test_a_checkpoint_with_a_wrong_calibration_is_refused(
    operator: Operator, tmp_path: Path
) -> None:
    needed = {"config": operator.config.to_dict(), "data_hash": "", "seed": 0, "revision": ""}
    about = {**needed, "metrics": {}, INFO_KEY: {"moved": [1.0], "log_factor": []}}
    path = checkpoint.save(tmp_path / "x.safetensors", operator.weights, about)
    with pytest.raises(CheckpointError, match=r"log_factor = .* must be a list of numbers"):
        Operator.load(path)
