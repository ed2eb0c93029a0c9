"""Which series a source lists, when each settles, and what it is called.

There are a few dozen: what is told of a series is worked out once and then handed to its options.
"""

from __future__ import annotations

import datetime as dt
from collections import Counter, defaultdict
from typing import NamedTuple

import numpy as np
import polars as pl

from arbiter.chains.errors import ChainError
from arbiter.chains.roots import EUROPEAN_ROOTS
from arbiter.conventions import MINUTES_PER_YEAR, Indices
from arbiter.timing.sessions import settlement_time

_KEYS = ["root", "expiry", "settlement", "settles"]  # as the source gives them


class ListedSeries(NamedTuple):
    """The series of a source, in its order.

    Attributes:
        keys: One row per combination of root, expiry, settlement and settles, with its number of
            options ``len``.
        place: ``(n,)`` for each option the place of its series.
    """

    keys: pl.DataFrame
    place: Indices


class _Series(NamedTuple):
    root: str | None
    expiry: dt.date
    half: str  # "AM" or "PM"
    at: dt.datetime
    size: int


def list_series(options: pl.DataFrame) -> ListedSeries:
    """Find the series of options that can be read."""
    # rows of one series follow one another, so that few of them have to be compared with all
    new = [pl.col(key).ne_missing(pl.col(key).shift()) for key in _KEYS]
    head = options.select(pl.any_horizontal(new)).to_series().to_numpy().copy()
    head[0] = True
    first = np.flatnonzero(head)
    runs = pl.DataFrame([options[key] for key in _KEYS])[first].hstack(
        [
            pl.Series("run", np.arange(first.size)),
            pl.Series("len", np.diff(first, append=options.height)),
        ]
    )
    keys = runs.group_by(_KEYS, maintain_order=True).agg("run", pl.col("len").sum())
    place = np.empty_like(first)
    place[keys["run"].explode()] = np.repeat(np.arange(keys.height), keys["run"].list.len())
    return ListedSeries(keys[[*_KEYS, "len"]], place[np.cumsum(head) - 1])


def settle_series(
    listed: ListedSeries, options: pl.DataFrame, moment: np.datetime64
) -> tuple[pl.DataFrame, list[str]]:
    """Time to settlement, label, root, settlement and settles of each series; what was assumed.

    Raises:
        ChainError: If nothing says when a root settles.
    """
    keys, notes = listed.keys, []
    halves = [_find_half(*row) for row in keys.select("root", "settlement", "settles").rows()]
    unsettled = [i for i, half in enumerate(halves) if half is None]
    if unsettled:
        roots = keys["root"][unsettled].drop_nulls()
        if len(roots):
            row = options["row"][int(np.argmax(np.isin(listed.place, unsettled)))]
            raise ChainError(
                f"row {row}: nothing says when root {roots[0]!r} settles: give a "
                "column settlement ('AM' or 'PM'), or settles"
            )
        notes.append("no root, settlement or settles is given: taken as settled at the close")
    elif keys["root"].null_count():
        notes.append("no root is given: the options are taken as European")
    series = [
        _Series(root, expiry, half or "PM", settles or settlement_time(expiry, half or "PM"), size)
        for (root, expiry, _, settles, size), half in zip(keys.rows(), halves, strict=True)
    ]
    return _label_series(series, moment.astype("datetime64[us]").item()), notes


def _find_half(root: str | None, settlement: str | None, settles: dt.datetime | None) -> str | None:
    """``"AM"`` or ``"PM"``; None if nothing says it."""
    if settlement is not None:
        return settlement
    if settles is not None:
        return "AM" if settles.hour < 12 else "PM"
    return EUROPEAN_ROOTS[root].settlement if root in EUROPEAN_ROOTS else None


def _label_series(series: list[_Series], moment: dt.datetime) -> pl.DataFrame:
    """What :func:`settle_series` tells; all that settle at one moment have the root of most."""
    sizes: dict[dt.datetime, Counter[str | None]] = defaultdict(Counter)
    expiries: dict[dt.datetime, dt.date] = {}
    for one in series:
        sizes[one.at][one.root] += one.size
        expiries.setdefault(one.at, one.expiry)
    roots = {
        at: min(found, key=lambda root: (-found[root], root or "")) for at, found in sizes.items()
    }
    labels = [f"{expiries[one.at]} {roots[one.at] or one.half}" for one in series]
    # what settles at different times is never one series, whatever it is called
    times = defaultdict(set)
    for one, label in zip(series, labels, strict=True):
        times[label].add(one.at)
    timed = [
        f"{label} {one.at:%m-%d %H:%M}" if len(times[label]) > 1 else label
        for one, label in zip(series, labels, strict=True)
    ]
    minutes = pl.Series([int((one.at - moment).total_seconds()) // 60 for one in series])
    return pl.DataFrame(
        {
            "T": minutes / MINUTES_PER_YEAR,
            "label": timed,
            "root": pl.Series([roots[one.at] for one in series], dtype=pl.String),
            "settlement": [one.half for one in series],
            "settles": pl.Series([one.at for one in series], dtype=pl.Datetime("us")),
        }
    )
