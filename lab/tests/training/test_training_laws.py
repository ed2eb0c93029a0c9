"""A pool of laws is what the oracle says, everywhere it claims to know; its prior is wide."""

import logging
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
import torch

from arbiter.conventions import Array
from arbiter.markets.paths import simulate
from arbiter.models.characteristic_function import solve_index_transforms
from arbiter.models.expected_variance import ExpectedVariance
from arbiter.models.lifted_heston import LiftedHeston
from arbiter.models.parameters import PRESETS, Jumps, Parameters
from arbiter_lab.differentiable.pricing import black
from arbiter_lab.training import law_pool as pool
from arbiter_lab.training.law_pool import (
    LOWER_WING_DEVIATIONS,
    MIN_RESOLVED_PRICE,
    WING_NODE_STRIDE,
    Laws,
    make_laws,
    make_pool_grid,
    solve_laws,
)
from arbiter_lab.training.parameter_prior import FACTOR_COUNTS, draw_heston_sets, draw_sets
from arbiter_lab.training.variance_states import (
    HORIZON_YEARS,
    RELATIVE_TIMES_TO_END,
    log_variance,
    simulate_states,
)
from counts import count

HESTON = Parameters(v0=0.05, reversion=1.5, theta=0.04, nu=0.8, rho=-0.8, factors=1)
SETS = [
    HESTON,
    Parameters(v0=0.01, reversion=2.0, theta=0.09, nu=0.5, rho=-0.6, factors=3),
    replace(PRESETS["rough"], factors=8, jumps=Jumps(1.0, -0.08, 0.06)),
    PRESETS["jumpy"],
    PRESETS["inverted"],
]
STATES = 2
STEP = float(np.diff(pool.even_strike_nodes())[0])


def states_of(sets: Sequence[Parameters], seed: int) -> dict[int, Array]:
    """The states in which `solve_laws` puts each set."""
    order, found = pool.group_sets(sets), dict[int, Array]()
    for which, s in zip(order, np.random.SeedSequence(seed).spawn(len(order)), strict=True):
        U = simulate_states([sets[i] for i in which], STATES, np.random.default_rng(s))
        found |= dict(zip(which, U, strict=True))
    return found


@pytest.fixture(scope="module")
def drawn() -> list[Parameters]:
    return SETS + draw_sets(count(full=60, reduced=3), np.random.default_rng(11))


@pytest.fixture(scope="module")
def laws(drawn: list[Parameters]) -> Laws:
    return solve_laws(drawn, 7, "cpu", STATES)


@pytest.fixture(scope="module")
def exact(drawn: list[Parameters], laws: Laws) -> list[tuple[int, Array, Array, Array]]:
    """Rows, maturities, log-strikes and the oracle's volatilities where prices exceed 1e-7."""
    rng, states, row, found = np.random.default_rng(3), states_of(drawn, 7), 0, []
    T = np.exp(rng.uniform(np.log(1 / 365), np.log(6.1), 8))
    T.sort()
    nodes = laws.T.double().numpy()
    for i, parameters in enumerate(drawn):
        market = LiftedHeston.of(parameters)
        for U in states[i]:
            reference = np.sqrt(market.log_variance(nodes, U) / nodes)
            if row == len(laws) or not np.allclose(reference, laws.reference[row], rtol=1e-5):
                continue  # left out
            scale = np.sqrt(market.log_variance(T, U))[:, None]
            k = rng.uniform(-8.0, 4.5, (T.size, 40)) * scale
            k[:, ::4] = np.where(k[:, ::4] < 0.0, 3.0, 1.0) * k[:, ::4]  # far wings, in some laws
            price = market.otm(k, T[:, None], U)
            iv = np.where(price > 1e-7, market.iv(k, T[:, None], U), np.nan)
            found.append((row, T, k, iv))
            row += 1
    assert row == len(laws)
    return found


