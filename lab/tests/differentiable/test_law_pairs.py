"""The law network of the library and its torch version in the lab are one function, part by part.

Prior and chains are the same on both sides: pairs of their own keep these equal. The library's maps
are in single precision, the lab's in double here. Chains are wild: on Heston's the whole networks
agree to 3e-6.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from torch import nn

from arbiter.operators.law import green_scan, network, proposal, reading
from arbiter.operators.law.config import MAX_SIZE, MIN_NOISE, RESIDUAL_GAIN, LawConfig
from arbiter.operators.law.weights import describe_weights, select_weights
from arbiter.operators.prior.gaussian_process import kriged
from arbiter.operators.prior.reference_volatility import Scaled
from arbiter.operators.slope_head import KNOTS
from arbiter_lab.differentiable.operators.checkpoint import to_arrays
from arbiter_lab.differentiable.operators.law import green_scan as torch_scan
from arbiter_lab.differentiable.operators.law import network as torch_network
from arbiter_lab.differentiable.operators.law import proposal as torch_proposal
from arbiter_lab.differentiable.operators.law import reading as torch_reading
from arbiter_lab.differentiable.operators.law.green_scan import Path
from arbiter_lab.differentiable.operators.prior.gaussian_process import Kriged as TorchKriged
from arbiter_lab.differentiable.operators.quote_tensors import Ragged
from arbiter_lab.differentiable.pricing import black as torch_black
from pairs import Pair, Sides, check_pair, scaled_sides, sparse_chain

SIZES: dict[str, Any] = {"heads": 12, "width": 16, "state": 8, "rank": 2, "context": 12}


class Task(NamedTuple):
    """One task on both sides.

    Attributes:
        ours: Of the library.
        theirs: Of the lab.
        quotes: The quotes.
    """

    ours: network.LawTask
    theirs: torch_network.LawTask
    quotes: Ragged


def make_task(seed: int, config: LawConfig) -> Task:
    quotes = sparse_chain(seed)
    ours, theirs = scaled_sides(seed)
    prior = kriged(ours, config.places())
    mid = torch_black.otm(quotes.k, quotes.iv * torch.sqrt(quotes.T)[..., None])
    same = TorchKriged(*(torch.from_numpy(part) for part in prior))
    return Task(
        network.LawTask.from_chain(ours, prior),
        torch_network.make_task(theirs, quotes.k, mid, same, config.largest_misfit),
        quotes,
    )


def loud(made: nn.Module, seed: int) -> nn.Module:
    """The module with weights that are random and not small."""
    g = torch.Generator().manual_seed(seed)
    for parameter in made.parameters():
        noise = torch.randn(parameter.shape, generator=g)
        parameter.requires_grad_(False).add_(0.1 * noise)
    return made


def draw_network(seed: int, looks: int) -> torch_network.LawNetwork:
    torch.manual_seed(seed)
    made = torch_network.LawNetwork(LawConfig(**SIZES, looks=looks))
    loud(made, seed)
    return made


def draw_law(seed: int, task: Task) -> tuple[proposal.Law, torch_proposal.Law]:
    """Laws near the prior's that miss the forward and the order."""
    rng = np.random.default_rng(seed)
    start, total = task.ours.prior.start, task.ours.chain.total
    log_ratio = start + 0.1 * rng.normal(size=start.shape).cumsum(-1) / np.sqrt(len(KNOTS))
    shift = 0.05 * np.exp(total) * rng.normal(size=total.shape)
    given = torch.from_numpy(log_ratio), torch.from_numpy(shift)
    return proposal.Law(log_ratio, shift), torch_proposal.Law(*given)


def at_quotes(values: torch.Tensor, quotes: Ragged) -> torch.Tensor:
    return values[quotes.quoted]


def readings(seed: int, shift: float) -> Sides:
    """Percentiles as wild as chains have them, and misfits of any size."""
    chain, _ = scaled_sides(seed)
    quotes, rng = sparse_chain(seed), np.random.default_rng(seed)
    heads = torch_reading.Heads(12, (4.5, 3.3))
    loud(heads, seed)
    unread, off = 0.1, rng.normal(size=chain.u.size)
    relative = rng.uniform(0.001, 0.1, chain.u.size)
    made = reading.Heads(to_arrays(heads.state_dict()), unread)
    found = made.read(chain.zeta + shift, off, relative, chain.quotes.ends)
    x, values, loose = (torch.zeros(quotes.k.shape, dtype=torch.float64) for _ in range(3))
    for padded, flat in ((x, chain.zeta), (values, off), (loose, relative)):
        padded[quotes.quoted] = torch.from_numpy(flat)
    mass = heads.double().masses(x, quotes.quoted)
    per = 1.0 / (mass.sum(-2) + unread)
    noise = torch.sqrt((mass**2 * loose[..., None] ** 2).sum(-2) + MIN_NOISE**2) * per
    wanted = (mass.sum(-2), noise, torch_reading.read(mass, values, unread))
    return list(found), [part.flatten(0, 1) for part in wanted]


