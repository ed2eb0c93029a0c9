"""Certificates and audits: exact proofs on stored numbers, and inequalities on public prices."""
