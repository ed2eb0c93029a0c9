"""The decoder on tensors is the library's compiled one: the same numbers under the same names.

Each pair is compared at random laws, far wings included, to ``ROUNDING`` or to what rounding its
argument does to it: wild slopes make a strike of float64 a coarse question.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch

from arbiter.conventions import Array
from arbiter.pricing import black, knots, maturity, mixture, normal, transport
from arbiter_lab.differentiable import pricing
from arbiter_lab.differentiable.pricing import black as black_mirror
from arbiter_lab.differentiable.pricing import knots as knots_mirror
from arbiter_lab.differentiable.pricing import maturity as maturity_mirror
from arbiter_lab.differentiable.pricing import mixture as mixture_mirror
from arbiter_lab.differentiable.pricing import normal as normal_mirror
from arbiter_lab.differentiable.pricing import transport as transport_mirror
from counts import count
from index_slopes import KNOTS

LAWS = count(full=1000, reduced=60)
ROUNDING = 2e-12  # relative
FAINT = 1e-290  # prices below are rounded to multiples of the smallest numbers
ULPS = 32.0 * 2.0**-53
MODULES = {
    black_mirror: black,
    knots_mirror: knots,
    maturity_mirror: maturity,
    mixture_mirror: mixture,
    normal_mirror: normal,
    transport_mirror: transport,
}
WITHOUT_NAMESAKE = {
    "normal.quick_mills": "erfc is several times faster than erfcx on a GPU",
    "knots.Knots.from_tensor": "takes dtype and device; the library has from_array",
    "knots.Knots.slopes_at_cuts": "the library's loops read slopes while they integrate",
    "transport.any_or_recording": "only a GPU records",
}
WITHOUT_SIGNATURE = {
    "normal.weighted_mills": "log_mass serves scaled_mills_difference, which branches there",
}


class Pair(NamedTuple):
    """What both sides found, and by how much they may differ."""

    ours: Array
    theirs: Array
    allowed: Array | float = 0.0

    def miss(self) -> float:
        """The largest difference over what is allowed."""
        limit = ROUNDING * np.abs(self.ours) + self.allowed + FAINT
        assert self.ours.shape == self.theirs.shape
        assert np.isfinite(self.ours).all()
        assert np.isfinite(self.theirs).all()
        return float(np.max(np.abs(self.ours - self.theirs) / limit))


Draw = Callable[[np.random.Generator], Pair]


def tensors(*values: Array) -> list[torch.Tensor]:
    return [torch.tensor(x, dtype=torch.float64) for x in values]


def draw_slopes(rng: np.random.Generator) -> tuple[Array, Array]:
    """Knots ``(n,)`` and slopes ``(n,)``: of an index, flat, moderate, or from 1e-6 to 20."""
    x = KNOTS[int(rng.choice([5, 31, 41]))]
    kind = rng.integers(4)
    if kind == 0:
        tilt, wiggle = rng.uniform(0.05, 0.4), rng.uniform(-0.1, 0.1, x.size)
        return x, np.asarray(rng.uniform(0.02, 0.3) * np.exp(-tilt * x + wiggle))
    low, high = ((-6.0, 1.3), (-1.5, 0.2), (-6.0, 1.3))[kind - 1]
    return x, 10.0 ** (rng.uniform(low, high, 1 if kind == 1 else x.size) * np.ones(x.size))


def draw_nested(rng: np.random.Generator) -> tuple[Array, Array, Array]:
    """Maturities ``(L,)``, slopes ``(J, L, n)`` and weights ``(J, L)``, ordered, with ties."""
    J, L, n = rng.integers(1, 4), rng.integers(1, 6), 7
    listed = np.cumsum(rng.uniform(0.003, 0.5, L))
    steps = np.where(rng.random((J, L, n)) < 0.3, 0.0, rng.uniform(0.0, 0.3, (J, L, n)))
    slopes = np.maximum.accumulate(np.maximum.accumulate(0.01 + steps, axis=1), axis=0)
    shares = np.sort(np.sort(rng.random((J - 1, L)), axis=1), axis=0)[::-1]
    survival = np.concatenate([np.ones((1, L)), shares, np.zeros((1, L))])
    return listed, slopes, survival[:-1] - survival[1:]


def scalar(name: str, draw: Callable[[np.random.Generator], tuple[Array, ...]]) -> Draw:
    """A pair of :mod:`normal`: the library's function takes one number at a time."""
    ours = np.vectorize(getattr(normal, name), otypes=[np.float64])

    def pair(rng: np.random.Generator) -> Pair:
        given = draw(rng)
        return Pair(ours(*given), getattr(normal_mirror, name)(*tensors(*given)).numpy())

    return pair


