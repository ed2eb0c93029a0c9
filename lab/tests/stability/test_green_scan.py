"""The Green scan: stable whatever is learned, the same by batch, by stream and by its kernel."""

from __future__ import annotations

import itertools
import sys
import weakref
from collections.abc import Iterator

import pytest
import torch
from benchmarks import scan as benchmark
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from arbiter_lab.differentiable.operators.law.green_scan import Path
from arbiter_lab.differentiable.operators.network.green_scan import (
    EPSILON,
    MU,
    Generator,
    GreenScan,
    Guarded,
    scan_together,
)
from arbiter_lab.differentiable.operators.quote_tensors import Ragged
from arbiter_lab.stability import green_kernel
from counts import count
from ragged_chains import network, random_chain

WIDTH, SIZE, RANK, CONTEXT = 6, 8, 3, 5
KINDS = ["resolvent", "exponential"]
seeds = st.integers(0, 2**31)
sizes = st.floats(0.0, 10.0)


def generator(seed: int, size: float = 1.0) -> Generator:
    torch.manual_seed(seed)
    made = Generator(SIZE, RANK).double()
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.add_(size * torch.randn_like(parameter))
    return made.requires_grad_(False)


def scan(
    seed: int, size: float = 0.5, kind: str = "resolvent", *, guarded: bool = True
) -> GreenScan:
    torch.manual_seed(seed)
    made = GreenScan(WIDTH, SIZE, RANK, CONTEXT, kind=kind, guarded=guarded).double()
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.add_(size * torch.randn_like(parameter))
    return made.requires_grad_(False)


def path(seed: int, maturities: int = 7, chains: int = 2) -> Path:
    g = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=g, dtype=torch.float64)

    gap = torch.exp(1.5 * normal(chains, maturities) - 1.0)  # irregular: from 0.01 to 10
    seen = torch.rand(chains, maturities, generator=g) < 0.8
    x, context = normal(chains, maturities, WIDTH), normal(chains, maturities, CONTEXT)
    return Path(x, gap, context, seen)


def slices(of: Path) -> Iterator[Path]:
    return (Path._make([part[:, i] for part in of]) for i in range(of.gap.shape[1]))


def largest(x: Tensor) -> float:
    return float(x.abs().max())


@given(seed=seeds, size=sizes, step=st.floats(1e-3, 1e3))
def test_woodbury_is_the_inverse(seed: int, size: float, step: float) -> None:
    A = generator(seed, size)
    for guarded in (True, False):
        delta = torch.tensor([step, 0.5 * step], dtype=torch.float64)
        delta = A.guard(delta, guarded).step
        dense = torch.eye(SIZE, dtype=torch.float64) - delta[:, None, None] * A.dense()
        resolvent, close = A.resolvent(delta), 1e-13 * largest(dense)
        torch.testing.assert_close(resolvent, torch.linalg.inv(dense), rtol=0.0, atol=close)
        h = torch.linspace(-1.0, 1.0, SIZE, dtype=torch.float64).expand(2, -1)
        carried = (resolvent @ h[..., None])[..., 0]
        torch.testing.assert_close(A.propagate(delta, h), carried, rtol=0.0, atol=close)


def test_woodbury_without_its_correction_is_no_inverse() -> None:
    A, delta = generator(1), torch.tensor(0.7, dtype=torch.float64)
    diagonal = torch.diag(1.0 / (1.0 + delta * A.rates))
    dense = torch.eye(SIZE, dtype=torch.float64) - delta * A.dense()
    assert largest(diagonal @ dense - torch.eye(SIZE, dtype=torch.float64)) > 0.01


@given(seed=seeds, size=sizes, step=st.floats(1e-3, 1e3))
def test_carriers_contract_whatever_is_learned(seed: int, size: float, step: float) -> None:
    A, delta = generator(seed, size), torch.tensor(step, dtype=torch.float64)
    assert float(torch.linalg.eigvalsh(A.dense()).max()) <= -MU * (1.0 - 1e-9)
    for carrier in (A.resolvent(delta), A.exponential(delta)):
        assert float(torch.linalg.matrix_norm(carrier, 2)) <= 1.0 / (1.0 + step * MU) + 1e-9


