"""The transforms of :mod:`arbiter.models` in torch, for many parameter sets at once on a GPU."""
