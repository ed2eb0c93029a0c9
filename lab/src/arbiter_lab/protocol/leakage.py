"""Leakage checks: whether training uses information of the days on which it is scored.

:func:`find_leaks` checks declarations: the days of each part, how far ahead the information of each
day reaches, the days on which preprocessing was fitted and choices were made, and the contents of
the days. :func:`depends_on_days` needs no declaration: it changes the days that must not be used
and tests whether the training data change.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from arbiter.conventions import MINUTES_PER_YEAR
from arbiter_lab.protocol.folds import Days, Fold

_MAX_LEAKS_SHOWN = 5  # leaks that an error names


class Leak(NamedTuple):
    """One leak of information between two parts of a fold.

    Attributes:
        fold: Number of the fold.
        kind: ``overlap``, ``order``, ``copy``, or the name of the source, step or choice.
        day: The earlier day, which contains the information.
        knows: The later day from which the information comes.
    """

    fold: int
    kind: str
    day: int
    knows: int

    def __str__(self) -> str:
        return f"fold {self.fold}, {self.kind}: day {self.day} knows day {self.knows}"


def find_leaks(
    fold: Fold,
    *,
    reaches: Mapping[str, ArrayLike] | None = None,
    fitted_on: Mapping[str, ArrayLike] | None = None,
    chosen_on: Mapping[str, ArrayLike] | None = None,
    contents: Sequence[object] | None = None,
) -> list[Leak]:
    """Return all leaks of a fold, one for each day and kind; an empty list if there is none.

    Args:
        fold: The fold. A day in two parts is an ``overlap``; a day after a day of a later part is
            out of ``order``.
        reaches: By name of the source, ``(D,)`` the last day that the information of each day of
            the timeline reaches: ``arange(D) + 1`` for a label that is the next day's price,
            :func:`reach_of_maturities` for labels that are payoffs at expiry.
        fitted_on: By name of the step, the days that a step of preprocessing was fitted on: a
            normaliser, a basis, an imputation. Any day that validates or is scored is a leak.
        chosen_on: By name of the choice, the days that it was made on: early stopping, a
            hyper-parameter, the CNAS constants. Any day that is scored is a leak.
        contents: ``(D,)`` hashable contents of each day, such as a digest of its quotes. A day of
            training or validation with the contents of a day of a later part is a ``copy``.
    """
    parts = (fold.train, fold.validate, fold.test)
    last_day = max(int(part[-1]) for part in parts)
    if contents is not None and len(contents) <= last_day:
        raise ValueError(
            f"contents has {len(contents)} entries, and the fold has day {last_day}: give one for "
            "each day of the timeline"
        )
    found: list[Leak] = []
    for i, earlier in enumerate(parts):
        for later in parts[i + 1 :]:
            found += _find_misplaced_days(fold.number, earlier, later)
            for name, last in (reaches or {}).items():
                found += _find_reach_leaks(fold.number, name, np.asarray(last), earlier, later)
            if contents is not None:
                found += _find_copied_days(fold.number, contents, earlier, later)
    held = np.union1d(fold.validate, fold.test)
    for steps, kept in ((fitted_on or {}, held), (chosen_on or {}, fold.test)):
        for name, days in steps.items():
            used = np.asarray(days, dtype=np.int64).ravel()
            found += [Leak(fold.number, name, int(d), int(d)) for d in np.intersect1d(used, kept)]
    return sorted(set(found))


def require_no_leaks(
    fold: Fold,
    *,
    reaches: Mapping[str, ArrayLike] | None = None,
    fitted_on: Mapping[str, ArrayLike] | None = None,
    chosen_on: Mapping[str, ArrayLike] | None = None,
    contents: Sequence[object] | None = None,
) -> None:
    """Refuse a fold with leaks; arguments as for :func:`find_leaks`.

    Raises:
        ValueError: If there is a leak; the message lists the first ones.
    """
    found = find_leaks(
        fold, reaches=reaches, fitted_on=fitted_on, chosen_on=chosen_on, contents=contents
    )
    if found:
        more = (
            f", and {len(found) - _MAX_LEAKS_SHOWN} more" if len(found) > _MAX_LEAKS_SHOWN else ""
        )
        named = "; ".join(str(leak) for leak in found[:_MAX_LEAKS_SHOWN])
        raise ValueError(
            f"{named}{more}: fit and choose on training days only, and lengthen the embargo by "
            "what labels reach"
        )


def reach_of_maturities(as_of: ArrayLike, longest: ArrayLike) -> Days:
    """Return ``(D,)`` the last session on or before the latest expiry of each session's options.

    It is for labels that are known at expiry only, such as payoffs and hedging errors. Quotes are
    known on their own day.

    Args:
        as_of: ``(D,)`` times of the sessions, increasing.
        longest: ``(D,)`` longest maturity of each session in years, or one number for all.
    """
    at = np.asarray(as_of, dtype="datetime64[m]")
    minutes = np.ceil(np.asarray(longest, dtype=np.float64) * MINUTES_PER_YEAR - 1e-6)
    ends = at + np.broadcast_to(minutes, at.shape).astype("timedelta64[m]")
    return np.asarray(np.searchsorted(at, ends, side="right") - 1, dtype=np.int64)


def depends_on_days(
    prepare: Callable[[NDArray[np.float64]], object],
    data: ArrayLike,
    days: ArrayLike,
    seed: int = 0,
) -> bool:
    """Return whether the output of ``prepare`` depends on the data of some days.

    The rows of those days are replaced twice by noise with the data's mean and scale, and the two
    outputs are compared bit by bit. For the inputs of training, with the days of validation and
    scoring, the result must be False. A ``prepare`` that draws random numbers has to be seeded.

    Args:
        prepare: Maps the data of all days to the inputs of training: arrays, numbers, or mappings
            and sequences of them.
        data: ``(D, …)`` one row per day.
        days: The rows that must not matter.
        seed: Seed of the noise.
    """
    plain = np.asarray(data, dtype=np.float64)
    rows = np.asarray(days, dtype=np.int64)
    rng = np.random.default_rng(seed)
    finite = plain[np.isfinite(plain)]
    mean, size = (finite.mean(), finite.std() + 1.0) if finite.size else (0.0, 1.0)
    made = []
    for _ in range(2):
        other = plain.copy()
        other[rows] = mean + size * rng.standard_normal(other[rows].shape)
        made.append(_encode_for_comparison(prepare(other)))
    return made[0] != made[1]


def _find_misplaced_days(fold: int, earlier: Days, later: Days) -> list[Leak]:
    both = np.intersect1d(earlier, later)
    first = int(later.min())
    late = np.setdiff1d(earlier[earlier > first], both)
    return [
        *(Leak(fold, "overlap", int(day), int(day)) for day in both),
        *(Leak(fold, "order", int(day), first) for day in late),
    ]


def _find_reach_leaks(
    fold: int, name: str, last: NDArray[np.int64], earlier: Days, later: Days
) -> list[Leak]:
    top = int(max(earlier.max(), later.max()))
    if last.ndim != 1 or last.size <= top:
        raise ValueError(
            f"reaches[{name!r}] has shape {last.shape}, and the fold has day {top}: give one last "
            "day for each day of the timeline"
        )
    # the first day of the later part from the day itself on: parts need not be contiguous
    place = np.searchsorted(later, earlier)
    ahead = np.append(later, np.iinfo(np.int64).max)[place]
    bad = (last[earlier] >= ahead) & (ahead > earlier)
    return [
        Leak(fold, name, int(day), int(knows))
        for day, knows in zip(earlier[bad], ahead[bad], strict=True)
    ]


def _find_copied_days(
    fold: int, contents: Sequence[object], earlier: Days, later: Days
) -> list[Leak]:
    seen = {contents[day]: int(day) for day in later.tolist()}
    return [
        Leak(fold, "copy", day, seen[contents[day]])
        for day in earlier.tolist()
        if contents[day] in seen and seen[contents[day]] != day
    ]


def _encode_for_comparison(value: object) -> object:
    """Replace arrays by shape, type and bytes, so that equal results compare equal, NaN too."""
    if isinstance(value, Mapping):
        return {key: _encode_for_comparison(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_encode_for_comparison(part) for part in value]
    array = np.asarray(value)
    return array.shape, str(array.dtype), array.tobytes()
