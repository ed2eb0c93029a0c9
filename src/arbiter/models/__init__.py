"""Parametric models and their exact prices: Heston, lifted Heston, double Heston with jumps."""