def misfits(seed: int, shift: float) -> Sides:
    """Also where a quote is too cheap to say anything, and where a misfit is cut."""
    rng = np.random.default_rng(seed)
    mid, price = rng.uniform(0.0, 0.1, (2, 60))
    k, x = rng.normal(0.0, (0.3, 3.0), (60, 2)).T
    total, vega = rng.uniform(-4.0, 0.0, 60), 10.0 ** rng.uniform(-14.0, 0.0, 60)
    mids, prices, vegas, strikes, places, wide = (
        torch.from_numpy(part)[:, None] for part in (mid, price, vega, k, x, total)
    )
    all_quoted = torch.ones(60, 1, dtype=torch.bool)
    return (
        [
            reading.misfit(mid + shift, price, vega, 1.0),
            reading.law_vega(k, x + shift, total),
        ],
        [
            torch_reading.misfit(mids, prices, vegas, all_quoted, 1.0)[:, 0],
            torch_reading.law_vega(strikes, places, wide[:, 0])[:, 0],
        ],
    )


def scans(seed: int, shift: float) -> Sides:
    torch.manual_seed(seed)
    made = [torch_scan.GreenScan(9, 7, 3, 5, 4.0) for _ in range(2)]
    for number, each in enumerate(made):
        loud(each, 2 * seed + number)
    ours, theirs = scaled_sides(seed)
    x, context = torch.randn(3, 5, 9).double(), torch.randn(3, 5, 5).double()
    parts = [to_arrays(each.state_dict()) for each in made]
    carrier = green_scan.GreenScans(parts, np.float64)
    choice = context.numpy() @ carrier.select.T + carrier.select_bias
    walk = green_scan.Walk(np.stack([ours.gap, ours.ahead]), ours.quotes.listed)
    states = carrier((1.0 + shift) * x.numpy(), np.tanh(choice), walk).reshape(3, 5, 2, 7)
    path = Path(x, theirs.gap, context, theirs.quoted.any(-1))
    wanted = torch_scan.scan([each.double() for each in made], path, theirs.ahead)
    return [states[:, :, way] @ carrier.vectors[way].T for way in range(2)], list(wanted)


def walked(chain: Scaled) -> green_scan.Walk:
    gaps = np.stack([chain.gap, chain.ahead]).astype(np.float32)
    return green_scan.Walk(gaps, chain.quotes.listed)


def draw_reading(seed: int, slices: int) -> reading.Reading:
    rng = np.random.default_rng(seed)
    mass, noise = rng.uniform(0.0, 1.0, (slices, 12)), rng.uniform(1e-3, 0.1, (slices, 12))
    parts = (mass, noise, 0.1 * rng.normal(size=(slices, 12)))
    return reading.Reading(*(part.astype(np.float32) for part in parts))


def geometries(seed: int, shift: float) -> Sides:
    trained = draw_network(seed, 1)
    task = make_task(seed, trained.config)
    weights = select_weights(to_arrays(trained.state_dict()), "geometry")
    made = network.Geometry(weights, trained.config)
    chain = task.ours.chain
    read = draw_reading(seed, chain.total.size)
    found = made(task.ours, read._replace(mass=read.mass + np.float32(shift)), walked(chain))
    told = [torch.from_numpy(part).double().view(*chain.total.shape, -1) for part in read[:2]]
    return [found], [trained.double().geometry(task.theirs, *told)]


