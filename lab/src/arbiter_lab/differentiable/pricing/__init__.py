"""The decoder of :mod:`arbiter.pricing` in torch, with gradients."""
