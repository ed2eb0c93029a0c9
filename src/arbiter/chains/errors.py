"""What goes wrong with a chain that cannot be used."""

from __future__ import annotations


class ChainError(ValueError):
    """A chain cannot be read or used; the message says why and what to do."""
