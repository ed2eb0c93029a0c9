"""SPX and VIX fitted together: derivatives, recovery of known markets, each side alone, errors."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

import arbiter as ab
from arbiter.audit.certificate import certify_surface
from arbiter.conventions import Array
from arbiter.fitting import Status, initial_point
from arbiter.fitting.interior_point import Expansion, InteriorPoint
from arbiter.fitting.joint_objective import ForwardVariances, JointObjective
from arbiter.fitting.objective import FitObjective
from arbiter.fitting.options import FitOptions, Roughness
from arbiter.fitting.order_constraints import OrderConstraints
from arbiter.fitting.unknowns import UnknownLayout
from arbiter.fitting.vix_objective import VixObjective
from arbiter.fitting.vix_quotes import VixMarket, with_windows
from arbiter.futures import FuturesCurve
from arbiter.markets import LiftedHeston, preset
from arbiter.markets.snapshots import Snapshot, Venue, observe
from arbiter.markets.vix_listing import VolatilityVenue
from arbiter.quotes import Quotes
from arbiter.surface import Surface
from counts import count
from dense_matrices import write_out

WINDOW = 30.0 / 365.0


@lru_cache
def day(name: str, seed: int = 0) -> Snapshot:
    """A moment of a market whose prices are known, quoted with noise."""
    market = LiftedHeston.of(preset(name))
    moment = (np.datetime64("2024-05-15T16:00"), 5000.0)
    venue = Venue(volatility=VolatilityVenue())
    states = np.zeros((1, market.c.size))
    return observe(market, states, [moment], [np.random.SeedSequence(seed)], venue)[0]


def vix_side(snapshot: Snapshot) -> tuple[Quotes, FuturesCurve]:
    sheet = snapshot.volatility
    assert sheet is not None
    T = sheet.board.maturities
    return sheet.quotes, FuturesCurve.of(T, sheet.future_bid, sheet.future_ask)


@lru_cache
def fitted(name: str) -> ab.FittedSurface:
    quotes, futures = vix_side(day(name))
    return ab.fit(day(name).quotes, vix_quotes=quotes, vix_futures=futures)


def inside(price: Array, quotes: Quotes) -> float:
    """Counting of the design: bid ≤ model ≤ ask, to 1e-12."""
    return float(np.mean((price >= quotes.bid - 1e-12) & (price <= quotes.ask + 1e-12)))


def vix_otm(surface: ab.Surface, quotes: Quotes) -> Array:
    """Undiscounted out-of-the-money prices over the future that the quotes are written in."""
    forward = quotes.forwards[quotes.expiry]
    K = forward * np.exp(quotes.k)
    call, put = (surface.vix_option(K, quotes.T, side) for side in ("call", "put"))
    return np.where(quotes.k >= 0.0, call, put) / (forward * surface.discount(quotes.T))


def small(components: int = 1) -> JointObjective:
    """Both markets on few quotes, at a point away from the optimum."""
    options = FitOptions(components=components)
    T = np.array([0.05, 0.1, 0.18, 0.3, 0.5, 0.8])
    k = np.linspace(-0.25, 0.15, 9)
    at, strike = (part.ravel() for part in np.meshgrid(T, k, indexing="ij"))
    iv = 0.2 - 0.2 * strike + 0.02 * np.sqrt(at)
    spx = Quotes.from_frame({"T": at, "k": strike, "iv_bid": iv - 0.002, "iv_ask": iv + 0.002})
    at, strike = (
        part.ravel() for part in np.meshgrid([0.08, 0.25], np.linspace(-0.3, 1.0, 8), indexing="ij")
    )
    iv = 0.9 + 0.3 * strike
    table = {"T": at, "k": strike, "iv_bid": iv - 0.03, "iv_ask": iv + 0.03}
    vix = Quotes.from_frame({**table, "forward": np.full(at.size, 20.0)})
    market = VixMarket.from_quotes(vix, FuturesCurve.of([0.08, 0.16, 0.25], [19.5, 20.0, 20.5]))
    spx = with_windows(spx, market.quotes.maturities)
    return JointObjective(
        FitObjective.from_quotes(spx, options), VixObjective.from_market(market, options)
    )


def begin(both: JointObjective) -> Array:
    return np.concatenate([initial_point.start_from_quotes(both.spx), both.vix.initial_point()])


@pytest.mark.parametrize("components", [1, 2])
def test_forward_variances_are_those_of_the_surface(
    components: int, rng: np.random.Generator
) -> None:
    """Listed dates and others, before the first maturity and after the last one."""
    T, dates = np.array([0.02, 0.05, 0.1, 0.2, 0.5]), np.array([0.01, 0.05, 0.07, 0.3, 0.9])
    layout = UnknownLayout(FitOptions().line(), T.size, components)
    calm = np.log(0.2 * np.sqrt(T)[:, None]) + 0.1 * np.sort(rng.normal(size=(5, 31)), axis=0)
    crash = np.log(2.0) + 0.1 * rng.uniform(size=31)  # nested, and hardly parallel
    shares = np.sort(rng.uniform(0.05, 0.4, size=(components - 1, T.size)))
    z = layout.pack(np.stack([calm, calm + crash])[:components], shares)
    found = ForwardVariances(layout.knots, T, dates)

    def levels(z: Array) -> Array:
        """``log FV`` at unknowns."""
        return np.log(found.evaluate_at(*layout.decode(z)).forward_variance)

    slopes, weights = layout.decode(z)
    surface = Surface.from_slopes(layout.knots, T, slopes, weights=weights)
    assert np.allclose(np.exp(levels(z)), surface.forward_variance(dates), rtol=1e-9)
    by = found.evaluate_at(slopes, weights).gradient
    kinds = np.repeat([0, 1, 2], [31, 31, 1])[: layout.block_size]  # of the unknowns of an expiry
    for kind in np.unique(kinds):
        step = 1e-5 * rng.normal(size=z.size) * (np.tile(kinds, T.size) == kind)
        change = levels(z + step) - levels(z - step)
        assert np.allclose(change, 2.0 * by @ step, rtol=1e-4, atol=1e-10)
        # negative control: at the dates of other expiries the derivative is another
        wrong = np.roll(by.reshape(dates.size, *layout.shape), 1, axis=1).reshape(by.shape)
        assert not np.allclose(change, 2.0 * wrong @ step, rtol=0.05, atol=1e-8)


@pytest.mark.parametrize("components", [1, 2])
@pytest.mark.parametrize("part", ["both", "spx", "vix"])
def test_gradient_knows_that_the_vix_stands_on_the_index(
    part: str, components: int, rng: np.random.Generator
) -> None:
    both = small(components)
    z = begin(both)
    local = both.evaluate(z).expansion
    step = 1e-6 * rng.normal(size=z.size)
    step[both.split :] *= part != "spx"
    step[: both.split] *= part != "vix"
    change = both.evaluate(z + step).value - both.evaluate(z - step).value
    assert change == pytest.approx(2.0 * local.gradient @ step, rel=1e-5)
    if part == "spx":  # negative control: without the coupling the derivative is another
        alone = both.spx.evaluate(z[: both.split]).expansion.gradient @ step[: both.split]
        assert abs(2.0 * alone - change) > 2e-4 * abs(change)


@pytest.mark.parametrize("components", [1, 2])
def test_matrix_with_its_columns_is_the_gauss_newton_matrix(components: int) -> None:
    """Against JᵀWJ with J by differences of all residuals."""
    both = small(components)
    z = begin(both)
    local = both.evaluate(z).expansion
    assert local.coupling is not None
    dense = write_out(local.matrix) + local.coupling @ local.coupling.T

    def residuals(z: Array) -> Array:
        """Residuals of all quotes, those on the index first."""
        point = both.evaluate(z)
        return np.concatenate([point.spx.misfit.residuals, point.vix.misfit.residuals])

    loss, seen, indices = FitOptions().loss, residuals(z), len(both.spx.quotes)
    weight = np.concatenate(
        [loss(seen[:indices]).weight, loss.without_rim()(seen[indices:]).weight]
    )
    rows = np.empty((weight.size, z.size))
    for i in range(z.size):
        step = np.zeros(z.size)
        step[i] = 1e-5
        rows[:, i] = (residuals(z + step) - residuals(z - step)) / 2e-5
    exact = rows.T @ (weight[:, None] * rows)
    split = both.split
    for model, part in ((both.spx, slice(0, split)), (both.vix, slice(split, None))):
        exact[part, part] += np.stack(
            [model.quadratic.multiply(unit) for unit in np.eye(model.layout.size)], axis=1
        )
    assert np.abs(dense - exact).max() < 1e-4 * np.abs(exact).max()


class QuadraticPoint(NamedTuple):
    function: Quadratic
    z: Array

    @property
    def value(self) -> float:
        return self.function.value(self.z)

    @property
    def expansion(self) -> Expansion:
        return self.function.expand(self.z)


class Quadratic:
    """``½ (z − y)ᵀ (D + U Uᵀ) (z − y)``."""

    def __init__(self, y: Array, d: Array, u: Array, seen: bool = True) -> None:
        self.y, self.d, self.u, self.seen = y, d, u, seen

    def evaluate(self, z: Array) -> QuadraticPoint:
        return QuadraticPoint(self, z)

    def value(self, z: Array) -> float:
        away = z - self.y
        return float(0.5 * (away @ (self.d * away) + np.sum((self.u.T @ away) ** 2)))

    def expand(self, z: Array) -> Expansion:
        away = z - self.y
        gradient = self.d * away + self.u @ (self.u.T @ away)
        columns = self.u if self.seen else None
        return Expansion(self.value(z), gradient, self.d[:, None].copy(), columns)


def test_coupled_steps_are_newton_steps(rng: np.random.Generator) -> None:
    """On a quadratic the columns bring the fit home at once, and without them they do not."""
    y, d, u = rng.normal(size=40), rng.uniform(0.5, 2.0, 40), 3.0 * rng.normal(size=(40, 5))
    index = np.arange(40)
    wide = OrderConstraints(index, np.full(40, -1), np.full(40, 50.0))
    left = []
    for seen in (True, False):
        start = InteriorPoint.start_at(Quadratic(y, d, u, seen), wide, np.zeros(40), scale=1e-3)
        ended, _ = start.run(1e-12, 12)
        left.append(ended.point.value / start.point.value)
    assert left[0] < 1e-8
    assert left[1] > 1e-3


@pytest.mark.parametrize("name", ["calm", "stressed", "inverted", "rough", "jumpy"][: count(5, 1)])
def test_known_markets_are_recovered_within_their_noise(name: str) -> None:
    snapshot, surface = day(name), fitted(name)
    sheet, market = snapshot.volatility, snapshot.market
    assert sheet is not None
    assert surface.result is not None
    assert surface.result.status is Status.CONVERGED
    T, quotes = sheet.board.maturities, sheet.quotes
    assert inside(surface.otm(snapshot.quotes.k, snapshot.quotes.T), snapshot.quotes) > 0.999
    assert inside(vix_otm(surface, quotes), quotes) > 0.99
    half = 0.5 * (sheet.future_ask - sheet.future_bid)
    assert np.all(np.abs(surface.vix_future(T) - market.vix_future(T)) < half)
    K = quotes.forwards[quotes.expiry] * np.exp(quotes.k)
    truth = market.vix_iv(K, quotes.T)
    error, noise = surface.vix_iv(K, quotes.T) - truth, quotes.iv_mid - truth
    assert np.sqrt(np.mean(error**2)) < 0.7 * np.sqrt(np.mean(noise**2))
    assert np.abs(surface.vvix(T) / market.vvix(T) - 1.0).max() < 0.02
    root = [100.0 * np.sqrt(each.forward_variance(T)) for each in (surface, market)]
    assert np.abs(root[0] - root[1]).max() < 0.06


def test_the_coupling_is_exact_and_certified() -> None:
    surface = fitted("calm")
    assert surface.vix_slices is not None
    T = np.concatenate([surface.vix_slices.maturities, [0.03, 0.3, 1.1]])
    assert np.allclose(surface.vix_second_moment(T), surface.forward_variance(T), rtol=1e-12)
    assert certify_surface(surface).passed


def test_windows_between_expiries_have_maturities_of_their_own() -> None:
    spx, (vix, _) = day("calm").quotes, vix_side(day("calm"))
    surface = fitted("calm")
    ends = np.concatenate([vix.maturities, vix.maturities + WINDOW])
    apart = np.abs(ends[:, None] - surface.maturities).min(axis=1)
    assert np.all((apart < 0.31 / 365.0) | (ends > spx.maturities[-1]))
    assert np.isin(spx.maturities, surface.maturities).all()
    assert surface.result is not None
    assert surface.result.residuals.size == len(spx)
    assert np.allclose(surface.forward(spx.maturities), spx.forwards)


def test_a_monthly_vix_date_is_30_days_before_a_listed_expiry() -> None:
    """Settlement at the open of both: the window ends on SPX's AM expiry to the minute."""
    spx, (vix, _) = day("calm").quotes, vix_side(day("calm"))
    sheet = day("calm").volatility
    assert sheet is not None
    usual = np.array([date.weekday() == 2 for date in sheet.board.expiries])  # no holiday moved it
    ends = vix.maturities + WINDOW
    near = usual & (ends < 0.25)  # where the synthetic board lists every month
    apart = np.abs(ends[near][:, None] - spx.maturities).min(axis=1)
    assert near.any()
    assert np.all(apart < 1e-9)


