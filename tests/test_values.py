"""Plain values are what they should be, or the error names the field, the value and the remedy."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import pytest

from arbiter import values

BETWEEN = partial(values.require_integer, least=2, most=9)


@pytest.mark.parametrize(
    ("take", "good", "bad"),
    [
        (BETWEEN, [2, 9], [1, 10, 4.0, True, "4", None, 10**4000]),
        (values.require_bool, [True, False], [0, 1, "no", None]),
        (
            values.require_positive,
            [1, 0.5],
            [0, -1.0, math.nan, math.inf, True, "1", None, 10**4000],
        ),
        (partial(values.require_positive, most=4.0), [4, 4.0], [4.1, 10**4000]),
        (values.require_number, [0, -2.5], [math.nan, -math.inf, False, "0", [0], -(10**4000)]),
        (values.require_text, ["", "a"], [None, 1, b"a"]),
    ],
)
def test_a_value_is_taken_as_it_is_or_refused_by_name(
    take: Callable[[str, object], object], good: list[object], bad: list[object]
) -> None:
    for value in good:
        assert take("field", value) is value
    for value in bad:
        with pytest.raises(ValueError, match=r"^field = .* must be ") as caught:
            take("field", value)
        assert len(str(caught.value)) < 120


def test_rows_of_numbers_become_tuples() -> None:
    assert values.require_numbers("spans", [0.3, 2]) == (0.3, 2)
    assert values.require_numbers("spans", ()) == ()
    for bad in (None, 3.0, "ab", ["a"], [True], [math.nan], [[1.0]], {1.0: 2.0}):
        with pytest.raises(ValueError, match=r"^spans = .* must be a list of numbers"):
            values.require_numbers("spans", bad)


def test_names_are_those_that_there_are() -> None:
    assert values.require_known_keys("config", {"heads": 4}, ["heads", "width"]) == {"heads": 4}
    with pytest.raises(ValueError, match="config: depth unknown; there are heads, width"):
        values.require_known_keys("config", {"heads": 4, "depth": 1}, ["heads", "width"])
    for bad in (None, [1, 2], "heads"):
        with pytest.raises(ValueError, match=r"^config = .* must be an object of values by name"):
            values.require_known_keys("config", bad, ["heads"])
