"""A pool of one user on one machine, which lives as long as somebody uses it."""
