"""A metric has the interval that its days make, and none that does not hold it."""

import math

import numpy as np
import pytest
from benchmarks.interval_coverage import autoregressions

from arbiter_lab.metrics.metric import Metric
from arbiter_lab.metrics.pooling import (
    largest_absolute,
    mean_absolute,
    pool_errors,
    root_mean_square,
)
from arbiter_lab.protocol.inference import clopper_pearson_interval, hac_mean
from arbiter_lab.protocol.intervals import block_bootstrap, metric_intervals
from counts import count


def test_mean_of_days_has_the_hac_interval(rng: np.random.Generator) -> None:
    days = rng.uniform(size=60)
    found = metric_intervals([Metric("NI", float(days.mean()), None, days)], method="cosine")
    expected = hac_mean(days, method="cosine")
    assert found.ends["NI"] == pytest.approx((expected.low, expected.high), rel=1e-12)


def test_share_of_runs_has_the_binomial_interval() -> None:
    found = metric_intervals([Metric("Stability", 1.0, None, np.ones(20))])
    assert found.ends["Stability"] == clopper_pearson_interval(20, 20)
    assert found.ends["Stability"].low == pytest.approx(0.025 ** (1 / 20))  # 0.83


def test_pooled_error_has_the_interval_of_its_squares_by_hand() -> None:
    # squares 1, 4, 1, 4 and so on: mean 2.5, the same weight for each day
    errors = np.tile([[1.0, -1.0], [2.0, 2.0]], (8, 1))
    metric = pool_errors("iv_rmse_bp", errors, root_mean_square, "volatility")
    assert metric.value == pytest.approx(math.sqrt(2.5))
    squares = hac_mean(np.tile([1.0, 4.0], 8))
    assert metric_intervals([metric]).ends["iv_rmse_bp"] == pytest.approx(
        (math.sqrt(squares.low), math.sqrt(squares.high)), rel=1e-12
    )


def test_intervals_hold_their_values(rng: np.random.Generator) -> None:
    errors = rng.standard_normal((40, 30)) * rng.uniform(0.5, 2.0, (40, 1))
    errors[rng.uniform(size=errors.shape) < 0.3] = np.nan  # days of different length
    metrics = [
        pool_errors("iv_rmse_bp", errors, root_mean_square, "volatility"),
        pool_errors("iv_mae_bp", errors, mean_absolute, "volatility"),
        Metric.from_days("CNAS", np.full(40, 0.1), "have none"),
        Metric.from_days("cnas_frozen_drop", np.linspace(-0.3, 0.1, 40), "have none"),
    ]
    found = metric_intervals(metrics)
    for metric in metrics:
        assert metric.value is not None
        assert found.ends[metric.name].low <= metric.value <= found.ends[metric.name].high
    assert found.ends["cnas_frozen_drop"].low < found.ends["cnas_frozen_drop"].high < 0.0


def test_pooled_errors_interval_covers() -> None:
    # days of ten points whose size is lognormal and persistent: the true root mean square is known
    replications = count(full=1000, reduced=200)
    scale = np.exp(0.3 * autoregressions(0.5, 250, replications, seed=4))  # variance 0.09/0.75
    truth = math.sqrt(math.exp(2.0 * 0.09 / 0.75))
    rng, held = np.random.default_rng(6), 0
    for row in scale:
        errors = row[:, None] * rng.standard_normal((250, 10))
        metric = pool_errors("iv_rmse_bp", errors, root_mean_square, "volatility")
        low, high = metric_intervals([metric], method="cosine").ends["iv_rmse_bp"]
        held += low <= truth <= high
    share = held / replications
    assert share == pytest.approx(0.94, abs=4.0 * math.sqrt(0.06 * 0.94 / replications))


def test_percentile_has_a_bootstrap_interval_that_covers() -> None:
    replications = count(full=1000, reduced=150)
    series = autoregressions(0.3, 250, replications, seed=9)
    truth = 1.6448536269514722 / math.sqrt(1.0 - 0.3**2)  # 95th percentile of the stationary law
    held = 0
    for row in series:
        metric = Metric("GenGap_p95", float(np.quantile(row, 0.95)), None, row)
        low, high = metric_intervals([metric]).ends["GenGap_p95"]
        held += low <= truth <= high
        assert low < high
    # twelve days lie beyond: the bootstrap is a little short
    assert held / replications > 0.91 - 4.0 * math.sqrt(0.09 * 0.91 / replications)


def test_blocks_of_the_bootstrap_keep_dependence() -> None:
    series = autoregressions(0.9, 400, 1, seed=2)[0]
    single, whole = (block_bootstrap(series, lambda x: x.mean(-1), block=b) for b in (1, 40))
    assert whole.high - whole.low > 2.0 * (single.high - single.low)
    assert block_bootstrap(series, lambda x: x.mean(-1), block=400) == pytest.approx(
        (series.mean(), series.mean())
    )  # one block, turned: nothing moves
    with pytest.raises(ValueError, match="block = 0"):
        block_bootstrap(series, lambda x: x.mean(-1), block=0)


def test_other_statistics_have_none_and_say_why(rng: np.random.Generator) -> None:
    errors = rng.standard_normal((20, 5))
    errors[3, :4] = np.nan
    largest = pool_errors("iv_max_bp", errors, largest_absolute, "volatility")
    gap = Metric("DualGap", 0.1)
    absent = Metric.undefined("NI", "one day has no increments")
    found = metric_intervals([largest, gap, absent])
    assert found.ends == {}
    assert found.reasons == {
        "iv_max_bp": "its value is not the mean of its days",
        "DualGap": "it has no series of days",
        "NI": "it has no value: one day has no increments",
    }


def test_few_days_have_none() -> None:
    few = Metric("NAS", 1.0, None, np.ones(3))
    assert "3 days, 0 of them" in metric_intervals([few]).reasons["NAS"]
