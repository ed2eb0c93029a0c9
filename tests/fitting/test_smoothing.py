"""Roughness: its quadratic form, and the weights that the data choose for it."""

from __future__ import annotations

from dataclasses import astuple, replace
from functools import partial

import numpy as np
import pytest

from arbiter.conventions import Array
from arbiter.fitting import FitOptions, Loss, Roughness, fit, initial_point
from arbiter.fitting.interior_point import InteriorPoint, Status
from arbiter.fitting.objective import FitObjective
from arbiter.fitting.roughness import Penalty
from arbiter.fitting.unknowns import UnknownLayout
from arbiter.quotes import Quotes
from arbiter_lab.evaluation.heston_surfaces import heston_surface, oracle_rmse_bp
from counts import count
from dense_matrices import write_out

OPTIONS = FitOptions()
SMOOTH = FitOptions(loss=Loss(wall=0.0, far=1e3, rim=0.0))  # least squares


def roughness_by_hand(knots: Array, T: Array, u: Array, weights: Roughness, reach: Array) -> float:
    """The penalty, term by term as its docstring has it."""
    total = 0.0
    gap = np.diff(knots)
    span = 0.5 * (gap[1:] + gap[:-1])
    mass = np.concatenate([[gap[0]], gap[1:] + gap[:-1], [gap[-1]]]) / 2.0
    tau = 0.5 * np.log(T)

    def curvature(row: Array) -> Array:
        slope = np.diff(row) / gap
        return np.asarray(np.diff(slope) / span)

    for i, row in enumerate(u):
        middle = 0.5 * (knots[1:] + knots[:-1])
        outside = (middle < reach[i, 0]) | (middle > reach[i, 1])
        between = ~(outside[1:] & outside[:-1])  # knots beside a segment that is quoted
        total += 0.5 * weights.strike * np.sum((span * curvature(row) ** 2)[between])
        total += 0.5 * np.sum((0.03 + 0.3 * outside) * np.diff(row) ** 2 / gap)
    for i in range(len(T) - 1):
        step = (u[i + 1] - tau[i + 1]) - (u[i] - tau[i])
        apart = tau[i + 1] - tau[i]
        total += 0.5 * weights.maturity * np.sum(mass * step**2) / apart
        total += 0.5 * weights.twist * np.sum(span * curvature(step) ** 2) / apart
    return float(total)


def ragged() -> Quotes:
    """Four expiries with 5, 9, 3 and 12 quotes."""
    T = np.repeat([0.05, 0.2, 0.25, 1.3], [5, 9, 3, 12])
    k = np.concatenate(
        [
            np.linspace(-0.3, 0.15, n) * np.sqrt(t)
            for n, t in zip([5, 9, 3, 12], [0.05, 0.2, 0.25, 1.3], strict=True)
        ]
    )
    iv = 0.2 - 0.3 * k / np.sqrt(T + 0.1)
    return Quotes.from_frame({"T": T, "k": k, "iv_bid": 0.98 * iv, "iv_ask": 1.02 * iv})


@pytest.mark.parametrize("components", [1, 2])
def test_the_prior_is_the_quadratic_form_it_stands_for(
    components: int, rng: np.random.Generator
) -> None:
    weights = Roughness(0.7, 3.0, 1.9)
    plain = FitObjective.from_quotes(ragged(), replace(OPTIONS, components=components))
    model = plain.with_roughness(weights)
    layout, quadratic = model.layout, model.quadratic
    logs = rng.normal(-1.0, 0.5, (components, layout.expiry_count, layout.knot_count))
    shares = rng.uniform(0.05, 0.4, (components - 1, layout.expiry_count))
    z = layout.pack(logs, shares)
    away = z - quadratic.centre
    value = 0.5 * away @ write_out(quadratic.band) @ away
    assert quadratic.evaluate_at(z)[0] == pytest.approx(value, rel=1e-12)
    reach, maturities = model.misfit.smiles.quoted_range, model.quotes.maturities
    expected = sum(roughness_by_hand(layout.knots, maturities, u, weights, reach) for u in logs)
    if components == 2:  # the second is drawn to twice the first; shares move slowly
        expected += 0.5 * 0.03 * np.sum((logs[1] - logs[0] - np.log(2.0)) ** 2)
        expected += 0.5 * np.sum(np.diff(shares[0]) ** 2 / np.diff(model.penalty.tau))
        expected += 0.5e-6 * np.sum(shares**2)
    assert value == pytest.approx(expected, rel=1e-9)
    twisted = replace(weights, twist=1.8)
    wrong = roughness_by_hand(layout.knots, maturities, logs[0], twisted, reach)
    assert wrong != pytest.approx(expected, rel=1e-5)


