"""The law before any network: a Gaussian process on smiles, given bid and ask."""
