"""Joint arbitrage of index and VIX: what is planted is found at its size, what is not is not."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from benchmarks.joint_program import heston, laws_of, too_wide
from scipy.optimize import brentq

import arbiter as ab
from arbiter.joint import JointAudit, JointSettings, Marginal, Verdict, joint_program
from arbiter.joint.instruments import price_out_of_the_money
from arbiter.markets import LiftedHeston, preset
from arbiter.models.parameters import PRESETS
from arbiter.pricing.vix_slices import VixSlices
from counts import count

Laws = tuple[Marginal, Marginal, Marginal]

WINDOW = 30.0 / 365.0
VOL = 0.2
COARSE = JointSettings(resolution=4e-4)
ROUGH = JointSettings(resolution=1e-3, rounds=count(full=12, reduced=2))
# the index is right and only the VIX may move: sizes are then known in closed form
VIX_ONLY = JointSettings(resolution=1e-3, index_unit=1e-3)


def flat(T: float, vol: float = VOL) -> Marginal:
    return Marginal.lognormal(vol * np.sqrt(T))


def coin(vol: float = VOL) -> Marginal:
    """Two levels with the log contract of a volatility: from a fixed level, VIX can be no other."""
    gap = brentq(lambda a: -np.log1p(-a * a) / WINDOW - vol**2, 1e-6, 0.9)
    return Marginal.discrete([1.0 - gap, 1.0 + gap], [0.5, 0.5])


def assert_witness(found: JointAudit, laws: Laws) -> None:
    """The law meets both conditions state by state, and the market's prices within the bound."""
    law = found.law.frame.with_columns(
        log=-(2.0 / WINDOW) * (pl.col("x2") / pl.col("x1")).log() * pl.col("mass"),
        mean=pl.col("x2") * pl.col("mass"),
    )
    state = law.group_by("state").agg(
        pl.col("mass", "log", "mean").sum(), pl.col("x1", "vix").first()
    )
    assert (state["mean"] / state["mass"] - state["x1"]).abs().max() < 1e-9  # type: ignore[operator]
    spread = state["log"] / state["mass"] - (state["vix"] / 100.0) ** 2
    assert spread.abs().max() < 1e-8  # type: ignore[operator]
    assert law["mass"].sum() == pytest.approx(1.0, abs=1e-12)
    rng = np.random.default_rng(1)
    for name, scale, market in (
        ("x1", 1.0, laws[0]),
        ("vix", 100.0, laws[1]),
        ("x2", 1.0, laws[2]),
    ):
        z, p = law[name].to_numpy() / scale, law["mass"].to_numpy()
        K = market.quantile(rng.uniform(0.001, 0.999, 200)) * rng.uniform(0.98, 1.02, 200)
        calls = np.maximum(z - K[:, None], 0.0) @ p
        future = p @ z - market.mean if name == "vix" else 0.0
        gap = calls - market.call(K) - future * (market.mean > K)
        assert np.abs(gap).max() <= found.bound + 1e-6


def assert_arbitrage(found: JointAudit, rng: np.random.Generator) -> None:
    """The portfolio is paid what is reported, and pays at every point that is tried."""
    portfolio = found.portfolio
    assert portfolio is not None
    assert portfolio.legs["cost"].sum() == pytest.approx(-found.violation, rel=1e-6)
    assert portfolio.legs["share"].sum() == pytest.approx(1.0, abs=1e-5)
    box = portfolio.box
    x, v, y = (rng.uniform(*box[name], 100_000) for name in ("x1", "vix", "x2"))
    near = rng.uniform(0.8, 1.2, x.size)  # most of the box is far from the money
    for x1, x2 in ((x, y), (near, near * np.exp(rng.normal(0.0, 0.08, x.size)))):
        assert portfolio.payoff(x1, v, x2).min() > -1e-9


