"""The commands `arbiter train`, `arbiter evaluate` and `arbiter reproduce`."""
