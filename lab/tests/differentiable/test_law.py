"""The law of the second design: prices, defects, decoder, and how quotes are read through it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor

from arbiter.conventions import Array
from arbiter.operators.law import lipschitz
from arbiter.operators.law.config import LawConfig
from arbiter.pricing import black
from arbiter_lab.differentiable.operators.law import green_scan
from arbiter_lab.differentiable.operators.law.network import (
    LawNetwork,
    LawTask,
    Variant,
    look_through,
)
from arbiter_lab.differentiable.operators.law.network import make_task as make_law_task
from arbiter_lab.differentiable.operators.law.proposal import (
    Law,
    decode,
    knots,
    law_density,
    martingale_defect,
    order_defect,
    price_law,
    prior_law,
)
from arbiter_lab.differentiable.operators.law.reading import Heads, read
from arbiter_lab.differentiable.operators.prior.gaussian_process import at_heads, known
from arbiter_lab.differentiable.operators.prior.reference_volatility import scaled
from arbiter_lab.differentiable.operators.quote_tensors import Ragged
from arbiter_lab.differentiable.pricing import black as torch_black
from arbiter_lab.differentiable.pricing.transport import Transport
from counts import count

SMALL = LawConfig(heads=12, width=16, state=8, rank=2, context=12, looks=2)
LEGENDRE = np.polynomial.legendre.leggauss(40)


def random_law(rng: np.random.Generator, maturities: int = 3) -> tuple[Law, Tensor]:
    """Rough laws that miss the forward and the order."""
    n = len(knots())
    steps = rng.normal(0.0, 0.15, (1, maturities, n)).cumsum(-1)
    total = np.log(rng.uniform(0.03, 0.6, (1, maturities)))
    shift = rng.normal(0.0, 0.05, (1, maturities)) * np.exp(total)
    parts = (torch.from_numpy(x) for x in (steps - steps.mean(-1, keepdims=True), shift, total))
    log_ratio, a, level = parts
    return Law(log_ratio, a), level


def integrate_payoff(law: Law, total: Tensor, at: float, k: float) -> float:
    """``∫ φ w dκ`` of an out-of-the-money option over the density, segment by segment in x."""
    slopes = law.slopes(total)
    transport = Transport(knots(), slopes)
    x = np.concatenate([np.linspace(-14.0, -5.5, 60), np.linspace(-5.4, 14.0, 800)])
    points = transport.at_coordinate(torch.from_numpy(np.unique(np.r_[x, knots().numpy()])))
    log_mean = law.shift + transport.log_mean
    ends = (points.k + log_mean[..., None])[0, int(at)].numpy()
    ends = np.unique(np.r_[ends, k])
    ends = ends[ends >= k] if k >= 0.0 else ends[ends <= k]
    nodes, weights = LEGENDRE
    half, middle = 0.5 * np.diff(ends), 0.5 * (ends[1:] + ends[:-1])
    places = (middle[:, None] + half[:, None] * nodes).ravel()
    grid = torch.from_numpy(np.broadcast_to(places, (*total.shape, places.size)).copy())
    w = law_density(law, total, grid)[0, int(at)].numpy()
    payoff = np.abs(np.exp(places) - np.exp(k)) * np.exp(places)  # dκ = κ dk
    return float(((w * payoff).reshape(-1, nodes.size) @ weights) @ half)


@pytest.mark.parametrize("seed", range(count(full=20, reduced=4)))
def test_prices_are_integrals_over_the_density(seed: int) -> None:
    law, total = random_law(np.random.default_rng(seed))
    for at in range(total.shape[1]):
        for deviations in (-2.0, -0.4, 0.0, 0.7, 1.5):
            k = deviations * float(torch.exp(total[0, at]))
            price = float(
                price_law(law, total, torch.full((1, 3, 1), k, dtype=torch.float64)).price[0, at, 0]
            )
            found = integrate_payoff(law, total, at, k)
            assert abs(price - found) < 1e-10
            moved = Law(law.log_ratio, law.shift + 1e-6)  # the control: another law's prices
            assert abs(integrate_payoff(moved, total, at, k) - price) > 1e-10


def test_defects_are_zero_for_the_prior_and_found_where_planted() -> None:
    rng = np.random.default_rng(3)
    law, total = random_law(rng)
    own = prior_law(law.log_ratio, total)
    log_mean = price_law(own, total, torch.zeros(1, 3, 1).double()).log_mean
    assert martingale_defect(log_mean, total).abs().max() < 1e-12
    moved = martingale_defect(log_mean + 1e-3 * torch.exp(total), total)
    np.testing.assert_allclose(moved, 1e-3, rtol=1e-3)
    rising = Law(torch.zeros_like(law.log_ratio), law.shift)
    ordered = total.sort().values
    assert order_defect(rising, ordered).max() == 0.0
    np.testing.assert_allclose(
        order_defect(rising, ordered.flip(1)).mean(-1), -torch.diff(ordered.flip(1)), atol=1e-12
    )


def test_the_decoder_leaves_what_is_in_order_and_moves_the_rest_little() -> None:
    rng = np.random.default_rng(5)
    law, total = random_law(rng, maturities=5)
    seen = torch.ones_like(total, dtype=torch.bool)
    slopes = decode(law, total, seen)
    assert bool((torch.diff(slopes, dim=1) >= 0.0).all())
    assert bool((torch.diff(law.slopes(total), dim=1) < 0.0).any())  # the control: it had work
    again = Law(torch.log(slopes) - total[..., None], law.shift)
    np.testing.assert_allclose(decode(again, total, seen), slopes, rtol=1e-12)
    nudge = 1e-3 * torch.from_numpy(rng.uniform(-1.0, 1.0, law.log_ratio.shape))
    near = decode(Law(law.log_ratio + nudge, law.shift), total, seen)
    assert torch.log(near / slopes).abs().max() <= 1e-3 * (1.0 + 1e-9)


def test_heads_weigh_cells_by_their_mass() -> None:
    heads = Heads(9, (2.0, 2.0)).double()
    x = torch.linspace(-8.0, 8.0, 801).double().expand(1, 1, -1)
    all_quoted = torch.ones_like(x, dtype=torch.bool)
    mass = heads.masses(x, all_quoted)
    np.testing.assert_allclose(mass.sum(-2).detach(), 1.0, atol=1e-12)
    mean = read(mass, x, 0.0)[0, 0].detach()
    np.testing.assert_allclose(mean, heads.place.detach(), atol=1e-6)
    some = all_quoted & (torch.arange(801) < 401)  # quotes below the median alone
    below = heads.masses(x, some).sum(-2)[0, 0].detach()
    assert below[0] > 0.999
    assert abs(below[4] - 0.5) < 1e-6
    assert below[-1] < 1e-3  # cut at the end quote: no head hears what is not quoted
    assert (read(heads.masses(x, some), torch.ones_like(x), 0.1)[0, 0, -1] < 0.02).all()


def make_task(seed: int, scale: float = 1.0) -> tuple[LawTask, Array]:
    """Quotes of a skewed smile at five maturities, with volatilities times ``scale``."""
    rng = np.random.default_rng(seed)
    T = np.array([0.05, 0.1, 0.25, 0.5, 1.0]) / scale**2
    k = np.sort(rng.uniform(-2.5, 1.5, (5, 14)), axis=1) * 0.2 * scale * np.sqrt(T)[:, None]
    iv = scale * (0.2 - 0.05 * k / (0.2 * scale * np.sqrt(T)[:, None]))
    iv *= 1.0 + 0.01 * rng.uniform(-1.0, 1.0, iv.shape)
    tensors = [torch.from_numpy(x)[None] for x in (T, k, iv, 0.01 * iv)]
    quoted = torch.ones(1, 5, 14, dtype=torch.bool)
    chain = scaled(Ragged._make([*tensors, quoted]))
    mid = torch_black.otm(tensors[1], tensors[2] * torch.sqrt(tensors[0])[..., None])
    prior = at_heads(known(chain), chain, torch.from_numpy(SMALL.places()))
    return make_law_task(chain, tensors[1], mid, prior, SMALL.largest_misfit), iv


def seen_again(task: LawTask) -> LawTask:
    """A task whose quotes were changed, seen through its prior's law anew."""
    law = Law(task.prior.start, task.shift)
    return task._replace(first=look_through(law, task, SMALL.largest_misfit))