def test_files_keep_a_joint_fit(tmp_path: Path) -> None:
    surface = fitted("calm")
    surface.save(tmp_path / "joint.npz")
    again = ab.Surface.load(tmp_path / "joint.npz")
    assert again.vix_future(0.1) == surface.vix_future(0.1)
    assert again.info["fit"]["vix"]["inside"] > 0.99


def test_without_vix_the_fit_is_what_it_was() -> None:
    surface = ab.fit(day("calm").quotes)
    assert surface.vix_slices is None
    assert surface.result is not None
    assert surface.result.vix is None
    assert np.array_equal(surface.maturities, day("calm").quotes.maturities)


def test_vix_smiles_alone() -> None:
    quotes, futures = vix_side(day("calm"))
    smiles = ab.fit_vix(quotes, futures)
    assert smiles.status is Status.CONVERGED
    assert np.allclose(smiles.vix_future(futures.maturities), futures.mid, rtol=1e-12)
    assert inside(vix_otm(smiles, quotes), quotes) > 0.97  # type: ignore[arg-type]
    table = smiles.against(ab.fit(day("calm").quotes))
    # one market: what differs is noise and the far tail
    assert np.abs(table["gap"].to_numpy()).max() < 1.0
    assert table["jensen"].to_numpy().min() > 0.0
    assert "6 dates" in repr(smiles)