def draw_pieces(rng: np.random.Generator) -> tuple[Array, Array, Array]:
    """A log-scale, a coordinate and the slope of a lognormal piece, narrow and wide.

    Calls are struck right of −7: further in the money no tail of a slice is asked for.
    """
    return rng.uniform(-5, 0, 9), rng.uniform(-7, 12, 9), 10.0 ** rng.uniform(-6, 1, 9)


def draw_puts(rng: np.random.Generator) -> tuple[Array, Array, Array]:
    k, x, b = draw_pieces(rng)
    return k, -x, b


def draw_differences(rng: np.random.Generator) -> tuple[Array, ...]:
    k, x, b = draw_pieces(rng)
    return k, x, x - b, b, k + 0.5 * b * (b - 2.0 * x)


def draw_series(rng: np.random.Generator) -> tuple[Array, Array, Array]:
    h = rng.uniform(-8.0, 50.0, 9)
    return h, rng.uniform(0.0, 0.05, 9), normal_mirror.mills(torch.tensor(h)).numpy()


def price_pair(name: str) -> Draw:
    def pair(rng: np.random.Generator) -> Pair:
        v = 10.0 ** rng.uniform(-4, 1, 9)
        k = v * rng.uniform(0, 37, 9) * rng.choice([-1.0, 1.0], 9)
        ours, theirs = getattr(black, name)(k, v), getattr(black_mirror, name)(*tensors(k, v))
        return Pair(ours, theirs.numpy())

    return pair


def implied_pair(side: str) -> Draw:
    def pair(rng: np.random.Generator) -> Pair:
        v = 10.0 ** rng.uniform(-4, 1, 9)
        k = v * rng.uniform(0, 15 if side == "otm" else 3, 9) * rng.choice([-1.0, 1.0], 9)
        price = getattr(black, side)(k, v)
        ours = black.implied_total_volatility(price, k, side)
        theirs = black_mirror.implied_total_volatility(torch.tensor(price), torch.tensor(k), side)
        np.testing.assert_array_equal(ours.reason, theirs.reason.numpy())
        good = ours.reason == black.Reason.OK
        with np.errstate(divide="ignore"):
            allowed = 8.0 * 2.0**-52 * price / black.vega(k, v)
        clear = good & (allowed < 0.01 * v)  # of the others the price no longer shows v
        return Pair(ours.volatility[clear], theirs.volatility.numpy()[clear], allowed[clear])

    return pair


def at_points(ours: Callable[[Array], Array], theirs: Any, at: Array, unit: Array | float) -> Pair:
    """A pair of functions at points, which may differ by what rounding the points does."""
    step = ULPS * unit
    spread = np.abs(ours(at + step) - ours(at - step))
    return Pair(ours(at), theirs(torch.tensor(at)).numpy(), spread)


def slice_pair(name: str) -> Draw:
    def pair(rng: np.random.Generator) -> Pair:
        x, slopes = draw_slopes(rng)
        ours = transport.Transport(x, slopes)
        theirs = transport_mirror.Transport(*tensors(x, slopes))
        z = rng.uniform(-12.0, 12.0, 13)
        f, g = getattr(ours, name), getattr(theirs, name)
        if name == "log_variance":
            return Pair(f()[None], g().numpy()[None], ULPS * slopes.max())
        if name == "log_mean":
            return Pair(f[None], g.numpy()[None], ULPS * np.abs(ours.slices.s).max())
        if name in ("log_strike", "quantile"):
            points = z if name == "log_strike" else normal.cdf_of(-np.abs(z))
            unit = ULPS * (np.abs(ours.slices.s).max() + np.abs(z) * slopes.max())
            found = at_points(f, g, points, np.abs(points))
            scale = 1.0 if name == "log_strike" else found.ours
            return found._replace(allowed=found.allowed + unit * scale)
        k = ours.log_strike(z)
        k = k[np.abs(k) < 600.0]
        return at_points(f, g, k, np.abs(k) + np.abs(ours.log_mean))

    return pair


