"""A forward pass on the CPU, as quick as the arithmetic allows: the same numbers by other means.

Quotes of all chains lie in one row without padding (:mod:`.flat`), and what is a long row of small
steps is compiled (:mod:`arbiter.compiled`). Nothing is decided here: modules have counterparts in
:mod:`arbiter.operators`, :mod:`arbiter.pricing.normal` and :mod:`arbiter.pricing.black`, where the
reasons are, and tests that both agree to rounding.
"""
