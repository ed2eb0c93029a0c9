"""The risk-neutral operator: quotes of a chain in, a star-ordered surface out.

:mod:`.pretrained` is what users call. :mod:`.prior` is the Gaussian process on smiles before any
network, :mod:`.network` the trained correction with its Lipschitz constant; the lab has both in
torch, where they are trained. :mod:`.domain` decides whether a chain is like those of training.
docs/operator-architecture.md has the theorems.
"""
