"""Rows of an evaluation: the prior alone, Heston's calibration, and paired differences."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import astuple, replace
from types import SimpleNamespace

import numpy as np
import pytest
from scipy.stats import ttest_rel

import arbiter as ab
from arbiter.conventions import Array
from arbiter.pricing import black
from arbiter.quotes import Quotes
from arbiter_lab.evaluation.heston_row import calibrate_heston
from arbiter_lab.evaluation.heston_surfaces import draw_heston, heston_case
from arbiter_lab.evaluation.known_surface import Case
from arbiter_lab.evaluation.listed_chains import Row, evaluate_same_day, summarise_chains
from arbiter_lab.evaluation.methods import Method, select_methods
from arbiter_lab.evaluation.paired_differences import compare_pair, paired_differences
from arbiter_lab.evaluation.prior_surface import prior_surface
from arbiter_lab.evaluation.run_methods import evaluate
from arbiter_lab.evaluation.scores import surface_rmse_bp
from arbiter_lab.evaluation.unseen_surfaces import make_unseen_surfaces
from counts import count


@pytest.fixture(scope="module")
def cases() -> list[Case]:
    sheets = make_unseen_surfaces(count(60, 6))
    return [sheets.build_case(i) for i in range(len(sheets))]


def errors(surface: ab.Surface, case: Case) -> float:
    found = surface.iv(case.k, case.T[:, None])
    return float(np.sqrt(np.nanmean((found - case.iv) ** 2))) / 1e-4


def test_the_prior_is_a_certified_surface_without_a_weight(cases: list[Case]) -> None:
    """Its errors are below the noise of the quotes; a moved quote moves it."""
    case = cases[0]
    found = prior_surface(case.quotes)
    assert found.certificate().passed
    assert errors(found, case) < 12.0
    assert errors(found, replace(case, iv=case.iv + 0.01)) > 90.0
    up = replace(case.quotes, bid=case.quotes.bid * 1.01, ask=case.quotes.ask * 1.01)
    assert errors(prior_surface(up), case) > 1.2 * errors(found, case)
    with pytest.raises(ValueError, match="at least 3"):
        prior_surface(case.quotes.select(np.arange(len(case.quotes)) < 2))


def test_the_prior_is_where_the_network_starts(cases: list[Case]) -> None:
    """A pass whose maps are zero is the prior; the shipped one is not."""
    shipped = ab.Operator.pretrained()
    off = ("last.weight", "base.weight", "base.bias", "direct.weight")
    silent = {
        name: np.zeros_like(part) if name.removeprefix("looks.0.") in off else part
        for name, part in shipped.weights.items()
    }
    nothing = ab.Operator(silent, shipped.config, dict(shipped.card))
    for case in cases[:3]:
        prior = prior_surface(case.quotes)
        none, some = (one(case.quotes) for one in (nothing, shipped))
        np.testing.assert_allclose(none.slopes, prior.slopes, rtol=1e-5)
        assert np.abs(some.slopes / prior.slopes - 1.0).max() > 1e-3


def test_calibration_finds_a_true_heston_model_and_no_other(cases: list[Case]) -> None:
    case = heston_case(3)
    found = calibrate_heston(case.quotes)
    truth = draw_heston(np.random.default_rng(3))
    assert astuple(found.heston) == pytest.approx(astuple(truth), rel=0.1)
    off = found.iv(case.k, case.T[:, None]) - case.iv
    assert np.sqrt(np.mean(off**2)) < 3e-4
    assert found.vix() == pytest.approx(case.vix, abs=0.05)
    outsider = cases[2]
    wrong = calibrate_heston(outsider.quotes).iv(outsider.k, outsider.T[:, None]) - outsider.iv
    assert np.sqrt(np.nanmean(wrong**2)) > 20e-4


def test_a_paired_difference_is_students(rng: np.random.Generator) -> None:
    first = rng.lognormal(1.0, 0.4, 40)
    second = first + rng.normal(0.5, 0.8, 40)
    markets = [str(i) for i in range(40)]
    found, right = compare_pair(first, second, markets), ttest_rel(first, second)
    assert found["p_value"] == pytest.approx(right.pvalue)
    assert found["low_bp"] == pytest.approx(right.confidence_interval(0.95).low)
    assert found["low_bp"] < found["difference_bp"] < found["high_bp"] < 0.0
    # surfaces that are there twice are no more evidence
    twice = compare_pair(
        np.repeat(first, 2), np.repeat(second, 2), sorted([*markets, *markets], key=int)
    )
    assert twice["p_value"] == pytest.approx(right.pvalue)
    apart = [str(i) for i in range(80)]
    naive = compare_pair(np.repeat(first, 2), np.repeat(second, 2), apart)
    assert naive["p_value"] < right.pvalue


def test_intervals_cover_and_p_values_are_level(rng: np.random.Generator) -> None:
    """Without a difference one p-value in twenty is below 5 %; with one, nearly all are."""
    rounds, size = count(2000, 400), 30
    markets = [str(i) for i in range(size)]

    def found_share(gap: float) -> float:
        low = 0
        for _ in range(rounds):
            noise = rng.normal(gap, 1.0, size)
            pair = compare_pair(noise, np.zeros(size), markets)
            assert (pair["p_value"] < 0.05) == (pair["low_bp"] > 0.0 or pair["high_bp"] < 0.0)
            low += pair["p_value"] < 0.05
        return low / rounds

    assert found_share(0.0) == pytest.approx(0.05, abs=0.035)
    assert found_share(1.0) > 0.95


def test_differences_that_cannot_be_taken_are_none() -> None:
    refused = compare_pair([1.0, np.inf], [1.0, 2.0], ["a", "b"])
    assert refused["difference_bp"] is None is refused["p_value"]
    one = compare_pair([1.0, 2.0], [2.0, 2.5], ["a", "a"])
    assert (one["difference_bp"], one["p_value"]) == (-0.75, None)
    same = compare_pair([1.0, 2.0], [1.0, 2.0], ["a", "b"])
    assert (same["difference_bp"], same["p_value"]) == (0.0, None)


def test_rows_are_compared_with_the_operator_and_that_with_the_prior(cases: list[Case]) -> None:
    chosen = select_methods(["prior", "operator", "fit"], ab.Operator.pretrained())
    done = evaluate(cases[:6], chosen)
    pairs = done.to_dict()["paired"]
    assert [(p["method"], p["against"]) for p in pairs] == [
        ("operator", "prior"),
        ("fit", "operator"),
    ]
    assert [pair["markets"] for pair in pairs] == [4, 4]  # of three surfaces two share parameters
    methods = done.to_dict()["methods"]
    each = methods["operator"]["surface_rmse_bp"]
    assert methods["operator"]["mean_surface_rmse_bp"] == pytest.approx(np.mean(each))
    assert methods["operator"]["median_surface_rmse_bp"] == pytest.approx(np.median(each))
    assert each[0] == pytest.approx(surface_rmse_bp(done.answers["operator"][0]))
    alone = {"fit": done.answers["fit"], "prior": done.answers["prior"]}
    assert paired_differences(cases[:6], alone) == []


def test_expiries_of_the_same_day_are_scored_apart() -> None:
    """A model that is wrong on them alone is found out there alone."""
    as_of = np.datetime64("2026-11-12T11:00")
    T = np.repeat([5.0 / 24.0 / 365.0, 8.0 / 365.0, 40.0 / 365.0], 21)
    k = np.tile(np.linspace(-2.0, 2.0, 21), 3) * 0.2 * np.sqrt(T)
    table = {"T": T, "k": k, "iv_bid": np.full(63, 0.199), "iv_ask": np.full(63, 0.201)}
    quotes = replace(Quotes.from_frame(table), as_of=as_of)

    class Flat:
        """20 % on all expiries but those of the day, where it is off."""

        def __init__(self, off: float) -> None:
            self.off = off

        def iv(self, k: Array, T: Array) -> Array:
            return np.where(np.asarray(T) < 0.002, 0.2 + self.off, 0.2) + 0.0 * np.asarray(k)

        def otm(self, k: Array, T: Array) -> Array:
            return np.asarray(black.otm(k, self.iv(k, T) * np.sqrt(T)))

    def scored(off: float, given: Quotes = quotes) -> Row | None:
        return evaluate_same_day(Method("flat", lambda _: [Flat(off)]), given)

    right, wrong = scored(0.0), scored(0.003)
    assert right is not None
    assert wrong is not None
    assert (right["quotes"], right["inside_bid_ask"]) == (21, 1.0)
    assert right["iv_rmse_bp"] == pytest.approx(0.0, abs=0.2)
    assert wrong["iv_rmse_bp"] == pytest.approx(30.0, abs=0.2)
    assert wrong["inside_bid_ask"] < 0.5
    assert wrong["median_half_spreads"] == pytest.approx(3.0, abs=0.1)
    later = quotes.select(quotes.T > 0.002)
    assert scored(0.003, later) is None


def test_means_over_chains_are_of_those_that_all_methods_answered() -> None:
    def row(chain: str, method: str, bp: float, inside: bool | None = None) -> Row:
        scores = {"iv_rmse_bp": bp, "inside_bid_ask": 0.9, "median_half_spreads": 0.1 * bp}
        day = None if chain == "a" else {**scores, "quotes": 5}
        about = {"chain": chain, "method": method, "inside_domain": inside, "same_day": day}
        return about | scores

    rows = [
        row("a", "operator", 2.0, True), row("a", "fit", 1.0),
        row("b", "operator", 4.0, False), row("b", "fit", 2.5),
        row("c", "operator", 100.0, True), {"chain": "c", "method": "fit", "error": "refused"},
        {"chain": "d", "error": "cannot be read"},
    ]  # fmt: skip
    found = summarise_chains(rows)
    operator = found["methods"]["operator"]
    assert operator["chains"] == 2
    assert operator["mean_iv_rmse_bp"] == pytest.approx(3.0)
    assert operator["alarms"] == 1
    assert operator["same_day"]["chains"] == 1
    assert operator["same_day"]["mean_iv_rmse_bp"] == pytest.approx(4.0)
    assert found["methods"]["fit"]["alarms"] is None
    assert [pair["difference_bp"] for pair in found["paired"]] == [-1.25]
    assert summarise_chains(rows[-1:]) == {"methods": {}, "paired": []}
    # what one method leaves out on the same day counts for none: its mean would be of easier days
    hard = [row("e", "operator", 50.0), row("e", "fit", 1.0) | {"same_day": None}]
    days = [s["same_day"] for s in summarise_chains([*rows, *hard])["methods"].values()]
    assert [day["chains"] for day in days] == [1, 1]
    assert days[0]["mean_iv_rmse_bp"] == pytest.approx(4.0)
    easy = [row("e", "operator", 50.0), row("e", "fit", 1.0)]  # the control
    days = [s["same_day"] for s in summarise_chains([*rows, *easy])["methods"].values()]
    assert days[0]["mean_iv_rmse_bp"] == pytest.approx(27.0)


def test_alarms_and_the_ratio_to_the_fit_are_beside_the_errors(cases: list[Case]) -> None:
    class Judged:
        """A fit that judges its quotes."""

        def __init__(self, quotes: Quotes, inside: bool) -> None:
            self.surface, self.domain = ab.fit(quotes), SimpleNamespace(inside=inside)
            self.iv, self.otm = self.surface.iv, self.surface.otm

    def judge(chains: Sequence[Quotes]) -> list[Judged]:
        return [Judged(quotes, i > 0) for i, quotes in enumerate(chains)]

    chosen = [Method("judged", judge), *select_methods(["fit", "prior"])]
    found = evaluate(cases[:3], chosen).to_dict()["methods"]
    assert found["judged"]["alarms"] == 1
    assert found["fit"]["alarms"] is None
    assert found["judged"]["ratio_to_fit"] == pytest.approx(1.0)
    prior, fit = found["prior"]["rmse_bp"], found["fit"]["rmse_bp"]
    assert found["prior"]["ratio_to_fit"] == pytest.approx(prior / fit)
    alone = evaluate(cases[:1], select_methods(["prior"])).to_dict()["methods"]["prior"]
    assert alone["ratio_to_fit"] is None
