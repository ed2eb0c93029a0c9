"""Chains unlike those of training are reported, chains like them are not."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest
from benchmarks import operator_domain
from benchmarks.operator_domain import Table

import arbiter as ab
from arbiter.operators import domain
from arbiter.operators.domain import TRAITS, DomainReport, calibrate_limits, compare_with_limits
from arbiter.operators.domain_features import ObservedChains, describe_chain
from arbiter.operators.pretrained import Operator
from arbiter_lab.evaluation.heston_surfaces import heston_surface
from arbiter_lab.training.law_pool import make_laws
from counts import FULL, count

SEEDS = range(count(full=50, reduced=6))
CLEAR: dict[operator_domain.Plant, float] = {
    operator_domain.levels_times_ten: 0.9,
    operator_domain.upper_wing_alone: 0.9,
    operator_domain.two_quotes_each: 1.0,
    operator_domain.one_expiry: 1.0,
    operator_domain.garbage: 1.0,
    operator_domain.butterflies: 0.9,
}  # least share of Heston surfaces on which a plant is found
UNTOUCHED, UNTOUCHED_OF_MORE = 0.037, 0.018  # false alarms: of 300 chains, of 1,500 of more laws
PARTLY: dict[operator_domain.Plant, float] = {
    operator_domain.decades: 0.350,
    operator_domain.stale_slice: 0.530,
    operator_domain.shifted_strikes: 0.077,
    operator_domain.mirrored: 0.550,
}  # share of chains of the universe on which a plant is found, as docs/operator.md has it
MIRRORED_HESTON = 0.68  # of Heston surfaces: few smiles of the universe rise
# Limits are two standard errors of a binomial share on either side. The full count is the page's
# own 300 chains. A pool of few laws is a handful of parameter sets, whose chains are alike: from
# pool to pool the rates of a hundred chains varied as those of thirty would (last expiry decades
# ahead: 19 to 37 %).
WORTH = count(full=300, reduced=30)


def tables() -> list[Table]:
    """The base Heston benchmark: a law, a calendar and spreads that training has."""
    found = []
    for seed in SEEDS:
        q = heston_surface(seed).quotes
        found.append(Table(q.T, q.k, 0.5 * (q.iv_bid + q.iv_ask), 0.5 * (q.iv_ask - q.iv_bid)))
    return found


@cache
def universe() -> list[Table]:
    """Chains from laws that neither training nor calibration has seen."""
    laws = make_laws(count(full=operator_domain.LAWS, reduced=200), operator_domain.SEED)
    drawn = operator_domain.training_tables(
        laws, count(full=300, reduced=100), operator_domain.SEED
    )
    return [table for table, _, _ in drawn]


def share_of_universe(change: Callable[[Table, np.random.Generator], Table]) -> float:
    rng = np.random.default_rng(1)
    chains = [change(table, rng).quotes() for table in universe()]
    return operator_domain.alarmed(Operator.pretrained(), chains)[0]


def band(share: float, chains: int) -> tuple[float, float]:
    """Two standard errors of a share on either side."""
    error = 2.0 * np.sqrt(share * (1.0 - share) / chains)
    return share - error, share + error


def share_outside(change: Callable[[Table, np.random.Generator], Table]) -> float:
    rng = np.random.default_rng(1)
    chains = [change(table, rng).quotes() for table in tables()]
    return operator_domain.alarmed(Operator.pretrained(), chains)[0]


def test_ordinary_chains_raise_no_alarm() -> None:
    assert share_outside(lambda table, _: table) <= 0.05
    report = Operator.pretrained()(ab.example_chain().quotes()).domain
    assert report is not None
    assert report.inside
    assert str(report) == "like the training universe"


@pytest.mark.parametrize("plant", CLEAR, ids=lambda plant: plant.__name__)
def test_a_planted_oddity_is_found(plant: operator_domain.Plant) -> None:
    assert share_outside(plant) >= CLEAR[plant]


def test_what_is_found_partly_is_found_as_often_as_is_said() -> None:
    """The shares are those of the page, which states what the detector misses."""
    found = {plant: share_of_universe(plant) for plant in PARTLY}
    for plant, said in PARTLY.items():
        low, high = band(said, WORTH)
        assert low <= found[plant] <= high, plant.__name__
    # but for the forward, which looks like another market, none of it is so of untouched chains
    untouched = share_of_universe(lambda table, _: table)
    lowest = {plant: band(said, WORTH)[0] for plant, said in PARTLY.items()}
    assert [plant for plant in PARTLY if untouched >= lowest[plant]] in (
        [],
        [operator_domain.shifted_strikes],
    )


def test_false_alarms_on_unseen_laws_are_few() -> None:
    """2.3 % of the page's 300 chains, and 1.8 % of 1,500 of 4,000 laws."""
    share = share_of_universe(lambda table, _: table)
    assert share <= band(UNTOUCHED, WORTH)[1]
    if FULL:
        share = operator_domain.false_alarms(Operator.pretrained(), 1500, laws=4000)
        assert share <= band(UNTOUCHED_OF_MORE, 1500)[1]
    assert share_of_universe(operator_domain.mirrored) > band(UNTOUCHED, WORTH)[1]


def test_a_mirrored_smile_is_often_odd() -> None:
    low, high = band(MIRRORED_HESTON, len(SEEDS))
    assert low <= share_outside(operator_domain.mirrored) <= high
    assert share_outside(lambda table, _: table) < low


