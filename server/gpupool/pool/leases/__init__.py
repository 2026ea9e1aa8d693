"""How leases begin, change and end, and their sessions with them."""
