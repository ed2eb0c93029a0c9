"""Slices and their prices: Black, the normal law, transports on knots, mixtures, maturities."""
