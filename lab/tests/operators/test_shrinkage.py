"""Trust: a network may move a chain's smile by about what its reference does not know."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from arbiter import Surface
from arbiter.models.parameters import preset
from arbiter_lab.differentiable.operators import slope_head
from arbiter_lab.differentiable.operators.network.measure_gate import Gate
from arbiter_lab.differentiable.operators.network.network import Network, Output
from arbiter_lab.differentiable.operators.network.shrinkage import (
    FREE_MOVE_ERRORS,
    MET_HALF_SPREADS,
    MISSED_HALF_SPREADS,
    share,
    trusted,
)
from arbiter_lab.differentiable.operators.prior.gaussian_process import Kriged
from arbiter_lab.differentiable.operators.prior.reference_volatility import Scaled, scaled
from arbiter_lab.differentiable.operators.quote_tensors import pad_chains
from arbiter_lab.evaluation.first_design import FirstDesign
from arbiter_lab.evaluation.known_surface import Case
from arbiter_lab.protocol.stress import make_stressed_case


@pytest.fixture(scope="module")
def network() -> Network:
    return FirstDesign.load().network


def case(axis: str, severity: float) -> Case:
    return make_stressed_case(axis, severity, preset("calm"), 1000).case


def begun(network: Network, one: Case) -> tuple[Scaled, Kriged, Gate]:
    chain = scaled(pad_chains([one.quotes]))
    guess = network.double().guess(chain)
    assert guess is not None
    return chain, guess, network.stages()[0].gate


def error_bp(slopes: Tensor, one: Case) -> float:
    """Return the RMSE of the surface with these slopes, in basis points."""
    made = Surface.from_slopes(np.array(slope_head.KNOTS), one.T, slopes[0].double().numpy())
    times = np.broadcast_to(one.T[:, None], one.k.shape)
    off = made.iv(one.k[one.listed], times[one.listed]) - one.iv[one.listed]
    return float(np.sqrt(np.mean(off**2)) * 1e4)


def test_the_share_is_one_up_to_enough_and_falls_like_the_square() -> None:
    moved = torch.tensor(
        [0.0, 0.5, FREE_MOVE_ERRORS, 2.0 * FREE_MOVE_ERRORS, 10.0 * FREE_MOVE_ERRORS],
        dtype=torch.float64,
    )
    wanted = torch.tensor([1.0, 1.0, 1.0, 0.25, 0.01], dtype=torch.float64)
    missed = torch.full_like(moved, 2.0 * MISSED_HALF_SPREADS)
    torch.testing.assert_close(share(moved, missed), wanted)
    assert bool(
        (moved * share(moved, missed) <= FREE_MOVE_ERRORS + 1e-12).all()
    )  # never too much is left


def test_a_change_that_the_quotes_allow_is_made_however_large() -> None:
    missed = torch.tensor(
        [
            0.0,
            MET_HALF_SPREADS,
            0.5 * (MET_HALF_SPREADS + MISSED_HALF_SPREADS),
            MISSED_HALF_SPREADS,
        ],
        dtype=torch.float64,
    )
    far = torch.full_like(missed, 100.0 * FREE_MOVE_ERRORS)
    wanted = torch.tensor([1.0, 1.0, 0.5, 1e-4], dtype=torch.float64)
    torch.testing.assert_close(share(far, missed), wanted)


def test_a_reference_that_is_too_sure_of_itself_is_overruled_by_quotes(network: Network) -> None:
    chain, guess, gate = begun(network, case("noise", 0.0))
    sure = guess._replace(doubt=torch.full_like(guess.doubt, -20.0))
    proposal = guess.start + 0.01 * torch.tanh(guess.start.new_tensor(slope_head.KNOTS))
    allowed = trusted(proposal, sure, chain, gate)
    assert float(allowed.moved) > FREE_MOVE_ERRORS
    assert float(allowed.missed) < MET_HALF_SPREADS
    assert torch.equal(allowed.proposal, proposal)
    tight = chain._replace(noise=torch.full_like(chain.noise, -20.0), u=chain.u + 0.1)
    refused = trusted(proposal, sure, tight, gate)  # no quote is met any more
    assert float(refused.missed) > MISSED_HALF_SPREADS
    assert not torch.equal(refused.proposal, proposal)


def test_no_change_moves_nothing(network: Network) -> None:
    chain, guess, gate = begun(network, case("noise", 1.0))
    found = trusted(guess.start, guess, chain, gate)
    torch.testing.assert_close(found.proposal, guess.start.double(), rtol=0.0, atol=1e-12)
    assert float(found.moved) < 1e-6


def test_a_small_change_is_made_and_a_large_one_is_shortened(network: Network) -> None:
    chain, guess, gate = begun(network, case("noise", 1.0))
    small, large = guess.start + 1e-3, guess.start + 0.5
    assert torch.equal(trusted(small, guess, chain, gate).proposal, small)
    found = trusted(large, guess, chain, gate)
    assert float(found.moved) > 10.0 * FREE_MOVE_ERRORS
    left = trusted(found.proposal, guess, chain, gate)
    assert float(left.moved) < FREE_MOVE_ERRORS
    step = (found.proposal - guess.start) / 0.5
    torch.testing.assert_close(step, torch.full_like(step, float(share(found.moved, found.missed))))


def test_places_that_no_price_reaches_and_unquoted_slices_have_no_say(network: Network) -> None:
    chain, guess, gate = begun(network, case("noise", 1.0))
    nobody = chain._replace(quoted=torch.zeros_like(chain.quoted))
    found = trusted(guess.start + 0.5, guess, nobody, gate)
    assert float(found.moved) == 0.0
    assert torch.equal(found.proposal, guess.start + 0.5)


def outputs(network: Network, one: Case) -> tuple[Output, Output]:
    """Return the network's proposal and its output after shrinkage."""
    quotes = pad_chains([one.quotes])
    with torch.no_grad():
        return network.double().decode(scaled(quotes)), network(quotes)


