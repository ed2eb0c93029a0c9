"""How near the scans of a network come to their bounds, and how much its answers can move."""
