"""Numbers as text: separators, signs, percentages that are rounded down, durations."""

from __future__ import annotations

import html
import math
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from arbiter.values import floor_percent

ABSENT = "–"


def format_number(value: Any, digits: int = 2) -> str:
    """A number with thousands separators and a true minus sign; a dash where there is none."""
    if value is None or isinstance(value, bool) or not isinstance(value, int | float | np.number):
        return ABSENT
    if not math.isfinite(value):
        return ABSENT
    text = f"{value:,.{digits}f}"
    return text.replace("-", "−") if float(text.replace(",", "")) else text.replace("-", "")


def format_significant(value: Any, digits: int = 3) -> str:
    """A number to so many significant digits; a dash where there is none."""
    if value is None or not math.isfinite(value):
        return ABSENT
    return f"{value:.{digits}g}".replace("e-0", "e-").replace("-", "−")


def format_percent(share: Any, digits: int = 2) -> str:
    """A share of [0, 1] in percent, rounded down: 100 % means all of them."""
    if share is None or not math.isfinite(share):
        return ABSENT
    return f"{floor_percent(share, digits):.{digits}f}\u00a0%"


def format_count(amount: Any, singular: str, plural: str | None = None) -> str:
    """``amount`` with its noun, singular or plural."""
    noun = singular if amount == 1 else plural or f"{singular}s"
    return f"{format_number(amount, 0)} {noun}"


def format_days(days: float) -> str:
    """A number of days as text: hours, days, weeks, months or years, rounded."""
    if days < 1.0:
        return f"{24.0 * days:.0f} h"
    if days < 60.0:
        return f"{days:.0f} d" if days >= 10.0 else f"{round(days, 1):g} d"
    return f"{days / 30.4375:.0f} m" if days < 700.0 else f"{round(days / 365.25, 1):g} y"


def format_timestamp(value: Any) -> str:
    """A time stamp with a blank in place of the letter T and without zero seconds."""
    text = "" if value is None else str(value).replace("T", " ")
    return text.removesuffix(":00") if text.count(":") == 2 else text


def escape_label(text: Any, longest: int = 40) -> str:
    """``text`` cut to ``longest`` characters, with the tags that plotly reads escaped."""
    whole = str(text)
    whole = whole if len(whole) <= longest else f"{whole[: longest - 1]}…"
    return html.escape(whole, quote=False)


def escape_dollars(label: str) -> str:
    """``label`` with its dollar signs escaped; matplotlib would read them as a formula."""
    return label.replace("$", r"\$")


def round_for_json(values: ArrayLike, digits: int) -> Any:
    """Nested lists of rounded numbers for JSON, None where there is no number."""
    array: NDArray[Any] = np.round(np.asarray(values, dtype=np.float64), digits) + 0.0
    if np.isfinite(array).all():
        return array.tolist()
    holes = array.astype(object)
    holes[~np.isfinite(array)] = None
    return holes.tolist()


def choose_ticks(low: float, high: float, most: int) -> list[float]:
    """Round numbers between ``low`` and ``high``, at most ``most`` of them."""
    if not (math.isfinite(low) and math.isfinite(high) and high > low):
        return []
    power = 10.0 ** math.floor(math.log10((high - low) / most))
    for step in (power * factor for factor in (1.0, 2.0, 2.5, 5.0, 10.0, 20.0)):
        first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
        if last - first + 1 <= most:
            return [round(i * step, 10) + 0.0 for i in range(first, last + 1)]
    return []
