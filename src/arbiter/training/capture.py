"""Whole computations recorded once and replayed: on a GPU, thousands of launches become one.

The operator is many small kernels, and launching them takes five times as long as running them.
On the CPU, or when told not to, a recording is the plain function.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

_WARM = 3  # runs before recording, so that caches and libraries are set up


@lru_cache(maxsize=1)
def _stream() -> torch.cuda.Stream:
    """One stream for all recordings: gradients remember the stream that they were made on."""
    return torch.cuda.Stream()


class Recorded:
    """A function of tensors that keeps its outputs' places between calls.

    Args:
        function: Takes tensors, returns a sequence of tensors. Neither may depend on anything
            that changes between calls other than tensors in place.
        example: Inputs to record with; later ones must have the same shapes and types.
    """

    def __init__(
        self, function: Callable[..., Sequence[Tensor]], example: Sequence[Tensor]
    ) -> None:
        self.function = function
        self.graph: Any = None
        if not (example and example[0].is_cuda) and not _any_cuda(function):
            return
        self.inputs = [x.clone() for x in example]
        stream = _stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(_WARM):
                function(*self.inputs)
        torch.cuda.current_stream().wait_stream(stream)
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph, stream=stream):
            self.outputs = function(*self.inputs)

    def __call__(self, *inputs: Tensor) -> Sequence[Tensor]:
        if self.graph is None:
            return self.function(*inputs)
        if inputs:
            torch._foreach_copy_(self.inputs, list(inputs))
        self.graph.replay()
        return self.outputs


def _any_cuda(function: object) -> bool:
    return bool(getattr(function, "on_cuda", False))
