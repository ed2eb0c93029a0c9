"""Checkpoints of the networks that the protocol compares; ``checkpoints.json`` describes them."""
