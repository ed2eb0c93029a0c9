"""Kriging: the guess is Gaussian-process regression, and where the network starts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.interpolate import BSpline
from torch import Tensor

from arbiter.operators.prior.bid_ask_likelihood import INITIAL_ERROR, MID_VARIANCE_SHARE
from arbiter.operators.prior.gaussian_process import CLOCK, CLOCKS, STRIKES, ZETA
from arbiter.operators.prior.gaussian_process import factor as shipped_factor
from arbiter_lab.differentiable.operators.network.config import Config
from arbiter_lab.differentiable.operators.network.lipschitz import constant
from arbiter_lab.differentiable.operators.network.measure_gate import places
from arbiter_lab.differentiable.operators.network.network import Network
from arbiter_lab.differentiable.operators.prior import (
    bid_ask_likelihood,
    slice_offsets,
)
from arbiter_lab.differentiable.operators.prior.gaussian_process import (
    Kriged,
    factor,
    known,
    kriged,
    splines,
)
from arbiter_lab.differentiable.operators.prior.reference_volatility import Scaled, scaled
from arbiter_lab.differentiable.operators.quote_tensors import Ragged
from arbiter_lab.differentiable.pricing import black
from arbiter_lab.differentiable.pricing.transport import Transport
from ragged_chains import in_units, network, random_chain, ratio

PLACE = places(7, (3.0, 2.4))
seeds = st.integers(0, 2**31)


def design(chain: Scaled) -> Tensor:
    """``(B, L·S, D)`` the basis at every quote."""
    along = splines(chain.zeta, ZETA, STRIKES)
    clock = splines(chain.total, CLOCK, CLOCKS)
    return torch.einsum("blsz,blw->blszw", along, clock).flatten(3).flatten(1, 2)


def test_splines_are_those_of_the_textbook() -> None:
    low, high = ZETA
    step = (high - low) / (STRIKES - 3)
    knots = low + step * np.arange(-3, STRIKES + 1)
    x = np.linspace(low, high - 1e-9, 301)
    textbook = BSpline.design_matrix(x, knots, 3).toarray()
    ours = splines(torch.from_numpy(x), ZETA, STRIKES).numpy()
    np.testing.assert_allclose(ours, textbook, atol=1e-13)
    beyond = splines(torch.tensor([low - 5.0, low], dtype=torch.float64), ZETA, STRIKES)
    assert torch.equal(beyond[0], beyond[1])


def test_the_guess_is_gaussian_process_regression(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of mids alone, against the formula with the kernel between all quotes."""
    monkeypatch.setattr(bid_ask_likelihood, "ROUNDS", 0)
    chain = in_units(4, chains=1)
    quoted = chain.quoted[0].flatten()
    there = design(chain)[0][quoted]
    F = factor(there.device).flatten(0, 1)
    kernel = (there @ F) @ (there @ F).T
    level = 0.02  # of slices
    monkeypatch.setattr(slice_offsets, "OFFSET_DEVIATIONS", (level,))
    monkeypatch.setattr(slice_offsets, "PRIOR_SCALES", (1.0,))
    slices = torch.arange(chain.u.shape[1]).repeat_interleave(chain.u.shape[2])[quoted]
    kernel = kernel + level**2 * (slices[:, None] == slices)
    spread = torch.exp(2.0 * chain.noise[0].flatten()[quoted])
    noise = torch.diag(MID_VARIANCE_SHARE * spread + INITIAL_ERROR**2)
    spoken = torch.linalg.solve(kernel + noise, chain.u[0].flatten()[quoted])
    at = splines(PLACE.double(), ZETA, STRIKES)
    clock = splines(chain.total[0], CLOCK, CLOCKS)
    heads = torch.einsum("hz,lw->lhzw", at, clock).flatten(2)  # (L, H, D)
    own = level**2 * (torch.arange(chain.u.shape[1])[:, None] == slices)  # (L, N)
    across = (heads @ F) @ (there @ F).T + own[:, None]
    wanted = across @ spoken
    variance = ((heads @ F) ** 2).sum(-1) + level**2
    variance -= torch.einsum("lhi,ij,lhj->lh", across, torch.linalg.inv(kernel + noise), across)
    guess = kriged(chain, PLACE)
    torch.testing.assert_close(guess.smile[0], wanted, rtol=1e-6, atol=1e-8)
    torch.testing.assert_close(guess.doubt[0].exp().square(), variance, rtol=1e-4, atol=1e-10)
    # of a half-spread that is twice as wide the guess follows less
    wide = kriged(chain._replace(noise=chain.noise + 0.7), PLACE)
    assert bool((wide.doubt > guess.doubt).all())


