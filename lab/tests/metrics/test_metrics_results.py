"""A metric is a finite number or a reason; errors of days pool as stated."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from arbiter_lab.metrics.catalogue import DEFINITIONS
from arbiter_lab.metrics.metric import Metric, argworst, metrics_to_dict, worst_day
from arbiter_lab.metrics.pooling import (
    largest_absolute,
    mean_absolute,
    pool_errors,
    root_mean_square,
)

numbers = st.integers(-1000, 1000).map(lambda n: n / 8.0)


@pytest.mark.parametrize(
    ("value", "reason"),
    [(None, None), (None, ""), (1.0, "why"), (math.nan, None), (math.inf, None)],
)
def test_a_null_needs_a_reason_and_a_value_is_finite(
    value: float | None, reason: str | None
) -> None:
    with pytest.raises(ValueError, match="x"):
        Metric("x", value, reason)


def test_a_day_that_is_not_a_number_makes_the_mean_undefined_and_is_named() -> None:
    metric = Metric.from_days("x", [1.0, math.nan, 3.0, math.inf], "have no price")
    assert metric.value is None
    assert metric.reason == "2 of 4 days, the first of them day 1, have no price"
    assert metric.daily is not None
    assert np.array_equal(metric.daily, [1.0, np.nan, 3.0, np.nan], equal_nan=True)
    assert Metric.from_days("x", [1.0, 3.0], "").value == 2.0
    assert Metric.from_days("x", [], "").reason == "there are no days"


def test_the_series_of_a_metric_cannot_be_changed() -> None:
    series = np.array([1.0, 2.0])
    metric = Metric("x", 1.5, None, series)
    series[0] = 9.0
    assert metric.daily is not None
    assert metric.daily[0] == 1.0
    with pytest.raises(ValueError, match="read-only"):
        metric.daily[0] = 9.0


def test_a_record_is_strict_json_with_reasons_for_nulls() -> None:
    found = metrics_to_dict([Metric("NAS", 1.0), Metric("NI", None, "one day")])
    assert json.loads(json.dumps(found, allow_nan=False)) == {
        "NAS": 1.0,
        "NI": None,
        "reason": {"NI": "one day"},
    }
    with pytest.raises(ValueError, match="two entries are called 'NAS'"):
        metrics_to_dict([Metric("NAS", 1.0), Metric("NAS", 0.5)])


def test_the_worst_day_is_the_largest_error_or_the_lowest_score() -> None:
    metric = Metric("iv_rmse_bp", 2.0, None, np.array([1.0, 5.0, np.nan, 5.0, 0.5]))
    assert worst_day(metric).name == "worst_day_iv_rmse_bp"
    assert worst_day(metric).value == 5.0
    assert argworst(metric) == 1
    assert worst_day(metric, higher_is_better=True).value == 0.5
    assert argworst(metric, higher_is_better=True) == 4


def test_there_is_no_worst_day_where_a_day_is_undefined_or_there_are_none() -> None:
    undefined = Metric.from_days("x", [1.0, math.nan], "have no price")
    assert worst_day(undefined).reason == undefined.reason
    assert worst_day(Metric("d90", 1.0)).reason == "d90 has no series of days"


def test_errors_are_pooled_over_points_not_over_days() -> None:
    errors = np.array([[3.0, np.nan], [4.0, -4.0]])
    found = {
        f: pool_errors("x", errors, f, "")
        for f in (root_mean_square, mean_absolute, largest_absolute)
    }
    assert found[root_mean_square].value == pytest.approx(math.sqrt(41.0 / 3.0))
    assert found[mean_absolute].value == pytest.approx(11.0 / 3.0)
    assert found[largest_absolute].value == 4.0
    for metric in found.values():
        assert metric.daily is not None
        assert metric.daily.tolist() == [3.0, 4.0]


def test_one_absent_number_undefines_the_pool_and_is_counted() -> None:
    metric = pool_errors("x", [[1.0, 2.0], [np.inf, 2.0]], root_mean_square, "volatility")
    assert metric.reason == "no volatility at 1 of 4 points, first on day 1"
    assert metric.daily is not None
    assert np.isfinite(metric.daily).tolist() == [True, False]
    assert (
        pool_errors("x", np.full((2, 3), np.nan), mean_absolute, "").reason == "there are no points"
    )


@given(st.lists(st.lists(numbers, min_size=3, max_size=3), min_size=1, max_size=5))
def test_mae_is_at_most_rmse_is_at_most_the_largest(rows: list[list[float]]) -> None:
    errors = np.array(rows)
    mae, rmse, most = (
        pool_errors("x", errors, f, "").value
        for f in (mean_absolute, root_mean_square, largest_absolute)
    )
    assert mae is not None
    assert rmse is not None
    assert most is not None
    assert 0.0 <= mae <= rmse * (1.0 + 1e-12)
    assert rmse <= most * (1.0 + 1e-12)
    again = pool_errors("x", errors[::-1], root_mean_square, "").value
    assert again == pytest.approx(rmse)


def test_every_definition_is_possible() -> None:
    for definition in DEFINITIONS.values():
        assert definition.low < definition.high
        if definition.perfect is not None:
            assert definition.low <= definition.perfect <= definition.high
        if definition.better == "higher" and definition.perfect is not None:
            assert definition.perfect == definition.high
        if definition.better == "lower" and math.isfinite(definition.low):
            assert definition.perfect in (definition.low, 0.0)
