"""A refinement: better than the operator and than the fit, whatever the operator is worth."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import arbiter as ab
from arbiter.fitting import (
    FitOptions,
    FittedSurface,
    Roughness,
    Status,
    banded,
    cross_validation,
    fit,
    initial_point,
    objective,
)
from arbiter.fitting.cross_validation import DEFAULT_PULL, HeldOutFolds, QuoteFold, folds
from arbiter.fitting.guided_objective import GuidedObjective, Pull
from arbiter.fitting.objective import FitObjective
from arbiter.fitting.refinement import refine
from arbiter.operators.pretrained import Operator
from arbiter.operators.slope_head import KNOTS
from arbiter.quotes import Quotes
from arbiter.surface import Surface
from arbiter_lab.evaluation.heston_surfaces import HestonSurface, heston_surface
from counts import count
from dense_matrices import write_out

Guide = Callable[[Quotes], Surface]

ON_ITS_KNOTS = FitOptions(knots=KNOTS)  # guides that are made of the operator's slopes
SEEDS = range(3000, 3000 + count(full=40, reduced=6))


@pytest.fixture(scope="module")
def operator() -> Operator:
    return Operator.pretrained()


@cache
def market(seed: int, hard: bool) -> tuple[HestonSurface, FittedSurface]:
    surface = heston_surface(seed, hard)
    return surface, fit(surface.quotes)


@cache
def truth(seed: int) -> Surface:
    made = heston_surface(seed)
    table = {"T": np.broadcast_to(made.T[:, None], made.k.shape).ravel(), "k": made.k.ravel()}
    both = {f"iv_{s}": made.iv_oracle.ravel() + d for s, d in (("bid", -1e-4), ("ask", 1e-4))}
    # on the operator's knots: slopes of both are averaged knot by knot
    options = FitOptions(knots=KNOTS, roughness=Roughness(1e-3, 1e-2, 1e-2))
    return fit(Quotes.from_frame({**table, **both}), options=options)


def square_error(found: Surface, made: HestonSurface) -> float:
    return float(np.mean((found.iv(made.k, made.T[:, None]) - made.iv_oracle) ** 2))


def refined_by(guide: Guide, quotes: Quotes, *, seen: bool = False) -> FittedSurface:
    """A refinement of any guide; ``seen`` plants a leak: folds are judged by the whole guide."""
    whole = guide(quotes)
    held = [QuoteFold(out, whole if seen else guide(quotes.select(~out))) for out in folds(quotes)]
    return refine(quotes, whole, held, ON_ITS_KNOTS)


def trust(surface: FittedSurface) -> float:
    assert surface.result.status is Status.CONVERGED
    assert surface.result.trust is not None
    return surface.result.trust


def times(factor: float, guide: Guide) -> Guide:
    def other(quotes: Quotes) -> Surface:
        surface = guide(quotes)
        return Surface.from_slopes(surface.knots, surface.maturities, factor * surface.slopes[0])

    return other


def towards_truth(seed: int, share: float, guide: Guide) -> Guide:
    """An operator that makes ``share`` of another's errors."""

    def better(quotes: Quotes) -> Surface:
        surface, true = guide(quotes), truth(seed)
        at = np.searchsorted(true.maturities, surface.maturities)
        logs = np.log(true.slopes[0][at])
        logs = logs + share * (np.log(surface.slopes[0]) - logs)
        return Surface.from_slopes(
            surface.knots, surface.maturities, np.exp(np.maximum.accumulate(logs, axis=0))
        )

    return better


def overfitted(quotes: Quotes) -> Surface:
    """A guide that follows the noise: it predicts badly, and has the smallest residuals."""
    return fit(quotes, options=FitOptions(roughness=Roughness(1e-3, 1e-2, 1e-3)))


@pytest.mark.parametrize("hard", [False, True])
def test_a_refinement_is_as_good_as_the_better_of_operator_and_fit(
    operator: Operator, hard: bool
) -> None:
    errors = np.zeros(3)
    for seed in SEEDS:
        made, alone = market(seed, hard)
        first = operator(made.quotes)
        found = operator.refine(made.quotes, first)
        errors += [square_error(s, made) for s in (found, first, alone)]
    refined, zero_shot, direct = np.sqrt(errors)
    # as good as the better of the two but for what telling them apart costs
    assert refined < 1.06 * min(zero_shot, direct)
    assert refined < 0.99 * max(zero_shot, direct)