def make_network(
    config: LawConfig = SMALL, loud: float = 1.0, variant: Variant | None = None
) -> LawNetwork:
    torch.manual_seed(7)
    network = LawNetwork(config, variant).double()
    for look in network.stages():
        look.last.weight.data *= loud
    return network


def test_an_untrained_network_says_about_the_prior() -> None:
    task, iv = make_task(0)
    law = make_network()(task).law
    slopes = decode(law, task.total, task.seen)
    price = Transport(knots(), slopes).otm(task.k)
    found = black.implied_total_volatility(price.detach().numpy(), task.k.numpy()).volatility
    assert np.abs(found / np.exp(task.total.numpy())[..., None]).max() < 3.0
    mid = black.implied_total_volatility(task.mid.numpy(), task.k.numpy()).volatility
    assert np.sqrt(np.mean((found / mid - 1.0) ** 2)) < 0.02
    assert iv.shape == (5, 14)


def test_volatility_times_and_maturity_over_its_square_change_nothing() -> None:
    one, two = (make_network(loud=20.0)(make_task(1, scale)[0]).law for scale in (1.0, 2.0))
    np.testing.assert_allclose(one.log_ratio.detach(), two.log_ratio.detach(), atol=1e-9)
    np.testing.assert_allclose(one.shift.detach(), two.shift.detach(), atol=1e-9)
    other = make_network(loud=20.0)(make_task(2)[0]).law
    assert (one.log_ratio - other.log_ratio).abs().max() > 1e-3  # the control: other quotes


