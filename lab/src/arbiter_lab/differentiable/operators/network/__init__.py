"""The network of :mod:`arbiter.operators.network` in torch, as it is trained."""
