"""What became of each series of a chain, and its asks without a bid."""

from __future__ import annotations

import numpy as np

from arbiter.chains.cleaning import REASONS, CleaningRules, CleaningVerdict
from arbiter.chains.option_table import OptionTable, SeriesEstimates
from arbiter.conventions import Array, Indices
from arbiter.exclusions import Exclusion
from arbiter.inputs import freeze_array
from arbiter.quotes import AskBounds, Ending, ExpiryEnding

_TOO_SHORT = REASONS.index(Exclusion.TOO_SHORT.value)


def end_series(
    options: OptionTable, forward: Array, verdict: CleaningVerdict, rules: CleaningRules
) -> tuple[ExpiryEnding, ...]:
    """The ending of every series, in order of settlement.

    Args:
        options: The options.
        forward: Of each series, NaN where there is none.
        verdict: On the options.
        rules: What was asked of them.
    """
    count = len(options.labels)
    T, short = np.zeros(count), np.zeros(count, dtype=np.bool_)
    T[options.series] = options.T
    short[options.series[verdict.reason == _TOO_SHORT]] = True
    found = []
    for label, years, near, F, usable in zip(
        options.labels, T.tolist(), short, forward, verdict.usable.tolist(), strict=True
    ):
        if years <= 0.0:
            one = ExpiryEnding.of_left_out(label, years, Ending.EXPIRED)
        elif near:
            one = ExpiryEnding.of_left_out(label, years, Ending.TOO_SHORT)
        elif np.isnan(F):
            one = ExpiryEnding.of_left_out(label, years, Ending.NO_FORWARD)
        elif usable < max(rules.fewest_strikes, 1):
            one = ExpiryEnding.of_thin(label, years, usable, rules.fewest_strikes)
        else:
            one = ExpiryEnding.of_used(label, years, usable)
        found.append(one)
    return tuple(found)


def collect_bounds(
    options: OptionTable, estimates: SeriesEstimates, verdict: CleaningVerdict, used: Indices
) -> AskBounds:
    """Asks without a bid, of the series that are used.

    Args:
        options: The options.
        estimates: Forwards and discount factors of their series.
        verdict: On the options.
        used: Numbers of the series that are used, in order.
    """
    place = np.full(len(options.labels), -1)
    place[used] = np.arange(used.size)
    expiry = place[options.series]
    kept = options.order[(verdict.bound & (expiry >= 0))[options.order]]
    series = options.series[kept]
    unit = estimates.forward[series] * estimates.discount[series]
    return AskBounds(
        expiry[kept], freeze_array(verdict.k[kept]), freeze_array(options.ask[kept] / unit)
    )
