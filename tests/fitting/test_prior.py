"""A fit with a prior: better where the prior is good, no worse where it is bad, fewer steps."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import astuple, replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from arbiter.chains import read_chain
from arbiter.fitting import (
    FitOptions,
    FitResult,
    FittedSurface,
    Loss,
    Roughness,
    Status,
    fit,
    initial_point,
    smoothing,
)
from arbiter.fitting.interior_point import InteriorPoint
from arbiter.fitting.objective import FitObjective, FitPoint
from arbiter.models.heston import Heston
from arbiter.quotes import Quotes
from arbiter.scoring import score
from arbiter.surface import Surface
from arbiter_lab.evaluation.heston_surfaces import (
    MATURITY_DAYS,
    STRIKE_DEVIATIONS,
    HestonSurface,
    draw_heston,
    heston_surface,
)
from counts import count

T = MATURITY_DAYS / 365.0
NAMES = ("v0", "kappa", "theta", "sigma", "rho")
SMOOTH = FitOptions(loss=Loss(wall=0.0, far=1e3, rim=0.0))  # least squares


def report(surface: FittedSurface) -> FitResult:
    assert surface.result is not None
    return surface.result


def noiseless(heston: Heston) -> Surface:
    """The surface of a model, without its noise."""
    k = STRIKE_DEVIATIONS * (heston.reference_volatility(T) * np.sqrt(T))[:, None]
    iv = heston.iv(k, T)
    table = {"T": np.broadcast_to(T[:, None], k.shape).ravel(), "k": k.ravel()}
    both = {"iv_bid": (iv - 1e-4).ravel(), "iv_ask": (iv + 1e-4).ravel()}
    options = FitOptions(roughness=Roughness(1e-3, 1e-2, 1e-2))
    return fit(Quotes.from_frame({**table, **both}), options=options)


@cache
def truth(seed: int) -> Surface:
    return noiseless(draw_heston(np.random.default_rng(seed)))


@cache
def nearby(seed: int) -> Surface:
    """Every parameter 5 % off, up or down: 50 bp of volatility."""
    market = draw_heston(np.random.default_rng(seed))
    signs = np.random.default_rng(seed + 777).choice([-1.0, 1.0], 5)
    moved = {n: getattr(market, n) * (1.0 + 0.05 * s) for n, s in zip(NAMES, signs, strict=True)}
    return noiseless(Heston(**moved))


def flat(_: int) -> Surface:
    knots = np.array(FitOptions().knots)
    return Surface.from_slopes(knots, T, np.tile(0.2 * np.sqrt(T)[:, None], (1, knots.size)))


def doubled(seed: int) -> Surface:
    true = truth(seed)
    return Surface.from_slopes(true.knots, T, 2.0 * true.slopes[0])


def another(seed: int) -> Surface:
    """A market that has nothing to do with the quotes."""
    return truth(seed + 5000)


def rippled(seed: int) -> Surface:
    """The truth with slopes up and down by 15 % from one quote to the next few."""
    true = truth(seed)
    wave = 0.15 * np.sin(3.0 * true.knots + 20.0 * np.sqrt(T)[:, None])
    slopes = np.maximum.accumulate(true.slopes[0] * np.exp(wave), axis=0)
    return Surface.from_slopes(true.knots, T, slopes * np.exp(1e-6 * T)[:, None])


@cache
def market(seed: int, hard: bool) -> tuple[HestonSurface, FittedSurface]:
    surface = heston_surface(seed, hard)
    return surface, fit(surface.quotes)


def square_error(found: Surface, surface: HestonSurface) -> float:
    return float(np.mean((found.iv(surface.k, T[:, None]) - surface.iv_oracle) ** 2))


def gain(prior: Callable[[int], Surface], hard: bool, seeds: range) -> float:
    """Error with the prior over error without, pooled over surfaces."""
    errors = np.zeros(2)
    for seed in seeds:
        surface, cold = market(seed, hard)
        found = fit(surface.quotes, prior=prior(seed))
        assert report(found).status is Status.CONVERGED
        errors += [square_error(found, surface), square_error(cold, surface)]
    return float(np.sqrt(errors[0] / errors[1]))


SEEDS = range(700, 700 + count(full=24, reduced=4))


@pytest.mark.parametrize(("hard", "least"), [(False, 0.8), (True, 0.65)])
def test_a_good_prior_makes_a_better_fit(hard: bool, least: float) -> None:
    """Half the error on hard quotes; a prior that says nothing gains nothing."""
    assert gain(nearby, hard, SEEDS) < least
    assert gain(flat, hard, SEEDS) > 0.85


@pytest.mark.parametrize(
    ("prior", "hard"),
    [*((p, hard) for p in (flat, doubled, another) for hard in (False, True)), (rippled, False)],
)
def test_a_bad_prior_is_switched_off(prior: Callable[[int], Surface], hard: bool) -> None:
    """Flat at 20 %, twice the volatility, another market, ripples: at most 5 % worse than none."""
    assert gain(prior, hard, SEEDS) <= 1.05


def test_a_prior_that_cannot_be_switched_off_does_harm() -> None:
    """The negative control of the last test: the same priors with weights that insist."""
    surface, cold = market(700, True)
    insist = FitOptions(roughness=Roughness(1e3, 1e3, 1e3, 1e3))
    for prior in (flat, doubled, another):
        found = fit(surface.quotes, prior=prior(700), options=insist)
        assert square_error(found, surface) > 9.0 * square_error(cold, surface)


def test_the_quotes_say_what_they_made_of_it() -> None:
    surface, cold = market(701, False)
    assert report(cold).trust is None
    good, bad = (report(fit(surface.quotes, prior=p(701))) for p in (nearby, doubled))
    assert good.trust is not None
    assert good.trust > 0.85
    assert bad.roughness.level < 0.05 < good.roughness.level  # its level is of no use
    assert good.freedom < 0.8 * report(cold).freedom
    trust = report(fit(surface.quotes, prior=rippled(701))).trust
    assert trust is not None
    assert trust < 0.5


@pytest.mark.parametrize("hard", [False, True])
def test_a_fit_is_its_own_prior(hard: bool) -> None:
    """Quotes that a prior has already seen do not count twice."""
    surface, cold = market(702, hard)
    again = fit(surface.quotes, prior=cold)
    moved = np.sqrt(
        np.mean((again.iv(surface.k, T[:, None]) - cold.iv(surface.k, T[:, None])) ** 2)
    )
    off = np.sqrt(square_error(cold, surface))
    assert moved < 0.15 * off
    assert report(again).iterations <= 0.5 * report(cold).iterations
    other = fit(surface.quotes, prior=flat(702))
    assert np.abs(other.iv(surface.k, T[:, None]) - cold.iv(surface.k, T[:, None])).max() > moved


CLOSES = [
    "spx_2023-02-07_close.csv",
    "spx_2023-09-14_close.csv",
    "spx_2020-09-04_close.dat",
    "spx_2022-02-04_close.csv",
    "spx_2022-07-12_1155ET.csv",
    "spx_2023-08-18_close.csv",
]


@pytest.mark.parametrize("name", CLOSES[: count(full=6, reduced=2)])
def test_a_refinement_takes_half_the_steps_of_a_fit(name: str, data_dir: Path) -> None:
    """From a prior 25 to 50 bp away, most quotes outside their spreads, to a fit as good."""
    quotes = read_chain(data_dir / "chains" / name).quotes()
    cold = fit(quotes)
    tau = 0.5 * np.log(cold.maturities)[:, None]
    wave = 0.02 + 0.03 * np.sin(1.3 * cold.knots + 3.0 * tau)
    slopes = np.maximum.accumulate(cold.slopes[0] * np.exp(wave), axis=0)
    prior = Surface.from_slopes(cold.knots, cold.maturities, slopes * np.exp(1e-4 * (tau - tau[0])))
    assert score(prior, quotes).inside_bid_ask < 0.5
    found = fit(quotes, prior=prior)
    assert report(found).status is Status.CONVERGED
    assert report(found).iterations <= 0.5 * report(cold).iterations
    certificate = found.certificate()
    assert certificate.passed
    assert certificate.findings.is_empty()
    before, after = score(cold, quotes), score(found, quotes)
    assert after.inside_bid_ask >= before.inside_bid_ask - 5e-4
    assert after.iv_rmse_half_spreads <= 1.02 * before.iv_rmse_half_spreads


def test_the_penalty_is_of_the_distance_from_the_prior(rng: np.random.Generator) -> None:
    quotes, prior = market(703, True)[0].quotes, truth(703)
    model = FitObjective.from_quotes(quotes, FitOptions(), prior=prior)
    here = np.log(prior.slopes[0]).ravel()
    assert np.allclose(model.quadratic.centre, here, atol=1e-12)
    soft, stiff = (
        model.with_roughness(Roughness(2.0 * factor, 3.0 * factor, 4.0 * factor, 5.0 * factor))
        for factor in (1.0, 100.0)
    )
    at_prior = soft.evaluate(here).value
    assert stiff.evaluate(here).value == pytest.approx(at_prior, rel=1e-12)  # no roughness there
    away = here + 0.01 * rng.normal(size=here.size)
    without, drawn = (model.with_roughness(Roughness(2.0, 3.0, 4.0, w)) for w in (0.0, 6.0))
    values = [each.evaluate(away).value for each in (without, drawn)]
    distance = (away - here).reshape(model.layout.shape)
    gap = np.diff(model.layout.knots)
    mass = np.concatenate([[gap[0]], gap[1:] + gap[:-1], [gap[-1]]]) / 2.0
    assert values[1] - values[0] == pytest.approx(3.0 * np.sum(mass * distance**2), rel=1e-9)
    local = drawn.evaluate(away).expansion
    step = 1e-5 * rng.normal(size=here.size)
    rise = 0.5 * (drawn.evaluate(away + step).value - drawn.evaluate(away - step).value)
    assert rise == pytest.approx(local.gradient @ step, rel=1e-4)


def test_a_prior_without_a_shape_is_none() -> None:
    """Flat volatility is the centre of a fit without a prior, but for its level."""
    quotes = market(704, True)[0].quotes
    options = FitOptions(roughness=Roughness(0.3, 6.0, 4.0))
    without, given = fit(quotes, options=options), fit(quotes, options=options, prior=flat(704))
    assert np.abs(np.log(given.slopes / without.slopes)).max() < 1e-2
    near = fit(quotes, options=options, prior=nearby(704))
    assert np.abs(np.log(near.slopes / without.slopes)).max() > 5e-2


def test_the_trust_maximises_the_marginal_likelihood() -> None:
    """At given weights, where it minimises the objective: Newton's step finds it in one."""
    quotes = market(705, False)[0].quotes
    weights = Roughness(1.0, 30.0, 10.0, 0.1)

    def least(trust: float) -> InteriorPoint[FitPoint]:
        model = FitObjective.from_quotes(quotes, SMOOTH, prior=another(705))
        model = model.with_trust(weights, trust)
        interior, status = InteriorPoint.start_at(
            model,
            model.build_constraints(),
            initial_point.start_from_quotes(model),
            scale=1e-3 * len(quotes),
        ).run(1e-8, 200)
        assert status is Status.CONVERGED
        return interior

    best = smoothing.update_trust(least(0.5), dispersion=1e-9)
    assert 0.0 < best < 1.0
    values = [least(best + shift).point.value for shift in (-0.1, 0.0, 0.1)]
    assert values[1] < min(values[0], values[2])


