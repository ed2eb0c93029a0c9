"""The operator as a user holds it: certified whatever the quotes, equivariant, the same always."""

from __future__ import annotations

import copy
import json
import pickle
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

import arbiter as ab
from arbiter.audit.structural_proof import check_structure
from arbiter.conventions import Array
from arbiter.operators import checkpoint
from arbiter.operators.checkpoint import CheckpointError
from arbiter.operators.law.config import LawConfig
from arbiter.operators.law.lipschitz import constant
from arbiter.operators.law.weights import describe_weights
from arbiter.operators.pretrained import DEFAULT_WEIGHTS_NAME, Operator
from arbiter.quotes import Quotes
from operator_card import PAGE, with_card

FOLDER = Path(ab.__file__).parent / "data"


@pytest.fixture(scope="module")
def operator() -> Operator:
    return Operator.pretrained()


@pytest.fixture(scope="module")
def quotes() -> Quotes:
    return smiles(np.array([7, 30, 91, 182, 365, 730]) / 365.0)


def smiles(T: Array, level: float = 0.18, strikes: int = 21, half: float = 0.01) -> Quotes:
    """Skewed smiles with spreads of ``half`` of volatility on either side."""
    z = np.linspace(-3.0, 2.0, strikes)
    root = np.sqrt(T)[:, None]
    k = level * root * z
    iv = level * (1.0 - 0.12 * z + 0.02 * z * z) * (1.0 + 0.05 * np.log(T / T[0]))[:, None]
    return Quotes.from_frame(
        {
            "T": np.broadcast_to(T[:, None], k.shape).ravel(),
            "k": k.ravel(),
            "iv_bid": (iv * (1.0 - half)).ravel(),
            "iv_ask": (iv * (1.0 + half)).ravel(),
        }
    )


def rescaled(quotes: Quotes, volatility: float, clock: float) -> Quotes:
    """Volatilities times one factor, maturities times another."""
    return Quotes.from_frame(
        {
            "T": quotes.T * clock,
            "k": quotes.k,
            "iv_bid": quotes.iv_bid * volatility,
            "iv_ask": quotes.iv_ask * volatility,
        }
    )


def largest_move(one: ab.Surface, other: ab.Surface) -> float:
    return float(np.abs(np.log(one.slopes / other.slopes)).max())


def test_a_surface_in_one_pass_is_certified_and_near_the_quotes(
    operator: Operator, quotes: Quotes
) -> None:
    surface = operator(quotes)
    certificate = surface.certificate()
    assert certificate.passed
    assert certificate.nas == 1.0
    assert surface.slopes.dtype == np.float64
    assert np.abs(surface.iv(quotes.k, quotes.T) / quotes.iv_mid - 1.0).mean() < 0.02
    flat = operator(smiles(quotes.maturities, level=0.36))
    assert np.abs(flat.iv(quotes.k, quotes.T) / quotes.iv_mid - 1.0).mean() > 0.2


@given(seed=st.integers(0, 10_000), expiries=st.integers(1, 12), each=st.integers(1, 30))
def test_whatever_the_quotes_the_surface_is_in_the_star_order(
    seed: int, expiries: int, each: int
) -> None:
    """Noise in place of quotes: nonsense in, but nothing to arbitrage out."""
    rng = np.random.default_rng(seed)
    T = np.unique(np.exp(rng.uniform(np.log(1e-3), np.log(30.0), expiries)))
    rows = np.repeat(T, each + 2)
    iv = np.exp(rng.uniform(np.log(0.02), np.log(2.0), rows.size))
    k = iv * np.sqrt(rows) * rng.uniform(-6.0, 4.0, rows.size)
    half = iv * rng.uniform(0.001, 0.4, rows.size)
    quotes = Quotes.from_frame({"T": rows, "k": k, "iv_bid": iv - half, "iv_ask": iv + half})
    if len(quotes) < 3:
        return
    surface = Operator.pretrained()(quotes)
    proof = check_structure(surface.knots, surface.maturities, surface.slopes, surface.weights)
    assert proof.passed, proof.failures
    assert np.isfinite(surface.otm(quotes.k, quotes.T)).all()


def test_vols_doubled_and_maturities_quartered_give_the_same_surface(
    operator: Operator, quotes: Quotes
) -> None:
    surface = operator(quotes)
    twice = operator(rescaled(quotes, 2.0, 0.25))
    assert largest_move(surface, twice) < 1e-5
    k, T = np.linspace(-0.4, 0.3, 15), quotes.maturities[:, None]
    assert np.abs(twice.iv(k, T / 4.0) / 2.0 - surface.iv(k, T)).max() < 1e-5
    # the control: only half of it is another market
    assert largest_move(surface, operator(rescaled(quotes, 2.0, 1.0))) > 0.1


