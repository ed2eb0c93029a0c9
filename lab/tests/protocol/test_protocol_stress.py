"""Each axis does to quotes or market what it says, no more, and failure is found where it is."""

from dataclasses import replace

import numpy as np
import pytest

from arbiter.conventions import Array
from arbiter.models.parameters import Jumps, Parameters, preset
from arbiter.pricing import black
from arbiter.scoring import BASIS_POINT
from arbiter_lab.evaluation.arbitrage_check import ArbitrageVerdict
from arbiter_lab.evaluation.known_surface import Case, quotes_from_volatilities
from arbiter_lab.evaluation.scores import CaseScore, noise_bp, score_refusal
from arbiter_lab.protocol.stress import (
    AXES,
    STALE_SHARE,
    add_jumps,
    add_noise,
    check_failure,
    drop_quotes,
    leave_stale,
    make_stressed_case,
    market_case,
    roughen,
    shift_numeraire,
    spread_bp,
)

Place = tuple[int, int]
QUOTES = [axis.name for axis in AXES.values() if axis.on_quotes is not None]
MARKET = replace(preset("calm"), factors=4)


@pytest.fixture(scope="module")
def case() -> Case:
    return market_case(MARKET, seed=7)


def prices(case: Case) -> dict[Place, float]:
    """Return mid prices by maturity and strike."""
    places = [(int(row), int(column)) for row, column in np.argwhere(case.quoted)]
    return dict(zip(places, case.quotes.mid.tolist(), strict=True))


def test_a_market_case_is_like_the_unseen_surfaces(case: Case) -> None:
    assert case.iv.shape == (14, 33)
    assert case.quoted.sum() == len(case.quotes)
    assert 0.75 < case.quoted.sum() / case.listed.sum() < 0.85
    # uniform noise within the spread: its root mean square is the half-spread over √3
    assert noise_bp([case]) == pytest.approx(0.5 * spread_bp(case) / np.sqrt(3.0), rel=0.1)


@pytest.mark.parametrize("axis", AXES)
def test_no_stress_is_no_change(axis: str, case: Case) -> None:
    found = make_stressed_case(axis, 0.0, MARKET, seed=7)
    assert (found.case.quoted == case.quoted).all()
    assert found.case.quotes.k == pytest.approx(case.quotes.k, abs=0.0)
    assert found.case.quotes.bid == pytest.approx(case.quotes.bid, rel=1e-9)
    assert found.case.quotes.ask == pytest.approx(case.quotes.ask, rel=1e-9)
    assert found.spread == spread_bp(case)


@pytest.mark.parametrize("axis", QUOTES)
def test_stress_of_quotes_leaves_the_truth_and_repeats(axis: str, case: Case) -> None:
    severity = AXES[axis].severities[-2]
    first, again = (make_stressed_case(axis, severity, MARKET, seed=7) for _ in range(2))
    assert (first.case.iv == case.iv).all()
    assert (first.case.deviations == case.deviations).all()
    assert first.case.vix == case.vix
    assert first.spread == spread_bp(case)
    assert (first.case.quotes.bid == again.case.quotes.bid).all()
    assert len(first.case.quotes) == first.case.quoted.sum()
    assert first.case.quotes.exclusions.height == 0
    assert not np.array_equal(first.case.quotes.iv_mid, case.quotes.iv_mid)


@pytest.mark.parametrize("axis", AXES)
def test_levels_begin_without_stress_and_increase(axis: str) -> None:
    severities = AXES[axis].severities
    assert severities[0] == 0.0
    assert (np.diff(severities) > 0.0).all()


@pytest.mark.parametrize("axis", AXES)
@pytest.mark.parametrize("severity", [-0.1, np.nan, np.inf])
def test_negative_stress_is_refused(axis: str, severity: float) -> None:
    with pytest.raises(ValueError, match="severity = "):
        make_stressed_case(axis, severity, MARKET, seed=0)


