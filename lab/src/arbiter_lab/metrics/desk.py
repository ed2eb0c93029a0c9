"""Share of quotes inside bid-ask and errors of the volatility index.

See docs/metrics/inside-bid-ask.md and docs/metrics/vix-error.md.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from arbiter.quotes import Quotes
from arbiter.scoring import is_inside_bid_ask
from arbiter_lab.metrics.metric import Metric
from arbiter_lab.metrics.pooling import (
    Statistic,
    largest_absolute,
    mean_absolute,
    pool_errors,
    root_mean_square,
)

Mask = NDArray[np.bool_]


def inside_bid_ask(
    prices: Sequence[ArrayLike], quotes: Sequence[Quotes], unseen: Sequence[Mask] | None = None
) -> Metric:
    """Share of quotes whose model price lies between bid and ask (1e-12), pooled over days.

    Args:
        prices: For each day one out-of-the-money price per quote, ``model.otm(q.k, q.T)``. A
            price that is not a number counts as outside.
        quotes: Quotes of each day.
        unseen: For each day a mask of the quotes that the model was not shown; only those count.
    """
    if len(prices) != len(quotes) or (unseen is not None and len(unseen) != len(quotes)):
        raise ValueError(
            f"{len(prices)} days of prices, {len(quotes)} of quotes"
            + ("" if unseen is None else f", {len(unseen)} of unseen")
            + ": give one of each for every day"
        )
    within = [is_inside_bid_ask(price, day) for price, day in zip(prices, quotes, strict=True)]
    name = "inside_bid_ask"
    if unseen is not None:
        name = "inside_bid_ask_unseen"
        within = [day[np.asarray(mask)] for day, mask in zip(within, unseen, strict=True)]
    daily = np.array([day.mean() if day.size else np.nan for day in within], dtype=np.float64)
    count = sum(day.size for day in within)
    if not count:
        return Metric.undefined(name, "there are no quotes", daily)
    return Metric(name, sum(int(day.sum()) for day in within) / count, None, daily)


def vix_rmse(model: ArrayLike, oracle: ArrayLike) -> Metric:
    """Root mean square error of the volatility index over days, in index points.

    Args:
        model: ``(D,)`` index of the model; NaN where it has none.
        oracle: ``(D,)`` exact index.
    """
    return _index_error_metric("vix_rmse", model, oracle, root_mean_square)


def vix_mae(model: ArrayLike, oracle: ArrayLike) -> Metric:
    """Mean absolute error of the volatility index, in points; arguments as for `vix_rmse`."""
    return _index_error_metric("vix_mae", model, oracle, mean_absolute)


def vix_max(model: ArrayLike, oracle: ArrayLike) -> Metric:
    """Largest absolute error of the volatility index, in points; arguments as for `vix_rmse`."""
    return _index_error_metric("vix_max", model, oracle, largest_absolute)


def _index_error_metric(
    name: str, model: ArrayLike, oracle: ArrayLike, statistic: Statistic
) -> Metric:
    found, truth = np.atleast_1d(np.asarray(model, float)), np.atleast_1d(np.asarray(oracle, float))
    if found.shape != truth.shape or found.ndim != 1:
        raise ValueError(
            f"model has shape {found.shape} and oracle {truth.shape}: give one index a day of each"
        )
    if not np.isfinite(truth).all():
        day = int(np.flatnonzero(~np.isfinite(truth))[0])
        raise ValueError(f"the oracle's index of day {day} is {truth[day]}: leave that day out")
    error = np.where(np.isfinite(found), found, np.inf) - truth
    return pool_errors(name, error[:, None], statistic, "index")