def mixture_pair(name: str) -> Draw:
    def pair(rng: np.random.Generator) -> Pair:
        x, calm = draw_slopes(rng)
        crash = np.minimum(calm + 10.0 ** rng.uniform(-3, -0.5) * np.exp(-0.4 * (x + 2.0)), 20.0)
        slopes, share = np.stack([calm, crash])[:, None], rng.uniform(0.01, 0.99)
        weights = np.array([[share], [1.0 - share]])
        ours = mixture.Mixture(x, slopes, weights)
        theirs = mixture_mirror.Mixture(*tensors(x, slopes, weights))
        f, g = getattr(ours, name), getattr(theirs, name)
        if name == "log_variance":
            return Pair(f(), g().numpy(), ULPS * slopes.max())
        k = np.concatenate([part.log_strike(rng.uniform(-9, 9, 6))[0] for part in ours.parts])
        k = k[np.abs(k) < 600.0]
        unit = np.abs(k) + max(float(np.abs(part.log_mean).max()) for part in ours.parts)
        return at_points(f, g, k, unit)

    return pair


def maturity_pair(name: str) -> Draw:
    def pair(rng: np.random.Generator) -> Pair:
        listed, slopes, weights = draw_nested(rng)
        T = np.concatenate([rng.uniform(1e-3, 2.0 * listed[-1], 9), listed, [100.0]])
        values = slopes if name == "slopes_at" else weights
        ours = getattr(maturity, name)(listed, values, T)
        theirs = getattr(maturity_mirror, name)(*tensors(listed, values, T)).numpy()
        return Pair(ours, theirs, 1e-15)

    return pair


def line(low: float, high: float) -> Callable[[np.random.Generator], tuple[Array, ...]]:
    return lambda rng: (rng.uniform(low, high, 9),)


def joined(rng: np.random.Generator) -> tuple[Array, Array]:
    return rng.uniform(-300, 300, 9), rng.uniform(-30, 30, 9)


STRIKES = ("otm", "call", "put", "z", "cdf", "digital", "density")
PAIRS: dict[str, Draw] = {
    "normal.pdf": scalar("pdf", line(-36, 36)),
    "normal.scaled_pdf": scalar("scaled_pdf", joined),
    "normal.cdf": scalar("cdf", line(-36, 36)),
    "normal.quantile": scalar("quantile", lambda rng: (10.0 ** rng.uniform(-290, -0.4, 9),)),
    "normal.mills": scalar("mills", line(-30, 300)),
    "normal.narrow_series": scalar("narrow_series", draw_series),
    "normal.weighted_mills": scalar(
        "weighted_mills", lambda rng: (draw_pieces(rng)[0], *rng.uniform(-20, 20, (2, 9)))
    ),
    "normal.scaled_mills_difference": scalar("scaled_mills_difference", draw_differences),
    "normal.excess_above": scalar("excess_above", draw_pieces),
    "normal.excess_below": scalar("excess_below", draw_puts),
    **{f"black.{name}": price_pair(name) for name in ("otm", "call", "put", "vega")},
    **{f"black.implied {side}": implied_pair(side) for side in black.SIDES},
    **{
        f"transport.{name}": slice_pair(name)
        for name in (*STRIKES, "log_strike", "quantile", "log_variance", "log_mean")
    },
    **{
        f"mixture.{name}": mixture_pair(name)
        for name in (*(s for s in STRIKES if s != "z"), "log_variance")
    },
    **{f"maturity.{name}": maturity_pair(name) for name in ("slopes_at", "weights_at")},
}