def test_unknown_axis_is_refused() -> None:
    with pytest.raises(ValueError, match="axis 'rain' is not one of noise, coverage"):
        make_stressed_case("rain", 1.0, MARKET, seed=0)


def test_noise_is_in_half_spreads(case: Case) -> None:
    noisy = add_noise(case, 2.0, seed=1)
    q = case.quotes
    moved = np.log(noisy.quotes.iv_mid / q.iv_mid) * (q.iv_ask + q.iv_bid) / (q.iv_ask - q.iv_bid)
    assert np.std(moved) == pytest.approx(2.0, rel=0.1)
    assert np.mean(moved) == pytest.approx(0.0, abs=4.0 * 2.0 / np.sqrt(moved.size))
    # spreads do not say so
    wide = np.log(noisy.quotes.iv_ask / noisy.quotes.iv_bid)
    assert wide == pytest.approx(np.log(q.iv_ask / q.iv_bid), rel=1e-6)
    assert noise_bp([noisy]) > 2.0 * noise_bp([case])


def test_more_stress_drops_more_of_the_same_quotes(case: Case) -> None:
    kept = [drop_quotes(case, severity, seed=1) for severity in (0.25, 0.5, 0.9)]
    share = [len(k.quotes) / len(case.quotes) for k in kept]
    assert share == pytest.approx([0.75, 0.5, 0.1], abs=0.08)
    assert not (kept[1].quoted & ~kept[0].quoted).any()
    assert not (kept[2].quoted & ~kept[1].quoted).any()
    original, left = prices(case), prices(kept[2])
    assert all(left[place] == original[place] for place in left)


def test_three_quotes_stay(case: Case) -> None:
    assert len(drop_quotes(case, 0.9999, seed=1).quotes) == 3
    with pytest.raises(ValueError, match="less than one"):
        drop_quotes(case, 1.0, seed=1)


def test_a_wrong_rate_moves_strikes_and_breaks_parity() -> None:
    # one strike between the forwards, at the right forward a call worth c: at the wrong one, 2 %
    # higher at a year, it is a put, and the market's put is c − 1 + κ
    quiet = market_case(MARKET, seed=7)
    row, column = np.argwhere(quiet.quoted & (quiet.k > 0.0) & (quiet.k < 0.02))[-1].tolist()
    moved = shift_numeraire(quiet, 2.0)
    shift = 0.02 * quiet.T[row]
    assert moved.k[row, column] == pytest.approx(quiet.k[row, column] - shift, abs=1e-15)
    before, after = prices(quiet), prices(moved)
    place = (row, column)
    assert moved.k[place] < 0.0 < quiet.k[place]
    expected = before[place] + np.exp(quiet.k[place]) - 1.0
    assert after[place] == pytest.approx(expected, rel=1e-12)
    # far from the money prices are what they were
    row, column = np.argwhere(quiet.quoted & (quiet.k < -0.1))[0].tolist()
    far = (row, column)
    assert after[far] == before[far]
    # puts look dear and calls cheap: the jump in volatility at the money is the broken parity
    root = np.sqrt(moved.quotes.T)
    ratio = black.implied_total_volatility(moved.quotes.mid, moved.quotes.k).volatility / root
    gap = ratio / quiet.iv[moved.quoted] - 1.0
    near = (np.abs(moved.quotes.k) < 0.03) & (moved.quotes.T > 0.9)
    assert gap[near & (moved.quotes.k < 0.0)].mean() > 0.02
    assert gap[near & (moved.quotes.k >= 0.0)].mean() < -0.02


def test_stale_quotes_are_those_of_a_moved_index(case: Case) -> None:
    moved = leave_stale(case, 3.0, seed=1)
    before, after = prices(case), prices(moved)
    same = np.array([np.isclose(after[p], before[p], rtol=1e-9) for p in after])
    assert 1.0 - same.mean() == pytest.approx(STALE_SHARE, abs=0.07)
    assert case.quoted.sum() - moved.quoted.sum() <= 3  # none but those that leave the bounds


