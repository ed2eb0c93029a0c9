"""How good a method is where the truth is known, and on chains where it is not."""