def test_many_are_each_one(operator: Operator, quotes: Quotes) -> None:
    """Whatever stands beside it, in whichever order."""
    chains = [quotes, smiles(np.array([0.5]), strikes=9), smiles(np.geomspace(0.01, 4.0, 30))]
    chains += [rescaled(quotes, 1.0 + 0.1 * i, 1.0) for i in range(4)]
    together = operator.many(chains)
    assert [s.maturities.size for s in together] == [c.maturities.size for c in chains]
    for surface, alone in zip(together, map(operator, chains), strict=True):
        assert largest_move(surface, alone) < 1e-5
        k, T = np.linspace(-0.2, 0.2, 9), surface.maturities[:, None]
        assert np.abs(surface.iv(k, T) - alone.iv(k, T)).max() < 1e-6
    assert operator.many([]) == []


def test_the_same_quotes_give_the_same_bytes_in_every_thread(
    operator: Operator, quotes: Quotes
) -> None:
    others = [rescaled(quotes, 1.0 + 0.05 * i, 1.0) for i in range(8)]
    alone = [operator(other).slopes.tobytes() for other in others]
    with ThreadPoolExecutor(4) as pool:
        assert [s.slopes.tobytes() for s in pool.map(operator, others)] == alone
    assert len(set(alone)) == len(alone)


def test_the_surface_remembers_where_it_comes_from(operator: Operator, tmp_path: Path) -> None:
    quotes = ab.example_chain().quotes()
    surface = operator(quotes)
    assert isinstance(surface, ab.OperatorSurface)
    assert isinstance(surface, ab.Surface)
    result = surface.result
    assert result.lipschitz == operator.lipschitz
    assert (surface.curve.forwards == quotes.forwards).all()
    assert surface.as_of == quotes.as_of
    surface.save(tmp_path / "s.npz")
    kept = ab.Surface.load(tmp_path / "s.npz")
    assert (kept.slopes == surface.slopes).all()
    assert kept.info["operator"]["model"] == operator.model
    assert kept.info["operator"]["inside_domain"] is True
    assert kept.info["operator"]["lipschitz"] == operator.lipschitz


def test_residuals_are_those_of_the_prices(operator: Operator, quotes: Quotes) -> None:
    surface = operator(quotes)
    off = (surface.otm(quotes.k, quotes.T) - quotes.mid) / quotes.half_spread
    assert np.abs(surface.result.residuals - off).max() < 1e-6


def test_the_card_is_plain_and_says_what_a_user_needs(operator: Operator) -> None:
    card = operator.card
    assert json.loads(json.dumps(card, allow_nan=False)) == card
    for name in ("model", "parameters", "lipschitz", "config", "data", "seed", "revision",
                 "metrics", "domain", "shipped", "limits", "note", "listed"):  # fmt: skip
        assert name in card, name
    for name in ("heston_base_bp", "unseen_bp", "unseen_unquoted_bp", "later_unseen_bp"):
        assert 0.0 < card["metrics"][name] < 20.0, name
    assert len(card["listed"]) == 10
    assert repr(operator).startswith(f"Operator({operator.model}, ")
    card["metrics"] = None
    assert operator.card["metrics"] is not None


def test_the_card_of_the_page_is_that_of_the_weights(operator: Operator) -> None:
    """After `tools/operator_card.py`, which shipping weights runs."""
    page = PAGE.read_text(encoding="utf-8")
    assert with_card(page, operator.card) == page
    other = {**operator.card, "model": "another"}
    assert with_card(page, other) != page


def test_the_lipschitz_constant_is_that_of_the_shipped_maps(operator: Operator) -> None:
    path = FOLDER / f"{DEFAULT_WEIGHTS_NAME}.safetensors"
    weights, info = checkpoint.load(path)
    config = LawConfig.from_dict(info["config"])
    assert operator.lipschitz == constant(weights, config)
    name = "looks.0.last.weight"
    louder = constant({**weights, name: 2.0 * weights[name]}, config)
    assert louder is not None
    assert operator.lipschitz is not None
    assert louder > 1.2 * operator.lipschitz
    assert constant(weights, replace(config, looks=2)) is None


def test_log_volatilities_that_move_a_little_move_slopes_far_less_than_the_constant(
    operator: Operator, quotes: Quotes, rng: np.random.Generator
) -> None:
    """A sanity check of what the number means; the network's own tests try to break it."""
    move = 1e-3 * rng.choice([-1.0, 1.0], len(quotes))
    shaken = Quotes.from_frame(
        {
            "T": quotes.T,
            "k": quotes.k,
            "iv_bid": quotes.iv_bid * np.exp(move),
            "iv_ask": quotes.iv_ask * np.exp(move),
        }
    )
    moved = largest_move(operator(quotes), operator(shaken)) / 1e-3
    # the reference follows the quotes, which the constant leaves out and nothing bounds: slopes in
    # the tails move by some hundred times as much as quotes do, far less than the constant allows
    assert operator.lipschitz is not None
    assert 10.0 < moved < 1000.0 < operator.lipschitz


def test_the_shipped_file_is_small_and_single_precision() -> None:
    path = FOLDER / f"{DEFAULT_WEIGHTS_NAME}.safetensors"
    assert path.stat().st_size <= 10_000_000
    tensors, _ = checkpoint.load(path)
    assert {tensor.dtype for tensor in tensors.values()} == {np.dtype(np.float32)}


