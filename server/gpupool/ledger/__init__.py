"""What the pool must not forget: leases, sessions, devices, tokens, quotas, and the journal of decisions.

SQLAlchemy Core over SQLite (WAL, synchronous FULL). One transaction per decision, written before anybody
is told of it.
"""
