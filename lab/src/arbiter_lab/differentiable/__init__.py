"""Torch versions of the library's decoder, prior and network, for training on a GPU.

Files and functions have the names and signatures of the library's compiled ones, which are what
users run. ``lab/tests/differentiable`` keeps every pair equal to a stated rounding.
"""