@pytest.mark.parametrize("hard", [False, True])
def test_a_good_operator_is_trusted_and_a_bad_one_is_not(operator: Operator, hard: bool) -> None:
    """One with half of the errors, and one whose volatilities are all 10 % too high."""
    errors, trusts = np.zeros(4), np.zeros(2)
    for seed in SEEDS[: len(SEEDS) // 2]:
        made, alone = market(seed, hard)
        good, bad = towards_truth(seed, 0.5, operator), times(1.1, operator)
        first, second = refined_by(good, made.quotes), refined_by(bad, made.quotes)
        surfaces = (first, good(made.quotes), second, alone)
        errors += [square_error(s, made) for s in surfaces]
        trusts += [trust(first), trust(second)]
    with_good, good_alone, with_bad, direct = np.sqrt(errors)
    assert with_good < 1.15 * good_alone  # folds of noisy quotes cannot tell so good a one
    assert with_good < 0.8 * direct
    assert with_bad < 1.05 * direct
    assert trusts[0] > 2.0 * trusts[1]


def test_a_bad_operator_that_is_believed_does_harm(
    operator: Operator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The control of the last test: the same fit with a pull that insists."""
    made, alone = market(3000, False)
    monkeypatch.setattr(cross_validation, "choose_pull", lambda *_: Pull(1e5, 1e5))
    found = refined_by(times(1.1, operator), made.quotes)
    assert trust(found) > 0.5
    assert square_error(found, made) > 9.0 * square_error(alone, made)


def test_a_guide_is_judged_by_quotes_that_it_has_not_seen() -> None:
    """A guide that follows the noise is distrusted, and trusted where the folds leak."""
    made, alone = market(3001, False)
    honest = refined_by(overfitted, made.quotes)
    leaking = refined_by(overfitted, made.quotes, seen=True)
    assert trust(honest) < trust(leaking)
    assert square_error(honest, made) < 1.1 * square_error(alone, made)
    assert square_error(leaking, made) > 1.2 * square_error(honest, made)


def covered(found: FittedSurface, made: HestonSurface) -> float:
    T = np.broadcast_to(made.T[:, None], made.k.shape)
    off = np.abs(found.iv(made.k, T) - made.iv_oracle)
    return float(np.mean(off < 2.0 * found.iv_error(made.k, T)))


@pytest.mark.parametrize("hard", [False, True])
@pytest.mark.parametrize("share", [1.0, 0.65])
def test_two_errors_cover_the_truth(operator: Operator, hard: bool, share: float) -> None:
    """Also where the operator, which has seen the noise, is trusted: its own noise counts."""
    honest, taken_for_a_fact = [], []
    for seed in SEEDS[: len(SEEDS) // 2]:
        made, _ = market(seed, hard)
        guide = towards_truth(seed, share, operator)
        honest.append(covered(refined_by(guide, made.quotes), made))
        taken_for_a_fact.append(covered(_certain(guide, made.quotes), made))
    assert np.mean(honest) > 0.9
    if share < 1.0:  # the same bar
        assert np.mean(taken_for_a_fact) < 0.9


def _certain(guide: Guide, quotes: Quotes) -> FittedSurface:
    """The control: the same pull, with errors that take the guide for a fact."""
    held = [QuoteFold(out, guide(quotes.select(~out))) for out in folds(quotes)]
    with pytest.MonkeyPatch.context() as patch:
        nothing = np.zeros((1, 1))
        patch.setattr(cross_validation, "find_overstated_precision", lambda *_: (nothing, 0.0))
        return refine(quotes, guide(quotes), held, FitOptions())


def leaning(seed: int, operator: Operator) -> GuidedObjective:
    quotes = heston_surface(seed, hard=True).quotes
    return GuidedObjective.from_guide(quotes, FitOptions(), operator(quotes))


def test_without_a_pull_it_is_the_fit_and_with_all_of_it_the_guide(
    operator: Operator, rng: np.random.Generator
) -> None:
    model = leaning(3002, operator)
    z = model.guide + 0.01 * rng.normal(size=model.layout.size)
    weights = Roughness(0.3, 6.0, 4.0)
    plain = FitObjective.from_quotes(model.quotes, FitOptions()).with_roughness(weights)
    assert model.with_pull(weights, None).evaluate(z).value == plain.evaluate(z).value
    insisting = model.with_pull(weights, Pull(1e9, 1e9))
    assert np.abs(insisting.quadratic.centre - model.guide).max() < 1e-6
    drawn = model.with_pull(weights, Pull(1.0, 1.0))
    assert np.abs(drawn.quadratic.centre - model.guide).max() > 1e-3
    local = drawn.evaluate(z).expansion
    step = 1e-5 * rng.normal(size=z.size)
    rise = 0.5 * (drawn.evaluate(z + step).value - drawn.evaluate(z - step).value)
    assert rise == pytest.approx(local.gradient @ step, rel=1e-4)


def test_roughness_and_pull_add_up(operator: Operator, rng: np.random.Generator) -> None:
    """The two quadratic forms are one around their common centre, but for a constant."""
    model = leaning(3003, operator)
    weights, pull = Roughness(0.3, 6.0, 4.0), Pull(2.0, 0.5)
    points = model.guide + 0.05 * rng.normal(size=(2, model.layout.size))
    free, pulled = model.with_pull(weights, None), model.with_pull(weights, pull)
    away = points - model.guide
    drawn = [banded.multiply(pulled.pull_band(), each) for each in away]
    apart = [
        free.evaluate(z).value + 0.5 * change @ force
        for z, change, force in zip(points, away, drawn, strict=True)
    ]
    together = [pulled.evaluate(z).value for z in points]
    assert np.diff(together) == pytest.approx(np.diff(apart), rel=1e-8)


def test_a_fold_is_predicted_by_the_least_squares_of_the_others(operator: Operator) -> None:
    """The banded algebra against a dense matrix, and another pull predicts otherwise."""
    pull = Pull(3.0, 0.7)
    model = leaning(3004, operator).with_pull(Roughness(0.3, 6.0, 4.0), None)
    quotes, layout, quadratic, z = model.quotes, model.layout, model.quadratic, model.guide
    here = model.misfit.evaluate_at(z)
    out = folds(quotes)[1]
    unseen = HeldOutFolds.from_folds(model, [QuoteFold(out, operator(quotes.select(~out)))])
    loss = FitOptions().loss
    (left,) = cross_validation.linearise_folds(model, here, loss, unseen)
    rows = np.zeros((len(quotes), layout.size))
    columns = quotes.expiry[:, None] * layout.knot_count + np.arange(layout.knot_count)
    np.put_along_axis(rows, columns, here.residual_jacobian(), axis=1)
    cost, weighed = loss(here.residuals), model.unit_pulls.weigh(pull)
    dense, drawn = write_out(quadratic.band), write_out(weighed)
    kept = ~out
    matrix = rows[kept].T @ (cost.weight[kept, None] * rows[kept]) + dense + drawn
    force = rows[kept].T @ cost.slope[kept] + dense @ (z - quadratic.centre)
    force += drawn @ (z - unseen.guides[0])
    parts = left.force + left.pulls @ (pull.level, pull.bend, pull.beyond_quotes)
    assert parts == pytest.approx(force, abs=1e-8 * np.abs(force).max())
    assert write_out(left.matrix + weighed) == pytest.approx(
        matrix, abs=1e-8 * np.abs(matrix).max()
    )
    other = left.force + left.pulls @ (1.0, 1.0, 1.0)
    assert np.abs(other - force).max() > 1e-3 * np.abs(force).max()


@given(sizes=st.lists(st.integers(1, 12), min_size=1, max_size=6))
def test_every_quote_is_held_out_once(sizes: list[int]) -> None:
    T = np.repeat(0.1 * np.arange(1, len(sizes) + 1), sizes)
    k = np.concatenate([0.01 * np.arange(size) for size in sizes])
    table = {"T": T, "k": k, "iv_bid": np.full(k.size, 0.19), "iv_ask": np.full(k.size, 0.21)}
    quotes = Quotes.from_frame(table)
    outs = np.array(folds(quotes))
    assert (outs.sum(axis=0) == 1).all()
    for expiry, size in enumerate(sizes):  # strikes of an expiry are spread evenly
        each = outs[:, quotes.expiry == expiry].sum(axis=1)
        assert each.max() - each.min() <= 1
        assert each.sum() == size


def test_a_few_quotes_are_too_few_to_judge_by(operator: Operator) -> None:
    """Then the pull is the usual one, and the errors are those of the fit."""
    smile = {"T": [0.5] * 3, "k": [-0.1, 0.0, 0.1]}
    three = Quotes.from_frame({**smile, "iv_bid": [0.21, 0.19, 0.17], "iv_ask": [0.22, 0.20, 0.18]})
    found = operator.refine(three)
    assert found.info["fit"]["pull"] == {**DEFAULT_PULL._asdict(), "folds": 0}
    assert 0.0 < trust(found) < 1.0
    assert found.certificate().passed
    several = heston_surface(3005, hard=True).quotes
    assert operator.refine(several).info["fit"]["pull"]["folds"] == cross_validation.FOLD_COUNT
    alone, wide = fit(three), found.iv_error(0.05, 0.5)
    assert wide == pytest.approx(alone.iv_error(0.05, 0.5), rel=0.5)


def test_the_surface_remembers_the_operator_and_what_it_was_worth(operator: Operator) -> None:
    quotes = ab.example_chain().quotes()
    first = operator(quotes)
    found, again = operator.refine(quotes), operator.refine(quotes, first, FitOptions())
    assert (found.slopes == again.slopes).all()
    alone = fit(quotes).result
    assert alone is not None
    assert found.result.chosen == "crossfit"
    assert found.result.iterations < alone.iterations
    assert found.info["operator"]["model"] == operator.model
    assert found.info["fit"]["trust"] == found.result.trust
    assert found.certificate().passed


def test_given_weights_are_a_fit_with_the_operator_as_prior(operator: Operator) -> None:
    quotes = heston_surface(3006, hard=True).quotes
    options = FitOptions(roughness=Roughness(1.0, 10.0, 1.0, 0.5))
    found = operator.refine(quotes, options=options)
    direct = fit(quotes, prior=operator(quotes), options=options)
    assert (found.slopes == direct.slopes).all()
    assert (found.slopes != operator.refine(quotes).slopes).any()


def test_two_components_are_a_fit_that_starts_there(operator: Operator) -> None:
    quotes = heston_surface(3006, hard=True).quotes
    two = FitOptions(components=2)
    double = fit(quotes, options=two)
    for found, wanted in (
        (operator.refine(quotes, options=two), fit(quotes, options=two, start=operator(quotes))),
        (operator.refine(quotes, double, two), fit(quotes, options=two, start=double)),
    ):
        np.testing.assert_array_equal(found.slopes, wanted.slopes)
        assert found.info["operator"]["model"] == operator.model


def steep(surface: Surface, slope: float) -> Surface:
    """The same surface with lower tails that no quote sees as steep as that."""
    b = surface.slopes[0].copy()
    b[:, surface.knots < -4.2] = slope
    return Surface.from_slopes(surface.knots, surface.maturities, b)


@pytest.mark.parametrize("judged", [True, False])
def test_a_guide_with_steep_tails_is_followed_where_quotes_are(
    operator: Operator, monkeypatch: pytest.MonkeyPatch, judged: bool
) -> None:
    # a bound of slopes below the guide's tails bends the fit far inside the quotes
    made = heston_surface(3000, hard=True)
    guide = steep(operator(made.quotes), 12.0)

    def refined() -> FittedSurface:
        if not judged:
            given = FitOptions(roughness=Roughness(1.0, 10.0, 1.0, level=1e4))
            return fit(made.quotes, options=given, prior=guide)
        return refine(made.quotes, guide, [], FitOptions())

    at = made.k, made.T[:, None]
    near = float(np.abs(refined().iv(*at) - guide.iv(*at)).max())
    for room in (objective, initial_point):
        monkeypatch.setattr(room, "HIGHEST_LOG_SLOPE", np.log(5.0))
    far = float(np.abs(refined().iv(*at) - guide.iv(*at)).max())
    assert near < 0.01
    assert far > 1.5 * near
