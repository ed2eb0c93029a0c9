"""The operator's second design: quotes are read through a law, and the law prices.

A chain has a prior law, the transport of :mod:`arbiter.operators.prior`. A look reads what quotes
are off under the law and writes a change of it. The last law is the *proposal*: positive, free to
miss the forward and the order in maturity. The decoder makes the certified surface of it.
"""
