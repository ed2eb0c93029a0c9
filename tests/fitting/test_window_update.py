"""An update after some quotes changed: the fit of all quotes, at the cost of few expiries."""

from __future__ import annotations

import copy
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from arbiter.chains import read_chain
from arbiter.conventions import Array
from arbiter.fitting import FitOptions, FittedSurface, Loss, fit, window_update
from arbiter.fitting.fitted_window import FittedWindow
from arbiter.fitting.objective import FitObjective
from arbiter.quotes import AskBounds, Quotes
from arbiter.timing.clock import Clock
from arbiter.vix.prior import vix_prior
from arbiter_lab.evaluation.heston_surfaces import heston_surface
from counts import count


def move_expiry(quotes: Quotes, expiry: int, half_spreads: Array) -> Quotes:
    """Bids and asks of one expiry moved by some half-spreads."""
    shift = np.where(quotes.expiry == expiry, half_spreads, 0.0) * quotes.half_spread
    return replace(quotes, bid=np.maximum(quotes.bid + shift, 1e-12), ask=quotes.ask + shift)


def fit_again(surface: FittedSurface, quotes: Quotes) -> FittedSurface:
    """The fit of all quotes with the same weights."""
    made = surface.source.options if surface.source is not None else FitOptions(tolerance=1e-6)
    return fit(quotes, options=replace(made, roughness=surface.result.roughness, tolerance=1e-6))


def measure_gap(one: FittedSurface, other: FittedSurface, quotes: Quotes) -> float:
    """The largest distance of two surfaces at the quotes, in half-spreads."""
    apart = one.otm(quotes.k, quotes.T) - other.otm(quotes.k, quotes.T)
    return float(np.abs(apart / quotes.half_spread).max())


@pytest.mark.parametrize("size", [0.2, 1.0])
def test_an_update_is_a_fit_of_all_quotes(size: float, rng: np.random.Generator) -> None:
    for seed in range(800, 800 + count(full=20, reduced=3)):
        quotes = heston_surface(seed).quotes
        surface = fit(quotes, options=FitOptions(tolerance=1e-6))
        expiry = int(rng.integers(quotes.maturities.size))
        moved = move_expiry(quotes, expiry, rng.uniform(-size, size, len(quotes)))
        updated, whole = surface.update(moved), fit_again(surface, moved)
        assert updated.result.status.value == "converged"
        assert measure_gap(updated, whole, moved) < 0.05
        assert measure_gap(surface, whole, moved) > 0.05  # negative control: something moved
        assert np.all(np.diff(updated.slopes, axis=1) >= 0.0)
        assert updated.result.objective == pytest.approx(whole.result.objective, rel=2e-3)
        price = updated.otm(moved.k, moved.T)
        assert np.allclose(updated.result.residuals, (price - moved.mid) / moved.half_spread, 1e-6)


def test_neighbours_move_when_the_order_binds(monkeypatch: pytest.MonkeyPatch) -> None:
    """An expiry far above its neighbours pushes those after it up; a window alone would not do."""
    quotes = heston_surface(821).quotes
    # of a convex loss: with the rim such a move is a fit of all quotes
    surface = fit(quotes, options=FitOptions(tolerance=1e-6, loss=Loss(rim=0.0)))
    moved = move_expiry(quotes, 4, np.full(len(quotes), 12.0))
    monkeypatch.setattr(FittedWindow, "pushes_quotes_out", lambda _: False)
    updated, whole = surface.update(moved), fit_again(surface, moved)
    assert measure_gap(updated, whole, moved) < 0.05
    assert np.all(updated.slopes[0, 5] != surface.slopes[0, 5])
    monkeypatch.setattr(window_update, "MAX_GAIN_BESIDE", np.inf)
    assert measure_gap(surface.update(moved), whole, moved) > 0.05