def test_spectral_radius_alone_does_not_contract() -> None:
    """The paper's lemma asks ρ(A)Δ ≤ 1 − ε. AΔ = ½ has it, and R = 2; and so do nilpotents."""
    carriers = torch.full((60, 1, 1), 1.0 / (1.0 - 0.5), dtype=torch.float64)
    sums = torch.linalg.matrix_norm(green_kernel.products(carriers), 2).sum(-1)
    assert float(0.1 * sums[-1]) > 1e16
    raising = torch.tensor([[0.0, 2.0], [0.0, 0.0]], dtype=torch.float64)  # of radius 0
    one = torch.eye(2, dtype=torch.float64)
    pair = torch.stack([torch.linalg.inv(one - raising), torch.linalg.inv(one - raising.T)])
    sums = torch.linalg.matrix_norm(green_kernel.products(pair.repeat(20, 1, 1)), 2).sum(-1)
    assert float(sums[-1]) > 1e12


def hand_made() -> Generator:
    """``A = −diag(1, 2) − u uᵀ`` with u = (0, 1): rates 1 and 3, ρ(A) = 3, and ρ̄ = 3."""
    made = Generator(2, 1).double()
    with torch.no_grad():
        made.raw.copy_(torch.log(torch.expm1(torch.tensor([1.0, 2.0]).double() - MU)))
        made.U.copy_(torch.tensor([[0.0], [1.0]]))
    return made.requires_grad_(False)


def test_guard_counts_and_measures_what_it_scales() -> None:
    A, limit = hand_made(), (1.0 - EPSILON) / 3.0
    step = torch.tensor([0.1, 2.0 * limit, 0.2, 4.0 * limit], dtype=torch.float64)
    guarded = A.guard(step)
    assert guarded.step.tolist() == pytest.approx([0.1, limit, 0.2, limit])
    assert int(guarded.hits) == 2
    norm = 10.0**0.5  # of diag(1, 3)
    assert float(guarded.distance) == pytest.approx(norm * (0.5 + 0.75))
    assert float(guarded.largest) == pytest.approx(4.0 * (1.0 - EPSILON))
    scaled = A.dense() * (guarded.step / step)[:, None, None]
    radius = torch.linalg.eigvalsh(scaled * step[:, None, None]).abs().max()
    assert float(radius) <= 1.0 - EPSILON + 1e-12


def test_guard_leaves_small_steps_alone() -> None:
    guarded = hand_made().guard(torch.tensor([0.1, 0.2], dtype=torch.float64))
    assert (int(guarded.hits), float(guarded.distance)) == (0, 0.0)
    assert guarded.step.tolist() == [0.1, 0.2]


def test_guard_off_scales_nothing_and_still_says_how_far_steps_reach() -> None:
    step = torch.tensor([0.1, 9.0], dtype=torch.float64)
    off, on = (hand_made().guard(step, on=on) for on in (False, True))
    assert off.step.tolist() == [0.1, 9.0]
    assert (int(off.hits), float(off.distance)) == (0, 0.0)
    assert (int(on.hits), float(on.distance) > 0.0) == (1, True)
    assert float(off.largest) == float(on.largest) == pytest.approx(27.0)


@given(seed=seeds, size=sizes)
def test_radius_is_never_below_the_spectral_radius(seed: int, size: float) -> None:
    A = generator(seed, size)
    truth = float(torch.linalg.eigvalsh(A.dense()).abs().max())
    assert truth <= float(A.radius()) * (1.0 + 1e-12)