@pytest.mark.parametrize("name", list(PRESETS)[: count(full=5, reduced=1)])
def test_exact_laws_of_the_synthetic_market_pass(name: str) -> None:
    for T in (0.08, 0.25)[: count(full=2, reduced=1)]:
        laws = laws_of(LiftedHeston.of(preset(name)), T)
        settings = JointSettings() if count(full=1, reduced=0) else COARSE
        found = joint_program(*laws, settings)
        assert found.verdict is Verdict.FEASIBLE
        assert found.violation == 0.0
        assert found.bound <= settings.resolution
        assert found.portfolio is None
        assert_witness(found, laws)


def test_constant_volatility_passes_with_a_vix_that_does_not_move() -> None:
    laws = flat(0.1), Marginal.discrete(VOL, 1.0), flat(0.1 + WINDOW)
    found = joint_program(*laws, COARSE)
    assert found.feasible
    assert_witness(found, laws)


def test_no_arbitrage_is_found_where_a_joint_law_was_written_down(rng: np.random.Generator) -> None:
    """Random atoms, with conditional laws on three levels: the marginals are a joint law's."""
    for _ in range(count(full=60, reduced=4)):
        states = int(rng.integers(3, 30))
        x = np.exp(rng.normal(0.0, 0.08, states))
        mass = rng.dirichlet(np.ones(states))
        x /= mass @ x
        up, down = np.exp(rng.uniform(0.01, 0.15, states)), np.exp(-rng.uniform(0.01, 0.2, states))
        stay = rng.uniform(0.0, 0.7, states)
        high = (1.0 - stay) * (1.0 - down) / (up - down)
        p = np.stack([1.0 - stay - high, stay, high], 1)
        y = x[:, None] * np.stack([down, np.ones(states), up], 1)
        v = np.sqrt(-(2.0 / WINDOW) * (p * np.log(y / x[:, None])).sum(1))
        near, volatility = Marginal.discrete(x, mass), Marginal.discrete(v, mass)
        far = Marginal.discrete(y.ravel(), (mass[:, None] * p).ravel())
        found = joint_program(near, volatility, far, JointSettings(resolution=1e-3, rounds=3))
        assert found.violation == 0.0
        assert found.verdict is not Verdict.ARBITRAGE


@pytest.mark.parametrize("excess", [0.002, 0.01])
def test_future_above_the_forward_volatility(excess: float, rng: np.random.Generator) -> None:
    """Short the future, long forward variance: earns the excess for three legs of weight one."""
    laws = flat(0.1), Marginal.discrete(VOL + excess, 1.0), flat(0.1 + WINDOW)
    found = joint_program(*laws, COARSE)
    assert found.verdict is Verdict.ARBITRAGE
    assert excess / 3.0 * 0.93 < found.violation <= found.bound < excess
    legs = {
        (leg["market"], leg["instrument"]): leg["side"]
        for leg in found.portfolio.legs.filter(pl.col("share") > 0.1).iter_rows(named=True)  # type: ignore[union-attr]
    }
    assert legs == {
        ("VIX", "future"): "short",
        ("SPX near", "log contract"): "short",
        ("SPX far", "log contract"): "long",
    }
    assert "short" in str(found)
    assert "VIX future" in str(found)
    assert_arbitrage(found, rng)
    assert_witness(found, laws)


def test_size_is_that_of_the_only_vix_there_can_be(rng: np.random.Generator) -> None:
    """From a fixed level to two: VIX is 20 and nothing else, so the distance to 20 is the size."""
    one, two = Marginal.discrete(1.0, 1.0), coin()
    level, excess, spread = VOL, 0.01, 0.02
    up = Marginal.discrete(level + excess, 1.0)
    found = joint_program(one, up, two, VIX_ONLY)
    assert found.violation == pytest.approx(excess, rel=0.03)
    assert found.bound >= found.violation
    assert_arbitrage(found, rng)
    # below: the squared index is cheap against the log contract, by 0.2² − 0.19² over 2 · 0.19
    low = Marginal.discrete(level - excess, 1.0)
    found = joint_program(one, low, two, VIX_ONLY)
    assert found.violation == pytest.approx((level**2 - low.mean**2) / (2 * low.mean), rel=0.03)
    # right in the mean and too wide: the option at the money is worth half the spread too much
    wide = Marginal.discrete([level - spread, level + spread], [0.5, 0.5])
    found = joint_program(one, wide, two, VIX_ONLY)
    assert 0.8 * spread / 2.0 < found.violation <= spread / 2.0 * 1.001
    options = found.portfolio.legs.filter(pl.col("share") > 0.03)  # type: ignore[union-attr]
    assert options["market"].unique().to_list() == ["VIX"]
    assert options["side"].unique().to_list() == ["short"]


