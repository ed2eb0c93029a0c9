"""Parts of the quick pass are those of the network: splines, kriging, gates; and its threads."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import numpy as np
import pytest
import torch
from arbiter.operators.quick.flat import flat
from arbiter.operators.quick.gaussian_process import Kriging, near_splines
from arbiter.operators.quick.measure_gate import Batch, Eye
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

import arbiter as ab
from arbiter.operators import domain, domain_features, workers
from arbiter.operators.network.measure_gate import places
from arbiter.operators.prior.gaussian_process import STRIKES, ZETA
from arbiter_lab.differentiable.operators.network.measure_gate import Gate
from arbiter_lab.differentiable.operators.prior import gaussian_process, slice_offsets
from arbiter_lab.differentiable.operators.prior.gaussian_process import splines
from plain_traits import plain_traits
from ragged_chains import in_units

PLACE = places(7, (3.0, 2.4))
seeds = st.integers(0, 2**31)


def test_near_splines_are_the_ones_that_are_not_zero() -> None:
    x = np.concatenate([np.linspace(ZETA[0] - 1.0, ZETA[1] + 1.0, 801), ZETA])
    left, basis = near_splines(x, ZETA, STRIKES)
    dense = np.zeros((x.size, STRIKES))
    dense[np.arange(x.size)[:, None], left[:, None] + np.arange(4)] = basis
    wanted = splines(torch.from_numpy(x), ZETA, STRIKES).numpy()
    np.testing.assert_allclose(dense, wanted, rtol=0.0, atol=1e-14)
    moved = splines(torch.from_numpy(x + 1e-6), ZETA, STRIKES).numpy()
    assert np.abs(dense - moved).max() > 1e-8
    assert np.isnan(near_splines(np.array([np.nan]), ZETA, STRIKES)[1]).all()


@given(seed=seeds, calm=st.sampled_from([1.0, 0.3, 0.05, 0.01]))
def test_kriging_in_one_row_is_kriging(seed: int, calm: float) -> None:
    chain = in_units(seed, chains=3)
    chain = chain._replace(u=calm * chain.u)
    chain.quoted[1, 2:] = False
    quotes = flat(chain)
    wanted = gaussian_process.kriged(chain, PLACE)
    found, _ = Kriging(PLACE)(quotes)
    for name, one, other in zip(wanted._fields, found, wanted, strict=True):
        torch.testing.assert_close(one, other, rtol=0.0, atol=1e-6, msg=name)
    moved, _ = Kriging(PLACE)(quotes._replace(u=quotes.u + 1e-4))
    assert float((moved.smile - wanted.smile).abs().max()) > 1e-6


def test_chains_are_calm_and_wild() -> None:
    """Those above: values of wildness on either side of the middle, and two steps off, count."""
    chain = in_units(3, chains=3)
    wild = {
        float(tau)
        for calm in (1.0, 0.3, 0.05, 0.01)
        for tau in gaussian_process.known(chain._replace(u=calm * chain.u)).law.prior.wild
    }
    assert min(wild) < slice_offsets.PRIOR_SCALES[1]
    assert max(wild) > slice_offsets.INITIAL_PRIOR_SCALE


def looked(gate: Gate, shift: float, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Local lines of the quick gate and of the gate itself, strikes moved by ``shift`` of ζ."""
    chain = in_units(4, chains=2)
    chain = chain._replace(zeta=0.1 * chain.zeta + shift)
    quotes = Batch.of(flat(chain), dtype)
    eye = Eye(gate, dtype)
    lines, means = eye.look(eye.see(quotes), quotes, quotes.flat.u.to(dtype))
    wanted = gate.look(gate(chain), chain, chain.u)
    return torch.cat([lines, means], -1).double(), wanted.flatten(0, 1)


@pytest.mark.parametrize("shift", [0.0, -3.5, 3.5])
def test_a_gate_in_one_row_is_the_gate_in_both_precisions(shift: float) -> None:
    """Also where every quote is far from a head, and all of them are near each other."""
    torch.manual_seed(2)
    gate = Gate(40, (3.7, 2.4)).double().requires_grad_(False)
    for parameter in gate.parameters():
        parameter.add_(0.1 * torch.randn_like(parameter))
    found, wanted = looked(gate, shift, torch.float64)
    torch.testing.assert_close(found, wanted, rtol=0.0, atol=1e-9)
    rough, _ = looked(gate, shift, torch.float32)
    assert 0.0 < float((rough - wanted).abs().max()) < 1e-5
    gate.log_width.add_(1e-3)
    assert float((looked(gate, shift, torch.float64)[1] - found).abs().max()) > 1e-6


def test_quotes_in_one_row_are_those_of_each_slice() -> None:
    chain = in_units(6, chains=2)
    chain.quoted[0, 1] = False
    quotes = flat(chain)
    assert torch.equal(torch.from_numpy(np.diff(quotes.ends)), chain.quoted.sum(-1).flatten())
    at = chain.quoted.flatten(0, 1).nonzero()[:, 0]
    assert torch.equal(quotes.row, at)
    for name in ("zeta", "u", "noise", "spacing", "width"):
        assert torch.equal(getattr(quotes, name), getattr(chain, name)[chain.quoted].double()), name