def rms_bp(laws: Laws, exact: list[tuple[int, Array, Array, Array]]) -> float:
    """Return the RMSE of the pool in basis points; nearly all points must be resolved."""
    misses, points = [], sum(int(np.isfinite(iv).sum()) for *_, iv in exact)
    for row, T, k, iv in exact:
        got = laws.volatility_at(
            torch.tensor([row]), torch.tensor(T[None]).float(), torch.tensor(k[None])
        )
        miss = got[0].numpy() - iv
        misses.append(miss[np.isfinite(miss)])
    found = np.concatenate(misses)
    assert found.size > 0.999 * points
    return float(1e4 * np.sqrt(np.mean(found**2)))


def test_any_point_is_the_oracles_to_a_tenth_of_a_basis_point(
    laws: Laws, exact: list[tuple[int, Array, Array, Array]]
) -> None:
    assert sum(np.isfinite(iv).sum() for *_, iv in exact) > 1000
    assert rms_bp(laws, exact) < 0.1


@pytest.mark.parametrize("fault", ["reference", "iv", "T", "z"])
def test_planted_fault_of_a_thousandth_is_seen(
    laws: Laws, exact: list[tuple[int, Array, Array, Array]], fault: str
) -> None:
    planted = replace(laws, **{fault: getattr(laws, fault) * 1.001})
    assert rms_bp(planted, exact) > 0.1


def test_reference_is_the_log_contracts_volatility(
    drawn: list[Parameters], laws: Laws, exact: list[tuple[int, Array, Array, Array]]
) -> None:
    T = torch.tensor([[0.01, 0.13, 0.7, 3.3]])
    got = laws.reference_at(torch.tensor([0]), T)[0].numpy()
    want = np.sqrt(LiftedHeston.of(drawn[0]).variance_swap(T[0].numpy()))
    np.testing.assert_allclose(got, want, rtol=3e-6)


def test_nothing_is_known_outside_the_nodes(laws: Laws) -> None:
    rows, zero = torch.tensor([0]), torch.zeros(1, 1, 1)
    for days, known in ((0.5, False), (1.0, True), (6.1 * 365, True), (6.5 * 365, False)):
        T = torch.tensor([[days / 365]])
        assert bool(torch.isfinite(laws.volatility_at(rows, T, zero))) == known
    T = torch.tensor([[0.5]])
    scale = laws.reference_at(rows, T) * torch.sqrt(T)
    far = laws.volatility_at(rows, T, torch.tensor([[[-26.5, 7.0]]]) * scale)
    assert torch.isnan(far).all()


def test_volatility_is_kept_exactly_where_the_price_is_resolved(laws: Laws) -> None:
    T, z = make_pool_grid()
    total = laws.reference.double() * torch.sqrt(T)
    price = black.otm(z * total[..., None], laws.iv.double() * torch.sqrt(T)[:, None])
    known = torch.isfinite(laws.iv)
    assert float(price[known].min()) > MIN_RESOLVED_PRICE * 0.999
    assert not known.all()
    # without gaps: from the money outwards, known until it is not
    changes = torch.diff(known.int(), dim=-1).abs().sum(-1)
    assert int(changes.max()) <= 2
    assert known[..., (z > -3.5) & (z < 2.0)].all()


def reach_share(laws: Laws, reach: torch.Tensor, rows: torch.Tensor, floor: float) -> float:
    """Return the share of wings that cross the floor between a reach and the next node."""
    T = laws.T[None].expand(len(rows), -1)
    scale = laws.reference_at(rows, T) * torch.sqrt(T)
    shares, inner = [], float(laws.z[torch.abs(laws.z - LOWER_WING_DEVIATIONS).argmin()])
    wider = (
        torch.sinh(torch.asinh(reach / pool.EVEN_STRIKE_DEVIATIONS) - WING_NODE_STRIDE * STEP)
        * pool.EVEN_STRIKE_DEVIATIONS
    )
    for z in (reach, wider):
        k = z[..., None] * scale[..., None]
        v = laws.volatility_at(rows, T, k) * torch.sqrt(T)[..., None]
        shares.append((black.otm(k, v) > floor)[..., 0])
    here, further = shares
    plain = (reach < inner - 0.5) & (wider > laws.z[0])
    return float((here & ~further)[plain].float().mean())


