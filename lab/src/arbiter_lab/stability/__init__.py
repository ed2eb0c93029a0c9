"""Stability bounds of the operator's network: Green kernels of its scans, Lipschitz constants."""
