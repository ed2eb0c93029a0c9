"""CUDA graphs: a computation is recorded once and replayed with one launch.

The operator consists of many small kernels; launching them takes five times as long as running
them. On the CPU a recording is the plain function.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache

import torch
from torch import Tensor

_WARMUP_RUNS = 3  # runs before recording, so that caches and libraries are set up


@lru_cache(maxsize=1)
def _recording_stream() -> torch.cuda.Stream:
    """Return the stream of all recordings; gradients stay bound to the stream of their forward."""
    return torch.cuda.Stream()


class RecordedFunction:
    """A recorded function of tensors; its outputs are the same buffers at every call.

    On a GPU the next call overwrites the outputs: copy those that are needed later.

    Args:
        function: Takes tensors, returns a sequence of tensors. Neither may depend on anything
            that changes between calls other than tensors in place, and no autograd graph may
            outlive a call: it would hold on to memory that the replay writes to.
        example: Inputs to record with; later ones must have the same shapes and types.
        device: Device of the function; that of the first input if left out.
    """

    def __init__(
        self,
        function: Callable[..., Sequence[Tensor]],
        example: Sequence[Tensor] = (),
        device: torch.device | str | None = None,
    ) -> None:
        if device is None:
            device = example[0].device if example else "cpu"
        self.function = function
        self.inputs = [x.clone() for x in example]
        self.graph: torch.cuda.CUDAGraph | None = None
        if torch.device(device).type != "cuda":
            return
        stream = _recording_stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(_WARMUP_RUNS):
                function(*self.inputs)
        torch.cuda.current_stream().wait_stream(stream)
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph, stream=stream):
            self.outputs = function(*self.inputs)

    def __call__(self, *inputs: Tensor) -> Sequence[Tensor]:
        """Return the function of ``inputs``, which must have the shapes of the example."""
        if len(inputs) != len(self.inputs):
            raise ValueError(f"recorded with {len(self.inputs)} inputs, called with {len(inputs)}")
        for place, (given, own) in enumerate(zip(inputs, self.inputs, strict=True)):
            if given.shape != own.shape or given.dtype != own.dtype:
                raise ValueError(
                    f"input {place} is {tuple(given.shape)} {given.dtype}, recorded was "
                    f"{tuple(own.shape)} {own.dtype}: record again for another shape"
                )
        if self.graph is None:
            return self.function(*inputs)
        if inputs:
            torch._foreach_copy_(self.inputs, list(inputs))
        self.graph.replay()
        return self.outputs
