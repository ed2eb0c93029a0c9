"""A change of time: where a clock stands at every maturity, as nodes with straight lines between.

Slopes that do not fall along one strictly increasing clock do not fall along any other, so that a
surface keeps every guarantee when its maturities are read off another clock (docs/theory.md,
section 5).
"""

from __future__ import annotations

from typing import NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike

from arbiter.conventions import Array


class TimeChange(NamedTuple):
    """A clock by its nodes; it runs like the calendar past the last one.

    Two nodes with one maturity are a jump. At the jump itself it has happened.
    """

    T: Array  # (N,) year fractions from 0, nondecreasing
    clock: Array  # (N,) years on the clock from 0, nondecreasing, and growing wherever T grows

    @classmethod
    def from_nodes(cls, T: ArrayLike, clock: ArrayLike) -> Self:
        """The clock of nodes.

        Raises:
            ValueError: If they do not start at zero, fall, or stand still.
        """
        rows = [np.array(values, dtype=np.float64) for values in (T, clock)]
        for name, row in zip(("T", "clock"), rows, strict=True):
            if row.ndim != 1 or row.size < 2 or row.shape != rows[0].shape:
                raise ValueError(f"{name} of a time change has shape {row.shape}: give two rows")
            if row[0] != 0.0 or not np.all(np.isfinite(row)) or np.any(np.diff(row) < 0.0):
                raise ValueError(f"{name} of a time change must start at 0 and never fall")
            row.setflags(write=False)
        still = (np.diff(rows[0]) > 0.0) & ~(np.diff(rows[1]) > 0.0)
        if still.any() or not np.diff(rows[0]).any():
            at = float(rows[0][int(np.argmax(still))])
            raise ValueError(f"the clock of a time change stands still at T = {at:g}")
        return cls(*rows)

    def at(self, T: ArrayLike) -> Array:
        """Years on the clock at maturities ``T``; they do not fall, in floating point either."""
        at = np.asarray(T, dtype=np.float64)
        place = np.searchsorted(self.T, at, side="right") - 1
        inner = np.minimum(place, self.T.size - 2)
        run = self._rates()[inner] * (at - self.T[inner])
        inside = np.minimum(self.clock[inner] + run, self.clock[inner + 1])
        past = self.clock[-1] + (at - self.T[-1])
        return np.asarray(np.where(place < self.T.size - 1, inside, past))

    def rate_at(self, T: ArrayLike) -> Array:
        """Derivatives of :meth:`at`; to the right of a node."""
        place = np.searchsorted(self.T, np.asarray(T, dtype=np.float64), side="right") - 1
        return np.append(self._rates(), 1.0)[place]

    def _rates(self) -> Array:
        step = np.diff(self.T)
        return np.diff(self.clock) / np.where(step > 0.0, step, 1.0)
