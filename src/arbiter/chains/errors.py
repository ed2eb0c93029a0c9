"""What goes wrong with a chain that cannot be used, and the argument that mends it."""

from __future__ import annotations

from typing import NamedTuple


class Remedy(NamedTuple):
    """An argument of the reader that mends an error.

    Attributes:
        argument: Name of the argument, ``"as_of"`` for instance.
        value: A value to give, or one that shows how to write it.
    """

    argument: str
    value: str


class ChainError(ValueError):
    """A chain cannot be read or used; the message says why and what to do.

    Attributes:
        remedy: The argument to give, where one mends the error; None otherwise.
    """

    def __init__(self, message: str, remedy: Remedy | None = None) -> None:
        super().__init__(message)
        self.remedy = remedy

    def __reduce__(self) -> tuple[type[ChainError], tuple[str, Remedy | None]]:
        return type(self), (str(self), self.remedy)