def test_futures_alone_tell_the_order_of_the_width_of_the_vix() -> None:
    """``F = 100 √FV E√Y``: the future and the surface's variance leave one number a date."""
    snapshot = day("calm")
    _, futures = vix_side(snapshot)
    surface = ab.fit(snapshot.quotes, vix_futures=futures)
    assert surface.result is not None
    assert surface.result.vix is not None
    assert np.abs(surface.result.vix.future_errors).max() < 0.05
    late = futures.maturities > 0.2
    ratio = surface.vvix(futures.maturities[late]) / snapshot.market.vvix(futures.maturities[late])
    assert np.all((ratio > 0.5) & (ratio < 2.0))


def test_futures_between_option_dates_have_dates_of_their_own() -> None:
    quotes, futures = vix_side(day("calm"))
    few = quotes.select(quotes.expiry % 2 == 0)
    surface = ab.fit(day("calm").quotes, vix_quotes=few, vix_futures=futures)
    assert surface.vix_slices is not None
    assert surface.vix_slices.maturities.size == len(futures)
    assert np.abs(surface.vix_future(futures.maturities) - futures.mid).max() < 0.05


def test_a_prior_made_from_the_index_alone_gives_way_to_the_vix() -> None:
    """It fits its own quotes, so that they would trust it to the end: then no VIX quote fits."""
    spx, (vix, _) = day("calm").quotes, vix_side(day("calm"))
    raised = replace(vix, forwards=1.01 * vix.forwards)
    surface = ab.fit(spx, vix_quotes=raised, prior=ab.fit(spx))
    assert surface.result is not None
    assert surface.result.vix is not None
    assert inside(surface.otm(spx.k, spx.T), spx) > 0.98
    assert np.abs(surface.result.vix.future_errors).max() < 0.05