def test_pretrained_is_loaded_once() -> None:
    assert Operator.pretrained() is Operator.pretrained(DEFAULT_WEIGHTS_NAME)
    with pytest.raises(ValueError, match=rf"'nonsense' is not among .*'{DEFAULT_WEIGHTS_NAME}'"):
        Operator.pretrained("nonsense")


@pytest.mark.parametrize("bad", [None, 3, {"T": [1.0]}, "quotes.csv"])
def test_what_is_not_quotes_is_refused(operator: Operator, bad: object) -> None:
    with pytest.raises(ValueError, match="is not Quotes: a chain has quotes"):
        operator(bad)  # type: ignore[call-overload]


def test_too_few_quotes_are_refused_and_named(operator: Operator, quotes: Quotes) -> None:
    two = quotes.select(np.arange(len(quotes)) < 2)
    none = quotes.select(np.zeros(len(quotes), dtype=bool))
    with pytest.raises(ValueError, match=r"^2 usable quotes: the operator needs at least 3"):
        operator(two)
    with pytest.raises(ValueError, match=r"^0 usable quotes"):
        operator(none)
    with pytest.raises(ValueError, match=r"^chains\[1\]: 2 usable quotes"):
        operator.many([quotes, two])
    three = quotes.select(np.arange(len(quotes)) < 3)
    assert operator(three).certificate().passed


def draw_weights(config: LawConfig, seed: int = 0) -> dict[str, NDArray[np.float32]]:
    """Weights of a network that nobody has trained."""
    rng = np.random.default_rng(seed)
    shapes = {name: like.shape for name, like in describe_weights(config).items()}
    return {name: rng.normal(0.0, 0.2, shape).astype("f4") for name, shape in shapes.items()}


def small_checkpoint(path: Path, **changes: object) -> Path:
    config = LawConfig(heads=4, width=8, state=4, rank=1, context=8)
    info = {"config": config.to_dict(), "data_hash": "", "seed": 0, "revision": "", "metrics": {}}
    return checkpoint.save(path, draw_weights(config), {**info, **changes})


def test_any_checkpoint_of_an_operator_can_be_loaded(tmp_path: Path, quotes: Quotes) -> None:
    operator = Operator.load(small_checkpoint(tmp_path / "small.safetensors"))
    surface = operator(quotes)
    assert surface.certificate().passed
    assert surface.domain is None  # a checkpoint without limits cannot tell
    assert surface.info["operator"]["inside_domain"] is None


def test_what_is_not_an_operator_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        Operator.load(tmp_path / "absent.safetensors")
    (tmp_path / "foreign").write_bytes(b"PK\x03\x04 and more")
    with pytest.raises(CheckpointError, match="not opened"):
        Operator.load(tmp_path / "foreign")
    other = small_checkpoint(tmp_path / "a", config={"layers": 3})
    with pytest.raises(CheckpointError, match="config is not an operator's"):
        Operator.load(other)
    wider = LawConfig(heads=5, width=8, state=4, rank=1, context=8).to_dict()
    with pytest.raises(CheckpointError, match="another configuration"):
        Operator.load(small_checkpoint(tmp_path / "b", config=wider))
    first = {"heads": 44, "width": 192, "spans": [0.3, 1.6], "decoder": "transport"}
    with pytest.raises(CheckpointError, match="a network of the first design"):
        Operator.load(small_checkpoint(tmp_path / "c", config=first))


def test_an_operator_travels_to_other_processes(operator: Operator, quotes: Quotes) -> None:
    again = pickle.loads(pickle.dumps(operator))  # noqa: S301 - made here
    for other in (again, copy.copy(operator), copy.deepcopy(operator)):
        assert (other(quotes).slopes == operator(quotes).slopes).all()
        assert (repr(other), other.card) == (repr(operator), operator.card)
    with pytest.raises(ValueError, match="read-only"):
        again.weights["looks.0.last.weight"][0, 0] = 1.0


def test_a_short_chain_beside_a_deep_one_is_as_alone(operator: Operator) -> None:
    """What fills it up to the depth of the other stays within reach."""
    short = smiles(np.array([2.0]), strikes=9, level=0.6)
    deep = smiles(np.geomspace(0.02, 3.0, 80), strikes=9)
    alone = operator(short)
    found = operator.many([short, deep])[0]
    np.testing.assert_allclose(found.slopes, alone.slopes, rtol=1e-5)
    assert np.ptp(alone.slopes) > 1e-3


def test_an_operator_of_two_looks_answers(quotes: Quotes) -> None:
    config = LawConfig(heads=6, width=12, state=7, rank=3, context=10, looks=2)
    operator = Operator(draw_weights(config), config, {})
    surface = operator(quotes)
    assert surface.certificate().passed
    assert surface.result.lipschitz is None
    assert "Lipschitz" not in repr(operator)
