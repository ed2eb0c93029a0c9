"""The network: gates on strikes, scans along maturities, slopes out, and their bounds."""