@pytest.mark.parametrize(
    ("config", "variant"),
    [
        (SMALL, Variant(flat=True)),
        (SMALL, Variant(scans=1)),
        (SMALL, Variant(scans=0)),
        (SMALL, Variant(guard=False)),
        (replace(SMALL, looks=1), Variant()),
    ],
)
def test_ablations_differ(config: LawConfig, variant: Variant) -> None:
    task, _ = make_task(4)
    whole, less = (
        make_network(*parts)(task).law for parts in ((SMALL, 20.0), (config, 20.0, variant))
    )
    assert (whole.log_ratio - less.log_ratio).abs().max() > 1e-6


def test_gradients_reach_every_weight_and_are_finite() -> None:
    task, _ = make_task(5)
    network = make_network()
    found = price_law(network(task).law, task.total, task.k)
    loss = (found.price / task.mid - 1.0).square().mean() + found.log_mean.square().mean()
    loss.backward()
    for name, weight in network.named_parameters():
        assert weight.grad is not None, name
        assert bool(torch.isfinite(weight.grad).all()), name


def test_unquoted_maturities_follow_and_padding_says_nothing() -> None:
    task, _ = make_task(6)
    padded = task._replace(quoted=task.quoted & (torch.arange(14) < 10))
    apart = padded._replace(
        k=torch.where(padded.quoted, task.k, task.k + 5.0),
        mid=torch.where(padded.quoted, task.mid, 0.3),
    )
    one, two = (
        make_network(loud=20.0)(seen_again(each)).law.log_ratio.detach() for each in (padded, apart)
    )
    np.testing.assert_allclose(one, two, atol=1e-12)
    heard = seen_again(
        padded._replace(mid=torch.where(torch.arange(14) == 3, 1.02 * task.mid, task.mid))
    )
    assert (make_network(loud=20.0)(heard).law.log_ratio.detach() - one).abs().max() > 1e-6


