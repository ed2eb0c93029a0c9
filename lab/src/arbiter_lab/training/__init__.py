"""Training of the operator: exact laws to learn from, batches of noisy listings drawn from them."""
