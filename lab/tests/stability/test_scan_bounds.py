"""The scans of a whole network stay within their bounds, and one that does not is found."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from arbiter.examples import example_chain
from arbiter_lab.differentiable.operators.network.green_scan import Generator, GreenScan, Guarded
from arbiter_lab.differentiable.operators.prior.reference_volatility import scaled
from arbiter_lab.differentiable.operators.quote_tensors import pad_chains
from arbiter_lab.evaluation.first_design import FirstDesign
from arbiter_lab.stability.scan_bounds import each, nearest, watched
from counts import count
from ragged_chains import in_units, network


class Growing(Generator):
    """Rates below zero: what it carries grows with every step."""

    @property
    def rates(self) -> Tensor:
        return -0.9 * super().rates / super().rates.max()

    def radius(self) -> Tensor:
        return torch.ones((), dtype=self.raw.dtype)


class Loud(GreenScan):
    """Inputs of one strength, however short the step: ``‖B_s‖ ≤ bΔ_s`` is broken."""

    def strength(self, guarded: Guarded) -> Tensor:
        return torch.full_like(guarded.step, 0.9)


@settings(max_examples=count(200, 15))
@given(
    seed=st.integers(0, 2**31),
    size=st.floats(0.0, 2.0),
    guard=st.booleans(),
    adjoint=st.booleans(),
    kind=st.sampled_from(["resolvent", "exponential"]),
)
def test_scans_stay_within_their_bounds_whatever_is_learned(
    seed: int, size: float, guard: bool, adjoint: bool, kind: str
) -> None:
    made = network(seed, size, guard=guard, adjoint=adjoint, scan=kind)
    found = nearest(made, [in_units(seed, maturities=9)])
    assert found.holds
    assert 0.0 < found.green_sum <= found.green_bound * (1.0 + 1e-12)
    assert 0.0 < found.state_norm <= found.state_bound * (1.0 + 1e-12)


def test_every_scan_is_watched_and_left_alone() -> None:
    """There are two looks and the geometry stream, each with scans in both directions."""
    made, chain = network(1), in_units(1)
    before = made.decode(chain).slopes
    with watched(made) as walks:
        made.decode(chain)
    assert [len(paths) for paths in walks.values()] == [1] * 6
    assert len(each(made, chain)) == 6
    made.decode(chain)
    assert [len(paths) for paths in walks.values()] == [1] * 6
    assert torch.equal(made.decode(chain).slopes, before)


def test_the_one_nearest_to_its_bound_is_told() -> None:
    """And not the largest, whose bound may be larger still."""
    made, chains = network(1), [in_units(1), in_units(2, maturities=12)]
    found = nearest(made, chains)
    all_of_them = [bound for chain in chains for bound in each(made, chain)]
    shares = [one.total / one.bound for one in all_of_them]
    assert found.green_sum / found.green_bound == max(shares)
    states = [one.state / one.state_bound for one in all_of_them]
    assert found.state_norm / found.state_bound == max(states)
    with pytest.raises(ValueError, match="chains is empty"):
        nearest(made, [])


@pytest.mark.parametrize("stream", ["values", "geometry"])
def test_one_scan_that_grows_is_found(stream: str) -> None:
    made, chain = network(1, 0.0), in_units(1, chains=1, maturities=40)
    assert nearest(made, [chain]).holds
    scan = made.stages()[0].forth if stream == "values" else made.context.carry[0]
    scan.generator.__class__ = Growing
    found = nearest(made, [chain])
    assert not found.holds
    assert found.green_sum > found.green_bound


def test_inputs_louder_than_their_step_are_found() -> None:
    made, chain = network(1, 0.0), in_units(1, chains=1, maturities=40)
    made.stages()[0].forth.__class__ = Loud
    found = nearest(made, [chain])
    assert not found.holds


def test_a_bound_that_is_too_small_is_found() -> None:
    """Half of what was measured, in either place."""
    found = nearest(network(1), [in_units(1)])
    assert not found._replace(green_bound=0.5 * found.green_sum).holds
    assert not found._replace(state_bound=0.5 * found.state_norm).holds


def test_single_precision_is_measured_as_double_is() -> None:
    made, chain = network(1), in_units(1)
    double = nearest(made, [chain])
    single = [part if part.dtype == torch.bool else part.float() for part in chain]
    found = nearest(made.float(), [type(chain)(*single)])
    assert found == pytest.approx(double, rel=1e-3)
    assert next(made.parameters()).dtype == torch.float32


def test_shipped_weights_stay_within_their_bounds() -> None:
    chain = scaled(pad_chains([example_chain().quotes()], torch.float64))
    found = nearest(FirstDesign.load().network, [chain])
    assert found.holds
    assert 0.01 < found.green_sum / found.green_bound < 1.0
    assert 0.0 < found.state_norm / found.state_bound < 1.0
