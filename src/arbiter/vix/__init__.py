"""The VIX: the exchange's index rule, its replication error, and a prior of the VIX's law."""