def test_a_move_that_pushes_quotes_out_is_a_fit_of_all_quotes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Beyond the edge of the spread the loss is not convex, and a window ends elsewhere."""
    made = [heston_surface(seed).quotes for seed in range(821, 821 + count(full=8, reduced=2))]
    surfaces = [fit(quotes, options=FitOptions(tolerance=1e-6)) for quotes in made]

    def largest_gap() -> float:
        gaps = []
        for quotes, surface in zip(made, surfaces, strict=True):
            for size in (7.0, 10.0, 14.0):
                moved = move_expiry(quotes, 4, np.full(len(quotes), size))
                updated = surface.update(moved)
                gaps.append(measure_gap(updated, fit_again(surface, moved), moved))
                assert updated.result.chosen == "kept"
                assert updated.update(moved) is updated  # and goes on being updated
        return max(gaps)

    assert largest_gap() < 0.05
    monkeypatch.setattr(FittedWindow, "pushes_quotes_out", lambda _: False)
    assert largest_gap() > 0.05  # the control


def test_expiries_far_away_keep_their_bits(rng: np.random.Generator) -> None:
    quotes = heston_surface(822).quotes
    surface = fit(quotes)
    updated = surface.update(move_expiry(quotes, 2, rng.uniform(-0.05, 0.05, len(quotes))))
    assert np.array_equal(updated.slopes[0, 10:], surface.slopes[0, 10:])
    assert not np.array_equal(updated.slopes[0, 2], surface.slopes[0, 2])
    assert updated.result.chosen == "kept"
    assert updated.result.roughness == surface.result.roughness
    error, before = (
        updated.iv_error(0.0, quotes.maturities),
        surface.iv_error(0.0, quotes.maturities),
    )
    assert np.allclose(error, before, rtol=0.2)


def test_an_update_goes_on_from_an_update(rng: np.random.Generator) -> None:
    quotes = heston_surface(823).quotes
    surface = fit(quotes, options=FitOptions(tolerance=1e-6))
    found = surface
    for expiry in (3, 9, 3, 15, 0):
        quotes = move_expiry(quotes, expiry, rng.uniform(-0.3, 0.3, len(quotes)))
        found = found.update(quotes)
    assert measure_gap(found, fit_again(surface, quotes), quotes) < 0.1
    copied = copy.deepcopy(found)
    again = move_expiry(quotes, 5, np.full(len(quotes), 0.2))
    assert np.array_equal(copied.update(again).slopes, found.update(again).slopes)


def test_quotes_may_come_and_go() -> None:
    quotes = heston_surface(824).quotes
    keep = ~((quotes.expiry == 6) & (np.arange(len(quotes)) % 3 == 0))
    fewer = quotes.select(keep)
    surface = fit(quotes, options=FitOptions(tolerance=1e-6))
    updated = surface.update(fewer)
    assert measure_gap(updated, fit_again(surface, fewer), fewer) < 0.05
    assert updated.result.residuals.size == len(fewer)


def test_nothing_changed_is_the_same_surface() -> None:
    quotes = heston_surface(825).quotes
    surface = fit(quotes)
    assert surface.update(quotes) is surface
    assert surface.update(replace(quotes, bid=quotes.bid.copy())) is surface


def test_forwards_and_moments_may_change_alone() -> None:
    quotes = replace(heston_surface(827).quotes, as_of=np.datetime64("2026-01-05T12:00"))
    surface = fit(quotes)
    later = replace(
        quotes, forwards=1.01 * quotes.forwards, as_of=np.datetime64("2026-01-05T12:01")
    )
    updated = surface.update(later)
    assert np.array_equal(updated.slopes, surface.slopes)
    assert float(updated.forward(0.5)) == pytest.approx(1.01 * float(surface.forward(0.5)))
    assert updated.as_of == later.as_of
    assert updated.update(quotes).as_of == quotes.as_of


def test_what_was_said_of_the_vix_is_kept() -> None:
    quotes = heston_surface(828).quotes
    plain = fit(quotes)
    surface = plain.with_vix(vix_prior(plain, np.array([0.1, 0.3])).slices)
    small, large = (np.full(len(quotes), size) for size in (0.05, 20.0))
    for moved in (move_expiry(quotes, 4, size) for size in (small, large)):
        assert surface.update(moved).vix_slices is surface.vix_slices


def test_other_kinds_of_fit_are_refused_with_the_remedy() -> None:
    quotes = heston_surface(826).quotes
    surface = fit(quotes)
    with pytest.raises(ValueError, match=r"they differ: take fit\(quotes, start=surface\)"):
        surface.update(quotes.select(quotes.expiry > 0))
    with pytest.raises(ValueError, match="fits of one component"):
        fit(quotes, options=FitOptions(components=2)).update(quotes)
    with pytest.raises(ValueError, match="with a prior"):
        fit(quotes, prior=surface).update(quotes)
    with pytest.raises(ValueError, match="had weights"):
        fit(quotes, weights=np.where(quotes.k > 0.0, 1.0, 0.5)).update(quotes)


def evaluate_whole(surface: FittedSurface, quotes: Quotes) -> float:
    """The objective of all quotes at the slopes of a surface."""
    objective = FitObjective.from_quotes(quotes, FitOptions())
    objective = objective.with_roughness(surface.result.roughness)
    return objective.evaluate(np.log(surface.slopes[0]).reshape(-1)).value


def test_the_objective_is_that_of_all_quotes(rng: np.random.Generator) -> None:
    """Also where quotes end elsewhere: then the penalty has changed in the expiry that moved."""
    quotes = heston_surface(829).quotes
    surface = fit(quotes)
    ends = (quotes.expiry == 7) & (np.diff(quotes.expiry, prepend=-1) != 0)
    shorter = quotes.select(~(ends | np.roll(ends, 1) | np.roll(ends, 2)))
    moved = move_expiry(quotes, 3, rng.uniform(-0.5, 0.5, len(quotes)))
    for changed in (shorter, moved):
        updated = surface.update(changed)
        value = evaluate_whole(updated, changed)
        assert updated.result.objective == pytest.approx(value, rel=1e-9)
        assert updated.result.objective != pytest.approx(surface.result.objective, rel=1e-6)
        again = move_expiry(changed, 6, np.full(len(changed), 0.3))
        last = updated.update(again)
        assert last.result.objective == pytest.approx(evaluate_whole(last, again), rel=1e-9)


def test_the_information_is_that_of_a_fit_of_all_quotes() -> None:
    """Standard errors of a chain of updates are those of one fit.

    Where no quote lies on another side of the wall: its stiffness would jump by a factor of 21.
    """
    quotes = heston_surface(831).quotes
    surface = fit(quotes, options=FitOptions(tolerance=1e-6))
    updated = surface
    for expiry in (4, 5, 11):
        quotes = move_expiry(quotes, expiry, np.full(len(quotes), 0.8))
        updated = updated.update(quotes)
    whole = fit_again(surface, quotes)
    k, T = np.linspace(-0.2, 0.1, 7), quotes.maturities[[4, 5, 11], None]
    scale = np.sqrt(surface.result.dispersion / whole.result.dispersion)
    assert np.allclose(updated.iv_error(k, T), scale * whole.iv_error(k, T), rtol=0.01)
    assert not np.allclose(updated.iv_error(k, T), surface.iv_error(k, T), rtol=0.01)


@pytest.mark.parametrize(
    ("size", "bounds", "most"), [(0.1, False, 0.05), (0.5, False, 0.05), (0.5, True, 0.1)]
)
def test_updates_of_a_listed_chain_are_fits_of_all_quotes(
    data_dir: Path, size: float, bounds: bool, most: float, rng: np.random.Generator
) -> None:
    """Slopes at their bound and orders that bind over many expiries included."""
    quotes = read_chain(data_dir / "chains" / "spx_2023-09-14_close.csv").quotes()
    if not bounds:
        quotes = replace(quotes, bounds=AskBounds())
    surface = fit(quotes, options=FitOptions(tolerance=1e-6))
    assert np.log(surface.slopes[0]).max() > np.log(5.0) - 1e-6  # control: some are at the bound
    for expiry in range(0, quotes.maturities.size, count(full=3, reduced=9)):
        noise, shift = rng.uniform(-size, size, len(quotes)), np.full(len(quotes), size)
        for move in (noise, shift):
            moved = move_expiry(quotes, expiry, move)
            updated, whole = surface.update(moved), fit_again(surface, moved)
            assert measure_gap(updated, whole, moved) < most
        assert measure_gap(surface, whole, moved) > most  # control: the shift moved something


def test_an_update_keeps_the_clock_of_the_fit() -> None:
    """The new quotes come from a reader that knows of no clock."""
    quotes = replace(heston_surface(831).quotes, as_of=np.datetime64("2026-01-05T12:00"))
    surface = fit(quotes, options=FitOptions(tolerance=1e-6), clock=Clock.trading())
    moved = move_expiry(quotes, 4, np.full(len(quotes), 0.5))
    updated, whole = surface.update(moved), fit_again(surface, moved.with_clock(Clock.trading()))
    assert updated.clock == surface.clock == Clock.trading()
    assert measure_gap(updated, whole, moved) < 0.05
    between = np.sqrt(quotes.maturities[4:6].prod())
    assert float(updated.iv(0.0, between)) == pytest.approx(float(whole.iv(0.0, between)), rel=1e-4)
    later = surface.update(replace(quotes, forwards=1.01 * quotes.forwards))
    assert later.clock == Clock.trading()
    plain = fit_again(surface, moved)  # the control: without the clock it runs otherwise between
    assert abs(float(plain.iv(0.0, between)) / float(whole.iv(0.0, between)) - 1.0) > 1e-3
