"""Option pricing models with exact prices: Heston, lifted Heston, double Heston with jumps."""