def loud_scan(seed: int) -> green_scan.GreenScan:
    """A scan with weights far beyond those of training."""
    torch.manual_seed(seed)
    made = green_scan.GreenScan(6, 5, 2, 4, 10.0).double()
    for weight in (made.raw, made.U, made.select.weight, made.select.bias):
        weight.data = 3.0 * torch.randn_like(weight)
    return made


def green_sums(made: green_scan.GreenScan, gap: Tensor, shrunk: bool = True) -> tuple[float, float]:
    """The largest Green sum of a scan over maturities, and the norm of its input map."""
    L, d = gap.numel(), made.enter.weight.shape[1]
    one = torch.eye(d, dtype=torch.float64)[:, None].expand(d, L, d)
    context = torch.randn(1, L, 4, dtype=torch.float64).expand(d, L, 4)
    seen = torch.ones(d, L, dtype=torch.bool)
    step, drive = made.drive(green_scan.Path(one, gap.expand(d, L), context, seen))
    inputs = drive.permute(1, 2, 0)  # (L, m, d)
    if not shrunk:
        inputs = inputs / step[0, :, None, None]
    carry = torch.linalg.inv(torch.eye(5) - step[0, :, None, None] * made.dense())
    largest = 0.0
    for last in range(L):
        product, found = torch.eye(5, dtype=torch.float64), 0.0
        for s in range(last, -1, -1):
            found += float(torch.linalg.matrix_norm(product @ inputs[s], 2))
            product = product @ carry[s]
        largest = max(largest, found)
    return largest, float(torch.linalg.matrix_norm(made.enter.weight, 2))


@pytest.mark.parametrize("seed", range(count(full=20, reduced=3)))
@torch.no_grad()
def test_the_green_sum_is_at_most_the_norm_of_the_input_map(seed: int) -> None:
    made = loud_scan(seed)
    for longest in (0.01, 0.3, 5.0):
        gap = longest * torch.rand(1, 40, dtype=torch.float64)
        found, bound = green_sums(made, gap)
        assert 0.0 < found <= bound
    # the control: inputs that do not shrink with the step
    found, bound = green_sums(made, torch.full((1, 40), 0.01).double(), shrunk=False)
    assert found > bound


@pytest.mark.parametrize("seed", range(count(full=10, reduced=3)))
@torch.no_grad()
def test_no_pair_of_misfits_exceeds_the_constant(seed: int) -> None:
    config = replace(SMALL, looks=1)
    network = make_network(config, loud=20.0)
    (look,) = network.stages()
    rng = np.random.default_rng(seed)
    look.direct.weight.data = torch.from_numpy(rng.normal(0.0, 0.1, look.direct.weight.shape))
    task, _ = make_task(seed)

    def largest_gain(move: Tensor) -> float:
        moved = task._replace(first=task.first._replace(off=task.first.off + move))
        both = (network(each).law.log_ratio for each in (task, moved))
        one, two = both
        return float((two - one).abs().max() / move.abs().max())

    def bound() -> float:
        weights = {name: weight.numpy() for name, weight in network.state_dict().items()}
        found = lipschitz.constant(weights, config)
        assert found is not None
        return found

    signs = (rng.choice([-1.0, 1.0], task.k.shape) for _ in range(30))
    gains = [largest_gain(size * torch.from_numpy(sign)) for sign in signs for size in (1e-4, 0.1)]
    assert 0.0 < max(gains) < bound()
    # the control: without the state, and all heads one way, a third of the number is exceeded
    look.last.weight.zero_()
    look.direct.weight.abs_()
    assert bound() / 3.0 < largest_gain(torch.full_like(task.k, 1e-4)) < bound()
