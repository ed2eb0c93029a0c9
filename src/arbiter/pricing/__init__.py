"""Option prices of one slice: Black's formula, transport slices, mixtures, interpolation in T."""
