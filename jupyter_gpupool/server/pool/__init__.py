"""The server's connection to the pool, and who its user is there."""
