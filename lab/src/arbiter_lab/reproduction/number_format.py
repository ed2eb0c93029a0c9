"""Formats numbers for tables."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

DASH = "–"


def format_fixed(value: float | None, digits: int) -> str:
    """Format with ``digits`` decimals, or as a dash."""
    return DASH if value is None or not math.isfinite(value) else f"{value:,.{digits}f}"


def format_five_digits(value: float | None) -> str:
    """Format with five significant digits, or as a dash."""
    return DASH if value is None else f"{value:.5g}"


def format_three_digits(value: float | None) -> str:
    """Format with three significant digits, or as a dash."""
    return DASH if value is None else f"{value:.3g}"


def format_percent(value: float | None) -> str:
    """Format a share in per cent, rounded down so that only 1 is shown as 100 %."""
    return DASH if value is None else f"{math.floor(1e4 * value) / 1e2:g} %"


def format_score(value: float | None) -> str:
    """Format a score, rounded down so that only 1 is shown as 1."""
    if value is None:
        return DASH
    return "1" if value == 1.0 else f"{math.floor(1e5 * value) / 1e5:.5f}"


def format_interval(run: Mapping[str, Any], what: str, *, papers: bool = False) -> str:
    """Format the interval of a number of a run; ``papers`` takes the one with the paper's lag."""
    ends = (run["about"].get("intervals_paper", {}) if papers else run["intervals"]).get(what)
    return DASH if ends is None else f"[{ends[0]:.5g}, {ends[1]:.5g}]"


def format_with_interval(run: Mapping[str, Any], what: str, digits: int) -> str:
    """Format a number of a run with its interval."""
    value, ends = run.get(what), run["intervals"].get(what)
    if value is None or ends is None:
        return format_fixed(value, digits)
    return f"{value:,.{digits}f} [{ends[0]:,.{digits}f}, {ends[1]:,.{digits}f}]"


def format_change(run: Mapping[str, Any], base: Mapping[str, Any], what: str) -> str:
    """Format the relative change of a number against a base run, in per cent."""
    here, there = run.get(what), base.get(what)
    if here is None or not there:
        return DASH
    return f"{100.0 * (here / there - 1.0):+.1f} %"