def test_vix_whose_tail_the_index_cannot_carry(rng: np.random.Generator) -> None:
    """Second moment and forward variance agree, and still no joint law exists."""
    laws = too_wide(heston(), 1.5)
    assert laws[1].second_moment == pytest.approx(heston()[1].second_moment, rel=1e-12)
    found = joint_program(*laws, ROUGH)
    assert found.verdict is Verdict.ARBITRAGE
    assert 5e-4 < found.violation <= found.bound < 1e-2
    assert_arbitrage(found, rng)
    # the same index with a VIX half as wide has one
    assert joint_program(*too_wide(heston(), 0.5), JointSettings(resolution=2e-3)).feasible


def test_calendar_violation_in_the_wing(rng: np.random.Generator) -> None:
    """The near law reaches beyond the far one: calls there are worth more today than later."""
    near, far = Marginal.lognormal(0.10), Marginal.discrete([0.86, 1.14], [0.5, 0.5])
    variance = (2.0 / WINDOW) * (near.log_mean - far.log_mean)
    volatility = Marginal.discrete(np.sqrt(variance), 1.0)
    size = float(price_out_of_the_money(near, np.array([1.14]))[0]) / 2.0  # two legs of weight one
    found = joint_program(near, volatility, far, COARSE)
    assert found.verdict is Verdict.ARBITRAGE
    assert found.violation > 0.9 * size
    shorts = found.portfolio.legs.filter((pl.col("side") == "short") & (pl.col("share") > 0.05))  # type: ignore[union-attr]
    assert "SPX near" in shorts["market"].to_list()
    assert_arbitrage(found, rng)


def test_portfolio_of_the_other_sign_loses(rng: np.random.Generator) -> None:
    """Negative control: the check of a portfolio sees one that is none."""
    laws = flat(0.1), Marginal.discrete(VOL + 0.01, 1.0), flat(0.1 + WINDOW)
    found = joint_program(*laws, COARSE)
    assert found.portfolio is not None
    x, v = np.full(1000, 1.0), rng.uniform(5.0, 25.0, 1000)
    y = np.exp(rng.normal(0.0, 0.1, 1000))
    assert (-found.portfolio.payoff(x, v, y)).min() < -1e-3


def test_witness_of_another_market_is_refused() -> None:
    """Negative control: the check of a law sees one that prices something else."""
    laws = flat(0.1), Marginal.discrete(VOL, 1.0), flat(0.1 + WINDOW)
    found = joint_program(*laws, COARSE)
    with pytest.raises(AssertionError):
        assert_witness(found, (laws[0], laws[1], flat(0.1 + WINDOW, 0.25)))


def test_finer_resolution_encloses_more_tightly() -> None:
    bounds = [
        joint_program(*heston(), JointSettings(resolution=resolution)).bound
        for resolution in (2e-3, 4e-4)
    ]
    assert bounds[1] <= 4e-4 <= bounds[0] <= 2e-3


def test_contracts_on_every_strike_need_not_be_believed() -> None:
    """Without variance contracts the same mistake has to be traded in options, and shows less."""
    laws = flat(0.1), Marginal.discrete(VOL + 0.03, 1.0), flat(0.1 + WINDOW)
    every, listed = (
        joint_program(*laws, JointSettings(resolution=1e-3, variance_unit=unit, rounds=2))
        for unit in (1.0, 1e3)
    )
    assert every.violation > listed.violation > 0.0
    legs = listed.portfolio.legs.filter(pl.col("share") > 0.01)  # type: ignore[union-attr]
    assert legs["instrument"].is_in(["put", "call", "future"]).any()
    assert ("VIX", "future", "short") in legs.select("market", "instrument", "side").rows()


