"""Every benchmark in turn: ``python -m benchmarks``."""

from __future__ import annotations

from benchmarks import decode, fit, implied_volatility, oracle, scan

if __name__ == "__main__":
    print("Decoding surfaces\n")
    decode.main()
    print("\nImplied volatility\n")
    implied_volatility.main()
    print("\nFitting\n")
    fit.main()
    print("\nTimelines of the oracle\n")
    oracle.main()
    print("\nTime against the number of maturities\n")
    scan.main()  # last: it ends with an error if a slope is too steep