@pytest.mark.parametrize("name", list(PAIRS))
def test_both_decoders_give_the_same_numbers(name: str, rng: np.random.Generator) -> None:
    pairs = [PAIRS[name](rng) for _ in range(LAWS)]
    assert max(pair.miss() for pair in pairs if pair.ours.size) <= 1.0
    # a fault of a part in a billion in every number would be seen
    faults = [pair._replace(theirs=pair.theirs * (1.0 + 1e-9)) for pair in pairs]
    assert max(pair.miss() for pair in faults if pair.ours.size) > 10.0


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_constants_of_knots_are_the_same(dtype: torch.dtype) -> None:
    given = torch.tensor([-3.0, 0.123, 2.0], dtype=dtype)
    theirs = knots_mirror.Knots.from_tensor(given, given)
    nodes = theirs.node.numel()
    assert nodes == (knots.QUADRATURE_NODES if dtype == torch.float64 else 8)
    ours = knots.Knots.from_array(given.numpy(), nodes)
    for name in ("x", "width", "source", "blend", "node", "weight", "upper", "lower", "mean"):
        wanted = torch.tensor(getattr(ours, name))
        found = getattr(theirs, name)
        found = found.T if name in ("upper", "lower") else found
        assert torch.equal(found, wanted if name == "source" else wanted.to(dtype)), name
    assert (theirs.zero, theirs.first, theirs.last) == (ours.zero, ours.x[0], ours.x[-1])


def list_functions(module: ModuleType) -> dict[str, Callable[..., Any]]:
    """Public functions and methods that a module defines, by name."""
    found: dict[str, Callable[..., Any]] = {}
    for name, value in vars(module).items():
        if name.startswith("_") or getattr(value, "__module__", None) != module.__name__:
            continue
        if inspect.isclass(value):
            parts = {f"{name}.{n}": f for n, f in vars(value).items() if not n.startswith("_")}
            found |= {n: getattr(f, "__func__", f) for n, f in parts.items() if callable(f)}
        elif callable(value):
            found[name] = value
    return found


def find_strangers(mirror: ModuleType, library: ModuleType) -> set[str]:
    """Functions of a mirror that the library lacks, or has with other arguments."""
    strangers = set()
    for name, function in list_functions(mirror).items():
        place = f"{mirror.__name__.rpartition('.')[2]}.{name}"
        namesake: Any = library
        for part in name.split("."):
            namesake = getattr(namesake, part, None)
        if namesake is None:
            strangers |= {place} - set(WITHOUT_NAMESAKE)
            continue
        mine = list(inspect.signature(function).parameters)
        its = list(inspect.signature(getattr(namesake, "py_func", namesake)).parameters)
        if mine != its[: len(mine)]:
            strangers |= {place} - set(WITHOUT_SIGNATURE)
    return strangers


def test_every_function_has_its_namesake() -> None:
    """With the same arguments in the same order; the library's may take more."""
    for mirror, library in MODULES.items():
        assert find_strangers(mirror, library) == set()
    named = {
        f"{mirror.__name__.rpartition('.')[2]}.{name}"
        for mirror in MODULES
        for name in list_functions(mirror)
    }
    assert set(WITHOUT_NAMESAKE) | set(WITHOUT_SIGNATURE) <= named


def test_every_mirror_is_looked_at() -> None:
    folder = inspect.getfile(pricing).rpartition("/")[0]
    modules = {m.__name__.rpartition(".")[2] for m in MODULES}
    assert len(modules) == len(MODULES)
    assert {f"{folder}/{name}.py" for name in modules} == {inspect.getfile(m) for m in MODULES}


def test_a_stranger_is_found() -> None:
    made = ModuleType("planted.normal")
    exec("def pdf(y): ...\ndef guess(x): ...\ndef cdf(x): ...", vars(made))
    assert find_strangers(made, normal) == {"normal.pdf", "normal.guess"}


def test_constants_have_one_home() -> None:
    for mirror, library in MODULES.items():
        shared = {n for n in vars(mirror) if n.isupper() and hasattr(library, n)}
        assert all(getattr(mirror, n) is getattr(library, n) for n in shared)