def test_what_was_not_decided_is_not_called_feasible() -> None:
    settings = JointSettings(resolution=1e-5, strikes=6, most_strikes=8, rounds=2)
    found = joint_program(*heston(), settings)
    assert found.verdict is Verdict.OPEN
    assert not found.feasible
    assert found.violation == 0.0 < settings.resolution < found.bound
    assert "allow more strikes" in str(found)


@lru_cache
def surface(deviation: float) -> ab.Surface:
    T = np.array([0.05, 0.1, 0.2, 0.4])
    knots = [-2.0, 0.0, 2.0]
    spx = ab.Surface.from_slopes(
        knots, T, np.sqrt(T)[:, None] * [0.28, 0.2, 0.15], T * 10.0 + 4000.0, np.exp(-0.04 * T)
    )
    return spx.with_vix(VixSlices.of(knots, T, np.full((4, 3), deviation)))


def test_surface_is_audited_through_its_public_methods() -> None:
    found = ab.joint_audit(surface(0.3), 0.1, JointSettings(resolution=5e-4))
    assert found.feasible
    future, own = float(surface(0.3).vix_future(0.1)), found.law
    assert own.vix @ own.mass == pytest.approx(future, abs=100.0 * found.bound)


def test_surface_with_too_wide_a_vix_is_found(rng: np.random.Generator) -> None:
    wide = surface(1.5)
    # nothing in either market by itself, and the second moment fits
    assert wide.vix_second_moment(0.1) == pytest.approx(
        float(wide.forward_variance(0.1)), rel=1e-12
    )
    found = ab.joint_audit(wide, 0.1, ROUGH)
    assert found.verdict is Verdict.ARBITRAGE
    assert_arbitrage(found, rng)


def test_fitted_surface_of_the_joint_day_passes(data_dir: Path) -> None:
    spx, vix = (
        ab.read_volatilities(data_dir / "joint" / f"{name}_implied_vol_20230215.csv")
        for name in ("spx", "vix")
    )
    both = ab.fit(spx, vix_quotes=vix)
    for T in vix.maturities[: count(full=12, reduced=1)]:
        assert ab.joint_audit(both, T, JointSettings(resolution=4e-4)).feasible


def test_mistakes_are_named() -> None:
    near, far, volatility = flat(0.1), flat(0.2), Marginal.discrete(VOL, 1.0)
    with pytest.raises(ValueError, match=r"near.mean = 2.0: index levels are over their forward"):
        joint_program(Marginal.lognormal(0.1, 2.0), volatility, far)
    bare = Marginal(far.call, far.quantile, 1.0)
    with pytest.raises(ValueError, match=r"far.log_mean = nan: give E log X"):
        joint_program(near, volatility, bare)
    with pytest.raises(ValueError, match=r"volatility.second_moment = nan must be at least"):
        joint_program(near, Marginal(far.call, far.quantile, 0.2), far)
    with pytest.raises(ValueError, match=r"resolution = 0.0 must be a positive"):
        JointSettings(resolution=0.0)
    with pytest.raises(ValueError, match="strikes = 3 must be at least 4"):
        JointSettings(strikes=3)
    with pytest.raises(ValueError, match="rounds = 0 must be at least 1"):
        JointSettings(rounds=0)
    with pytest.raises(ValueError, match="must be one maturity"):
        ab.joint_audit(surface(0.3), [0.1, 0.2])
    with pytest.raises(ValueError, match="no VIX slices"):
        ab.joint_audit(surface(0.3).with_vix(None), 0.1)
    with pytest.raises(ValueError, match="both must be positive"):
        Marginal.lognormal(0.0)
    with pytest.raises(ValueError, match="weights nonnegative, with sum one"):
        Marginal.discrete([1.0, 2.0], [0.5, 0.6])
    with pytest.raises(ValueError, match="enclose the mean"):
        Marginal.of_calls(near.call, 1.0, (1.1, 2.0))
