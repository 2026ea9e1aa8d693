"""Whose room is taken for whom, and what goes on to disk when host memory is full."""
