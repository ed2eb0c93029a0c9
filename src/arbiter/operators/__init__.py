"""The risk-neutral operator: quotes of a chain in, a star-ordered surface out.

On the way: :mod:`.ragged` (tensors and quadrature), :mod:`.reference` (level and clock),
:mod:`.gate` (densities on strikes), :mod:`.scan` and :mod:`.green` (states along maturities),
:mod:`.network` (looks), :mod:`.head` (slopes). What keeps it tame: :mod:`.qalign` and
:mod:`.lipschitz`. docs/operator-architecture.md has the theorems.
"""