def test_a_prior_may_have_other_knots_and_expiries() -> None:
    surface, _ = market(706, True)
    knots = np.linspace(-4.0, 4.0, 25)
    some = [0, 3, 7, 12, 15]
    rows = np.array([np.interp(knots, truth(706).knots, row) for row in truth(706).slopes[0]])
    coarse = Surface.from_slopes(knots, T[some], rows[some])
    found = fit(surface.quotes, prior=coarse)
    assert report(found).status is Status.CONVERGED
    assert square_error(found, surface) < square_error(market(706, True)[1], surface)
    assert found.certificate().findings.is_empty()


def test_a_start_may_differ_from_the_prior() -> None:
    quotes = market(707, False)[0].quotes
    at_prior = fit(quotes, prior=nearby(707))
    elsewhere = fit(quotes, prior=nearby(707), start=truth(707))
    assert np.abs(np.log(elsewhere.slopes / at_prior.slopes))[:, :, 8:24].max() < 0.05


def test_two_components_have_a_prior_of_two() -> None:
    quotes = market(708, True)[0].quotes
    two = FitOptions(components=2)
    double = fit(quotes, options=two)
    again = fit(quotes, options=two, prior=double)
    assert report(again).status is Status.CONVERGED
    assert report(again).iterations <= report(double).iterations
    assert again.certificate().passed
    with pytest.raises(ValueError, match=r"prior has 2 components .* is 1: .* give it as start"):
        fit(quotes, prior=double)


def test_weights_may_be_given_with_a_prior_and_chosen_by_cross_validation() -> None:
    quotes = market(709, True)[0].quotes
    weights = Roughness(1.0, 10.0, 1.0, 0.5)
    given = report(fit(quotes, prior=nearby(709), options=FitOptions(roughness=weights)))
    assert astuple(given.roughness) == astuple(weights)
    assert given.trust == 1.0
    searched = report(fit(quotes, prior=nearby(709), options=FitOptions(roughness="gcv")))
    assert searched.status is Status.CONVERGED
    assert searched.roughness.level > 0.0


def test_what_cannot_be_a_prior_is_refused_with_the_remedy() -> None:
    quotes = market(709, True)[0].quotes
    with pytest.raises(ValueError, match=r"prior is a Quotes: give a Surface"):
        fit(quotes, prior=quotes)  # type: ignore[arg-type]
    level = replace(Roughness(1.0, 1.0), level=2.0)
    with pytest.raises(ValueError, match=r"level = 2 is the weight .* give prior=surface, or"):
        fit(quotes, options=FitOptions(roughness=level))
    with pytest.raises(ValueError, match="twist and level not negative"):
        Roughness(1.0, 1.0, 1.0, -1.0)
