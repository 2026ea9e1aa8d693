"""How requests wait, in which order they are looked at, and what they are told."""
