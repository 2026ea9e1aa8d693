"""Who may call the pool, from where, and with what in hand."""