def test_given_roughness_and_one_expiry() -> None:
    spx, (vix, futures) = day("calm").quotes, vix_side(day("calm"))
    options = FitOptions(roughness=Roughness(1e-3, 1.0))
    surface = ab.fit(spx, vix_quotes=vix, vix_futures=futures, options=options)
    assert surface.result is not None
    assert surface.result.chosen == "given"
    one = spx.select(spx.expiry == 8)
    surface = ab.fit(one, vix_quotes=vix.select(vix.expiry == 0))
    assert np.isfinite(surface.vix_future(vix.maturities[0]))


def test_arguments_that_do_not_fit_together() -> None:
    spx, (vix, futures) = day("calm").quotes, vix_side(day("calm"))
    later = replace(vix, as_of=np.datetime64("2024-05-17T16:00"))
    with pytest.raises(ValueError, match="two markets of one moment"):
        ab.fit(spx, vix_quotes=later)
    with pytest.raises(ValueError, match="20 and not 1 or 4000"):
        ab.fit(spx, vix_quotes=spx)
    with pytest.raises(ValueError, match="vix_quotes is a list"):
        ab.fit(spx, vix_quotes=[1.0])  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="vix_futures is a list"):
        ab.fit(spx, vix_quotes=vix, vix_futures=[20.0])  # type: ignore[arg-type]
    close = FuturesCurve.of(vix.maturities[0] + np.array([0.0, 0.001]), [20.0, 20.0])
    with pytest.raises(ValueError, match="two futures settle on the date"):
        ab.fit(spx, vix_quotes=vix, vix_futures=close)
    with pytest.raises(ValueError, match="needs at least 3"):
        ab.fit_vix(vix.select(np.arange(len(vix)) < 2), futures)


