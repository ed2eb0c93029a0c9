"""Standard errors: what they are computed from, and that redrawn quotes scatter as they say."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from arbiter.chains import read_volatilities
from arbiter.conventions import Array
from arbiter.fitting import FitOptions, FittedSurface, fit
from arbiter.fitting.interior_point import add_ridge
from arbiter.fitting.joint_fit import eliminate_vix
from arbiter.fitting.unknowns import UnknownLayout
from arbiter.futures import FuturesCurve
from arbiter.pricing import black
from arbiter.pricing.decoder import Decoder
from arbiter.pricing.mixture import Mixture
from arbiter.quotes import Quotes
from arbiter.surface import Surface
from arbiter_lab.evaluation.heston_surfaces import heston_surface
from counts import count
from dense_matrices import write_out

PLACES = np.array([-2.5, -1.5, -0.7, 0.0, 0.7, 1.5])  # Gaussian coordinates
MATURITIES = np.array([10.0, 30.0, 73.0, 182.0, 365.0, 700.0])[:, None] / 365.0  # some unlisted


def by_differences(surface: FittedSurface, query: Callable[[Decoder], Array]) -> Array:
    """Standard errors of a query from a dense covariance and central differences."""
    logs, shares = np.log(surface.slopes), surface.weights[1:]
    layout = UnknownLayout(surface.knots, logs.shape[1], logs.shape[0])
    unknowns = layout.pack(logs, shares)

    def answer(z: Array) -> Array:
        # a step may cross an order by a hair: no check of it, only prices
        return query(Decoder(surface.knots, surface.maturities, *layout.decode(z)))

    columns = []
    for i in range(unknowns.size):
        step = np.zeros(unknowns.size)
        step[i] = 1e-7  # less than the least share of a component
        columns.append((answer(unknowns + step) - answer(unknowns - step)) / 2e-7)
    gradient = np.stack(columns, axis=1)
    known = surface.uncertainty
    matrix = write_out(add_ridge(known.matrix))
    if known.coupling is not None:
        matrix += known.coupling @ known.coupling.T
    covariance = known.dispersion * np.linalg.inv(matrix)
    return np.asarray(np.sqrt(np.einsum("pi,ij,pj->p", gradient, covariance, gradient)))


@lru_cache
def few_expiries(components: int = 1, joint: bool = False) -> FittedSurface:
    """A fit to three expiries, or a joint one with two futures on the VIX."""
    surface = heston_surface(610)
    keep = np.isin(surface.quotes.expiry, [2, 6, 12])
    quotes, options = surface.quotes.select(keep), FitOptions(components=components)
    alone = fit(quotes, options=options)
    if not joint:
        return alone
    dates = np.array([0.1, 0.35])
    level = 95.0 * np.sqrt(alone.forward_variance(dates))
    return fit(quotes, options=options, vix_futures=FuturesCurve.of(dates, level))


@pytest.mark.parametrize("joint", [False, True])
@pytest.mark.parametrize("components", [1, 2])
def test_errors_are_the_covariance_carried_to_volatilities(components: int, joint: bool) -> None:
    surface = few_expiries(components, joint)
    first, second, third = surface.maturities[[0, 1, -1]]
    T = np.array([first, second, third, 0.5 * (first + second), 0.7 * first, 1.2 * third])
    T = np.repeat(T, 3)
    k = surface.log_strike(np.tile([-2.0, 0.0, 1.0], 6), T)

    def volatilities(moved: Decoder) -> Array:
        price = moved.evaluate(Mixture.otm, k, T)
        return np.asarray(black.implied_total_volatility(price, k).volatility / np.sqrt(T))

    expected = by_differences(surface, volatilities)
    assert surface.iv_error(k, T) == pytest.approx(expected, rel=1e-3)
    assert surface.iv_error(k, T) != pytest.approx(1.01 * expected, rel=1e-3)


@pytest.mark.parametrize("joint", [False, True])
@pytest.mark.parametrize("components", [1, 2])
def test_the_error_of_the_vix_is_the_covariance_carried_to_the_log_contract(
    components: int, joint: bool
) -> None:
    surface = few_expiries(components, joint)
    tenor = 60.0 / 365.0

    def index(moved: Decoder) -> Array:
        variance = moved.slices_at(np.array([tenor])).log_variance()
        return np.asarray(100.0 * np.sqrt(variance / tenor))

    expected = float(by_differences(surface, index)[0])
    assert float(surface.vix_error(tenor)) == pytest.approx(expected, rel=1e-3)
    assert float(surface.vix_error()) != pytest.approx(expected, rel=1e-3)
    if joint:  # negative control: without the VIX quotes less is known
        apart = replace(surface, uncertainty=replace(surface.uncertainty, coupling=None))
        assert float(apart.vix_error(tenor)) > 1.002 * expected


def test_errors_broadcast_and_grow_away_from_the_quotes() -> None:
    surface = fit(heston_surface(611).quotes)
    T = surface.maturities[5]
    k = surface.log_strike(np.linspace(-5.0, 4.0, 10), T)
    error = surface.iv_error(k, T)
    assert error.shape == (10,)
    assert surface.iv_error(0.0, T).shape == ()
    assert surface.iv_error(k[:, None], surface.maturities).shape == (10, 16)
    assert error[0] > 5.0 * error[5]
    assert error[-1] > 5.0 * error[5]


def test_errors_do_not_depend_on_the_company_of_a_point(rng: np.random.Generator) -> None:
    """Many points at one maturity, one at each of many, and any order of them."""
    surface = fit(heston_surface(614).quotes)
    T = np.repeat(rng.uniform(0.02, 1.5, 12), 40)
    T[:100] = 0.3
    k, order = 0.2 * rng.normal(size=T.size) * np.sqrt(T), rng.permutation(T.size)
    together = surface.iv_error(k, T)
    assert surface.iv_error(k[order], T[order]) == pytest.approx(together[order], rel=1e-12)
    alone = [float(surface.iv_error(k[i], T[i])) for i in (0, 99, 200, 479)]
    assert alone == pytest.approx(together[[0, 99, 200, 479]].tolist(), rel=1e-9)


def test_two_components_have_errors_too() -> None:
    surface = fit(heston_surface(612, hard=True).quotes, options=FitOptions(components=2))
    error = surface.iv_error(np.array([-0.1, 0.0, 0.1]), 0.4)
    assert np.all((error > 1e-5) & (error < 0.05))
    assert 0.0 < float(surface.vix_error()) < 2.0


def test_a_copy_keeps_its_errors() -> None:
    surface = fit(heston_surface(613, hard=True).quotes)
    copied = copy.deepcopy(surface)
    assert float(copied.iv_error(0.0, 0.5)) == float(surface.iv_error(0.0, 0.5))
    plain = {name: getattr(surface, name) for name in ("knots", "maturities", "slopes", "weights")}
    with pytest.raises(TypeError, match="'result', 'uncertainty', and 'source'"):
        FittedSurface(**plain, curve=surface.curve)


class Draws(NamedTuple):
    """Errors of redrawn fits, and what those fits say of them."""

    miss: Array  # (draws, places) volatility
    error: Array
    vix_miss: Array  # (draws,)
    vix_error: Array


def bootstrap(seed: int, draws: int, hard: bool = False, narrow: float = 1.0) -> Draws:
    """Fits to quotes redrawn around a known surface, mids uniform within the spread.

    The surface is itself a fit, so that no error of the family is mixed in; roughness is chosen
    anew in every draw. ``narrow`` scales spreads and noise.
    """
    quotes = heston_surface(seed, hard).quotes
    truth = fit(quotes)
    iv = truth.iv(quotes.k, quotes.T)
    half = 0.5 * narrow * (quotes.iv_ask - quotes.iv_bid)
    k, T = np.broadcast_arrays(truth.log_strike(PLACES, MATURITIES), MATURITIES)
    rng = np.random.default_rng(seed)
    rows = []
    for _ in range(draws):
        mid = iv + half * rng.uniform(-1.0, 1.0, iv.size)
        table = {"T": quotes.T, "k": quotes.k, "iv_bid": mid - half, "iv_ask": mid + half}
        found = fit(Quotes.from_frame(table))
        miss = (found.iv(k, T) - truth.iv(k, T)).ravel()
        rows.append(
            (miss, found.iv_error(k, T).ravel(), found.vix() - truth.vix(), found.vix_error())
        )
    return Draws(*(np.array(part) for part in zip(*rows, strict=True)))


def ratio(error: Array, miss: Array) -> float:
    """Stated over seen, root mean squares."""
    return float(np.sqrt(np.mean(error**2) / np.mean(miss**2)))


def covered(error: Array, miss: Array) -> float:
    return float(np.mean(np.abs(miss) <= 2.0 * error))


@pytest.mark.parametrize("hard", [False, True])
def test_redrawn_quotes_scatter_as_the_errors_say(hard: bool) -> None:
    """Pooled over 36 places: within a factor 0.8 to 1.3, and 2-error bands cover 91 to 99.5 %."""
    sizes = count(full=100, reduced=6)
    parts = [bootstrap(seed, sizes, hard) for seed in (700, 701, 702, 703)[: count(4, 2)]]
    error, miss = (np.concatenate([getattr(p, n) for p in parts]) for n in ("error", "miss"))
    assert 0.8 < ratio(error, miss) < 1.3
    assert 0.91 < covered(error, miss) < 0.995
    # errors half as large, or twice, would not pass
    assert not 0.8 < ratio(0.5 * error, miss) < 1.3
    assert covered(0.5 * error, miss) < 0.85
    assert not 0.8 < ratio(2.0 * error, miss) < 1.3


def test_the_vix_scatters_as_its_error_says() -> None:
    draws = count(full=200, reduced=25)
    found = bootstrap(704, draws)
    assert 0.7 < ratio(found.vix_error, found.vix_miss) < 1.5
    assert covered(found.vix_error, found.vix_miss) >= 0.88
    assert covered(0.3 * found.vix_error, found.vix_miss) < 0.75


def test_half_the_noise_makes_smaller_errors() -> None:
    """Between a half and the full error: with less noise the fit also smooths less."""
    wide, narrow = (bootstrap(705, 3, narrow=scale) for scale in (1.0, 0.5))
    assert 0.45 < ratio(narrow.error, wide.error) < 0.75


def test_the_unknowns_of_the_vix_are_eliminated(rng: np.random.Generator) -> None:
    split, size, width = 40, 64, 6
    band = rng.standard_normal((size, width))
    band[:, 0] += 2.0 * width
    for row in range(size):  # nothing between the two markets, nor beyond the last row
        end = split if row < split else size
        band[row, end - row :] = 0.0
    columns = rng.standard_normal((size, 3))
    found = eliminate_vix(band, columns, split)
    own = write_out(band)[:split, :split]
    whole = np.linalg.inv(write_out(band) + columns @ columns.T)[:split, :split]
    assert np.allclose(np.linalg.inv(own + found @ found.T), whole)
    assert not np.allclose(np.linalg.inv(own + columns[:split] @ columns[:split].T), whole)


@pytest.mark.parametrize("components", [1, 2])
def test_errors_of_a_joint_fit_know_the_vix_quotes(
    components: int, data_dir: Path, tmp_path: Path
) -> None:
    folder = data_dir / "joint"
    spx = read_volatilities(folder / "spx_implied_vol_20230215.csv")
    vix = read_volatilities(folder / "vix_implied_vol_20230215.csv")
    joint = fit(spx, vix_quotes=vix, options=FitOptions(components=components))
    apart = replace(joint, uncertainty=replace(joint.uncertainty, coupling=None))
    ends = vix.maturities[:4] + 30.0 / 365.0
    both = np.array([[float(s.vix_error(t)) for t in ends] for s in (joint, apart)])
    assert np.all(both[0] < both[1])
    assert np.max(both[1] / both[0]) > 1.02
    path = tmp_path / "joint.npz"
    joint.save(path)
    loaded = Surface.load(path)
    assert isinstance(loaded, FittedSurface)
    assert float(loaded.vix_error(ends[0])) == float(joint.vix_error(ends[0]))