def test_a_scan_remembers_what_its_guard_did() -> None:
    made, of = scan(1), path(1)
    made(of)
    assert made.last is not None
    step, _ = made.steps(of.gap, of.context)
    assert int(made.last.hits) == int((step == step.max()).sum()) > 1
    assert float(made.last.largest) > 1.0 - EPSILON


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=count(200, 20))
@given(seed=seeds)
def test_kernel_is_the_scan(kind: str, seed: int) -> None:
    made, of = scan(seed, kind=kind), path(seed)
    states = green_kernel.apply(green_kernel.kernel(made, of), of.x)
    torch.testing.assert_close(states, made(of), rtol=0.0, atol=1e-10)


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=count(200, 20))
@given(seed=seeds)
def test_stream_is_the_scan(kind: str, seed: int) -> None:
    made, of = scan(seed, kind=kind), path(seed)
    streamed = torch.stack(list(made.stream(slices(of))), 1)
    torch.testing.assert_close(streamed, made(of), rtol=0.0, atol=1e-12)


def test_exponential_scan_that_is_learned_is_the_one_that_is_not() -> None:
    """The scan uses matrices if A has a gradient, and eigenvectors if it has none."""
    fixed, of = scan(5, kind="exponential"), path(5)
    learned = scan(5, kind="exponential").requires_grad_(True)
    states = learned(of)
    torch.testing.assert_close(states.detach(), fixed(of), rtol=0.0, atol=1e-12)
    states.square().sum().backward()
    assert all(p.grad is not None for p in learned.generator.parameters())
    with torch.no_grad():
        torch.testing.assert_close(learned(of), states, rtol=0.0, atol=1e-12)
        learned.generator.U.mul_(1.01)  # another generator is another scan
        assert largest(learned(of) - states) > 1e-6
    x = of.x.clone().requires_grad_(True)
    (by_values,) = torch.autograd.grad(fixed(of._replace(x=x)).sum(), x)
    assert largest(by_values) > 0.0


def test_paper_s_first_expansion_is_not_the_scan() -> None:
    """Equation (green) starts the product one step early, with the step of the input itself."""
    made, of = scan(2), path(2)
    kernel = green_kernel.kernel(made, of)
    step, _ = made.steps(of.gap, of.context)
    early = kernel @ torch.eye(WIDTH, dtype=torch.float64)
    early = torch.einsum("blsmd,bsd->blm", early, of.x)
    shifted = (made.generator.resolvent(step) @ early[..., None])[..., 0]
    assert largest(shifted - made(of)) > 1e-3


def test_two_scans_in_one_walk_are_each_alone() -> None:
    scans, of = [scan(1), scan(2)], path(3)
    ahead = of.gap.roll(-1, 1)
    together = scan_together(scans, [of, of.reversed(ahead)])
    torch.testing.assert_close(together[0], scans[0](of), rtol=0.0, atol=1e-13)
    torch.testing.assert_close(together[1], scans[1](of.reversed(ahead)), rtol=0.0, atol=1e-13)


@pytest.mark.parametrize("kind", KINDS)
def test_backward_scan_is_the_adjoint(kind: str) -> None:
    """⟨Gx, y⟩ = ⟨x, G*y⟩, the way back being the same scan on the reversed path."""
    made, of = scan(4, 0.0, kind), path(4, chains=1)
    gap = 0.1 + 0.02 * torch.arange(7.0, dtype=torch.float64)[None]
    ahead = torch.cat([gap[:, 1:], gap[:, :1]], 1)
    there, back = of._replace(gap=gap), of._replace(gap=gap).reversed(ahead)
    forth, adjoint = (
        green_kernel.products(made.carriers(made.steps(p.gap, p.context)[0]))[0]
        for p in (there, back)
    )
    g = torch.Generator().manual_seed(4)
    x, y = torch.randn(2, 7, SIZE, generator=g, dtype=torch.float64)
    moved = torch.einsum("lsij,sj->li", forth, x)
    returned = torch.einsum("lsij,sj->li", adjoint, y.flip(0)).flip(0)
    assert float((moved * y).sum()) == pytest.approx(float((x * returned).sum()), rel=1e-12)
    wrong = torch.einsum("lsij,sj->li", forth, y.flip(0)).flip(0)  # gaps of the other direction
    assert abs(float((moved * y).sum() - (x * wrong).sum())) > 1e-3


