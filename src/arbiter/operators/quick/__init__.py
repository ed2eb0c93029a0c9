"""A forward pass on the CPU, as quick as the arithmetic allows: the same numbers by other means.

Quotes of all chains lie in one row without padding (:mod:`.flat`), and what is a long row of small
steps is compiled (:mod:`arbiter.compiled`). Nothing here decides anything: every module has its
counterpart in :mod:`arbiter.operators`, where the reasons are, and a test that both agree.
"""
