"""Banded matrices written out, for checks against dense linear algebra."""

from __future__ import annotations

import numpy as np

from arbiter.conventions import Array


def write_out(band: Array) -> Array:
    """The symmetric matrix ``(p, p)`` of a band ``(p, w)`` as in :mod:`arbiter.fitting.banded`."""
    size, width = band.shape
    full = np.zeros((size, size))
    for shift in range(min(width, size)):
        at = np.arange(size - shift)
        full[at + shift, at] = full[at, at + shift] = band[: size - shift, shift]
    return full