@pytest.mark.parametrize("guarded", [True, False])
@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=count(400, 25))
@given(seed=seeds, size=st.floats(0.0, 5.0))
def test_green_sum_and_states_stay_within_their_bounds(
    kind: str, guarded: bool, seed: int, size: float
) -> None:
    made = scan(seed, size, kind, guarded=guarded)
    found = green_kernel.measure_scan_bounds(made, path(seed, maturities=12))
    assert found.holds
    assert found.total <= found.bound * (1.0 + 1e-12)
    assert found.state <= found.state_bound * (1.0 + 1e-12)


def test_green_sums_are_those_of_singular_values() -> None:
    """Gram matrices, with W reduced to the columns of the state, give the same sums."""
    made, of = scan(3), path(3, maturities=9)
    with torch.no_grad():
        made.enter.weight = torch.nn.Parameter(torch.randn(SIZE, 3 * SIZE, dtype=torch.float64))
        of = of._replace(x=torch.randn(2, 9, 3 * SIZE, dtype=torch.float64))
        whole = green_kernel.kernel(made, of)
        plain = torch.linalg.matrix_norm(whole, 2).sum(-1)
    torch.testing.assert_close(green_kernel.sums(whole), plain, rtol=1e-12, atol=0.0)
    assert green_kernel.measure_scan_bounds(made, of).total == pytest.approx(
        float(plain.max()), rel=1e-12
    )
    assert float(torch.linalg.matrix_norm(whole).sum(-1).max() / plain.max()) > 1.1  # Frobenius's


def test_green_sum_comes_near_its_bound() -> None:
    """A bound that is never approached would be an empty promise."""
    made = scan(0, 0.0)
    with torch.no_grad():
        made.generator.raw.fill_(-30.0)  # every rate is μ
        made.generator.U.zero_()
        made.select.bias[1:] = 20.0  # gates open
        made.select.bias[0] = 20.0  # steps as long as the guard lets them be
    found = green_kernel.measure_scan_bounds(
        made, path(1, maturities=60)._replace(seen=torch.ones(2, 60) > 0.0)
    )
    assert 0.95 * found.bound < found.total <= found.bound * (1.0 + 1e-12)


def test_inputs_that_do_not_shrink_with_the_step_break_the_bound() -> None:
    """‖B_s‖ ≤ bΔ_s is needed: with constant inputs many small steps add up to anything."""

    class Constant(GreenScan):
        def strength(self, guarded: Guarded) -> Tensor:
            return torch.full_like(guarded.step, 0.3)

    torch.manual_seed(0)
    made = Constant(WIDTH, SIZE, RANK, CONTEXT).double().requires_grad_(False)
    of = path(1, maturities=40)._replace(gap=torch.full((2, 40), 1e-2, dtype=torch.float64))
    assert not green_kernel.measure_scan_bounds(made, of).holds


def test_steps_and_inputs_are_selected_by_context() -> None:
    made, of = scan(1), path(1)
    free = of._replace(gap=torch.full_like(of.gap, 0.02))
    step, gate = made.steps(free.gap, free.context)
    assert float(step.max() / step.min()) > 1.5
    assert float(step.max() / step.min()) <= torch.e**2.8 + 1e-9
    assert float((gate.amax((0, 1)) - gate.amin((0, 1))).min()) > 0.0
    plain = scan(1, 0.0)
    assert float(torch.diff(plain.steps(free.gap, free.context)[0]).abs().max()) == 0.0


def test_a_longer_gap_forgets_more() -> None:
    made = scan(1, 0.1)
    of = path(1)._replace(seen=torch.arange(7).expand(2, 7) == 0)
    near, far = (made(of._replace(gap=torch.full_like(of.gap, gap))) for gap in (1e-2, 1e-1))
    fading = far[:, 1:].norm(dim=-1) / far[:, :1].norm(dim=-1)
    assert bool((fading < near[:, 1:].norm(dim=-1) / near[:, :1].norm(dim=-1)).all())