def test_stale_quotes_of_a_flat_smile_by_hand() -> None:
    # σ = 20 % everywhere, the index moved by m: an old put at K is e^{−m} p(k + m)
    T, k = np.array([0.25, 0.5]), np.tile(np.linspace(-0.2, 0.2, 9), (2, 1))
    flat = np.full((2, 9), 0.2)
    everywhere = np.ones((2, 9), dtype=bool)
    quotes = quotes_from_volatilities(T, k, flat, 0.001 * np.ones((2, 9)), everywhere)
    flat_case = Case("flat", "flat", quotes, T, k, k / 0.1, flat, everywhere, 20.0)
    moved = leave_stale(flat_case, 2.0, seed=3)
    daily = 0.2 / np.sqrt(252.0)
    before, after = prices(flat_case), prices(moved)
    changed = [p for p in after if not np.isclose(after[p], before[p], rtol=1e-9)]
    assert changed
    move = [m for m in (2.0 * daily, -2.0 * daily) if _old(k, T, changed[0], m, after) < 1e-6]
    assert len(move) == 1
    assert all(_old(k, T, place, move[0], after) < 1e-6 for place in changed)


def _old(k: Array, T: Array, place: Place, move: float, after: dict[Place, float]) -> float:
    """Relative distance of a quote from the old price by parity, calls at or above the money."""
    x, root = k[place] + move, np.sqrt(T[place[0]])
    side = np.array([black.otm(np.array(x), np.array(iv * root)) for iv in (0.199, 0.201)]).mean()
    call = side if x >= 0.0 else side + 1.0 - np.exp(x)
    mid = call if k[place] >= 0.0 else call - 1.0 + np.exp(x)
    return abs(float(np.exp(-move) * mid) / after[place] - 1.0)


def test_rougher_and_jumpier_markets() -> None:
    rough = roughen(MARKET, 2.0)
    assert (rough.hurst, rough.nu) == pytest.approx((MARKET.hurst / 4.0, MARKET.nu * 4.0))
    jumpy = add_jumps(MARKET, 2.0)
    assert jumpy.jumps == Jumps(1.0, -0.1, 0.05)
    assert add_jumps(MARKET, 0.0) is MARKET
    skew = [_skew(market_case(p, seed=0)) for p in (MARKET, roughen(MARKET, 1.0))]
    assert skew[1] > 1.1 * skew[0]
    severities = [market_case(add_jumps(MARKET, x), seed=0).vix for x in (0.0, 2.0, 4.0)]
    assert severities == sorted(severities)


def _skew(case: Case) -> float:
    return float(case.iv[3, 10] - case.iv[3, 25])


def test_yardstick_of_a_market_under_stress_is_its_own() -> None:
    assert (
        make_stressed_case("jumps", 4.0, MARKET, 0).spread
        > 1.5 * make_stressed_case("jumps", 0.0, MARKET, 0).spread
    )


def answer(case: Case, error_bp: float, nas: float) -> CaseScore:
    error = np.where(case.listed, error_bp, np.nan)
    return CaseScore(error, 0, ArbitrageVerdict(nas, 0, None), 0.0, 0.0)


def test_failure_has_two_criteria(case: Case) -> None:
    spread = spread_bp(case)
    q = case.quotes
    wide = (q.iv_ask - q.iv_bid) / BASIS_POINT
    assert spread == pytest.approx(np.sqrt(np.mean(wide**2)))
    assert check_failure(answer(case, 0.99 * spread, 0.9), spread) == (False, False)
    assert check_failure(answer(case, 1.01 * spread, 1.0), spread) == (False, True)
    assert check_failure(answer(case, 0.0, 0.899), spread) == (True, False)
    assert check_failure(answer(case, np.inf, 1.0), spread) == (False, True)
    assert check_failure(score_refusal(case, "no model"), spread) == (True, True)


def test_presets_can_be_stressed_to_the_last_level() -> None:
    for name in ("calm", "jumpy"):
        for axis in AXES.values():
            if axis.on_market is not None:
                assert isinstance(axis.on_market(preset(name), axis.severities[-1]), Parameters)
