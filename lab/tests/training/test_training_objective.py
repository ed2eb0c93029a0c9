"""The objective is zero at the truth, and every part of it sees the fault it is for."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

import tiny
from arbiter_lab.differentiable.operators.network.convex_decoder import ICNNDecoder
from arbiter_lab.differentiable.operators.network.measure_gate import Sight
from arbiter_lab.differentiable.operators.network.network import Network, Output
from arbiter_lab.differentiable.pricing import black
from arbiter_lab.training import convex_decoder_prices
from arbiter_lab.training.batch_stream import make_generator
from arbiter_lab.training.batches import Batch, BatchLayout, draw_batch
from arbiter_lab.training.flow_matching import oracle_slopes
from arbiter_lab.training.held_out import decode_volatilities
from arbiter_lab.training.objective import (
    BAND_COUNT,
    ObjectiveTerms,
    TrainingTask,
    calendar_defects,
    compute_terms,
    make_task,
    martingale_defects,
)

LAYOUT = BatchLayout(6, 16, 12)


@pytest.fixture(scope="module")
def batch() -> Batch:
    return draw_batch(tiny.laws(), LAYOUT, make_generator("cpu", 3), 24)


@pytest.fixture(scope="module")
def given(batch: Batch) -> TrainingTask:
    return make_task(batch, tiny.laws())


@pytest.fixture(scope="module")
def output(given: TrainingTask) -> Output:
    with torch.no_grad():
        return Network(tiny.CONFIG).decode(given.chain)


@pytest.fixture(scope="module")
def truth(batch: Batch, output: Output) -> Output:
    """Return the output of a perfect network."""
    return output._replace(slopes=oracle_slopes(tiny.laws(), batch).b)


def near_money(given: TrainingTask) -> Tensor:
    """Targets whose strikes the pool resolves with room: the truth's wings are extended."""
    z = given.k / torch.exp(given.chain.total)[..., None]
    return (given.weight > 0.0) & (z > -3.0) & (z < 1.5)


def test_the_truth_costs_nothing(given: TrainingTask, truth: Output) -> None:
    found = compute_terms(truth, given)
    inside = near_money(given)
    assert inside.float().mean() > 0.4
    assert found.error[inside].abs().max() < 2e-3
    assert found.defects["replication"].max() < 1e-3


def test_a_level_that_is_off_is_seen_as_such(given: TrainingTask, truth: Output) -> None:
    """One percent more slope is one percent more volatility, and two of variance."""
    found = compute_terms(truth._replace(slopes=1.01 * truth.slopes), given)
    inside = near_money(given)
    assert float(found.error[inside].median()) == pytest.approx(0.01, rel=0.15)
    seen = found.defects["replication"]
    assert seen[seen > 0.0].mean() == pytest.approx(1e2 * (2 * 0.00995) ** 2, rel=0.2)
    assert found.fit > 10.0 * compute_terms(truth, given).fit


def test_errors_are_those_of_volatility(batch: Batch, given: TrainingTask, output: Output) -> None:
    """To first order: price error over vega."""
    exact = (batch.target_iv / given.chain.sigma[..., None]).double()
    theirs = (
        decode_volatilities(output, batch.target_k, batch.T) / given.chain.sigma[..., None] - exact
    )
    ours = compute_terms(output, given).error
    small = near_money(given) & (theirs.abs() < 0.02)
    assert small.float().sum() > 50
    assert (ours - theirs)[small].abs().max() < 3e-3
    assert theirs[small].abs().max() > 1e-2


def test_what_no_quote_determines_does_not_drown_the_rest(
    given: TrainingTask, truth: Output
) -> None:
    wild = truth.slopes.clone()
    wild[0] *= 3.0
    one, all_of_them = compute_terms(truth._replace(slopes=wild), given), 3.0 * truth.slopes
    assert one.fit < 0.2 * compute_terms(truth._replace(slopes=all_of_them), given).fit
    assert compute_terms(truth._replace(slopes=all_of_them), given).fit < 6.0**2 * 8.0