def test_nothing_enters_where_nothing_is_quoted() -> None:
    made, of = scan(1), path(1)
    of = of._replace(seen=torch.tensor([[1, 1, 0, 1, 0, 0, 1]] * 2) > 0)
    noisy = of._replace(x=torch.where(of.seen[..., None], of.x, 1e6))
    torch.testing.assert_close(made(noisy), made(of), rtol=0.0, atol=0.0)
    step, _ = made.steps(of.gap, of.context)
    states = made(of)
    passed = made.generator.propagate(step[:, 2], states[:, 1])
    torch.testing.assert_close(states[:, 2], passed, rtol=0.0, atol=1e-12)


def with_query(quotes: Ragged, at: float) -> Ragged:
    """A maturity without quotes between the third and the fourth."""
    T = quotes.T[:, 2:3] ** (1.0 - at) * quotes.T[:, 3:4] ** at
    parts = [torch.cat([quotes.T[:, :3], T, quotes.T[:, 3:]], 1)]
    parts += [torch.cat([x[:, :3], x[:, 2:3], x[:, 3:]], 1) for x in quotes[1:]]
    parts[-1][:, 3] = False
    return Ragged._make(parts)


def test_a_query_maturity_lies_between_its_neighbours() -> None:
    quotes = random_chain(3, maturities=6)
    made = network(1, 0.02)
    with torch.no_grad():
        asked = [made(with_query(quotes, at)).slopes for at in (0.25, 0.5, 0.75)]
        plain = made(quotes).slopes
    for slopes in asked:
        assert bool((slopes.diff(dim=1) >= 0.0).all())
        assert float((slopes[:, [0, 1, 2, 4, 5, 6]] / plain - 1.0).abs().max()) < 0.1
    query = torch.stack([slopes[:, 3] for slopes in asked], 1).log()  # (B, 3, n)
    assert float((query[:, 1] - 0.5 * (query[:, 0] + query[:, 2])).abs().max()) < 0.2
    assert bool(torch.isfinite(query).all())


def operations(made: GreenScan, maturities: int) -> int:
    with FlopCounterMode(display=False) as counter:
        made(path(1, maturities))
    return int(counter.get_total_flops())


def test_work_is_linear_in_the_number_of_maturities() -> None:
    made = scan(1)
    eight, sixteen, more = (operations(made, n) for n in (8, 16, 128))
    each = (sixteen - eight) / 8
    assert more == eight + 120 * each


def test_kernel_written_out_is_quadratic_and_seen_to_be() -> None:
    made = scan(1)
    found = []
    for n in (8, 16):
        with FlopCounterMode(display=False) as counter:
            green_kernel.kernel(made, path(1, n))
        found.append(int(counter.get_total_flops()))
    assert found[1] > 3 * found[0]


def test_benchmark_finds_a_slope_that_is_too_steep(monkeypatch: pytest.MonkeyPatch) -> None:
    """On made-up times, linear with an overhead passes and L^1.2 does not."""
    lengths = [2**i for i in range(5, 12)]
    kinds = {"scan": [0.1 + n for n in lengths], "walk": [n**1.2 for n in lengths]}
    rows = [{"way": way, "slope": benchmark.slope(lengths, t)} for way, t in kinds.items()]
    assert rows[1]["slope"] == pytest.approx(1.2)
    assert benchmark.steep(rows, 1.1) == ["walk"]
    assert benchmark.steep(rows, 1.3) == []
    told = [{**row, "ms": {"32": 1.0}} for row in rows]
    monkeypatch.setattr(benchmark, "run", lambda *_: told)
    monkeypatch.setattr(sys, "argv", ["scan"])
    with pytest.raises(SystemExit, match=r"slope above 1\.1: walk"):
        benchmark.main()
    monkeypatch.setattr(sys, "argv", ["scan", "--limit", "1.3"])
    benchmark.main()


def test_stream_keeps_one_state_however_long_the_axis_is() -> None:
    made = scan(1)
    endless = itertools.repeat(next(slices(path(1))))
    passed = [weakref.ref(state) for state in itertools.islice(made.stream(endless), 500)]
    assert sum(state() is not None for state in passed) <= 1
    kept = list(itertools.islice(made.stream(endless), 20))
    assert sum(weakref.ref(state)() is not None for state in kept) == 20
