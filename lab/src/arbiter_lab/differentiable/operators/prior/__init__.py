"""The Gaussian-process prior of :mod:`arbiter.operators.prior` in torch."""
