"""Plain values as files of JSON hold them: taken as what they should be, or refused by name.

An error says the field, its value and what it may be. ``True`` counts as 1 in Python, and its JSON
reads NaN and integers of any length: here none of them passes for a number.
"""

from __future__ import annotations

import math
import reprlib
import sys
from collections.abc import Iterable, Mapping
from typing import Any, TypeGuard

_MAX_FLOAT = sys.float_info.max


def require_integer(name: str, value: object, least: int, most: int) -> int:
    """A whole number within bounds.

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
    """True or False, and no other way to say so."""
    if type(value) is not bool:
        raise ValueError(f"{name} = {shorten_repr(value)} must be true or false")
    return value


def require_positive(name: str, value: object, most: float = math.inf) -> float:
    """A number above zero, finite."""
    if not is_number(value) or not 0.0 < value <= most:
        bound = "" if most == math.inf else f" of at most {most:g}"
        raise ValueError(f"{name} = {shorten_repr(value)} must be a positive number{bound}")
    return value


def require_number(name: str, value: object) -> float:
    """A finite number."""
    if not is_number(value):
        raise ValueError(f"{name} = {shorten_repr(value)} must be a number")
    return value


def require_numbers(name: str, value: object) -> tuple[float, ...]:
    """A row of finite numbers."""
    if not isinstance(value, list | tuple) or not all(is_number(each) for each in value):
        raise ValueError(f"{name} = {shorten_repr(value)} must be a list of numbers")
    return tuple(value)


def require_text(name: str, value: object) -> str:
    """Text."""
    if not isinstance(value, str):
        raise ValueError(f"{name} = {shorten_repr(value)} must be text")
    return value


def require_known_keys(name: str, value: object, known: Iterable[str]) -> dict[str, Any]:
    """Values by name, of names that there are."""
    if not isinstance(value, Mapping):
        raise ValueError(f"{name} = {shorten_repr(value)} must be an object of values by name")
    names = list(known)
    unknown = sorted(set(value) - set(names), key=str)
    if unknown:
        told = ", ".join(map(str, unknown[:5]))
        raise ValueError(f"{name}: {told} unknown; there are {', '.join(names)}")
    return dict(value)


def is_number(value: object) -> TypeGuard[float]:
    """Whether it is a finite number, and not a truth value."""
    # compared, not converted: an integer may be too long for a float, and is no number here then
    return isinstance(value, int | float) and type(value) is not bool and abs(value) <= _MAX_FLOAT


def shorten_repr(value: object) -> str:
    """How a value reads in an error, cut where it is long."""
    return reprlib.repr(value)