def looks(seed: int, shift: float) -> Sides:
    """One look at what is read of a law that the prior's has become."""
    trained = draw_network(seed, 1)
    config = trained.config
    task, rng = make_task(seed, config), np.random.default_rng(seed)
    law, same = draw_law(seed, task)
    weights = select_weights(to_arrays(trained.state_dict()), "looks.0")
    chain = task.ours.chain
    read = draw_reading(seed, chain.total.size)
    context = rng.normal(size=(*chain.total.shape, config.context)).astype(np.float32)
    share = rng.uniform(size=law.log_ratio.shape)
    moved = read._replace(said=read.said + np.float32(shift))
    streams = (context, walked(chain), share)
    found = network.Look(weights, config)(law, task.ours, moved, streams)
    look, start = trained.double().stages()[0], task.theirs.prior.start
    said = torch.from_numpy(read.said).double().view(*chain.total.shape, -1)
    written = RESIDUAL_GAIN * (same.log_ratio - start)
    view = torch.cat([RESIDUAL_GAIN * said, written, start.clamp(-MAX_SIZE, MAX_SIZE)], -1)
    given = torch.from_numpy(context).double()
    v = look.state(task.theirs, given, view)
    wanted = look.write(same, task.theirs, (given, view, v), torch.from_numpy(share))
    return list(found), list(wanted)


def networks(count_of_looks: int) -> Callable[[int, float], Sides]:
    """Every law of the pass; the control is off in what the geometry alone writes."""

    def compute(seed: int, shift: float) -> Sides:
        trained = draw_network(seed, count_of_looks)
        task = make_task(seed, trained.config)
        weights = to_arrays(trained.state_dict())
        weights["looks.0.base.bias"] = weights["looks.0.base.bias"] + np.float32(100.0 * shift)
        found = network.LawNetwork(weights, trained.config)(task.ours)
        wanted = trained.double()(task.theirs)
        sides = zip(found.laws, wanted.laws, strict=True)
        ours, theirs = zip(*((a, b) for a, b in sides), strict=True)
        return [part for law in ours for part in law], [part for law in theirs for part in law]

    return compute


def priced(seed: int, shift: float) -> Sides:
    task = make_task(seed, LawConfig(**SIZES))
    law, same = draw_law(seed, task)
    quotes, total = task.ours.chain.quotes, task.ours.chain.total
    level = task.theirs.total.double()
    moved = law._replace(shift=law.shift + shift)
    slices = proposal.integrate_laws(law.log_ratio, total)
    found = proposal.price_law(moved, slices, quotes.row, quotes.k)
    wanted = torch_proposal.price_law(same, level, task.quotes.k)
    start = law.log_ratio + shift
    begun = proposal.prior_law(start, proposal.integrate_laws(start, total))
    first = torch_proposal.prior_law(same.log_ratio, level)
    return (
        [*found, proposal.martingale_defect(found.log_mean, total), *begun],
        [
            *(at_quotes(part, task.quotes) for part in wanted[:2]),
            wanted.log_mean,
            torch_proposal.martingale_defect(wanted.log_mean, level),
            *first,
        ],
    )


def decoded(seed: int, shift: float) -> Sides:
    task = make_task(seed, LawConfig(**SIZES))
    law, same = draw_law(seed, task)
    listed, total = task.ours.chain.quotes.listed, task.ours.chain.total
    tilted = law._replace(log_ratio=law.log_ratio + shift * np.arange(len(KNOTS)))
    found = proposal.decode(tilted, total, listed)
    wanted = torch_proposal.decode(same, task.theirs.total.double(), torch.from_numpy(listed))
    return [np.log(found)], [torch.log(wanted)]


PAIRS = {
    "reading.Heads": Pair(readings, 1e-5),
    "reading.misfit and law_vega": Pair(misfits, 1e-12),
    "green_scan": Pair(scans, 1e-9),
    "network.Geometry": Pair(geometries, 1e-5, 1e-2),
    "network.Look": Pair(looks, 2e-6, 1e-2),
    "network.LawNetwork, one look": Pair(networks(1), 2e-4, 1e-2),
    "network.LawNetwork, two looks": Pair(networks(2), 1e-3, 1e-2),
    "proposal.price_law": Pair(priced, 1e-8),
    "proposal.decode": Pair(decoded, 1e-9),
}


@pytest.mark.parametrize("name", PAIRS)
def test_both_sides_of_a_pair_are_one_function(name: str) -> None:
    check_pair(PAIRS[name])


@pytest.mark.parametrize("looks", [1, 2])
def test_weights_are_described_as_the_network_has_them(looks: int) -> None:
    made = torch_network.LawNetwork(LawConfig(**SIZES, looks=looks))
    wanted = {name: (w.shape, w.dtype) for name, w in to_arrays(made.state_dict()).items()}
    known = describe_weights(made.config)
    assert {name: (w.shape, w.dtype) for name, w in known.items()} == wanted
    other = describe_weights(LawConfig(**{**SIZES, "context": 13}, looks=looks))
    assert {name: w.shape for name, w in other.items()} != {n: w.shape for n, w in known.items()}
