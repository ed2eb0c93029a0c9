"""The loss of a quote: gentle inside the spread, a wall and a rim at its edge, bounded far out."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from arbiter.conventions import Array
from arbiter.fitting import FitOptions, Loss, Roughness

R = np.linspace(-6.0, 6.0, 2401)
LOSSES = [Loss(), Loss(rim=0.0), Loss(wall=0.0), Loss(inside=0.2, wall=50.0, edge=0.9, far=1.5)]


@st.composite
def losses(draw: st.DrawFn) -> Loss:
    edge = draw(st.floats(0.05, 2.0))
    return Loss(
        inside=draw(st.floats(0.01, 10.0)),
        wall=draw(st.floats(0.0, 100.0)),
        edge=edge,
        far=edge + draw(st.floats(0.05, 5.0)),
        rim=draw(st.sampled_from([0.0, 30.0, 1000.0])),
    )


def slope_error(loss: Loss, slope: Array) -> float:
    step = 1e-5
    difference = (loss(R + step).value - loss(R - step).value) / (2.0 * step)
    stiffness = loss.inside + loss.wall + loss.rim  # a kink of the slope is averaged over the step
    return float(np.max(np.abs(slope - difference)) / (1.0 + stiffness))


@given(losses())
def test_the_slope_is_the_derivative_of_the_value(loss: Loss) -> None:
    slope = loss(R).slope
    assert slope_error(loss, slope) < 1e-5
    wrong = slope + 0.01 * (1.0 + loss.inside + loss.wall + loss.rim) * (np.abs(R) > 5.0)
    assert slope_error(loss, wrong) > 1e-3


@given(losses())
def test_the_loss_is_even_and_convex_but_for_the_rim(loss: Loss) -> None:
    cost = loss(R)
    rising = np.diff(cost.slope) >= -1e-12 * cost.slope.max()
    falls = (np.abs(R) > 1.0 - 1e-9) & (np.abs(R) < 2.0 + 1e-9)  # where the rim lets go
    assert np.all(rising | (falls[1:] & falls[:-1] & (loss.rim > 0.0)))
    assert np.all(np.diff(loss.without_rim()(R).slope) >= -1e-12 * cost.slope.max())
    if loss.rim * 0.05 > 1.1 * (loss.inside + loss.wall):  # the control
        assert not np.all(rising)
    assert np.allclose(cost.value, loss(-R).value, rtol=1e-12)
    assert loss(np.zeros(1)).value[0] == 0.0


def test_the_weight_is_the_curvature_inside_and_reweights_the_force_far_out() -> None:
    for loss in LOSSES:
        cost = loss(R)
        assert np.all(cost.weight > 0.0)  # every step of Gauss-Newton is a descent
        far = np.abs(R) > loss.far
        assert np.allclose((cost.weight * R)[far], cost.slope[far])
        kinks = np.array([loss.edge, loss.far] + [0.95, 1.0] * (loss.rim > 0.0))
        apart = np.abs(np.abs(R)[:, None] - kinks).min(axis=1) > 0.02
        smooth = ~far & apart & ((np.abs(R) < 0.95) | (loss.rim == 0.0))
        curvature = (loss(R + 1e-3).slope - loss(R - 1e-3).slope) / 2e-3
        assert np.allclose(cost.weight[smooth], curvature[smooth])
        assert not np.allclose(cost.weight[far], curvature[far])  # the loss is linear there


def test_inside_the_spread_the_pull_is_gentle_and_outside_it_is_bounded() -> None:
    loss = Loss()
    assert np.allclose(loss(np.array([0.1, 0.5, 0.8])).slope, [0.1, 0.5, 0.8])
    at_edge, outside = loss(np.array([0.8, 1.0])).slope
    assert outside > 3.0 * at_edge  # the wall
    gentle = loss.without_rim()
    assert np.allclose(gentle(np.array([0.9, 0.95])).slope, loss(np.array([0.9, 0.95])).slope)
    places = np.array([0.95, 0.975, 1.0, 1.5, 2.0, 3.0])
    rim = loss(places).slope - gentle(places).slope
    assert np.allclose(rim, [0.0, 25.0, 50.0, 25.0, 0.0, 0.0])  # far out a quote is wrong
    bound = loss(np.array([2.0])).slope[0]
    assert np.all(np.abs(loss(np.array([-1e6, 10.0, 1e9])).slope) == bound)
    assert Loss(far=1e12)(np.array([1e6])).slope[0] > 1e5 * bound  # without the far part: not


@pytest.mark.parametrize(
    "wrong",
    [
        {"inside": 0.0},
        {"wall": -1.0},
        {"rim": -1.0},
        {"edge": 0.0},
        {"edge": 3.0, "far": 3.0},
        {"far": np.nan},
    ],
)
def test_a_loss_that_is_none_is_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="0 < edge < far"):
        Loss(**wrong)


def test_options_that_mean_nothing_are_refused_with_the_remedy() -> None:
    with pytest.raises(ValueError, match="components = 3: give 1 or 2"):
        FitOptions(components=3)
    with pytest.raises(ValueError, match="'likelihood', 'gcv' or Roughness"):
        FitOptions(roughness="aic")
    with pytest.raises(ValueError, match="four increasing"):
        FitOptions(knots=(-1.0, 0.0, 1.0))
    with pytest.raises(ValueError, match="four increasing"):
        FitOptions(knots=(-1.0, 1.0, 0.0, 2.0))
    with pytest.raises(ValueError, match="tolerance"):
        FitOptions(tolerance=0.0)
    with pytest.raises(ValueError, match="iterations"):
        FitOptions(iterations=0)
    with pytest.raises(ValueError, match="positive and finite"):
        Roughness(1.0, 0.0)
    with pytest.raises(ValueError, match="twist"):
        Roughness(1.0, 1.0, -1.0)
