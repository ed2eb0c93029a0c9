"""One command that regenerates every number, table and figure: `arbiter reproduce`."""
