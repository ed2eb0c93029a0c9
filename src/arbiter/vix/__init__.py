"""The volatility index: the rule of the exchange, its replication, and a prior of its law."""