def test_an_alarm_says_what_is_odd_and_by_how_much(caplog: pytest.LogCaptureFixture) -> None:
    quotes = heston_surface(0).quotes
    one = quotes.select(quotes.expiry == 3)
    with caplog.at_level(logging.WARNING, "arbiter"):
        report = Operator.pretrained()(one).domain
    assert report is not None
    assert not report.inside
    (alarm,) = [alarm for alarm in report.alarms if alarm.name == "expiries"]
    assert (alarm.value, alarm.limit) == (1.0, 2.0)
    assert alarm.sentence == "number of expiries is 1, in training 2 or more"
    assert alarm.sentence in str(report)
    assert alarm.sentence in caplog.text
    plain = report.to_dict()
    assert plain["inside"] is False
    assert plain["alarms"][0].keys() == {"name", "value", "limit", "sentence"}
    assert set(plain["traits"]) == set(TRAITS)


def test_a_refined_surface_says_what_the_operator_thought_of_its_quotes() -> None:
    quotes = heston_surface(0).quotes
    one = quotes.select(quotes.expiry == 3)
    refined = Operator.pretrained().refine(one)
    assert refined.info["operator"]["inside_domain"] is False


def seen(**changes: Any) -> ObservedChains:
    """Two expiries with flat volatility 20 %, met exactly."""
    T = np.array([0.25, 1.0])
    expiry = np.repeat([0, 1], 5)
    total = np.log(0.2 * np.sqrt(T))
    k = np.tile(np.linspace(-2.0, 2.0, 5), 2) * np.exp(total)[expiry]
    flat, tight, met = np.full(10, 0.2), np.full(10, 0.01), np.zeros(10)
    plain = ObservedChains(T, total, expiry, k, flat, tight, met, np.array([0.5]), np.array([0.4]))
    return plain._replace(**changes)


def test_traits_are_what_their_names_say() -> None:
    found = describe_chain(seen())
    assert found["shortest_level"] == pytest.approx(0.1)
    assert found["longest_level"] == pytest.approx(0.2)
    assert found["term_structure"] == pytest.approx(0.0, abs=1e-12)
    assert found["expiries"] == 2
    assert found["moved"] == 0.5
    assert found["widest_gap"] == pytest.approx(4.0)
    assert found["fewest_quotes"] == 5
    assert found["lower_reach"] == pytest.approx(-2.0)
    assert found["upper_reach"] == pytest.approx(2.0)
    assert found["money"] == 0.0
    assert found["spread"] == 0.01
    assert found["misfit"] == found["misfit_worst"] == found["misfit_expiry"] == 0.0
    assert found["skew"] == pytest.approx(0.0, abs=1e-12)
    assert found["jagged"] == found["out_of_line"] == pytest.approx(0.0, abs=1e-9)
    miss = np.zeros(10)
    miss[5:] = -7.0
    assert describe_chain(seen(miss=miss))["misfit_expiry"] == 7.0
    assert describe_chain(seen(miss=np.arange(10.0)))["misfit"] == 4.5


def test_levels_and_reach_do_not_depend_on_the_unit_of_time() -> None:
    """A chain whose clock runs four times as fast is the same chain."""
    quotes = heston_surface(1).quotes
    fast = ab.Quotes.from_frame(
        {
            "T": quotes.T / 4.0,
            "k": quotes.k,
            "iv_bid": 2.0 * quotes.iv_bid,
            "iv_ask": 2.0 * quotes.iv_ask,
        }
    )
    operator = Operator.pretrained()
    one, other = operator(quotes).domain, operator(fast).domain
    assert one is not None
    assert other is not None
    for name, value in one.traits.items():
        assert other.traits[name] == pytest.approx(value, rel=1e-5, abs=1e-6), name


def test_limits_are_quantiles_and_judging_uses_them() -> None:
    rng = np.random.default_rng(0)
    sample = [dict.fromkeys(TRAITS, float(x)) for x in rng.uniform(size=4000)]
    limits = calibrate_limits(sample)
    assert limits["spread"][0] is not None
    assert limits["spread"][0] < 0.002
    assert limits["misfit"][0] is None
    assert limits["misfit"][1] == pytest.approx(1.0 - domain.FAT_TAIL_SHARE, abs=2e-3)
    pairs = {name: (low, high) for name, (low, high) in limits.items()}
    assert compare_with_limits(dict.fromkeys(TRAITS, 0.5), pairs).inside
    low = compare_with_limits(dict.fromkeys(TRAITS, -1.0), pairs)
    assert {alarm.name for alarm in low.alarms} == {n for n, t in TRAITS.items() if t.low}
    unknown = compare_with_limits(dict.fromkeys(TRAITS, float("nan")), pairs)
    assert not unknown.inside  # what cannot be told is not inside
    with pytest.raises(ValueError, match="sample is empty"):
        calibrate_limits([])


def test_the_shipped_weights_have_limits_for_every_trait() -> None:
    limits = Operator.pretrained().card["domain"]
    assert set(limits) == set(TRAITS)
    for name, trait in TRAITS.items():
        low, high = limits[name]
        assert (low is not None, high is not None) == (trait.low, trait.high), name
    report = compare_with_limits(dict.fromkeys(TRAITS, 0.0), limits)
    assert isinstance(report, DomainReport)
