"""Commands that belong to no group."""
