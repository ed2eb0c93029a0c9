"""The laboratory: how the operator is trained, measured and compared with others.

The library (:mod:`arbiter`) never imports it. Its commands join ``arbiter`` by entry points.
"""
