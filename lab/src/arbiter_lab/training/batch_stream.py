"""The stream of training batches: the kind and the contents of the batch of each step.

Every super-batch has its own seed, from the run's seed, its kind and its number; a run passes over
it a few times. The only state of the stream is counts, so a resumed run draws the same batches bit
for bit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from arbiter_lab.training.batches import Batch, draw_batch
from arbiter_lab.training.law_pool import Laws
from arbiter_lab.training.settings import Settings

_KIND_STREAM, _BATCH_STREAM, HELD_OUT_STREAM = (
    1,
    2,
    3,
)  # streams of random numbers that must not meet

Lesson = tuple[Tensor, ...]
"""Input of a step: tensors whose first axis is the surface."""


class Draw(NamedTuple):
    """One batch of the stream."""

    kind: int
    lesson: Lesson


def make_generator(device: torch.device | str, *key: int) -> torch.Generator:
    """Return a generator whose numbers depend only on the key."""
    word = int(np.random.SeedSequence(list(key)).generate_state(1, np.uint64)[0])
    return torch.Generator(device).manual_seed(word & (2**63 - 1))


class BatchStream:
    """Batches of a run, in order.

    Args:
        settings: Kinds of batches, mix, chunk and seed.
        laws: The pool.
        prepare: Maps a batch to a lesson.
    """

    def __init__(
        self, settings: Settings, laws: Laws, prepare: Callable[[Batch, Laws], Lesson]
    ) -> None:
        self.settings, self.laws, self.prepare = settings, laws, prepare
        self.taken = [0] * len(settings.layouts)
        self._drawn: dict[int, tuple[int, Lesson]] = {}  # by kind: number of the super-batch

    def next_lesson(self, step: int) -> Draw:
        """Return the batch of step ``step``."""
        settings = self.settings
        choice = np.random.default_rng([settings.seed, _KIND_STREAM, step])
        kind = int(choice.choice(len(settings.layouts), p=settings.mix))
        number, place = divmod(self.taken[kind], settings.chunk * settings.passes)
        self.taken[kind] += 1
        held = self._drawn.get(kind)
        if held is None or held[0] != number:
            held = (number, self._super_batch(kind, number))
            self._drawn[kind] = held
        size = settings.layouts[kind][-1]
        place %= settings.chunk
        rows = slice(place * size, (place + 1) * size)
        return Draw(kind, tuple(x[rows] for x in held[1]))

    def go_to(self, taken: Sequence[int]) -> None:
        """Continue after ``taken`` batches of each kind."""
        if len(taken) != len(self.taken) or min(taken) < 0:
            raise ValueError(f"{list(taken)} are no counts of {len(self.taken)} kinds of batches")
        self.taken = list(taken)
        self._drawn.clear()

    def _super_batch(self, kind: int, number: int) -> Lesson:
        layout, size = self.settings.layout(kind)
        generator = make_generator(
            self.laws.iv.device, self.settings.seed, _BATCH_STREAM, kind, number
        )
        batch = draw_batch(self.laws, layout, generator, size * self.settings.chunk)
        return self.prepare(batch, self.laws)
