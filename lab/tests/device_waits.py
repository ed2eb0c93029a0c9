"""Operations for whose result the host would have to wait for a GPU."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode


class Waits(TorchDispatchMode):
    """Notes every operation for whose result the host would have to wait for a GPU."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.seen: list[str] = []

    def __torch_dispatch__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        name = str(function)
        chosen = [part for part in args if isinstance(part, list | tuple)]
        masks = [x for part in chosen for x in part if getattr(x, "dtype", None) == torch.bool]
        waits = any(one in name for one in ("_local_scalar_dense", "nonzero", "masked_select"))
        if waits or ("index" in name and masks):
            self.seen.append(name)
        return function(*args, **(kwargs or {}))