def measured(output: Output, density: Callable[[Tensor], Tensor]) -> Output:
    """Replace the measure by a density of log-moneyness over ``σ√T``, normalised on the quotes."""
    chain, sight = output.chain, output.sight
    z = torch.log(chain.moneyness) / torch.exp(chain.total)[..., None]
    raw = density(z) * chain.quoted
    mass = (raw * sight.width).sum(-1, keepdim=True).clamp(min=1e-30)
    return output._replace(sight=sight._replace(measure=raw / mass))


def test_the_martingale_defect_has_a_sign(output: Output) -> None:
    up = martingale_defects(measured(output, lambda z: torch.exp(-0.5 * (z - 0.8) ** 2)))
    down = martingale_defects(measured(output, lambda z: torch.exp(-0.5 * (z + 0.8) ** 2)))
    filled = martingale_defects(measured(output, torch.ones_like)) != 0.0
    assert filled.any()
    assert (up[filled] > down[filled]).all()
    assert up.max() > 0.05
    assert down.min() < -0.05
    chain = output.chain
    nearest = (chain.moneyness - 1.0).abs() + 1e3 * ~chain.quoted
    at = torch.nn.functional.one_hot(nearest.argmin(-1), chain.u.shape[-1]).float()
    width = output.sight.width.clamp(min=1e-12)
    pinned = output.sight._replace(measure=at / width * chain.quoted)
    off = (chain.moneyness.gather(-1, nearest.argmin(-1, keepdim=True))[..., 0] - 1.0).abs()
    bound = (off * torch.exp(-chain.total))[chain.quoted.any(-1)].max()
    assert martingale_defects(output._replace(sight=pinned)).abs().max() <= bound + 1e-6


def on_two_strikes(output: Output) -> Sight:
    """Half the mass on each of the first two strikes."""
    shape = output.chain.u.shape
    measure, width = torch.zeros(shape), torch.ones(shape)
    measure[..., 0] = measure[..., 1] = 0.5
    return output.sight._replace(measure=measure, width=width)


def test_calls_that_fall_are_seen_and_rising_ones_are_not(output: Output) -> None:
    # strikes around the forward, farther or nearer by slice: convex order on demand
    L = output.chain.u.shape[1]
    total = torch.linspace(-3.3, -1.5, L).expand(output.chain.total.shape).contiguous()
    quoted = torch.zeros_like(output.chain.quoted)
    quoted[..., :2] = True
    for widths, faulty in (
        (torch.linspace(0.05, 0.4, L), False),
        (torch.linspace(0.4, 0.05, L), True),
    ):
        moneyness = torch.ones_like(output.chain.moneyness)
        moneyness[..., 0], moneyness[..., 1] = 1.0 - widths, 1.0 + widths
        chain = output.chain._replace(total=total, quoted=quoted, moneyness=moneyness)
        found = calendar_defects(output._replace(chain=chain, sight=on_two_strikes(output)))
        assert found.shape == (BAND_COUNT,)
        assert (float(found.max()) > 1e-2) is faulty
        assert float(found.min()) >= 0.0


def test_bands_keep_short_and_long_maturities_apart(output: Output) -> None:
    """A fault of short slices alone is in the low bands alone."""
    L = output.chain.u.shape[1]
    total = torch.linspace(-3.9, -0.9, L).expand(output.chain.total.shape).contiguous()
    everywhere = torch.ones_like(output.chain.quoted)
    tilted = output._replace(chain=output.chain._replace(total=total, quoted=everywhere))
    measure = torch.ones_like(output.sight.measure) / output.chain.u.shape[-1]
    sight = output.sight._replace(measure=measure, width=torch.ones_like(measure))
    moneyness = torch.ones_like(output.chain.moneyness)
    moneyness[:, 0] = 1.1
    chain = tilted.chain._replace(moneyness=moneyness)
    found = martingale_defects(tilted._replace(chain=chain, sight=sight))
    assert found[0] > 1.0
    assert found[1:].abs().max() < 1e-5


def test_a_task_survives_being_flat(given: TrainingTask) -> None:
    back = TrainingTask.from_tensors(given.to_tensors())
    assert all(
        torch.equal(a, b) for a, b in zip(back.to_tensors(), given.to_tensors(), strict=True)
    )
    part = given.select_surfaces(slice(2, 5))
    assert part.k.shape[0] == part.chain.sigma.shape[0] == 3
    assert torch.equal(part.chain.u, given.chain.u[2:5])


