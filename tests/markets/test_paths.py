"""Paths: variance is not negative, means are exact, the index is a martingale, seeds are kept."""

import datetime as dt
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from arbiter.conventions import Array
from arbiter.markets.paths import Paths, noise_direction, simulate
from arbiter.markets.timelines import timeline
from arbiter.markets.universes import simulate_settled_state, universe
from arbiter.models.expected_variance import ExpectedVariance
from arbiter.models.lifted_heston import LiftedHeston
from arbiter.models.parameters import PRESETS, Parameters, draw, preset
from counts import count

PATHS = count(full=400_000, reduced=25_000)
HORIZONS = np.array([0.01, 0.1, 0.5, 1.5])


def errors_off(sample: Array, value: float) -> float:
    """How many standard errors the mean of a sample is from a value."""
    return float(abs(sample.mean() - value) / (sample.std() / np.sqrt(sample.size)))


def lowest_forward_variance(p: Parameters, states: Array) -> float:
    """The lowest mean of variance, over states and over times ahead, as a share of theta."""
    ahead = np.geomspace(1e-5, 10.0, 40)
    return float(ExpectedVariance.from_parameters(p).variance(ahead, states).min() / p.theta)


@pytest.fixture(scope="module")
def coarse() -> dict[str, Paths]:
    """Few large steps, of a month and a half: what is exact is exact for them too."""
    return {
        name: simulate(p, HORIZONS, seed=11, paths=PATHS, steps_per_day=0.02)
        for name, p in PRESETS.items()
    }


@pytest.mark.parametrize("name", PRESETS)
def test_mean_of_variance_is_the_closed_form(coarse: dict[str, Paths], name: str) -> None:
    p = preset(name)
    mean = ExpectedVariance.from_parameters(p).variance(HORIZONS, np.zeros(p.factors))
    other = ExpectedVariance.from_parameters(replace(p, theta=1.5 * p.theta)).variance(
        HORIZONS, np.zeros(p.factors)
    )
    for i, value in enumerate(mean):
        assert errors_off(coarse[name].variance[:, i], value) < 4.0  # one of 40 such
    assert errors_off(coarse[name].variance[:, -1], other[-1]) > 6.0  # another theta is noticed


@pytest.mark.parametrize("name", PRESETS)
def test_index_is_a_martingale(coarse: dict[str, Paths], name: str) -> None:
    X = np.exp(coarse[name].log_index)
    for i in range(HORIZONS.size):
        assert errors_off(X[:, i], 1.0) < 4.0
    assert errors_off(X[:, 0], 1.01) > 6.0


@given(st.integers(0, 2**32), st.sampled_from([0.05, 1.0, 6.0]))
def test_variance_and_forward_variances_are_never_negative(seed: int, steps: float) -> None:
    p = draw(np.random.default_rng(seed))
    found = simulate(p, np.linspace(0.0, 0.3, 12), seed, paths=20, steps_per_day=steps)
    assert (p.v0 + found.states @ p.c).min() > -1e-12 * (1.0 + p.v0)
    assert lowest_forward_variance(p, found.states) > -1e-9


def test_arbitrary_state_has_negative_forward_variance_and_is_seen() -> None:
    p = preset("calm")
    state = np.zeros(p.factors)
    state[-1], state[5] = 1.0, -p.c[-1] / p.c[5]  # variance itself is unchanged
    assert lowest_forward_variance(p, state) < -0.1


def test_negative_variance_at_the_start_is_refused() -> None:
    p = preset("calm")
    with pytest.raises(ValueError, match="point of a path"):
        simulate(p, [0.1], seed=1, state=np.full(p.factors, -1.0))