def test_the_guess_is_inside_more_spreads_than_that_of_mids(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Quotes of the prior itself, the truth anywhere between bid and ask."""
    chain = in_units(5, chains=4, maturities=6, strikes=30)
    g = torch.Generator().manual_seed(5)
    F = factor(chain.u.device).flatten(0, 1)
    a = torch.randn(4, F.shape[1], 1, generator=g, dtype=torch.float64)
    truth = (design(chain) @ (F @ a))[..., 0].view_as(chain.u)
    half = torch.full_like(chain.u, 0.02)
    noise = half * (2.0 * torch.rand(half.shape, generator=g, dtype=torch.float64) - 1.0)
    quotes = chain._replace(u=truth + noise, noise=half.log())

    def error() -> float:
        found = known(quotes)
        guess, _ = found.at(chain.zeta)
        return float((guess - truth)[chain.quoted].square().mean().sqrt())

    ours = error()
    monkeypatch.setattr(bid_ask_likelihood, "ROUNDS", 0)
    assert ours < 0.9 * error()


def test_what_the_universe_contains_is_guessed_from_few_quotes() -> None:
    """A surface of the prior itself, a third of it shown: the rest follows, a flat guess fails."""
    chain = in_units(8, chains=1, maturities=6, strikes=24)
    g = torch.Generator().manual_seed(8)
    F = factor(chain.u.device).flatten(0, 1)
    a = torch.randn(F.shape[1], generator=g, dtype=torch.float64)
    a[20:] = 0.0  # its large features: the fine ones no quote shows
    u = (design(chain) @ (F @ a)).unflatten(1, chain.u.shape[1:])
    shown = chain.quoted & (torch.rand(chain.u.shape, generator=g) < 0.4)
    noise = torch.full_like(chain.noise, -6.0)
    few = chain._replace(quoted=shown, noise=noise, u=u * shown)
    guess = kriged(few, PLACE)
    seen = guess.doubt[0] < -4.0
    at = splines(PLACE.double(), ZETA, STRIKES)
    clock = splines(chain.total[0], CLOCK, CLOCKS)
    truth = torch.einsum("hz,lw,zw->lh", at, clock, (F @ a).unflatten(0, (STRIKES, CLOCKS)))
    error = (guess.smile[0] - truth)[seen].abs()
    assert int(seen.sum()) >= 5
    assert float(error.max()) < 5.0 * float(guess.doubt[0][seen].exp().max())
    assert float(error.max()) < 0.1 * float((truth[seen] - truth[seen].mean()).abs().max())


def test_a_chain_in_a_batch_is_the_chain_alone() -> None:
    quotes = random_chain(5, chains=3)
    quotes.quoted[1, 3:] = False
    made = network(3, kriging=True)
    with torch.no_grad():
        together = made(quotes).slopes
        short = Ragged._make(x[1:2, :3] for x in quotes)
        torch.testing.assert_close(together[1:2, :3], made(short).slopes, rtol=1e-8, atol=0.0)


def test_level_and_clock_do_not_matter() -> None:
    quotes, made = random_chain(9), network(4, kriging=True)
    other = quotes._replace(T=quotes.T / 4.0, iv=2.0 * quotes.iv, half=2.0 * quotes.half)
    with torch.no_grad():
        torch.testing.assert_close(made(quotes).slopes, made(other).slopes, rtol=1e-8, atol=0.0)
        level = made(quotes._replace(iv=1.5 * quotes.iv, half=1.5 * quotes.half)).slopes
        moved = (level / made(quotes).slopes - 1.0).abs()
    assert float(moved.max()) > 0.1


def test_a_guess_given_is_the_guess_made() -> None:
    """Training has it from the batch, so that recordings need no factorisation."""
    chain, made = scaled(random_chain(2)), network(4, kriging=True)
    guess = made.guess(chain)
    assert isinstance(guess, Kriged)
    with torch.no_grad():
        assert torch.equal(made.decode(chain, guess).slopes, made.decode(chain).slopes)
    assert network(4).guess(chain) is None


@given(seed=seeds)
def test_no_pair_of_quotes_exceeds_the_constant(seed: int) -> None:
    switches: dict[str, Any] = {"kriging": True, "spans": (0.5,)}
    made, chain = network(seed % 11, **switches).requires_grad_(False), in_units(seed, chains=1)
    assert 0.0 < ratio(made, chain, seed) <= constant(made).value


def test_the_start_is_the_guess() -> None:
    """Before any step the surface has the kriged smile, nearer than a flat one."""
    torch.manual_seed(0)
    made = Network(Config(width=16, state=8, context=12, kriging=True)).double()
    quotes = random_chain(3)
    iv = 0.2 * torch.exp(-0.8 * quotes.k)
    chain = scaled(quotes._replace(iv=iv, half=0.01 * iv))
    place = made.stages()[0].gate.place.double()
    near = place.abs() < 1.0
    with torch.no_grad():
        made.last.weight.zero_()
        output = made.decode(chain)
        guess = made.guess(chain)
        assert guess is not None
        k = torch.sinh(place) * torch.exp(chain.total)[..., None]
        told = black.implied_total_volatility(
            Transport(made.knots, output.slopes).otm(k), k
        ).volatility
    smile = torch.log(told) - chain.total[..., None]
    off, flat = ((a - guess.smile)[..., near].abs().max() for a in (smile, torch.zeros(1)))
    assert float(off) < 0.2 * float(flat), (off, flat)


def test_whoever_asks_first_leaves_a_factor_for_gradients() -> None:
    factor.cache_clear()
    with torch.inference_mode():
        kriged(in_units(1, chains=1), PLACE)
    weight = torch.ones(STRIKES, dtype=torch.float64, requires_grad=True)
    (weight @ factor(torch.device("cpu")).flatten(1)).sum().backward()
    assert weight.grad is not None
    assert float(weight.grad.abs().max()) > 0.0


def test_the_geometry_is_told_of_the_reference() -> None:
    """Smile, doubt, start and what it misses: each of them moves what is proposed."""
    chain, made = scaled(random_chain(2)), network(4, kriging=True)
    guess = made.guess(chain)
    assert guess is not None
    with torch.no_grad():
        told = made.decode(chain, guess)
        for name in ("smile", "doubt", "miss"):
            moved = guess._replace(**{name: getattr(guess, name) + 0.05})
            off = (made.decode(chain, moved).proposal - told.proposal).abs().max()
            assert float(off) > 1e-4, name
        same = made.decode(chain, guess._replace(start=guess.start + 0.0))
    assert torch.equal(same.proposal, told.proposal)


def test_a_damaged_factor_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "kernel.npy").write_bytes(b"not an array")
    monkeypatch.setattr("arbiter.operators.prior.gaussian_process.files", lambda _: tmp_path)
    with pytest.raises(ValueError, match="kernel"):
        shipped_factor.__wrapped__()
