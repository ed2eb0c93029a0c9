"""Metrics: pure functions of arrays, float64, one value and one series of days each."""