def test_two_components_are_recovered_in_both_markets() -> None:
    """Jumps: where one starts from does not matter, and the first component keeps no misses."""
    spx, (vix, futures) = day("jumpy").quotes, vix_side(day("jumpy"))
    two = FitOptions(components=2)
    surface = ab.fit(spx, vix_quotes=vix, vix_futures=futures, options=two)
    assert surface.result.status is Status.CONVERGED
    assert surface.slopes.shape[0] == 2
    assert surface.result.objective < fitted("jumpy").result.objective
    assert inside(surface.otm(spx.k, spx.T), spx) > 0.999
    assert inside(vix_otm(surface, vix), vix) > 0.99
    T = np.concatenate([futures.maturities, [0.03, 0.3, 1.1]])
    assert np.allclose(surface.vix_second_moment(T), surface.forward_variance(T), rtol=1e-12)
    assert certify_surface(surface).passed
    warm = ab.fit(spx, vix_quotes=vix, vix_futures=futures, options=two, start=surface)
    guided = ab.fit(spx, vix_quotes=vix, vix_futures=futures, options=two, prior=surface)
    for again in (warm, guided):
        assert again.result.status is Status.CONVERGED
        assert np.abs(again.result.residuals - surface.result.residuals).max() < 0.5
        assert np.abs(again.vix_future(T[:6]) - futures.mid).max() < 0.05


@pytest.mark.parametrize("components", [1, 2])
def test_the_joint_day(components: int, data_dir: Path) -> None:
    """2023-02-15: 48 SPX expiries and 12 VIX expiries (README of the data)."""
    spx, vix = (
        ab.read_volatilities(data_dir / "joint" / f"{name}_implied_vol_20230215.csv")
        for name in ("spx", "vix")
    )
    surface = ab.fit(spx, vix_quotes=vix, options=FitOptions(components=components))
    assert surface.result is not None
    assert surface.result.status is Status.CONVERGED
    assert inside(surface.otm(spx.k, spx.T), spx) >= 0.99
    assert inside(vix_otm(surface, vix), vix) >= 0.98
    assert np.abs(surface.vix_future(vix.maturities) - vix.forwards).max() <= 0.05
    T = vix.maturities
    assert np.allclose(surface.vix_second_moment(T), surface.forward_variance(T), rtol=1e-12)
    assert certify_surface(surface).passed
    if components == 2:
        return
    # beside it the free fits: the markets by themselves disagree, and more at later dates
    smiles, free = ab.fit_vix(vix), ab.fit(spx)
    assert inside(free.otm(spx.k, spx.T), spx) >= 0.999
    gap = smiles.against(free)["gap"].to_numpy()
    assert np.abs(gap[:3]).max() < 0.3
    assert 1.0 < np.abs(gap).max() < 5.0