def test_flat_volatility_costs_nothing() -> None:
    T = np.array([0.1, 0.5, 2.0])
    knots = np.array(OPTIONS.knots)
    penalty = Penalty(UnknownLayout(knots, 3, 1), T, np.tile([-3.0, 3.0], (3, 1)))
    flat = np.log(0.2 * np.sqrt(T))[:, None] + np.zeros(knots.size) - penalty.tau[:, None]

    def roughnesses(logs: Array) -> list[float]:
        return penalty.evaluate_terms(logs.reshape(-1))

    assert np.allclose(roughnesses(flat)[:3], 0.0, atol=1e-11)
    tilted = flat + 0.1 * knots
    assert roughnesses(tilted)[0] == pytest.approx(0.0, abs=1e-11)  # straight in x
    wavy = flat + 0.1 * np.sin(knots)
    assert roughnesses(wavy)[0] > 0.01
    moving = np.array([[0.0], [0.1], [0.0]])
    assert roughnesses(flat + moving)[1] > 0.01


def test_the_gradient_and_the_matrix_are_those_of_the_objective(rng: np.random.Generator) -> None:
    for components in (1, 2):
        model = FitObjective.from_quotes(ragged(), replace(OPTIONS, components=components))
        z = initial_point.start_from_quotes(model)
        local = model.evaluate(z).expansion
        direction = rng.normal(size=z.size) * 1e-5
        up, down = (model.evaluate(z + move).value for move in (direction, -direction))
        assert 0.5 * (up - down) == pytest.approx(local.gradient @ direction, rel=1e-4)
        assert 0.5 * (up - down) != pytest.approx(1.01 * local.gradient @ direction, rel=1e-4)


def laplace(quotes: Quotes, weights: Roughness, dispersion: float) -> float:
    """Log marginal likelihood of the weights at a given dispersion, by dense determinants.

    NaN where a constraint binds: its stiffness would count as information.
    """
    model = FitObjective.from_quotes(quotes, SMOOTH).with_roughness(weights)
    interior, status = InteriorPoint.start_at(
        model,
        model.build_constraints(),
        initial_point.start_from_quotes(model),
        scale=1e-3 * len(quotes),
    ).run(1e-8, 200)
    assert status is Status.CONVERGED
    if interior.slacks.min() < 1e-3:
        return np.nan
    before = write_out(model.quadratic.band)
    prior = np.linalg.slogdet(before + 1e-8 * np.eye(model.layout.size))[1]
    after = write_out(interior.matrix())
    return float(-interior.point.value / dispersion + 0.5 * (prior - np.linalg.slogdet(after)[1]))


def test_the_chosen_weights_maximise_the_marginal_likelihood() -> None:
    """Each weight, and all of them, moved by a factor of 4 either way, are less likely.

    With least squares: the determinant of a loss with walls jumps whenever a quote enters one.
    """
    seeds = range(300, 300 + count(full=10, reduced=2))
    free = 0
    for seed in seeds:
        quotes = heston_surface(seed).quotes
        result = fit(quotes, options=SMOOTH).result
        assert result is not None
        chosen = np.array(astuple(result.roughness)[:3])
        moves = [direction * sign for direction in [*np.eye(3), np.ones(3)] for sign in (-1, 1)]
        best, *others, far = (
            laplace(quotes, Roughness(*(chosen * 4.0**move)), result.dispersion)
            for move in [np.zeros(3), *moves, np.full(3, -4.0)]
        )
        if np.isfinite([best, *others]).all():
            free += 1
            assert max(others) < best - 0.5
            assert not far > best - 10.0
    assert free >= len(seeds) / 2


