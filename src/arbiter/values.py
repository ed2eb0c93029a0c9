"""Checked plain values, as JSON files hold them, and codes with an explanation.

Each ``require_`` function returns its value, or raises a ``ValueError`` with the field's name, the
value and the allowed range. Truth values, NaN and integers too large for a float are not numbers.
"""

from __future__ import annotations

import math
import reprlib
import sys
from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Any, Self, TypeGuard

_MAX_FLOAT = sys.float_info.max


def floor_percent(share: float, digits: int = 2) -> float:
    """A share in percent, rounded down: 100 means all of them, but for rounding."""
    scale = 10.0**digits
    return math.floor(100.0 * share * scale * (1.0 + 1e-14)) / scale


class ExplainedCode(StrEnum):
    """Base of enumerations whose members are a code, the value, and a sentence about it.

    Example:
        >>> class Weather(ExplainedCode):
        ...     RAIN = "rain", "it rains: take an umbrella"
        >>> Weather("rain").explain()
        'it rains: take an umbrella'
    """

    _sentence: str

    def __new__(cls, code: str, sentence: str = "") -> Self:
        """A member with its code and its sentence."""
        member = str.__new__(cls, code)
        member._value_ = code
        member._sentence = sentence
        return member

    def explain(self) -> str:
        """The code as a sentence, with a remedy where one is needed."""
        return self._sentence


def require_integer(name: str, value: object, least: int, most: int) -> int:
    """Return ``value`` if it is a whole number from ``least`` to ``most``.

    Example:
        >>> require_integer("heads", 4.5, 2, 1024)
        Traceback (most recent call last):
        ValueError: heads = 4.5 must be a whole number from 2 to 1024
    """
    if type(value) is not int or not least <= value <= most:
        raise ValueError(
            f"{name} = {shorten_repr(value)} must be a whole number from {least} to {most}"
        )
    return value


def require_bool(name: str, value: object) -> bool:
    """Return ``value`` if it is ``True`` or ``False``; 0 and 1 are refused."""
    if type(value) is not bool:
        raise ValueError(f"{name} = {shorten_repr(value)} must be true or false")
    return value


def require_positive(name: str, value: object, most: float = math.inf) -> float:
    """Return ``value`` if it is a finite number above zero and at most ``most``."""
    if not is_number(value) or not 0.0 < value <= most:
        bound = "" if most == math.inf else f" of at most {most:g}"
        raise ValueError(f"{name} = {shorten_repr(value)} must be a positive number{bound}")
    return value


def require_number(name: str, value: object) -> float:
    """Return ``value`` if it is a finite number."""
    if not is_number(value):
        raise ValueError(f"{name} = {shorten_repr(value)} must be a number")
    return value


def require_numbers(name: str, value: object) -> tuple[float, ...]:
    """Return a list or tuple of finite numbers as a tuple."""
    if not isinstance(value, list | tuple) or not all(is_number(each) for each in value):
        raise ValueError(f"{name} = {shorten_repr(value)} must be a list of numbers")
    return tuple(value)


def require_text(name: str, value: object) -> str:
    """Return ``value`` if it is text."""
    if not isinstance(value, str):
        raise ValueError(f"{name} = {shorten_repr(value)} must be text")
    return value


def require_known_keys(name: str, value: object, known: Iterable[str]) -> dict[str, Any]:
    """Return a mapping as a dictionary if all its keys are among ``known``."""
    if not isinstance(value, Mapping):
        raise ValueError(f"{name} = {shorten_repr(value)} must be an object of values by name")
    names = list(known)
    unknown = sorted(set(value) - set(names), key=str)
    if unknown:
        told = ", ".join(map(str, unknown[:5]))
        raise ValueError(f"{name}: {told} unknown; there are {', '.join(names)}")
    return dict(value)


def is_number(value: object) -> TypeGuard[float]:
    """Whether ``value`` is a finite number; truth values are not."""
    # compared, not converted: an integer may be too long for a float, and is no number here then
    return isinstance(value, int | float) and type(value) is not bool and abs(value) <= _MAX_FLOAT


def shorten_repr(value: object) -> str:
    """The representation of ``value`` for an error message, shortened where it is long."""
    return reprlib.repr(value)
