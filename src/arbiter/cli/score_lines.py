"""Lines of a fit's score over every expiry, and of the expiries that are left out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

from arbiter.values import floor_percent


def score_lines(
    score: Mapping[str, Any], left_out: Sequence[Mapping[str, Any]]
) -> list[tuple[str, str]]:
    """Name and text of each line.

    Args:
        score: The field of fit.json of that name.
        left_out: The field ``expiries_left_out``.
    """
    clean = format_share(score["slices_without_violation"])
    whole = (
        f"{format_share(score['inside_bid_ask'])} of {score['quotes']:,} inside, worst "
        f"{_fixed(score['worst_half_spreads'])} half-spreads outside; "
        f"{clean} of {score['expiries']} without violation; "
        f"RMS {_fixed(score['rms_half_spreads'])} half-spreads"
    )
    parts = [
        f"{name.replace('_', ' ')} {format_share(bucket['inside_bid_ask'])}"
        for name, bucket in score["buckets"].items()
        if bucket["quotes"]
    ]
    lines = [("every expiry", whole), ("inside, by days", ", ".join(parts))]
    if score["one_sided"]["quotes"]:
        from arbiter.maturity_scores import describe_asks  # not on the start-up path

        lines.append(("", describe_asks(score["one_sided"])))
    if left_out:
        by_ending = groupby(sorted(left_out, key=_ending_of), key=_ending_of)
        told = (f"{name}: {', '.join(one['label'] for one in group)}" for name, group in by_ending)
        lines.append(("expiries left out", "; ".join(told)))
    return lines


def _ending_of(one: Mapping[str, Any]) -> str:
    return str(one["ending"])


def format_share(share: float | None) -> str:
    """A share in percent, rounded down as in the report: 100 % means all of them."""
    return "–" if share is None else f"{floor_percent(share):.2f}%"


def _fixed(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}"
