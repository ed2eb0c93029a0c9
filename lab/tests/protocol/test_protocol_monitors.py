"""Each monitor moves the right way on a case that is built to trip it."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from arbiter.conventions import Array
from arbiter.examples import example
from arbiter.models.parameters import preset
from arbiter_lab.differentiable.operators.law.green_scan import Path
from arbiter_lab.differentiable.operators.network.config import Config
from arbiter_lab.differentiable.operators.network.green_scan import GreenScan
from arbiter_lab.differentiable.operators.network.network import Network
from arbiter_lab.evaluation.unseen_surfaces import T as MATURITIES
from arbiter_lab.evaluation.unseen_surfaces import make_unseen_surfaces
from arbiter_lab.protocol.monitors import (
    compute_coverage,
    gap_regression,
    local_orders,
    measure_memory,
    measure_scan_memories,
    switch_rate,
    window_martingales,
)
from arbiter_lab.stability.green_kernel import kernel
from counts import count

MARKET = replace(preset("stressed"), factors=4)


def market_rate(**changes: float) -> float:
    market = replace(MARKET, **changes)  # type: ignore[arg-type]
    states = np.zeros((count(full=40, reduced=6), market.factors))
    return switch_rate(*window_martingales(market, states, days=30, paths=512)).rate


def test_known_variance_does_not_switch(rng: np.random.Generator) -> None:
    # Black-Scholes: M is normal with variance <M>, and E e^{M/2} is E e^{<M>/2} to the fourth root
    v = np.full((200, 500), 0.04)
    found = switch_rate(np.sqrt(v) * rng.standard_normal(v.shape), v)
    assert found.holds.all()
    assert found.gap == pytest.approx(0.0, abs=0.005)
    assert found.rate == 0.0


def test_gap_by_hand() -> None:
    # 40 paths, V = 0.1 where M = 0.3 and V = 0.3 where M = −0.3: adjusted for M and for the known
    # mean of e^{M/2 − V/8}, what is left is computed here path by path
    m, v = np.tile([0.3, -0.3], 20), np.tile([0.1, 0.3], 20)
    rest = np.exp(m / 2.0) - np.exp(m / 2.0 - v / 8.0)
    exponent = math.log(0.5 * (math.exp(0.05) + math.exp(0.15)))
    # M has mean zero here, so that adjusting for it changes nothing
    expected = math.log(1.0 + rest.mean()) / (0.25 * exponent) - 1.0
    assert switch_rate(m, v).gap[0] == pytest.approx(expected, rel=1e-12)
    assert expected < 0.0


def test_gap_is_half_the_covariance_over_the_variance() -> None:
    # to first order in M: log E e^{M/2} = E<M>/8 + Cov(M, <M>)/16
    found = window_martingales(MARKET, np.zeros((1, 4)), days=30, paths=8_000)
    m, v = found.end[0], found.variation[0]
    expected = np.cov(m, v)[0, 1] / (2.0 * v.mean())
    assert switch_rate(m, v).gap[0] == pytest.approx(expected, rel=0.25)


def test_switching_rises_with_the_volatility_of_variance_and_with_roughness() -> None:
    rates = [market_rate(nu=nu) for nu in (0.01, 0.26, 0.7)]
    assert rates == sorted(rates)
    assert (rates[0], rates[-1]) == (0.0, 1.0)
    smooth, rough = (market_rate(nu=0.3, hurst=hurst) for hurst in (0.45, 0.03))
    assert (smooth, rough) == (0.0, 1.0)


def test_variance_that_rises_with_the_index_does_not_switch() -> None:
    # the other sign of the correlation: the negative control
    assert market_rate(nu=1.0, rho=0.75) == 0.0


def test_novikov_fails_where_the_moment_is_infinite(rng: np.random.Generator) -> None:
    # <M> exponential with mean 4: e^{<M>/2} has a Pareto tail of index ½, no mean
    v = rng.exponential(4.0, (50, 1000))
    found = switch_rate(np.sqrt(v) * rng.standard_normal(v.shape), v)
    assert found.holds.mean() < 0.2
    assert found.rate < 0.2
    v = rng.exponential(0.1, (50, 1000))
    fine = switch_rate(np.sqrt(v) * rng.standard_normal(v.shape), v)
    assert fine.holds.all()


def test_switch_rate_has_an_exact_interval_and_the_papers_name(rng: np.random.Generator) -> None:
    v = np.full((20, 100), 0.04)
    found = switch_rate(rng.standard_normal(v.shape) * 0.2, v)
    assert found.interval.low <= found.rate <= found.interval.high
    assert found.metric().name == "novik_to_kazamaki_rate"
    assert found.metric().daily is not None
    with pytest.raises(ValueError, match="variation not negative"):
        switch_rate(v, -v)
    with pytest.raises(ValueError, match="at least 40 paths"):
        switch_rate(v[:, :20], v[:, :20])


def test_paths_of_windows_are_martingales() -> None:
    found = window_martingales(MARKET, np.zeros((2, 4)), days=10, paths=4000)
    error = found.end.std(1) / math.sqrt(4000)
    assert (np.abs(found.end.mean(1)) < 4.0 * error).all()
    isometry = found.end**2 - found.variation
    assert (np.abs(isometry.mean(1)) < 4.0 * isometry.std(1) / math.sqrt(4000)).all()


GRID = np.linspace(-1.0, 1.0, 129)


@pytest.mark.parametrize(
    ("values", "order"),
    [
        (0.2 + 0.1 * GRID, 2.0),  # a line
        (np.exp(-GRID), 2.0),
        (GRID**2, 2.0),
        (np.sqrt(0.1 + GRID**2), 2.0),  # a hyperbola, SVI's
    ],
)
def test_smooth_smiles_have_order_two(values: Array, order: float) -> None:
    found = local_orders(values)
    assert found.orders == pytest.approx(order, abs=0.35)
    assert found.share_below == 0.0


def test_a_kink_has_order_one_where_it_is_and_nowhere_else() -> None:
    found = local_orders(np.abs(GRID - GRID[40]) + 0.3 * GRID**2)
    # a second difference sees a kink that is not at the very end of the patch
    holds = [start < 40 < start + 32 for start in range(0, 97, 16)]
    assert found.below.tolist() == holds
    assert found.lowest_order == pytest.approx(1.0, abs=0.25)


def test_brownian_paths_have_order_below_one_half_and_noise_none(rng: np.random.Generator) -> None:
    steps = rng.standard_normal((200, 129))
    # ½ in the limit; on a patch the largest of few far differences is too small: 0.38
    assert local_orders(steps.cumsum(1)).orders.mean() == pytest.approx(0.38, abs=0.04)
    assert local_orders(steps).orders.mean() == pytest.approx(0.0, abs=0.1)


def test_noise_on_a_surface_trips_the_monitor(rng: np.random.Generator) -> None:
    surface = example()
    k = np.linspace(-0.15, 0.1, 129)
    smiles = surface.iv(k, surface.maturities[-2:, None])
    assert local_orders(smiles).share_below == 0.0
    noisy = smiles + 1e-3 * rng.standard_normal(smiles.shape)
    assert local_orders(noisy).share_below > 0.9


def test_patches_that_are_too_short_are_refused() -> None:
    with pytest.raises(ValueError, match="patch = 200: give at least 9, and 129 at most"):
        local_orders(GRID, patch=200)


CLOCK = np.arange(1.0, 129.0)


def scalar_kernel(decay: Array) -> Array:
    """``(L, L, 1, 1)`` from weights by lag."""
    lag = np.arange(decay.size)[:, None] - np.arange(decay.size)
    return np.where(lag >= 0, decay[np.maximum(lag, 0)], 0.0)[..., None, None]


@pytest.mark.parametrize("power", [0.25, 0.5, 0.75])
def test_power_decay_has_the_index_one_minus_its_power(power: float) -> None:
    found = measure_memory(scalar_kernel(np.maximum(np.arange(64.0), 1.0) ** -power), CLOCK[:64])
    assert found.chi == pytest.approx(1.0 - power, abs=0.01)


def test_index_lies_between_forgetting_and_never_forgetting() -> None:
    assert measure_memory(scalar_kernel(0.8 ** np.arange(64.0)), CLOCK[:64]).chi == 0.0
    assert measure_memory(scalar_kernel(np.ones(64)), CLOCK[:64]).chi == pytest.approx(
        1.0, abs=1e-12
    )


def test_a_scan_that_forgets_more_slowly_has_a_higher_index() -> None:
    chi = []
    for rate in (0.002, 0.02, 0.2, 2.0):
        carry = 1.0 / (1.0 + rate)  # resolvent of a step of one
        chi.append(measure_memory(scalar_kernel(carry ** np.arange(64.0)), CLOCK[:64]).chi)
    assert chi == sorted(chi, reverse=True)
    assert chi[0] > 0.8
    assert chi[-1] < 0.01


def test_rank_counts_directions() -> None:
    one = np.zeros((8, 8, 4, 4))
    one[:, 0, 0, 0] = 1.0
    assert measure_memory(one, CLOCK[:8]).rank == pytest.approx(1.0)
    every = np.zeros((8, 8, 4, 4))
    every[np.arange(8), np.arange(8)] = np.eye(4)
    assert measure_memory(every, CLOCK[:8]).rank == pytest.approx(32.0)
    assert measure_memory(every, CLOCK[:8]).power == math.inf
    assert measure_memory(every, CLOCK[:8]).slope == pytest.approx(0.0, abs=1e-12)


def test_the_operators_own_scan_forgets() -> None:
    torch.manual_seed(0)
    scan = GreenScan(6, 8, 2, 3)
    gap = torch.as_tensor(np.diff(np.log(MATURITIES), prepend=np.log(MATURITIES[0]) - 0.7))[None]
    length = len(MATURITIES)
    path = Path(
        torch.randn(1, length, 6), gap.float(), torch.zeros(1, length, 3), torch.ones(1, length)
    )
    with torch.no_grad():
        green = kernel(scan, path)[0].double().numpy()
    found = measure_memory(green, np.log(MATURITIES))
    assert 0.0 <= found.chi < 0.3
    assert found.rank > 1.0


def test_scans_of_a_network_are_watched_and_left_alone() -> None:
    torch.manual_seed(0)
    network = Network(Config(heads=12, width=16, state=8, context=12))
    quotes = make_unseen_surfaces(1).build_case(0).quotes
    scans = [part for part in network.modules() if isinstance(part, GreenScan)]
    found = []
    for raw in (-3.0, 3.0):  # every part forgets slowly, then fast
        with torch.no_grad():
            for scan in scans:
                scan.guarded = False  # the guard would shorten the steps instead
                scan.generator.raw.fill_(raw)
        found.append(measure_scan_memories(network, quotes))
    assert len(found[0]) == len(scans) > 0
    assert not any("drive" in vars(scan) for scan in scans)
    assert all(0.5 < found[0][name].power < found[1][name].power for name in found[0])
    # forth and back forget alike, whatever their inputs weigh
    assert found[0]["looks.0.forth"].power == pytest.approx(
        found[0]["looks.0.back"].power, rel=0.05
    )


def test_kernel_and_clock_must_agree() -> None:
    with pytest.raises(ValueError, match=r"kernel has shape \(8, 8, 4, 4\), T \(9,\)"):
        measure_memory(np.zeros((8, 8, 4, 4)), CLOCK[:9])


def test_coverage_by_hand() -> None:
    listed = np.ones((4, 2, 5), dtype=bool)
    listed[0, 0, 4] = False
    quoted = listed.copy()
    quoted[0, 1] = False  # window 0: 4 of 9 on the first day, 10 of 10 on the second
    quoted[3, 0, :1] = False  # window 1: 19 of 20
    found = compute_coverage(quoted, listed, [0, 0, 1, 1])
    assert found.windows == pytest.approx([14.0 / 19.0, 19.0 / 20.0])
    assert found.first_window_below == 0
    named = {metric.name: metric.value for metric in found.metrics()}
    assert named == pytest.approx(
        {
            "coverage_min": 14.0 / 19.0,
            "coverage_mean": 0.5 * (14.0 / 19.0 + 19.0 / 20.0),
            "coverage_at_trigger": 14.0 / 19.0,
        }
    )


def test_full_coverage_does_not_trigger_and_says_why() -> None:
    listed = np.ones((3, 4), dtype=bool)
    found = compute_coverage(listed, listed, [0, 1, 2])
    assert found.first_window_below is None
    assert found.metrics()[2].reason == "no window has a coverage below 0.75"


def test_quotes_that_are_not_listed_are_refused() -> None:
    listed = np.zeros((2, 3), dtype=bool)
    with pytest.raises(ValueError, match="quoted and not listed"):
        compute_coverage(~listed, listed, [0, 1])


def test_planted_slope_is_found() -> None:
    rng = np.random.default_rng(2)
    gap = np.abs(rng.standard_normal(160)) * 0.05
    noise = np.concatenate([0.002 * rng.standard_normal(20).cumsum() for _ in range(8)])
    found = gap_regression(gap, 0.47 * gap + 0.01 + noise, np.repeat(np.arange(8), 20))
    assert found.slope_interval.low < 0.47 < found.slope_interval.high
    assert found.slope_p_value < 1e-5
    assert found.intercept == pytest.approx(0.01, abs=0.01)


def test_no_relation_is_not_found() -> None:
    p = []
    for seed in range(count(full=400, reduced=60)):
        gap, error = np.random.default_rng(seed).uniform(size=(2, 160))
        p.append(gap_regression(gap, error, np.repeat(np.arange(8), 20)).slope_p_value)
    assert np.mean(np.array(p) <= 0.05) < 0.05 + 4.0 * math.sqrt(0.05 * 0.95 / len(p)) + 0.02