@pytest.mark.parametrize("name", ["calm", "rough", "jumpy"])
def test_option_prices_converge_to_the_oracle(name: str) -> None:
    """A day's straddle: 4 to 5 % too low with one step a day, within the noise with 32."""
    p, T = preset(name), 1.0 / 365.0
    exact = 2.0 * float(LiftedHeston.of(p).otm(0.0, T))
    off = {}
    for steps in (1, 8, 32):
        X = np.exp(simulate(p, [T], seed=5, paths=2 * PATHS, steps_per_day=steps).log_index[:, 0])
        move = np.abs(X - 1.0)
        off[steps] = move.mean() / exact - 1.0, errors_off(move, exact)
    assert -0.07 < off[1][0] < -0.02
    assert off[1][1] > 3.0
    assert abs(off[8][0]) < 0.025
    assert off[32][1] < 4.0


def test_noise_moves_slow_factors_fully_and_fast_ones_less() -> None:
    p = preset("calm")
    day = noise_direction(p, 1.0 / 365.0)
    assert day[: p.factors // 2] == pytest.approx(1.0, abs=0.02)
    assert (np.diff(day) < 0.0).all()
    assert 0.0 < day[-1] < 0.1
    fine = noise_direction(p, 1e-8)
    assert fine == pytest.approx(1.0, abs=1e-3)  # short steps are the model itself


def test_heston_prices_are_within_three_standard_errors() -> None:
    market = LiftedHeston.heston(v0=0.05, kappa=2.0, theta=0.04, sigma=0.6, rho=-0.7)
    X = np.exp(simulate(market, [0.25], seed=3, paths=2 * PATHS, steps_per_day=1).log_index[:, 0])
    for k in (-0.15, -0.05, 0.0, 0.08):
        payoff = np.maximum(X - np.exp(k), 0.0) if k >= 0.0 else np.maximum(np.exp(k) - X, 0.0)
        assert errors_off(payoff, float(market.otm(k, 0.25))) < 3.0
    payoff = np.maximum(np.exp(-0.15) - X, 0.0)
    assert errors_off(payoff, float(market.otm(-0.15, 0.27))) > 3.0  # another maturity is noticed


def test_state_now_is_where_a_path_goes_on() -> None:
    """From a state of a path the mean of variance is that of the state, not of the start."""
    p = preset("stressed")
    state = simulate_settled_state(p, 4)
    found = simulate(p, [0.2], seed=8, paths=PATHS, state=state, steps_per_day=0.2)
    later = np.array(0.2)
    assert (
        errors_off(
            found.variance[:, 0], float(ExpectedVariance.from_parameters(p).variance(later, state))
        )
        < 3.5
    )
    fresh = float(ExpectedVariance.from_parameters(p).variance(later, np.zeros(p.factors)))
    assert errors_off(found.variance[:, 0], fresh) > 6.0


def test_volatility_futures_are_within_three_standard_errors() -> None:
    market, T = LiftedHeston.of(preset("stressed")), 14.0 / 365.0
    found = simulate(market, [T], seed=5, paths=PATHS, steps_per_day=4)
    index = market.vix(found.states[:, 0])
    assert errors_off(index, float(market.vix_future(T))) < 3.0
    assert errors_off(index**2, 1e4 * float(market.forward_variance(T))) < 3.0
    assert errors_off(index, float(market.vix())) > 6.0  # the index today is noticed


def test_same_seed_same_bits() -> None:
    p, times = preset("jumpy"), np.arange(1, 6) / 365.0
    one, two, other = (simulate(p, times, seed, paths=3) for seed in (1, 1, 2))
    assert (one.log_index == two.log_index).all()
    assert (one.states == two.states).all()
    assert (one.log_index != other.log_index).any()


def test_longer_timeline_begins_as_the_shorter_one() -> None:
    short, long = (timeline(preset("calm"), days, seed=3, steps_per_day=1) for days in (20, 40))
    assert (long.states[:20] == short.states).all()
    assert (long.spot[:20] == short.spot).all()
    other = timeline(preset("calm"), 20, seed=4, steps_per_day=1)
    assert (other.states[1:] != short.states[1:]).any()


def test_timeline_keeps_the_exchanges_calendar() -> None:
    market = timeline(preset("calm"), 12, seed=0, start=dt.date(2024, 6, 28), steps_per_day=1)
    moments = [str(moment) for moment in market.as_of]
    assert moments[0] == "2024-06-28T16:15"
    assert moments[3] == "2024-07-03T13:15"  # half a day
    assert moments[4] == "2024-07-05T16:15"  # the holiday has no quotes
    assert len(set(moments)) == 12


# Median of the volatility index over 2,000 days, and what it exceeds on one day in twenty.
LEVELS = {
    "calm": (11.0, 16.0, 20.0),
    "stressed": (17.0, 26.0, 32.0),
    "inverted": (15.0, 28.0, 32.0),
    "rough": (13.0, 18.0, 24.0),
    "jumpy": (12.5, 17.0, 21.0),
}


def levels(p: Parameters, seed: int) -> tuple[float, float, float, float]:
    """Lowest, median, 95 % and highest level of the index over 2,000 days."""
    found = timeline(p, 2000, seed, steps_per_day=1)
    index = found.market.vix(found.states)
    return tuple(np.quantile(index, [0.0, 0.5, 0.95, 1.0]).tolist())


@pytest.mark.parametrize("name", PRESETS)
def test_timelines_live_where_the_index_lives(name: str) -> None:
    low, high, stressed = LEVELS[name]
    for seed in range(1, count(full=9, reduced=3)):
        lowest, median, above, highest = levels(preset(name), seed)
        assert low < median < high, seed
        assert 8.0 < lowest < median
        assert above > stressed - 4.0, seed
        assert 28.0 < highest < 130.0, seed


def test_levels_see_a_market_without_reversion() -> None:
    """Without it variance is near zero on most days: the median falls to 6 points."""
    low = LEVELS["calm"][0]
    assert levels(replace(preset("calm"), reversion=0.3, nu=0.28), 1)[1] < low


def test_members_of_a_universe_differ_and_are_reached_states() -> None:
    many = universe(count(full=500, reduced=25), seed=6)
    members = [many.member(i) for i in range(len(many))]
    assert len({market.v0 for market, _ in members}) == len(members)
    for market, state in members:
        assert lowest_forward_variance(market, state) > -1e-9
    again = universe(3, seed=6).member(2)  # neither order nor number of the others matters
    assert again[0] == members[2][0]
    assert (again[1] == members[2][1]).all()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"times": [0.2, 0.1]}, r"times\[1\] = .*0\.1"),
        ({"times": [-0.1]}, r"times\[0\]"),
        ({"times": []}, "at least one"),
        ({"times": [0.1], "paths": 0}, "paths = 0"),
        ({"times": [0.1], "steps_per_day": 0.0}, "steps_per_day"),
        ({"times": [0.1], "state": [0.0]}, "20 finite numbers"),
        ({"times": [0.1], "state": [-50.0] + [0.0] * 18 + [1.0]}, "expected variance of -"),
    ],
)
def test_mistakes_are_named(arguments: dict[str, object], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        simulate(preset("calm"), seed=1, **arguments)  # type: ignore[arg-type]


def test_steps_without_a_mean_are_refused() -> None:
    p = replace(preset("stressed"), rho=0.9, hurst=0.02, nu=20.0)
    with pytest.raises(ValueError, match="give more steps per day"):
        simulate(p, [1.0], seed=1, steps_per_day=0.001)
    X = np.exp(simulate(p, [1.0], seed=1, steps_per_day=1, paths=2).log_index)
    assert np.isfinite(X).all()


def test_no_days_are_refused() -> None:
    for seed in (None, 1.5):
        with pytest.raises(ValueError, match="seed = "):
            simulate(preset("calm"), [0.1], seed)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="preset"):
        timeline("calm", 3, seed=1)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"days = 2\.5"):
        timeline(preset("calm"), 2.5, seed=1)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="days = 0"):
        timeline(preset("calm"), 0, seed=1)
    with pytest.raises(ValueError, match="count = 0"):
        universe(0, seed=1)
    with pytest.raises(ValueError, match="seed = -1"):
        timeline(preset("calm"), 1, seed=-1)
