"""The operator of the library and its torch version in the lab are one function, part by part.

A pair computes the same numbers on both sides from one seed. Its first side may be given inputs
that are a little off: the control, which has to be told apart.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from arbiter.operators import slope_head
from arbiter.operators.network import (
    geometry_stream,
    green_scan,
    lipschitz,
    maturity_pooling,
    measure_gate,
    representer,
)
from arbiter.operators.network import network as inference
from arbiter.operators.network.config import Config
from arbiter.operators.network.weights import describe_weights, select_weights
from arbiter.operators.pretrained import Operator
from arbiter.operators.prior import (
    bid_ask_likelihood,
    gaussian_process,
    reference_volatility,
    shrinkage,
    slice_offsets,
    smile_to_slopes,
    star_order_projection,
    transport_prices,
)
from arbiter_lab.differentiable.operators import slope_head as torch_head
from arbiter_lab.differentiable.operators.checkpoint import to_arrays
from arbiter_lab.differentiable.operators.network import geometry_stream as torch_stream
from arbiter_lab.differentiable.operators.network import green_scan as torch_scan
from arbiter_lab.differentiable.operators.network import lipschitz as torch_lipschitz
from arbiter_lab.differentiable.operators.network import maturity_pooling as torch_pooling
from arbiter_lab.differentiable.operators.network import measure_gate as torch_gate
from arbiter_lab.differentiable.operators.network import representer as torch_representer
from arbiter_lab.differentiable.operators.network.network import Network
from arbiter_lab.differentiable.operators.pretrained import build_network, make_operator
from arbiter_lab.differentiable.operators.prior import bid_ask_likelihood as torch_likelihood
from arbiter_lab.differentiable.operators.prior import gaussian_process as torch_process
from arbiter_lab.differentiable.operators.prior import reference_volatility as torch_reference
from arbiter_lab.differentiable.operators.prior import shrinkage as torch_shrinkage
from arbiter_lab.differentiable.operators.prior import smile_to_slopes as torch_slopes
from arbiter_lab.differentiable.operators.prior import star_order_projection as torch_projection
from arbiter_lab.differentiable.operators.prior import transport_prices as torch_prices
from arbiter_lab.differentiable.operators.quote_tensors import Ragged
from counts import count
from ragged_chains import random_chain, to_rows

Numbers = NDArray[Any]
Sides = tuple[list[Any], list[Any]]

PLACE = measure_gate.places(21, (3.7, 2.4)).astype(np.float64)
SIZES: dict[str, Any] = {"heads": 6, "width": 12, "state": 7, "rank": 3, "context": 10}


class Pair(NamedTuple):
    """A function on both sides.

    Attributes:
        compute: From a seed and a shift of the first side's inputs to both sides' numbers.
        error: Up to which they are equal, absolutely; beside it 1e-9 of a number.
        shift: Of the control.
    """

    compute: Callable[[int, float], Sides]
    error: float
    shift: float = 1e-3


def sparse_chain(seed: int) -> Ragged:
    """Three chains: one with a lone quote in a slice, others with slices without any."""
    quotes = random_chain(seed, chains=3)
    quotes.quoted[1, 2:] = False
    quotes.quoted[2, 0] = False
    quotes.quoted[0, 1, 1:] = False
    return quotes


def scaled_sides(seed: int, shift: float = 0.0, calm: float = 1.0) -> tuple[Any, Any]:
    quotes = sparse_chain(seed)
    theirs = torch_reference.scaled(quotes)
    ours = reference_volatility.scaled(to_rows(quotes))
    return (
        ours._replace(u=calm * ours.u + shift),
        theirs._replace(u=calm * theirs.u),
    )


def levels(seed: int, shift: float) -> Sides:
    quotes = sparse_chain(seed)
    theirs = torch_reference.scaled(quotes)
    ours = reference_volatility.scaled(to_rows(quotes._replace(iv=(1.0 + shift) * quotes.iv)))
    places = ("zeta", "u", "noise", "spacing", "width")
    slices = ("sigma", "total", "gap", "ahead")
    return (
        [getattr(ours, name) for name in (*slices, *places)],
        [getattr(theirs, name) for name in slices]
        + [getattr(theirs, name)[theirs.quoted] for name in places],
    )


def splines(seed: int, shift: float) -> Sides:
    low, high = gaussian_process.ZETA
    x = np.append(np.random.default_rng(seed).uniform(low - 1.0, high + 1.0, 200), [low, high])
    strikes = gaussian_process.STRIKES
    left, basis = gaussian_process.splines(x + shift, gaussian_process.ZETA, strikes)
    dense = np.zeros((x.size, strikes))
    dense[np.arange(x.size)[:, None], left[:, None] + np.arange(4)] = basis
    return [dense], [torch_process.splines(torch.from_numpy(x), gaussian_process.ZETA, strikes)]


def laws(seed: int, shift: float) -> Sides:
    """Also where quotes lie so far from what the others say that only tails tell laws apart."""
    rng = np.random.default_rng(seed)
    half, variance = rng.uniform(0.002, 0.05, 40), rng.uniform(1e-6, 1e-3, 40)
    size = np.sqrt(variance) + rng.choice([0.05, 0.3, 1.0]) * half
    far = rng.choice([0.1, 3.0, 30.0])
    u = rng.normal(0.0, size) + far * half * (rng.uniform(size=40) < 0.1)
    given = (torch.from_numpy(x)[None] for x in (u, variance, half, np.ones(40)))
    ours = bid_ask_likelihood.average_error_laws(u, variance + shift, half)
    return [np.array(ours)], [torch_likelihood.average_error_laws(*given)[0]]


def truncations(seed: int, shift: float) -> Sides:
    rng = np.random.default_rng(seed)
    mean, low = rng.normal(0.0, 3.0, 30), rng.normal(0.0, 3.0, 30)
    variance, high = rng.uniform(1e-4, 2.0, 30), low + rng.uniform(1e-4, 3.0, 30)
    theirs = torch_likelihood.truncated(*map(torch.from_numpy, (mean, variance, low, high)))
    rows = zip(mean, variance, low + shift, high + shift, strict=True)
    ours = np.array([bid_ask_likelihood.truncated(*row) for row in rows])
    return [ours], [torch.stack(theirs, -1)]


def kriging(calm: float) -> Callable[[int, float], Sides]:
    def compute(seed: int, shift: float) -> Sides:
        ours, theirs = scaled_sides(seed, shift, calm)
        return (
            list(gaussian_process.kriged(ours, PLACE)[0]),
            list(torch_process.kriged(theirs, torch.from_numpy(PLACE))),
        )

    return compute


def draw_smiles(seed: int, wild: float) -> transport_prices.Smile:
    """Skewed smiles of three chains; of the first two some slices are not seen."""
    rng = np.random.default_rng(seed)
    tilt = rng.normal(0.0, 0.15 * wild, (3, 6, 1)) * PLACE
    bend = rng.uniform(0.0, 0.08 * wild, (3, 6, 1)) * PLACE**2
    u = tilt + bend + rng.normal(0.0, 0.02 * wild, (3, 6, 1))
    doubt = rng.uniform(-6.0, -3.0, (3, 6, PLACE.size))
    total = np.sort(rng.uniform(-4.0, -0.5, (3, 6)), 1)
    seen = np.ones((3, 6), dtype=bool)
    seen[0, 1] = seen[1, 0] = seen[1, 5] = False
    return transport_prices.Smile(u, doubt, PLACE, total, seen)


def in_torch(smile: transport_prices.Smile) -> torch_prices.Smile:
    return torch_prices.Smile(*(torch.from_numpy(part) for part in smile))


def first_slopes(seed: int, shift: float) -> Sides:
    smile = draw_smiles(seed, 1.0)
    u = np.clip(smile.u, -2.0, 2.0).reshape(18, -1)
    places = smile_to_slopes.build_places(tuple(PLACE.tolist()))
    level = np.exp(smile.total.ravel())
    theirs = in_torch(smile)
    flat, total = torch.from_numpy(u), theirs.total.flatten()
    return (
        [
            smile_to_slopes.coordinates(u + shift, places, level),
            smile_to_slopes.log_slopes(u + shift, places, level),
            smile_to_slopes.integrals(PLACE + shift),
        ],
        [
            torch_slopes.coordinates(flat, theirs.place, total),
            torch_slopes.log_slopes(flat, theirs.place, total),
            torch_slopes.integrals(theirs.place, torch_slopes.knots(flat.device)),
        ],
    )


def priced_smiles(seed: int, shift: float) -> Sides:
    smile = draw_smiles(seed, 1.0)
    ours = transport_prices.price_smile(smile._replace(u=smile.u + shift))
    theirs = torch_prices.price_smile(in_torch(smile))
    slices = (ours.log_price, ours.elasticity, ours.says, 1e-6 * ours.trust)
    priced = [theirs.log_price, theirs.elasticity, theirs.says, 1e-6 * theirs.trust]
    return [part.reshape(18, -1) for part in slices], priced


def transports(wild: float) -> Callable[[int, float], Sides]:
    """Calm smiles need one round, wild ones more, which make more of any rounding.

    A wild smile says next to nothing of its tails: log-slopes count for a hundredth.
    """

    def compute(seed: int, shift: float) -> Sides:
        smile = draw_smiles(seed, wild)
        ours = transport_prices.price_smile(smile._replace(u=smile.u + shift * PLACE))
        g, miss = star_order_projection.transport(ours)
        slopes, short = torch_projection.transport(in_torch(smile))
        return [miss, 0.01 * g], [short, 0.01 * slopes]

    return compute


def misses(seed: int, shift: float) -> Sides:
    smile = draw_smiles(seed, 1.0)
    g, _ = torch_projection.transport(in_torch(smile))
    ours = transport_prices.price_smile(smile)
    found = star_order_projection.missed(g.numpy() + 0.1 + shift, ours)
    return list(found), list(torch_projection.missed(g + 0.1, in_torch(smile)))


def isotonic(seed: int, shift: float) -> Sides:
    rng = np.random.default_rng(seed)
    y, weight = rng.normal(size=9), rng.uniform(size=9) * (rng.uniform(size=9) < 0.7)
    given = torch.from_numpy(np.stack([y, weight])[:, None, :, None])
    found = y + shift
    star_order_projection.pool_adjacent(found, weight)
    return [found], [torch_projection.isotonic(*given)[0, :, 0]]


def shrunk(seed: int, shift: float) -> Sides:
    trained = build_network(Operator.pretrained())
    gate = trained.stages()[0].gate
    config = trained.config
    ours, theirs = scaled_sides(seed)
    guess, priced = gaussian_process.kriged(ours, gate.place.numpy())
    reference = torch_process.Kriged(*(torch.from_numpy(part) for part in guess))
    noise = np.random.default_rng(seed).normal(0.0, 0.5, guess.start.shape)
    weights = select_weights(Operator.pretrained().weights, "looks.0.gate")
    heads = measure_gate.Gate(weights, config, np.float64)
    given = torch.from_numpy(guess.start + noise)
    found = shrinkage.trusted(guess.start + (1.0 + shift) * noise, guess, priced, ours, heads)
    return list(found), list(torch_shrinkage.trusted(given, reference, theirs, gate))


def draw_gate(seed: int, kind: type[torch_gate.Gate] = torch_gate.Gate) -> torch_gate.Gate:
    torch.manual_seed(seed)
    gate = kind(40, (3.7, 2.4)).requires_grad_(False)
    for parameter in gate.parameters():
        parameter.add_(0.1 * torch.randn_like(parameter))
    return gate


def gates(
    dtype: type[np.floating], mine: type[measure_gate.Gate], theirs: type[torch_gate.Gate]
) -> Callable[[int, float], Sides]:
    """Also where every quote is far from a head, and all of them are near each other."""

    def compute(seed: int, shift: float) -> Sides:
        trained = draw_gate(seed, theirs)
        weights = to_arrays(trained.state_dict())
        ours, chain = scaled_sides(seed)
        off, part = (-3.5, 0.0, 3.5)[seed % 3], 0.1 if seed % 3 != 1 else 1.0
        ours = ours._replace(zeta=part * ours.zeta + off)
        chain = chain._replace(zeta=part * chain.zeta + off)
        gate = mine(weights, Config(heads=40, reach=(3.7, 2.4)), dtype)
        inputs = measure_gate.GateInputs.from_chain(ours, dtype)
        lines, means = gate.look(gate(inputs), inputs, ours.u + shift)
        exact = trained.double()
        wanted = exact.look(exact(chain), chain, chain.u).flatten(0, 1)
        return [np.concatenate([lines, means], 1)], [wanted]

    return compute


def pooling(seed: int, shift: float) -> Sides:
    ours, theirs = scaled_sides(seed)
    rng = np.random.default_rng(seed)
    lines, weight = rng.normal(size=(3, 5, 8)), rng.uniform(0.1, 9.0, (3, 5, 4))
    spans, causal = (0.3, 1.6), bool(seed % 2)
    given = weight * ours.quotes.listed[..., None]
    near = maturity_pooling.nearness(np.log(ours.quotes.T), spans, causal)
    tensors = torch.from_numpy(lines), torch.from_numpy(weight)
    return (
        [maturity_pooling.pooled(lines + shift * lines**2, given, near)],
        [torch_pooling.pool(*tensors, theirs, spans, causal)],
    )


def scans(seed: int, shift: float) -> Sides:
    kind, guarded = (("resolvent", True), ("exponential", True), ("resolvent", False))[seed % 3]
    torch.manual_seed(seed)
    made = [torch_scan.GreenScan(9, 7, 3, 5, kind=kind, guarded=guarded) for _ in range(2)]
    for parameter in (p for scan in made for p in scan.parameters()):
        parameter.requires_grad_(False).add_(0.3 * torch.randn_like(parameter))
    parts = [to_arrays(scan.state_dict()) for scan in made]
    config = Config(state=7, rank=3, scan=kind, guard=guarded)
    ours, theirs = scaled_sides(seed)
    x, context = torch.randn(3, 5, 9).double(), torch.randn(3, 5, 5).double()
    carrier = green_scan.GreenScans(parts, config, np.float64)
    choice = context.numpy() @ carrier.select.T + carrier.select_bias
    walk = green_scan.Walk(np.stack([ours.gap, ours.ahead]), ours.quotes.listed)
    states = carrier((1.0 + shift) * x.numpy(), choice, walk).reshape(3, 5, 2, 7)
    path = torch_scan.Path(x, theirs.gap, context, theirs.quoted.any(-1))
    wanted = torch_stream.carried([scan.double() for scan in made], path, theirs.ahead)
    turned = [states[:, :, way] @ carrier.vectors[way].T for way in range(2)]
    return turned, list(wanted)


def references(seed: int, shift: float) -> Sides:
    rng = np.random.default_rng(seed)
    parts = [rng.normal(0.0, 1.5, (2, 3, 21)) for _ in range(2)]
    guess = gaussian_process.Kriged(
        parts[0] + shift, rng.uniform(-8.0, -2.0, (2, 3, 21)), rng.normal(size=(2, 3, 31)), parts[1]
    )
    plain = torch_process.Kriged(*(torch.from_numpy(part) for part in guess))
    plain = plain._replace(smile=torch.from_numpy(parts[0]))
    hats = geometry_stream.at_knots(PLACE).astype(np.float64)
    place = torch.from_numpy(PLACE)
    return (
        [
            *geometry_stream.referred(guess),
            geometry_stream.open_to_change(guess, np.asarray(hats, dtype=np.float64)),
            hats,
            slope_head.bounded(guess.start, parts[0][..., :1]),
            slope_head.slopes(guess.start, guess.smile[..., 0]),
        ],
        [
            *torch_stream.referred(plain),
            torch_stream.open_to_change(plain, torch_stream.at_knots(place)),
            torch_stream.at_knots(place),
            torch_head.bounded(plain.start, plain.smile[..., :1]),
            torch_head.slopes(plain.start, plain.smile[..., 0]),
        ],
    )


VARIANTS: list[dict[str, Any]] = [
    {}, {"adjoint": False}, {"looks": 3}, {"scan": "exponential"}, {"guard": False},
    {"gate": False}, {"rank": 1, "looks": 1}, {"spans": (0.5,), "adjoint": False},
    {"kriging": False, "spans": ()}, {"spans": (0.5,), "reach": (3.0, 2.0)},
    {"representer": True},
]  # fmt: skip


def draw_network(seed: int) -> Network:
    """A network of some variant whose every weight is random."""
    torch.manual_seed(seed)
    made = Network(Config(**{**SIZES, **VARIANTS[seed % len(VARIANTS)]})).requires_grad_(False)
    for parameter in made.parameters():
        parameter.add_(0.2 * torch.randn_like(parameter))
    return made


def passes(dtype: type[np.floating]) -> Callable[[int, float], Sides]:
    """Logarithms of slopes and levels, and moves in hundreds of standard errors."""

    def compute(seed: int, shift: float) -> Sides:
        trained, quotes = draw_network(seed), sparse_chain(seed)
        weights = to_arrays(trained.state_dict())
        weights["base.bias"] = weights["base.bias"] + np.float32(shift)
        found = inference.Network(weights, trained.config, dtype)(to_rows(quotes))
        wanted = trained.double()(quotes)
        moved = torch.zeros(3) if wanted.moved is None else wanted.moved
        return (
            [np.log(found.slopes), found.total, 0.01 * found.moved],
            [torch.log(wanted.slopes), wanted.chain.total, 0.01 * moved],
        )

    return compute


def constants(seed: int, shift: float) -> Sides:
    trained = draw_network(seed)
    weights = {name: (1.0 + shift) * w for name, w in to_arrays(trained.state_dict()).items()}
    found = lipschitz.constant(weights, trained.config)
    wanted = torch_lipschitz.constant(trained)
    return (
        [np.log([found.value, *found.by_look])],
        [torch.log(torch.tensor([wanted.value, *wanted.by_look], dtype=torch.float64))],
    )


PAIRS = {
    "reference_volatility.scaled": Pair(levels, 1e-10),
    "gaussian_process.splines": Pair(splines, 1e-14),
    "bid_ask_likelihood.average_error_laws": Pair(laws, 1e-8, 1e-2),
    "bid_ask_likelihood.truncated": Pair(truncations, 1e-8, 0.1),
    "gaussian_process.kriged, wild": Pair(kriging(1.0), 1e-6),
    "gaussian_process.kriged": Pair(kriging(0.3), 1e-6),
    "gaussian_process.kriged, calm": Pair(kriging(0.05), 1e-6),
    "gaussian_process.kriged, flat": Pair(kriging(0.01), 1e-6),
    "smile_to_slopes": Pair(first_slopes, 1e-8),
    "transport_prices.price_smile": Pair(priced_smiles, 1e-9),
    "star_order_projection.transport": Pair(transports(0.3), 1e-6, 0.01),
    "star_order_projection.transport, wild": Pair(transports(1.0), 1e-4, 0.1),
    "star_order_projection.missed": Pair(misses, 1e-9),
    "star_order_projection.isotonic": Pair(isotonic, 1e-12),
    "shrinkage.trusted": Pair(shrunk, 1e-9),
    "measure_gate.Gate": Pair(gates(np.float64, measure_gate.Gate, torch_gate.Gate), 1e-9),
    "measure_gate.Gate, single": Pair(gates(np.float32, measure_gate.Gate, torch_gate.Gate), 1e-5),
    "representer.Representer": Pair(
        gates(np.float64, representer.Representer, torch_representer.Representer), 1e-9
    ),
    "maturity_pooling.pooled": Pair(pooling, 1e-9),
    "green_scan": Pair(scans, 1e-6),
    "geometry_stream and slope_head": Pair(references, 1e-12),
    "lipschitz.constant": Pair(constants, 1e-12, 1e-2),
    "network.Network": Pair(passes(np.float64), 1e-7, 1e-3),
    "network.Network, single": Pair(passes(np.float32), 3e-5, 1e-3),
}


def largest_gap(sides: Sides, relative: float = 1e-9) -> float:
    """Largest difference of two sides beyond a share of a number; infinite where one has none."""
    gaps = []
    for one, other in zip(*sides, strict=True):
        wanted = other.detach().numpy() if isinstance(other, Tensor) else np.asarray(other)
        assert np.shape(one) == wanted.shape
        gap = np.abs(one - wanted.astype(np.float64)) - relative * np.abs(wanted)
        gaps.append(float(np.where(np.isfinite(gap), gap, np.inf).max()))
    return max(gaps)


@pytest.mark.parametrize("name", PAIRS)
def test_both_sides_of_a_pair_are_one_function(name: str) -> None:
    pair = PAIRS[name]
    with torch.no_grad():
        for seed in range(count(full=1000, reduced=22)):
            assert largest_gap(pair.compute(seed, 0.0)) < pair.error, seed
        off = [largest_gap(pair.compute(seed, pair.shift)) for seed in range(6)]
    assert max(off) > 3.0 * pair.error


def test_chains_are_calm_and_wild() -> None:
    """Those above: values of wildness on either side of the middle, and two steps off, count."""
    chain = torch_reference.scaled(sparse_chain(3))
    wild = {
        float(tau)
        for calm in (1.0, 0.3, 0.05, 0.01)
        for tau in torch_process.known(chain._replace(u=calm * chain.u)).law.prior.wild
    }
    assert min(wild) < slice_offsets.PRIOR_SCALES[1]
    assert max(wild) > slice_offsets.INITIAL_PRIOR_SCALE


def smiles_between(parts: tuple[float, float]) -> Iterator[tuple[transport_prices.Smile, Numbers]]:
    """Wild smiles whose first round leaves some chains between two parts of the way to more."""
    low = star_order_projection.MIN_MISS_FOR_MORE_ROUNDS
    high = star_order_projection.FULL_MISS_FOR_MORE_ROUNDS
    for seed in range(40):
        smile = draw_smiles(seed, 0.5)
        priced = transport_prices.price_smile(smile)
        g = smile_to_slopes.log_slopes(
            priced.u.reshape(18, -1), priced.places, np.exp(smile.total.ravel())
        )
        _, miss = star_order_projection.descend(g.reshape(3, 6, -1), priced, 1)
        trust = priced.trust
        off = np.sqrt((trust * miss**2).sum((1, 2)) / trust.sum((1, 2)))
        part = (off - low) / (high - low)
        here = (part > parts[0]) & (part < parts[1])
        if here.any():
            yield smile, here


def test_transports_on_the_way_to_more_rounds_are_those_of_torch() -> None:
    found = 0
    for smile, here in smiles_between((0.05, 0.95)):
        g, miss = star_order_projection.transport(transport_prices.price_smile(smile))
        wanted, short = torch_projection.transport(in_torch(smile))
        np.testing.assert_allclose(g[here], wanted.numpy()[here], rtol=0.0, atol=1e-2)
        np.testing.assert_allclose(miss, short.numpy(), rtol=0.0, atol=1e-4)
        found += 1
    assert found >= 2


def test_what_is_no_number_stays_none() -> None:
    smile = draw_smiles(1, 1.0)
    smile.total[1, 2] = smile.u[2, 0, 3] = np.nan
    with np.errstate(invalid="ignore"):
        g, _ = star_order_projection.transport(transport_prices.price_smile(smile))
    assert np.isfinite(g[0]).all()
    assert not np.isfinite(g[1]).all()
    assert not np.isfinite(g[2]).all()
    falling = np.array([[1.0, 1.0], [np.nan, 0.5], [0.5, 0.2]])
    ordered = np.empty_like(falling)
    clock, weight = np.zeros((1, 3)), np.ones((1, 3, 2))
    star_order_projection.order_along_maturity(falling[None], clock, weight, ordered[None])
    assert np.isnan(ordered[:, 0]).any()
    assert (np.diff(ordered[:, 1]) >= 0.0).all()


@pytest.mark.parametrize("changes", VARIANTS, ids=str)
def test_weights_are_described_as_the_network_has_them(changes: dict[str, Any]) -> None:
    network = Network(Config(**{**SIZES, **changes}))
    wanted = {name: (w.shape, w.dtype) for name, w in to_arrays(network.state_dict()).items()}
    known = describe_weights(network.config)
    assert {name: (w.shape, w.dtype) for name, w in known.items()} == wanted
    other = describe_weights(Config(**{**SIZES, **changes, "context": 11}))
    assert {name: w.shape for name, w in other.items()} != {n: w.shape for n, w in known.items()}


def test_a_network_becomes_an_operator_and_a_network_again() -> None:
    operator = make_operator(draw_network(0), {})
    again = make_operator(build_network(operator), {})
    assert again.model == operator.model
    assert make_operator(draw_network(11), {}).model != operator.model
