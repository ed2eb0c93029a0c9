"""Traits of chains are those of plain sums; chains are computed in threads of our own."""

from __future__ import annotations

import os
import threading

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import arbiter as ab
from arbiter.operators import domain, domain_features, workers
from arbiter.operators.quote_rows import batches
from plain_traits import plain_traits

seeds = st.integers(0, 2**31)


def spoken(rng: np.random.Generator, counts: list[int]) -> domain_features.ObservedChains:
    """Noise in place of a chain, with so many quotes in each expiry."""
    size, expiry = sum(counts), np.repeat(np.arange(len(counts)), counts)
    T = np.cumsum(rng.uniform(0.01, 1.0, len(counts)))
    total = np.log(0.2 * np.sqrt(T))
    k = np.concatenate([np.sort(rng.normal(0.0, 0.1, n)) for n in counts])
    iv, spread = rng.uniform(0.1, 0.3, size), rng.uniform(0.001, 0.1, size)
    return domain_features.ObservedChains(
        T, total, expiry, k, iv, spread, rng.normal(size=size), *rng.uniform(size=(2, 1))
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


def test_threads_are_asked_of_the_environment_then_of_the_system(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    assert workers.count_threads() == 3
    monkeypatch.setenv("OMP_NUM_THREADS", "20,4")
    assert workers.count_threads() == 8
    monkeypatch.delenv("OMP_NUM_THREADS")
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 5}, raising=False)
    assert workers.count_threads() == 2


def test_workers_that_ask_for_workers_do_it_themselves() -> None:
    def outer(i: int) -> list[str]:
        return workers.map_in_threads(lambda _: threading.current_thread().name, [i, i], 2)

    names = workers.map_in_threads(outer, range(8), 2)
    assert all(one == other and one.startswith("arbiter") for one, other in names)


@pytest.mark.parametrize("count", [3, 8])
def test_workers_are_not_more_than_asked_for(count: int) -> None:
    inside = workers.map_in_threads(lambda _: threading.current_thread().name, range(200), count)
    assert 1 <= len(set(inside)) <= count
    assert threading.current_thread().name not in inside


def test_with_one_thread_nothing_is_handed_over() -> None:
    here = workers.map_in_threads(lambda _: threading.current_thread(), [0, 1], 1)
    assert here == [threading.current_thread()] * 2


def test_an_error_in_a_worker_reaches_the_caller() -> None:
    def refuse(i: int) -> int:
        if i == 3:
            raise ValueError("three")
        return i

    with pytest.raises(ValueError, match="three"):
        workers.map_in_threads(refuse, range(6), 2)
    assert workers.map_in_threads(refuse, [1, 2], 2) == [1, 2]


def test_surfaces_of_many_do_not_depend_on_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    quotes = ab.example_chain().quotes()
    chains = [quotes.select(np.arange(len(quotes)) % 90 != i) for i in range(90)]
    assert len(batches(chains)) > 2  # which threads share
    operator, found = ab.Operator.pretrained(), []
    for count in ("1", "2", "8"):
        monkeypatch.setenv("OMP_NUM_THREADS", count)
        found.append([surface.slopes.tobytes() for surface in operator.many(chains)])
    assert found[0] == found[1] == found[2]
    assert len(set(found[0])) == len(chains)