@pytest.mark.parametrize("floor", [1e-6, 3e-5])
def test_lower_reach_is_where_puts_are_worth_the_floor(laws: Laws, floor: float) -> None:
    rows = torch.arange(len(laws))
    T = laws.T[None].expand(len(laws), -1)
    reach = laws.lower_reach(rows, T, torch.full((len(laws), 1), floor))
    assert float(reach.max()) < LOWER_WING_DEVIATIONS
    assert float(reach.min()) < -8.0
    assert reach_share(laws, reach, rows, floor) > 0.999
    assert reach_share(laws, 1.3 * reach, rows, floor) < 0.2


def test_pool_is_the_seeds_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool, "SETS_PER_CHUNK", 1)
    monkeypatch.setattr(pool, "draw_sets", lambda _, rng: draw_sets(2, rng))  # several rounds
    one, two, other = (
        make_laws(count, seed, states_per_set=2, workers=workers)
        for count, seed, workers in ((5, 1, 1), (5, 1, 3), (1, 2, 2))
    )
    assert len(one) == len(two) == 5
    torch.testing.assert_close(one.iv, two.iv, rtol=0, atol=0, equal_nan=True)
    assert not torch.equal(one.reference[:1], other.reference)


def test_share_of_a_pool_is_shaped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool, "MIXTURE_SHARE", 0.0)
    monkeypatch.setattr(pool, "draw_sets", lambda _, rng: draw_sets(2, rng))
    some = make_laws(8, 1, states_per_set=4)
    monkeypatch.setattr(pool, "SHAPED_SHARE", 0.0)
    none = make_laws(8, 1, states_per_set=4)
    solved = 8 - int(0.35 * 8)
    assert torch.equal(some.reference[:solved], none.reference[:solved])
    assert (some.reference[solved:, None] != none.reference).any(-1).all()
    assert len(some) == len(none) == 8


