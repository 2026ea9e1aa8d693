"""How the pool grows and shrinks with its providers."""