def spoken(rng: np.random.Generator, counts: list[int]) -> domain_features.ObservedChains:
    """Noise in place of a chain, with so many quotes in each expiry."""
    size, expiry = sum(counts), np.repeat(np.arange(len(counts)), counts)
    T = np.cumsum(rng.uniform(0.01, 1.0, len(counts)))
    total = np.log(0.2 * np.sqrt(T))
    k = np.concatenate([np.sort(rng.normal(0.0, 0.1, n)) for n in counts])
    iv, spread = rng.uniform(0.1, 0.3, size), rng.uniform(0.001, 0.1, size)
    return domain_features.ObservedChains(
        T, total, expiry, k, iv, spread, rng.normal(size=size), rng.uniform(size=1)
    )


@given(seed=seeds)
def test_traits_are_those_of_plain_sums(seed: int) -> None:
    rng = np.random.default_rng(seed)
    seen = spoken(rng, rng.integers(1, 25, rng.integers(1, 9)).tolist())
    found, wanted = domain_features.describe_chain(seen), plain_traits(seen)
    assert list(found) == list(wanted) == list(domain.TRAITS)
    for name, value in wanted.items():
        assert found[name] == pytest.approx(value, rel=1e-9, abs=1e-9), name


def test_traits_of_chains_behind_each_other_are_those_of_each(rng: np.random.Generator) -> None:
    chains = [spoken(rng, counts) for counts in ([9, 4, 30, 7], [3], [1, 2], [12, 1, 1, 8, 20])]
    slices = np.cumsum([0] + [chain.T.size for chain in chains])
    quotes = np.cumsum([0] + [chain.k.size for chain in chains])
    joined = domain_features.ObservedChains._make(
        np.concatenate(parts) for parts in zip(*chains, strict=True)
    )
    expiry = joined.expiry + np.repeat(slices[:-1], np.diff(quotes))
    together = domain_features.describe_chains(joined._replace(expiry=expiry), slices, quotes)
    assert together == [domain_features.describe_chain(chain) for chain in chains]
    assert together[0] != together[3]


@pytest.fixture
def two_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


def number_of_a_new_thread() -> int:
    found: list[int] = []
    thread = threading.Thread(target=lambda: found.append(torch.get_num_threads()))
    thread.start()
    thread.join()
    return found[0]


@pytest.mark.usefixtures("two_threads")
def test_workers_compute_by_themselves_and_the_callers_number_of_threads_stays() -> None:
    inside = workers.map_in_threads(lambda i: (i, torch.get_num_threads()), range(20))
    assert inside == [(i, 1) for i in range(20)]
    assert torch.get_num_threads() == 2
    assert number_of_a_new_thread() == 2


@pytest.mark.usefixtures("two_threads")
def test_workers_that_ask_for_workers_do_it_themselves() -> None:
    def outer(i: int) -> list[str]:
        return workers.map_in_threads(lambda _: threading.current_thread().name, [i, i])

    names = workers.map_in_threads(outer, range(8))
    assert all(one == other and one.startswith("arbiter") for one, other in names)


@pytest.mark.parametrize("count", [3, 20])
def test_workers_are_as_many_as_threads_and_not_too_many(count: int) -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        inside = workers.map_in_threads(lambda _: threading.current_thread().name, range(200))
        assert torch.get_num_threads() == number_of_a_new_thread() == count
    finally:
        torch.set_num_threads(before)
    assert 1 <= len(set(inside)) <= min(count, 8)


def test_with_one_thread_nothing_is_handed_over() -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        here = workers.map_in_threads(lambda _: threading.current_thread(), [0, 1])
    finally:
        torch.set_num_threads(before)
    assert here == [threading.current_thread()] * 2


@pytest.mark.usefixtures("two_threads")
def test_an_error_in_a_worker_reaches_the_caller() -> None:
    def refuse(i: int) -> int:
        if i == 3:
            raise ValueError("three")
        return i

    with pytest.raises(ValueError, match="three"):
        workers.map_in_threads(refuse, range(6))
    assert workers.map_in_threads(refuse, [1, 2]) == [1, 2]


def test_surfaces_of_many_do_not_depend_on_threads() -> None:
    quotes = ab.example_chain().quotes()
    chains = [quotes.select(np.arange(len(quotes)) % 40 != i) for i in range(12)]
    operator, before = ab.Operator.pretrained(), torch.get_num_threads()
    found = []
    try:
        for count in (1, 2):
            torch.set_num_threads(count)
            found.append([surface.slopes.tobytes() for surface in operator.many(chains)])
    finally:
        torch.set_num_threads(before)
    assert found[0] == found[1]
    assert len(set(found[0])) == len(chains)