def test_what_cannot_be_solved_is_left_out_and_counted(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    solve = solve_index_transforms

    def fails(sets: Sequence[Parameters], *rest: object) -> object:
        if any(p.rho == -0.5 for p in sets):
            raise ArithmeticError("planted")
        return solve(sets, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(pool, "solve_index_transforms", fails)
    sets = [replace(HESTON, rho=rho) for rho in (-0.4, -0.5, -0.6)]
    with caplog.at_level(logging.INFO):
        left = solve_laws(sets, 1, states_per_set=1)
    assert len(left) == 2
    assert "rho=-0.5" in caplog.text
    assert "1 of 3 laws left out" in caplog.text
    assert len(solve_laws(sets[1:2], 1, states_per_set=1)) == 0


def test_law_of_another_level_is_left_out(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        left = solve_laws([replace(HESTON, v0=1e-4), HESTON], 1, states_per_set=1)
    assert len(left) == 1
    assert "1 of 2" in caplog.text


@pytest.mark.parametrize("arguments", [(0, 16), (5, 0)])
def test_empty_pool_is_refused(arguments: tuple[int, int]) -> None:
    with pytest.raises(ValueError, match="both must be positive"):
        make_laws(arguments[0], 1, states_per_set=arguments[1])


@pytest.mark.parametrize("parameters", SETS)
def test_log_variance_is_the_oracles(parameters: Parameters) -> None:
    U = simulate_states([parameters] * 2, 3, np.random.default_rng(2))
    T = np.array([1 / 365, 0.1, 1.0, 5.0])
    found = log_variance([parameters] * 2, U, T)
    for p in range(2):
        for d in range(3):
            want = LiftedHeston.of(parameters).log_variance(T, U[p, d])
            np.testing.assert_allclose(found[p, d], want, rtol=1e-8)
    assert (U[:, 0] == 0.0).all()
    assert (U[:, 1:] != 0.0).all()


@pytest.mark.parametrize("parameters", [SETS[0], SETS[2], SETS[4]])
def test_states_are_those_that_paths_reach(parameters: Parameters) -> None:
    paths = count(full=40_000, reduced=4_000)
    U = simulate_states([parameters], paths + 1, np.random.default_rng(4))[0, 1:]
    low, high = np.log(HORIZON_YEARS)
    horizon = float(np.exp(np.random.default_rng(4).uniform(low, high, (1, 1, 1)))[0, 0, 0])
    times = horizon * (1.0 - np.append(RELATIVE_TIMES_TO_END[1:], 0.0))
    other = simulate(parameters, times, 5, paths=paths, steps_per_day=1e-6).variance[:, -1]
    v = parameters.v0 + U @ parameters.c
    assert v.min() > -1e-9
    mean = float(
        ExpectedVariance.from_parameters(parameters).variance(
            np.array([horizon]), np.zeros(U.shape[1])
        )[0]
    )
    error = v.std() / np.sqrt(paths)
    assert abs(v.mean() - mean) < 4.0 * error
    assert abs(1.3 * v.mean() - mean) > 4.0 * error  # a planted bias is seen
    for share in (0.1, 0.5, 0.9):
        # a little above: where variance was zero a step ago there is an atom
        there = 1.001 * np.quantile(other, share)
        gap = (v <= there).mean() - (other <= there).mean()
        assert abs(gap) < 4.0 * np.sqrt(0.5 / paths)


def test_prior_is_wide_and_holds_the_benchmark() -> None:
    sets = draw_sets(4000, np.random.default_rng(1))
    assert {p.factors for p in sets} == set(FACTOR_COUNTS)
    jumps = [p.jumps for p in sets if p.jumps is not None]
    assert 0.25 < len(jumps) / len(sets) < 0.5
    assert any(j.mean > 0.03 for j in jumps)
    assert any(j.mean < -0.3 and j.intensity < 0.1 for j in jumps)
    lifted = [p for p in sets if p.factors > 1]
    assert min(p.hurst for p in lifted) < 0.04
    assert max(p.hurst for p in lifted) > 0.44
    flat = [p for p in sets if p.rho > -0.2]
    assert 0.03 < len(flat) / len(sets) < 0.08
    assert max(p.rho for p in flat) > 0.15
    assert any(j.intensity < 0.03 and j.deviation > 0.2 for j in jumps)
    heston = [p for p in sets if p.factors == 1]
    ranges = {  # of the 50 Heston surfaces
        "v0": (0.012, 0.12),
        "reversion": (0.8, 4.0),
        "theta": (0.02, 0.10),
        "nu": (0.3, 1.1),
        "rho": (-0.88, -0.5),
    }
    inside = np.ones(len(heston), dtype=bool)
    for name, (low, high) in ranges.items():
        values = np.array([getattr(p, name) for p in heston])
        assert (values < low).mean() > 0.02
        assert (values > high).mean() > 0.02
        inside &= (values > low) & (values < high)
    assert inside.mean() > 0.03
    for preset in PRESETS.values():
        near = [p for p in sets if abs(p.v0 / preset.v0 - 1) < 0.2 and p.factors == preset.factors]
        assert any(abs(p.nu / preset.nu - 1) < 0.2 and abs(p.rho - preset.rho) < 0.1 for p in near)


def test_the_first_laws_of_a_pool_are_hestons() -> None:
    made = make_laws(40, 6, states_per_set=4, workers=1)
    rounds = np.random.SeedSequence(6)
    sets = draw_heston_sets(
        3, np.random.default_rng(rounds.spawn(1)[0])
    )  # a few more than are wanted
    assert {(p.factors, p.jumps) for p in sets} == {(1, None)}
    first = solve_laws(sets, rounds.spawn(1)[0], states_per_set=4, workers=1)
    assert 0 < made.heston_law_count <= len(first)
    assert made.heston_law_count < made.model_law_count < len(made)
    assert torch.equal(
        made.reference[: made.heston_law_count], first.reference[: made.heston_law_count]
    )
