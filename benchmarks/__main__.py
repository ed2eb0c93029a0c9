"""Every benchmark in turn: ``python -m benchmarks``."""

from __future__ import annotations

from benchmarks import decode, fit, implied_volatility, oracle

if __name__ == "__main__":
    print("Decoding surfaces\n")
    decode.main()
    print("\nImplied volatility\n")
    implied_volatility.main()
    print("\nFitting\n")
    fit.main()
    print("\nTimelines of the oracle\n")
    oracle.main()