def test_the_chosen_roughness_is_nearly_the_best_of_a_grid() -> None:
    """Within 12 % (hard: 25 %) of the best fixed weights' error, which only an oracle knows."""
    seeds = range(400, 400 + count(full=24, reduced=12))
    for hard, within in ((False, 1.12), (True, 1.25)):
        chosen = oracle_rmse_bp(fit, seeds, hard)
        errors = {}
        for factor in (0.01, 0.1, 1.0, 10.0):
            weights = Roughness(0.3 * factor, 6.0 * factor, 4.0 * factor)
            options = FitOptions(roughness=weights)
            errors[factor] = oracle_rmse_bp(partial(fit, options=options), seeds, hard)
        assert chosen < within * min(errors.values())
        assert max(errors.values()) > 1.3 * chosen  # and the weights do matter


def noisy(seed: int, wide: float) -> Quotes:
    """One smile family with mids scattered by ``wide`` half-spreads, half-spreads alike."""
    rng = np.random.default_rng(seed)
    surface = heston_surface(500)
    T = np.broadcast_to(surface.T[:, None], surface.k.shape)
    iv = surface.iv_oracle
    mid = iv + 0.004 * wide * rng.uniform(-1.0, 1.0, iv.shape)
    table = {"T": T.ravel(), "k": surface.k.ravel()}
    return Quotes.from_frame(
        {**table, "iv_bid": (mid - 0.004).ravel(), "iv_ask": (mid + 0.004).ravel()}
    )


def test_more_noise_means_more_smoothing() -> None:
    clean, rough = (fit(noisy(1, wide)).result for wide in (0.1, 0.9))
    assert clean is not None
    assert rough is not None
    assert rough.dispersion > 10.0 * clean.dispersion
    assert rough.freedom < clean.freedom
    for name in ("strike", "maturity", "twist"):
        assert getattr(rough.roughness, name) > 2.0 * getattr(clean.roughness, name)


def test_cross_validation_is_a_choice_too() -> None:
    surface = heston_surface(501)
    fitted = fit(surface.quotes, options=FitOptions(roughness="gcv"))
    assert fitted.result is not None
    assert fitted.result.chosen == "gcv"
    assert fitted.result.status is Status.CONVERGED
    error = fitted.iv(surface.k, surface.T[:, None]) - surface.iv_oracle
    assert np.sqrt(np.mean(error**2)) < 10e-4


def test_a_given_roughness_is_used_as_given() -> None:
    quotes = heston_surface(502).quotes
    stiff, loose = Roughness(50.0, 500.0, 50.0), Roughness(0.01, 0.1, 0.0)
    results = [fit(quotes, options=FitOptions(roughness=r)).result for r in (stiff, loose)]
    for result, given in zip(results, (stiff, loose), strict=True):
        assert result is not None
        assert result.roughness == given
        assert result.chosen == "given"
        assert result.status is Status.CONVERGED
    assert results[0] is not None
    assert results[1] is not None
    assert results[0].freedom < 0.5 * results[1].freedom


def test_a_given_roughness_finds_the_surface_of_the_fit_that_chose_it() -> None:
    """Also where many quotes are wrong: the rim, which is not convex, comes last in both."""
    apart, caught_apart = [], []
    for seed in range(842, 850):
        quotes, rng = heston_surface(seed).quotes, np.random.default_rng(seed)
        shift = rng.uniform(-1.2, 1.2, len(quotes)) * quotes.half_spread
        quotes = replace(quotes, bid=np.maximum(quotes.bid + shift, 1e-9), ask=quotes.ask + shift)
        chosen = fit(quotes).result
        given = fit(quotes, options=FitOptions(roughness=chosen.roughness)).result
        # the control: under the whole loss from the first step on, it is caught elsewhere
        model = FitObjective.from_quotes(quotes, FitOptions()).with_roughness(chosen.roughness)
        z, order = initial_point.start_from_quotes(model), model.build_constraints()
        caught, _ = InteriorPoint.start_at(model, order, z, scale=1e-3 * len(quotes)).run(1e-4, 200)
        apart.append(abs(given.objective / chosen.objective - 1.0))
        caught_apart.append(abs(caught.point.value / chosen.objective - 1.0))
    assert max(apart) < 0.01 < max(caught_apart)
    assert np.mean(apart) < 0.005 < np.mean(caught_apart)