@pytest.fixture(scope="module")
def icnn() -> ICNNDecoder:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(5)
        return ICNNDecoder(tiny.CONFIG.width, width=12)


def test_the_decoder_of_the_paper_is_priced_as_it_prices(icnn: ICNNDecoder, output: Output) -> None:
    """At strikes shared by all maturities the running maximum is the decoder's own."""
    k = torch.linspace(-0.5, 0.4, 9).expand(*output.chain.total.shape, 9)
    with torch.no_grad():
        theirs = icnn(output.features, torch.exp(k), output.chain.total)
        ours = convex_decoder_prices.price_monotone_otm(icnn, output, k) + black.call_parity(k)
        assert torch.allclose(ours, theirs, atol=2e-6)
        plain = convex_decoder_prices.price_calls(icnn, output, k)
    assert (plain <= theirs + 2e-6).all()


def test_variance_is_replicated(icnn: ICNNDecoder, output: Output) -> None:
    """Against a law whose variance is known: Black's, in place of the potential."""

    class Gaussian(torch.nn.Module):
        def potential(self, h: Tensor, xi: Tensor) -> Tensor:
            unit = torch.exp(output.chain.total[:, -h.shape[1] :])[..., None]
            k = torch.log1p((xi * unit).clamp(min=-1.0 + 1e-7))
            return black.call(k, unit.expand_as(k)) / unit

    variance = convex_decoder_prices.log_variance(Gaussian(), output)  # type: ignore[arg-type]
    exact = torch.exp(2.0 * output.chain.total)
    short = output.chain.total < -1.2
    assert torch.allclose(variance[short], exact[short], rtol=1e-3)
    with torch.no_grad():
        shapes = convex_decoder_prices.measure_shape_defects(Gaussian(), output)  # type: ignore[arg-type]
    rising = (output.chain.total.diff(dim=1) > 0.0).all(1)
    assert shapes[rising].max() < 1e-4


@pytest.mark.parametrize("fault", ["falls", "steep", "below"])
def test_what_the_potential_leaves_open_is_seen(output: Output, fault: str) -> None:
    class Faulty(torch.nn.Module):
        def potential(self, h: Tensor, xi: Tensor) -> Tensor:
            call = (-xi).clamp(min=0.0) + 0.4 * torch.exp(-xi.abs())
            if fault == "falls":
                rank = torch.arange(h.shape[1], dtype=xi.dtype)[:, None]
                return call + 50.0 * (h.shape[1] - rank) * (rank >= 0)
            return 1.5 * call + xi * 0.0 if fault == "steep" else call - 0.5

    assert convex_decoder_prices.measure_shape_defects(Faulty(), output).max() > 1e-2  # type: ignore[arg-type]


def test_the_decoder_of_the_paper_has_an_objective(
    icnn: ICNNDecoder, given: TrainingTask, output: Output
) -> None:
    found: ObjectiveTerms = compute_terms(output, given, icnn)
    gradients = torch.autograd.grad(
        found.fit + sum(d.sum() for d in found.defects.values()), list(icnn.parameters())
    )
    assert all(torch.isfinite(g).all() for g in gradients)
    assert any((g != 0.0).any() for g in gradients)
    with torch.no_grad():
        plain = compute_terms(output, given).defects["no_arbitrage"]
    assert (found.defects["no_arbitrage"] >= plain - 1e-6).all()


def test_what_is_no_target_has_no_gradient_however_little_it_is_worth(
    icnn: ICNNDecoder, given: TrainingTask, output: Output
) -> None:
    off = given.weight == 0.0
    assert off.any()
    worthless = given._replace(log_price=torch.where(off, -690.0, given.log_price))
    parameters = list(icnn.parameters())
    plain, far = (
        torch.autograd.grad(compute_terms(output, t, icnn).fit, parameters, allow_unused=True)
        for t in (given, worthless)
    )
    for one, other in zip(plain, far, strict=True):
        assert one is not None
        assert other is not None
        torch.testing.assert_close(other, one)
