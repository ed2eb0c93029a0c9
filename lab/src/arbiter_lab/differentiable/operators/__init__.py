"""The operator of :mod:`arbiter.operators` in torch, with gradients."""