def test_on_markets_like_its_training_the_network_has_its_way(network: Network) -> None:
    proposed, answered = outputs(network, case("noise", 1.0))
    assert answered.moved is not None
    torch.testing.assert_close(answered.slopes, proposed.slopes, rtol=1e-12, atol=0.0)


@pytest.mark.parametrize(("axis", "severity"), [("roughness", 3.0), ("stale", 4.0)])
def test_far_from_its_training_the_reference_has(
    network: Network, axis: str, severity: float
) -> None:
    """Rougher than any market of the universe, or quotes of different times side by side."""
    one = case(axis, severity)
    proposed, answered = outputs(network, one)
    assert answered.moved is not None
    assert float(answered.moved) > FREE_MOVE_ERRORS
    alone, kept = error_bp(proposed.slopes, one), error_bp(answered.slopes, one)
    assert kept < 0.5 * alone
    if axis == "roughness":  # these quotes agree with one another, so they can be met
        assert kept < 20.0


def test_slopes_reach_as_far_as_rough_smiles_need(
    network: Network, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Twenty times the slope at the money is not enough."""
    one = case("roughness", 3.0)
    chain, guess, _ = begun(network, one)
    here = error_bp(slope_head.slopes(guess.start, chain.total), one)
    monkeypatch.setattr(slope_head, "MAX_LOG_RATIO", 3.0)
    chain, guess, _ = begun(network, one)
    bounded = error_bp(slope_head.slopes(guess.start, chain.total), one)
    assert here < 15.0
    assert bounded > 5.0 * here


def test_a_network_proposes_what_is_usual_and_only_a_start_reaches_farther() -> None:
    g = torch.tensor([-9.0, -3.5, 0.2, 3.5, 9.0], dtype=torch.float64)
    usual = torch.tensor([-3.0, -3.0, 0.2, 3.0, 3.0], dtype=torch.float64)
    assert torch.equal(slope_head.bounded(g, None), usual)
    assert torch.equal(slope_head.bounded(g, torch.zeros_like(g)), usual)
    start = torch.tensor([-4.0, -4.0, 4.0, 4.0, 4.0], dtype=torch.float64)
    wanted = torch.tensor([-4.0, -3.5, 0.2, 3.5, 4.0], dtype=torch.float64)
    assert torch.equal(slope_head.bounded(g, start), wanted)


def test_a_smile_that_no_order_holds_strains_it(network: Network) -> None:
    chain, guess, gate = begun(network, case("noise", 1.0))
    little = trusted(guess.start, guess, chain, gate).strained
    far = trusted(guess.start, guess._replace(miss=guess.miss + 0.05), chain, gate).strained
    assert float(little) < 0.5
    assert float(far) > 2.0
    unsure = guess._replace(miss=guess.miss + 0.05, doubt=guess.doubt + 3.0)
    assert float(trusted(guess.start, unsure, chain, gate).strained) < 0.5 * float(far)
