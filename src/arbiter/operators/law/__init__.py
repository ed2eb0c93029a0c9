"""The network: quotes are read through a law, which it changes; the changed law is what prices."""
